"""The number of clients that are trained as one, chosen so that they fit into memory.

A group takes what one client takes, and for each further one what two take more than one; both are measured before a
run, in one step. Groups that do not fit are halved until they do, and so is one that meets no memory all the same: its
clients are trained again from where they began, so that nothing but the rounding of other groups shows.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")


class Fitting:
    """The sizes of groups. most: clients as one; 0: nothing has limited them. halved: how often a group met no memory.
    """

    def __init__(self) -> None:
        self.most = self.halved = self._limit = 0
        self._plan: tuple[int, int, int, int] | None = None

    def plan(self, room: int, one: int, two: int, vector: int = 0) -> None:
        """room: bytes for a training; one, two: what a step of so many clients takes at its most; vector: bytes of a
        model where those that go in and come out are in that room, too."""
        self._plan = room, one, two - one, vector

    def groups(self, asked: Sequence[T]) -> Iterator[Sequence[T]]:
        """Halves of them, or halves of these, that fit: few sizes, for which a GPU plans its convolutions anew."""
        size = len(asked)
        while size > 1 and not self._fits(size, len(asked)):
            size = -(-size // 2)
        if size < len(asked):
            self.most = min(self.most or size, size)
        return (asked[i:i + size] for i in range(0, len(asked), max(1, size)))

    def _fits(self, size: int, asked: int) -> bool:
        if self.halved and size > self._limit:
            return False
        if self._plan is None:
            return True
        room, one, more, vector = self._plan
        return one + (size - 1) * more + (size + asked) * vector <= room

    def halve(self, size: int) -> None:
        """A group of that size has met no memory."""
        self._limit, self.halved = max(1, size // 2), self.halved + 1
        self.most = min(self.most or self._limit, self._limit)


def met_no_memory(error: BaseException) -> bool:
    """True if an error says that memory was lacking, of a GPU or of the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that tensors of the CPU hold together while `work` runs, beside those that there were."""
    with _Held() as held:
        work()
    return held.most


class _Held(TorchDispatchMode):
    """Follows the memory of all that torch's operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._tensors: Counter[int] = Counter()             # storage -> tensors that have it
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        before = {_storage(t) for t in _tensors((args, kwargs))}
        found = func(*args, **(kwargs or {}))
        for tensor in _tensors(found):
            key = _storage(tensor)
            if key in self._sizes or key not in before:
                self._follow(tensor, key)
        return found

    def _follow(self, tensor: torch.Tensor, key: int) -> None:
        if key not in self._sizes:
            self._sizes[key] = tensor.untyped_storage().nbytes()
            self.now += self._sizes[key]
            self.most = max(self.most, self.now)
        self._tensors[key] += 1
        weakref.finalize(tensor, self._let_go, key)

    def _let_go(self, key: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            self.now -= self._sizes.pop(key)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (value for value in torch.utils._pytree.tree_leaves(values) if isinstance(value, torch.Tensor))
