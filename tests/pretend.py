"""A device that is not there: real values and autograd, no GPU.

Its tensors say that they are on "pretend:0" and keep their values in the CPU's memory. What a GPU refuses is refused (a
tensor of the device with one of the CPU), what it is slow at is counted (copies to and from it, waits), it draws from a
generator of its own, and its memory can be limited. torch calls such a backend *private use* and lets it be written in
Python, as an experiment; where it does not, `missing()` says so and tests skip.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from emul.learning.device import Device

NAME = "pretend"
_ATEN = torch.ops.aten
_RANDOM = {"bernoulli", "bernoulli_", "exponential_", "multinomial", "native_dropout", "normal_", "rand_like",
           "randn_like", "random_", "uniform_"}
_WAITS = {_ATEN._local_scalar_dense.default, _ATEN.nonzero.default, _ATEN.equal.default}


class Counts:
    """What has been asked of the device since it was made, or since `clear`."""

    def __init__(self) -> None:
        self.room: int | None = None            # bytes that it has; None: no limit
        self.clear()
        self.held = 0                           # bytes of all tensors that live there
        self._storages: Counter[int] = Counter()
        self.generator: torch.Generator | None = None       # inside `seeded`

    def clear(self) -> None:
        """Count from 0 again."""
        self.to = self.back = self.waits = 0    # copies to the device, from it; values that the host waited for
        self.most = 0                           # bytes held, at the most

    def settled(self) -> int:
        """Bytes held, without garbage."""
        gc.collect()
        return self.held

    def take(self, tensor: There) -> None:
        """A tensor there begins to live. Raises torch.OutOfMemoryError, but in a backward pass: torch loses an error
        that Python raises in one now and then, and ends the process."""
        storage = tensor.inner.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._storages[key]:
            if self.room is not None and self.held + size > self.room and not _in_a_backward_pass():
                del self._storages[key]
                raise torch.OutOfMemoryError(f"pretend out of memory: tried to allocate {size} bytes")
            self.held += size
            self.most = max(self.most, self.held)
        self._storages[key] += 1
        tensor.let_go = weakref.finalize(tensor, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self._storages[key] -= 1
        if not self._storages[key]:
            del self._storages[key]
            self.held -= size


def _in_a_backward_pass() -> bool:
    return torch._C._current_graph_task_id() != -1


counts = Counts()


class There(Tensor):
    """A tensor on the device; `inner` has its values."""

    inner: Tensor
    let_go: weakref.finalize                    # tells `counts` that it lives no more

    @staticmethod
    def __new__(cls, inner: Tensor) -> There:
        return Tensor._make_wrapper_subclass(                                       # type: ignore[attr-defined]
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME, 0))

    def __init__(self, inner: Tensor):
        self.inner = inner
        counts.take(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy: Tensor = There(self.inner.clone())
        if isinstance(self, nn.Parameter):
            copy = nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"There({self.inner!r})"

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        """The same memory as the other's from now on: torch's own setter leaves `inner` what it was."""
        assert isinstance(value, There)
        Tensor.data.__set__(self, value)                                            # type: ignore[attr-defined]
        self.let_go()
        self.inner = value.inner
        counts.take(self)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func._schema.name.partition("::")[2]
    target = kwargs.get("device")
    here = target is not None and torch.device(target).type == "cpu"
    if func in _WAITS:
        counts.waits += 1
    if func is _ATEN.copy_.default:
        _count(*args[:2])
    elif name == "_to_copy":
        counts.back += here
    else:
        args = _indices(args) if name in ("index", "index_put", "index_put_") else args
        _refuse_others(name, args, kwargs)
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner_args, inner_kwargs = tree_map_only(There, lambda t: t.inner, (args, kwargs))
    if name in _RANDOM and inner_kwargs.get("generator") is None:
        found = _drawn(func, inner_args, inner_kwargs)
    else:
        found = func(*inner_args, **inner_kwargs)
    if here:
        return found
    if func._schema.is_mutable and (name.endswith("_") or not func._schema.returns):
        return args[0] if func._schema.returns else None
    return tree_map_only(Tensor, There, found)


def _count(to: Tensor, source: Tensor) -> None:
    there = isinstance(to, There), isinstance(source, There)
    counts.to += there == (True, False)
    counts.back += there == (False, True)


def _indices(args: Any) -> Any:
    """As a GPU takes them: indices of the CPU are copied to it first, and a mask makes the host wait."""
    for index in args[1]:
        if isinstance(index, Tensor):
            counts.to += not isinstance(index, There)
            counts.waits += index.dtype in (torch.bool, torch.uint8)
    first, indices, *rest = args
    return first, [There(i) if isinstance(i, Tensor) and not isinstance(i, There) else i for i in indices], *rest


def _refuse_others(name: str, args: Any, kwargs: Any) -> None:
    for value in tree_leaves((args, kwargs)):
        if isinstance(value, Tensor) and not isinstance(value, There) and value.ndim:
            raise RuntimeError(f"{name}: expected all tensors to be on the same device, but found"
                               f" {NAME}:0 and cpu! {tuple(value.shape)}")


def _drawn(func: Any, args: Any, kwargs: Any) -> Any:
    """From the device's own generator, which nobody but `seeded` seeds."""
    if counts.generator is None:
        raise RuntimeError(f"{func}: a draw on the device, which depends on what was drawn there before")
    state = torch.get_rng_state()
    torch.set_rng_state(counts.generator.get_state())
    try:
        return func(*args, **kwargs)
    finally:
        counts.generator.set_state(torch.get_rng_state())
        torch.set_rng_state(state)


@cache
def missing() -> str:
    """Makes the device known to torch, once a process. Why that cannot be; "": it is known."""
    from torch.utils import backend_registration

    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        return f"torch {torch.__version__} knows no devices that are written in Python"
    setup(NAME)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    for name in ("arange", "arange.start", "arange.start_step", "eye", "eye.m"):    # torch's own resize what they fill
        library.impl(name, partial(_made, getattr(torch, name.partition(".")[0])), "PrivateUse1")
    _kept.append(library)                       # what it registers goes with it
    return ""


_kept: list[Any] = []


def _empty(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
           memory_format: Any = None) -> Tensor:
    return There(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None,
                   pin_memory: Any = None) -> Tensor:
    return There(torch.empty_strided(size, stride, dtype=dtype))


def _made(make: Any, *args: Any, layout: Any = None, device: Any = None, pin_memory: Any = None,
          **kwargs: Any) -> Tensor:
    return There(make(*args, **kwargs))


class Pretend(Device):
    """Takes the ways of a GPU to the pretend device; each `timed` block takes `block_ns` of its time."""

    on_cpu = False                                          # type: ignore[assignment]
    block_ns = 1
    bytes: int | None = None                                # that are free for a training; None: nobody knows

    def _begin(self, name: str) -> None:
        self.kind = torch.device(NAME, 0)

    def put(self, array: np.ndarray) -> Tensor:
        counts.to += 1
        return There(torch.tensor(array))

    def fetch(self, tensor: Tensor) -> Tensor:
        assert isinstance(tensor, There), "only what is on the device is fetched from it"
        return tensor.to("cpu")

    def room(self, limit: int, held: int, sharing: int) -> int | None:
        return self.bytes

    def peak(self, work: Callable[[], Any]) -> int:
        before = counts.settled()
        counts.most = 0
        work()
        return counts.most - before

    def let_go(self) -> None:
        pass

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        self.busy_ns += self.block_ns
        yield

    @contextlib.contextmanager
    def seeded(self, key: int) -> Iterator[None]:
        """Other numbers than a CPU draws with that key, as a GPU does."""
        before, counts.generator = counts.generator, torch.Generator().manual_seed(key ^ 1)
        try:
            yield
        finally:
            counts.generator = before
