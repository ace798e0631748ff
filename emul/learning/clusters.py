"""Clusters of clients whose data differ in kind, so that one model cannot fit all: rotated images, or other labels.

    task: {clusters: {rotate: [0, 90]}}     images of cluster c are turned by the c-th angle, a multiple of 90 degrees
    task: {clusters: {relabel: 2}}          labels of cluster c are permuted, those of cluster 0 stay

After Ghosh et al., NeurIPS 2020 (IFCA), section 6: Rotated MNIST; Sattler et al., TNNLS 2021 (CFL): permuted labels.
Every training sample belongs to one cluster, drawn at random in equal shares, and is changed as its cluster says; the
test set holds every test sample once for each cluster. Client k belongs to cluster k mod m, and the task's partition
divides a cluster's samples among its clients. Deviation from IFCA: there every training image is copied into each
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emul.base.plain import PlainMapping
from emul.base.streams import generator, key64
from emul.learning.dataset import Column, DataError, DataSet, mapped
from emul.learning.partition import Partition
from emul.learning.shards import Columns

KINDS = ("rotate", "relabel")
COLUMN = "cluster"                      # of the data: which cluster a sample belongs to


def count(spec: PlainMapping) -> int:
    """The number m of clusters.

    >>> count({"rotate": [0, 90, 180]}), count({"relabel": 2})
    (3, 2)
    """
    (_, value), = spec.items()
    return len(value) if isinstance(value, list) else int(value)


def clustered(data: DataSet, spec: PlainMapping, seed: int) -> DataSet:
    """The data with each sample as its cluster has it, and a column `cluster`. Raises DataError."""
    m = count(spec)
    of_train = generator(seed, "clusters", "samples").permutation(np.arange(len(data.train_y)) % m)
    of_test = np.repeat(np.arange(m), len(data.test_y))
    repeated = replace(data, test_x=mapped(lambda x: np.concatenate([x] * m), data.test_x),
                       test_y=np.concatenate([data.test_y] * m))
    (kind, value), = spec.items()
    changed = _rotated(repeated, value, of_train, of_test) if kind == "rotate" else \
        _relabelled(repeated, m, of_train, of_test, seed)
    columns = {name: Column(c.train, None if c.test is None else np.concatenate([c.test] * m))
               for name, c in data.columns.items()}
    return replace(changed, columns=columns | {COLUMN: Column(of_train, of_test)})


def _rotated(data: DataSet, degrees: Sequence[int], of_train: np.ndarray, of_test: np.ndarray) -> DataSet:
    x = data.train_x
    if isinstance(x, dict) or x.ndim < 3 or x.shape[-1] != x.shape[-2]:
        raise DataError("clusters: rotate: expected square images, found samples of shape "
                        f"{data.input_shape}")

    def turned(images: np.ndarray, of: np.ndarray) -> np.ndarray:
        found = np.array(images)
        for c, angle in enumerate(degrees):
            found[of == c] = np.rot90(found[of == c], angle // 90, (-2, -1))
        return _kept(found)

    assert not isinstance(data.test_x, dict)
    return replace(data, train_x=turned(x, of_train), test_x=turned(data.test_x, of_test))


def _relabelled(data: DataSet, m: int, of_train: np.ndarray, of_test: np.ndarray, seed: int) -> DataSet:
    if not data.labelled:
        raise DataError("clusters: relabel: expected a label for each sample")
    table = np.stack([np.arange(data.classes), *(generator(seed, "clusters", "labels", c).permutation(data.classes)
                                                 for c in range(1, m))])
    return replace(data, train_y=_kept(table[of_train, data.train_y]), test_y=_kept(table[of_test, data.test_y]))


def _kept(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class ClusteredPartition:
    """A partition within each cluster: client k is the (k // m)-th of cluster k mod m."""

    pools: Sequence[np.ndarray]             # cluster -> its samples, indices into what is divided
    within: Sequence[Partition]

    def _at(self, client: int) -> tuple[int, int]:
        return client % len(self.pools), client // len(self.pools)

    def cluster(self, client: int) -> int:
        """The cluster that a client belongs to."""
        return self._at(client)[0]

    def size(self, client: int) -> int:
        c, k = self._at(client)
        return self.within[c].size(k)

    def indices(self, client: int) -> np.ndarray:
        c, k = self._at(client)
        return self.pools[c][self.within[c].indices(k)]

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """The test samples of the client's cluster; of these what the partition gives it, where it gives any."""
        c, k = self._at(client)
        of_cluster = np.flatnonzero(columns[COLUMN] == c)
        own = self.within[c].test_indices(k, targets[of_cluster],
                                          {name: column[of_cluster] for name, column in columns.items()})
        return of_cluster if own is None else of_cluster[own]


def divided(of: np.ndarray, clients: int, m: int, seed: int, make: Callable[[np.ndarray, int, int], Partition],
            ) -> ClusteredPartition:
    """Samples of the clusters `of` (n,) divided among the clients: make(indices, clients, seed) in each of the m."""
    pools = [np.flatnonzero(of == c) for c in range(m)]
    within = [make(pool, len(range(c, clients, m)), key64(seed, "clusters", "partition", c) >> 1)
              for c, pool in enumerate(pools)]
    return ClusteredPartition(pools, within)
