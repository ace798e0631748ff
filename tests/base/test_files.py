"""Folders of processes that were killed."""

from __future__ import annotations

import fcntl
from pathlib import Path

from emul.base.files import hold_folder, remove_held_folder, remove_left_folders, write_atomically


def test_only_folders_go_whose_process_has_ended(tmp_path: Path) -> None:
    for name in ("emul-held", "emul-left", "emul-unknown", "other-left"):
        (tmp_path / name).mkdir()
    hold_folder(tmp_path / "emul-held")
    for name in ("emul-left", "other-left"):
        (tmp_path / name / "emul.lock").touch()             # of a process that has ended: nobody holds it
    (tmp_path / "emul-link").symlink_to(tmp_path / "other-left")
    remove_left_folders(tmp_path, ("emul-", "pymp-"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["emul-held", "emul-link", "emul-unknown", "other-left"]
    with (tmp_path / "emul-held" / "emul.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
    assert held
    remove_held_folder(tmp_path / "emul-held")
    assert not (tmp_path / "emul-held").exists()


def test_a_link_at_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    file, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_text("mine")
    with write_atomically(file) as name:
        name.touch()
    name.symlink_to(victim)
    with write_atomically(file) as temporary:
        temporary.write_text("theirs")
    assert victim.read_text() == "mine"
    assert file.read_text() == "theirs"
