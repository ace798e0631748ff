"""The store on disk: what is put is found, by other processes too; what is damaged is not; old things go."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul import store as module
from emul.store import SegmentBuffer, SegmentWriter, Store, StoreError, clean, summary, verify


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def filled(folder: Path, count: int, size: int = 100) -> None:
    with Store(folder) as store:
        for i in range(count):
            store.put(key(i), bytes([i % 256]) * size)


def test_what_is_put_is_found_at_once_and_by_the_next(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.put(key(1), b"one")
        store.put(key(2), b"")
        assert store.get(key(1)) == b"one"
        assert store.get(key(3)) is None
    with Store(None, [tmp_path]) as other:
        assert [other.get(key(i)) for i in (1, 2, 3)] == [b"one", b"", None]
        assert (other.found, other.missed, other.stored) == (2, 1, 0)
        other.put(key(3), b"three")                     # nowhere to put it
        assert other.get(key(3)) is None


def test_what_was_written_is_not_kept_in_memory(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for i in range(50):
            store.put(key(i), b"x" * 1000)
        assert store._writer is not None
        while store._writer.waiting:                    # the test's own timeout ends it
            time.sleep(0.01)
        assert all(store.get(key(i)) == b"x" * 1000 for i in range(50))


def test_an_entry_that_is_known_is_not_written_twice(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    filled(tmp_path, 6)
    assert summary(tmp_path).entries == 6


def test_another_process_finds_what_has_been_written_since(tmp_path: Path) -> None:
    with Store(None, [tmp_path]) as reader:
        filled(tmp_path, 3)
        assert reader.get(key(0)) is None
        reader.refresh()
        assert reader.get(key(0)) is not None


def test_processes_write_into_one_store_side_by_side(tmp_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from emul.store import Store\n"
            "with Store(Path(sys.argv[1])) as s:\n"
            "    for i in range(300):\n"
            "        s.put((1000 * int(sys.argv[2]) + i).to_bytes(16, 'little'), sys.argv[2].encode() * 50)")
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(3)]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    with Store(None, [tmp_path]) as store:
        for n in range(3):
            assert all(store.get(key(1000 * n + i)) == str(n).encode() * 50 for i in range(300))
    assert list(verify(tmp_path)) == []


@pytest.mark.machine
def test_a_writer_that_is_killed_leaves_what_it_has_written(tmp_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from emul.store import Store\n"
            "s = Store(Path(sys.argv[1])); i = 0\n"
            "while True:\n"
            "    s.put(i.to_bytes(16, 'little'), i.to_bytes(4, 'little') * 5000); i += 1")
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and sum(p.stat().st_size for p in tmp_path.iterdir()) < 10**6:
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    with Store(tmp_path) as store:
        count = summary(tmp_path).entries
        assert count > 10
        assert all(store.get(key(i)) == i.to_bytes(4, "little") * 5000 for i in range(count))
        store.put(key(10**9), b"goes on")
    with Store(None, [tmp_path]) as store:
        assert store.get(key(10**9)) == b"goes on"


@settings(max_examples=60)
@given(st.integers(0, 2000), st.integers(1, 255))
def test_a_flipped_byte_costs_entries_and_never_gives_a_wrong_one(tmp_path_factory: pytest.TempPathFactory, place: int,
                                                                 flip: int) -> None:
    folder = tmp_path_factory.mktemp("store")
    filled(folder, 10)
    (path,) = folder.iterdir()
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] ^= flip
    path.write_bytes(raw)
    with Store(None, [folder]) as store:
        found = [store.get(key(i)) for i in range(10)]
    assert all(value in (None, bytes([i]) * 100) for i, value in enumerate(found))
    assert None in found
    assert list(verify(folder))


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 60, 150, 700])
def test_a_torn_end_costs_the_last_entry_alone(tmp_path: Path, cut: int) -> None:
    filled(tmp_path, 10)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:cut])
    whole = max(0, (cut - 16) // 132)
    with Store(tmp_path) as store:
        assert [store.get(key(i)) is not None for i in range(10)] == [i < whole for i in range(10)]
    assert bool(list(verify(tmp_path))) == (cut != 16)


def test_damage_is_named_with_file_and_place(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (path,) = tmp_path.iterdir()
    raw = bytearray(path.read_bytes())
    raw[60] ^= 1
    path.write_bytes(raw + b"torn")
    (tmp_path / "other.segment").write_text("hello, world, this is no segment")
    assert [str(d) for d in verify(tmp_path)] == [
        f"{path}: byte 48: an entry of 100 bytes does not match its checksum",
        f"{path}: byte 412: torn: 4 bytes are no whole entry",
        f"{tmp_path / 'other.segment'}: byte 0: not a segment of a store"]


def test_the_least_recently_used_segments_go_first(tmp_path: Path) -> None:
    paths = []
    for number in range(4):
        path = tmp_path / f"{number}.segment"
        segment = SegmentWriter(path)
        block = SegmentBuffer(2000)
        block.add(key(number), [b"x" * 1000])
        segment.append(block)
        segment.close()
        os.utime(path, (1000 + number, 1000 + number))
        paths.append(path)
    with Store(None, [tmp_path]) as store:
        assert store.get(key(0)) is not None                # the oldest one is used now
    one = paths[0].stat().st_size
    result = clean(tmp_path, 2 * one + 10)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["0.segment", "3.segment"]
    assert (result.removed, result.freed_bytes, result.left_bytes) == (2, 2 * one, 2 * one)
    with Store(tmp_path, limit_bytes=0) as store:
        assert store.get(key(3)) is None


def test_a_segment_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.store, "_SEGMENT_BYTES", 500)
    monkeypatch.setattr(module.store, "_BLOCK_BYTES", 1)         # each entry has its own
    monkeypatch.setattr(module.store, "_FREE_BLOCKS", 0)
    filled(tmp_path, 20)
    assert summary(tmp_path).segments == 5
    assert summary(tmp_path).entries == 20


@pytest.mark.parametrize("system", ["takes", "refuses"])
def test_large_blocks_go_past_the_page_cache_where_the_system_takes_them(tmp_path: Path, system: str,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [100, 300_000, 5, 2_000_000, 0, 262_144, 7]
    if system == "refuses":                     # O_DIRECT, as some file systems do
        real = os.write

        def write(file: int, data: memoryview) -> int:
            if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(22, "Invalid argument")
            return real(file, data)

        monkeypatch.setattr(module.segments.os, "write", write)
    for number, size in enumerate(sizes):
        with Store(tmp_path) as store:          # closed each time: every block is written by itself
            store.put(key(number), bytes([number]) * (size // 2), memoryview(bytes([number]) * (size - size // 2)))
    with Store(tmp_path) as store:
        for number, size in enumerate(sizes):
            store.put(key(100 + number), bytes([number]) * size)
    assert list(verify(tmp_path)) == []
    assert summary(tmp_path).entries == 2 * len(sizes)
    with Store(None, [tmp_path]) as store:
        for number, size in enumerate(sizes):
            assert store.get(key(number)) == store.get(key(100 + number)) == bytes([number]) * size


def test_a_full_disk_ends_storing_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: SegmentWriter, block: SegmentBuffer, direct: bool) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SegmentWriter, "append", full)
    with Store(tmp_path) as store:
        store.put(key(1), b"x")
        while not store.failure:                        # the test's own timeout ends it
            time.sleep(0.01)
        store.put(key(2), b"x")
        assert store.get(key(1)) is store.get(key(2)) is None
    assert store.failure == f"{tmp_path}: No space left on device: nothing more is stored"


def test_a_disk_that_is_full_in_the_middle_of_a_block_leaves_nothing_half_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.write
    left = [2000]

    def until_full(file: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        taken = really(file, data[:left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(module.segments.os, "write", until_full)
    with Store(tmp_path) as store:
        store.put(key(1), bytes(500))
        while store._writer is not None and store._writer.waiting:
            time.sleep(0.01)
        store.put(key(2), bytes(3000))
    assert store.failure == f"{tmp_path}: No space left on device: nothing more is stored"
    assert list(verify(tmp_path)) == []
    with Store(None, [tmp_path]) as other:
        assert (other.get(key(1)), other.get(key(2))) == (bytes(500), None)


@pytest.mark.timeout(20)
def test_a_segment_with_a_hole_of_gigabytes_is_torn_there(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    (path,) = tmp_path.iterdir()
    os.truncate(path, 3 * 2**30)
    assert summary(tmp_path).entries == 2
    assert [damage.why.partition(":")[0] for damage in verify(tmp_path)] == ["torn"]
    with Store(None, [tmp_path]) as store:
        assert store.get(key(1)) == bytes([1]) * 100


def test_a_disk_that_is_full_at_the_begin_of_a_segment_or_of_the_store_leaves_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.segments.os, "write", full)
    with Store(tmp_path) as store:
        store.put(key(1), b"x")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "mkdir", full)
    with Store(tmp_path / "trainings") as store:
        store.put(key(1), b"x")
        assert store.get(key(1)) is None
    assert store.failure == f"{tmp_path / 'trainings'}: No space left on device: nothing more is stored"


def test_the_last_of_a_disk_is_left_to_what_cannot_be_computed_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.store, "_LEFT_SHARE", 1)         # as if a disk were never free enough
    monkeypatch.setattr(module.store, "_LEFT_FREE", 2**70)
    with Store(tmp_path) as store:
        store.put(key(1), b"x")
    assert store.failure == f"{tmp_path}: No space left on device: nothing more is stored"
    assert list(tmp_path.iterdir()) == []


def test_without_memory_for_more_storing_ends_and_nothing_else(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(file: int, length: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module.segments.mmap, "mmap", none_left)
    with Store(tmp_path) as store:
        store.put(key(1), b"x")
        assert store.failure == f"{tmp_path}: Cannot allocate memory: nothing more is stored"
        assert (store.stored, store.get(key(1))) == (0, None)


def test_there_may_be_more_segments_than_a_process_may_hold_files(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    block = SegmentBuffer(200)
    for number in range(1, 200):
        block.clear()
        block.add(key(number), [b"x"])
        segment = SegmentWriter(tmp_path / f"{number}.segment")
        segment.append(block)
        segment.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], len(os.listdir("/dev/fd")) + 50), limits[1]))
    try:
        with Store(None, [tmp_path]) as store:
            assert all(store.get(key(number)) for number in range(200))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_segment_that_another_process_has_evicted_is_missed(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with Store(None, [tmp_path]) as store:
        clean(tmp_path, 0)
        assert store.get(key(0)) is None


def test_nobody_waits_for_a_thread_that_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: SegmentWriter, block: SegmentBuffer, direct: bool) -> int:
        raise MemoryError

    monkeypatch.setattr(SegmentWriter, "append", broken)
    monkeypatch.setattr(module.store, "_WAITING_BYTES", 10)
    store = Store(tmp_path)
    putting = threading.Thread(target=lambda: [store.put(key(i), b"x" * 20) for i in range(5)], daemon=True)
    putting.start()
    putting.join(10)
    assert not putting.is_alive()
    assert store.failure == f"{tmp_path}: MemoryError(): nothing more is stored"
    store.close()


def test_files_are_closed_whatever_was_done_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[int, Path] = {}
    really = os.open, os.close

    def opening(path: Path, *flags: int) -> int:
        found = really[0](path, *flags)
        opened[found] = path
        return found

    def closing(file: int) -> None:
        opened.pop(file, None)
        really[1](file)

    monkeypatch.setattr(module.segments.os, "open", opening)
    monkeypatch.setattr(module.segments.os, "close", closing)
    filled(tmp_path, 10)
    assert list(verify(tmp_path)) == []
    assert opened == {}
    monkeypatch.setattr(SegmentWriter, "_write", lambda self, data: os.write(-1, data))     # as of a disk that is full
    with pytest.raises(OSError, match="Bad file descriptor"):
        SegmentWriter(tmp_path / "new.segment")
    assert opened == {}


def test_a_pipe_in_place_of_a_segment_is_named_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.segment")
    for look in (summary, lambda folder: list(verify(folder))):
        with pytest.raises(StoreError, match=r"a\.segment: expected a regular file"):
            look(tmp_path)
    with Store(tmp_path) as store:
        assert store.get(key(1)) is None


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file: no folder for a store: File exists$"):
        Store(tmp_path / "file")
    with pytest.raises(StoreError, match=r"nothing: expected the folder of a store$"):
        summary(tmp_path / "nothing")
    with Store(None, [tmp_path / "nothing"]) as store:
        assert store.get(key(0)) is None
