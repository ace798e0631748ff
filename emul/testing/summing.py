"""Secure sums under losses that are written down: rounds of any scheme that keeps an audit, in this process.

Training is a draw of small numbers, so a round with real cryptography takes 20 ms. What is looked at is what an auditor
sees (`emul.protocols.audit`): each sum is that of the inputs that it says it has, element by element, or the round has
failed with a reason; and nobody's two secrets were given away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from emul import schemes
from emul.base import rows
from emul.base.streams import generator
from emul.kernel import DropOut, Kernel, Plan, StopRule, run_to_end
from emul.learning.device import Device
from emul.learning.results import Results
from emul.network import HERE, LinkRule, Network, Tail, TopologySpec, build
from emul.network.links.link import Link
from emul.protocols.audit import both_revealed, reason, wrong_sums
from emul.scenario.placing import place
from emul.workers.core import Setup
from emul.workers.keeping import Keeper
from emul.workers.twin import Twin

LATENCY_NS = 10_000_000

# (kind, source, target, round) -> the copy is lost; nodes by number, 0 is the server
Lost = Callable[[str, int, int, int], bool]

@dataclass(frozen=True)
class Summed:
    """What one run came to. rounds: {round: why the server left it, "": it did not fail}."""

    rounds: dict[int, str]
    wrong: dict[int, int]                       # round with a sum -> elements that are wrong
    included: dict[int, list[int]]              # round with a sum -> whose inputs are in it
    exposed: list[tuple[int, int, int]]         # (round, owner, vector) of whom shares of both secrets were given away
    models: list[np.ndarray]                    # as the server reported them
    rows: list[tuple[Any, ...]] = field(repr=False)
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    arrays: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict, repr=False)
    clients: Sequence[int] = ()                 # their nodes

    def verdict(self, round_: int = 1) -> str:
        """exact, wrong, or why it was given up; "exposed" comes before all."""
        if self.exposed:
            return "exposed"
        if self.rounds[round_]:
            return reason(self.rounds[round_])
        return "exact" if self.wrong.get(round_) == 0 else "wrong"


class Draw:
    """A task without data: an update is drawn by client and round."""

    def __init__(self, spec: dict[str, Any], clients: int, seed: int, device: str = "cpu", *rest: Any):
        self.seed, self.device, self.d = seed, Device(device), spec["d"]
        self.dimension = self.d
        self.results, self.models = Results(), []       # type: ignore[var-annotated]

    def prepare(self) -> None:
        """Nothing to load."""

    def initial_parameters(self) -> np.ndarray:
        """(d,) float32, zero."""
        return np.zeros(self.d, np.float32)

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int], transform: object = None,
                 tamper: object = None) -> NodeDraw:
        """What one node sees of it."""
        return NodeDraw(self, name, round_of)

    def named(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The vector as one tensor."""
        return {"parameters": vector}

    def evaluate(self, vector: np.ndarray) -> dict[str, float]:
        """Notes the model; it is worth nothing."""
        self.models.append(vector)
        return {"accuracy": 0.0}


@dataclass
class NodeDraw:
    task: Draw
    name: str
    round_of: Callable[[], int]
    untouched = True                            # it keeps nothing

    @property
    def dimension(self) -> int:
        """d."""
        return self.task.d

    def initial_parameters(self) -> np.ndarray:
        """(d,) float32, zero."""
        return self.task.initial_parameters()

    def samples(self) -> int:
        """Of every client as many."""
        return 10

    def evaluate_own(self, parameters: np.ndarray) -> dict[str, float]:
        """It is worth nothing."""
        return {"accuracy": 0.0}

    def local_update(self, parameters: np.ndarray) -> tuple[np.ndarray, int]:
        """(d,) float32 of normal numbers with standard deviation 0.3."""
        drawn = generator(self.task.seed, "update", self.name, self.round_of()).standard_normal(self.task.d)
        return (0.3 * drawn).astype(np.float32), 10


class _Lossy(Link):
    """A link that loses what it is told to."""

    __slots__ = ("_loses",)

    def __init__(self, src: int, dst: int, lost: Lost):
        super().__init__(src, dst, LATENCY_NS, None)
        self._loses = lost

    def offer(self, now: int, item: Any, size_bytes: int, round: int, last: bool = True, tail: Tail = HERE) -> bool:
        fate = self._loses(item.kind, item.source, item.target, round)
        self._lost = lambda start, end, round, k, packets: fate      # type: ignore[assignment]
        return super().offer(now, item, size_bytes, round)


class _Scripted:
    """A network of such links."""

    def __init__(self, network: Network, lost: Lost):
        self._network, self._lost = network, lost
        self._links: dict[tuple[int, int], Link] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def link(self, u: int, v: int) -> Link:
        if (u, v) not in self._links:
            self._links[u, v] = _Lossy(u, v, self._lost)
        return self._links[u, v]


def sums(scheme: str, clients: int, params: Mapping[str, Any], *, lost: Lost | None = None,
         drops: Mapping[int, str] | None = None, rounds: int = 1, d: int = 8, seed: int = 7) -> Summed:
    """Run a scheme with `audit` on a star of `clients`, with links of 10 ms and computations that take no time.

    As many servers as the scheme has places for. params: by the names of the fields. drops: number of the client, from
    1 -> the type of message before which it drops out of every round.
    """
    given = {**params, "audit": True}
    module = schemes.find(scheme)
    servers = 1 + sum(place.startswith("server[") for place in getattr(module, "PLACES", {}).values())
    network = build(TopologySpec(generator="star_mesh", clients=clients, servers=servers),
                    [LinkRule("*", latency_ns=LATENCY_NS)], seed)
    placed = place(scheme, module, module.Params(**given), {}, network)
    names = placed.names
    setup = Setup(0, scheme, [], given, seed, names, placed.roles, [1.0] * len(names), [0] * len(names), {},
                  {"d": d}, "zero", {}, {}, shards=placed.shards, holders=len(placed.holders))
    plan = Plan(names, placed.role_of, placed.vertices, [0] * len(names),
                schemes.deciders(module, placed.roles), StopRule(rounds=rounds),
                dropouts={placed.roles["client"][number - 1]: [DropOut(kind)]
                          for number, kind in (drops or {}).items()})
    return _played(setup, plan, network if lost is None else _Scripted(network, lost))


def _played(setup: Setup, plan: Plan, network: Any) -> Summed:
    log: list[tuple[Any, ...]] = []
    arrays: dict[tuple[str, str], np.ndarray] = {}
    tasks: list[Draw] = []

    class Journal:
        append = log.append

        def round_ended(self) -> None:
            """Nothing is flushed."""

        def observed(self, *_: Any) -> None:
            """Nobody watches."""

    class Remembering(Keeper):
        def array(self, node: int, name: str, round_: int, array: Any) -> None:
            arrays[setup.names[node], name] = np.array(array)

    def make(*args: Any) -> Draw:
        tasks.append(Draw(*args))
        return tasks[-1]

    with mock.patch("emul.learning.Task", make), mock.patch("emul.workers.core.Keeper", Remembering), Twin() as twin:
        twin.open([setup])
        run_to_end(Kernel(plan, network, twin, Journal()))
        twin.finish()
    return _summed(log, arrays, tasks[0].models, plan)


def _summed(log: Sequence[tuple[Any, ...]], arrays: dict[tuple[str, str], np.ndarray], models: list[np.ndarray],
            plan: Plan) -> Summed:
    hub = plan.deciders[0]
    server = plan.names[hub]
    why = {row[3]: row[4] for row in log if row[0] == rows.LEAVE and row[2] == hub}
    reports: dict[int, dict[str, Any]] = {}
    for row in log:
        if row[0] == rows.REPORT and row[2] == hub:
            reports.setdefault(row[3], {}).update(row[4])
    included = {int(name.partition("-")[2]): ids.tolist() for (node, name), ids in arrays.items()
                if node == server and name.startswith("included-")}
    return Summed(why, wrong_sums(arrays, plan.names, server), included, both_revealed(arrays, 1), models, list(log),
                  reports, arrays, [node for node, role in enumerate(plan.roles) if role == "client"])
