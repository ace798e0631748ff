"""The directory of a run: made once, never overwritten, marked until everything is written."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import math
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from emul.base.errors import NotRecorded
from emul.base.files import read_limited, read_text, strerror, write_atomically
from emul.base.plain import PlainDict, PlainMapping
from emul.base.tracebacks import shown
from emul.record.journal import RecordError

_log = logging.getLogger(__name__)

JOURNAL = "journal"
RESUMED = "journal.resumed"         # that of a run that is gone on with, until it ends
SUMMARY = "summary.json"
SCENARIO = "scenario.resolved.yaml"
INCOMPLETE = "INCOMPLETE"
TRAININGS = "trainings"             # a store of its own, until it is complete
ERROR = "error.txt"                 # the reason why a run failed
COMMAND = "command.json"            # with which it can be gone on with
NETWORK = "network.parquet"         # what its links drew
SEAL = "seal.json"                  # size and digest of every other file of a run that ended

_MOST_BYTES = 256 * 2**20           # of a text file of a run: a seal has 100 bytes a file
_MARK = "This run has not ended, or was killed. Its journal holds what it did until then.\n"


@dataclass(frozen=True)
class RunDirectory:
    """`runs/<name>-<scheme>-<n>` of one run."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def complete(self) -> bool:
        """True if the run has ended and everything is written: its mark INCOMPLETE is gone."""
        return not (self.path / INCOMPLETE).exists()

    def write(self, name: str, text: str) -> None:
        """Write a text file, whole or not at all."""
        with write_atomically(self.path / name) as path:
            path.write_text(text, encoding="utf-8")

    @property
    def running(self) -> bool:
        """True if a process writes this run now."""
        if not (self.path / INCOMPLETE).is_file():      # to open a pipe would wait for ever
            return False
        try:
            with (self.path / INCOMPLETE).open("rb") as mark:
                fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return True
        except OSError:                 # a mark that may not be read: nobody writes
            return False

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Inside the block no other process may write this run. Raises RecordError if one does, or if the directory
        holds a link or the like, see `require_plain`."""
        require_plain(self.path)
        with (self.path / INCOMPLETE).open("a") as mark:
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordError(f"{self.path}: this run is running, in another process") from None
            yield

    def finish(self) -> None:
        """Everything is written: seal it, and remove the mark."""
        write_json(self.path / SEAL, {"files": fingerprints(self.path)})
        (self.path / INCOMPLETE).unlink(missing_ok=True)


def fingerprints(path: Path) -> dict[str, dict[str, object]]:
    """name -> bytes and digest of every file in a run directory and below it but mark, seal, temporary files and
    trainings, which are no part of the record: they can be computed again."""
    return {file.relative_to(path).as_posix(): fingerprint(file) for file in sorted(path.rglob("*"))
            if file.is_file() and file.name not in (INCOMPLETE, SEAL) and not file.name.startswith(".")
            and path / TRAININGS not in file.parents}


def fingerprint(file: Path) -> dict[str, object]:
    """Size and digest of a file. Raises OSError."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16))
        return {"bytes": opened.tell(), "blake2b": digest.hexdigest()}


def check_seal(path: Path, names: Collection[str]) -> None:
    """Raises RecordError where files of a run that ended are not those that it wrote, or are missing."""
    if not path.is_dir():
        raise RecordError(f"{path}: there is no such directory")
    missing = [name for name in sorted(names) if not (path / name).is_file()]
    if missing:
        raise RecordError(f"{path}: {', '.join(missing)} missing: no directory of a run that ended")
    if not (path / SEAL).is_file():
        _tell_unsealed(path)
        return
    sealed = read_json(path / SEAL).get("files")
    if not isinstance(sealed, dict) or not all(isinstance(one, dict) for one in sealed.values()):
        raise RecordError(f"{path / SEAL}: expected the files of the run")
    try:
        damaged = [name for name in sorted(names) if name not in sealed or not _is_as_sealed(path / name, sealed[name])]
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from None
    if damaged:
        raise RecordError(f"{path}: damaged or changed since the run: {', '.join(damaged)}; `emul replay` says where")


def require_as_sealed(file: Path) -> None:
    """Before a file of a run is read. Raises RecordError where the run has a seal and the file is not as it was."""
    if (file.parent / SEAL).is_file():
        check_seal(file.parent, [file.name])


def require_sealed(table: Path) -> None:
    """Before the network of a run is taken from `table`, its directory or the file there. Raises RecordError where the
    run has a seal and its file is not as it was."""
    file = table / NETWORK if table.is_dir() else table
    if file.name == NETWORK:
        require_as_sealed(file)


def require_plain(path: Path) -> None:
    """Before a run directory is written to. Raises RecordError if it holds a link, which may lead to any file of the
    user, or a pipe or device, which never ends: emul makes none, an archive of a stranger's can."""
    for folder, folders, files in os.walk(path):
        for one in (Path(folder, name) for name in (*folders, *files)):
            if not stat.S_ISREG(kind := one.lstat().st_mode) and not stat.S_ISDIR(kind):
                what = f"a link, to {os.readlink(one)}" if stat.S_ISLNK(kind) else "a pipe, a socket or a device"
                raise RecordError(f"{one}: is {what}: expected files and folders alone in a run directory that is "
                                  "written to")


def plugins_of(path: Path, given: Sequence[str] | None) -> list[str]:
    """The modules to import for what is asked of a run: those that are given. Raises RecordError if none is, and the
    run was made with some: a directory may be a stranger's, and importing a module runs it."""
    try:
        made = None if given else read_json(path / COMMAND).get("plugins")
    except RecordError:                 # without a command, or a sound one, nothing is named
        made = None
    if made:
        names = [str(name) for name in made] if isinstance(made, list) else [str(made)]
        raise RecordError(f"{path}: made with {' '.join(f'--plugin {name}' for name in names)}; give it again if you "
                          f"trust the module (in Python: plugins={names})")
    return list(given or ())


def _is_as_sealed(file: Path, sealed: PlainMapping) -> bool:
    now = file.stat()
    return now.st_size == sealed.get("bytes") and _seen(file, now.st_size, now.st_ctime_ns, now.st_ino) == sealed


@lru_cache(maxsize=1024)            # a table is checked when the run is opened, and again when it is read
def _seen(file: Path, size: int, changed_ns: int, number: int) -> dict[str, object]:
    return fingerprint(file)


@lru_cache(maxsize=1024)            # once for a directory
def _tell_unsealed(path: Path) -> None:
    _log.warning("%s: has no %s, so nothing tells whether its files are as the run wrote them", path, SEAL)


def create(out: Path, name: str, scheme: str) -> RunDirectory:
    """Make the first `out/<name>-<scheme>-<n>`, n = 1, 2, ..., that does not exist, marked INCOMPLETE.

    Raises OSError: `out` is no place for directories; NotRecorded: the disk takes nothing.
    """
    out.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{name}-{scheme}").lstrip(".") or "run"
    for n in itertools.count(1):
        path = out / f"{stem}-{n}"
        try:
            path.mkdir()
        except FileExistsError:             # an earlier run's, or of another process that was faster
            continue
        break
    try:
        (path / INCOMPLETE).write_text(_MARK, encoding="utf-8")
    except OSError as e:
        shutil.rmtree(path, ignore_errors=True)
        raise NotRecorded(f"{path}: {strerror(e)}") from None
    return RunDirectory(path)


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, whole or not at all."""
    with write_atomically(path) as temporary:
        temporary.write_text(json_text(value), encoding="utf-8")


def json_text(value: object) -> str:
    """`value` as JSON. NaN and infinity, which JSON lacks, become null."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> PlainDict:
    """A mapping from a file of `write_json`. Raises RecordError naming the file."""
    try:
        found = json.loads(read_text(path, _MOST_BYTES))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RecordError(f"{path}: expected a mapping")
    return found


def read_error(path: Path) -> list[str]:
    """The lines of the reason why a run failed, fit for a terminal; none: it has left no word."""
    try:
        return shown(read_limited(path / ERROR).decode(errors="replace")).splitlines()
    except OSError:
        return []


def read_scenario(file: Path) -> tuple[str, PlainDict]:
    """A resolved scenario as text and as plain values; empty ones if it is no mapping. Raises RecordError naming the
    file, also for aliases, which a run does not write: 700 bytes of them can stand for millions of values."""
    text = _scenario_text(file)
    return text, _plain_yaml(file, text)


def read_section(file: Path, key: str) -> Any:
    """One section of a resolved scenario, None if it has none. Raises RecordError as `read_scenario`.

    Nothing else of it is parsed: with 500 faults that takes 1.3 s, and a study has hundreds of runs.
    """
    found = re.search(rf"^{key}:.*(?:\n(?:[ #-].*)?)*", _scenario_text(file), re.MULTILINE)
    return None if found is None else _plain_yaml(file, found[0]).get(key)


def _scenario_text(file: Path) -> str:
    require_as_sealed(file)
    try:
        return read_text(file, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise _no_scenario(file, error) from None


@lru_cache(maxsize=4)                   # many parts of a page want the first run's
def _plain_yaml(file: Path, text: str) -> PlainDict:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (ValueError, YAMLError, RecursionError) as error:
        raise _no_scenario(file, error) from None
    seen: set[int] = set()
    left = [found]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            if id(one) in seen:
                raise RecordError(f"{file}: no scenario of a run: it has aliases")
            seen.add(id(one))
            left += one.values() if isinstance(one, dict) else one
    return found if isinstance(found, dict) else {}


def _no_scenario(file: Path, error: Exception) -> RecordError:
    return RecordError(f"{file}: no scenario of a run: {' '.join(str(error).split())[:200]}")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
