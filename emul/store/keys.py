"""Keys of results: a hash over every value that the result depends on, whatever its type."""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

KEY_BYTES = 16
_HELD = 8                   # read-only arrays whose hash is remembered, the latest used ones

_CONSTANT = frozenset((int, float, bool, str, bytes, type(None)))

Feed = Callable[[bytes], None]


class Unkeyable(TypeError):
    """A value that no key can be made of: a function, a generator, an object that is no frozen dataclass."""


class Keys:
    """Makes keys; an array that nobody can write to is hashed once, however many keys it enters.

    A model that is broadcast enters the keys of all who train from it, and hashing 4 MB takes 4 ms. Floats count by
    their bits: 0.0 and -0.0 are two.
    """

    def __init__(self) -> None:
        # (address, bytes) -> (the array, its hash). The array is held, so nothing else can come to lie there meanwhile.
        self._known: OrderedDict[tuple[int, int], tuple[np.ndarray, bytes]] = OrderedDict()
        # address -> (a dataclass of numbers and text, what it says)
        self._constants: OrderedDict[int, tuple[Any, bytes]] = OrderedDict()

    def key(self, *values: Any) -> bytes:
        """KEY_BYTES over values: None, numbers, text, bytes, arrays, frozen dataclasses, and tuples, lists and
        dictionaries of these.

        Equal values of other types have other keys (1, 1.0 and True are three), and so have arrays of other dtypes or
        shapes. Raises Unkeyable.
        """
        digest = hashlib.blake2b(digest_size=KEY_BYTES)
        self._feed(digest.update, values)
        return digest.digest()

    def _feed(self, feed: Feed, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._feed_array(feed, value)
        elif isinstance(value, np.generic):
            self._feed_array(feed, np.asarray(value))
        elif isinstance(value, (tuple, list)):
            feed(b"(" + struct.pack("<q", len(value)))
            for item in value:
                self._feed(feed, item)
        elif isinstance(value, Mapping):
            self._feed_mapping(feed, value)
        elif (form := _form(type(value))) is not None:      # type: ignore[arg-type]
            self._feed_dataclass(feed, value, *form)
        else:
            _feed_leaf(feed, value)

    def _feed_dataclass(self, feed: Feed, value: Any, name: bytes, fields: tuple[str, ...] | None) -> None:
        held = self._constants.get(id(value))
        if held is not None and held[0] is value:
            feed(held[1])
        elif fields is None:                                # a large one that makes its own once
            feed(name)
            feed(value.content_key)
        else:
            parts = [name]
            for field in fields:
                self._feed(parts.append, getattr(value, field))
            said = b"".join(parts)
            feed(said)
            if all(type(getattr(value, field)) in _CONSTANT for field in fields):
                self._constants[id(value)] = value, said    # a solver, an objective: one object enters every key
                if len(self._constants) > _HELD:
                    self._constants.popitem(last=False)

    def _feed_mapping(self, feed: Feed, value: Mapping[Any, Any]) -> None:
        """In the order of the keys' own hashes: the order of insertion says nothing."""
        feed(b"{" + struct.pack("<q", len(value)))
        named = {self.key(name): item for name, item in value.items()}
        for name in sorted(named):
            feed(name)
            self._feed(feed, named[name])

    def _feed_array(self, feed: Feed, array: np.ndarray) -> None:
        if array.dtype.hasobject:
            raise Unkeyable(f"an array of dtype {array.dtype}: numbers only")
        feed(b"a")
        _feed_leaf(feed, f"{array.dtype.str} {array.shape}")
        feed(self._content(array))

    def _content(self, array: np.ndarray) -> bytes:
        place = (array.__array_interface__["data"][0], array.nbytes)
        held = self._known.get(place)
        if held is not None:
            self._known.move_to_end(place)
            return held[1]
        content = hashlib.blake2b(np.ascontiguousarray(array).data.cast("B") if array.size else b"",
                                  digest_size=KEY_BYTES).digest()
        if array.nbytes > 4096 and array.flags.c_contiguous and _nobody_writes(array):
            self._known[place] = array, content
            if len(self._known) > _HELD:
                self._known.popitem(last=False)
        return content


@cache
def _form(cls: Any) -> tuple[bytes, tuple[str, ...] | None] | None:
    """(how a dataclass begins in a key, its fields; None: it makes a key of its own). None: it is no dataclass.

    Raises Unkeyable for one that is not frozen.
    """
    found: Any = cls                            # mypy narrows what is_dataclass has seen
    if not dataclasses.is_dataclass(cls):
        return None
    if not found.__dataclass_params__.frozen:
        raise Unkeyable(f"{found.__name__} is no frozen dataclass: what it holds may change")
    parts = [b"@"]
    _feed_leaf(parts.append, f"{found.__module__}.{found.__qualname__}")
    own = hasattr(found, "content_key")
    return b"".join(parts), None if own else tuple(field.name for field in dataclasses.fields(found))


def _nobody_writes(array: np.ndarray) -> bool:
    """Whether neither the array nor anything that it is a view of can be written to."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None or isinstance(base, (bytes, mmap.mmap)) or (isinstance(base, memoryview) and base.readonly)


def _feed_leaf(feed: Feed, value: Any) -> None:
    kind = type(value)
    if value is None:
        feed(b"n")
    elif kind is bool:
        feed(b"T" if value else b"F")
    elif kind is int:
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        feed(b"i" + struct.pack("<q", len(raw)) + raw)
    elif kind is float:
        feed(b"f" + struct.pack("<d", value))
    elif kind is str:
        raw = value.encode("utf-8", "surrogatepass")
        feed(b"s" + struct.pack("<q", len(raw)) + raw)
    elif kind in (bytes, bytearray, memoryview):
        feed(b"b" + struct.pack("<q", len(value)) + bytes(value))
    else:
        raise Unkeyable(f"no key can be made of {kind.__name__}")
