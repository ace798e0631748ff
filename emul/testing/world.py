"""Roles over a small network, in this process, and what their run left behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx as nx

from emul import engine
from emul.base import rows as R
from emul.base.plain import PlainDict, PlainMapping
from emul.base.rows import Row
from emul.kernel import Kernel
from emul.network import LinkRule, TopologySpec
from emul.network.models.contacts import ContactSpec
from emul.record.columns import columns
from emul.record.golden import golden_text
from emul.record.invariants import InvariantReport, check_columns
from emul.record.journal import MemoryJournal, repeats
from emul.record.summary import digest_model, summarise
from emul.record.tables import Derived, derive
from emul.registry import schemes
from emul.roles import Scheme
from emul.roles.scheme import AnyScheme
from emul.roles.trampoline import RoleFunction
from emul.scenario import ComputeTime, Evaluation, FusedTraining, Limits, Scenario, Stop, loads
from emul.testing.drive import listed
from emul.workers.twin import Twin

MS = 10**6                          # nanoseconds in a millisecond

Roles = Mapping[str, RoleFunction] | AnyScheme | ModuleType


@dataclass(frozen=True)
class NoParams:
    """The parameters of roles that take none."""


@dataclass(frozen=True)
class Ran:
    """The results of a run."""

    rows: list[Row]
    header: PlainDict
    finished: engine.Finished
    digest: str                             # of journal and reported models

    @property
    def kernel(self) -> Kernel:
        """The kernel as the run left it."""
        return self.finished.kernel

    @property
    def log(self) -> str:
        """The golden log: everything that happened, in the order of virtual time, without a float of a model."""
        return golden_text(self.rows, self.header)

    @cached_property
    def derived(self) -> Derived:
        """The contents of the tables."""
        return derive(columns(self.rows), self.header, engine.observed(self.finished))

    @cached_property
    def summary(self) -> PlainDict:
        """The keys of `summary.json`."""
        journal = MemoryJournal(self.header)
        journal.rows = self.rows
        return summarise(self.derived, engine.facts(self.finished, journal.close()))

    @property
    def rounds(self) -> list[PlainDict]:
        """The rows of `rounds.parquet`."""
        return self.derived.rounds

    @cached_property
    def models(self) -> list[str]:
        """Digests of the models that were reported, in the order of the reports."""
        return [row[5] for row in self.rows if row[0] == R.REPORT and row[5]]

    @cached_property
    def payloads(self) -> dict[str, list[int]]:
        """Type -> payload bytes of every copy that was sent, in the order of the sending."""
        found: dict[str, list[int]] = {}
        for row in self.rows:
            if row[0] == R.SEND:
                found.setdefault(row[5], []).append(row[6])
        return found

    @cached_property
    def invariants(self) -> InvariantReport:
        """The invariant report, recomputed from the rows."""
        network = self.finished.wiring.network
        return check_columns(self.derived.table, self.header, network.latencies(), network.unordered())

    def of(self, node: str | int, *kinds: int) -> list[Row]:
        """The rows of a node, in the order of virtual time; of some kinds, or of all."""
        place = node if isinstance(node, int) else self.header["names"].index(node)
        target = {(row[2], row[3]): row[4] for row in self.rows if row[0] == R.SEND}
        found = [row for row in self.rows if _whose(row, target) == place and (not kinds or row[0] in kinds)]
        return sorted(found, key=lambda row: row[1])


def _whose(row: Row, target: Mapping[tuple[int, int], int]) -> int:
    """The node to which a row belongs; -1: to a link."""
    if row[0] in (R.DELIVER, R.LOST, R.LATE, R.UNREAD, R.RESENT, R.DECLARED, R.REJECT):
        return target[row[2], row[3]]
    return -1 if row[0] in (R.HOP, R.LINK) else int(row[2])


def run_world(roles: Roles, *, clients: int = 3, servers: int = 1, nodes: Mapping[str, int] | None = None,
              topology: TopologySpec | None = None,
              links: Sequence[LinkRule] = (LinkRule("*", latency_ns=10 * MS),), faults: Sequence[Any] = (),
              stop: Stop | None = None, seed: int = 7, params: PlainMapping | None = None,
              costs: Mapping[str, float] | engine.CostSource | None = None, task: PlainMapping | None = None,
              decides: str | Sequence[str] | None = None, speeds: Sequence[Any] = (), evaluate_every: int = 1,
              pool: Any = None, lookahead: bool = True, fuse: FusedTraining | None = None,
              limits: Limits | None = None, contacts: ContactSpec | None = None) -> Ran:
    """Run roles over a small network with a latency of 10 ms a link and infinite bandwidth.

    roles: {role: coroutine function}, a scheme, or the module of one. The messages of functions are those that their
    modules list in SCHEME or in MESSAGES. The network: a star of `clients` and `servers`; or `nodes`, {kind: how
    many}, for any other kinds, each linked to each; or `topology`.
    faults: `emul.scenario` Crash, LinkDown. stop: `emul.scenario.Stop`, by default one round.
    params: as in a scenario file, for a scheme. costs: {label: seconds} of computations; None: they cost nothing.
    pool: an in-process one (`Twin`, `Shuffled`); only with a scheme of emul, one of processes.
    fuse: `emul.scenario.FusedTraining`: computations are done together (`engine.setups.fused`). limits: of what a peer
    sends. contacts: the times at which links transmit.
    lookahead: False takes one event at a time, the slow and obvious order; the run must be the same.
    Raises RunError.
    """
    scheme = scheme_of(roles, decides)
    name = scheme.name
    spec = topology or (TopologySpec(generator="star", clients=clients, servers=servers) if nodes is None else
                        full_mesh(nodes))
    scenario = Scenario(
        name="test", seed=seed, topology=spec, link_rules=list(links), node_speeds=list(speeds), faults=list(faults),
        task=dict(task or {}), attacks=[], compute=ComputeTime("zero"), schemes=[(name, dict(params or {}))],
        stop=stop or Stop(rounds=1), evaluation=Evaluation(evaluate_every), fuse=fuse,
        limits=limits or Limits(), contacts=contacts)
    if not isinstance(costs, engine.CostSource):
        costs = engine.CostSource("zero") if costs is None else engine.CostSource(
            "profile", {f"{name}/{role}/{label}": [seconds, 0.0] for role in scheme.roles
                        for label, seconds in costs.items()})
    chosen = Twin() if pool is None else pool
    with schemes.lend(name, scheme):
        wiring = engine.wire(scenario, name, dict(params or {}), chosen.workers, costs=costs)
        if not lookahead:
            wiring.network.out_latency_ns = lambda u: 0     # type: ignore[method-assign]
        return run_wiring(wiring, chosen)


def full_mesh(nodes: Mapping[str, int]) -> TopologySpec:
    """Nodes of any kinds, {kind: how many}, each linked to each: "edge1", "edge2", or "cloud" of one alone."""
    graph = nx.Graph()
    for kind, count in nodes.items():
        for place in range(1, count + 1):
            graph.add_node(kind if count == 1 and kind != "client" else f"{kind}{place}", role=kind)
    graph.add_edges_from(itertools.combinations(list(graph), 2))
    return TopologySpec(graph=graph)


def run_wiring(wiring: engine.Wiring, pool: object, progress: Callable[[Kernel], None] | None = None,
               directory: Path | None = None, recalled: Path | None = None) -> Ran:
    """Run what is wired, in memory. The others as `emul.engine.execute` takes them."""
    journal = MemoryJournal(engine.header(wiring))
    finished = engine.execute(wiring, pool, journal, progress, directory, recalled)
    model = digest_model(columns(journal.rows)) if repeats(journal.header) else "repeats in decisions alone"
    return Ran(journal.rows, journal.header, finished, f"{journal.close()} {model}")


def run_text(text: str, *sets: str, pool: Any = None, costs: Mapping[str, float] | None = None) -> Ran:
    """Run a scenario of one scheme, given as text such as a scheme's EXAMPLE. sets: "path=value" each, as of `--set`.

    pool: by default an in-process one. costs: {role/label: seconds} of computations; None: the scenario's.
    Raises ScenarioError, RunError.
    """
    scenario = loads(text, "scenario", list(sets))
    (name, raw), = scenario.schemes
    chosen = Twin() if pool is None else pool
    source = None if costs is None else engine.CostSource(
        "profile", {f"{name}/{key}": [seconds, 0.0] for key, seconds in costs.items()})
    return run_wiring(engine.wire(scenario, name, raw, chosen.workers, costs=source), chosen)


def scheme_of(roles: Roles, decides: str | Sequence[str] | None = None) -> AnyScheme:
    """A scheme of these role functions, with the messages that their modules list; or that of a module."""
    if isinstance(roles, Scheme):
        return roles if roles.name else replace(roles, name="world")
    if isinstance(roles, ModuleType):
        return replace(roles.SCHEME, name=roles.__name__.rpartition(".")[2])
    messages = {name: kind for function in roles.values() for name, kind in listed(function).items()}
    return Scheme(name="world", params=NoParams, roles=dict(roles), places={role: role for role in roles},
                  messages=tuple(messages.values()), decides=decides)
