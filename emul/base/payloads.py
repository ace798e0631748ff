"""Messages that a run has kept, as they were encoded: one file of `emul.base.entries` a sender.

    payloads/<node>     an entry a message: its `Head` as MessagePack, then its frames

A message to several nodes is one entry. Of a message beyond the room that its sender has, only the head is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from emul.base import entries
from emul.base.entries import EntryError, Frames
from emul.base.files import as_file_name, from_file_name

PAYLOADS = "payloads"


class Head(Struct, array_like=True, gc=False):
    """The facts about a message that are known without reading it. Its copies are numbered first, first + 1, ... in the
    order of `to`."""

    source: int
    first: int
    to: list[int]
    kind: str                       # its type
    round: int                      # of the sender; 0: outside, or of an unscoped type
    sent_ns: int
    size: int                       # bytes that links count
    kept: bool                      # False: there was no room for its frames


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def begin(directory: Path, node: str) -> None:
    """Nothing of `node` is kept yet: what an earlier attempt at the run has left goes."""
    folder = directory / PAYLOADS
    folder.mkdir(exist_ok=True)
    (folder / as_file_name(node)).unlink(missing_ok=True)


def append(directory: Path, node: str, head: Head, frames: Frames) -> None:
    """Leave one message of `node`. Raises OSError, after which nothing more may be left."""
    with (directory / PAYLOADS / as_file_name(node)).open("ab", buffering=0) as file:
        entries.append(file, [_encoder.encode(head), *frames])


def senders(directory: Path) -> list[str]:
    """The nodes of which messages were kept, by name."""
    return sorted(from_file_name(path.name) for path in (directory / PAYLOADS).glob("*"))


def kept(directory: Path, node: str) -> Iterator[tuple[Head, list[memoryview]]]:
    """(head, frames) of every message of `node`, in the order of sending. Raises EntryError, OSError."""
    path = directory / PAYLOADS / as_file_name(node)
    for at, frames in entries.entries(path):
        try:
            head = _decoder.decode(frames[0])
        except (msgspec.MsgspecError, IndexError) as e:
            raise EntryError(f"{path}, byte {at}: no message: {e}") from None
        yield head, frames[1:]
