"""Files of entries: what is read of one that a stranger has made, or that the machine has left."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from emul.base.entries import EntryError, append, entries


def test_a_file_with_a_hole_of_gigabytes_is_damaged_and_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "client1"
    with path.open("xb", buffering=0) as file:
        append(file, [b"head", b"x" * 100])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        file.truncate(3 * 2**30)
    read = entries(path)
    assert [bytes(frame) for frame in next(read)[1]] == [b"head", b"x" * 100]
    with pytest.raises(EntryError, match=r"client1, byte 148: the entry's digest is wrong$"):
        next(read)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000        # kB


def test_a_pipe_is_no_file_of_entries(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no regular file"):
        list(entries(tmp_path / "pipe"))
