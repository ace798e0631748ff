"""Segments and groups of EBS-CFL: how long everything is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from emul.schemes.ebs_cfl.masking.blocks import Array


@dataclass(frozen=True)
class Shape:
    """The scheme of the paper's main text is t = l, q = N: one segment, one group."""

    clients: int                        # N
    clusters: int                       # m
    length: int                         # l, parameters of a model
    t: int = 2                          # of a segment
    q: int = 1                          # clients of a group

    def __post_init__(self) -> None:
        if self.d < 2:
            raise ValueError(f"t = {self.t}, m = {self.clusters}: expected t m of 2 or more")

    @property
    def d(self) -> int:
        """t m."""
        return self.t * self.clusters

    @property
    def segments(self) -> int:
        """s = ceil(l / t)."""
        return -(-self.length // self.t)

    @cached_property
    def groups(self) -> list[range]:
        """The clients, from 0, of each group; the last one may be smaller."""
        return [range(at, min(at + self.q, self.clients)) for at in range(0, self.clients, self.q)]

    def segment(self, v: Array) -> Array:
        """(l,) -> (s, t), padded with zeros."""
        rows = np.zeros(self.segments * self.t)
        rows[:self.length] = v
        return rows.reshape(self.segments, self.t)

    def flatten(self, rows: Array) -> Array:
        """(s, t) -> (l,)."""
        return rows.reshape(-1)[:self.length]
