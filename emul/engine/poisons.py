"""Which nodes an attack of the scenario is put into."""

from __future__ import annotations

from collections.abc import Sequence

from emul.base.streams import generator
from emul.scenario import Scenario
from emul.scenario.scenario import Attack


def poisoned(scenario: Scenario, roles: dict[str, list[int]], names: Sequence[str], what: str) -> dict[int, str]:
    """node -> attack on its data or prototypes; a fraction is drawn from the clients (peers, where there are none)."""
    found: dict[int, str] = {}
    for number, attack in enumerate(scenario.attacks):
        kind = getattr(attack, what)
        if kind is not None:
            found |= dict.fromkeys(_attackers(scenario.seed, number, attack, roles, names), kind)
    return found


def _attackers(seed: int, number: int, attack: Attack, roles: dict[str, list[int]], names: Sequence[str]) -> list[int]:
    if attack.fraction is None:
        return [names.index(name) for name in attack.nodes]
    pool = roles.get("client") or list(range(len(names)))
    count = round(attack.fraction * len(pool))
    drawn = generator(seed, "attack", number).choice(len(pool), count, replace=False)
    return [pool[i] for i in sorted(drawn)]
