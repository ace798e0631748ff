"""Seconds of training from a model and a device, for `compute: {mode: model}`: known before the clock starts.

The task's module is counted once (`emul.learning.counting`), each device has what its table says
(`emul.scenario.devices`), and `step_time` joins both. Nothing is measured in the run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainDict
from emul.engine.setups import Parts
from emul.learning import Task
from emul.learning.columns import NAME as BY_COLUMNS
from emul.learning.declared import declared
from emul.learning.partition import parse
from emul.learning.solver import steps_of
from emul.scenario.devices import OF_CONVOLUTIONS, ROOFLINE, DeviceClass, StepTime, step_time
from emul.scenario.placing import devices_of

if TYPE_CHECKING:
    from emul.learning.counting import StepCounts

_MIB = 2**20


@dataclass(frozen=True)
class DeviceTraining:
    """A step of training on a class of devices, with the batch of some of its nodes."""

    device: DeviceClass
    batch: int
    nodes: int
    flops: float
    bytes: float
    launches: float
    memory: float                           # bytes
    time: StepTime
    update_s: float                         # of a local update of the node among these that takes longest


@dataclass(frozen=True)
class TrainingTimes:
    """steps, updates: node -> seconds of a step of the solver's batch, and of a local update; 0.0: it holds no data."""

    steps: list[float]
    updates: list[float]
    by_device: list[DeviceTraining]

    def warnings(self) -> list[str]:
        """Warnings of numbers that the times rest on and nobody has measured, and of memories that are not known."""
        found = []
        for device in {one.device.name: one.device for one in self.by_device}.values():
            assumed = device.assumed((*ROOFLINE, *OF_CONVOLUTIONS))
            if assumed:
                found.append(f"compute.mode: model: {', '.join(assumed)} of {device.name} are assumed: "
                             f"{device.origins[assumed[0]].source}")
            if device.memory_mb is None:
                found.append(f"compute.mode: model: the table says no memory of {device.name}: whether a step fits is "
                             "not checked")
        return found

    def rows(self) -> list[PlainDict]:
        """As plain values, for `emul explain`. joules: of a step; None: the table says no watts."""
        return [{"device": one.device.name, "nodes": one.nodes, "batch": one.batch, "flops": one.flops,
                 "bytes": one.bytes, "launches": one.launches, "memory_bytes": one.memory,
                 "compute_s": one.time.compute_s, "memory_s": one.time.memory_s, "launch_s": one.time.launch_s,
                 "bound": one.time.bound, "step_s": one.time.seconds, "update_s": one.update_s,
                 "joules": None if one.device.compute_w is None else one.device.compute_w * one.time.seconds}
                for one in self.by_device]


def training_times(parts: Parts) -> TrainingTimes | None:
    """Of the nodes that hold data; None: the mode is another, a network for a loop has no task, a declared model has
    its own times, or nodes hold columns and none of them trains the whole model.

    Raises ScenarioError: a node has no device, a table lacks a number, or a step does not fit into a memory.
    """
    scenario, placed = parts.scenario, parts.placed
    if parts.costs.mode != "model" or not scenario.task or declared(scenario.task) is not None or \
            parse(scenario.task.get("partition") or "iid")[0] == BY_COLUMNS:
        return None
    devices = devices_of(scenario.equipment, scenario.seed, placed)
    holding = [(first + i, shard + i) for first, shard, count in placed.shards for i in range(count)]
    problems = list(_unpriced(parts, devices, [node for node, _ in holding]))
    if problems:
        raise ScenarioError(str(scenario.path or scenario.name), problems)
    counts, samples = _counted(json.dumps(scenario.task, sort_keys=True), len(placed.holders), scenario.seed,
                               tuple(parts.plugins))
    pricing = _Pricing(counts, parts)
    steps, updates = [0.0] * len(placed.names), [0.0] * len(placed.names)
    for node, shard in holding:
        device = devices[node]
        assert device is not None
        steps[node], updates[node] = pricing.of(device, samples[shard])
    problems = [Problem("devices", one.device.name, _too_large(one)) for one in pricing.by_device()
                if one.device.memory_mb is not None and one.memory > one.device.memory_mb * _MIB]
    if problems:
        raise ScenarioError(str(scenario.path or scenario.name), problems)
    return TrainingTimes(steps, updates, pricing.by_device())


class _Pricing:
    """Step times by device and batch, each worked out once."""

    def __init__(self, counts: StepCounts, parts: Parts):
        self._counts, self._solver = counts, Task(parts.scenario.task, 1, 0).solver
        self._steps: dict[tuple[str, int], float] = {}
        self._devices: dict[str, DeviceClass] = {}
        self._nodes: Counter[tuple[str, int]] = Counter()
        self._updates: dict[tuple[str, int], float] = {}

    def of(self, device: DeviceClass, samples: int) -> tuple[float, float]:
        """Seconds of a step, and of a local update, of a node with so many samples."""
        if not samples:
            return 0.0, 0.0
        size = min(self._solver.batch or samples, samples)
        per_epoch, rest = -(-samples // size), samples % size
        steps = steps_of(self._solver, samples)
        short = steps // per_epoch if rest else 0           # the last batch of each pass has what is left
        step = self._step(device, size)
        update = (steps - short) * step + (short * self._step(device, rest) if short else 0.0)
        self._devices[device.name] = device
        self._nodes[device.name, size] += 1
        self._updates[device.name, size] = max(update, self._updates.get((device.name, size), 0.0))
        return step, update

    def by_device(self) -> list[DeviceTraining]:
        """By name, then by batch."""
        return [self._training(self._devices[name], batch, nodes) for (name, batch), nodes in sorted(
            self._nodes.items())]

    def _training(self, device: DeviceClass, batch: int, nodes: int) -> DeviceTraining:
        count = self._counts.of(batch)
        return DeviceTraining(device, batch, nodes, count.flops, count.bytes, count.launches, count.memory,
                              step_time(device, count), self._updates[device.name, batch])

    def _step(self, device: DeviceClass, batch: int) -> float:
        key = device.name, batch
        if key not in self._steps:
            self._steps[key] = step_time(device, self._counts.of(batch)).seconds
        return self._steps[key]


def _unpriced(parts: Parts, devices: Sequence[DeviceClass | None], nodes: Sequence[int]) -> Iterator[Problem]:
    """Nodes that hold data and have no device, and devices that no time can be worked out for."""
    bare = [parts.placed.names[node] for node in nodes if devices[node] is None]
    if bare:
        yield Problem("compute.mode", "model", f"{bare[0]} has no device: expected such as devices: {{nodes: [{{match: "
                      '"*", device: jetson-nano}]}; `emul devices` lists them')
    for device in {one.name: one for node in nodes if (one := devices[node]) is not None}.values():
        lacking = device.lacking(ROOFLINE)
        if lacking:
            yield Problem("devices", device.name, f"the table says no {', '.join(lacking)} of it, which mode: model "
                          "needs: expected a device such as raspberry-pi-4 (`emul devices`), or another mode")


def _too_large(one: DeviceTraining) -> str:
    has = float(one.device.memory_mb or 0)
    return (f"a step of {one.batch} samples takes {one.memory / _MIB:,.0f} MiB, and the device has {has:,.0f}: "
            f"{one.memory / _MIB - has:,.0f} MiB too many")


@lru_cache(maxsize=8)
def _counted(spec: str, holders: int, seed: int, plugins: tuple[str, ...]) -> tuple[StepCounts, list[int]]:
    """(counts of a step of the task, samples of each shard): once for the schemes of a scenario."""
    from emul.learning.counting import step_counts  # torch, which no other mode needs before its workers do

    task = Task(json.loads(spec), holders, seed, plugins=plugins)
    return step_counts(task), [task.samples(shard) for shard in range(holders)]
