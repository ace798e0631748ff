"""`Known`: what an attacker knows of a round when it says something else than its update."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emul.message.wire import Vector


@dataclass(frozen=True)
class Known:
    """The knowledge of an attacker in a round.

    updates: (m, d) float32, what each node that it knows of would send if it were honest, an attacker from its own
    samples as poisoned; ascending by node, its own among them. attackers: (m,) bool, which of those are attackers.
    population, corrupted: how many nodes take part, and how many of them are attackers: every attacker knows that.
    Where clients choose among models of clusters, all of these are of those that have chosen the attacker's `group`;
    one that does not know all does not know how many others have, and counts everybody.
    offered: what the scheme's nodes have made known off the clock (`node.offer`), such as a server's "reference"; where
    that has a row for each cluster, the group's is `reference`. row: its own place in `updates`. round: of the run.
    seed: of a stream that all attackers of the group share in this round. proxy: the update that one of them would make
    on the clean samples of all those of them whom it knows; None: it knows its own alone and has no `PROXY = True`.
    scratch: what attackers of one worker that know the same in this round keep of what they compute.
    """

    updates: np.ndarray
    attackers: np.ndarray
    population: int
    corrupted: int
    offered: Mapping[str, Any] = field(default_factory=dict)
    group: int | None = None
    row: int = 0
    round: int = 1
    seed: int = 0
    proxy: Callable[[], Vector] | None = None
    scratch: dict[Hashable, object] = field(default_factory=dict)

    @property
    def reference(self) -> np.ndarray | None:
        """(d,) float64: what the server judges updates of this group by; None: nobody has offered it."""
        found = self.offered.get("reference")
        if found is None:
            return None
        vector = np.asarray(found, dtype=np.float64)
        return vector[self.group or 0] if vector.ndim == 2 else vector

    @property
    def common(self) -> np.random.Generator:
        """A stream that every attacker of the group begins anew, so that they agree on what they draw."""
        return np.random.default_rng(self.seed)

    def once(self, key: Hashable, compute: Callable[[], object]) -> Any:
        """compute(), by the first attacker that asks: it must depend on what all of them know alone."""
        if key not in self.scratch:
            self.scratch[key] = compute()
        return self.scratch[key]

    def one_each(self, key: Hashable, craft: Callable[[Known], np.ndarray]) -> Vector:
        """The row of this attacker in what `craft` makes of this for all of them, (f, d) in their order, `once`."""
        crafted: np.ndarray = self.once(key, lambda: craft(self))
        return crafted[int(self.attackers[:self.row].sum())]

    @property
    def honest(self) -> np.ndarray:
        """(h, d) float64: those that an attack goes by. Of the nodes that are no attackers, where it knows of any;
        else of the attackers before they attack, which are draws from the same distribution."""
        rows = self.updates if self.attackers.all() else self.updates[~self.attackers]
        return rows.astype(np.float64)
