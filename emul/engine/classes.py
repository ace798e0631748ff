"""Classes of nodes that do the same in a round without training, for the kernel, which asks one of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emul.learning import Task, partition
from emul.roles.scheme import AnyScheme
from emul.workers.setup import Setup

_PRICES = ("zero", "profile")               # modes in which a cost depends on role, label, work and speed alone


def classes(scheme: AnyScheme, setup: Setup) -> Sequence[int]:
    """node -> its class; -1: no other node is like it. (): no node is like another.

    A class is an `interchangeable` role, a number of samples, a speed, and GPUs. No node is like another where messages
    are kept, and where nodes behave otherwise, come and go, slow down, or have costs of their own.
    """
    if (setup.trains or not scheme.interchangeable or setup.cost_mode not in _PRICES or setup.traces
            or setup.network_costs or setup.slowdowns or setup.rounds or setup.behaviours or setup.attacks
            or setup.payloads):
        return ()
    samples = _samples(setup)
    keys = {node: (role, samples.get(node), setup.speeds[node], *(setup.islands[node] if setup.islands else ()))
            for role in scheme.interchangeable for node in setup.roles.get(role, ())}
    numbers = {key: number for number, (key, count) in enumerate(Counter(keys.values()).items()) if count > 1}
    return [numbers.get(keys[node], -1) if node in keys else -1 for node in range(len(setup.names))]


def _samples(setup: Setup) -> dict[int, int]:
    """node -> its number of training samples, of those that hold data."""
    if setup.task is None:
        return {}
    name, value = partition.parse(setup.task.get("partition") or "iid")
    shards = ((first + i, shard + i) for first, shard, count in setup.shards for i in range(count))
    if name == "bootstrap":                 # as many for each, and no data need be read to know
        return {node: int(value) for node, _ in shards}
    task = Task(setup.task, setup.holders, setup.seed, plugins=setup.plugins)
    return {node: task.samples(shard) for node, shard in shards}
