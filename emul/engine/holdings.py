"""The training samples of each class that each node of a run holds, counted in the coordinator when it is over."""

from __future__ import annotations

import logging

import numpy as np

from emul.engine.wiring import Wiring
from emul.learning import Task
from emul.learning.columns import NAME as BY_COLUMNS
from emul.learning.partition import parse
from emul.record.side_tables import SampleCount

_log = logging.getLogger(__name__)

MOST_NODES = 1000           # with more, no picture of all of them can be read, and drawing their samples takes seconds


def samples_held(wiring: Wiring) -> list[SampleCount]:
    """A count for each class that a node has samples of, nodes in order. Empty: the run has no learning task, trains
    nothing, has more than MOST_NODES nodes with data, or gives its nodes columns in place of samples."""
    setup = wiring.setups[0]
    if setup.task is None or not setup.trains or not 0 < setup.holders <= MOST_NODES:
        return []
    if parse(setup.task.get("partition") or "iid")[0] == BY_COLUMNS:
        return []
    try:
        task = Task(setup.task, setup.holders, setup.seed, plugins=setup.plugins)
        shards = [(first + i, shard + i) for first, shard, count in setup.shards for i in range(count)]
        return [(node, setup.names[node], label, count) for node, shard in shards
                for label, count in _counts(task, shard)]
    except Exception as error:          # whatever a user's data set raises when it is read again; the run is over
        _log.warning("the samples of the nodes were not counted: %s: %s", type(error).__name__, error)
        return []


def _counts(task: Task, shard: int) -> list[tuple[int | None, int]]:
    """(class, samples) of a client, or (None, samples) where targets are no labels."""
    if not task.data.labelled:
        return [(None, task.samples(shard))]
    counts = np.bincount(task.data.train_y[task.indices(shard)], minlength=task.data.classes)
    return [(label, int(counts[label])) for label in np.flatnonzero(counts).tolist()]
