"""Segments, groups and layers of EBS-CFL: how long everything is."""

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
    layers: tuple[int, ...] = ()        # clients below a node of each layer between the groups and all of them

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
        return self._cut(self.q)

    @cached_property
    def tree(self) -> list[list[range]]:
        """The clients below each node of every layer: of the groups, of `layers`, and of the one node at the top."""
        return [self.groups, *(self._cut(size) for size in self.layers), [range(self.clients)]]

    def parent(self, layer: int, node: int) -> int:
        """The node of the next layer above a node of this one. Layers count from 0, the groups."""
        size = self.layers[layer] if layer < len(self.layers) else self.clients
        return self.tree[layer][node].start // size

    def above(self, layer: int, node: int) -> int:
        """The number of clients below the parent of a node."""
        return len(self.tree[layer + 1][self.parent(layer, node)])

    def _cut(self, size: int) -> list[range]:
        return [range(at, min(at + size, self.clients)) for at in range(0, self.clients, size)]

    def segment(self, v: Array) -> Array:
        """(l,) -> (s, t), padded with zeros."""
        rows = np.zeros(self.segments * self.t)
        rows[:self.length] = v
        return rows.reshape(self.segments, self.t)

    def flatten(self, rows: Array) -> Array:
        """(s, t) -> (l,)."""
        return rows.reshape(-1)[:self.length]
