"""Append-only files of entries, each with a checksum. One process writes a segment, any number read it.

    file    MAGIC, entries
    entry   key 16 bytes, length 8 bytes, check 8 bytes (xxh3 of key and payload), payload

A writer that is killed leaves a torn last entry, which readers leave alone: it may still be growing. No entry is
flushed to the disk by itself; a power cut may cost the newest ones, never the store.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from emul.store.keys import KEY_BYTES

SUFFIX = ".segment"
MAGIC = b"emul store 1\n\0\0\0"
_HEAD = struct.Struct(f"<{KEY_BYTES}sQQ")
_PARTS = 512                        # of one call: the system takes at most 1024


@dataclass(frozen=True)
class Damage:
    """A place of a segment that does not hold what was written."""

    path: Path
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}: byte {self.offset}: {self.why}"


def _check(key: bytes, payload: bytes) -> int:
    digest = xxhash.xxh3_64(key)
    digest.update(payload)
    return digest.intdigest()


class SegmentWriter:
    """Appends to a new file. Raises OSError where that cannot be made or written."""

    def __init__(self, path: Path):
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._write([MAGIC])

    def append(self, entries: Sequence[tuple[bytes, bytes]]) -> list[int]:
        """(key, payload) each; the offsets of the payloads. A short write is an OSError and leaves a torn end."""
        offsets, parts, at = [], [], self.size
        for key, payload in entries:
            parts += [_HEAD.pack(key, len(payload), _check(key, payload)), payload]
            offsets.append(at + _HEAD.size)
            at += _HEAD.size + len(payload)
        for start in range(0, len(parts), _PARTS):
            self._write(parts[start:start + _PARTS])
        return offsets

    def _write(self, parts: Sequence[bytes]) -> None:
        size = sum(map(len, parts))
        written = os.writev(self._file, parts)
        if written != size:
            raise OSError(errno.ENOSPC, f"{written} of {size} bytes could be written to {self.path}")
        self.size += size

    def close(self) -> None:
        os.close(self._file)


class Segment:
    """One file, read. `scan` finds the entries that have come since it was last called."""

    def __init__(self, path: Path):
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._scanned = 0                   # bytes

    def scan(self) -> Iterator[tuple[bytes, int, int]]:
        """(key, offset of the payload, its length) of each entry that is whole. Payloads are not read.

        A file that is no segment has none: its first bytes are another's.
        """
        size = os.fstat(self._file).st_size
        if not self._scanned:
            if size < len(MAGIC) or os.pread(self._file, len(MAGIC), 0) != MAGIC:
                return
            self._scanned = len(MAGIC)
        while self._scanned + _HEAD.size <= size:
            key, length, _ = _HEAD.unpack(os.pread(self._file, _HEAD.size, self._scanned))
            begin = self._scanned + _HEAD.size
            if begin + length > size:
                return                      # torn, or still being written
            yield key, begin, length
            self._scanned = begin + length

    def read(self, key: bytes, offset: int, length: int) -> bytes | None:
        """The payload, or None if the file does not hold it any more as it was written."""
        head = os.pread(self._file, _HEAD.size, offset - _HEAD.size)
        payload = os.pread(self._file, length, offset)
        if len(head) != _HEAD.size or len(payload) != length or head != _HEAD.pack(key, length, _check(key, payload)):
            return None
        return payload

    def verify(self) -> Iterator[Damage]:
        """Read everything. A torn end of the file is damage here, for whoever asks when nobody writes."""
        size = os.fstat(self._file).st_size
        if os.pread(self._file, len(MAGIC), 0) != MAGIC:
            yield Damage(self.path, 0, "not a segment of a store")
            return
        end = len(MAGIC)
        for key, offset, length in Segment(self.path).scan():
            if self.read(key, offset, length) is None:
                yield Damage(self.path, offset, f"an entry of {length} bytes does not match its checksum")
            end = offset + length
        if end != size:
            yield Damage(self.path, end, f"torn: {size - end} bytes are no whole entry")

    @property
    def used_at(self) -> float:
        """Seconds since the epoch: when an entry was last written or used."""
        return os.fstat(self._file).st_mtime

    def touch(self) -> None:
        """Note that it was used: the least recently used segments go first."""
        os.utime(self._file)

    def close(self) -> None:
        os.close(self._file)
