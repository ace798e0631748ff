"""The partitioners of flwr-datasets, by their names and with their arguments.

    partition: {flwr_datasets: {DirichletPartitioner: {alpha: 0.3, min_partition_size: 5}}}

They divide a table with a row for each sample: `label`, its target, and the columns of the data. Rows are shuffled
first, as a FederatedDataset of Flower does. Two arguments that a partitioner takes have other defaults: `partition_by`
is `label`, and `seed` follows from the scenario's. `num_partitions` is the number of clients.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec

import numpy as np

from emul.base.streams import generator, key64
from emul.learning.shards import Columns, PartitionError, Shards

NAME = "flwr_datasets"
KINDS = tuple(f"{name}Partitioner" for name in (
    "Continuous", "Dirichlet", "Exponential", "GroupedNaturalId", "Iid", "InnerDirichlet", "Linear", "NaturalId",
    "Pathological", "Shard", "Size", "Square"))
_MISSING = "needs flwr-datasets, which is not installed: pip install 'emul[flwr_datasets]'"
_ROW = "sample"         # the column with the numbers of samples


def mistakes(value: object) -> Iterator[tuple[tuple[str, ...], object, str]]:
    """(place below the rule, found, expected) of all that can be said without the data."""
    if isinstance(value, str):
        value = {value: None}
    if not isinstance(value, dict) or len(value) != 1:
        yield (), value, "expected one partitioner, such as {DirichletPartitioner: {alpha: 0.3}}"
        return
    (name, arguments), = value.items()
    if name not in KINDS:
        near = get_close_matches(str(name), KINDS, n=1)
        yield (), name, f'unknown partitioner; did you mean "{near[0]}"?' if near else (
            f"unknown partitioner; there are {', '.join(KINDS)}")
    elif not isinstance(arguments, dict | None):
        yield (name,), arguments, "expected its arguments by their names"
    elif find_spec(NAME) is None:
        yield (), name, _MISSING


def divided(targets: np.ndarray, clients: int, value: str | Mapping[str, Mapping[str, object] | None], seed: int,
            columns: Columns) -> Shards:
    """The samples of each client. Raises PartitionError for whatever the partitioner refuses."""
    (name, given), = ({value: None} if isinstance(value, str) else value).items()
    place = f"{NAME}: {name}"
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner
    except ImportError as error:
        raise PartitionError(f"{place} {_MISSING} ({error})") from error
    kind = getattr(partitioner, name)
    takes = inspect.signature(kind).parameters
    arguments = {argument: default for argument, default in (
        ("num_partitions", clients), ("partition_by", "label"), ("seed", key64(seed, "partition", NAME) >> 33))
        if argument in takes} | dict(given or {})
    if unknown := [argument for argument in arguments if argument not in takes]:
        raise PartitionError(f"{place}: unknown argument {unknown[0]}; it takes {', '.join(takes)}")
    if targets.ndim != 1:
        raise PartitionError(f"{place}: expected one target for each sample, found targets of shape {targets.shape}")
    order = generator(seed, "partition", NAME).permutation(len(targets))
    table = {"label": targets, **columns}
    try:
        with warnings.catch_warnings(action="ignore"):          # of draws that it makes again
            made = kind(**arguments)
            made.dataset = Dataset.from_dict({_ROW: order, **{key: one[order] for key, one in table.items()}})
            if made.num_partitions != clients:
                raise PartitionError(f"{place}: it makes {made.num_partitions} parts for {clients} clients")
            parts = [np.asarray(made.load_partition(client)[_ROW][:], np.int64) for client in range(clients)]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise PartitionError(f"{place}: {error}") from error
    return Shards.of(parts)
