"""A scheme over a virtual network whose losses are written down, in this process: no files, no data, no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from emul.base.plain import PlainMapping
from emul.base.rows import Row
from emul.kernel import Kernel, NodeCrash, NodeDropOut, Plan, StopRule, run_to_end
from emul.learning.device import Device
from emul.learning.results import Results
from emul.network import HERE, LinkRule, Network, Tail, TopologySpec, build
from emul.network.links.link import Link
from emul.registry import schemes
from emul.scenario.placing import place
from emul.workers.keeping import Keeper
from emul.workers.setup import Setup
from emul.workers.twin import Twin

LATENCY_NS = 10_000_000

# (kind, source, target, round) -> the copy is lost; nodes by number, 0 is the server
Lost = Callable[[str, int, int, int], bool]
# ... -> what it takes on top of the latency, ns
Late = Callable[[str, int, int, int], int]
# (task, whose, round, parameters) -> what "training" gives, (d,) float32
Update = Callable[["FakeTask", str, int, np.ndarray], np.ndarray]


class FakeTask:
    """A task without data; `update` says what training gives. spec: {"d": dimension}, and what `update` looks for."""

    fitting = None                      # nothing is trained as one, so no group has to fit into memory
    growth = 0.0                        # its vectors declare nothing

    def __init__(self, update: Update, spec: PlainMapping, clients: int, seed: int, device: str = "cpu",
                 *rest: object):
        self.update, self.spec, self.seed = update, spec, seed
        self.device, self.results = Device(device), Results()
        self.dimension: int = spec["d"]
        self.evaluated: list[np.ndarray] = []

    def prepare(self) -> None:
        """Nothing to load."""

    def initial_parameters(self) -> np.ndarray:
        """(d,) float32, zero."""
        return np.zeros(self.dimension, np.float32)

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int], transform: object = None,
                 tamper: object = None) -> FakeNodeTask:
        """The task as one node sees it."""
        return FakeNodeTask(self, name, client, round_of)

    def named(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The vector as one tensor."""
        return {"parameters": vector}

    def evaluate(self, vector: np.ndarray) -> dict[str, float]:
        """Notes the model; it is worth nothing."""
        self.evaluated.append(vector)
        return {"accuracy": 0.0}


@dataclass
class FakeNodeTask:
    task: FakeTask
    name: str
    client: int | None
    round_of: Callable[[], int]
    untouched = True                            # it keeps nothing

    @property
    def dimension(self) -> int:
        """d."""
        return self.task.dimension

    def initial_parameters(self) -> np.ndarray:
        """(d,) float32, zero."""
        return self.task.initial_parameters()

    def samples(self) -> int:
        """10 of the first client, 11 of the second, ..."""
        return 10 + (self.client or 0)

    def evaluate_own(self, parameters: np.ndarray) -> dict[str, float]:
        """It is worth nothing."""
        return {"accuracy": 0.0}

    def local_update(self, parameters: np.ndarray, share: int | None = None) -> tuple[np.ndarray, int]:
        """((d,) float32, number of samples). share: of which client's data, if not its own."""
        whose = self.name if share is None else f"client{share + 1}"
        return self.task.update(self.task, whose, self.round_of(), parameters), self.samples()


class ScriptedLink(Link):
    """A link that loses and delays what it is told to."""

    __slots__ = ("_late", "_loses", "_usual_ns")

    def __init__(self, src: int, dst: int, lost: Lost, late: Late):
        super().__init__(src, dst, LATENCY_NS, None)
        self._loses, self._late, self._usual_ns = lost, late, LATENCY_NS

    def offer(self, now: int, item: Any, size_bytes: int, round: int, last: bool = True, tail: Tail = HERE) -> bool:
        where = (item.kind, item.source, item.target, round)
        fate = self._loses(*where)
        self._lost = lambda start, end, round, k, packets: fate      # type: ignore[assignment]
        self.latency_ns = self._usual_ns + self._late(*where)
        return super().offer(now, item, size_bytes, round)


class ScriptedNetwork:
    """A network of such links."""

    def __init__(self, network: Network, lost: Lost | None, late: Late | None):
        self._network, self._lost, self._late = network, lost or nothing, late or at_once
        self._links: dict[tuple[int, int], Link] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def link(self, u: int, v: int) -> Link:
        if (u, v) not in self._links:
            self._links[u, v] = ScriptedLink(u, v, self._lost, self._late)
        return self._links[u, v]


def nothing(*_: object) -> bool:
    """Nothing is lost."""
    return False


def at_once(*_: object) -> int:
    """Nothing is late."""
    return 0


@dataclass(frozen=True)
class Script:
    """The script of a run. drops: number of the client, from 1 -> the type of message before which it drops out of
    every round. spec: of the task, beside d."""

    rounds: int = 1
    seed: int = 7
    d: int = 40
    servers: int = 1
    lost: Lost | None = None
    late: Late | None = None
    faults: Sequence[NodeCrash] = ()
    drops: Mapping[int, str] = field(default_factory=dict)
    spec: PlainMapping = field(default_factory=dict)


@dataclass(frozen=True)
class ScriptedRun:
    """The results of a played run. rows: of the journal. arrays: {(node, name): what it kept}."""

    rows: list[Row]
    kernel: Kernel
    plan: Plan
    task: FakeTask
    arrays: dict[tuple[str, str], np.ndarray]


def play(name: str, clients: int, params: Mapping[str, object], update: Update, script: Script) -> ScriptedRun:
    """Run a scheme on a star mesh with links of 10 ms; computations take no virtual time.

    params: by the names of the fields.
    """
    scheme = schemes.find(name)
    network: Any = build(TopologySpec(generator="star_mesh", clients=clients, servers=script.servers),
                         [LinkRule("*", latency_ns=LATENCY_NS)], script.seed)
    placed = place(scheme, scheme.params(**params), {}, network)
    names = placed.names
    setup = Setup(0, name, [], dict(params), script.seed, names, placed.roles, [1.0] * len(names), [0] * len(names),
                  {}, {"d": script.d, **script.spec}, "zero", {}, {}, shards=placed.shards,
                  holders=len(placed.holders))
    plan = Plan(names, placed.role_of, placed.vertices, [0] * len(names), scheme.deciders(placed.roles),
                StopRule(rounds=script.rounds), list(script.faults),
                dropouts={placed.roles["client"][number - 1]: [NodeDropOut(kind)]
                          for number, kind in script.drops.items()})
    if script.lost is not None or script.late is not None:
        network = ScriptedNetwork(network, script.lost, script.late)
    return _played(setup, plan, network, update)


def _played(setup: Setup, plan: Plan, network: Any, update: Update) -> ScriptedRun:
    log: list[Row] = []
    arrays: dict[tuple[str, str], np.ndarray] = {}
    tasks: list[FakeTask] = []

    class ListJournal:
        extend = log.extend

        def round_ended(self) -> None:
            """Nothing is flushed."""

        def observed(self, *_: object) -> None:
            """Nobody watches."""

    class Remembering(Keeper):
        def array(self, node: int, name: str, round_: int, array: Any) -> None:
            arrays[setup.names[node], name] = np.array(array)

    def make(*args: Any) -> FakeTask:
        tasks.append(FakeTask(update, *args))
        return tasks[-1]

    with mock.patch("emul.learning.Task", make), mock.patch("emul.workers.core.Keeper", Remembering), Twin() as twin:
        twin.open([setup])
        kernel = Kernel(plan, network, twin, ListJournal())
        run_to_end(kernel)
        twin.finish()
    return ScriptedRun(log, kernel, plan, tasks[0], arrays)
