"""A run as a worker is told of it."""

from __future__ import annotations

from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec import Struct

from emul.base.plain import PlainDict
from emul.base.streams import key64
from emul.registry.attacks import Planned
from emul.roles.costs import Costs, Mode

NO_LAST = 2**62                     # a round that does not come
P = TypeVar("P")


class Setup(Struct):
    """One run, as a worker is told of it: plain values only."""

    worker: int
    scheme: str
    plugins: list[str]                          # names of modules, which the worker imports (`emul.registry.schemes`)
    params: PlainDict                           # fields of the scheme's Params
    seed: int
    names: list[str]                            # node -> name
    roles: dict[str, list[int]]
    speeds: list[float]
    worker_of: list[int]                        # node -> worker
    behaviours: dict[int, list[list[Any]]]      # node -> (faulty variant of its role, from round, to; 0: for good)
    task: PlainDict | None                      # learning task; None: the scheme has none
    cost_mode: str
    profile: dict[str, list[float]]
    recorded: dict[int, list[int]]
    trains: bool = True                         # no: `training: skip`
    islands: list[list[float]] = []             # as of `World`: the rates at which nodes train
    rounds: dict[int, list[tuple[int, int]]] = {}       # as of `World`: of nodes that do not take part in all
    named: bool = False                         # timings name their computations (`Job.same`)
    evaluate_every: int = 1                     # rounds between two evaluations; 0: never
    evaluate_scope: str = "global"              # or "per_client"
    accuracy_of: str = "global"                 # one of `emul.roles.evaluation.AccuracyOf`; "none"
    compress: PlainDict = {}                    # {"up" or "down": codec as the scenario has it}
    chart: PlainDict | None = None              # the topology, for a scheme that knows it (`emul.network.terrain`)
    shards: list[list[int]] = []                # runs of nodes that hold data: [first node, its shard, how many]
    holders: int = 0                            # shards that there are
    attacks: dict[int, list[Planned]] = {}      # node -> what it does to its data, prototypes and updates
    slowdowns: dict[int, list[list[int]]] = {}  # node -> (from ns on, numerator, denominator) of how slow it is
    # node -> label -> costs of its computations, of the realisation that is replayed
    network_costs: dict[int, dict[str, list[int]]] = {}
    costs_beyond: str = "stream"                # the costs after the last of them
    traces: list[dict[str, list[int]]] = []     # label -> what it cost on real devices
    trace_of: list[int] = []                    # node -> which of them; -1: none
    trace_drawn: bool = True                    # by the seed; or in their order
    updates: list[float] = []                   # node -> seconds of a local update, of mode "model"; 0.0: no data
    cost_default: int | None = None             # ns at speed 1, of what has no other price
    fuse: list[str] = []                        # labels of the computations that are done together
    fuse_clients: int = 1                       # at most so many
    device: str = "cpu"                         # of training and evaluation
    memory: int = 0                             # bytes that a worker on a CPU may hold; 0: no limit
    sharing: int = 1                            # workers that are on this GPU
    visible: str | None = None                  # CUDA_VISIBLE_DEVICES, which numbers the GPUs; None: the worker's own
    directory: str = ""                         # of the run, absolute; "": nothing is written
    recalled: str = ""                          # directory of the run whose volatile results are taken; "": none are
    store: str = ""                             # folder of a store that trainings are written to; "": none are
    stored: list[str] = []                      # folders of stores that are only read
    store_limit: int | None = None              # bytes of `store`
    models_every: int = 0                       # rounds between two models of a node that are kept; 0: the last alone
    payloads: list[str] = []                    # types of messages that are kept
    payload_rounds: tuple[int, int] = (1, NO_LAST)      # in these rounds
    payload_room: int = 0                       # bytes of them that one node may leave
    patience_s: float = 0.0                     # real time of one step or computation of a role; 0: no limit
    delays: list[float] = []                    # tests: seconds slept before an activation, in turn


def costs_of(setup: Setup) -> Costs:
    """The costs of the computations of a run that begins."""
    def stream(node: int, label: str) -> int:
        return key64(setup.seed, "compute", setup.names[node], label)

    return Costs(cast(Mode, setup.cost_mode), setup.scheme, setup.profile, setup.recorded, setup.slowdowns,
                 setup.network_costs, setup.costs_beyond, setup.traces, setup.trace_of,
                 stream if setup.trace_drawn else None, setup.cost_default, setup.updates)


def as_declared(params: type[P], given: dict[str, object]) -> P:
    """Parameters as their annotations say, in a worker process and in the twin: on the way to a process a tuple becomes
    a list."""
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(given))
    hints = get_type_hints(params)
    for name, value in values.items():
        if isinstance(value, (list, dict)):
            values[name] = msgspec.convert(value, hints[name])
    return params(**values)
