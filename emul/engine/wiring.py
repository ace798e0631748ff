"""Wire one scheme of a scenario: its network, its nodes, the kernel's plan and a set-up for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

from emul import schemes
from emul.dynamics import Dynamics, dynamics
from emul.engine.attackers import idle_attackers
from emul.engine.costs import CostSource, load_costs
from emul.engine.setups import FUSED, behaviours, setups
from emul.kernel import Fusing, Plan, StopRule
from emul.network import LinkRule, Network, build, realisation
from emul.network.recorded import Realisation
from emul.scenario import Scenario, build_params, label_of
from emul.scenario.labels import parameters
from emul.scenario.params import scenario_keys
from emul.scenario.placing import Placed, place
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
    module = schemes.find(scheme, plugins)
    params = build_params(module.Params, parameters(raw), f"parameters of scheme {scheme}")
    ideal = getattr(module, "LINKS", None) == "ideal"
    record = _recorded(scenario)
    network = _network(scenario, record, ideal)
    placed = place(scheme, module, params, raw, network)
    change = dynamics(scenario, network, placed.names, placed.idle, lossless=ideal)
    lanes = _lanes(scenario, len(placed.names))
    worker_of = [lane % workers for lane in lanes]
    plan = _plan(scenario, module, placed, worker_of, lanes, change)
    told = setups(scenario, scheme, plugins, params, placed, worker_of, workers, costs or load_costs(scenario), record,
                  change.slowdowns, delays)
    warnings = {*scenario.warnings, *network.warnings(), *change.warnings, *_unmatched(network),
                *_strangers(record, network), *_too_few_lanes(scenario, workers),
                *_ignored(scenario, label_of(scheme, raw), placed, change)}
    return Wiring(scheme, label_of(scheme, raw), _given(module, raw), module, params,
                  network, plan, told, sorted(warnings), record, placed.idle)


def _given(module: ModuleType, raw: dict[str, Any]) -> tuple[str, ...]:
    return tuple(field.name for key, field in scenario_keys(module.Params).items() if key in raw)


def _recorded(scenario: Scenario) -> Realisation | None:
    """The record that takes the place of the links' models, if the scenario names one. Raises ScenarioError."""
    use = scenario.network
    return None if use.replay is None else realisation.read(use.replay, cast(Any, use.beyond))


def _network(scenario: Scenario, record: Realisation | None, ideal: bool) -> Network:
    """ideal: no link loses anything, neither by its model nor by the record."""
    if not ideal:
        return build(scenario.topology, scenario.link_rules, scenario.seed, record)
    return build(scenario.topology, [*scenario.link_rules, LinkRule("*", outage="none")], scenario.seed,
                 None if record is None else record.without_losses())


def _lanes(scenario: Scenario, nodes: int) -> Sequence[int]:
    """node -> lane; a lane lies whole in one worker."""
    fuse = scenario.fuse
    return range(nodes) if fuse is None else [node % fuse.lanes for node in range(nodes)]


def _plan(scenario: Scenario, module: ModuleType, placed: Placed, worker_of: Sequence[int], lanes: Sequence[int],
          change: Dynamics) -> Plan:
    fuse, stop = scenario.fuse, scenario.stop
    faulty = behaviours(scenario, placed)
    return Plan(
        names=placed.names, roles=placed.role_of, vertices=placed.vertices, workers=worker_of,
        deciders=[node for node in schemes.deciders(module, placed.roles) if node not in faulty],
        stop=StopRule(stop.rounds, stop.accuracy, stop.virtual_time_ns),
        faults=change.faults, streams=change.streams, evaluate_every=scenario.evaluation.every,
        fuse=None if fuse is None else Fusing(FUSED, fuse.clients, lanes))


# --- warnings -------------------------------------------------------------------------------------------------------

def _ignored(scenario: Scenario, label: str, placed: Placed, change: Dynamics) -> list[str]:
    """What the scenario does to nodes that have no role in this scheme."""
    return [*(f"{place}: {name} is idle in {label}, nothing happens to it" for place, name in change.ignored),
            *(f"attacks: {name} is idle in {label}, it attacks nobody" for name in idle_attackers(scenario, placed))]


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
