"""Published cells computed again: `emul verify FILE.csv` draws rows of a table, makes them anew, says what came out.

    equal               the digest of journal and models is that of the row
    equal in values     the digest is another one, the numbers of the row are the same
    different           a number differs; `round` is the first one in which the accuracies of the curve differ
    not run             the row cannot be made again here, for the reason in `detail`

A digest holds on one kind of processor. A row that was made on another one, or with another version of torch, is judged
by its numbers within a tolerance; a row of this processor has to have the same numbers. Any table will do whose rows
say what makes them again (`emul.study.done.AGAIN`): numbers are compared where a column is called as one of `emul sweep
--done`. Verdicts go into a table of their own, a row a cell; the digest of the row in it tells whether the row has been
replaced since.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from emul.base.errors import EmulError
from emul.base.files import read_text, write_atomically
from emul.base.machine import chip
from emul.base.plain import PlainDict, PlainMapping
from emul.learning.names import add_folder_of
from emul.registry import schemes
from emul.scenario import Stop, build_params, load
from emul.scenario.params import scenario_keys
from emul.scenario.schemes import label_of, parameters
from emul.study.cells import Cell, asked, cells, code_of
from emul.study.directory import StudyError
from emul.study.done import AGAIN, COLUMNS, Done, edits, found, numbers
from emul.study.job import CellJob, PoolOnDemand, origin, run_cell

Row = Mapping[str, str]
EQUAL, IN_VALUES, DIFFERENT, NOT_RUN = "equal", "equal in values", "different", "not run"
VERDICTS = {
    "table": "the file of the row, beside this one",
    "key": "its key",
    "scheme": "its scheme",
    "seed": "its seed",
    "digest": "its digest",
    "code": "of the code that it was computed again with",
    **{name: f"{name} of this run" if name != "made" else "day of this run, UTC" for name in origin()},
    "verdict": f"{EQUAL}, {IN_VALUES} or {DIFFERENT}",
    "tolerance": "within which numbers were taken to be equal; empty: the digest was",
    "round": "the first round whose accuracy differs; empty: none, or the row has no curve",
    "detail": "what differs: the row's number, then the new one",
}
FILE = "verified.csv"
_MOST_BYTES = 2**30     # of a table
_MOST_HEADER = 2**16    # bytes of its first line
PARTS = 10              # releases in which `emul verify --all` computes every row of every table again
TOLERANCE = 0.02        # of accuracies; of other numbers the share of the larger one
ALIKE = 6e-5            # for rows whose last bits must agree: they keep four decimals or more, the last one rounded
_ACCURACIES = ("accuracy", "best_accuracy", "best_five", "best_five_received", "clients_std", "attack_success")
_OTHERS = ("rounds", "rounds_failed", "virtual_s", "bytes")


@dataclass(frozen=True)
class RowVerdict:
    """The verdict on one row; `again`: its row as it would be now, None: it was not run."""

    row: Row
    verdict: str
    tolerance: float | None = None
    round: int | None = None
    detail: str = ""
    again: PlainMapping | None = None
    seconds: float = 0.0


# --- tables -----------------------------------------------------------------------------------------------------------

def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table. Raises StudyError if they do not say what makes them again."""
    try:
        header, rows = _rows(table)
    except OSError as e:
        raise StudyError(f"{table}: {e.strerror}") from None
    missing = [name for name in AGAIN if name not in header]
    if missing:
        raise StudyError(f"{table}: is no table of cells: it lacks the columns {', '.join(missing)}, "
                         "which `emul sweep --done` writes")
    return rows


def verdicts(file: Path) -> list[dict[str, str]]:
    """The verdicts that were given before; none if there is no such file."""
    if not file.is_file():
        return []
    header, rows = _rows(file)
    if header and list(header) != list(VERDICTS):
        raise StudyError(f"{file}: is no table of verdicts, as `emul verify` writes them")
    return rows


def _rows(file: Path) -> tuple[Sequence[str], list[dict[str, str]]]:
    """The columns and rows of a CSV file of cells. Raises OSError, StudyError."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(file, _MOST_BYTES), newline=""))
        return reader.fieldnames or (), list(reader)
    except csv.Error as e:
        raise StudyError(f"{file}: is no table: {e}") from None


def keep(file: Path, table: Path, said: Sequence[RowVerdict]) -> None:
    """Put verdicts of rows of a table into `file`, in place of older ones of these rows."""
    new = {(table.name, v.row["key"]): _kept(table, v) for v in said if v.verdict != NOT_RUN}
    every = {(row["table"], row["key"]): row for row in verdicts(file)} | new
    with write_atomically(file) as temporary, temporary.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(VERDICTS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(every[key] for key in sorted(every))


def _kept(table: Path, said: RowVerdict) -> PlainDict:
    assert said.again is not None
    return {"table": table.name, **{name: said.row[name] for name in ("key", "scheme", "seed", "digest")},
            "code": said.again["code"], **origin(), "verdict": said.verdict,
            "tolerance": "" if said.tolerance is None else f"{said.tolerance:g}",
            "round": "" if said.round is None else said.round, "detail": said.detail}


def renew(table: Path, said: Sequence[RowVerdict]) -> int:
    """Put what came out in place of the rows whose digest it has not; how many. `table` has the columns of `Done`."""
    new = {v.row["key"]: v.again for v in said if v.again is not None and v.verdict != EQUAL}
    rows = [new.get(row["key"], row) for row in read(table)]
    if new:
        with write_atomically(table) as temporary, temporary.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, list(COLUMNS), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return len(new)


# --- which rows -------------------------------------------------------------------------------------------------------

def drawn(rows: Sequence[Row], before: Sequence[Row], code: Callable[[Row], str], draw: str) -> list[Row]:
    """All rows, those to look at first in front: rows whose code differs from that of today, then the rest; within both
    those that were never verified, then those whose verdict is oldest. The rest of the choice is drawn by `draw`. Rows
    that are known to be different come last: nothing new is to be expected of them.
    """
    last = {(v["key"], v["digest"]): v for v in before}

    def place(row: Row) -> tuple[Any, ...]:
        verdict = last.get((row["key"], row["digest"]))
        now = code(row)
        known = verdict is not None and verdict["code"] == now
        return (known and verdict is not None and verdict["verdict"] == DIFFERENT, known or row["code"] == now,
                "" if verdict is None else verdict["made"],
                blake2b(f"{draw} {row['key']}".encode(), digest_size=8).digest())

    return sorted(rows, key=place)


def tables_below(folder: Path) -> list[Path]:
    """All tables of cells in a folder and below it, those of hidden folders left out, by name."""
    found = []
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(at, name) for name in files if name.endswith(".csv")):
            with file.open(encoding="utf-8", errors="replace", newline="") as lines:
                if set(AGAIN) <= set(next(csv.reader([lines.readline(_MOST_HEADER)]), ())):
                    found.append(file)
    return sorted(found)


def by_age(tables: Mapping[Path, tuple[Sequence[Row], Sequence[Row]]], draw: str) -> list[tuple[Path, Row]]:
    """All rows of all tables, those first that were never verified, then those whose verdict is oldest; the rest of the
    choice is drawn by `draw`. The tables take turns in proportion to their rows, so that a budget that ends early ends
    all of them at the same part.

    The code is not asked here: it differs for most rows after most commits, and would let some rows wait for ever.
    tables: table -> (its rows, the verdicts beside it).
    """
    placed = []
    for table, (rows, before) in tables.items():
        last = {(v["key"], v["digest"]): v["made"] for v in before if v["table"] == table.name}
        own = sorted(rows, key=lambda row, last=last: (      # type: ignore[misc]
            last.get((row["key"], row["digest"]), ""),
            blake2b(f"{draw} {row['key']}".encode(), digest_size=8).digest()))
        placed += [((at + 0.5) / len(rows), table, row) for at, row in enumerate(own)]
    return [(table, row) for _, table, row in sorted(placed, key=lambda one: (one[0], str(one[1])))]


def coder(table: Path, modules: Sequence[str] = ()) -> Callable[[Row], str]:
    """The hash of today's code for rows of a table; "": their scenario or scheme is gone. modules: see `cell_of`."""
    known: dict[tuple[str, ...], str] = {}

    def code(row: Row) -> str:
        asking = tuple(row[name] for name in ("file", "sets", "plugins", "scheme"))
        if asking not in known:
            try:
                file = found(table, row["file"])
                plugins = _plugins(row, file, modules)
                base = load(file or row["file"], edits(table, row["sets"]), check=False)
                entry = next(entry for entry in base.schemes if label_of(*entry) == row["scheme"])
                known[asking] = code_of(dataclasses.replace(base, schemes=[entry]), plugins)
            except (EmulError, OSError, StopIteration):
                known[asking] = ""
        return known[asking]

    return code


def _plugins(row: Row, file: Path | None, given: Sequence[str]) -> tuple[str, ...]:
    """Plug-ins of a row, which lie here or beside its scenario. Raises StudyError for one that is not given: the table
    may be a stranger's."""
    names = tuple(row["plugins"].split())
    for name in names:
        if name not in given:
            raise StudyError(f"made with --plugin {name}; give it again if you trust the module")
        if file is not None:
            add_folder_of(name, file.parent)
    return names


# --- again ------------------------------------------------------------------------------------------------------------

def cell_of(table: Path, row: Row, modules: Sequence[str] = ()) -> Cell:
    """The cell of a row. modules: that it may import, of those that it names. Raises EmulError if it cannot be made of
    what is here, or if that asks for something else."""
    file = found(table, row["file"]) if row["file"] else None
    if file is None:
        raise StudyError(f"the scenario {row['file'] or 'that it was made of'} is not here")
    plugins = _plugins(row, file, modules)
    values = json.loads(row["values"] or "{}")
    cell, = cells(file, {path: [value] for path, value in values.items()}, [int(row["seed"])], [row["scheme"]],
                  edits(table, row["sets"]), plugins)
    if asked(cell.scenario) != row["key"]:
        raise StudyError(f"{row['file']} asks for something else today: its key is {asked(cell.scenario)}")
    return cell


def defaults(cell: Cell, row: Row, plugins: Sequence[str] = ()) -> tuple[Cell, str]:
    """The cell with the parameters of the row where a default of its scheme has changed since, and what was changed."""
    if not row["parameters"]:
        return cell, ""
    (name, entry), = cell.scenario.schemes
    params = schemes.find(name, plugins).params
    now = dataclasses.asdict(build_params(params, parameters(entry), f"parameters of scheme {name}"))
    then = json.loads(row["parameters"])
    plain = json.loads(json.dumps(now))
    moved = {key: then[field.name] for key, field in scenario_keys(params).items()
             if field.name in then and then[field.name] != plain[field.name]}
    if not moved:
        return cell, ""
    scenario = dataclasses.replace(cell.scenario, schemes=[(name, {**entry, **moved})])
    return dataclasses.replace(cell, scenario=scenario), "made with " + ", ".join(
        f"{key} {value}, by default {plain[scenario_keys(params)[key].name]} today" for key, value in moved.items())


def verify(table: Path, row: Row, pool: PoolOnDemand, tolerance: float = TOLERANCE,
           rounds: int | None = None, tell: Callable[[str], None] = lambda text: None,
           modules: Sequence[str] = ()) -> RowVerdict:
    """Compute the cell of a row again, without any training that was kept.

    rounds: this many alone, whose accuracies are compared with those of the row; no more can be said then. tell: told
    where the run is, at ends of rounds. modules: see `cell_of`.
    """
    begin = time.perf_counter()
    try:
        # numbers that cannot be read show before the run, which may take minutes
        first_difference(row.get("curve") or "", row.get("curve") or "", 0.0)
        for name in _ACCURACIES:
            float(row.get(name) or 0)
        cell = cell_of(table, row, modules)
        plugins = tuple(row["plugins"].split())
        cell, moved = defaults(cell, row, plugins)
        like = row
        if rounds is not None:
            cell, like = _shortened(cell, row, rounds)
    except EmulError as e:
        return RowVerdict(row, NOT_RUN, detail=" ".join(str(e).split()))
    except (ValueError, AttributeError, TypeError) as e:        # numbers and JSON that somebody has changed
        return RowVerdict(row, NOT_RUN, detail=f"the row cannot be read: {e}")
    with tempfile.TemporaryDirectory(prefix="emul-verify-") as folder:
        study = Path(folder)
        task = CellJob(cell.key, cell.scenario.resolved(), folder, list(plugins), pool.workers, store="none")
        event = run_cell(task, pool, lambda at: tell(f"{row['scheme']} seed {row['seed']}: round {at.round}"))
        if event.error is not None:
            return RowVerdict(row, NOT_RUN, detail=event.error.strip().splitlines()[-1])
        came = numbers(study, cell)
        again = {**Done(study / "none.csv", plugins).row(study, cell), "key": row["key"], "file": row["file"],
                 "sets": row["sets"]}
    said = judged(like, came, tolerance if elsewhere(row) else ALIKE)
    detail = "; ".join(filter(None, [moved, f"the first {rounds} rounds" if rounds else "", said.detail]))
    return dataclasses.replace(said, row=row, again=again, detail=detail, seconds=time.perf_counter() - begin)


def _shortened(cell: Cell, row: Row, rounds: int) -> tuple[Cell, Row]:
    """Both as if the run had ended after so many rounds. Raises StudyError if the row has no accuracy until then."""
    points = [point for point in (row.get("curve") or "").split() if int(point.partition(":")[0]) <= rounds]
    if not points:
        raise StudyError(f"the row has no accuracy of the first {rounds} rounds")
    rounds = min(rounds, int(points[-1].partition(":")[0]))             # no more than its run had
    scenario = dataclasses.replace(cell.scenario, stop=Stop(rounds=rounds))
    unknown = dict.fromkeys(("digest", *_ACCURACIES, *_OTHERS), "")
    # a digest is of the whole run
    return dataclasses.replace(cell, scenario=scenario), {**row, **unknown, "curve": " ".join(points)}


def elsewhere(row: Row) -> bool:
    """True if a row was made on another kind of processor, or with another torch, than there is now."""
    now = origin()
    return (row["processor"], row["torch"]) != (chip(), now["torch"])


def judged(row: Row, came: Mapping[str, object], tolerance: float) -> RowVerdict:
    """A row beside what came out now. The digest of a row may be cut."""
    digest = row["digest"]
    if digest and str(came["digest"]).startswith(digest):
        return RowVerdict(row, EQUAL)
    kept = [name for name in (*_ACCURACIES, *_OTHERS) if row.get(name)]
    differ = [f"{name} {row[name]}, {came.get(name, '')}" for name in kept
              if not _same(row[name], came.get(name, ""), tolerance, name in _ACCURACIES)]
    first = first_difference(row.get("curve") or "", str(came.get("curve", "")), tolerance)
    if not kept and not row.get("curve"):
        differ = ["the digest; the row has no number to compare"]
    verdict = DIFFERENT if differ or first is not None else IN_VALUES
    return RowVerdict(row, verdict, tolerance, first, "; ".join(differ))


def _same(text: str, value: Any, tolerance: float, accuracy: bool) -> bool:
    if value == "":
        return False
    one, other = float(text), float(value)
    return abs(one - other) <= tolerance * (1 if accuracy else max(abs(one), abs(other)))


def first_difference(row: str, came: str, tolerance: float) -> int | None:
    """The first round whose accuracy differs, of two curves as rows have them; None: none, or the row has no curve.

    >>> first_difference("1:0.5 2:0.6 3:0.7", "1:0.5 2:0.61 3:0.6", 0.02)
    3
    """
    if not row:
        return None
    one, other = (dict(point.split(":") for point in curve.split()) for curve in (row, came))
    return next((int(at) for at in sorted({*one, *other}, key=int) if at not in one or at not in other
                 or abs(float(one[at]) - float(other[at])) > tolerance), None)


def some(rows: Iterable[tuple[Path, Row]], workers: int, *, most: Mapping[Path, int], budget_s: float | None = None,
         tolerance: float = TOLERANCE, rounds: int | None = None,
         tell: Callable[[str], None] = lambda text: None, modules: Sequence[str] = (),
         ) -> Iterator[tuple[Path, RowVerdict]]:
    """Tables and verdicts of the first `most[table]` of these rows of each table (of all, if it has none), until the
    budget is spent. A row whose run took longer than what is left is passed over, and so is one that cannot be run,
    which does not count. rounds, tell, modules: see `verify`."""
    begin, done = time.perf_counter(), Counter[Path]()
    with PoolOnDemand(workers) as pool:
        for table, row in rows:
            left = None if budget_s is None else budget_s - (time.perf_counter() - begin)
            if left is not None and left <= 0:
                return
            if done[table] >= most.get(table, math.inf):
                continue
            if left is not None and rounds is None and float(row.get("real_s") or 0) > left:
                continue
            said = verify(table, row, pool, tolerance, rounds, tell, modules)
            done[table] += said.verdict != NOT_RUN
            yield table, said
