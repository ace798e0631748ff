"""Keys of results: a hash over every value that the result depends on, whatever its type."""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import xxhash

KEY_BYTES = 16
_HELD = 8                   # read-only arrays, and dataclasses, that are remembered: the latest used ones
_LARGE_BYTES = 4096         # an array of so many is worth remembering

_LEAVES = frozenset((float, bool, str, bytes, type(None)))
_INT = 2**63                # the integers of MessagePack end there

_encode = msgspec.msgpack.Encoder().encode


class Unkeyable(TypeError):
    """A value that no key can be made of: a function, a generator, an object that is no frozen dataclass."""


class KeyMaker:
    """Makes keys; an array that nobody can write to is hashed once, however many keys it enters.

    A model that is broadcast enters the keys of all who train. Floats count by their bits: 0.0 and -0.0 are two.

    Values become a tree of what MessagePack can hold, in which nothing looks like something else: a list is a sequence,
    {name: fields} a dataclass, and a map with a key of bytes all the rest. One call of the library spells it: after a
    training the processor's caches are cold, and each call of Python takes five times as long as in a loop.
    """

    def __init__(self) -> None:
        # (address, bytes) -> (the array, its hash). The array is held, so nothing else can come to lie there meanwhile.
        self._known: OrderedDict[tuple[int, int], tuple[np.ndarray, bytes]] = OrderedDict()
        # address -> (a dataclass of numbers and text, what it says)
        self._constants: OrderedDict[int, tuple[object, msgspec.Raw]] = OrderedDict()

    def key(self, *values: object) -> bytes:
        """KEY_BYTES over values: None, numbers, text, bytes, arrays, frozen dataclasses, and tuples, lists and
        dictionaries of these.

        Equal values of other types have other keys (1, 1.0 and True are three), and so have arrays of other dtypes or
        shapes. Raises Unkeyable.
        """
        return hashlib.blake2b(self._spelled(values), digest_size=KEY_BYTES).digest()

    def _spelled(self, value: object) -> bytes:
        try:
            return _encode(self._tree(value))
        except UnicodeEncodeError as e:
            raise Unkeyable(f"text that is no Unicode: {e}") from None

    def _tree(self, value: Any) -> object:
        kind = type(value)
        if kind in _LEAVES:
            return value
        if kind is int:
            return value if -_INT <= value < _INT else {b"i": str(value)}
        if kind is tuple or kind is list:
            return self._trees(value)
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise Unkeyable(f"an array of dtype {array.dtype}: numbers only")
            return {b"a": (array.dtype.str, array.shape, self._content(array))}
        if (form := _form(kind)) is not None:       # type: ignore[arg-type]
            return self._dataclass(value, *form)
        if isinstance(value, (tuple, list)):
            return self._trees(value)
        if isinstance(value, Mapping):              # in an order of the keys' own: that of insertion says nothing
            return {b"{": sorted((self._spelled(name), self._spelled(item)) for name, item in value.items())}
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise Unkeyable(f"no key can be made of {kind.__name__}")

    def _trees(self, values: Any) -> list[object]:
        tree = self._tree
        return [value if type(value) in _LEAVES else tree(value) for value in values]

    def _dataclass(self, value: Any, name: str, fields: Callable[[object], tuple[object, ...]] | None) -> object:
        held = self._constants.get(id(value))
        if held is not None and held[0] is value:
            return held[1]
        if fields is None:                          # a large one that makes its own once
            return {name: value.content_key}
        own = fields(value)
        found = {name: self._trees(own)}
        if all(type(each) in _LEAVES or type(each) is int for each in own):
            self._constants[id(value)] = value, msgspec.Raw(_encode(found))     # a solver: one object enters every key
            if len(self._constants) > _HELD:
                self._constants.popitem(last=False)
        return found

    def _content(self, array: np.ndarray) -> bytes:
        if array.nbytes < _LARGE_BYTES:
            return xxhash.xxh3_128_digest(array.tobytes())
        place = (array.__array_interface__["data"][0], array.nbytes)
        held = self._known.get(place)
        if held is not None:
            self._known.move_to_end(place)
            return held[1]
        content = xxhash.xxh3_128_digest(np.ascontiguousarray(array).data.cast("B"))
        if array.flags.c_contiguous and _read_only(array):
            self._known[place] = array, content
            if len(self._known) > _HELD:
                self._known.popitem(last=False)
        return content


@cache
def _form(cls: object) -> tuple[str, Callable[[object], tuple[object, ...]] | None] | None:
    """(name of a dataclass, what gives its fields; None: it makes a key of its own). None: it is no dataclass.

    Raises Unkeyable for one that is not frozen.
    """
    found: Any = cls                            # mypy narrows what is_dataclass has seen
    if not dataclasses.is_dataclass(cls):
        return None
    if not found.__dataclass_params__.frozen:
        raise Unkeyable(f"{found.__name__} is no frozen dataclass: what it holds may change")
    name = f"{found.__module__}.{found.__qualname__}"
    if hasattr(found, "content_key"):
        return name, None
    names = [field.name for field in dataclasses.fields(found)]
    if len(names) > 1:
        return name, attrgetter(*names)         # one call for all
    return name, lambda value: tuple(getattr(value, each) for each in names)


def _read_only(array: np.ndarray) -> bool:
    """True if neither the array nor anything that it is a view of can be written to."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None or isinstance(base, (bytes, mmap.mmap)) or (isinstance(base, memoryview) and base.readonly)
