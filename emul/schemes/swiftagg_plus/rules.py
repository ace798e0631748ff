"""The rules that server and clients of the coded-input protocol have agreed on before a round, and who sits where."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from emul.primitives.codes.packed import Code
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.demands import demand


@dataclass(frozen=True)
class SwiftAggRules:
    """code: of the nu seats of a group. codec: how updates become vectors of the field.

    least: the fewest contributors whose sum may be known. verify: hold spare sequences against the sum. deadline_s: of
    the keys, of the sharing with the training, of the agreement and of each hop of a chain; None: until the fates are
    known. audit: inputs and sums are kept in the run directory.
    """

    code: Code
    codec: SumOfUpdates
    least: int = 3
    verify: bool = False
    deadline_s: float | None = None
    audit: bool = False

    def stages_s(self, count: int) -> float | None:
        """The time of so many stages; None: without a limit."""
        return None if self.deadline_s is None else count * self.deadline_s


# --- the seats of clients in the coded-input protocol, and sets of a group's members as bits ------------------------

@dataclass(frozen=True)
class Seating:
    """groups: the members of each, the first `size` of them with seats 0..size-1. size: nu = K + T + D."""

    groups: tuple[tuple[int, ...], ...]
    size: int

    def group_of(self, member: int) -> int:
        """Its group. Raises ValueError for who is in none."""
        for g, members in enumerate(self.groups):
            if member in members:
                return g
        raise ValueError(f"node {member} is in no group")

    def seats(self, g: int) -> tuple[int, ...]:
        """(nu,): who has seats 0..nu-1 of a group."""
        return self.groups[g][:self.size]

    def sequence(self, s: int) -> list[int]:
        """The clients on seat s, group by group."""
        return [members[s] for members in self.groups]


def seat(members: Sequence[int], size: int) -> Seating:
    """Groups of `size` seats in the order of the members; who is left over joins a group without a seat, in turn.

    Raises ValueError for fewer members than seats of one group.

    >>> seat([1, 2, 3, 4, 5, 6, 7, 8], 3).groups
    ((1, 2, 3, 7), (4, 5, 6, 8))
    """
    count = len(members) // size
    if count == 0:
        raise ValueError(f"{len(members)} members, expected {size} or more")
    left_over = members[count * size:]
    return Seating(tuple((*members[g * size:(g + 1) * size], *left_over[g::count]) for g in range(count)), size)


def bits_of(group: Sequence[int], chosen: Collection[int]) -> np.ndarray:
    """(ceil(|g| / 8),) uint8: a bit a member of the group, set for those chosen."""
    return np.packbits([member in chosen for member in group])


def members_of(group: Sequence[int], bits: np.ndarray) -> list[int]:
    """The inverse of `bits_of`. Raises ProtocolViolation for a size that is not the group's, or bits of nobody."""
    demand(bits.shape == (-(-len(group) // 8),), "members: not a bit for each member")
    flags = np.unpackbits(bits)
    demand(not flags[len(group):].any(), "members: bits of nobody")
    return [member for member, flag in zip(group, flags, strict=False) if flag]
