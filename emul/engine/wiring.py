"""Wire one scheme of a scenario: its network, its nodes, the kernel's plan and a set-up for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from emul import schemes
from emul.engine.attackers import idle_attackers
from emul.engine.costs import CostSource
from emul.engine.parts import Parts, parts_of
from emul.engine.setups import FUSED, behaviours, offered, setups
from emul.kernel import Fusing, Plan, StopRule
from emul.kernel.parts import Battery
from emul.network import Network
from emul.network.recorded import Realisation
from emul.scenario import Behaviour, DropOut, Scenario
from emul.scenario.devices import Device
from emul.scenario.placing import devices_of
from emul.workers.core import Setup

_SHOWN = 10                         # idle nodes that are named


@dataclass(frozen=True)
class Wiring:
    """One scheme of a scenario, ready to run: what every layer needs to know of it."""

    scheme: str
    label: str                              # what its entry is called
    given: tuple[str, ...]                  # fields of `params` that the entry gives
    module: ModuleType
    params: Any
    network: Network
    plan: Plan
    setups: list[Setup]
    warnings: list[str]
    record: Realisation | None = None       # what its links drew in another run, and draw again
    idle: list[str] = field(default_factory=list)       # nodes of the topology that have no role
    devices: list[Device | None] | None = None          # node -> its device; None: the scenario has none

    @property
    def notes(self) -> list[str]:
        """What is worth knowing before the run, and no mistake."""
        if not self.idle:
            return []
        more = f" and {len(self.idle) - _SHOWN} more" if len(self.idle) > _SHOWN else ""
        return [f"{self.label}: idle, no part of the run: {', '.join(self.idle[:_SHOWN])}{more}"]


def wire(scenario: Scenario, scheme: str, raw: dict[str, Any], workers: int = 1, plugins: Sequence[str] = (),
         costs: CostSource | None = None, delays: Sequence[float] = ()) -> Wiring:
    """Build everything for one scheme. Raises ScenarioError for what is wrong with the scenario's files.

    raw: what its entry says: parameters, label, places. costs: in place of those that the scenario names. delays: for
    tests.
    """
    parts = parts_of(scenario, scheme, raw, plugins, costs)
    lanes = _lanes(scenario, len(parts.placed.names))
    worker_of = [lane % workers for lane in lanes]
    return Wiring(scheme, parts.label, parts.given, parts.module, parts.params, parts.network,
                  _plan(parts, worker_of, lanes), setups(parts, worker_of, workers, delays),
                  sorted(set(_warnings(parts, workers))), parts.record, parts.placed.idle,
                  None if scenario.devices is None else devices_of(scenario.devices, scenario.seed, parts.placed))


def _batteries(parts: Parts) -> dict[int, Battery]:
    """node -> its battery, of those that have one."""
    devices, placed = parts.scenario.devices, parts.placed
    if devices is None:
        return {}
    return {node: Battery(joules, one.idle_w, one.compute_w, one.send_w, one.receive_w) for node, (joules, one) in
            enumerate(zip(devices.batteries(placed.names), devices.of(placed.names, parts.scenario.seed), strict=True))
            if joules is not None and one is not None}


def _lanes(scenario: Scenario, nodes: int) -> Sequence[int]:
    """node -> lane; a lane lies whole in one worker."""
    fuse = scenario.fuse
    return range(nodes) if fuse is None else [node % fuse.lanes for node in range(nodes)]


def _plan(parts: Parts, worker_of: Sequence[int], lanes: Sequence[int]) -> Plan:
    scenario, placed, change = parts.scenario, parts.placed, parts.change
    fuse, stop, faulty = scenario.fuse, scenario.stop, behaviours(parts)
    return Plan(
        names=placed.names, roles=placed.role_of, vertices=placed.vertices, workers=worker_of,
        deciders=[node for node in schemes.deciders(parts.module, placed.roles) if node not in faulty],
        stop=StopRule(stop.rounds, stop.accuracy, stop.virtual_time_ns),
        faults=change.faults, streams=change.streams, dropouts=change.dropouts,
        batteries=_batteries(parts),
        evaluate_every=scenario.evaluation.every, fuse=None if fuse is None else Fusing(FUSED, fuse.clients, lanes),
        max_message=scenario.limits.max_message, max_unread=scenario.limits.max_unread)


# --- warnings -------------------------------------------------------------------------------------------------------

def _warnings(parts: Parts, workers: int) -> list[str]:
    return [*parts.scenario.warnings, *parts.network.warnings(), *parts.change.warnings, *_unmatched(parts.network),
            *_strangers(parts.record, parts.network), *_too_few_lanes(parts.scenario, workers), *_ignored(parts)]


def _ignored(parts: Parts) -> list[str]:
    """What the scenario does to nodes that have no role in this scheme, and what a node of it cannot do."""
    label, attackers = parts.label, idle_attackers(parts.scenario, parts.placed)
    return [*(f"{place}: {name} is idle in {label}, nothing happens to it" for place, name in parts.change.ignored),
            *(f"attacks: {name} is idle in {label}, it attacks nobody" for name in attackers),
            *(f"faults[{i}].behave: {label} has no {fault.behave}, {fault.node} follows the protocol"
              for i, fault in enumerate(parts.scenario.faults)
              if isinstance(fault, Behaviour) and not offered(parts, fault) and fault.node not in parts.placed.idle),
            *(f"faults[{i}].stage: {label} has no message {fault.stage}, {fault.node} does not drop out"
              for i, fault in enumerate(parts.scenario.faults)
              if isinstance(fault, DropOut) and fault.stage not in schemes.message_names(parts.module))]


def _unmatched(network: Network) -> list[str]:
    return [f'links: the rule "{rule.match}" matches no link' for rule in network.unmatched_rules()]


def _strangers(record: Realisation | None, network: Network) -> list[str]:
    if record is None:
        return []
    known = set(network.names)
    strange = [f"{u} -> {v}" for u, v in record.links if u not in known or v not in known]
    return [f"network.replay: {len(strange)} links of the record are not in this network, such as {strange[0]}"
            ] if strange else []


def _too_few_lanes(scenario: Scenario, workers: int) -> list[str]:
    fuse = scenario.fuse
    if fuse is None or fuse.lanes >= workers:
        return []
    return [f"fuse: {fuse.lanes} lanes for {workers} workers: some will train nothing"]
