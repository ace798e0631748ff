import contextlib
import struct
import zlib
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.record.journal import Journal, MemoryJournal, RecordError, digest_of, encode, header, read

PLAIN = st.one_of(st.integers(-2**63, 2**63 - 1), st.text(max_size=5), st.floats(allow_nan=False), st.booleans(),
                  st.none())
ROW = st.one_of(
    st.tuples(st.just(R.COMPUTED), st.integers(0, 2**62), st.integers(0, 9)),
    st.tuples(st.just(R.REPORT), st.integers(0, 2**62), st.integers(0, 9), st.integers(0, 9),
              st.dictionaries(st.text(max_size=3), PLAIN, max_size=3), st.text(max_size=8)))


def written(path: Path, rows, flush_every: int = 0) -> str:
    journal = Journal(path, {"scheme": "fedavg"})
    for i, row in enumerate(rows):
        journal.append(row)
        if flush_every and i % flush_every == 0:
            journal._flush()
    return journal.close()


def test_what_is_written_is_read_with_header_digest_and_end(tmp_path, rows):
    digest = written(tmp_path / "j", rows)
    source = read(tmp_path / "j")
    assert source.header == {"format": 1, "scheme": "fedavg"} == header(tmp_path / "j")
    assert list(source) == rows
    assert source.complete
    assert source.digest == digest
    assert source.count == len(rows)


def test_the_digest_is_that_of_the_rows_one_by_one(tmp_path, rows):
    plain = blake2b(b"".join(msgspec.msgpack.encode(row) for row in rows), digest_size=16).hexdigest()
    assert written(tmp_path / "j", rows) == digest_of(rows) == plain


@pytest.mark.parametrize("count", [0, 1, 15, 16, 255, 256, 4095, 4096, 4097, 70_000])
def test_the_digest_does_not_depend_on_when_rows_are_flushed(tmp_path, count):
    some = [(R.COMPUTED, i, i % 7) for i in range(count)]
    memory = MemoryJournal()
    for row in some:
        memory.append(row)
    assert written(tmp_path / "a", some) == written(tmp_path / "b", some, 1000) == memory.close()
    assert list(read(tmp_path / "b")) == some


def test_the_end_of_a_round_writes_what_has_waited_for_a_second(tmp_path, monkeypatch):
    now = [10.0]
    monkeypatch.setattr("emul.record.journal.time.monotonic", lambda: now[0])
    journal = Journal(tmp_path / "j", {})
    journal.append((R.COMPUTED, 0, 0))
    journal.round_ended()
    assert list(read(tmp_path / "j")) == []
    now[0] += 1.0
    journal.round_ended()
    assert list(read(tmp_path / "j")) == [(R.COMPUTED, 0, 0)]
    journal.close()


def test_the_end_of_a_round_writes_only_what_is_worth_a_frame(tmp_path):
    journal = Journal(tmp_path / "j", {})
    for i in range(255):
        journal.append((R.COMPUTED, i, 0))
    journal.round_ended()
    assert not list(read(tmp_path / "j"))
    journal.append((R.COMPUTED, 255, 0))
    journal.round_ended()
    assert len(list(read(tmp_path / "j"))) == 256


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=30), st.data())
def test_a_journal_cut_at_any_byte_holds_a_prefix_of_the_rows(tmp_path_factory, some, data):
    path = tmp_path_factory.mktemp("cut") / "j"
    written(path, some, flush_every=data.draw(st.integers(1, 7)))
    whole = path.read_bytes()
    first = 8 + struct.unpack_from("<I", whole)[0]
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    if cut < first:
        with pytest.raises(RecordError, match=r"byte 0: no journal of emul: its header is missing$"):
            read(path)
        return
    source = read(path)
    found = list(source)
    assert encode(found) == encode(some[:len(found)])
    assert source.complete == (cut == len(whole))
    if cut == len(whole):
        assert len(found) == len(some)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=10), st.data())
def test_a_flipped_bit_never_gives_other_rows(tmp_path_factory, some, data):
    path = tmp_path_factory.mktemp("bit") / "j"
    written(path, some, flush_every=3)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    found, complete = [], False
    with contextlib.suppress(RecordError):
        source = read(path)
        found.extend(source)
        complete = source.complete
    assert not complete
    assert encode(found) == encode(some[:len(found)])


def frame(blob: bytes) -> bytes:
    return struct.pack("<II", len(blob), zlib.crc32(blob)) + blob


HEAD = frame(msgspec.msgpack.encode({"format": 1}))
END = frame(msgspec.msgpack.encode({"rows": 0, "digest": digest_of([])}))


@pytest.mark.parametrize(("content", "text"), [
    (b"", r"byte 0: no journal of emul: its header is missing"),
    (b"hello, this is a text file", r"byte 0: a frame of \d+ bytes cannot be"),
    (frame(msgspec.msgpack.encode({"format": 2})), r"a journal of format 2; this emul reads format 1"),
    (frame(msgspec.msgpack.encode([1])), r"byte 0: no journal of emul: its header is missing"),
    (HEAD + frame(msgspec.msgpack.encode(["x"])), r"byte 17: no rows of a journal: Expected `array`, got `str` - "
                                                  r"at `\$\[0\]`"),
    (HEAD + frame(b"\x01"), r"byte 17: neither rows nor the end of a journal"),
    (HEAD + frame(b"\xc1"), r"byte 17: no MessagePack: .*"),
    (HEAD + frame(msgspec.msgpack.encode({"rows": 3, "digest": ""})),
     r"byte 17: the journal ends after 0 rows, 3 were written"),
    (HEAD + frame(msgspec.msgpack.encode({"rows": 0, "digest": "00"})),
     r"byte 17: the rows have the digest [0-9a-f]{32}, 00 was written"),
    (HEAD + 2 * END, r"byte \d+: the journal goes on after its end"),
    (HEAD + END + b"abc", r"3 bytes stand after the end of the journal"),
])
def test_garbage_is_refused_with_file_and_place(tmp_path, content, text):
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=rf"^{path}[,:] {text}$"):
        list(read(path))


def test_a_failed_run_leaves_an_incomplete_journal_with_all_its_rows(tmp_path, rows):
    with pytest.raises(ZeroDivisionError), Journal(tmp_path / "j", {}) as journal:  # noqa: PT012
        for row in rows:
            journal.append(row)
        1 / 0  # noqa: B018
    source = read(tmp_path / "j")
    assert list(source) == rows
    assert not source.complete


def test_a_journal_is_never_overwritten_nor_written_after_its_end(tmp_path):
    journal = Journal(tmp_path / "j", {})
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "j", {})
    assert journal.close() == journal.close()
    for i in range(4095):
        journal.append((R.COMPUTED, i, 0))
    with pytest.raises(RecordError, match=r"the journal is closed$"):
        journal.append((R.COMPUTED, 4095, 0))


def test_numpy_scalars_are_written_as_numbers_and_objects_are_refused(tmp_path):
    assert digest_of([(R.REPORT, 0, 0, 1, {"loss": np.float32(0.5), "n": np.int64(3)}, "")]) == digest_of(
        [(R.REPORT, 0, 0, 1, {"loss": 0.5, "n": 3}, "")])
    with pytest.raises(TypeError, match=r"^a journal row holds a object, which is no plain value$"):
        digest_of([(R.REPORT, 0, 0, 1, {"x": object()}, "")])
