"""Append-only files of entries, each with a checksum. One process writes a segment, any number read it.

    file    MAGIC, entries
    entry   key 16 bytes, length 8 bytes, check 8 bytes (xxh3 of key and payload), payload
    filler  an entry with the key FILLER: what follows it begins at a page

Large blocks go to the disk past the page cache where the system can do so (O_DIRECT): finding pages for them costs up
to ten times what the write does. A writer that is killed leaves a torn last entry, which readers leave alone: it may
still be growing. No entry is flushed to the disk by itself; a power cut may cost the newest ones, never the store.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from emul.store.keys import KEY_BYTES

SUFFIX = ".segment"
MAGIC = b"emul store 1\n\0\0\0"
_HEAD = struct.Struct(f"<{KEY_BYTES}sQQ")
_NOTHING = bytes(_HEAD.size)        # of a file with a hole, which would hold some 10^8 entries without a byte
FILLER = b"emul filler".ljust(KEY_BYTES, b"\0")
_DIRECT_BYTES = 256 * 1024          # from so many on a block is written past the page cache
_DIRECT: int = getattr(os, "O_DIRECT", 0)

Parts = Sequence[bytes | memoryview]


@dataclass(frozen=True)
class Damage:
    """A place of a segment that does not hold what was written."""

    path: Path
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}: byte {self.offset}: {self.why}"


def _check(key: bytes, payload: bytes | memoryview) -> int:
    digest = xxhash.xxh3_64(key)
    digest.update(payload)
    return digest.intdigest()


class SegmentBuffer:
    """Entries side by side in memory as a segment has them, but for their checks, which `SegmentWriter` adds."""

    # A thread writes it past the page cache: a virtual machine that has to find new pages for 5 MB takes 3 to 11 ms for
    # it, the write itself 1.5 ms (`test_large_blocks_go_past_the_page_cache_where_the_system_takes_them`).

    def __init__(self, capacity: int):
        self.view = memoryview(mmap.mmap(-1, capacity))     # begins at a page, as O_DIRECT demands
        self.size = 0
        self.entries: list[tuple[bytes, int, int]] = []     # key, where the payload begins, its length

    def has_room(self, length: int) -> bool:
        return self.size + _HEAD.size + length <= len(self.view)

    def add(self, key: bytes, parts: Parts) -> tuple[int, int]:
        """Copy the parts, bytes or views of bytes, one after another: (where the payload begins, its length)."""
        begin = end = self.size + _HEAD.size
        for part in parts:
            self.view[end:end + len(part)] = part
            end += len(part)
        self.entries.append((key, begin, end - begin))
        self.size = end
        return begin, end - begin

    def seal(self) -> None:
        for key, begin, length in self.entries:
            check = _check(key, self.view[begin:begin + length])
            _HEAD.pack_into(self.view, begin - _HEAD.size, key, length, check)

    def clear(self) -> None:
        self.size = 0
        self.entries = []

    @staticmethod
    def bytes_of(length: int) -> int:
        """The bytes that an entry with that payload takes."""
        return _HEAD.size + length


class SegmentWriter:
    """Appends to a new file. Raises OSError where that cannot be made or written."""

    def __init__(self, path: Path):
        self.path = path
        self.size = 0
        self._direct = bool(_DIRECT)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            self._write(memoryview(MAGIC))
        except OSError:
            os.close(self._file)
            with suppress(OSError):
                path.unlink()
            raise

    def append(self, block: SegmentBuffer, direct: bool = True) -> int:
        """Append a block and return the position where it begins. direct: past the page cache, where that can be done
        and is worth it.

        After an OSError the file ends with the block before, where the system still lets it be cut, and takes no more.
        """
        sound = self.size
        try:
            return self._append(block, direct)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, sound)
            raise

    def _append(self, block: SegmentBuffer, direct: bool) -> int:
        block.seal()
        paged = 0
        if direct and self._direct and block.size >= _DIRECT_BYTES:
            # go on at the next page that leaves room for the filler
            length = -(self.size + _HEAD.size) % mmap.PAGESIZE
            self._write(memoryview(_HEAD.pack(FILLER, length, _check(FILLER, bytes(length))) + bytes(length)))
            paged = block.size // mmap.PAGESIZE * mmap.PAGESIZE
        begin = self.size
        if paged and not self._write_directly(block.view[:paged]):
            paged = 0
        self._write(block.view[paged:block.size])
        return begin

    def _write_directly(self, whole_pages: memoryview) -> bool:
        """True if the file system can do so; nothing is written if not."""
        flags, begin = fcntl.fcntl(self._file, fcntl.F_GETFL), self.size
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | _DIRECT)
            self._write(whole_pages)
        except OSError as e:
            if e.errno != errno.EINVAL or self.size != begin:
                raise
            self._direct = False
        finally:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags)
        return self._direct

    def _write(self, data: memoryview) -> None:
        while data:
            written = os.write(self._file, data)
            self.size += written
            data = data[written:]

    def close(self) -> None:
        os.close(self._file)


class Segment:
    """One file, read. `scan` finds the entries that have come since it was last called.

    It is opened each time anew, in 5 us: a store has more segments than a process may hold files open. Raises OSError.
    """

    # Files that one process appends to, and no database: a file with fsync for each training costs a third of a small
    # training. Nothing is flushed entry by entry, since a lost entry is computed again. Whole segments go, the least
    # recently used first (`test_a_torn_end_costs_the_last_entry_alone`).

    def __init__(self, path: Path):
        self.path = path
        self._scanned = 0                   # bytes

    def scan(self) -> Iterator[tuple[bytes, int, int]]:
        """(key, offset of the payload, its length) of each entry that is whole. Payloads are not read.

        A file that is no segment has none: its first bytes are another's.
        """
        with self._opened() as file:
            yield from (entry for entry in self._entries(file) if entry[0] != FILLER)

    def _entries(self, file: int) -> Iterator[tuple[bytes, int, int]]:
        size = os.fstat(file).st_size
        if not self._scanned:
            if size < len(MAGIC) or os.pread(file, len(MAGIC), 0) != MAGIC:
                return
            self._scanned = len(MAGIC)
        while self._scanned + _HEAD.size <= size:
            head = os.pread(file, _HEAD.size, self._scanned)
            key, length, _ = _HEAD.unpack(head)
            begin = self._scanned + _HEAD.size
            if begin + length > size or head == _NOTHING:
                return                      # torn, or still being written
            self._scanned = begin + length
            yield key, begin, length

    def read(self, key: bytes, offset: int, length: int) -> bytes | None:
        """The payload, or None if the file does not hold it any more as it was written."""
        with self._opened() as file:
            head = os.pread(file, _HEAD.size, offset - _HEAD.size)
            payload = os.pread(file, length, offset)
        if len(head) != _HEAD.size or len(payload) != length or head != _HEAD.pack(key, length, _check(key, payload)):
            return None
        return payload

    def verify(self) -> Iterator[Damage]:
        """Read everything. A torn end of the file is damage here, for whoever asks when nobody writes."""
        with self._opened() as file:
            size, end = os.fstat(file).st_size, len(MAGIC)
            if os.pread(file, end, 0) != MAGIC:
                yield Damage(self.path, 0, "not a segment of a store")
                return
            for key, offset, length in Segment(self.path)._entries(file):   # all, whatever was scanned before
                if self.read(key, offset, length) is None:
                    yield Damage(self.path, offset, f"an entry of {length} bytes does not match its checksum")
                end = offset + length
        if end != size:
            yield Damage(self.path, end, f"torn: {size - end} bytes are no whole entry")

    @property
    def used_at(self) -> float:
        """Seconds since the epoch: when an entry was last written or used."""
        return self.path.stat().st_mtime

    def touch(self) -> None:
        """Note that it was used: the least recently used segments go first."""
        os.utime(self.path)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)      # to open a pipe would wait for ever
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "expected a regular file", str(self.path))
            yield file
        finally:
            os.close(file)
