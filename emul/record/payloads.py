"""Messages that a run has kept (`record: {payloads: ...}`), read back: what observers of it may have seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base import payloads
from emul.base.entries import EntryError, Frames
from emul.base.errors import WireError
from emul.base.files import as_file_name
from emul.base.payloads import Head
from emul.message.wire import Message, decode, from_frames
from emul.record.journal import RecordError
from emul.record.rundir import SEAL, check_seal, plugins_of

if TYPE_CHECKING:
    import pandas as pd

ARRIVED = ("delivered", "late", "rejected")     # fates of copies that their target has seen


@dataclass(frozen=True)
class KeptMessage:
    """A message that was kept, as its receivers get it; `message.sender` is set, arrays are read-only.

    Its copies are the messages (source, seq), (source, seq + 1), ... of the run, in the order of `to`.
    """

    type: str
    source: int
    source_name: str
    seq: int
    to: tuple[int, ...]
    round: int                      # of the sender; 0: outside, or of an unscoped type
    sent_ns: int
    message: Message


def counted(directory: Path, end_ns: int) -> dict[str, dict[str, int]]:
    """{type: {"messages", "bytes", "left_out"}} of what was kept until the end of the run; left out: of messages for
    which there was no room. Raises RecordError."""
    found: dict[str, dict[str, int]] = {}
    for _, head, frames in _all(directory):
        if head.sent_ns <= end_ns:
            of_type = found.setdefault(head.kind, {"messages": 0, "bytes": 0, "left_out": 0})
            of_type["messages" if head.kept else "left_out"] += 1
            of_type["bytes"] += sum(map(len, frames))
    return dict(sorted(found.items()))


def listed(directory: Path, messages: pd.DataFrame) -> pd.DataFrame:
    """A row each message of which something was kept: type, round, source, source_name, seq (of the first copy),
    copies, sent_ns, payload_bytes, kept (False: there was no room). messages: the run's table. Raises RecordError."""
    import pandas as pd

    sent = set(zip(messages.source.tolist(), messages.seq.tolist(), strict=True))
    found = [(head.kind, head.round, head.source, name, head.first, len(head.to), head.sent_ns, head.size, head.kept)
             for name, head, _ in _all(directory) if (head.source, head.first) in sent]
    return pd.DataFrame(found, columns=["type", "round", "source", "source_name", "seq", "copies", "sent_ns",
                                        "payload_bytes", "kept"]).sort_values(["sent_ns", "source", "seq"],
                                                                              ignore_index=True)


def chosen(directory: Path, scheme: str, messages: pd.DataFrame, kind: str, round_: int | None = None,
           source: str | None = None, to: str | None = None, plugins: Sequence[str] | None = None) -> list[KeptMessage]:
    """Messages of a type that were kept whole, in the order of sending: of one round, of one sender, or those of which
    a copy has come to a node, in time or not.

    plugins: the modules that the run was made with. Raises RecordError.
    """
    from emul.registry import schemes  # here: the tables of a run are read without its scheme

    seen = messages[messages.type == kind]
    if to is not None:
        seen = seen[(seen.target_name == to) & seen.fate.isin(ARRIVED)]
    copies = set(zip(seen.source.tolist(), seen.seq.tolist(), strict=True))
    types = schemes.find(scheme, plugins_of(directory, plugins)).types
    found = []
    for name, head, frames in _all(directory, source):
        there = any((head.source, head.first + i) in copies for i in range(len(head.to)))
        if head.kind == kind and head.kept and there and round_ in (None, head.round):
            found.append(KeptMessage(kind, head.source, name, head.first, tuple(head.to), head.round, head.sent_ns,
                                     _message(directory, name, head, frames, types)))
    return sorted(found, key=lambda one: (one.sent_ns, one.source, one.seq))


def _all(directory: Path, source: str | None = None) -> Iterator[tuple[str, Head, list[memoryview]]]:
    """(name of the sender, head, frames) of all that was kept, or of one sender's."""
    for name in payloads.senders(directory):
        if source in (None, name):
            if (directory / SEAL).is_file():
                check_seal(directory, [f"{payloads.PAYLOADS}/{as_file_name(name)}"])
            try:
                for head, frames in payloads.kept(directory, name):
                    yield name, head, frames
            except EntryError as e:
                raise RecordError(str(e)) from None
            except OSError as e:
                raise RecordError(f"{e.filename}: {e.strerror}") from None


def _message(directory: Path, name: str, head: Head, frames: Frames, types: dict[str, type[Message]]) -> Message:
    try:
        message = decode(from_frames(frames), types)
    except WireError as e:
        raise RecordError(f"{directory / payloads.PAYLOADS}: message {head.first} of {name}: {e}") from None
    object.__setattr__(message, "sender", head.source)
    return message
