"""Local trainings of many clients as one stacked computation, against the same one after the other.

Both train from the same parameters on the same batches, and what comes out must agree. They take turns, in one process
with one thread and a worker's settings. 100 clients of 15 digits each, `digits_cnn`, batches of 10, on one core; and 20
clients with four batches of larger nets, where calls are a smaller part of the work, in two such processes at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

from benchmarks.common import Figure, Options, main, python, run

TARGET = 4
GROUPS = (10, 25, 50, 100)
LARGER, TARGET_LARGER = ("mnist_classic", "mnist_pooled", "cinic_cnn"), 3
_LENGTHS = {"one epoch": {"epochs": 1}, "5 steps": {"steps": 5}}


def probe(model: str, clients: int, samples: int, batch: int, length: dict[str, int], groups: list[int],
          rounds: int) -> None:
    """Print the median ms a client, alone ("0") and by size of the group, over rounds in which all take turns."""
    import numpy as np
    import torch

    from emul.base.streams import generator
    from emul.learning import data, models
    from emul.learning.data import DataSet
    from emul.learning.fused import train_fused
    from emul.learning.local import LocalTraining, train_alone
    from emul.learning.parameters import FlatModule
    from emul.learning.solver import Sgd
    from emul.learning.training import Samples, Stream
    from emul.workers.collections import keep_memory

    torch.set_num_threads(1)
    keep_memory()                                           # as in a worker
    if model == "digits_cnn":
        source = data.load({"set": "digits"})
    else:
        rng = generator(1, "bench/fused")
        shape = (clients * samples, *(models.BUILT_IN[model].input_shape or ()))
        x, y = rng.integers(0, 256, shape, np.uint8), rng.integers(0, 10, clients * samples)
        source = DataSet("made", x, y, x[:0], y[:0], 10, 255.0, 0.1307, 0.3081)
    flat = FlatModule(models.create(model, source.input_shape, source.classes, 1))
    before = flat.read()
    solver = Sgd(lr=0.1, batch=batch, epochs=length.get("epochs"), steps=length.get("steps"))
    locals_ = [LocalTraining(before, Samples(source, np.arange(i * samples, (i + 1) * samples)), solver,
                             Stream(1, f"client{i}", 1, 0)) for i in range(clients)]

    def alone() -> list[np.ndarray]:
        found = []
        for local in locals_:
            found.append(train_alone(flat, local))
        return found

    def fused(group: int) -> list[np.ndarray]:
        return [after for i in range(0, clients, group) for after in train_fused(flat, locals_[i:i + group])]

    ways: dict[int, Callable[[], list[np.ndarray]]] = {0: alone, **{group: partial(fused, group) for group in groups}}
    expected = alone()
    for way in ways.values():                               # warm; and they have to agree
        for ours, theirs in zip(way(), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    found: dict[int, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            found[name].append(1e3 * (time.perf_counter() - begin) / clients)
    print(json.dumps({name: median(times) for name, times in found.items()}))


def _measure(repeats: int, *arguments: object, processes: int = 1) -> dict[int, float]:
    """ms a client: the median over interpreters, of which so many run at once."""
    call = python(f"from benchmarks.bench_fused import probe; probe({', '.join(map(repr, arguments))})")
    with ThreadPoolExecutor(processes) as at_once:
        done = list(at_once.map(run, [call] * (repeats * processes)))
    runs = [json.loads(one.output) for one in done]
    return {int(name): median(run[name] for run in runs) for name in runs[0]}


def fused(options: Options) -> Iterable[Figure]:
    for what, length in _LENGTHS.items():
        ms = _measure(options.repeats, "digits_cnn", 100, 15, 10, length, list(GROUPS), 15)
        for group in GROUPS:
            yield Figure(f"digits_cnn, {what}, groups of {group}, times faster than alone", ms[0] / ms[group], "x",
                         at_least=TARGET if group >= 50 else None, minor=group != 50,
                         note=f"{ms[group]:.3f} ms a client, alone {ms[0]:.3f} ms")
    for model in LARGER:
        for batch in (4, 10):
            ms = _measure(options.repeats, model, 20, 4 * batch, batch, {"epochs": 1}, [20], 9, processes=2)
            yield Figure(f"{model}, batches of {batch}, groups of 20, times faster than alone", ms[0] / ms[20], "x",
                         at_least=TARGET_LARGER, minor=batch != 4,
                         note=f"{ms[20]:.2f} ms a client, alone {ms[0]:.2f} ms; in two processes at once")


if __name__ == "__main__":
    main(fused, text=__doc__)
