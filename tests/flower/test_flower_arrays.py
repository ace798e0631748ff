"""Arrays and records of Flower: what is done once for each kind or content gives what Flower gives each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_app import CLIENT, scenario, write_app
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import serde
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from numpy.lib import format as npy

from emul.schemes.flower import arrays, encoding
from emul.testing import run_text
from emul.workers.pool import Workers

arrays.install()
OWN: Any = Array                        # Flower's class, whose methods have been replaced
REPLACED: Any = serde
PLAIN = ("?", "i1", "u1", "<i2", ">u2", "<i4", "<u8", ">i8", "<f2", "<f4", ">f4", "<f8", "g", "<c8", ">c16")
OTHERS = ("S3", "U2", "V4", "<M8[s]", "<m8[ms]", "i4,f8", "(2,)f4,u1")
LAYOUTS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    np.ascontiguousarray, np.asfortranarray, lambda a: a, lambda a: a.T, lambda a: a[::2] if a.ndim else a,
    lambda a: a[..., ::-1] if a.ndim else a, lambda a: np.broadcast_to(a, (2, *a.shape)),
    lambda a: a.reshape(1, *a.shape), lambda a: a.view(np.recarray) if a.dtype.names else a.view(np.memmap))


@st.composite
def values(draw: st.DrawFn) -> np.ndarray:
    """Arrays of any kind: empty and without dimensions, of plain numbers and not, in any layout, read-only ones too."""
    dtype = np.dtype(draw(st.sampled_from([*PLAIN, *PLAIN, *OTHERS])))
    shape = draw(nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    size = dtype.itemsize * int(np.prod(shape))
    raw = draw(st.binary(min_size=size, max_size=size)) if dtype.kind not in "U?" else bytes(size)
    return draw(st.sampled_from(LAYOUTS))(np.frombuffer(bytearray(raw), dtype, count=-1 if size else 0).reshape(shape))


def saved(array: np.ndarray) -> bytes:
    """The file that NumPy writes."""
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def flowers(method: Any, *args: Any, **fields: Any) -> tuple[Any, str]:
    """(result, error) of a method, in words where it raises."""
    try:
        return method(*args, **fields), ""
    except Exception as e:
        return None, f"{type(e).__name__}: {e}"


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """True if they agree in all that an app can see of them but their address."""
    return (type(one) is type(other) and one.dtype == other.dtype and one.dtype.str == other.dtype.str
            and one.shape == other.shape and one.strides == other.strides and one.tobytes("A") == other.tobytes("A")
            and one.flags.writeable == other.flags.writeable)


@given(values())
def test_an_array_is_written_as_numpy_writes_it(array: np.ndarray) -> None:
    """Every attribute of the result, too."""
    original: Any = object.__new__(Array)
    OWN.__init__.__wrapped__(original, dtype=str(array.dtype), shape=array.shape, stype="numpy.ndarray",
                             data=saved(array))
    assert vars(Array(array)) == vars(Array.from_numpy_ndarray(array)) == vars(original)


@given(values())
def test_an_array_is_read_as_flower_reads_it(array: np.ndarray) -> None:
    own = Array(array)
    first, second = own.numpy(), own.numpy()
    assert alike(first, OWN.numpy.__wrapped__(own))
    before = second.tobytes()
    first[...] = np.ones((), first.dtype) if first.dtype.kind in "biufc" else first.flat[0] if first.size else 0
    assert second.tobytes() == own.numpy().tobytes() == before      # each belongs to its caller


@given(values(), st.data())
def test_a_file_of_another_kind_or_a_damaged_one_goes_flowers_own_way(array: np.ndarray, data: st.DataObject) -> None:
    """Files of any version, cut, prolonged, with a byte changed, or of another type than bytes: the same result, or the
    same error."""
    file = BytesIO()
    npy.write_array(file, np.asarray(array), version=data.draw(st.sampled_from([(1, 0), (2, 0), (3, 0)])))
    raw = bytearray(file.getvalue())
    how = data.draw(st.sampled_from(["cut", "longer", "changed", "as it is"]))
    if how == "cut":
        del raw[data.draw(st.integers(0, len(raw) - 1)):]
    elif how == "longer":
        raw += b"more"
    elif how == "changed":
        raw[data.draw(st.integers(0, min(len(raw), 90) - 1))] = data.draw(st.integers(0, 255))
    own = Array(str(array.dtype), array.shape, data.draw(st.sampled_from(["numpy.ndarray", "numpy.ndarray", "torch"])),
                bytes(raw))
    if data.draw(st.booleans()):
        own.data = raw      # type: ignore[assignment]
    (found, error), (expected, said) = flowers(own.numpy), flowers(OWN.numpy.__wrapped__, own)
    assert error == said
    assert found is expected is None or alike(found, expected)


@pytest.mark.parametrize(("args", "fields"), [
    ((), {}), ((1,), {}), ((np.zeros(2), 1), {}), ((), {"dtype": "f4", "shape": [2], "stype": "s", "data": b""}),
    ((), {"dtype": "f4", "shape": (2.0,), "stype": "s", "data": b""}), (("f4", (2,), "s", b""), {}),
    ((), {"dtype": "f4", "shape": (2,), "stype": "s", "data": bytearray()}), (("f4",), {"dtype": "f4"}),
    ((), {"dtype": "f4", "shape": (True,), "stype": "s", "data": b""}),
    ((), {"dtype": "f4", "shape": (2,), "data": b""}), ((), {"shape": (2,), "stype": "s", "data": b"", "x": "f4"}),
    ((), {"ndarray": np.zeros(2)}), ((), {"dtype": "f4", "shape": (2,), "stype": "s", "ndarray": np.zeros(2)})])
def test_an_array_is_made_or_refused_as_by_flower(args: tuple[Any, ...], fields: dict[str, Any]) -> None:
    one, other = object.__new__(Array), object.__new__(Array)
    found = flowers(Array.__init__, one, *args, **fields)
    assert found == flowers(OWN.__init__.__wrapped__, other, *args, **fields)
    assert vars(one) == vars(other)


def test_an_array_of_objects_is_refused_as_by_flower() -> None:
    with pytest.raises(ValueError, match=r"^Object arrays cannot be saved when allow_pickle=False$"):
        Array(np.array([None]))


# --- records that many messages share ---------------------------------------------------------------------------------

NAMES = st.text("abc.", min_size=1, max_size=4)
NUMBERS = st.one_of(st.integers(-2**63, 2**64 - 1), st.floats(allow_nan=False))
WORDS = st.one_of(NUMBERS, st.booleans(), st.text(max_size=4), st.binary(max_size=4),
                  *(st.lists(kind, max_size=3) for kind in (st.booleans(), st.text(max_size=3), st.integers(-9, 9))))
LISTS = st.lists(st.floats(allow_nan=False), max_size=3)
RECORDS = st.one_of(
    st.dictionaries(NAMES, values().map(Array), max_size=3).map(ArrayRecord),
    st.dictionaries(NAMES, st.one_of(NUMBERS, LISTS), max_size=3).map(MetricRecord),
    st.dictionaries(NAMES, WORDS, max_size=3).map(ConfigRecord))
CONTENTS = st.dictionaries(NAMES, RECORDS, max_size=3).map(RecordDict)


def call_with(content: RecordDict, number: str = "7") -> Any:
    message: Any = Message(content, 5, "train", group_id="3")
    return encoding.call_of(message, number, encoding.records(content), floating=False)


def by_flower(call: Any, node: int) -> Message:
    """The message of a call, by nothing but Flower's own serialisation."""
    proto = ProtoMessage()
    proto.metadata.ParseFromString(call.metadata)
    proto.content.ParseFromString(call.content.tobytes())
    proto.metadata.dst_node_id, proto.metadata.message_id = node, f"{proto.metadata.message_id}.{node}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serde, "array_record_from_proto", REPLACED.array_record_from_proto.__wrapped__)
        return message_from_proto(proto)


def inside(value: Any) -> Any:
    """All attributes of a message, a record or an array, and of what is in them."""
    if isinstance(value, dict):
        return {key: inside(one) for key, one in value.items()}
    return (type(value), inside(vars(value))) if hasattr(value, "__dict__") and not callable(value) else value


def spoil(content: RecordDict) -> None:
    """Write into whatever can be written into."""
    for record in content.values():
        for key, value in list(record.items()):
            if isinstance(value, Array):
                value.data, value.shape = b"spoilt", (99,)
            elif isinstance(value, list):
                value.append(value[0] if value else 1)
            del record[key]
    content.clear()
    content["new"] = ConfigRecord({"a": 1})


@given(st.lists(CONTENTS, min_size=1, max_size=3), st.data())
def test_each_node_gets_a_message_as_flower_reads_it_whatever_others_wrote_into_theirs(
        contents: list[RecordDict], data: st.DataObject) -> None:
    encoding.be(1, 1)
    calls = [call_with(content, str(number)) for number, content in enumerate(contents)]
    broadcast = encoding.SharedCall()
    for node in range(2, 7):
        call = data.draw(st.sampled_from(calls))
        got: Any = broadcast.message_of(call, node)
        assert inside(got) == inside(by_flower(call, node))
        spoil(got.content)
        got.metadata.dst_node_id, got.metadata.group_id = 99, "spoilt"


SPOILING = """
record, config = message.content["arrays"], message.content["config"]
names = list(message.content)
seen = [record["0"].numpy().tolist(), record.to_numpy_ndarrays()[0].tolist(),
        {"server-round": config["server-round"], "list": list(config["list"])}]
record["0"].numpy()[:] = -1
record.to_numpy_ndarrays()[0][:] = -1
torch.from_numpy(record["0"].numpy()).fill_(-1)
record["0"].data = b"spoilt"
config["list"].append(9)
config["server-round"] = 99
message.content["more"] = ArrayRecord()
record["0"] = ArrayRecord([np.asarray(seen[0])])["0"]
if seen != [[3.0] * 4, [3.0] * 4, {"server-round": 1, "list": [7, 8]}] or "more" in names:
    raise ValueError(f"another client has written into {seen}, {names}")
"""
ONE_ROUND = """
arrays, config = ArrayRecord([np.full(4, 3.0)]), ConfigRecord({"server-round": 1, "list": [7, 8]})
content = RecordDict({"arrays": arrays, "config": config})
replies = grid.send_and_receive([Message(content, node, "train") for node in sorted(grid.get_node_ids())])
assert len(replies) == 4 and not [m.error.reason for m in replies if m.has_error()]
assert arrays["0"].numpy().tolist() == [3.0] * 4 and dict(config.items()) == {"server-round": 1, "list": [7, 8]}
"""


def test_no_client_sees_what_another_has_written_into_its_message(tmp_path: Path, pools: Sequence[Workers]) -> None:
    text = scenario({"app": str(write_app(tmp_path, ONE_ROUND, SPOILING, client=CLIENT))})
    for pool in (None, pools[1]):
        assert [row["received"] for row in run_text(text, "stop.rounds=1", pool=pool).rounds] == [4]
