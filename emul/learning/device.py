"""Where a task computes: the CPU, or a GPU with a stream of its own, pinned buffers and the data kept there.

On a GPU the same streams decide as on a CPU; results differ by the rounding of other kernels, and are the same from run
to run as far as torch knows deterministic ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from emul.base.errors import EmulError
from emul.learning.dataset import DataSet, Level, is_token


class DeviceError(EmulError):
    """There is no such device here."""


class Device:
    """`name`: "cpu", "cuda" or "cuda:1". A GPU's stream becomes that of the thread which makes this object, and which
    alone may compute on it."""

    def __init__(self, name: str = "cpu"):
        self.kind = torch.device(name)
        self.busy_ns = 0                                    # of a GPU, between the ends of `timed` blocks; a CPU's: 0
        self._raw: dict[int, tuple[DataSet, torch.Tensor]] = {}
        self._model: tuple[np.ndarray, torch.Tensor] | None = None      # the last that `model` was asked for
        if self.on_cpu:
            return
        if self.kind.type != "cuda" or (self.kind.index or 0) >= torch.cuda.device_count():
            raise DeviceError(f'device "{name}": expected cpu, or a GPU that torch can use: '
                              f"it finds {torch.cuda.device_count()}")
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

    def inputs(self, data: DataSet, rows: np.ndarray) -> torch.Tensor:
        """Inputs of these training samples, (*rows.shape, *input_shape): those of `DataSet.inputs`, of one tensor.

        A GPU keeps the stored values of all samples, from when it is first asked.
        """
        assert isinstance(data.train_x, np.ndarray)
        if self.on_cpu:
            return torch.from_numpy(data.inputs(data.train_x[rows]))
        if id(data) not in self._raw:
            self._raw[id(data)] = data, self.put(data.train_x)
        stored = self._raw[id(data)][1][self.put(rows)]
        if is_token(data.train_x.dtype):
            return stored.to(torch.int64)
        x = stored.to(torch.float32)
        if data.scale != 1.0 and stored.dtype == torch.uint8:
            x /= data.scale
        if data.mean != 0.0:
            x -= self._over_channels(data.mean)
        if data.std != 1.0:
            x /= self._over_channels(data.std)
        return x

    def _over_channels(self, level: Level) -> torch.Tensor:
        value = self.put(np.asarray(level, np.float32).reshape(-1))
        return value.view(-1, 1, 1) if isinstance(level, tuple) else value

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
