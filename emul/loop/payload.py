"""The bytes of what a loop sends: arrays as a message has them, or a number of bytes that it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from emul.base.errors import WireError
from emul.message.wire import MAX_DECLARED, Declared, Message, encode_whole


class LoopPayload(NamedTuple):
    """So many bytes. declares: the loop has said how many. content: (bytes,) uint8, where arrays were given; None: of a
    run from a record, which has sizes alone."""

    bytes: int = 0
    declares: bool = False
    content: np.ndarray | None = None

    def fields(self) -> tuple[np.ndarray, Declared]:
        """`content` and `declared` of its message."""
        if self.declares:
            return _EMPTY, Declared(self.bytes)
        return np.zeros(self.bytes, np.uint8) if self.content is None else self.content, Declared(0)


NOTHING = LoopPayload()
_EMPTY = np.zeros(0, np.uint8)
_INTEGER = (int, np.integer)            # a union of types takes three times as long to look at


@dataclass(frozen=True)
class _Given(Message):
    """Anything that a loop sends."""

    tree: Any


def payload_of(given: object) -> LoopPayload:
    """The bytes of arrays and what stands beside them, encoded as every message; None: none; a number: so many.

    given: tensors, arrays, numbers and text in lists, tuples, dictionaries and dataclasses, with an array at least.
    Raises TypeError and ValueError for what is none of these.

    >>> payload_of(None).bytes, payload_of(1000).bytes, payload_of({"w": np.zeros(250, np.float32)}).bytes
    (0, 1000, 1023)
    """
    if given is None:
        return NOTHING
    if isinstance(given, _INTEGER) and not isinstance(given, bool):
        if not 0 <= given <= MAX_DECLARED:
            raise ValueError(f"{given} bytes: expected 0 to 2**53")
        return LoopPayload(int(given), declares=True)
    if hasattr(given, "state_dict"):
        raise TypeError(f"{type(given).__name__} is a model: give its arrays, model.state_dict()")
    if next(arrays_of(given), None) is None:
        raise TypeError(f"{type(given).__name__}: expected arrays (a state dict, a list of tensors), a number of "
                        "bytes, or None")
    try:
        content = encode_whole(_Given(given))
    except WireError as error:
        raise TypeError(str(error).removeprefix("_Given cannot be encoded: ")) from None
    return LoopPayload(content.size, content=content)


def arrays_of(given: object) -> Iterator[np.ndarray]:
    """The arrays and tensors in it, in their order."""
    if isinstance(given, np.ndarray):
        yield given
    elif type(given).__module__.startswith("torch") and hasattr(given, "numpy"):
        yield given.numpy(force=True)
    elif isinstance(given, Mapping):
        for one in given.values():
            yield from arrays_of(one)
    elif isinstance(given, list | tuple):
        for one in given:
            yield from arrays_of(one)
    elif is_dataclass(given) and not isinstance(given, type):
        for field in fields(given):
            yield from arrays_of(getattr(given, field.name))
