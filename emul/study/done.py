"""The cells that have been run, kept beside the code: a CSV with a row a finished cell, which outlives its run
directory.

A row has the cell's key, its numbers and its accuracy by round. It is written as soon as the cell is finished, and a
cell that has one is not run again (`emul sweep --done FILE`). The key is a hash of what was asked for, the resolved
scenario: unlike the key of a cell it leaves out emul's version and the scheme's file, which change while such a table
is kept. A row also has what it takes to make it again, and of which code it is (`emul verify`).
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emul.base.plain import PlainDict
from emul.record.rundir import SUMMARY, read_json
from emul.record.tables import OF_ROUND, read_table
from emul.scenario import Edit
from emul.study.cells import Cell, asked, code_of
from emul.study.directory import StudyError
from emul.study.job import CELLS, ORIGIN_COLUMNS, read_origin, revision
from emul.study.tables import observations, result

AGAIN = {                               # the keys from which a row of any table can be made again
    "key": "Hash of the resolved scenario: of what was asked for. Unlike a cell's it leaves out the version of emul "
           "and the scheme's file.",
    "code": "Hash of the scheme's code and of what it is built from; empty: not known. A sweep warns of rows that "
            "were made with other code. Delete them to have them run again, or ask `emul verify` whether they hold.",
    "file": "The scenario's file, from a folder that this table is in, or in which that folder is.",
    "sets": "Edits of the scenario (`--set`, `--set-file`), as JSON: texts, or `{\"file\": name}`.",
    "plugins": "Modules of `--plugin`, with blanks between them.",
    "scheme": "The label of its entry.",
    "seed": "The seed.",
    "values": "Those of the grid, as JSON.",
    "parameters": "All of the scheme as JSON, with those that have their default, which may change; empty: not known.",
    **ORIGIN_COLUMNS,
    "digest": "Of journal and models.",
}
COLUMNS = {
    **{name: AGAIN[name] for name in ("key", "code", "file", "sets", "plugins")},
    "scenario": "Its name.",
    **{name: AGAIN[name] for name in ("scheme", "seed", "values", "parameters", *ORIGIN_COLUMNS)},
    "accuracy": "The last accuracy observed.",
    "best_accuracy": "The highest accuracy observed.",
    "best_five": "Mean of the five largest means over clients that no attack has poisoned; empty: one model for all.",
    "best_five_received": "The same of the models that these clients had received, if their scheme reports it "
                          "(`accuracy_received`).",
    "clients_std": "Standard deviation over these clients in the last round.",
    "attack_success": "The last share of triggered test samples taken for a backdoor's target.",
    "rounds": "Rounds completed.",
    "rounds_failed": "Failed rounds: entered, and completed by no deciding node.",
    "virtual_s": "Virtual seconds.",
    "bytes": "All bytes that crossed links.",
    "digest": AGAIN["digest"],
    "real_s": "Real seconds that the run took.",
    "means": "Means over rounds and nodes of all numbers that were observed and reported, as JSON.",
    "curve": "Accuracy by round, the mean over the nodes observed, `1:0.31 2:0.42`.",
}


NUMBERS = tuple(name for name in COLUMNS if name == "digest" or name not in (*AGAIN, "scenario"))


@dataclass
class Done:
    """The rows of one file. Raises StudyError if it is no such table."""

    path: Path
    plugins: tuple[str, ...] = ()
    code: dict[str, str] = field(default_factory=dict)      # key -> code of its row

    def __post_init__(self) -> None:
        self._read()

    def _read(self) -> None:
        if not self.path.is_file() or not self.path.stat().st_size:
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            try:
                if list(rows.fieldnames or ()) != list(COLUMNS):
                    raise StudyError(f"{self.path}: found the columns {', '.join(rows.fieldnames or ()) or 'none'}; "
                                     f"expected {', '.join(COLUMNS)}, as `emul sweep --done` writes them")
                # a row with fewer or more was cut: its cell is not done
                self.code = {row["key"]: row["code"] for row in rows if None not in row and None not in row.values()}
            except (UnicodeDecodeError, csv.Error) as e:
                raise StudyError(f"{self.path}: is no table: {e}") from None

    def __contains__(self, cell: Cell) -> bool:
        return asked(cell.scenario) in self.code

    def older(self, cells: Sequence[Cell]) -> int:
        """The number of these with a row that was made with other code than there is now."""
        return sum(self.code[asked(cell.scenario)] != code_of(cell.scenario, self.plugins)
                   for cell in cells if cell in self)

    def add(self, study: Path, cell: Cell) -> None:
        """Append the row of a cell that was run in the study, unless it has one. Another process may do so, too."""
        if cell in self:
            return
        row = self.row(study, cell)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
        with self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._read()                        # rows that others have added since
            if cell in self:
                return
            size = os.fstat(file.fileno()).st_size
            if not size:
                writer.writeheader()
            elif os.pread(file.fileno(), 1, size - 1) != b"\n":         # the end of a row that was cut
                text.write("\n")
            writer.writerow(row)
            try:
                left = text.getvalue().encode()
                while left:
                    left = left[file.write(left):]
            except OSError:                                             # a whole row, or nothing
                os.ftruncate(file.fileno(), size)
                raise
        self.code[row["key"]] = row["code"]

    def row(self, study: Path, cell: Cell) -> PlainDict:
        """The row of a cell that was run in the study."""
        return {"scenario": cell.scenario.name, **again(self.path, study, cell, self.plugins), **numbers(study, cell)}


# --- what makes a row again -------------------------------------------------------------------------------------------

def again(table: Path, study: Path, cell: Cell, plugins: Sequence[str] = ()) -> PlainDict:
    """`AGAIN` of a cell that was run in the study, for a row of `table`."""
    run = study / CELLS / cell.key
    made, summary = read_origin(run), read_json(run / SUMMARY)
    return {"key": asked(cell.scenario), "file": _from(table, cell.given),
            "code": code_of(cell.scenario, plugins) if made["revision"] == revision() else "",    # of an older run
            "sets": json.dumps([{"file": _from(table, edit)} if isinstance(edit, Path) else edit for edit in cell.sets],
                               ensure_ascii=False),
            "plugins": " ".join(plugins), "scheme": cell.scheme, "seed": cell.seed,
            "values": json.dumps(cell.values, ensure_ascii=False),
            "parameters": json.dumps(summary["parameters"], ensure_ascii=False), **made, "digest": summary["digest"]}


def _from(table: Path, file: Path | None) -> str:
    """A file as a row says it: below the nearest folder that holds both; "": there is none."""
    if file is None:
        return ""
    file, home = file.resolve(), table.resolve().parent
    return file.relative_to(os.path.commonpath([file, home])).as_posix()


def found(table: Path, said: str) -> Path | None:
    """The file that a row says, looked for here, then in the folders that the table is in, the nearest first."""
    return next((folder / said for folder in (Path.cwd(), *table.resolve().parents) if (folder / said).is_file()), None)


def edits(table: Path, said: str) -> list[Edit]:
    """Edits as `sets` of a row has them. Raises StudyError for a file that is not there."""
    made: list[Edit] = []
    for edit in json.loads(said or "[]"):
        if isinstance(edit, str):
            made.append(edit)
        elif (file := found(table, edit["file"])) is not None:
            made.append(file)
        else:
            raise StudyError(f"{edit['file']}, which edits the scenario, is nowhere near {table}")
    return made


# --- numbers ----------------------------------------------------------------------------------------------------------

def numbers(study: Path, cell: Cell) -> PlainDict:
    """The results of a run, as a row has them."""
    run = study / CELLS / cell.key
    summary = read_json(run / SUMMARY)
    values = result(study, cell, summary)
    own = summary["accuracy_of_clients"] or {}
    curve, rounds = observations(run), read_table(run / "rounds.parquet").to_pandas()
    received = None if "accuracy_received" not in rounds else rounds.groupby("round")["accuracy_received"].mean()
    means = rounds.drop(columns=list(OF_ROUND), errors="ignore").select_dtypes("number").mean().dropna()
    values |= {"clients_std": own.get("std"),
               "best_five_received": None if received is None else float(received.nlargest(5).mean()),
               "means": json.dumps({str(name): float(f"{value:.5g}") for name, value in means.items()
                                    if not str(name).endswith(("_min", "_max", "_std"))}),
               "curve": " ".join(f"{int(r)}:{a:.5g}" for r, a in zip(curve["round"], curve["accuracy"], strict=True))}
    return {name: _shown(values[name]) for name in NUMBERS if name in values}


def _shown(value: object) -> object:
    """Numbers with six digits; nothing for what there is not."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
