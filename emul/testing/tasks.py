"""Properties that every learning task must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from emul.learning import Task
from emul.learning.trial import trial


def check_task(spec: Mapping[str, object], clients: int = 2, plugins: Sequence[str] = (), seed: int = 1) -> None:
    """Properties that a learning task must have, for so many clients: its parts fit each other, they are the same when
    they are made again, and clients that are trained as one learn what each learns alone, but for rounding.

    spec: `task` of a scenario. Raises AssertionError saying what differed.
    """
    task, again = (Task(dict(spec), clients, seed, plugins=plugins) for _ in range(2))
    wrong = trial(task)
    if wrong is not None:
        raise AssertionError(f"task.{'.'.join(wrong[0])}: {wrong[1]}")
    assert task.data.content_key == again.data.content_key, "task.data.set: made again, its arrays differ"
    start, few = task.initial_parameters(), range(min(clients, 3))
    for client in few:
        assert np.array_equal(task.indices(client), again.indices(client)), "task.partition: made again, it differs"
    nodes = [task.for_node(f"client{client + 1}", client, lambda: 1) for client in few]
    alone = [node.local_update(start, steps=2)[0] for node in nodes]
    fused: dict[int, np.ndarray] = {}

    def piece(client: int) -> Callable[[], None]:
        node = again.for_node(f"client{client + 1}", client, lambda: 1)
        return lambda: fused.update({client: node.local_update(start, steps=2)[0]})

    again.together.run([piece(client) for client in few])
    for client in few:
        off = float(np.abs(fused[client] - alone[client]).max(initial=0.0))
        assert off <= 1e-3 * max(1.0, float(np.abs(alone[client]).max(initial=0.0))), \
            f"client {client}: trained as one with others, its update differs by {off}: what the model or the " \
            "objective makes of a sample depends on the others of its batch"
