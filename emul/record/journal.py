"""The journal: every row that the kernel writes, on disk while the run goes on.

    file      frame*
    frame     4 bytes length n, 4 bytes CRC-32 of the blob (both little-endian), n bytes blob, MessagePack
    blobs     a map: the header (first frame); arrays of rows; maps: what was observed, as it came; a map: the end,
              with the count of rows, the digest, and the bytes of background traffic by link, if links carried some

A frame is written whole and at once, so a killed run keeps all but its last rows; its journal has no end frame. Tables
come after the run: a Parquet file that was not closed cannot be read, and whether a copy was late is known long after
it was sent. Observations lie in the same file, since two files would be flushed and torn apart from each other.
The digest, which `emul.record.summary: digest_of_run` joins with that of the models, is taken over the rows' encodings
one after the other, without header, observations and frames: it depends on the rows alone, not on when they were
flushed. Of a run that cannot repeat itself (the header says `deterministic:
false`) it leaves out the values that nodes reported, and the digests of their models.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from emul.base import rows
from emul.base.errors import InputError, NotRecorded
from emul.base.files import strerror
from emul.base.plain import PlainDict
from emul.base.rows import Row
from emul.record.side_tables import LinkTotal
from emul.roles.events import Observation

FORMAT = 1
DIGEST_BYTES = 16

_CHUNK = 4096                       # rows in a frame, at most
_WAITS_S = 1.0                      # real seconds after which the end of a round writes even a few
_WORTH_A_FRAME = 256                # rows that wait at the end of a round; fewer go with the next ones
_FRAME = struct.Struct("<II")
_LARGEST_BLOB = 1 << 30


class RecordError(InputError):
    """A file of a run directory is not what emul wrote; the text names the file and the place."""


@contextlib.contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Inside the block files of a run are put together that could be read one by one: RecordError where they do not fit
    each other, as those of another emul, or of a stranger who has made them up."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as e:
        raise RecordError(f"{path}: its files do not fit each other: {type(e).__name__}: {e}") from e


def _plain(value: object) -> Any:
    """NumPy scalars, where a role reported one, as Python numbers."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"a journal row holds a {type(value).__name__}, which is no plain value")
    return item()


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decode = msgspec.msgpack.Decoder().decode
_decode_rows = msgspec.msgpack.Decoder(list[tuple]).decode
_UNDECODABLE = (ValueError, RecursionError)         # also of text that is no UTF-8, and of lists in lists without end
_BACKGROUND = "background"          # a key of the end: links, as `LinkTotal`
_OBSERVED = "observed"              # the one key of a map: [node, round, {name: value}] each


def repeats(header: Mapping[str, object]) -> bool:
    """True if a run under this header comes out again value by value, or only in what its nodes decide."""
    return bool(header.get("deterministic", True))


def decisions(found: Sequence[Row]) -> list[Row]:
    """The rows without the values that nodes reported, and without the digests of their models."""
    return [(*row[:4], {}, "") if row[0] == rows.REPORT else row for row in found]


def _digested(found: Sequence[Row], blob: bytes, whole: bool) -> memoryview:
    """The part of rows, encoded as `blob`, that goes into the digest: their encodings one after the other. `whole`: of
    all that they say."""
    counted = blob if whole else encode(decisions(found))
    # without the head of the array, which says how many rows there are: 1, 3 or 5 bytes
    return memoryview(counted)[1 if counted[0] & 0xF0 == 0x90 else 3 if counted[0] == 0xDC else 5:]


class Journal:
    """Writes the rows of one run to a new file at `path`.

    `header`: plain values; names, roles, vertices and deciders by node, the network's vertex names, seed, scheme.
    Raises FileExistsError: a journal is never overwritten.
    """

    def __init__(self, path: Path, header: Mapping[str, object]):
        self.path = path
        self.header = {"format": FORMAT, **header}
        self.count = 0                              # rows flushed
        self._digest, self._whole = blake2b(digest_size=DIGEST_BYTES), repeats(header)
        self._waiting: list[Row] = []
        self._flushed = time.monotonic()
        self.failure = ""                           # the reason why nothing more can be written
        self._size = 0                              # bytes of whole frames
        self._file: FileIO | None = path.open("xb", buffering=0)
        self._write(encode(self.header))

    def append(self, row: Row) -> None:
        """Take the next row. It is written with others."""
        self.extend((row,))

    def extend(self, found: Sequence[Row]) -> None:
        """Take the next rows, in their order."""
        self._waiting.extend(found)
        while len(self._waiting) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        waiting = self._waiting[:_CHUNK]
        self._flushed = time.monotonic()
        if not waiting:
            return
        blob = encode(waiting)
        self.count += len(waiting)
        self._digest.update(_digested(waiting, blob, self._whole))
        del self._waiting[:_CHUNK]
        self._write(blob)

    def _write(self, blob: bytes) -> None:
        if self.failure:
            raise NotRecorded(self.failure)
        if self._file is None:
            raise RecordError(f"{self.path}: the journal is closed")
        frame = _FRAME.pack(len(blob), zlib.crc32(blob)) + blob
        left = memoryview(frame)
        try:
            while left:                 # a disk that gets full takes a part
                left = left[self._file.write(left):]
        except OSError as e:
            self.failure = f"{self.path}: {strerror(e)}; the rows before are kept"
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)     # no frame may come to stand behind half of one
            raise NotRecorded(self.failure) from None
        self._size += len(frame)

    def observed(self, seen: Sequence[Observation]) -> None:
        """Write what was observed, off the clock, at once: it is no part of the digest."""
        self._write(encode({_OBSERVED: [(one.node, one.round, one.values) for one in seen]}))

    def round_ended(self) -> None:
        """Write what waits, if it is worth a frame or has waited long: a watcher sees the run go on, and a run that is
        killed has lost no more than its last second."""
        if len(self._waiting) >= _WORTH_A_FRAME or time.monotonic() - self._flushed >= _WAITS_S:
            self._flush()

    def close(self, complete: bool = True, background: Sequence[LinkTotal] = ()) -> str:
        """The digest of all rows, in hex. `complete` False (the run failed): the file gets no end frame.

        background: bytes on the links, for the end frame; no part of the digest. Raises NotRecorded, unless `complete`
        is False.
        """
        if self._file is not None:
            file = self._file
            try:
                with contextlib.suppress(*(() if complete else (NotRecorded,))):    # then something else is told of
                    self._flush()
                if complete:
                    self._write(encode({"rows": self.count, "digest": self._digest.hexdigest(),
                                        **({_BACKGROUND: background} if background else {})}))
            finally:                    # on a full disk, too, and not again
                self._file = None
                self._waiting.clear()
                with contextlib.suppress(OSError):
                    file.close()
        return self._digest.hexdigest()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(complete=kind is None)


class MemoryJournal:
    """A journal without a file: the same rows, the same digest."""

    def __init__(self, header: Mapping[str, object] | None = None):
        self.header = {"format": FORMAT, **(header or {})}
        self.rows: list[Row] = []

    def append(self, row: Row) -> None:
        """Take the next row."""
        self.rows.append(row)

    def extend(self, found: Sequence[Row]) -> None:
        """Take the next rows, in their order."""
        self.rows.extend(found)

    @property
    def count(self) -> int:
        return len(self.rows)

    def round_ended(self) -> None:
        """Nothing: there is no file that waits."""

    def observed(self, seen: Sequence[Observation]) -> None:
        """Nothing: whoever runs it has what was observed."""

    def close(self, complete: bool = True) -> str:
        """The digest; `complete` is for a journal with a file."""
        return digest_of(self.rows, repeats(self.header))


def digest_of(found: Sequence[Row], whole: bool = True) -> str:
    """The digest that a journal of these rows has. `whole` False: of a run that cannot repeat itself."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for start in range(0, len(found), _CHUNK):
        some = found[start:start + _CHUNK]
        digest.update(_digested(some, encode(some), whole))
    return digest.hexdigest()


class Reading(Iterator[Row]):
    """The rows of a journal, in order. Iterate it over rows, or take `chunks()`, which is faster.

    header      what the journal was opened with
    complete    known once everything is read: whether the journal was closed; False for a run that was killed
    digest      as the end frame states it; "" where there is none. With `sums` the rows have it, or it is an error
    torn        known once everything is read: bytes after the last whole frame, of one that was cut short
    observed    as far as it is read: (node, round, values), in the order in which they came
    background  known once everything is read: bytes of background traffic by link

    more: asked where the file ends; True: look again, for somebody is writing it.
    """

    def __init__(self, path: Path, sums: bool = True, more: Callable[[], bool] | None = None):
        self.path = path
        self._sums, self._more = sums, more
        self.complete = False
        self.digest = ""
        self.count = 0
        self.torn = 0
        self.observed: list[tuple[int, int, dict[str, float]]] = []
        self.background: list[LinkTotal] = []
        if path.exists() and not path.is_file():        # to open a pipe would wait for ever
            raise RecordError(f"{path}: expected a regular file")
        self._summed = blake2b(digest_size=DIGEST_BYTES)
        self._blobs = self._whole_frames()
        self.header = self._read_header()
        self._rows: Iterator[Row] = (row for chunk in self.chunks() for row in chunk)

    def _read_header(self) -> dict[str, object]:
        offset, blob = next(self._blobs, (0, b""))
        found = _try_decode(blob, self.path, offset) if blob else None
        if not isinstance(found, dict) or "format" not in found:
            raise RecordError(f"{self.path}, byte {offset}: no journal of emul: its header is missing")
        if found["format"] != FORMAT:
            raise RecordError(f"{self.path}: a journal of format {found['format']}; this emul reads format {FORMAT}")
        return found

    def chunks(self) -> Iterator[list[Row]]:
        """Lists of rows, as they were flushed; in a chunk nested tuples come back as lists."""
        for offset, blob in self._blobs:
            if self.complete:
                raise RecordError(f"{self.path}, byte {offset}: the journal goes on after its end")
            if blob[0] & 0xF0 == 0x90 or blob[0] in (0xDC, 0xDD):       # an array is rows, a map something else
                try:
                    chunk = _decode_rows(blob)
                except _UNDECODABLE as error:
                    raise RecordError(f"{self.path}, byte {offset}: no rows of a journal: {error}") from error
                self.count += len(chunk)
                self._summed.update(_digested(chunk, blob, repeats(self.header)))
                yield chunk
            else:
                found = _try_decode(blob, self.path, offset)
                if isinstance(found, dict) and _OBSERVED in found:
                    self._observe(offset, found[_OBSERVED])
                else:
                    self._end(offset, found)
        if self.complete and self.torn:
            raise RecordError(f"{self.path}: {self.torn} bytes stand after the end of the journal")

    def _observe(self, offset: int, found: object) -> None:
        try:
            self.observed += msgspec.convert(found, list[tuple[int, int, dict[str, float]]])
        except msgspec.ValidationError as error:
            raise RecordError(f"{self.path}, byte {offset}: no observations: {error}") from None

    def _end(self, offset: int, found: object) -> None:
        if not isinstance(found, dict) or "rows" not in found or "digest" not in found:
            raise RecordError(f"{self.path}, byte {offset}: neither rows nor the end of a journal")
        if found["rows"] != self.count:
            raise RecordError(f"{self.path}, byte {offset}: the journal ends after {self.count} rows, "
                              f"{found['rows']} were written")
        if self._sums and found["digest"] != self.summed:
            raise RecordError(f"{self.path}, byte {offset}: the rows have the digest {self.summed}, "
                              f"{found['digest']} was written")
        try:
            self.background = msgspec.convert(found.get(_BACKGROUND, []), list[LinkTotal])
        except msgspec.ValidationError as error:
            raise RecordError(f"{self.path}, byte {offset}: no bytes of background traffic: {error}") from None
        self.digest = found["digest"]
        self.complete = True

    def _whole_frames(self) -> Iterator[tuple[int, bytes]]:
        """(offset, blob) of every whole frame; a last one that was cut short is `torn`, a wrong one raises."""
        with self.path.open("rb") as file:
            offset = 0
            while True:
                end = os.fstat(file.fileno()).st_size
                for blob in self._frames_until(file, offset, end):
                    yield offset, blob
                    offset += _FRAME.size + len(blob)
                if self._more is None or not self._more():
                    break
            self.torn = end - offset

    def _frames_until(self, file: BinaryIO, offset: int, end: int) -> Iterator[bytes]:
        file.seek(offset)
        while offset + _FRAME.size <= end:
            length, crc = _FRAME.unpack(file.read(_FRAME.size))
            if not 0 < length <= _LARGEST_BLOB:
                raise RecordError(f"{self.path}, byte {offset}: a frame of {length} bytes cannot be")
            if offset + _FRAME.size + length > end:
                return
            blob = file.read(length)
            if zlib.crc32(blob) != crc:
                raise RecordError(f"{self.path}, byte {offset}: the frame's checksum is wrong")
            yield blob
            offset += _FRAME.size + length

    @property
    def summed(self) -> str:
        """The digest of the rows read so far."""
        return self._summed.hexdigest()

    def __next__(self) -> Row:
        return next(self._rows)


def _try_decode(blob: bytes, path: Path, offset: int) -> object:
    try:
        return _decode(blob)
    except _UNDECODABLE as error:
        raise RecordError(f"{path}, byte {offset}: no MessagePack: {error}") from error


def read(path: Path, sums: bool = True) -> Reading:
    """The rows of the journal at `path`, an iterator. Raises RecordError (file, byte) for what is no journal."""
    return Reading(path, sums)


def header(path: Path) -> PlainDict:
    """The header of the journal at `path`. Raises RecordError."""
    return Reading(path).header
