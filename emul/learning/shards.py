"""The tools of the rules that divide samples: the samples of all clients in one array, and their error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.base.errors import EmulError

Columns = Mapping[str, np.ndarray]          # what else is known of each sample: {name: (n,)}


class PartitionError(EmulError):
    """A data set cannot be divided among so many clients in this way."""


@dataclass(frozen=True)
class Shards:
    """Index arrays that are made at once, one after the other in one array: a client's is a view, made when asked for.

    Client k holds order[bounds[k]:bounds[k + 1]].
    """

    order: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, shards: Sequence[np.ndarray]) -> Shards:
        """The clients' arrays in their order, copied into one that cannot be written."""
        order = np.concatenate([np.empty(0, np.int64), *shards])
        order.flags.writeable = False
        return cls(order, np.cumsum([0, *(len(shard) for shard in shards)]))

    def size(self, client: int) -> int:
        return int(self.bounds[client + 1] - self.bounds[client])

    def indices(self, client: int) -> np.ndarray:
        """A view of `order`, (size,) int64."""
        return self.order[self.bounds[client]:self.bounds[client + 1]]

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """None, always: clients are evaluated by their labels."""
        return None
