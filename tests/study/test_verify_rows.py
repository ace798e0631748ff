"""`emul verify`: rows of a table computed again."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emul.cli.options import FAILED, app
from emul.study import verify
from emul.study.done import AGAIN, COLUMNS
from emul.study.job import PoolOnDemand
from emul.study.runs import Where
from emul.study.sweep import sweep
from emul.study.verify import ALIKE, DIFFERENT, EQUAL, IN_VALUES, NOT_RUN, coder, drawn, first_difference, judged, read

Inside = Callable[..., Where]


@pytest.fixture
def table(small: Path, inside: Inside, tmp_path: Path) -> Path:
    """Two rows, one of a sweep that edits its scenario."""
    file = tmp_path / "done.csv"
    sweep(small, inside(), seeds=[0], schemes=["fedavg"], sets=["stop.rounds=1"], done=file, out=tmp_path / "a")
    sweep(small, inside(), seeds=[1], schemes=["fedavg"], grid={"links[0].latency": ["7 ms"]}, done=file,
          out=tmp_path / "b")
    return file


def written(table: Path, changed: dict[str, str], columns: tuple[str, ...] = tuple(COLUMNS)) -> list[dict[str, str]]:
    """The rows with these values in the first."""
    rows = read(table)
    rows[0].update(changed)
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return read(table)


def each(table: Path) -> list[tuple[Path, verify.Row]]:
    return [(table, row) for row in read(table)]


def again(table: Path, **changed: str) -> verify.RowVerdict:
    with PoolOnDemand(0) as pool:
        return verify.verify(table, {**read(table)[0], **changed}, pool)


def test_what_was_run_with_edits_and_with_a_grid_is_equal_again(table: Path) -> None:
    with PoolOnDemand(0) as pool:
        found = [verify.verify(table, row, pool) for row in read(table)]
    assert [(v.verdict, v.detail, v.round) for v in found] == [(EQUAL, "", None)] * 2


def test_another_digest_with_the_same_numbers_is_equal_in_values(table: Path) -> None:
    found = again(table, digest="0" * 32)
    assert (found.verdict, found.tolerance) == (IN_VALUES, ALIKE)


def test_a_number_that_differs_is_told_with_the_first_round(table: Path) -> None:
    row = read(table)[1]
    one, two = (point.partition(":")[2] for point in row["curve"].split())
    moved = float(two) + 0.001
    other = {**row, "digest": "0", "accuracy": str(moved), "curve": f"1:{one} 2:{moved}"}
    with PoolOnDemand(0) as pool:
        found = verify.verify(table, other, pool)
    assert (found.verdict, found.round) == (DIFFERENT, 2)
    assert found.detail == f"accuracy {moved}, {row['accuracy']}"


def test_a_row_of_another_processor_has_a_tolerance(table: Path) -> None:
    row = read(table)[0]
    near, far = (str(float(row["accuracy"]) + by) for by in (0.015, 0.025))
    there = {"digest": "0", "processor": "abacus", "curve": ""}
    found = again(table, accuracy=near, **there)
    assert (found.verdict, found.tolerance) == (IN_VALUES, 0.02)
    assert again(table, accuracy=far, **there).verdict == DIFFERENT
    assert again(table, accuracy=near, **{**there, "processor": row["processor"]}).verdict == DIFFERENT


def test_the_first_rounds_alone_are_compared_with_those_of_the_row(table: Path) -> None:
    row = read(table)[1]
    one, two = row["curve"].split()
    with PoolOnDemand(0) as pool:
        found = [verify.verify(table, {**row, "curve": curve, "accuracy": "0.99"}, pool, rounds=1)
                 for curve in (f"{one} 2:0.99", f"1:0.99 {two}", two)]
    assert [v.verdict for v in found] == [IN_VALUES, DIFFERENT, NOT_RUN]
    assert [v.detail for v in found] == ["the first 1 rounds"] * 2 + ["the row has no accuracy of the first 1 rounds"]
    assert found[1].round == 1
    assert found[0].row["accuracy"] == "0.99"
    with PoolOnDemand(0) as pool:
        assert verify.verify(table, row, pool, rounds=40).verdict == IN_VALUES          # of the two that it has


def test_a_default_that_has_changed_is_what_the_row_was_made_with(table: Path) -> None:
    row = read(table)[0]
    then = json.loads(row["parameters"])
    assert then["fraction"] == 1
    found = again(table, parameters=json.dumps({**then, "fraction": 0.34, "gone": 3}))
    assert found.verdict != EQUAL
    assert found.detail.startswith("made with fraction 0.34, by default 1.0 today")


@pytest.mark.parametrize(("changed", "why"), [
    ({"file": "nowhere.yaml"}, r"the scenario nowhere\.yaml is not here"),
    ({"sets": "[]"}, r"small\.yaml asks for something else today: its key is "),
    ({"scheme": "nobody"}, r'"nobody"'),
    ({"sets": '[{"file": "gone.yaml"}]'}, r"gone\.yaml, which edits the scenario, is nowhere near"),
    *(({name: value}, "the row cannot be read") for name, value in (
        ("seed", "x"), ("values", "{"), ("values", "[1]"), ("sets", "none"), ("curve", "1:x"), ("accuracy", "x"),
        ("parameters", "{")))
])
def test_a_row_that_cannot_be_made_again_says_why(table: Path, changed: dict[str, str], why: str) -> None:
    found = again(table, **changed)
    assert found.verdict == NOT_RUN
    assert re.search(why, found.detail)


def test_a_scenario_is_found_from_the_table_wherever_one_stands(table: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert again(table).verdict == EQUAL


def test_a_table_of_another_shape_will_do_if_its_rows_can_be_made_again(table: Path) -> None:
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    other = table.with_name("other.csv")
    with other.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*AGAIN, "joules", "accuracy"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "joules": "3", "digest": row["digest"][:8]} for row in rows)
    with PoolOnDemand(0) as pool:
        assert verify.verify(other, read(other)[0], pool).verdict == EQUAL
    costs = table.with_name("costs.csv")
    costs.write_text("scheme,seconds\nfedavg,1\n")
    with pytest.raises(Exception, match=r"costs\.csv: is no table of cells: it lacks the columns key, code, file,"):
        read(costs)


# --- order ------------------------------------------------------------------------------------------------------------

def test_rows_of_other_code_come_first_then_those_that_were_never_verified_and_known_differences_last() -> None:
    def row(key: str, code: str = "now") -> dict[str, str]:
        return {"key": key, "code": code, "digest": key}

    def said(key: str, made: str, verdict: str = EQUAL, code: str = "now", digest: str = "") -> dict[str, str]:
        return {"key": key, "digest": digest or key, "made": made, "verdict": verdict, "code": code}

    rows = [row("known", "old"), row("seen"), row("fresh"), row("equal", "old"), row("old", "old"), row("again", "old")]
    before = [said("known", "2026-01-01", DIFFERENT), said("seen", "2026-01-02"), said("equal", "2026-01-01"),
              said("again", "2026-01-01", code="older"), said("fresh", "2026-01-01", digest="of the row before")]
    found = [r["key"] for r in drawn(rows, before, lambda _: "now", "day")]
    assert found == ["old", "again", "fresh", "equal", "seen", "known"]


def test_another_day_draws_another_of_rows_that_are_alike() -> None:
    rows = [{"key": str(i), "code": "", "digest": str(i)} for i in range(20)]
    first = {drawn(rows, [], lambda _: "", str(day))[0]["key"] for day in range(20)}
    assert len(first) > 5
    assert drawn(rows, [], lambda _: "", "1") == drawn(rows[::-1], [], lambda _: "", "1")


def test_rows_go_by_the_age_of_their_verdicts_and_tables_take_turns_by_their_size() -> None:
    rows = {Path(name): [{"key": f"{name}{i}", "digest": "d"} for i in range(n)] for name, n in (("a", 23), ("b", 4))}
    before: dict[Path, list[dict[str, str]]] = {table: [] for table in rows}
    for release in range(10):
        found = verify.by_age({table: (own, before[table]) for table, own in rows.items()}, str(release))
        assert [str(table) for table, _ in found[:4]] == ["a", "a", "a", "b"]      # 0.5, 1.5, 2.5 of 23, 0.5 of 4
        for table, row in found[:4]:
            before[table].append({"table": str(table), **row, "made": f"2026-01-{release + 1:02}"})
    for table, own in rows.items():
        assert {verdict["key"] for verdict in before[table]} == {row["key"] for row in own}
    replaced = [*rows[Path("b")][1:], {**rows[Path("b")][0], "digest": "new"}]
    assert verify.by_age({Path("b"): (replaced, before[Path("b")])}, "x")[0][1]["digest"] == "new"


def test_the_code_of_a_row_is_that_of_its_scheme_today(table: Path) -> None:
    row = read(table)[0]
    assert coder(table)(row) == row["code"] != ""
    assert coder(table)({**row, "file": "nowhere.yaml"}) == ""


def test_a_row_tells_where_its_run_is(table: Path) -> None:
    told: list[str] = []
    assert len(list(verify.some(each(table), 0, most={table: 1}, tell=told.append))) == 1
    assert told[0] == "fedavg seed 0: round 1"


def test_a_budget_passes_over_what_would_take_longer(table: Path) -> None:
    rows = written(table, {"real_s": "1000"})
    found = list(verify.some(each(table), 0, most={}, budget_s=100))
    assert [v.row["key"] for _, v in found] == [rows[1]["key"]]
    assert list(verify.some(each(table), 0, most={}, budget_s=0)) == []
    assert len(list(verify.some(each(table), 0, most={table: 1}))) == 1


# --- numbers ----------------------------------------------------------------------------------------------------------

def test_what_a_row_does_not_have_is_not_compared_and_what_a_run_lacks_differs() -> None:
    came: dict[str, Any] = {"digest": "b", "accuracy": "0.5", "bytes": 1000, "best_five": "", "curve": ""}
    assert judged({"digest": "a", "accuracy": "0.5", "best_five": ""}, came, ALIKE).verdict == IN_VALUES
    assert judged({"digest": "a", "best_five": "0.5"}, came, ALIKE).detail == "best_five 0.5, "
    assert judged({"digest": "a", "bytes": "1015"}, came, 0.02).verdict == IN_VALUES
    assert judged({"digest": "a", "bytes": "1030"}, came, 0.02).verdict == DIFFERENT
    assert judged({"digest": "", "accuracy": "0.5"}, came, ALIKE).verdict == IN_VALUES
    assert judged({"digest": "a", "joules": "3"}, came, ALIKE).verdict == DIFFERENT      # nothing says that it is


def test_a_round_that_only_one_curve_has_differs() -> None:
    assert first_difference("1:0.5 2:0.6", "1:0.5", 0.02) == 2
    assert first_difference("", "1:0.5", 0.02) is None


# --- the command ------------------------------------------------------------------------------------------------------

def test_the_command_keeps_verdicts_and_fails_for_a_difference(table: Path) -> None:
    key = written(table, {"digest": "0" * 32, "accuracy": "0.99"})[0]["key"]
    result = CliRunner().invoke(app, ["verify", str(table), "--workers", "0"])
    assert result.exit_code == FAILED
    with table.with_name("verified.csv").open(newline="") as file:
        found = {row["key"]: row for row in csv.DictReader(file)}
    assert {key: row["verdict"] for key, row in found.items()} == {
        row["key"]: DIFFERENT if row["key"] == key else EQUAL for row in read(table)}
    assert found[key]["table"] == "done.csv"
    assert found[key]["detail"].startswith("accuracy 0.99, ")
    before = table.with_name("verified.csv").read_text()
    others = [k for k in found if k != key]
    assert CliRunner().invoke(app, ["verify", str(table), "--workers", "0", "--keys", *others]).exit_code == 0
    assert table.with_name("verified.csv").read_text() == before             # a row a cell


def test_all_tables_below_the_folder_give_a_part_of_their_rows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    (table.parent / ".hidden").mkdir()
    for copy in (table.parent / ".hidden" / "done.csv", table.parent / "sub" / "more.csv"):
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(table.read_text())
    (table.parent / "other.csv").write_text("key,seconds\n")
    result = CliRunner().invoke(app, ["verify", "--all", "--workers", "0"])
    assert result.exit_code == 0, result.output
    assert "done.csv: 1 of 2 rows, 2 had no verdict\n" in result.output
    assert "sub/more.csv: 1 of 2 rows, 2 had no verdict\n" in result.output
    assert CliRunner().invoke(app, ["verify", "--all", "--workers", "0"]).exit_code == 0
    for name in ("done.csv", "sub/more.csv"):           # the second time the rows that had no verdict
        kept = verify.verdicts(Path(name).with_name(verify.FILE))
        assert {verdict["key"] for verdict in kept} == {row["key"] for row in read(table)}
    assert not (table.parent / ".hidden" / verify.FILE).exists()
    for wrong in (["verify"], ["verify", "--all", str(table)]):
        assert "expected a table, or --all in its place" in str(CliRunner().invoke(app, wrong).exception)


def test_a_row_is_renewed_where_its_digest_is_another_one(table: Path) -> None:
    before = read(table)
    written(table, {"digest": "0" * 32, "accuracy": "0.99", "revision": "~01234", "processor": "abacus"})
    result = CliRunner().invoke(app, ["verify", str(table), "--workers", "0", "--renew"])
    assert result.exit_code == 0, result.output
    varies = ("real_s", "made")
    assert [{k: v for k, v in row.items() if k not in varies} for row in read(table)] == [
        {k: v for k, v in row.items() if k not in varies} for row in before]
    with table.with_name("verified.csv").open(newline="") as file:          # what was replaced has no verdict
        assert [row["digest"] for row in csv.DictReader(file)] == [before[1]["digest"]]


def test_what_cannot_be_renewed_is_said_before_anything_runs(table: Path) -> None:
    other = table.with_name("other.csv")
    other.write_text(table.read_text().replace(",accuracy,", ",joules,", 1))
    for said in (["verify", str(other), "--renew"], ["verify", str(table), "--renew", "--rounds", "1"]):
        result = CliRunner().invoke(app, said)
        assert result.exit_code != 0
        assert result.output == ""
        assert re.search("found the columns|needs whole runs", str(result.exception))
    assert not table.with_name("verified.csv").exists()
