"""Messages as frames: what goes in comes out, its size is its bytes, and nothing hostile does more than raise."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from emul.base.errors import WireError
from emul.message import wire
from emul.message.wire import (
    MAX_BUFFERS,
    MAX_HEADER_BYTES,
    Declared,
    Encoded,
    Message,
    Vector,
    announced,
    decode,
    encode,
    encode_each,
    encode_whole,
    fixed,
    from_frames,
)

Ext = msgspec.msgpack.Ext
NUMBERS = [np.dtype(c) for c in "?bhilqBHILQefdgFDG"]


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Array(Message):
    x: np.ndarray


@dataclass(frozen=True)
class Tensor(Message):
    x: torch.Tensor


@dataclass(frozen=True)
class Blob(Message):
    x: bytes


@dataclass(frozen=True)
class Number(Message):
    x: int


@dataclass(frozen=True)
class Share:
    owner: int
    secret: int
    mask: np.ndarray
    inner: Share | None = None


@dataclass(frozen=True)
class Mixed(Message):
    number: int
    ratio: float
    text: str
    blob: bytes
    flag: bool
    array: Vector
    listed: list[int]
    tupled: tuple[int, ...]
    pair: tuple[str, np.ndarray]
    by_node: dict[int, list[float]]
    arrays: dict[str, np.ndarray]
    share: Share
    shares: list[Share]
    maybe: int | None
    maybe_array: np.ndarray | None


@dataclass(frozen=True)
class Loose(Message):
    anything: Any
    listed: list
    colour: Colour | None = None


@dataclass(frozen=True)
class Unscoped(Message, unscoped=True):
    typed: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Checked(Message):
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ZeroDivisionError("x must not be negative")


@dataclass(frozen=True)
class Nest:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ZeroDivisionError("x must not be negative")


@dataclass(frozen=True)
class HoldsNest(Message):
    nest: Nest


TYPES: dict[str, type[Message]] = {
    c.__name__: c for c in (Array, Tensor, Blob, Number, Mixed, Loose, Unscoped, Checked, HoldsNest)}


def there_and_back(message: Message) -> Any:
    """Through frames as a socket would hand them over: bytes at any address."""
    encoded = encode(message)
    frames = [bytes(f) for f in encoded.frames()]
    assert encoded.size == sum(len(f) for f in frames)
    return decode(from_frames(frames), TYPES)


def same(a: Any, b: Any) -> bool:
    """Equal in type, value, dtype and shape; NaN equals NaN; NumPy numbers count as Python's, byte orders as one."""
    if isinstance(a, np.ndarray):
        return (isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype.newbyteorder("=") == b.dtype
                and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b


# --- there and back ---------------------------------------------------------------------------------------------------

arrays = st.sampled_from(NUMBERS).flatmap(
    lambda dtype: hnp.arrays(st.sampled_from([dtype, dtype.newbyteorder(">")]),
                             hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
                             elements=None if dtype.char not in "gG" else st.just(0.5)))
small = st.sampled_from([np.float32([1, 2]), np.arange(6, dtype=">i4").reshape(2, 3), np.array(True), np.zeros((2, 0))])
integers = st.one_of(st.integers(-10, 10), st.integers(-(1 << 600), 1 << 600),
                     st.sampled_from([-(1 << 63) - 1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64]))
shares = st.recursive(st.none(), lambda inner: st.builds(Share, integers, integers, small, inner), max_leaves=2)
mixed = st.builds(
    Mixed, integers, st.floats(), st.text(max_size=5), st.binary(max_size=5), st.booleans(), small,
    st.lists(integers, max_size=3), st.lists(integers, max_size=3).map(tuple), st.tuples(st.text(max_size=3), small),
    st.dictionaries(integers, st.lists(st.floats(), max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=3), small, max_size=3),
    st.builds(Share, integers, integers, small, shares),
    st.lists(st.builds(Share, integers, integers, small, st.none()), max_size=2),
    st.none() | integers, st.none() | small)


@settings(deadline=None)
@given(arrays, st.booleans())
def test_arrays_of_every_number_type_shape_and_layout_come_back(array: np.ndarray, fortran: bool) -> None:
    sent = np.asfortranarray(array) if fortran and array.ndim else array
    received = there_and_back(Array(sent)).x
    assert same(array, received)
    assert received.flags.c_contiguous
    assert not received.flags.writeable
    assert received.ctypes.data % 64 == 0 or received.size == 0
    assert encode_whole(Array(sent)).tobytes() == b"".join(encode(Array(sent)).frames())


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mixed)
def test_a_message_of_everything_comes_back(message: Mixed) -> None:
    assert same(message, there_and_back(message))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mixed)
def test_a_header_says_the_type_and_how_many_bytes_each_buffer_has(message: Mixed) -> None:
    encoded = encode(message)
    assert announced(encoded.header) == ("Mixed", [buffer.nbytes for buffer in encoded.buffers])


@pytest.mark.parametrize("header", [b"", b"\xc1", msgspec.msgpack.encode({"a": 1}), msgspec.msgpack.encode([1]),
                                    msgspec.msgpack.encode(["A", Ext(1, b"nothing")]),
                                    msgspec.msgpack.encode(["A", Ext(1, msgspec.msgpack.encode(("|O", (1,), 0)))]),
                                    msgspec.msgpack.encode(["A", Ext(1, msgspec.msgpack.encode(("<f4", (-1,), 0)))])])
def test_what_is_no_header_announces_nothing(header: bytes) -> None:
    with pytest.raises(WireError, match="not a header"):
        announced(header)


def test_views_with_strides_come_back() -> None:
    grid = np.arange(60.0).reshape(3, 4, 5)
    for view in (grid[::2, ::-1, 1:4:2], grid.T, grid[:, 1], np.broadcast_to(np.float32(3), (2, 3)), grid[1:1]):
        assert same(view.copy(), there_and_back(Array(view)).x)


@pytest.mark.parametrize("tensor", [
    torch.arange(6, dtype=torch.int64).reshape(2, 3).T, torch.zeros(0, 4), torch.tensor(2.5),
    torch.ones(3, requires_grad=True), torch.tensor([1 + 2j]).conj(), torch.tensor([True, False]),
    torch.arange(8, dtype=torch.uint8)[::3], torch.ones(2, dtype=torch.float16)], ids=str)
def test_tensors_come_back_as_private_tensors(tensor: torch.Tensor) -> None:
    encoded = encode(Tensor(tensor))
    first, second = decode(encoded, TYPES), decode(encoded, TYPES)
    assert same(tensor.detach().resolve_conj(), first.x)
    assert not first.x.requires_grad
    assert first.x.data_ptr() % 64 == 0
    first.x.fill_(7)                    # a tensor cannot be read-only, so a receiver gets one of its own
    assert same(tensor.detach().resolve_conj(), second.x)


@pytest.mark.parametrize("value", [np.int64(3), np.uint8(200), np.True_, np.int32(-4)])
def test_numpy_numbers_travel_as_plain_ones(value: Any) -> None:
    received = there_and_back(Loose(value, [])).anything
    assert type(received) in (int, bool)
    assert received == value


def test_numpy_numbers_beside_big_integers_and_as_keys() -> None:
    message = Loose({np.int64(3): 1 << 200, 4: np.float32(0.5)}, [(np.uint8(7), [1 << 90])])
    assert there_and_back(message) == Loose({3: 1 << 200, 4: 0.5}, [[7, [1 << 90]]])


def test_tuples_and_lists_come_back_as_annotated() -> None:
    received = there_and_back(dataclasses.replace(EVERYTHING, listed=(1, 2), tupled=[3, 4]))    # type: ignore[arg-type]
    assert received.listed == [1, 2]
    assert received.tupled == (3, 4)


def test_an_array_annotated_with_its_dtype_comes_back() -> None:
    assert same(np.ones(3, np.float32), there_and_back(Unscoped(np.ones(3, np.float32))).typed)
    assert Unscoped.unscoped
    assert not Array.unscoped


def test_an_empty_message_costs_its_name_and_nothing_else() -> None:
    @dataclass(frozen=True)
    class Begin(Message):
        pass
    assert encode(Begin()).frames() == [b"\x91\xa5Begin"]


def test_equal_messages_have_equal_bytes() -> None:
    def frames() -> list[bytes]:
        return [bytes(f) for f in encode(EVERYTHING).frames()]
    assert frames() == frames()


def test_a_later_change_by_the_sender_does_not_reach_the_wire() -> None:
    array, numbers = np.zeros(5, np.float32), [1, 2]
    encoded = encode(Loose(array, numbers))
    array[:] = 9
    numbers.append(3)
    received: Any = decode(encoded, TYPES)
    assert received.anything.tolist() == [0] * 5
    assert received.listed == [1, 2]


def test_what_one_receiver_got_cannot_be_changed_for_the_next() -> None:
    encoded = encode(Array(np.zeros(3)))
    first: Any = decode(encoded, TYPES)
    with pytest.raises(ValueError, match="read-only"):
        first.x[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.x.flags.writeable = True


def test_what_nobody_can_change_travels_without_a_copy() -> None:
    def address(array: np.ndarray) -> int:
        return array.ctypes.data
    given = fixed([np.frombuffer(b"abc", np.uint8), np.arange(3, dtype=np.uint8)]).reshape(2, 3)
    assert given.tolist() == [[97, 98, 99], [0, 1, 2]]
    received: Any = decode(encode(Array(given)), TYPES)
    assert address(received.x) == address(given)
    again: Any = decode(encode(Array(received.x)), TYPES)
    assert same(again.x, given)
    assert address(again.x) == address(given)
    for changed in (given[:, 1:], given[1], given.copy()):          # not in one piece, off the boundary, one's own
        other: Any = decode(encode(Array(changed)), TYPES)
        assert same(other.x, changed)
        assert address(other.x) not in (address(given), address(changed))
        assert address(other.x) % 64 == 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        given.flags.writeable = True


def test_an_array_that_its_owner_can_make_writable_again_is_copied() -> None:
    array = np.zeros(64, np.float32)
    array.flags.writeable = False
    view, message = array[:], Loose(None, [array])
    encoded = [encode(Array(array)), encode(Array(view)), encode(message)]
    array.flags.writeable = True
    array[:] = 9
    received: list[Any] = [decode(one, TYPES) for one in encoded]
    assert not any(np.any(found) for found in (received[0].x, received[1].x, received[2].listed[0]))


@given(st.lists(hnp.arrays(st.sampled_from(NUMBERS), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
                min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_a_header_that_is_remembered_is_the_one_that_would_be_written(arrays: list[np.ndarray]) -> None:
    first = [(bytes(frames[0]), decode(from_frames(frames), TYPES)) for frames in (encode(Array(a)).frames()
                                                                                    for a in arrays)]
    again = [(bytes(frames[0]), decode(from_frames(frames), TYPES)) for frames in (encode(Array(a)).frames()
                                                                                    for a in arrays)]
    wire._headers.clear()
    wire._described.clear()
    afresh = [(bytes(frames[0]), decode(from_frames(frames), TYPES)) for frames in (encode(Array(a)).frames()
                                                                                     for a in arrays)]
    for a, *found in zip(arrays, first, again, afresh, strict=True):
        assert found[0][0] == found[1][0] == found[2][0]
        assert all(same(a, one.x) for _, one in found)              # type: ignore[attr-defined]


@dataclass(frozen=True)
class Counted(Message):
    n: int
    x: np.ndarray
    sure: bool
    y: np.ndarray


@given(st.lists(st.tuples(st.integers(-1, 2) | st.integers(2**63, 2**70), st.booleans(), st.integers(0, 2)),
                max_size=12))
@settings(max_examples=40, deadline=None)
def test_headers_of_arrays_and_integers_are_remembered_by_each_value(given: list[tuple[int, bool, int]]) -> None:
    types: dict[str, type[Message]] = {"Counted": Counted}
    for _ in range(2):                  # as they are written and read first, and as they are remembered
        for n, sure, size in given:
            encoded = encode(Counted(n, np.full(size, 7.0), sure, np.full((size, 2), n % 5, np.uint8)))
            wire._headers.clear()
            assert encoded.frames() == encode(Counted(n, np.full(size, 7.0), sure,
                                                      np.full((size, 2), n % 5, np.uint8))).frames()
            found: Any = decode(from_frames(encoded.frames()), types)
            assert (found.n, type(found.n), found.sure) == (n, int, sure)
            assert found.sure is sure
            assert same(found.x, np.full(size, 7.0))
            assert same(found.y, np.full((size, 2), n % 5, np.uint8))


def test_a_header_is_not_remembered_for_another_class_of_that_name() -> None:
    def make() -> type[Message]:
        @dataclass(frozen=True)
        class Again(Message):
            n: int
            x: np.ndarray
        return Again
    one, other = make(), make()
    frames = encode(one(3, np.zeros(2))).frames()       # type: ignore[call-arg]
    for kind in (one, other, one):
        assert type(decode(from_frames(frames), {"Again": kind})) is kind


@given(st.lists(st.binary(max_size=200), max_size=8))
@settings(max_examples=40, deadline=None)
def test_parts_of_one_frame_come_out_as_they_went_in_each_on_a_boundary(parts: list[bytes]) -> None:
    joined = b"".join(wire.padded([memoryview(part) for part in parts]))
    found = wire.unpadded(joined, [len(part) for part in parts])
    assert [bytes(view) for view in found] == parts
    assert all(view.readonly for view in found)
    assert all(np.frombuffer(view, np.uint8).ctypes.data % 64 == 0 for view in found if view.nbytes)


def test_a_remembered_header_with_other_frames_is_refused_as_ever() -> None:
    header, buffer = encode(Array(np.zeros(3))).frames()
    for frames, text in (([header, bytes(buffer)[:-8]], r"does not fit a buffer of 16 bytes"),
                         ([header], "refers to buffer 0; 0 came"),
                         ([header, buffer, b"x"], "the header uses 1 buffers, 2 came")):
        with pytest.raises(WireError, match=text):
            decode(from_frames(frames), TYPES)

    @dataclass(frozen=True)
    class Other(Message):
        x: np.ndarray
        y: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(1))
    with pytest.raises(WireError, match="has 2 fields, 1 came"):
        decode(from_frames([header, buffer]), {"Array": Other})


def test_no_more_than_so_many_headers_are_remembered() -> None:
    for n in range(wire._REMEMBERED + 10):
        decode(encode(Array(np.zeros(n, np.uint8))), TYPES)
    assert len(wire._headers) <= wire._REMEMBERED
    assert len(wire._described) <= wire._REMEMBERED


def test_many_arrays_each_start_on_a_boundary_whatever_the_frames_addresses() -> None:
    sent = [np.full(n, n, np.uint8) for n in range(1, 70)]
    backing = bytearray(b"?" * 3)       # frames that start at odd addresses
    frames: list[Any] = []
    for frame in encode(Loose(None, sent)).frames():
        backing += bytes(frame)
    view, place = memoryview(bytes(backing)), 3
    for frame in encode(Loose(None, sent)).frames():
        frames.append(view[place:place + len(frame)])
        place += len(frame)
    received: Any = decode(from_frames(frames), TYPES)
    assert all(same(a, b) and b.ctypes.data % 64 == 0 for a, b in zip(sent, received.listed, strict=True))


# --- what cannot be sent ----------------------------------------------------------------------------------------------

class Odd:
    pass


def _cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(("value", "text"), [
    (Odd(), "Loose cannot be encoded: a message cannot hold Odd: use numbers, text, bytes, arrays, lists, "
            "dictionaries or frozen dataclasses of these"),
    ({1, 2}, "Loose cannot be encoded: a message cannot hold set: use numbers, text, bytes, arrays, lists, "
             "dictionaries or frozen dataclasses of these"),
    (np.array([None]), "Loose cannot be encoded: an array of dtype object cannot be sent: numbers only"),
    (np.array(["a"]), "Loose cannot be encoded: an array of dtype <U1 cannot be sent: numbers only"),
    (np.zeros(2, "i4,f4"), "Loose cannot be encoded: an array of dtype [('f0', '<i4'), ('f1', '<f4')] "
                           "cannot be sent: numbers only"),
    (np.zeros(1, "M8[s]"), "Loose cannot be encoded: an array of dtype datetime64[s] cannot be sent: numbers only"),
], ids=["object", "set", "object array", "text array", "structured", "dates"])
def test_what_cannot_travel_is_refused_by_name(value: Any, text: str) -> None:
    with pytest.raises(WireError) as error:
        encode(Loose(value, []))
    assert str(error.value) == text


@pytest.mark.parametrize("value", [
    _cyclic(), datetime.datetime(2020, 1, 1), np.longdouble(1), np.datetime64("2020-01-01"), "\ud800", [{"a": {1}}],
    {1 << 70: {1, 2}}, lambda: 0, Odd, torch.zeros(2).to_sparse(), torch.zeros(2, dtype=torch.bfloat16)],
    ids=lambda value: type(value).__name__)
def test_nothing_but_a_wire_error_comes_of_sending_nonsense(value: Any) -> None:
    with pytest.raises(WireError, match=r"^Loose cannot be encoded: "):
        encode(Loose(value, []))


def test_a_failed_message_does_not_leave_its_arrays_to_the_next() -> None:
    with pytest.raises(WireError):
        encode(Loose([np.zeros(3), Odd()], []))
    assert same(np.ones(2), there_and_back(Array(np.ones(2))).x)


class NoDataclass(Message):
    pass


@dataclass(frozen=True)
class Unresolved(Message):
    x: Nowhere                          # type: ignore[name-defined]  # noqa: F821


@dataclass(frozen=True)
class Either(Message):
    x: np.ndarray | float


@pytest.mark.parametrize(("message", "text"), [
    (NoDataclass(), "message NoDataclass is no dataclass: write @dataclass(frozen=True) above it"),
    (Unresolved(1), "message Unresolved: an annotation cannot be resolved: name 'Nowhere' is not defined"),
    (Either(1.0), "Either.x: this annotation cannot be checked: Type unions containing a custom type may not contain "
                  "any additional types other than `None` - type `numpy.ndarray | float` is not supported"),
], ids=["no dataclass", "unresolved", "union"])
def test_a_message_class_that_cannot_work_is_refused_when_it_is_first_sent(message: Message, text: str) -> None:
    with pytest.raises(WireError) as error:
        encode(message)
    assert str(error.value) == text


# --- hostile frames ---------------------------------------------------------------------------------------------------

EVERYTHING = Mixed(1 << 70, 0.5, "é", b"\0\xff", True, np.arange(5, dtype=np.float32), [1, -1, 1 << 80], (1, 2),
                   ("a", np.zeros((2, 0))), {3: [0.5], -4: []}, {"x": np.array(3, np.int64)},
                   Share(1, 2, np.ones(2, bool), Share(3, 4, np.zeros(1, np.complex64))), [], None, np.ones((2, 2)))
MESSAGES: list[Message] = [
    EVERYTHING, Array(np.arange(6, dtype=np.int16).reshape(2, 3)), Tensor(torch.ones(2, 2)), Number(1 << 100),
    Loose({"a": [np.zeros(2), 1 << 70], 5: None}, [1, b"x", "y"], Colour.RED), Checked(3), HoldsNest(Nest(1))]


def only_wire_errors(frames: list[Any]) -> bool:
    """Decode; True if accepted. Any other exception than WireError fails the test."""
    try:
        message = decode(from_frames(frames), TYPES)
    except WireError:
        return False
    assert type(message) in TYPES.values()
    return True


def _raw(message: Message) -> list[bytes]:
    return [bytes(f) for f in encode(message).frames()]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_flipping_any_byte_of_a_header_raises_wire_errors_only(message: Message) -> None:
    header, *buffers = _raw(message)
    patterns = [1 << bit for bit in range(8)] + [0xFF, 0x55]
    refused = 0
    for place in range(len(header)):
        for pattern in patterns:
            changed = bytearray(header)
            changed[place] ^= pattern
            refused += not only_wire_errors([bytes(changed), *buffers])
    assert refused > len(header)        # names, lengths, dtypes, shapes: most of a header is checked


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_truncation_and_extension_of_a_frame_is_refused(message: Message) -> None:
    frames = _raw(message)
    for cut in range(len(frames[0])):
        assert not only_wire_errors([frames[0][:cut], *frames[1:]])
    assert not only_wire_errors([frames[0] + b"\0", *frames[1:]])
    for i in range(1, len(frames)):
        longer = [*frames[:i], frames[i] + b"\0", *frames[i + 1:]]
        assert not only_wire_errors(longer)
        if frames[i]:
            assert not only_wire_errors([*frames[:i], frames[i][:-1], *frames[i + 1:]])
        assert not only_wire_errors(frames[:i] + frames[i + 1:])
    assert not only_wire_errors([*frames, b""])
    assert not only_wire_errors([*frames, b"more"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_frames_raise_wire_errors_only(frames: list[bytes]) -> None:
    assert not only_wire_errors(frames)


def test_random_splices_of_real_headers_raise_wire_errors_only() -> None:
    draw = random.Random(5)
    headers = [_raw(m) for m in MESSAGES]
    for _ in range(3000):
        (a, *buffers), (b, *_) = draw.choice(headers), draw.choice(headers)
        i, j = draw.randrange(len(a)), draw.randrange(len(b))
        only_wire_errors([a[:i] + b[j:], *buffers])


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=4)
    | st.binary(max_size=8) | st.builds(Ext, st.integers(-128, 127), st.binary(max_size=14)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner,
                                                               max_size=3), max_leaves=6)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TYPES)), st.data())
def test_well_formed_headers_of_wrong_values_raise_wire_errors_only(name: str, data: st.DataObject) -> None:
    cls = TYPES[name]
    count = len(dataclasses.fields(cls))
    fields = data.draw(st.lists(values, min_size=count, max_size=count))
    only_wire_errors([msgspec.msgpack.encode([name, *fields]), *data.draw(st.lists(st.binary(max_size=8), max_size=2))])


def header(name: Any, *fields: Any) -> bytes:
    return msgspec.msgpack.encode([name, *fields])


def array(code: Any = "<f4", shape: Any = (2,), index: Any = 0, ext: int = 1) -> Any:
    return Ext(ext, msgspec.msgpack.encode((code, shape, index)))


EIGHT = bytes(8)                        # two float32
REFUSED: dict[str, tuple[list[bytes], str]] = {
    "no frame": ([], "a message has at least one frame, its header; none came"),
    "not MessagePack": ([b"\xc1"], "not a header: "),
    "empty header": ([b""], "not a header: "),
    "no list": ([msgspec.msgpack.encode({"a": 1})], "not a header: expected [type name, fields ...]"),
    "no name": ([header(3, 1)], "not a header: expected [type name, fields ...]"),
    "unknown type": ([header("Nope", 1)], "unknown message type 'Nope'; known here: Array, Tensor, Blob, "),
    "endless name": ([header("N" * 500)], "unknown message type '" + "N" * 80 + "'; known here: "),
    "private name": ([header("__class__", 1)], "unknown message type '__class__'; "),
    "too few fields": ([header("Number")], "Number has 1 fields, 0 came"),
    "too many fields": ([header("Number", 1, 2)], "Number has 1 fields, 2 came"),
    "text for a number": ([header("Number", "1")], "Number.x: Expected `int`, got `str`"),
    "float for a number": ([header("Number", 1.0)], "Number.x: Expected `int`, got `float`"),
    "bool for a number": ([header("Number", True)], "Number.x: Expected `int`, got `bool`"),
    "none for a number": ([header("Number", None)], "Number.x: Expected `int`, got `null`"),
    "base64 for bytes": ([header("Blob", "aGVsbG8=")], "Blob.x: Expected `bytes`, got `str`"),
    "number for an array": ([header("Array", 1)], "Array.x: expected ndarray, got int"),
    "tensor for an array": ([header("Array", array(ext=2)), EIGHT], "Array.x: expected ndarray, got Tensor"),
    "array for a tensor": ([header("Tensor", array()), EIGHT], "Tensor.x: expected Tensor, got ndarray"),
    "message refuses": ([header("Checked", -1)], "Checked refuses its fields: x must not be negative"),
    "nested refuses": ([header("HoldsNest", {"x": -1})], "HoldsNest.nest: x must not be negative"),
    "nested lacks a field": ([header("HoldsNest", {})], "HoldsNest.nest: Object missing required field `x`"),
    "unknown extension": ([header("Loose", Ext(9, b""), [], None)], "unknown extension 9 in a header"),
    "timestamp": ([header("Loose", Ext(-1, bytes(4)), [], None)],
                  "Loose.anything: a message cannot hold datetime: "),
    "deep timestamp": ([header("Loose", None, [{"a": Ext(-1, bytes(4))}], None)],
                       "Loose.listed: a message cannot hold datetime: "),
    "timestamp for a number": ([header("Number", Ext(-1, bytes(4)))], "Number.x: Expected `int`, got `datetime`"),
    "bad timestamp": ([header("Number", Ext(-1, b"\xff" * 12))], "not a header: "),
    "unknown enum": ([header("Loose", None, [], "blue")], "Loose.colour: Invalid enum value 'blue'"),
    "array as a key": ([b"\x94\xa5Loose\x81" + msgspec.msgpack.encode(array()) + b"\x01\x90\xc0", EIGHT],
                       "not a header: "),
    "object dtype": ([header("Array", array("|O", (1,))), EIGHT], "dtype '|O' is not accepted: numbers only"),
    "structured dtype": ([header("Array", array("i4,f4", (1,))), EIGHT], "dtype 'i4,f4' is not accepted: numbers only"),
    "sub-array dtype": ([header("Array", array("(2,)f4", (1,))), EIGHT], "dtype '(2,)f4' is not accepted: "),
    "text dtype": ([header("Array", array("<U1", (2,))), EIGHT], "dtype '<U1' is not accepted: numbers only"),
    "date dtype": ([header("Array", array("<M8[s]", (1,))), EIGHT], "dtype '<M8[s]' is not accepted: numbers only"),
    "big-endian dtype": ([header("Array", array(">f4")), EIGHT], "dtype '>f4' is not accepted: numbers only"),
    "endless dtype": ([header("Array", array("f4," * 9999)), EIGHT], "dtype 'f4,f4,f4,"),
    "dtype no text": ([header("Array", array(4)), EIGHT], "not a description of an array: Expected `str`, got `int`"),
    "description short": ([header("Array", Ext(1, b"\x92\xa3<f4\x91\x02")), EIGHT], "not a description of an array: "),
    "description garbage": ([header("Array", Ext(1, b"\xc1")), EIGHT], "not a description of an array: "),
    "negative dimension": ([header("Array", array(shape=(-2,))), EIGHT], "(-2,) is no shape of an array"),
    "negative pair": ([header("Array", array(shape=(-1, -2))), EIGHT], "(-1, -2) is no shape of an array"),
    "huge shape": ([header("Array", array(shape=(1 << 62, 1 << 62))), EIGHT],
                   f"array of shape ({1 << 62}, {1 << 62}) and dtype <f4 does not fit a buffer of 8 bytes"),
    "wrapping shape": ([header("Array", array("<f4", (1 << 32, 1 << 32))), b""],
                       f"array of shape ({1 << 32}, {1 << 32}) and dtype <f4 does not fit a buffer of 0 bytes"),
    "huge shape of nothing": ([header("Array", array(shape=(0, 1 << 62, 1 << 62))), b""],
                              f"(0, {1 << 62}, {1 << 62}) is no shape of an array: "),
    "dimension beyond 64 bits": ([header("Array", array(shape=(0, (1 << 64) - 1))), b""],
                                 f"(0, {(1 << 64) - 1}) is no shape of an array: "),
    "too many dimensions": ([header("Array", array(shape=(1,) * 33 + (2,))), EIGHT], "(1, 1, 1, "),
    "fractional dimension": ([header("Array", array(shape=(2.5,))), EIGHT], "not a description of an array: "),
    "buffer does not fit": ([header("Array", array(shape=(3,))), EIGHT],
                            "array of shape (3,) and dtype <f4 does not fit a buffer of 8 bytes"),
    "no buffer": ([header("Array", array())], "array number 0 refers to buffer 0; 0 came, each is used once"),
    "negative buffer": ([header("Array", array(index=-1)), EIGHT],
                        "array number 0 refers to buffer -1; 1 came, each is used once"),
    "distant buffer": ([header("Array", array(index=1 << 60)), EIGHT],
                       f"array number 0 refers to buffer {1 << 60}; 1 came, each is used once"),
    "buffer used twice": ([header("Loose", array(), [array()], None), EIGHT],
                          "array number 1 refers to buffer 0; 1 came, each is used once"),
    "unused buffer": ([header("Number", 1), EIGHT], "Number: the header uses 0 buffers, 1 came"),
    "half the buffers": ([header("Array", array()), EIGHT, EIGHT], "Array: the header uses 1 buffers, 2 came"),
    "no UTF-8": ([b"\x91\xa2\xff\xff"], "not a header: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_frames_are_refused_and_the_text_says_why(name: str) -> None:
    frames, text = REFUSED[name]
    with pytest.raises(WireError) as error:
        decode(from_frames(frames), TYPES)
    assert str(error.value).startswith(text)
    assert len(str(error.value)) < 1000


BOMBS: dict[str, Callable[[], list[bytes]]] = {
    "deep lists": lambda: [b"\x94\xa5Loose" + b"\x91" * 1_000_000],
    "deep maps": lambda: [b"\x94\xa5Loose" + b"\x81\xa1a" * 500_000],
    "deep and closed": lambda: [b"\x94\xa5Loose" + b"\x91" * 5000 + b"\x90" + b"\x90\xc0"],
    "list of 4 G": lambda: [b"\x94\xa5Loose\xdd\xff\xff\xff\xff"],
    "lists of 4 G in each other": lambda: [b"\x94\xa5Loose" + b"\xdd\xff\xff\xff\xff" * 500],
    "map of 4 G": lambda: [b"\x94\xa5Loose\xdf\xff\xff\xff\xff"],
    "bytes of 4 G": lambda: [b"\x94\xa5Loose\xc6\xff\xff\xff\xff"],
    "text of 4 G": lambda: [b"\x94\xa5Loose\xdb\xff\xff\xff\xff"],
    "extension of 4 G": lambda: [b"\x94\xa5Loose\xc9\xff\xff\xff\xff\x01"],
    "many dimensions": lambda: [header("Array", array(shape=[1] * 1_000_000)), bytes(4)],
    "many huge dimensions": lambda: [header("Array", array(shape=[1 << 62] * 100_000)), bytes(4)],
    "empty lists": lambda: [b"\x94\xa5Loose\xdd\x03\x93\x87\x00" + b"\x90" * 60_000_000 + b"\xc0\xc0"],
    "keys that collide": lambda: [header("Loose", None, [], None)[:-1] + b"\xde\x4e\x20" + b"".join(
        msgspec.msgpack.encode(Ext(3, ((2**61 - 1) * (2**64 + k)).to_bytes(17, "little"))) + b"\x00"
        for k in range(20_000))],
    "header too long": lambda: [bytes(MAX_HEADER_BYTES + 1)],
    "buffers too many": lambda: [header("Number", 1), *[b""] * (MAX_BUFFERS + 1)],
    "all buffers": lambda: [header("Loose", None, [array(shape=(0,), index=i) for i in range(MAX_BUFFERS)], None),
                            *[b""] * (MAX_BUFFERS - 1)],
    "all into one": lambda: [header("Loose", None, [array()] * 60_000, None), EIGHT],
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_quickly_and_without_memory(name: str) -> None:
    frames = BOMBS[name]()
    begin = time.thread_time()
    with pytest.raises(WireError):
        decode(from_frames(frames), TYPES)
    assert time.thread_time() - begin < 3


def test_the_largest_number_of_arrays_decodes_in_reasonable_time() -> None:
    frames = [header("Loose", None, [array(shape=(0,), index=i) for i in range(MAX_BUFFERS)], None),
              *[b""] * MAX_BUFFERS]
    begin = time.thread_time()
    received: Any = decode(from_frames(frames), TYPES)
    assert len(received.listed) == MAX_BUFFERS
    assert time.thread_time() - begin < 5


def test_huge_numbers_are_numbers_and_cost_no_more_than_their_bytes() -> None:
    big = Ext(3, b"\xff" * (1 << 20) + b"\x00")
    assert decode(Encoded(header("Number", big), []), TYPES) == Number((1 << (8 << 20)) - 1)
    with pytest.raises(WireError, match=r"^Blob\.x: Expected `bytes`, got `int`$"):
        decode(Encoded(header("Blob", big), []), TYPES)


@dataclass(frozen=True)
class Heavy(Message):
    x: Declared


@dataclass(frozen=True)
class Part:
    weight: Declared
    name: str


@dataclass(frozen=True)
class Several(Message):
    parts: list[Part]
    more: dict[str, Declared]
    maybe: Declared | None
    big: int


@settings(max_examples=80)
@given(st.one_of(st.integers(128, 70_000), st.sampled_from([255, 256, 65_535, 65_536, 1 << 20])))
def test_a_declared_field_counts_as_much_as_the_bytes_that_it_stands_for(n: int) -> None:
    heavy = encode(Heavy(Declared(n)))
    assert heavy.size == encode(Blob(bytes(n))).size + len("Heavy") - len("Blob")
    assert (heavy.declared, sum(len(f) for f in heavy.frames())) == (n, heavy.size - n)
    assert decode(from_frames(heavy.frames()), {"Heavy": Heavy}) == Heavy(Declared(n))


def test_declared_fields_add_up_wherever_they_stand() -> None:
    message = Several([Part(Declared(1000), "a"), Part(Declared(20), "b")], {"c": Declared(3)}, None, 1 << 70)
    assert encode(message).declared == 1023
    assert decode(encode(message), {"Several": Several}) == message
    assert encode(dataclasses.replace(message, maybe=Declared(7))).declared == 1030
    assert encode(Number(1)).declared == 0


@pytest.mark.parametrize("wrong", [-1, (1 << 53) + 1])
def test_no_message_declares_what_is_no_size(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"^Declared\(.*\): expected a number of bytes from 0 to 2\*\*53$"):
        Declared(wrong)
    with pytest.raises(WireError, match=r"Heavy\.x"):
        decode(Encoded(msgspec.msgpack.encode(["Heavy", wrong]), []), {"Heavy": Heavy})


@pytest.mark.parametrize("wrong", [True, 1.5, "7", None, [1]])
def test_a_declared_field_that_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(WireError, match=r"Heavy\.x"):
        decode(Encoded(msgspec.msgpack.encode(["Heavy", wrong]), []), {"Heavy": Heavy})


def test_a_field_that_may_hold_anything_declares_nothing() -> None:
    with pytest.raises(WireError, match="cannot hold Declared"):
        encode(Loose({"x": Declared(5)}, []))


def test_the_wire_imports_no_torch() -> None:
    code = "import sys, emul.message.wire; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- many at once ---------------------------------------------------------------------------------------------------

@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from("BIf"), st.integers(1, 3)), max_size=12))
def test_many_at_once_have_the_frames_of_each(drawn: list[tuple[int, str, int]]) -> None:
    messages: list[Message] = []
    for place, (size, code, step) in enumerate(drawn):
        numbers = (np.arange(size * step) % 251 + place).astype(code)[::step]
        messages.append(Array(numbers) if place % 3 else Blob(numbers.tobytes()))
    for _ in range(2):                  # before their headers are known, and then
        found = encode_each(messages)
        assert [[bytes(frame) for frame in one.frames()] for one in found] == \
            [[bytes(frame) for frame in encode(message).frames()] for message in messages]
        assert [one.size for one in found] == [encode(message).size for message in messages]
        for one, message in zip(found, messages, strict=True):
            for buffer in one.frames()[1:]:
                assert np.frombuffer(buffer, np.uint8).ctypes.data % wire.ALIGNMENT == 0 or not len(buffer)
                assert memoryview(buffer).readonly
            assert type(decode(one, {type(message).__name__: type(message)})) is type(message)


@given(st.integers(1, 5), st.integers(0, 40), st.sampled_from("BIf"))
@settings(max_examples=30, deadline=None)
def test_vectors_of_one_kind_come_out_as_they_went_in_for_good(many: int, size: int, code: str) -> None:
    vectors = [np.arange(size).astype(code) + np.array(k).astype(code) for k in range(many)]
    types: dict[str, type[Message]] = {"Array": Array}
    for _ in range(2):
        found = encode_each([Array(vector) for vector in vectors])
        for encoded, vector in zip(found, vectors, strict=True):
            assert encoded.frames() == encode(Array(vector)).frames()
            for again in (encoded, from_frames(encoded.frames())):
                one, other = (decode(again, types) for _ in range(2))
                assert same(one.x, vector)                                  # type: ignore[attr-defined]
                assert one.x is not other.x                                 # type: ignore[attr-defined]
                with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
                    one.x.setflags(write=True)                              # type: ignore[attr-defined]


def test_one_message_for_many_is_encoded_once() -> None:
    same, other = Array(np.arange(5)), Array(np.arange(5))
    first, second, third = encode_each([same, other, same])
    assert first is third
    assert first is not second


def test_what_was_encoded_with_others_does_not_change_with_its_source() -> None:
    rows = np.zeros((3, 8), np.uint8)
    for _ in range(2):
        rows[:] = 1
        found = encode_each([Array(row) for row in rows])
        rows[:] = 2
        assert [bytes(one.buffers[0]) for one in found] == [bytes([1] * 8)] * 3
