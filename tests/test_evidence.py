"""Published cells: every table has what makes its rows again, pages say how old they are, a cell a day still holds."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmarks import document, evidence, finished
from benchmarks.evidence import DOCS, TABLES, TIMINGS, block, filled, pages
from emul.study import verify
from emul.study.done import edits, found
from emul.study.job import today

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
NAMES = {table.name: table for table in TABLES}


def test_every_table_is_one_of_cells_or_of_timings() -> None:
    files = {file for folder in (evidence.REPRODUCTIONS, evidence.STUDIES) for file in folder.glob("*.csv")}
    assert {file for file in files if file.name != verify.FILE} == {*TABLES, *TIMINGS, *evidence.OTHERS}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_says_what_makes_it_again(name: str) -> None:
    table = NAMES[name]
    rows = verify.read(table)
    assert len({row["key"] for row in rows}) == len(rows) > 0
    for row in rows:
        assert row["digest"]
        assert row["revision"]
        assert row["processor"]
        assert row["made"]
        assert isinstance(json.loads(row["values"]), dict)
        assert isinstance(json.loads(row["parameters"]), dict)
    for file, sets in {(row["file"], row["sets"]) for row in rows}:
        assert found(table, file) == ROOT / file
        assert all(isinstance(edit, str) for edit in edits(table, sets))


@pytest.mark.parametrize("folder", [evidence.REPRODUCTIONS, evidence.STUDIES], ids=lambda folder: folder.parent.name)
def test_every_verdict_is_of_a_row_that_there_is_or_was(folder: Path) -> None:
    verdicts = verify.verdicts(folder / verify.FILE)
    keys = {name: {row["key"] for row in verify.read(folder / name)} for name in {v["table"] for v in verdicts}}
    for verdict in verdicts:
        assert list(verdict) == list(verify.VERDICTS)
        assert verdict["key"] in keys[verdict["table"]]
        assert verdict["verdict"] in (verify.EQUAL, verify.IN_VALUES, verify.DIFFERENT)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_says_how_old_its_rows_are(page: Path) -> None:
    text = document.read(page)
    assert filled(page, text) == text, "make it anew: python -m benchmarks.evidence"


# --- the block --------------------------------------------------------------------------------------------------------

def table(folder: Path, rows: list[dict[str, str]], verdicts: list[dict[str, str]]) -> Path:
    file = folder / "done.csv"
    for path, columns, lines in ((file, verify.AGAIN, rows), (folder / verify.FILE, verify.VERDICTS, verdicts)):
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(columns))
            writer.writeheader()
            writer.writerows(lines)
    return file


def row(key: str, **said: str) -> dict[str, str]:
    return {"key": key, "digest": f"d{key}", "revision": "~1", "processor": "abacus", "torch": "1",
            "made": "2026-01-01", "file": "some/lake.yaml", "scheme": "fedavg", "seed": "0", "values": "{}", **said}


def said(key: str, verdict: str, **more: str) -> dict[str, str]:
    return {"table": "done.csv", "key": key, "digest": f"d{key}", "verdict": verdict, "made": "2026-02-02",
            "revision": "9", "processor": "slide rule", "tolerance": "0.02", **more}


def test_a_block_counts_rows_and_verdicts_by_processor_and_names_what_differs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    rows = [row("a"), row("b", revision="~2", made="2026-01-03"), row("c"), row("d", processor="slide rule")]
    verdicts = [said("a", verify.EQUAL), said("b", verify.DIFFERENT, round="7", detail="accuracy 0.5, 0.6"),
                said("c", verify.IN_VALUES, digest="of a row that was replaced"),
                said("d", verify.IN_VALUES, detail="the first 5 rounds")]
    lines = block([table(tmp_path, rows, verdicts)]).splitlines()
    assert lines[0] == "In `.`:"
    assert lines[4:6] == [
        "| done.csv | 3 | 2026-01-01 to 2026-01-03 | ~1 to ~2 | abacus, torch 1 | 2, last 2026-02-02 "
        "| 1 | 0 | 1 | 0 | - |",
        "| done.csv | 1 | 2026-01-01 | ~1 | slide rule, torch 1 | 1, last 2026-02-02 | 0 | 1 | 0 | 1 | 0.02 |"]
    assert lines[-1] == ("Different from round 7 on, at 9 on slide rule within 0.02: `lake`, `fedavg`, seed 0, `{}`: "
                         "accuracy 0.5, 0.6.")


def test_rows_of_another_shape_get_what_makes_them_again_by_their_digest(tmp_path: Path) -> None:
    file = table(tmp_path, [row("a"), row("b", seed="3")], [])
    joined = finished.again([file])
    assert joined["db"] == {**dict.fromkeys(verify.AGAIN, ""), **row("b", seed="3")}
    assert finished.curve([5, 10], [0.5, 1 / 3]) == "5:0.5 10:0.33333"


# --- a cell a day -----------------------------------------------------------------------------------------------------

@pytest.mark.release
@pytest.mark.parametrize("name", NAMES)
def test_one_cell_of_every_table_still_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one each day, its first rounds where it takes minutes. A known difference, explained on its page, is not
    drawn.

    On another processor last bits differ, and a rule that takes one client's update may take another one's: such a row
    has a wide tolerance, and a second row decides if it differs all the same.
    """
    if SHARED.is_dir():
        monkeypatch.setenv("EMUL_DATA", str(SHARED))
    file = NAMES[name]
    before = verify.verdicts(file.with_name(verify.FILE))
    known = {(v["key"], v["digest"]) for v in before if v["verdict"] == verify.DIFFERENT}
    rows = [one for one in verify.read(file) if (one["key"], one["digest"]) not in known]
    order = verify.drawn(rows, before, verify.coder(file), today())
    ended = verify.some(((file, row) for row in order[:20]), 0, most={file: 2}, tolerance=0.1,
                        rounds=evidence.FIRST.get(name))
    tried = (verdict for _, verdict in ended if verdict.verdict != verify.NOT_RUN)
    said = next(tried, None)
    if said is None:
        pytest.skip(f"no cell of {name} can be run here: is the data in $EMUL_DATA?")
    if said.verdict == verify.DIFFERENT and verify.elsewhere(said.row):
        said = next(tried, said)
    assert said.verdict != verify.DIFFERENT, f"{said.row['key']} of {name}, from round {said.round} on: {said.detail}"


def test_pages_lie_where_they_are_looked_for() -> None:
    assert all(page.is_file() and page.is_relative_to(DOCS) for page in pages())
