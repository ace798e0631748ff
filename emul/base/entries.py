"""Files of entries that are appended one by one and survive being cut short.

    file      entry*
    entry     8 bytes length n, 16 bytes BLAKE2b of the n bytes that follow (length little-endian)
              4 bytes number of frames, 8 bytes the length of each, the frames
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from io import FileIO
from pathlib import Path

from emul.base.errors import EmulError
from emul.base.files import regular

Frames = Sequence[bytes | memoryview]

_HEAD = struct.Struct("<Q16s")


class EntryError(EmulError):
    """An entry is not what was written; the text names the file and the byte."""


def entry(frames: Frames) -> bytes:
    """One entry."""
    body = b"".join([struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames)), *frames])
    return _HEAD.pack(len(body), _digest(body)) + body


def append(file: FileIO, frames: Frames) -> None:
    """Append one entry to an unbuffered file. Raises OSError: the disk has taken a part at most, after which nothing
    may stand."""
    left = memoryview(entry(frames))
    while left:
        left = left[file.write(left):]


def entries(path: Path) -> Iterator[tuple[int, list[memoryview]]]:
    """(byte at which it begins, its frames) of every entry; a last one that was cut short is left out.

    Raises EntryError for what is damaged, OSError.
    """
    with regular(path) as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at + _HEAD.size <= size:
            length, digest = _HEAD.unpack(file.read(_HEAD.size))
            if at + _HEAD.size + length > size:         # of what stands there now: somebody may be writing it
                return
            body = memoryview(file.read(length))
            if _digest(body) != digest:
                raise EntryError(f"{path}, byte {at}: the entry's digest is wrong")
            try:
                found = _frames(body)
            except (struct.error, ValueError) as e:
                raise EntryError(f"{path}, byte {at}: no entry: {e}") from None
            yield at, found
            at += _HEAD.size + length


def _digest(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _frames(body: memoryview) -> list[memoryview]:
    count, = struct.unpack_from("<I", body)
    lengths = struct.unpack_from(f"<{count}Q", body, 4)
    at, found = 4 + 8 * count, []
    if at + sum(lengths) != len(body):
        raise ValueError(f"frames of {sum(lengths)} bytes do not fill it")
    for length in lengths:
        found.append(body[at:at + length])
        at += length
    return found
