"""Messages as bytes: a MessagePack header and the raw buffers of the arrays in it.

A message is a frozen dataclass. Its *frames* are

    header    MessagePack [type name, field, field, ...], an array in it replaced by an extension (dtype, shape, index)
    buffer*   the arrays' bytes, C order, little-endian, in the order of their indices

and its size is the sum of their lengths: that, and nothing estimated, is what a link counts. What is decoded is
checked against the annotations of the message's fields; whatever does not fit raises `WireError`, and nothing that is
read is ever executed. Decoded arrays are read-only and start on a 64-byte boundary, because matrix products differ in
the last bits by address and a result must not depend on where ZeroMQ put a frame.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import msgspec
import numpy as np

from emul.base.errors import WireError

ENVELOPE_BYTES = 16                 # source, destination, round, sequence number: 4 bytes each, on every copy
MAX_HEADER_BYTES = 64 << 20
MAX_BUFFERS = 1 << 16
ALIGNMENT = 64

_EXT_ARRAY, _EXT_TENSOR, _EXT_INT = 1, 2, 3
_KINDS = "biufc"                    # the dtype kinds that are plain numbers

Vector = np.ndarray                 # (d,) float32: parameters, updates


class Message:
    """Base of all messages: subclass it as a frozen dataclass.

    `class Ping(Message, unscoped=True)` belongs to no round: it is never late and never waits for one.
    A received message knows who sent it: `message.sender`.
    """

    unscoped: ClassVar[bool] = False
    sender: int                     # set on receipt; not a field, so it costs no bytes

    def __init_subclass__(cls, unscoped: bool = False, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.unscoped = unscoped


class Encoded:
    """The frames of one message, kept once however many copies travel."""

    __slots__ = ("buffers", "header", "size")

    def __init__(self, header: bytes, buffers: list[memoryview]):
        self.header = header
        self.buffers = buffers
        self.size = len(header) + sum(b.nbytes for b in buffers)

    def frames(self) -> list[bytes | memoryview]:
        return [self.header, *self.buffers]


# --- encoding ---------------------------------------------------------------------------------------------------

class _Encoding:
    """Collects the arrays of one message while its header is written."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._hook)

    def header(self, values: list[Any]) -> bytes:
        self.arrays = []
        try:
            return self._encoder.encode(values)
        except (TypeError, OverflowError, ValueError):
            # big integers and NumPy numbers as keys: rare, so only then is the tree walked in Python
            self.arrays = []
            return self._encoder.encode(_plain(values))

    def _hook(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(_EXT_ARRAY, value)
        if isinstance(value, np.generic):
            return value.item()
        torch = sys.modules.get("torch")        # never imported for a message that holds no tensor
        if torch is not None and isinstance(value, torch.Tensor):
            return self._array(_EXT_TENSOR, value.detach().cpu().numpy())
        raise TypeError(f"a message cannot hold {type(value).__name__}: use numbers, text, bytes, arrays, "
                        "lists, dictionaries or frozen dataclasses of these")

    def _array(self, code: int, array: np.ndarray) -> msgspec.msgpack.Ext:
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"an array of dtype {array.dtype} cannot be sent: numbers only")
        dtype = array.dtype.newbyteorder("<")
        array = np.asarray(array, dtype=dtype)
        self.arrays.append(array)
        described = msgspec.msgpack.encode((dtype.str, array.shape, len(self.arrays) - 1))
        return msgspec.msgpack.Ext(code, described)


def _plain(value: Any) -> Any:
    """The same tree with big integers as extensions and NumPy numbers as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return msgspec.msgpack.Ext(_EXT_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


_encoding = _Encoding()


def aligned(size: int) -> np.ndarray:
    """(size,) uint8, uninitialised, starting on a 64-byte boundary."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start:start + size]


def _arena(parts: Sequence[np.ndarray | memoryview]) -> list[memoryview]:
    """Copy every part into one aligned block; views of the copies, each on a boundary of its own."""
    sizes = [p.nbytes for p in parts]
    starts, total = [], 0
    for size in sizes:
        starts.append(total)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    block = aligned(total)
    for part, start, size in zip(parts, starts, sizes, strict=True):
        target = block[start:start + size]
        if isinstance(part, np.ndarray):
            target.view(part.dtype).reshape(part.shape)[...] = part        # also makes it C order
        else:
            target[:] = np.frombuffer(part, np.uint8)
    block.flags.writeable = False
    view = memoryview(block)
    return [view[start:start + size] for start, size in zip(starts, sizes, strict=True)]


def encode(message: Message) -> Encoded:
    """The frames of `message`. The arrays are copied: a later change by the sender does not reach the wire.

    Raises WireError, naming the message, for a value that cannot travel.
    """
    cls = type(message)
    try:
        header = _encoding.header([cls.__name__, *[getattr(message, name) for name in _plan(cls).names]])
    except (TypeError, ValueError, RecursionError) as e:
        raise WireError(f"{cls.__name__} cannot be encoded: {e}") from None
    arrays, _encoding.arrays = _encoding.arrays, []
    return Encoded(header, _arena(arrays) if arrays else [])


# --- decoding ---------------------------------------------------------------------------------------------------

class _Plan:
    """What the fields of one message class must be, worked out once."""

    __slots__ = ("cls", "names", "types")

    def __init__(self, cls: type[Message]):
        if not dataclasses.is_dataclass(cls):
            raise WireError(f"message {cls.__name__} is no dataclass: write @dataclass(frozen=True) above it")
        hints = typing.get_type_hints(cls)
        self.cls = cls
        self.names = [f.name for f in dataclasses.fields(cls)]
        self.types = [hints[name] for name in self.names]


_plans: dict[type[Message], _Plan] = {}


def _plan(cls: type[Message]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _Plan(cls)
    return plan


def message_types(module: ModuleType) -> dict[str, type[Message]]:
    """Name -> class of every message that a scheme's module defines or imports."""
    return {name: value for name, value in sorted(vars(module).items())
            if isinstance(value, type) and issubclass(value, Message) and value is not Message}


def from_frames(frames: Sequence[bytes | memoryview]) -> Encoded:
    """Frames as they came from a socket, copied to aligned memory. Raises WireError if they are beyond all limits."""
    if not frames:
        raise WireError("a message has at least one frame, its header; none came")
    header, *buffers = frames
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"header of {len(header)} bytes: at most {MAX_HEADER_BYTES} are accepted")
    if len(buffers) > MAX_BUFFERS:
        raise WireError(f"{len(buffers)} buffers: at most {MAX_BUFFERS} are accepted")
    return Encoded(bytes(header), _arena([memoryview(b) for b in buffers]) if buffers else [])


def decode(encoded: Encoded, types: Mapping[str, type[Message]]) -> Message:
    """The message in `encoded`; its arrays are read-only views. Raises WireError if the frames do not fit `types`."""
    buffers = encoded.buffers
    used: list[int] = []

    def ext(code: int, data: memoryview) -> Any:
        if code == _EXT_INT:
            return int.from_bytes(data, "little", signed=True)
        if code in (_EXT_ARRAY, _EXT_TENSOR):
            array = _view(data, buffers, used)
            if code == _EXT_ARRAY:
                return array
            import torch
            return torch.from_numpy(array.copy())       # torch knows no read-only tensors, so this one is private
        raise WireError(f"unknown extension {code} in a header")

    try:
        values = msgspec.msgpack.decode(encoded.header, ext_hook=ext)
    except WireError:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as e:
        raise WireError(f"not a header: {e}") from None
    if not isinstance(values, list) or not values or not isinstance(values[0], str):
        raise WireError("not a header: expected [type name, fields ...]")
    cls = types.get(values[0])
    if cls is None:
        raise WireError(f"unknown message type {values[0]!r}; known here: {', '.join(types)}")
    if sorted(used) != list(range(len(buffers))):
        raise WireError(f"{cls.__name__}: the header uses buffers {sorted(used)}, {len(buffers)} came")
    plan = _plan(cls)
    if len(values) - 1 != len(plan.names):
        raise WireError(f"{cls.__name__} has {len(plan.names)} fields, {len(values) - 1} came")
    fields = [value if type(value) is kind else _fit(value, kind, cls, name)
              for value, kind, name in zip(values[1:], plan.types, plan.names, strict=True)]
    try:
        return cls(*fields)
    except Exception as e:          # a message may check itself in __post_init__; what it refuses came from outside
        raise WireError(f"{cls.__name__} refuses its fields: {e}") from None


def _view(described: memoryview, buffers: list[memoryview], used: list[int]) -> np.ndarray:
    try:
        code, shape, index = msgspec.msgpack.decode(described, type=tuple[str, tuple[int, ...], int])
        dtype = np.dtype(code)
    except (msgspec.MsgspecError, TypeError, ValueError, SyntaxError) as e:
        raise WireError(f"not a description of an array: {e}") from None
    if dtype.kind not in _KINDS or dtype.names or dtype.subdtype:
        raise WireError(f"dtype {code!r} is not accepted: numbers only")
    if not 0 <= index < len(buffers) or index in used:
        raise WireError(f"array refers to buffer {index}; {len(buffers)} came, each is used once")
    if len(shape) > 32 or any(n < 0 for n in shape):
        raise WireError(f"shape {shape} is not one of an array")
    buffer = buffers[index]
    if math.prod(shape) * dtype.itemsize != buffer.nbytes:
        raise WireError(f"array of shape {shape} and dtype {code} does not fit a buffer of {buffer.nbytes} bytes")
    used.append(index)
    array = np.frombuffer(buffer, dtype).reshape(shape) if buffer.nbytes else np.empty(shape, dtype)
    array.flags.writeable = False
    return array


def _fit(value: Any, kind: Any, cls: type, name: str) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=_no_conversion)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as e:
        raise WireError(f"{cls.__name__}.{name}: {e}") from None


def _no_conversion(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
