"""Which nodes an attack of the scenario is put into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emul.base.streams import generator
from emul.scenario import Scenario
from emul.scenario.placing import Placed
from emul.scenario.scenario import Attack


def poisoned(scenario: Scenario, placed: Placed, what: str) -> dict[int, str]:
    """node -> attack on its data or prototypes. An attacker that is idle does nothing."""
    found: dict[int, str] = {}
    numbers = placed.numbers() if scenario.attacks else {}
    for number, attack in enumerate(scenario.attacks):
        kind = getattr(attack, what)
        if kind is not None:
            found |= dict.fromkeys(_attackers(scenario.seed, number, attack, placed, numbers), kind)
    return found


def idle_attackers(scenario: Scenario, placed: Placed) -> list[str]:
    """Those that an attack names and that have no role."""
    idle = set(placed.idle)
    return [name for attack in scenario.attacks for name in attack.nodes if name in idle]


def _attackers(seed: int, number: int, attack: Attack, placed: Placed, numbers: Mapping[str, int]) -> Sequence[int]:
    """The nodes. A fraction is drawn from those of the topology that hold data, whoever has a role."""
    if attack.fraction is None:
        return [numbers[name] for name in attack.nodes if name in numbers]
    pool, node_at = placed.holders, {vertex: node for node, vertex in enumerate(placed.vertices)}
    count = round(attack.fraction * len(pool))
    drawn = generator(seed, "attack", number).choice(len(pool), count, replace=False)
    return [node_at[pool[i]] for i in sorted(drawn) if pool[i] in node_at]
