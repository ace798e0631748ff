"""A test of a device for everything that emul asks of it: train, train many as one, evaluate, and repeat it exactly.

Everything is computed on the CPU and on the device, from the same streams, and compared. Without a task of the user it
is a small convolutional net with dropout on stripes that are made here.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import nn

    from emul.learning.task import Task

RTOL, ATOL = 1e-3, 1e-4         # of parameters after a few steps: other kernels add up in another order
CLIENTS, STEPS = 4, 4
_SIDE, _CLASSES = 12, 4
TASK = {"data": {"set": "emul_stripes"}, "partition": "iid", "model": "emul_stripes_net",
        "solver": {"sgd": {"lr": 0.05, "momentum": 0.5, "steps": STEPS, "batch": 32}}}


@dataclass(frozen=True)
class Compared:
    """One thing that was computed on both. Seconds: of the second time, when everything is warm."""

    what: str
    cpu_s: float
    device_s: float
    difference: float           # the largest, of numbers that should be equal but for rounding
    close: bool                 # true if all are within RTOL and ATOL


@dataclass(frozen=True)
class Smoke:
    """The findings on a device. first_s: until it had done something at all; repeats: the same again, to the bit."""

    device: str
    about: dict[str, str]
    first_s: float
    compared: Sequence[Compared]
    repeats: bool

    @property
    def ok(self) -> bool:
        """True if it computes what the CPU does, and the same each time."""
        return self.repeats and all(one.close for one in self.compared)

    def __str__(self) -> str:
        lines = [f"{self.device}: {', '.join(f'{key} {value}'.strip() for key, value in self.about.items())}",
                 f"ready after {self.first_s:.2f} s", f"{'':22}{'cpu':>10}{self.device:>12}   largest difference"]
        lines += [f"{one.what:22}{1e3 * one.cpu_s:>7.1f} ms{1e3 * one.device_s:>9.1f} ms   {one.difference:.1e}"
                  f"{'' if one.close else '  TOO LARGE'}" for one in self.compared]
        again = "the same bits when computed again" if self.repeats else "NOT the same bits when computed again"
        verdict = "ok" if self.ok else "FAILED: do not trust what it computes"
        return "\n".join([*lines, again, f"{self.device}: {verdict} (tolerance {RTOL:g} relative, {ATOL:g} absolute)"])


def smoke(device: str, spec: Mapping[str, object] | None = None, clients: int = CLIENTS, seed: int = 1,
          plugins: Sequence[str] = ()) -> Smoke:
    """Try a device out. spec, clients, seed, plugins: of a task, as `Task` takes them; None: one that is made here.

    Raises DeviceError, in words for who has no such GPU.
    """
    import torch

    from emul.learning.device import DeviceError
    from emul.learning.task import Task

    if wrong := absent(device):
        raise DeviceError(wrong)
    begun = time.perf_counter()
    given = dict(TASK if spec is None else spec)
    modules = (__name__, *plugins)
    ours, theirs = Task(given, clients, seed, "cpu", plugins=modules), Task(given, clients, seed, device,
                                                                           plugins=modules)
    _trained(theirs, 0)
    first_s = time.perf_counter() - begun
    kind = torch.device(device)
    if kind.type == "cuda":
        torch.cuda.reset_peak_memory_stats(kind)
    compared = list(_compared(ours, theirs))
    repeats = all(np.array_equal(work(), work()) for work in (lambda: _trained(theirs, 0), lambda: _fused(theirs)))
    return Smoke(device, _about(kind), first_s, compared, repeats)


def _compared(ours: Task, theirs: Task) -> Iterator[Compared]:
    for what, work in (("train one client", lambda task: _trained(task, 0)),
                       (f"train {min(CLIENTS, ours.clients)} as one", _fused), ("evaluate", _evaluated)):
        (a, cpu_s), (b, device_s) = _timed(work, ours), _timed(work, theirs)
        finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
        difference = float(np.abs(a - b).max(initial=0.0)) if finite else float("inf")
        yield Compared(what, cpu_s, device_s, difference, finite and np.allclose(b, a, RTOL, ATOL))


def _timed(work: Callable[[Task], np.ndarray], task: Task) -> tuple[np.ndarray, float]:
    work(task)
    begun = time.perf_counter()
    found = work(task)
    return found, time.perf_counter() - begun


def _trained(task: Task, client: int) -> np.ndarray:
    """The model that a client learns, (d,)."""
    node = task.for_node(f"client{client + 1}", client, lambda: 1)
    return node.local_update(task.initial_parameters(), steps=STEPS)[0]


def _fused(task: Task) -> np.ndarray:
    """The models of clients that are trained as one, (clients, d)."""
    found: dict[int, np.ndarray] = {}
    few = range(min(CLIENTS, task.clients))
    task.together.run([lambda k=k: found.update({k: _trained(task, k)}) for k in few])      # type: ignore[misc]
    return np.stack([found[k] for k in few])


def _evaluated(task: Task) -> np.ndarray:
    """The loss on the test set: the mean over samples, as a sum of other order moves no more than a rounding."""
    from emul.learning.evaluation import scores

    return np.array([scores(task._model, task.initial_parameters(), task.data, task.objective).overall()["loss"]])


def absent(device: str) -> str | None:
    """The reason why there is no such device here, and a remedy; None: there is one."""
    import torch

    kind, _, index = device.partition(":")
    if kind == "cpu" and not index:
        return None
    if kind != "cuda" or (index and not index.isdecimal()):
        return f'device "{device}": expected cpu, cuda (the first GPU) or such as cuda:1'
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) < found:
        return None
    return f'device "{device}": {_why(torch, found)}'


def _why(torch: Any, found: int) -> str:
    if found:
        return f"torch finds {found} GPU{'s' * (found > 1)}, which are cuda:0 to cuda:{found - 1}" if found > 1 else \
            "torch finds one GPU, which is cuda:0"
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return (f"this torch ({torch.__version__}) is built without CUDA, so it can use no GPU; install a build with "
                "CUDA: https://pytorch.org/get-started/locally")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        return f'CUDA_VISIBLE_DEVICES = "{hidden}" hides every GPU; unset it'
    if shutil.which("nvidia-smi") is None:
        return "torch finds no GPU, and there is no nvidia-smi: no GPU of NVIDIA, or no driver for it"
    return (f"torch {torch.__version__} finds no GPU that it can use, built for CUDA {torch.version.cuda}; look "
            "whether nvidia-smi lists one and whether its driver is new enough for that")


def _about(kind: torch.device) -> dict[str, str]:
    """The name of a device, as a user would look it up."""
    import torch

    if kind.type == "cpu":
        return {"threads": str(torch.get_num_threads()), "torch": torch.__version__}
    free, total = torch.cuda.mem_get_info(kind)
    most, of = torch.cuda.max_memory_allocated(kind), torch.cuda.get_device_properties(kind)
    return {"": torch.cuda.get_device_name(kind), "memory": f"{total / 2**30:.1f} GiB",
            "free": f"{free / 2**30:.1f} GiB", "used here": f"{most / 2**20:.0f} MiB",
            "capability": f"{of.major}.{of.minor}", "CUDA": str(torch.version.cuda), "torch": torch.__version__}


# --- what it is tried with ------------------------------------------------------------------------------------------

def stripes(spec: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Images of stripes in four directions under noise, (n, 1, 12, 12) uint8."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, _CLASSES, 400)
    row, column = np.mgrid[:_SIDE, :_SIDE]
    waves = np.stack([np.sin(x + rng.uniform(0, 6)) for x in (row, column, row + column, row - column)])
    pixels = 128 + 60 * waves[label] + rng.normal(0, 30, (len(label), _SIDE, _SIDE))
    x = pixels.clip(0, 255).astype(np.uint8)[:, None]
    return {"train_x": x[100:], "train_y": label[100:], "test_x": x[:100], "test_y": label[:100]}


def net(input_shape: object, outputs: int) -> nn.Module:
    """Convolution, pooling, dropout, two linear layers."""
    from torch import nn

    from emul.learning.dropout import Dropout

    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), Dropout(0.2),
                         nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, outputs))


DATA = {"emul_stripes": stripes}
MODELS = {"emul_stripes_net": net}
