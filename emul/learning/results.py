"""Trainings, gradients, prototypes and evaluations that were computed before, by everything that they depend on.

All of them are pure functions of values (`Local` and the like). So their results are the same whether they are computed
or found, and a run is the same with a store and without one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import secrets
import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from emul.base import clock, streams
from emul.base.machine import processor
from emul.store import KeyMaker, Store, Unkeyable

Arrays = list[np.ndarray]


class Results:
    """`of("train", local, compute)`: what was found for these inputs, or what `compute` gives, which is then kept.

    store: None computes always. place: what all results depend on besides their inputs, see `place_of`.
    """

    def __init__(self, store: Store | None = None, place: object = None):
        self.saved_ns = 0           # CPU time that computing the results found had taken
        self._store, self._keys = store, KeyMaker()
        self._place = self._keys.key(place)

    def of(self, what: str, inputs: object, compute: Callable[[], Arrays], busy_ns: Callable[[], int] = int) -> Arrays:
        """Fresh arrays. what: names the function. busy_ns: what a GPU has computed so far.

        Inputs of which no key can be made (a user's own, with a function in it) are computed always.
        """
        if self._store is None:
            return compute()
        try:
            key = self._keys.key(self._place, what, inputs)
        except Unkeyable:
            return compute()
        payload = self._store.get(key)
        if payload is not None:
            spent_ns, arrays = _unpacked(payload)
            self.saved_ns += spent_ns
            clock.credit(spent_ns)          # a measured cost is what computing takes, not what finding does
            return arrays
        begin, busy = clock.cpu_ns(), busy_ns()
        arrays = compute()
        self._store.put(key, *_packed(max(clock.cpu_ns() - begin, busy_ns() - busy), arrays))
        return arrays

    @property
    def counts(self) -> tuple[int, int, int]:
        """(found, missed, stored) results."""
        return (0, 0, 0) if self._store is None else (self._store.found, self._store.missed, self._store.stored)

    @property
    def failure(self) -> str:
        """The reason why nothing more is stored; "" while all is well."""
        return "" if self._store is None else self._store.failure

    def close(self) -> None:
        """Write what waits."""
        if self._store is not None:
            self._store.close()


def _packed(spent_ns: int, arrays: Sequence[np.ndarray]) -> list[bytes | memoryview]:
    """Parts of an entry: the time, the length of what describes the arrays, that, and the arrays."""
    described = _described(tuple((a.dtype.str, a.shape) for a in arrays))
    return [_head.pack(spent_ns, len(described)) + described, *map(_raw, arrays)]


def _raw(array: np.ndarray) -> bytes | memoryview:
    if array.nbytes < _SMALL_BYTES:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@lru_cache(256)
def _described(arrays: tuple[tuple[str, tuple[int, ...]], ...]) -> bytes:
    return msgspec.msgpack.encode(arrays)


def _unpacked(payload: bytes) -> tuple[int, Arrays]:
    spent_ns, length = _head.unpack_from(payload)
    begin = _head.size + length
    arrays = []
    for dtype, shape in _decoder.decode(payload[_head.size:begin]):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(payload, np.uint8, array.nbytes, begin)
        begin += array.nbytes
        arrays.append(array)
    return spent_ns, arrays


_head = struct.Struct("<QI")
_decoder = msgspec.msgpack.Decoder(list[tuple[str, tuple[int, ...]]])
_SMALL_BYTES = 64 * 1024            # below, one call that copies takes less than those that make a view


def place_of(model: object, shape: Any, outputs: int, seed: int, device: str, modules: Sequence[str],
             frozen: Sequence[np.ndarray] = ()) -> tuple[object, ...]:
    """The things that every result depends on besides its inputs: the code that computes it, that of the user's
    `modules`, the libraries, the processor, and the model with what no vector holds: its `frozen` parameters, what
    comes from `seed`.
    """
    import torch

    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    return (sources(), tuple(source_of(name) for name in modules), processor(), gpu, np.__version__,
            torch.get_num_threads(), model, shape, outputs, seed, tuple(frozen))


@cache
def sources() -> bytes:
    """A hash of this package's own code: a change of it empties every store, a new version of emul does not."""
    digest = hashlib.blake2b(digest_size=16)
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(streams.__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def source_of(module: str) -> bytes:
    """The code of a user's module, which may hold the model, the data or the objective. Of one that is in no file (made
    in memory) nobody can tell whether it is still the same: what it computes is found by nobody."""
    try:
        found = importlib.util.find_spec(module)
    except ValueError:                          # it has no __spec__
        found = None
    return secrets.token_bytes(16) if found is None or found.origin is None else Path(found.origin).read_bytes()


@cache
def _code(module: str) -> bytes:
    return source_of(module)


def code_of(value: object) -> bytes:
    """The code of a value that computes when it is called; b"": it has no fields, so no key can be made of it."""
    return _code(type(value).__module__) if dataclasses.is_dataclass(value) else b""
