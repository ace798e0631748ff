"""Flower's messages as emul's and back, by Flower's own serialisation. Imported only where an app runs."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata

from emul.base.errors import ProtocolViolation
from emul.schemes.flower.arrays import numbers
from emul.schemes.flower.messages import CALLS, STAGES, Answer, Call, count_as

T = TypeVar("T")

PHASE = "emul.phase"                # key of a ConfigRecord: what an app wants its message counted under
_SECAGG, _STAGE = "secaggplus_configs", "stage"
_ROUND = "server-round"

# parts of Flower that lie at other places in other versions, from 1.27 on
try:
    from flwr.supercore.run import Run as Run
except ImportError:                 # up to 1.30
    from flwr.common.typing import Run as Run
try:
    from flwr.compat.common import recorddict_compat as recorddict_compat
except ImportError:                 # up to 1.30
    from flwr.common import recorddict_compat as recorddict_compat
try:
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:                 # before messages took their sender from the process
    TaskIdentity = None


def call_of(message: Message, number: str, content: np.ndarray, floating: bool) -> Call:
    """The call for a message whose records are `content`: its metadata, for all who get them, called `number`."""
    shell = ProtoMessage()
    shell.metadata.CopyFrom(message_to_proto(_without_content(message)).metadata)
    shell.metadata.message_id, shell.metadata.dst_node_id = number, 0
    kind = kind_of(message)
    call = kind(shell.metadata.SerializeToString(), content, floating)
    count_as(call, label(message, kind.__name__))
    return call


def records(content: RecordDict) -> np.ndarray:
    """(bytes,) uint8: a RecordDict, serialised."""
    return np.frombuffer(recorddict_to_proto(content).SerializeToString(), np.uint8)


def number_of(call: Call) -> str:
    """The number that `call_of` was given."""
    return ProtoMetadata.FromString(call.metadata).message_id


class SharedCall:
    """The call that was read last in a worker. One that many nodes get is read once, and each of them gets a copy.

    A copy has records, arrays and lists of its own, since an app may write into them; it shares their bytes, which
    nobody can change. Flower's own reading of a model of eight arrays takes 142 us, a copy 18 us.
    """

    def __init__(self) -> None:
        self._call: Call | None = None
        self._message: Message | None = None               # as Flower reads it; never handed out

    def message_of(self, call: Call, node_id: int) -> Message:
        """The message as the node `node_id` gets it. Raises ProtocolViolation for bytes that are none."""
        last, read = self._call, self._message
        if last is None or read is None or call.metadata != last.metadata or not (
                call.content is last.content or np.array_equal(call.content, last.content)):
            try:
                proto = ProtoMessage()
                proto.metadata.ParseFromString(call.metadata)
                proto.content.ParseFromString(call.content.tobytes())
                self._call, self._message = None, (read := message_from_proto(proto))
            except Exception as e:      # of protobuf and of Flower: whatever bytes of a peer may cause
                raise ProtocolViolation(f"no message of Flower: {type(e).__name__}") from None
            self._call = call
        message, metadata = _another(read), _another(read.metadata)
        vars(metadata).update(_dst_node_id=node_id, _message_id=message_id(metadata.message_id, node_id))
        vars(message).update(_metadata=metadata, _content=_copied(read.content))
        return message


def _another(original: T) -> T:
    """An object with the same attributes."""
    new = object.__new__(type(original))
    vars(new).update(vars(original))
    return new


def _copied(value: object) -> object:
    """A copy of a record and of all in it that can be changed."""
    if isinstance(value, RecordDict | ArrayRecord | ConfigRecord | MetricRecord):
        new = _another(value)
        vars(new)["_data"] = {key: _copied(one) for key, one in value.items()}
        return new
    if isinstance(value, Array):
        return _another(value)
    return list(value) if isinstance(value, list) else value


def message_id(number: str, node_id: int) -> str:
    """The name of the copy of a message that goes to one node."""
    return f"{number}.{node_id}"


def reply_bytes(reply: Message) -> np.ndarray:
    """(bytes,) uint8: a reply, serialised, without the time of its creation: that of the end of its computation."""
    proto = message_to_proto(reply)
    proto.metadata.created_at = 0.0
    return np.frombuffer(proto.SerializeToString(), np.uint8)


def reply_of(answer: Answer) -> Message:
    """The reply that came. Raises ProtocolViolation for bytes that are none."""
    try:
        proto = ProtoMessage.FromString(answer.message.tobytes())
        proto.metadata.created_at = answer.created_s
        return message_from_proto(proto)
    except Exception as e:          # of protobuf and of Flower: whatever bytes of a peer may cause
        raise ProtocolViolation(f"no message of Flower: {type(e).__name__}") from None


def answered(answer: Answer) -> str:
    """The name of the message that it replies to, whose records are not decoded for it; "": bytes that are none.

    Protobuf writes the metadata first: a tag, their length in groups of seven bits, and as many bytes.
    """
    raw, length, at = answer.message, 0, 1
    try:
        while at == 1 or raw[at - 1] & 128:
            length |= (int(raw[at]) & 127) << 7 * (at - 1)
            at += 1
        return ProtoMetadata.FromString(raw[at:at + length].tobytes()).reply_to_message_id
    except Exception:               # of protobuf and NumPy: whatever bytes of a peer may cause
        return ""


def _without_content(message: Message) -> Message:
    """The same message, to be serialised without its records."""
    shell = Message.__new__(Message)
    shell.__dict__.update(message.__dict__, _content=RecordDict())
    return shell


def _of_kind(kind: type[T], content: RecordDict) -> dict[str, T]:
    """The records of one kind. Flower's own `config_records` and the like write back what they read, one by one."""
    return {name: record for name, record in content.items() if isinstance(record, kind)}


def kind_of(message: Message) -> type[Call]:
    """The type of a message of Flower's."""
    configs = _of_kind(ConfigRecord, message.content).get(_SECAGG)
    stage = "" if configs is None else str(configs.get(_STAGE, ""))
    if stage in STAGES:
        return STAGES[stage][0]
    return CALLS.get(message.metadata.message_type.partition(".")[0], CALLS["query"])[0]


def label(message: Message, kind: str) -> str:
    """The label under which a message is counted: its phase, if the app names one, or its type with its action."""
    for config in _of_kind(ConfigRecord, message.content).values():
        if PHASE in config:
            return str(config[PHASE])
    category, _, action = message.metadata.message_type.partition(".")
    return f"{kind}.{action}" if action and category in CALLS else kind


def round_of(message: Message) -> str:
    """The app's name of the round that a message belongs to: its server-round, or its group; "": it does not say."""
    for config in _of_kind(ConfigRecord, message.content).values():
        if _ROUND in config:
            return str(config[_ROUND])
    group = message.metadata.group_id
    return group if group != "0" else ""


def arrays(content: RecordDict) -> ArrayRecord | None:
    """The first arrays of a message; None: it has none."""
    return next((record for record in _of_kind(ArrayRecord, content).values() if len(record)), None)


def vector_of(record: ArrayRecord) -> np.ndarray | None:
    """(d,) float32: all arrays of a record, one after the other; None: they are not NumPy's numbers."""
    if any(array.stype != "numpy.ndarray" for array in record.values()):
        return None
    parts = [np.asarray(numbers(array), np.float32).ravel() for array in record.values()]
    return np.concatenate(parts) if parts else None


def unsound(content: RecordDict) -> str:
    """The first array of a message that has a number that is not finite, in words; "": there is none."""
    for name, record in _of_kind(ArrayRecord, content).items():
        vector = vector_of(record)
        if vector is not None and not np.isfinite(vector).all():
            return f"{name}: not finite"
    return ""


def scalars(content: RecordDict) -> dict[str, float]:
    """The metrics of a reply that are plain numbers; of the older API, too, which keeps some of them elsewhere."""
    found = {key: value for record in _of_kind(MetricRecord, content).values()
             for key, value in record.items()}
    found |= _of_kind(ConfigRecord, content).get("evaluateres.metrics", {})
    return {key: float(value) for key, value in found.items() if isinstance(value, (int, float))}


# --- the sender of messages ------------------------------------------------------------------------------------------

def be(run_id: int, node_id: int) -> None:
    """Messages that are made from now on are of this node and run: Flower keeps its identity in the process."""
    if TaskIdentity is not None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = run_id, run_id, node_id


def sent_by(message: Any, run_id: int, node_id: int) -> None:
    """Write run and sender into a message that is sent: in older versions it is made without them."""
    message.metadata.__dict__.update(_run_id=run_id, _src_node_id=node_id)
