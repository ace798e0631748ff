"""The nodes that the attacks of a scenario are put into, and the results of these attacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.network.rules import MARK
from emul.registry import attacks
from emul.registry.attacks import Planned
from emul.scenario import AttackSpec, Scenario, build_params
from emul.scenario.placing import Placed
from emul.workers.attacking import Note


def planned(scenario: Scenario, placed: Placed, plugins: Sequence[str]) -> dict[int, list[Planned]]:
    """node -> its attacks in the order of the file. An attacker that is idle does nothing. Raises ScenarioError for
    wrong parameters."""
    found: dict[int, list[Planned]] = {}
    numbers = placed.numbers() if scenario.attacks else {}
    for number, attack in enumerate(scenario.attacks):
        plans = _plans(attack, plugins)
        for node in _attackers(scenario.seed, number, attack, placed, numbers):
            found.setdefault(node, []).extend(plans)
    return dict(sorted(found.items()))


def idle_attackers(scenario: Scenario, placed: Placed) -> list[str]:
    """Those that an attack names and that have no role."""
    idle = set(placed.idle)
    return [name for attack in scenario.attacks for name in attack.nodes if name in idle]


def _plans(attack: AttackSpec, plugins: Sequence[str]) -> list[Planned]:
    plans = []
    for kind, chosen in attack.chosen().items():
        entry = attacks.known(kind, plugins)[chosen.name]
        params = build_params(attacks.parameters(entry), chosen.params, f"parameters of the attack {chosen.name}")
        knows = (attack.knows or attacks.needs(entry)) if kind == "update" else "own"
        plans.append(Planned(kind, chosen.name, dataclasses.asdict(params), attack.first, attack.last or 0, knows))
    return plans


def _attackers(seed: int, number: int, attack: AttackSpec, placed: Placed, numbers: Mapping[str, int]) -> Sequence[int]:
    """The nodes. A fraction is drawn from those of the topology that hold data, whoever has a role."""
    if attack.fraction is None:
        return list(dict.fromkeys(node for name in attack.nodes for node in (
            placed.marked(name[len(MARK):]) if name.startswith(MARK) else [numbers[name]] if name in numbers else [])))
    pool, node_at = placed.holders, {vertex: node for node, vertex in enumerate(placed.vertices)}
    count = round(attack.fraction * len(pool))
    drawn = generator(seed, "attack", number).choice(len(pool), count, replace=False)
    return [node_at[pool[i]] for i in sorted(drawn) if pool[i] in node_at]


def knowledge(notes: Sequence[Note], end_ns: int) -> PlainDict | None:
    """The knowledge that attackers had of others, for the summary; None: nothing was computed again.

    population: "cohort" where the scheme named one, else "clients". computed_again: updates of one node in one round
    that an attacker computed again; equal: those that are, to the bit, what the node's own training gave. Computations
    that end after the run do not count: whether they were really done depends on the machine.
    """
    done = [n for n in notes if n.due_ns <= end_ns]
    trained = {(n.node, n.round, n.digest) for n in done if not n.again}
    again = [n for n in done if n.again]
    if not again:
        return None
    return {"population": "cohort" if all(n.named for n in again) else "clients", "computed_again": len(again),
            "equal": sum((n.node, n.round, n.digest) in trained for n in again)}
