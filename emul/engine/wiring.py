"""Wire one scheme of a scenario: its network, its nodes, the kernel's plan and a set-up for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from emul.base.errors import Problem, ScenarioError
from emul.base.names import by_kind, listed
from emul.base.plain import PlainDict
from emul.base.units import END_OF_TIME
from emul.engine.classes import classes
from emul.engine.costs import CostSource
from emul.engine.setups import Parts, behaviours, fused, idle_attackers, offered, parts_of, setups
from emul.engine.training_times import TrainingTimes, training_times
from emul.kernel import Fusing, Plan, StopRule
from emul.kernel.parts import MAX_MESSAGE, Battery
from emul.learning.declared import declared
from emul.network import Network
from emul.network.recorded import Realisation
from emul.roles.scheme import AnyScheme
from emul.scenario import Behaviour, DropOut, Scenario
from emul.scenario.devices import WATTS, DeviceClass
from emul.scenario.placing import devices_of
from emul.workers.setup import Setup

_SHOWN = 10                         # idle nodes that are named


@dataclass(frozen=True)
class Wiring:
    """One scheme of a scenario, ready to run: what every layer needs to know of it."""

    scheme: AnyScheme
    label: str                              # the label of its entry
    given: tuple[str, ...]                  # fields of `params` that the entry gives
    params: Any
    network: Network
    plan: Plan
    setups: list[Setup]
    warnings: list[str]
    realisation: Realisation | None = None  # of another run: its links draw the same again
    idle: list[str] = field(default_factory=list)       # nodes of the topology that have no role
    devices: list[DeviceClass | None] | None = None     # node -> its device; None: the scenario has none
    groups: dict[str, list[int]] = field(default_factory=dict)      # group of the scenario -> its nodes
    times: TrainingTimes | None = None      # of compute mode "model"

    @property
    def notes(self) -> list[str]:
        """Warnings before the run; none is a mistake."""
        told = [f"{self.label}: idle, no part of the run: {listed(self.idle, _SHOWN)}"] if self.idle else []
        return told + [f"{self.label}: {name}: {listed([self.plan.names[node] for node in nodes], _SHOWN) or 'nobody'}"
                       for name, nodes in self.groups.items()]


def wire(scenario: Scenario, name: str, raw: PlainDict, workers: int = 1, plugins: Sequence[str] = (),
         costs: CostSource | None = None, delays: Sequence[float] = ()) -> Wiring:
    """Build everything for one scheme. Raises ScenarioError for what is wrong with the scenario's files.

    raw: what its entry says: parameters, label, places. costs: in place of those that the scenario names. delays: for
    tests.
    """
    parts = parts_of(scenario, name, raw, plugins, costs)
    times = training_times(parts)
    nodes = len(parts.placed.names)
    # a lane, whose nodes are trained as one, lies whole in one worker
    lanes = range(nodes) if scenario.fuse is None else [node % scenario.fuse.lanes for node in range(nodes)]
    worker_of = [lane % workers for lane in lanes]
    said, steps, updates = ([], (), ()) if times is None else (times.warnings(), times.steps, times.updates)
    told = setups(parts, worker_of, workers, delays, steps, updates)
    equipment = scenario.equipment      # of `devices` and of groups; None: neither gives any node something
    devices = devices_of(equipment, scenario.seed, parts.placed) if equipment is not None and equipment.gives else None
    groups = {group.name: parts.placed.marked(group.name) for group in scenario.groups}
    return Wiring(parts.scheme, parts.label, parts.given, parts.params, parts.network,
                  _plan(parts, worker_of, lanes, classes(parts.scheme, told[0])), told,
                  by_kind([*_warnings(parts, workers), *_without_watts(devices or ()), *said]), parts.realisation,
                  parts.placed.idle, devices, groups, times)


def _batteries(parts: Parts) -> dict[int, Battery]:
    """node -> its battery, of those that have one."""
    devices, placed = parts.scenario.equipment, parts.placed
    if devices is None:
        return {}
    return {node: Battery(joules, *(float(getattr(one, name)) for name in WATTS)) for node, (joules, one) in
            enumerate(zip(devices.batteries(placed.names, placed.groups),
                          devices_of(devices, parts.scenario.seed, placed), strict=True))
            if joules is not None and one is not None}


def _plan(parts: Parts, worker_of: Sequence[int], lanes: Sequence[int], alike: Sequence[int]) -> Plan:
    scenario, placed, change = parts.scenario, parts.placed, parts.change
    fuse, stop, faulty = scenario.fuse, scenario.stop, behaviours(parts)
    chosen = parts.scheme.deciders(placed.roles)
    # The rounds of nodes that are never faulty are the run's. If each is faulty at times, all of them decide: somebody
    # has to count the rounds, or `stop: {rounds: ...}` never holds.
    deciders = [node for node in chosen if node not in faulty] or chosen
    most, model = scenario.limits.max_message, declared(scenario.task)
    if model is not None and most == MAX_MESSAGE:       # room for four vectors of the declared model
        most = max(most, round(16 * model.parameters))
    _expect_somebody(parts, deciders, "counts their rounds")
    _expect_somebody(parts, [node for first, _, count in placed.shards for node in range(first, first + count)],
                     "trains on their data")
    return Plan(
        names=placed.names, roles=placed.role_of, vertices=placed.vertices, worker_of=worker_of, deciders=deciders,
        stop=StopRule(stop.rounds, stop.accuracy, stop.virtual_time_ns, stop.loss),
        faults=change.faults, streams=change.streams, dropouts=change.dropouts,
        rounds=change.rounds,
        batteries=_batteries(parts),
        alike=() if faulty else parts.scheme.stateless, classes=alike, evaluate_every=scenario.evaluation.every,
        fuse=None if fuse is None else Fusing(fused(parts.scheme), fuse.clients, lanes),
        max_message=most, max_unread=scenario.limits.max_unread)


def _expect_somebody(parts: Parts, nodes: Sequence[int], why: str) -> None:
    """Raises ScenarioError for a round in which none of the nodes takes part: it would wait for ever, or take no time.
    """
    rounds, stop = parts.change.rounds, parts.scenario.stop.rounds or END_OF_TIME
    if not nodes or any(node not in rounds for node in nodes):
        return
    upto = 0                                    # in every round up to this one somebody takes part
    for first, last in sorted({span for node in nodes for span in rounds[node]}):
        if first > upto + 1:
            break
        upto = max(upto, last)
    if upto < stop:
        raise ScenarioError(str(parts.scenario.path or parts.scenario.name), [Problem(
            "availability.rounds", listed([parts.placed.names[node] for node in nodes], _SHOWN),
            f"expected one of these in every round: {parts.label} {why}, and none takes part in round {upto + 1}")])


# --- warnings -------------------------------------------------------------------------------------------------------

def _warnings(parts: Parts, workers: int) -> list[str]:
    network, record, fuse = parts.network, parts.realisation, parts.scenario.fuse
    found = [*parts.scenario.warnings, *network.warnings(), *parts.change.warnings,
             *(f'links: the rule "{rule.match}" matches no link' for rule in network.unmatched_rules())]
    known = set(network.names)
    strange = [] if record is None else [f"{u} -> {v}" for u, v in record.links if u not in known or v not in known]
    if strange:
        found.append(f"network.replay: {len(strange)} links of the record are not in this network, such as "
                     f"{strange[0]}")
    if fuse is not None and fuse.lanes < workers:
        found.append(f"fuse: {fuse.lanes} lanes for {workers} workers: some will train nothing")
    return found + _ignored(parts)


def _without_watts(devices: Sequence[DeviceClass | None]) -> list[str]:
    """Warnings of devices of which no joules can be said."""
    used = {one.name: one for one in devices if one is not None}
    return [f"devices: the table says no {', '.join(lacking)} of {name}: the joules of its nodes are not known"
            for name, one in used.items() if (lacking := one.lacking(WATTS))]


def _ignored(parts: Parts) -> list[str]:
    """Warnings: the scenario changes nodes that have no role in this scheme, or a node cannot do its part."""
    label, attackers = parts.label, idle_attackers(parts.scenario, parts.placed)
    personal = parts.scheme.accuracy_of(parts.params) == "personal"
    clients_decide = set(parts.scheme.deciders(parts.placed.roles)) & set(parts.placed.roles.get("client", ()))
    return [*([f"stop.accuracy: the accuracy of {label} is that of its clients' own models, and clients do not decide "
               "when it ends: it goes on to its other limits"]
              if parts.scenario.stop.accuracy is not None and personal and not clients_decide else []),
            *(f"{place}: {name} is idle in {label}, nothing happens to it" for place, name in parts.change.ignored),
            *(f"attacks: {name} is idle in {label}, it attacks nobody" for name in attackers),
            *(f"faults[{i}].behave: {label} has no {fault.behave} for {fault.node}, which follows the protocol"
              for i, fault in enumerate(parts.scenario.faults)
              if isinstance(fault, Behaviour) and fault.node not in parts.placed.idle and not offered(parts, fault)),
            *(f"faults[{i}].stage: {label} sends no {fault.stage}, {fault.node} does not drop out"
              for i, fault in enumerate(parts.scenario.faults)
              if isinstance(fault, DropOut) and fault.stage not in parts.scheme.sends(parts.params))]

