"""Partitions by columns: every party has some of the numbers of each sample, and one other has the labels.

    partition: {columns: {groups: 2, common: 0.9}}      two parties: the left and the right halves of images
    partition: {columns: {groups: [[0, 1, 2], [3, 4]]}}     by the numbers of columns, of samples as flat vectors

Party k holds group k of the samples whose ids it has; an id is the number of a sample. `common` is the share of the
samples that all parties have; each of the others is at one party alone. The labels are at a node that is no party.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from emul.base.streams import generator
from emul.learning.dataset import DataSet
from emul.learning.shards import Columns as ByName
from emul.learning.shards import PartitionError, Shards

NAME = "columns"
KEYS = ("groups", "common", "labels")
HOLDER = "server"                       # the role that has the labels


@dataclass(frozen=True)
class ColumnPartition:
    """The samples of each party: a partition as any other, in which clients share samples."""

    shards: Shards

    def size(self, client: int) -> int:
        return self.shards.size(client)

    def indices(self, client: int) -> np.ndarray:
        return self.shards.indices(client)

    def test_indices(self, client: int, targets: np.ndarray, columns: ByName) -> np.ndarray | None:
        """None, always: all parties have all test samples."""
        return None


def divided(targets: np.ndarray, parties: int, value: object, seed: int) -> ColumnPartition:
    """Raises PartitionError where no sample is common to all."""
    wrong = [f"{place}: {expected}" for place, _, expected in mistakes(value, parties, len(targets))]
    if wrong or not isinstance(value, Mapping):
        raise PartitionError("; ".join(wrong))
    order = generator(seed, "partition", NAME).permutation(len(targets))
    common = round(float(value.get("common", 1.0)) * len(order))
    own = np.array_split(order[common:], parties)
    return ColumnPartition(Shards.of([np.sort(np.concatenate([order[:common], part])) for part in own]))


def mistakes(value: object, parties: int, samples: int | None = None) -> Iterator[tuple[str, object, str]]:
    """(key, found, expected) of what is wrong with the value of the partition. samples: of the training set; None: not
    known."""
    if not isinstance(value, Mapping) or "groups" not in value:
        yield "", value, "expected such as {groups: 2, common: 0.9}"
        return
    for key in value:
        if key not in KEYS:
            yield str(key), value[key], f"unknown key; expected {', '.join(KEYS)}"
    groups, common = value["groups"], value.get("common", 1.0)
    lists = isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)
    if isinstance(groups, bool) or not (isinstance(groups, int) or lists):
        yield "groups", groups, "expected a number of groups, or lists of columns"
    elif (groups if isinstance(groups, int) else len(groups)) != parties:
        yield "groups", groups, f"expected a group for each of the {parties} clients"
    elif lists:
        flat = [column for group in groups for column in group]
        if not all(isinstance(column, int) and not isinstance(column, bool) and column >= 0 for column in flat):
            yield "groups", groups, "expected numbers of columns, from 0"
        elif len(set(flat)) < len(flat):
            yield "groups", groups, "expected each column at one party"
    if isinstance(common, bool) or not isinstance(common, int | float) or not 0 < common <= 1:
        yield "common", common, "expected a share in (0, 1]: parties without common samples cannot learn together"
    elif samples is not None and not round(common * samples):
        yield "common", common, f"expected a share of one sample or more: parties without common samples, of {samples}"
    if value.get("labels", HOLDER) != HOLDER:
        yield "labels", value["labels"], f"expected {HOLDER}: the labels are at one node, which has no columns"


@dataclass(frozen=True)
class ColumnGroups:
    """The columns of each party, of samples of one shape."""

    shape: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]  # of the last axis, or, `flat`, of the sample as a vector
    flat: bool

    @classmethod
    def of(cls, value: object, shape: object) -> ColumnGroups:
        """Raises PartitionError for columns that the samples do not have."""
        if not isinstance(value, Mapping):
            raise PartitionError("columns: expected such as {groups: 2, common: 0.9}")
        if not isinstance(shape, tuple) or not shape:
            raise PartitionError("columns: expected samples of one tensor")
        groups, flat = value["groups"], isinstance(value["groups"], list)
        columns = int(np.prod(shape)) if flat else shape[-1]
        parts = groups if flat else [part.tolist() for part in np.array_split(np.arange(columns), groups)]
        if max(max(part, default=-1) for part in parts) >= columns or not all(parts):
            raise PartitionError(f"columns: samples have the columns 0..{columns - 1}, groups are {groups}")
        return cls(shape, tuple(map(tuple, parts)), flat)

    def __len__(self) -> int:
        return len(self.parts)

    def shape_of(self, party: int) -> tuple[int, ...]:
        """Of one sample at that party."""
        own = len(self.parts[party])
        return (own,) if self.flat else (*self.shape[:-1], own)

    def take(self, data: DataSet, rows: np.ndarray, party: int, test: bool = False) -> np.ndarray:
        """A party's columns of these samples, as networks take them, (n, ...) float32."""
        stored = data.test_x if test else data.train_x
        assert isinstance(stored, np.ndarray)               # `of` has seen the shape of one tensor
        x = data.inputs(stored[rows])
        x = x.reshape(len(rows), -1) if self.flat else x
        return np.ascontiguousarray(x[..., list(self.parts[party])])
