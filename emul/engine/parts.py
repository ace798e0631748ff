"""One scheme of a scenario with all that it needs, before it is spread over workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, cast

from emul import schemes
from emul.dynamics import Dynamics, dynamics
from emul.engine.costs import CostSource, load_costs
from emul.network import LinkRule, Network, build, realisation
from emul.network.recorded import Realisation
from emul.scenario import NEVER, Scenario, build_params, label_of
from emul.scenario.labels import parameters
from emul.scenario.params import scenario_keys
from emul.scenario.placing import Placed, place
from emul.scenario.untrained import SKIP


@dataclass(frozen=True)
class Parts:
    """Each part is what one layer makes of the scenario."""

    scenario: Scenario
    scheme: str
    entry: dict[str, Any]               # what the scenario says of the scheme: parameters, label, places
    plugins: Sequence[str]
    module: ModuleType
    params: Any
    record: Realisation | None          # what the links drew in another run, and draw again
    network: Network
    placed: Placed
    change: Dynamics
    costs: CostSource

    @property
    def label(self) -> str:
        """What the entry is called."""
        return label_of(self.scheme, self.entry)

    @property
    def given(self) -> tuple[str, ...]:
        """The fields of `params` that the entry gives."""
        return tuple(field.name for key, field in scenario_keys(self.module.Params).items() if key in self.entry)


def parts_of(scenario: Scenario, scheme: str, entry: dict[str, Any], plugins: Sequence[str],
             costs: CostSource | None) -> Parts:
    """The parts; costs: in place of those that the scenario names. Raises ScenarioError."""
    if scenario.training == SKIP:           # nothing to compute as one, nothing to evaluate
        scenario = replace(scenario, fuse=None, evaluation=replace(scenario.evaluation, every=NEVER))
    module = schemes.find(scheme, plugins)
    params = build_params(module.Params, parameters(entry), f"parameters of scheme {scheme}")
    ideal = getattr(module, "LINKS", None) == "ideal"
    record = _recorded(scenario)
    network = _network(scenario, record, ideal)
    placed = place(scheme, module, params, entry, network)
    change = dynamics(scenario, network, placed.names, placed.idle, lossless=ideal)
    return Parts(scenario, scheme, entry, plugins, module, params, record, network, placed, change,
                 costs or load_costs(scenario))


def _recorded(scenario: Scenario) -> Realisation | None:
    """The record that takes the place of the links' models, if the scenario names one. Raises ScenarioError."""
    use = scenario.network
    return None if use.replay is None else realisation.read(use.replay, cast(Any, use.beyond))


def _network(scenario: Scenario, record: Realisation | None, ideal: bool) -> Network:
    """ideal: no link loses anything, neither by its model nor by the record."""
    if not ideal:
        return build(scenario.topology, scenario.link_rules, scenario.seed, record, scenario.devices)
    return build(scenario.topology, [*scenario.link_rules, LinkRule("*", outage="none")], scenario.seed,
                 None if record is None else record.without_losses(), scenario.devices)
