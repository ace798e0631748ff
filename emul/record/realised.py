"""The table `network` of a run: the draws of its links, the effects of faults on them, the costs of computations. The
draws come as rows from the engine; the rest is in the journal. `emul.network.realisation` reads the table back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from emul.base import rows
from emul.base.plain import PlainMapping
from emul.record.columns import Computations, Table

if TYPE_CHECKING:
    import pyarrow as pa

# source, destination, what, round, k, start_ns, end_ns, value; of `lost_packet` the message's sender and
# receiver, of background along a route its ends
LinkRow = (tuple[str, str, str, int | None, int | None, int | None, int | None, float | None]
           | tuple[str, str, str, int | None, int | None, int | None, int | None, float | None, str | None,
                 str | None])

_AT_ONCE = 65536


def network_table(drawn: Iterable[LinkRow], c: Computations, table: Table, header: PlainMapping) -> pa.Table:
    """The rows of the links, then those of the faults, then the computations; in batches, since they can be many."""
    import pyarrow as pa

    schema = pa.schema([("source", pa.string()), ("destination", pa.string()), ("what", pa.string()),
                        *((name, pa.int64()) for name in ("round", "k", "start_ns", "end_ns")),
                        ("value", pa.float64()), ("sender", pa.string()), ("receiver", pa.string())])
    found = chain(drawn, fault_rows(table, header["network"]))
    batches = []
    while batch := list(islice(found, _AT_ONCE)):
        columns = zip(*(row if len(row) == 10 else (*row, None, None) for row in batch), strict=True)
        batches.append(pa.record_batch([pa.array(column, kind) for column, kind in zip(
            columns, schema.types, strict=True)], schema=schema))
    batches.append(_costs(c, header["names"], schema))
    return pa.Table.from_batches(batches, schema)


def fault_rows(table: Table, names: Sequence[str]) -> Iterator[LinkRow]:
    """Changes of links by faults: `fault_down` 1 or 0, `fault_bandwidth_bps` (null: infinite), `fault_latency_ns`."""
    changed = table[rows.LINK]
    for time, u, v, changes in zip(changed["time_ns"].tolist(), changed["vertex"].tolist(), changed["next"].tolist(),
                                   changed["changes"], strict=True):
        for key in ("down", "bandwidth_bps", "latency_ns"):
            if key in changes and (value := changes[key]) is not None:
                number = float(value) if isinstance(value, (int, float)) else None
                yield names[u], names[v], f"fault_{key}", None, None, time, None, number


def _costs(c: Computations, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """`compute_ns`: node, label, the node's round, which of that name there (from 0), cost."""
    import pyarrow as pa

    n = len(c.node)
    nothing = pa.nulls(n, pa.int64())
    return pa.record_batch([
        _texts(names, c.node), _texts(c.labels, c.label), _texts(["compute_ns"], np.zeros(n, np.int64)),
        pa.array(c.round), pa.array(_counted(c.node * max(1, len(c.labels)) + c.label)), nothing, nothing,
        pa.array(c.cost_ns.astype(np.float64)), pa.nulls(n, pa.string()), pa.nulls(n, pa.string())], schema=schema)


def _texts(texts: Sequence[str], positions: np.ndarray) -> pa.Array:
    """(n,) text: those at these positions."""
    import pyarrow as pa

    return pa.array(texts, pa.string()).take(pa.array(positions))


def _counted(keys: np.ndarray) -> np.ndarray:
    """(n,) int64: how often each has occurred before.

    >>> _counted(np.array([5, 7, 5, 5, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(keys, kind="stable")
    found = keys[order]
    begins = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]])) if len(keys) else np.zeros(0, np.int64)
    since = np.arange(len(keys)) - np.repeat(begins, np.diff([*begins.tolist(), len(keys)]))
    counts = np.empty(len(keys), np.int64)
    counts[order] = since
    return counts


def costs_not_held(c: Computations, names: Sequence[str], held: Mapping[tuple[str, str], int]) -> int:
    """Computations of a run that a record with so many costs of each (node, label) did not hold."""
    count = Counter((names[node], c.labels[label])
                    for node, label in zip(c.node.tolist(), c.label.tolist(), strict=True))
    return sum(max(0, n - held.get(key, 0)) for key, n in count.items())
