"""The device of a task: the CPU, or a GPU with a stream of its own, pinned buffers and the data kept there.

On a GPU the same streams decide as on a CPU; results differ by the rounding of other kernels, and are the same from run
to run as far as torch knows deterministic ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from emul.base.errors import EmulError
from emul.learning.dataset import DataSet, is_token
from emul.learning.fitting import met_no_memory, peak_bytes


class DeviceError(EmulError):
    """There is no such device here."""


def failed(error: BaseException) -> bool:
    """True if no code of a model or an objective is to blame for an error: no memory, or a device that fails. Places
    that catch errors of users' code let these through."""
    return isinstance(error, torch.AcceleratorError) or met_no_memory(error)


# A worker that trains nothing holds: Python, torch and this package, about 400 MB of them with torch 2.13. A
# constant, since what is planned with it decides the sizes of groups, and these the bits of models.
RESIDENT = 450 * 2**20
_SPARE = 0.9                        # of a GPU's free memory is planned with: its allocator leaves gaps


class _Stored(NamedTuple):
    """A data set on a GPU: its training samples as they are stored, and the levels that they are standardised by."""

    data: DataSet                   # held, since it is found by its identity
    values: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor


class Device:
    """`name`: "cpu", "cuda" or "cuda:1". A GPU's stream becomes that of the thread which makes this object, and which
    alone may compute on it."""

    def __init__(self, name: str = "cpu"):
        self.kind = torch.device(name)
        self.busy_ns = 0                                    # of a GPU, between the ends of `timed` blocks; a CPU's: 0
        self._raw: dict[int, _Stored] = {}
        self._model: tuple[np.ndarray, torch.Tensor] | None = None      # the last that `model` was asked for
        self._begin(name)

    def _begin(self, name: str) -> None:
        """Find the GPU and set it up. Raises DeviceError."""
        if self.on_cpu:
            return
        if self.kind.type != "cuda" or (self.kind.index or 0) >= torch.cuda.device_count():
            raise DeviceError(f'device "{name}": expected cpu, or a GPU that torch can use: '
                              f"it finds {torch.cuda.device_count()}")
        self.kind = torch.device("cuda", self.kind.index or 0)            # as torch names it wherever it asks for one
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")     # without it, its sums depend on the moment
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False     # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = False, False
        torch.cuda.set_device(self.kind)
        torch.cuda.set_stream(torch.cuda.Stream(self.kind))

    @property
    def on_cpu(self) -> bool:
        return self.kind.type == "cpu"

    def put(self, array: np.ndarray) -> torch.Tensor:
        """The array on the device; on a CPU, the same memory. On a GPU the copy is under way when this returns."""
        if self.on_cpu:
            return torch.from_numpy(array)
        staged = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, pin_memory=True)
        staged.numpy()[...] = array
        return staged.to(self.kind, non_blocking=True)      # torch keeps the staging memory until the copy is done

    def models(self, vectors: Sequence[np.ndarray]) -> torch.Tensor:
        """Parameter vectors as the rows of a float32 matrix of its own, (G, d)."""
        if self.on_cpu:
            return torch.from_numpy(np.stack(vectors, dtype=np.float32))
        return torch.stack([self.model(vector) for vector in vectors]).float()

    def model(self, vector: np.ndarray) -> torch.Tensor:
        """`put` of a parameter vector, only to be read: a model that many nodes of this worker have got is copied to a
        GPU once, not for each of them. By its values, for it may be written between two calls."""
        if self._model is None or not np.array_equal(self._model[0], vector):
            self._model = np.array(vector), self.put(vector)
        return self._model[1]

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in the host's memory; on a CPU, itself. Waits for what has been asked of the GPU."""
        if self.on_cpu:
            return tensor
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        staged.copy_(tensor, non_blocking=True)
        done = torch.cuda.Event(blocking=True)              # the thread sleeps: its CPU time is charged to somebody
        done.record()
        done.synchronize()
        return staged

    def inputs(self, data: DataSet, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Inputs of these training samples, (*rows.shape, *input_shape): those of `DataSet.inputs`, of one tensor.
        rows: of a GPU, may be there already.

        A GPU keeps the stored values of all samples, from when it is first asked.
        """
        assert isinstance(data.train_x, np.ndarray)
        if self.on_cpu:
            return torch.from_numpy(data.inputs(data.train_x[rows]))
        if id(data) not in self._raw:
            levels = (self.put(np.atleast_1d(data.over_channels(level))) for level in (data.mean, data.std))
            self._raw[id(data)] = _Stored(data, self.put(data.train_x), *levels)
        _, values, mean, std = self._raw[id(data)]
        stored = values[self.put(rows) if isinstance(rows, np.ndarray) else rows]
        if is_token(data.train_x.dtype):
            return stored.to(torch.int64)
        x = stored.to(torch.float32)
        if data.scale != 1.0 and stored.dtype == torch.uint8:
            x /= data.scale
        if data.mean != 0.0:
            x -= mean
        if data.std != 1.0:
            x /= std
        return x

    def room(self, limit: int, held: int, sharing: int) -> int | None:
        """Bytes that a training may take; None: there is no limit. limit: of what a process on a CPU may hold, 0: none;
        held: by its data. sharing: workers that are on this GPU."""
        if self.on_cpu:
            return limit - RESIDENT - held if limit else None
        free, _ = torch.cuda.mem_get_info(self.kind)
        return int(_SPARE * free) // sharing

    def peak(self, work: Callable[[], object]) -> int:
        """The most bytes that tensors hold there while `work` runs, beside those that there were."""
        if self.on_cpu:
            return peak_bytes(work)
        torch.cuda.reset_peak_memory_stats(self.kind)
        before = torch.cuda.memory_allocated(self.kind)
        work()
        return int(torch.cuda.max_memory_allocated(self.kind)) - before

    def let_go(self) -> None:
        """Give back what the allocator of a GPU keeps for later, which is of sizes that no longer come."""
        if not self.on_cpu:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the GPU's time of the block to `busy_ns`, with the gaps in which it waited for the CPU."""
        if self.on_cpu:
            yield
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True, blocking=True)
        begin.record()
        try:
            yield
        finally:
            end.record()
            end.synchronize()
            self.busy_ns += round(1e6 * begin.elapsed_time(end))

    @contextlib.contextmanager
    def seeded(self, key: int) -> Iterator[None]:
        """Seed the GPU's own generator inside the block only, which torch's dropout draws from there."""
        if self.on_cpu:
            yield
            return
        state = torch.cuda.get_rng_state(self.kind)
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(key >> 1)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, self.kind)
