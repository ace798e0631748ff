"""The set-ups of the workers of a run, one each, of plain values; and before that the parts of one scheme of a
scenario, which are not yet spread over workers.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec

from emul.base.names import MARK
from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.engine.costs import CostSource, load_costs
from emul.learning import gpus
from emul.learning.data import DIRECTORY, NEED_FILES
from emul.learning.declared import declared
from emul.network import LinkRule, Network, build, realisation
from emul.network.recorded import Realisation
from emul.record.rundir import require_sealed
from emul.registry import attacks, schemes
from emul.registry.attacks import Planned
from emul.roles.scheme import AnyScheme
from emul.scenario import NO_EVALUATION, AttackSpec, Behaviour, Scenario, build_params, label_of
from emul.scenario.changes import Changes, changes
from emul.scenario.faults import LinkDown, LinkSet, LinkUp, NetworkPartition
from emul.scenario.params import scenario_keys
from emul.scenario.placing import Placed, chart_for, devices_of, islands, node_speeds, place
from emul.scenario.schemes import COMPRESS, SKIP, parameters
from emul.workers.setup import NO_LAST, Setup


@dataclass(frozen=True)
class Parts:
    """One scheme of a scenario with all that it needs: each part is what one layer makes of the scenario."""

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
    linked = scenario
    if scheme.one_machine is not None and scheme.one_machine(params):
        linked = _unlinked(scenario)
    record = _recorded(linked)
    network = _network(linked, record, scheme.ideal_links)
    placed = place(scheme, params, entry, network)
    change = changes(linked, network, placed.names, placed.idle, lossless=scheme.ideal_links,
                      sent=scheme.sends(params))
    return Parts(scenario, scheme, entry, plugins, params, record, network, placed, change,
                 costs or load_costs(scenario))


def _unlinked(scenario: Scenario) -> Scenario:
    """The scenario of one machine: its links, and faults of them, do nothing."""
    return replace(
        scenario, link_rules=[LinkRule("*", 0, "infinite")], media=[], radio=None, contacts=None, traffic=[],
        network=replace(scenario.network, replay=None), faults=[one for one in scenario.faults if not isinstance(
            one, LinkDown | LinkUp | LinkSet | NetworkPartition)])


def _recorded(scenario: Scenario) -> Realisation | None:
    """The record that takes the place of the links' models, if the scenario names one. Raises ScenarioError and
    RecordError."""
    use = scenario.network
    if use.replay is None:
        return None
    require_sealed(use.replay)
    return realisation.read(use.replay, cast(Any, use.beyond))


def _network(scenario: Scenario, realisation: Realisation | None, ideal: bool) -> Network:
    """ideal: no link loses anything, neither by its model nor by the record."""
    if not ideal:
        return build(scenario.topology, scenario.link_rules, scenario.seed, realisation, scenario.equipment,
                     scenario.traffic, scenario.contacts, scenario.media, scenario.radio)
    return build(scenario.topology, [*scenario.link_rules, LinkRule("*", outage="none")], scenario.seed,
                 None if realisation is None else realisation.without_losses(), scenario.equipment,
                 scenario.traffic, scenario.contacts, scenario.media, scenario.radio)


_FUSED = ("train",)                 # the labels of computations that `fuse` does together
_FUSED_BATCHES = ("train", "forward", "backward")       # and those of a scheme that exchanges batches


def setups(parts: Parts, worker_of: Sequence[int], workers: int, delays: Sequence[float],
           steps: Sequence[float] = (), updates: Sequence[float] = ()) -> list[Setup]:
    """A set-up for each worker; they differ by number and device alone. steps, updates: of mode "model", node ->
    seconds of a step of training and of a local update."""
    scenario, placed, costs = parts.scenario, parts.placed, parts.costs
    traces, trace_of = ([], []) if costs.trace is None else costs.trace.of(
        placed.names, devices_of(scenario.equipment, scenario.seed, placed))
    common = Setup(
        worker=0, scheme=parts.scheme.name, plugins=list(parts.plugins), params=_given(parts.params),
        seed=scenario.seed, names=placed.names, roles=placed.roles,
        speeds=node_speeds(scenario.node_speeds, scenario.seed, placed, parts.network, scenario.equipment,
                           scenario.groups, relative=costs.mode == "model"),
        islands=_islands(parts, steps), updates=list(updates), rounds=parts.change.rounds,
        worker_of=list(worker_of), behaviours=behaviours(parts), compress=parts.entry.get(COMPRESS, {}),
        chart=chart_for(parts.scheme, parts.params, parts.network, placed),
        shards=placed.shards, holders=len(placed.holders), attacks=planned(scenario, placed, parts.plugins),
        slowdowns=parts.change.slowdowns, task=_located(scenario.task),
        trains=scenario.training != SKIP, named=costs.mode in ("measured", "profile"),
        cost_mode=costs.mode, profile=costs.profile,
        recorded=costs.recorded, traces=traces, trace_of=trace_of,
        trace_drawn=scenario.compute.take == "drawn", cost_default=scenario.compute.default_ns,
        network_costs=_network_costs(parts.realisation, placed.names), costs_beyond=scenario.network.beyond,
        evaluate_every=scenario.evaluation.every, evaluate_scope=scenario.evaluation.scope,
        accuracy_of=parts.scheme.accuracy_of(parts.params),
        memory=scenario.compute.memory or 0, fuse=[] if scenario.fuse is None else list(fused(parts.scheme)),
        fuse_clients=1 if scenario.fuse is None else scenario.fuse.clients, delays=list(delays),
        patience_s=scenario.workers.patience_s or 0.0,
        models_every=scenario.record.models or 0, payloads=list(scenario.record.payloads),
        payload_rounds=(scenario.record.first, scenario.record.last or NO_LAST),
        payload_room=scenario.record.limit_bytes // max(1, len(placed.names)))
    kind = scenario.compute.device      # workers share the GPUs, each with a context and a stream of its own
    devices = [kind if kind == "cpu" else f"{kind}:{w % max(1, gpus())}" for w in range(workers)]
    visible = None if scenario.compute.device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES")
    return [msgspec.structs.replace(common, worker=w, device=device, sharing=devices.count(device), visible=visible)
            for w, device in enumerate(devices)]


def fused(scheme: AnyScheme) -> Sequence[str]:
    """The labels of computations that `fuse` does together."""
    return _FUSED_BATCHES if scheme.batches else _FUSED


def behaviours(parts: Parts) -> dict[int, list[list[Any]]]:
    """node -> (faulty variant of its role, from round, to; 0: for good), in the order of the file.

    Those that the scheme has of the node's role: another one of the scenario may have the others.
    """
    found: dict[int, list[list[object]]] = {}
    for fault in parts.scenario.faults:
        if isinstance(fault, Behaviour) and fault.node not in parts.placed.idle and offered(parts, fault):
            node = parts.placed.names.index(fault.node)
            found.setdefault(node, []).append([fault.behave, fault.first or 1, fault.last or 0])
    return found


def offered(parts: Parts, fault: Behaviour) -> bool:
    """True if the scheme has this faulty variant of the node's role."""
    node = parts.placed.names.index(fault.node)
    return any(fault.behave in parts.scheme.behaviours.get(role, ())
               for role, nodes in parts.placed.roles.items() if node in nodes)


def planned(scenario: Scenario, placed: Placed, plugins: Sequence[str]) -> dict[int, list[Planned]]:
    """node -> its attacks in the order of the file. An attacker that is idle does nothing. Raises ScenarioError for
    wrong parameters."""
    found: dict[int, list[Planned]] = {}
    numbers = placed.numbers() if scenario.attacks else {}
    for number, attack in enumerate(scenario.attacks):
        plans = []
        for kind, chosen in attack.chosen().items():
            entry = attacks.known(kind, plugins)[chosen.name]
            params = build_params(attacks.parameters(entry), chosen.params, f"parameters of the attack {chosen.name}")
            knows = (attack.knows or attacks.needs(entry)) if kind == "update" else "own"
            plans.append(Planned(kind, chosen.name, dataclasses.asdict(params), attack.first, attack.last or 0, knows))
        for node in _attackers(scenario.seed, number, attack, placed, numbers):
            found.setdefault(node, []).extend(plans)
    return dict(sorted(found.items()))


def idle_attackers(scenario: Scenario, placed: Placed) -> list[str]:
    """Those that an attack names and that have no role."""
    idle = set(placed.idle)
    return [name for attack in scenario.attacks for name in attack.nodes if name in idle]


def _attackers(seed: int, number: int, attack: AttackSpec, placed: Placed, numbers: Mapping[str, int]) -> Sequence[int]:
    """The nodes. A fraction is drawn from those of the topology that hold data, whoever has a role."""
    if attack.fraction is None:
        return list(dict.fromkeys(node for name in attack.nodes for node in (
            placed.marked(name[len(MARK):]) if name.startswith(MARK) else [numbers[name]] if name in numbers else [])))
    pool, node_at = placed.holders, {vertex: node for node, vertex in enumerate(placed.vertices)}
    count = round(attack.fraction * len(pool))
    drawn = generator(seed, "attack", number).choice(len(pool), count, replace=False)
    return [node_at[pool[i]] for i in sorted(drawn) if pool[i] in node_at]


def _given(params: Any) -> PlainDict:
    """The parameters that `Params` takes, as plain values; a variant's fixed ones are not among them."""
    values = dataclasses.asdict(params)
    return {f.name: values[f.name] for f in dataclasses.fields(params) if f.init}


def _islands(parts: Parts, steps: Sequence[float]) -> list[list[float]]:
    """node -> rate and jitter of its GPUs, [] of a node without; [] where no model is declared. steps: the seconds of
    one, whose rates are steps a second."""
    scenario = parts.scenario
    if steps:
        return [[1 / seconds, 0.0] if seconds else [] for seconds in steps]
    if declared(scenario.task) is None:
        return []
    return [[] if one is None else [one.rate, one.jitter]
            for one in islands(scenario.node_speeds, scenario.seed, parts.placed, parts.network)]


def _located(task: PlainDict) -> PlainDict | None:
    """The task with $EMUL_DATA of this process written in: workers may have been started under another one."""
    directory = os.environ.get(DIRECTORY)
    if not task:
        return None
    if directory and not task["data"].get("directory") and task["data"]["set"] in NEED_FILES:
        return {**task, "data": {**task["data"], "directory": str(Path(directory).resolve())}}
    return task


def _network_costs(realisation: Realisation | None, names: Sequence[str]) -> dict[int, dict[str, list[int]]]:
    """node -> label -> costs, of the nodes that have some in the realisation."""
    found: dict[int, dict[str, list[int]]] = {}
    if realisation is None or not realisation.computations:
        return found
    number = {name: node for node, name in enumerate(names)}
    for (name, label), costs in realisation.computations.items():
        if name in number:
            found.setdefault(number[name], {})[label] = costs
    return found
