"""A study read back, as pandas frames."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.plain import PlainDict
from emul.record.load import RunTables, load_run
from emul.record.tables import read_table
from emul.study.directory import StudyError, read_study

if TYPE_CHECKING:
    import pandas as pd


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
