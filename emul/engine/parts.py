"""One scheme of a scenario with all that it needs, before it is spread over workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from emul.base.plain import PlainDict
from emul.engine.costs import CostSource, load_costs
from emul.network import LinkRule, Network, build, realisation
from emul.network.recorded import Realisation
from emul.registry import schemes
from emul.roles.scheme import AnyScheme
from emul.scenario import NO_EVALUATION, Scenario, build_params, label_of
from emul.scenario.changes import Changes, changes
from emul.scenario.labels import parameters
from emul.scenario.params import scenario_keys
from emul.scenario.placing import Placed, place
from emul.scenario.untrained import SKIP


@dataclass(frozen=True)
class Parts:
    """Each part is what one layer makes of the scenario."""

    scenario: Scenario
    scheme: AnyScheme
    entry: PlainDict                    # the scenario's entry of the scheme: parameters, label, places
    plugins: Sequence[str]
    params: Any
    realisation: Realisation | None     # of another run: the links draw the same again
    network: Network
    placed: Placed
    change: Changes
    costs: CostSource

    @property
    def label(self) -> str:
        """The label of the entry."""
        return label_of(self.scheme.name, self.entry)

    @property
    def given(self) -> tuple[str, ...]:
        """The fields of `params` that the entry gives."""
        return tuple(field.name for key, field in scenario_keys(self.scheme.params).items() if key in self.entry)


def parts_of(scenario: Scenario, name: str, entry: dict[str, object], plugins: Sequence[str],
             costs: CostSource | None) -> Parts:
    """The parts; costs: in place of those that the scenario names. Raises ScenarioError."""
    if scenario.training == SKIP:           # nothing to compute as one, nothing to evaluate
        scenario = replace(scenario, fuse=None, evaluation=replace(scenario.evaluation, every=NO_EVALUATION))
    scheme = schemes.find(name, plugins)
    params = build_params(scheme.params, parameters(entry), f"parameters of scheme {name}")
    realisation = _recorded(scenario)
    network = _network(scenario, realisation, scheme.ideal_links)
    placed = place(scheme, params, entry, network)
    change = changes(scenario, network, placed.names, placed.idle, lossless=scheme.ideal_links,
                      sent=scheme.sends(params))
    return Parts(scenario, scheme, entry, plugins, params, realisation, network, placed, change,
                 costs or load_costs(scenario))


def _recorded(scenario: Scenario) -> Realisation | None:
    """The record that takes the place of the links' models, if the scenario names one. Raises ScenarioError."""
    use = scenario.network
    return None if use.replay is None else realisation.read(use.replay, cast(Any, use.beyond))


def _network(scenario: Scenario, realisation: Realisation | None, ideal: bool) -> Network:
    """ideal: no link loses anything, neither by its model nor by the record."""
    if not ideal:
        return build(scenario.topology, scenario.link_rules, scenario.seed, realisation, scenario.equipment,
                     scenario.traffic, scenario.contacts, scenario.media, scenario.radio)
    return build(scenario.topology, [*scenario.link_rules, LinkRule("*", outage="none")], scenario.seed,
                 None if realisation is None else realisation.without_losses(), scenario.equipment,
                 scenario.traffic, scenario.contacts, scenario.media, scenario.radio)
