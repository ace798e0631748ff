"""The directory of a study: cells, `study.json`, and tables that are written from them.

One process at a time works on it, which a lock of the operating system keeps: it goes with its process, however that
ends. So whatever is half-made when a study starts was left by one that died.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.errors import InputError
from emul.base.files import write_atomically
from emul.base.parquet import write_parquet
from emul.base.plain import PlainDict
from emul.record.journal import RecordError
from emul.record.load import RunTables, load_run
from emul.record.rundir import INCOMPLETE, SEAL, SUMMARY, TRAININGS, check_seal, read_json, write_json
from emul.record.tables import read_table
from emul.study.cells import Cell
from emul.study.job import CELLS

if TYPE_CHECKING:
    import pandas as pd


_log = logging.getLogger(__name__)

STUDY = "study.json"
VERSION = 1
_LOCK = ".lock"
_OF_RESULTS = ("rounds.parquet", "messages.parquet")        # what the tables of a study take from a cell


class StudyError(InputError):
    """A directory is no study, is in use, or lacks what is asked of it."""


@dataclass(frozen=True)
class Failure:
    """A cell that did not come to its end, and why."""

    cell: Cell
    error: str


@contextlib.contextmanager
def opened(path: Path, name: str) -> Iterator[None]:
    """Make the directory of a study of this scenario if need be, and keep others out. Raises StudyError, also for the
    directory of another scenario's, whose tables would be replaced."""
    if path.is_dir() and any(path.iterdir()) and not (path / STUDY).is_file() and not (path / CELLS).is_dir():
        raise StudyError(f"{path}: holds something else than a study; choose another --out")
    if (path / STUDY).is_file() and (before := read_study(path).get("scenario")) != name:
        raise StudyError(f"{path}: holds a study of {before}, not of {name}; choose another --out")
    # what stands beside them is replaced and never written through; cells may be links, of `emul compare`
    for name in (_LOCK, CELLS, TRAININGS):
        if (path / name).is_symlink():
            raise StudyError(f"{path / name}: is a link, to {os.readlink(path / name)}: expected files and folders "
                             "alone in a study that is written to")
    (path / CELLS).mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb", 0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(f"{path}: another process works on this study") from None
        for left in (path / CELLS).glob(".*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def finished(path: Path, cell: Cell) -> bool:
    """True if the cell has been run to its end, and what the tables take from it is as it was written: of one that was
    damaged since a warning is given, and it is run again."""
    run = path / CELLS / cell.key
    if not (run / SUMMARY).is_file() or (run / INCOMPLETE).exists():
        return False
    try:
        if (run / SEAL).is_file():
            check_seal(run, [SUMMARY, *_OF_RESULTS])
        else:                           # nothing tells whether they are as written: they can be read at least
            for name in _OF_RESULTS:
                read_table(run / name)
        read_json(run / SUMMARY)
    except RecordError as e:
        _log.warning("%s", e)
        return False
    return True


def write_study(path: Path, kind: str, name: str, grid: Mapping[str, Sequence[object]], seeds: Sequence[int],
                runs: Sequence[Cell], failed: Sequence[Failure], more: Mapping[str, object] | None = None) -> None:
    """`study.json`: what was asked for, and which cells there are."""
    write_json(path / STUDY, {
        "emul_study": VERSION, "kind": kind, "scenario": name, "grid": dict(grid), "seeds": list(seeds), **(more or {}),
        "runs": [entry(cell) for cell in runs],
        "failed": [{**entry(failure.cell), "error": failure.error} for failure in failed]})


def entry(cell: Cell) -> PlainDict:
    """A cell as `study.json` and `--json` say it."""
    place = {"network": cell.network} if cell.network else {}
    return {"directory": f"{CELLS}/{cell.key}", **place, "scheme": cell.scheme, "seed": cell.seed,
            "values": cell.values}


def read_study(path: Path) -> dict[str, object]:
    """The content of `study.json`. Raises StudyError."""
    if not (path / STUDY).exists():
        raise StudyError(f"{path}: no directory of a study: {STUDY} is missing")
    try:
        found = read_json(path / STUDY)
    except RecordError as e:
        raise StudyError(str(e)) from None
    if found.get("emul_study") != VERSION:
        raise StudyError(f"{path / STUDY}: expected emul_study: {VERSION}")
    return found


def write_table(path: Path, name: str, frame: pd.DataFrame) -> None:
    """`<name>.parquet` and `<name>.csv`, each whole or not at all."""
    import pyarrow as pa

    with write_atomically(path / f"{name}.parquet") as temporary:
        write_parquet(temporary, pa.Table.from_pandas(frame, preserve_index=False))
    with write_atomically(path / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False)


# --- a study read back, as frames ----------------------------------------------------------------------------------
_MORE = {"compare": ("curves", "metrics", "differences"), "suite": ("curves", "metrics", "differences", "suite")}


@dataclass(frozen=True)
class StudyTables:
    """The tables of a study; `emul.study.tables.COLUMNS` says what their columns are, `emul.study.suite_tables.COLUMNS`
    those of a suite. A sweep has `results` alone."""

    path: Path
    study: PlainDict                    # study.json
    results: pd.DataFrame
    curves: pd.DataFrame | None = None
    metrics: pd.DataFrame | None = None
    differences: pd.DataFrame | None = None
    suite: pd.DataFrame | None = None   # a row a network and scheme

    def run(self, directory: str) -> RunTables:
        """The tables of one run, by its `directory` in `results`. Raises RecordError."""
        return load_run(self.path / directory)


def load_study(path: str | os.PathLike[str]) -> StudyTables:
    """Read the directory of a sweep, a comparison or a suite. Raises StudyError."""
    folder = Path(path)
    study = read_study(folder)
    frames = {}
    for name in ("results", *_MORE.get(str(study["kind"]), ())):
        file = folder / f"{name}.parquet"
        if not file.is_file():
            raise StudyError(f"{folder}: {file.name} is missing: the study has not come to its end")
        frames[name] = read_table(file).to_pandas()
    return StudyTables(folder, study, **frames)
