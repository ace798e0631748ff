"""A folder of segments: what is known by key, what is written in the background, what goes when there is too much."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from emul.base.errors import InputError
from emul.store.segments import SUFFIX, Damage, Parts, Segment, SegmentBuffer, SegmentWriter

LIMIT_BYTES = 20 * 10**9            # of a store, before what was not used for longest goes
_SEGMENT_BYTES = 64 * 2**20         # from so many on a new segment begins: whole segments are evicted
_WAITING_BYTES = 64 * 2**20         # of entries not yet written; `put` waits beyond
_BEHIND_BYTES = 16 * 2**20          # of them: the disk is slower than what comes
_BLOCK_BYTES = 2**20                # written at once, or what has come within
_HELD_S = 0.05
_FREE_BLOCKS = 2                    # kept for the next entries: to touch new memory takes as long as to copy
_LEFT_FREE = 256 * 2**20            # of a disk, or a twentieth of a smaller one: what is stored can be computed again,
_LEFT_SHARE = 20                    # the journal of a run that shares the disk can not
_TOUCHED_S = 30.0                   # a segment's time of use is as old as that at most


class StoreError(InputError):
    """A store cannot be opened: its folder is none, or may not be read or made."""


T = TypeVar("T")
Place = tuple[Segment, int, int]    # of an entry: its segment, offset and length of the payload


class Store:
    """Entries by key. `own` is written to, `others` are only read.

    A failure to write (disk full) is no error of the caller's: storing ends, and `failure` says why. limit_bytes: of
    `own`, when it is opened; None: whatever there is. Not for several threads. Raises StoreError.
    """

    def __init__(self, own: Path | None, others: Sequence[Path] = (), limit_bytes: int | None = None):
        self.found = self.missed = self.stored = 0          # entries
        self._own, self._others = own, list(others)
        self._segments: dict[Path, Segment] = {}
        self._touched: dict[Path, float] = {}
        self._entries: dict[bytes, Place] = {}
        self._writer = None if own is None else _Writer(own, self._entries)
        if own is not None:
            try:
                own.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                if e.errno not in (errno.ENOSPC, errno.EDQUOT) or self._writer is None:
                    raise StoreError(f"{own}: no folder for a store: {e.strerror}") from None
                self._writer.fail(e)
            else:
                if limit_bytes is not None:
                    clean(own, limit_bytes)
        self.refresh()

    @property
    def failure(self) -> str:
        """The reason why nothing more is stored; "" while all is well."""
        return "" if self._writer is None else self._writer.failure

    def refresh(self) -> None:
        """Look for what other processes have written since."""
        for folder in [*self._others, *([] if self._own is None else [self._own])]:
            for path in _segments(folder):
                with contextlib.suppress(OSError):          # evicted in this moment, or nobody else's to read
                    segment = self._segments.setdefault(path, Segment(path))
                    for key, offset, length in segment.scan():
                        self._entries[key] = segment, offset, length

    def get(self, key: bytes) -> bytes | None:
        """The payload, or None: it is not there, or damaged."""
        payload = None if self._writer is None else self._writer.get(key)
        if payload is None:
            payload = self._read(key)
        if payload is None:
            self.missed += 1
        else:
            self.found += 1
        return payload

    def _read(self, key: bytes) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        segment, offset, length = entry
        try:
            payload = segment.read(key, offset, length)
        except OSError:                                     # evicted by another process
            payload = None
        if payload is None:
            del self._entries[key]
            return None
        now = time.monotonic()
        if now - self._touched.get(segment.path, -_TOUCHED_S) >= _TOUCHED_S:
            self._touched[segment.path] = now
            with contextlib.suppress(OSError):              # a store that may only be read
                segment.touch()
        return payload

    def put(self, key: bytes, *parts: bytes | memoryview) -> None:
        """Keep the parts, bytes or views of bytes, as one payload, unless it is there. They are copied, and written by
        a thread; waits where that is behind."""
        if self._writer is not None and key not in self._entries and self._writer.put(key, parts):
            self.stored += 1

    def close(self) -> None:
        """Write what waits. The store can only be thrown away afterwards."""
        if self._writer is not None:
            self._writer.close()
        self._segments.clear()
        self._entries.clear()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class _Writer:
    """Writes entries, in a thread that begins with the first one; `entries` learns where they are.

    They are copied into a block, which the thread takes once it is full or has waited for long enough.
    """

    def __init__(self, folder: Path, entries: dict[bytes, Place]):
        self.failure = ""
        self.waiting: dict[bytes, tuple[SegmentBuffer, int, int]] = {}      # an entry goes once `entries` has it
        self._folder, self._entries = folder, entries
        self._changed = threading.Condition()
        self._open: SegmentBuffer | None = None     # the one that grows
        self._full: deque[SegmentBuffer] = deque()
        self._free: list[SegmentBuffer] = []
        self._bytes = 0                             # waiting
        self._closing = False
        self._thread: threading.Thread | None = None
        self._segment: Segment | None = None        # the segment that it writes, to be read

    def get(self, key: bytes) -> bytes | None:
        """The payload of an entry that waits."""
        with self._changed:
            found = self.waiting.get(key)
            if found is None:
                return None
            block, begin, length = found
            return bytes(block.view[begin:begin + length])

    def put(self, key: bytes, parts: Parts) -> bool:
        """True if it will be written: not if it waits already, nor after a failure."""
        length = sum(map(len, parts))
        with self._changed:
            while self._bytes > _WAITING_BYTES and not self.failure:
                self._changed.wait()
            if self.failure or key in self.waiting:
                return False
            idle = not self.waiting
            try:
                block = self._with_room(length)
            except OSError as e:                    # no memory for one more
                self.fail(e)
                return False
            self.waiting[key] = block, *block.add(key, parts)
            self._bytes += length
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="emul-store", daemon=True)
                self._thread.start()
            if idle or self._full:                  # else it will look by itself: to wake it costs 20 us
                self._changed.notify_all()
        return True

    def _with_room(self, length: int) -> SegmentBuffer:
        if self._open is not None and not self._open.has_room(length):
            self._full.append(self._open)
            self._open = None
        if self._open is None:
            fitting = (block for block in self._free if block.has_room(length))
            self._open = next(fitting, None) or SegmentBuffer(max(_BLOCK_BYTES, SegmentBuffer.bytes_of(length)))
            self._free = [block for block in self._free if block is not self._open]
        return self._open

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        with contextlib.ExitStack() as stack:
            segment: SegmentWriter | None = None
            try:
                while block := self._next():
                    self._require_room(block.size)
                    if segment is None or segment.size > _SEGMENT_BYTES:
                        stack.close()               # the one before
                        # a name unlike that of any process on any machine that shares the folder
                        name = f"{time.time_ns():x}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
                        segment = SegmentWriter(self._folder / name)
                        stack.callback(segment.close)
                        self._segment = Segment(segment.path)
                    behind = self._bytes > _BEHIND_BYTES        # then the page cache may take it
                    self._written(block, segment.append(block, direct=not behind))
            except Exception as e:          # any: `put` must not wait for a thread that has gone
                self.fail(e)

    def _next(self) -> SegmentBuffer | None:
        """The next buffer that is full, or has waited long enough. None: there will be no more."""
        with self._changed:
            while not self.waiting and not self._closing:
                self._changed.wait()
            self._changed.wait_for(lambda: self._closing or self._full, _HELD_S)
            if self._full:
                return self._full.popleft()
            block, self._open = self._open, None
            return block

    def _written(self, block: SegmentBuffer, at: int) -> None:
        assert self._segment is not None
        with self._changed:
            for key, begin, length in block.entries:
                self._entries[key] = self._segment, at + begin, length
                del self.waiting[key]
                self._bytes -= length
            block.clear()
            self._free = sorted([*self._free, block], key=lambda block: len(block.view))[-_FREE_BLOCKS:]
            self._changed.notify_all()

    def _require_room(self, size: int) -> None:
        """Raises OSError before the last of the disk is taken."""
        disk = os.statvfs(self._folder)
        left = disk.f_bavail * disk.f_frsize - size
        if left < min(_LEFT_FREE, disk.f_blocks * disk.f_frsize // _LEFT_SHARE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(self, error: Exception) -> None:
        """Nothing more is stored."""
        with self._changed:
            self.failure = (f"{self._folder}: {getattr(error, 'strerror', None) or repr(error)}: nothing more is "
                            "stored")
            self.waiting.clear()
            self._open, self._bytes = None, 0
            self._full.clear()
            self._changed.notify_all()


def _segments(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except FileNotFoundError:
        return []
    except OSError as e:
        raise StoreError(f"{folder}: cannot be read as a store: {e.strerror}") from None


# --- what `emul store` asks -----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class StoreSummary:
    segments: int
    entries: int
    size_bytes: int
    oldest: float | None            # seconds since the epoch at which the segment that goes first was used; None: none


def summary(folder: Path) -> StoreSummary:
    """The content of a store. Raises StoreError."""
    found = list(_of_each(folder, lambda segment: (sum(1 for _ in segment.scan()), segment.path.stat().st_size,
                                                   segment.used_at)))
    entries, sizes, used = zip(*found, strict=True) if found else ((), (), ())
    return StoreSummary(len(found), sum(entries), sum(sizes), min(used, default=None))


def verify(folder: Path) -> Iterator[Damage]:
    """Read every entry. Raises StoreError."""
    for damages in _of_each(folder, lambda segment: list(segment.verify())):
        yield from damages


@dataclass(frozen=True)
class Clean:
    removed: int                    # segments
    freed_bytes: int
    left_bytes: int


def clean(folder: Path, limit_bytes: int = LIMIT_BYTES) -> Clean:
    """Remove whole segments, the least recently used first, until at most `limit_bytes` are left. Raises StoreError."""
    found = sorted(_of_each(folder, lambda segment: (segment.used_at, segment.path.stat().st_size, segment.path)),
                   reverse=True)
    left = removed = freed = 0
    for _, size, path in found:
        if left + size <= limit_bytes and not removed:
            left += size
        else:                                   # and all that were used before it
            path.unlink(missing_ok=True)
            removed, freed = removed + 1, freed + size
    return Clean(removed, freed, left)


def _of_each(folder: Path, look: Callable[[Segment], T]) -> Iterator[T]:
    """The result of `look` for each segment, but for those that are evicted meanwhile. Raises StoreError."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: expected the folder of a store")
    for path in _segments(folder):
        try:
            yield look(Segment(path))
        except FileNotFoundError:
            continue
        except OSError as e:
            raise StoreError(f"{path}: {e.strerror}") from None
