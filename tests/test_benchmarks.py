"""The machinery of `make bench`: tables in the document, ratios and their limits, failures that stop nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    against,
    bench_bulk,
    bench_kernel,
    bench_overhead,
    bench_rounds,
    bench_wire,
    common,
    document,
    house,
    suite,
    thresholds,
)
from benchmarks.common import Figure, Options, Table, pss_bytes
from benchmarks.thresholds import Threshold, ThresholdError
from benchmarks.turns import Block, take_turns

ROOT = Path(__file__).resolve().parents[1]
FRONT = """# Title
By hand.

<!-- environment -->
| | |
|---|---|
| machine | an old one |
| peers' environment | flwr 1 |
<!-- end -->
<!-- fast -->
<!-- end -->
<!-- large_runs -->
<!-- end -->
<!-- sure -->
<!-- end -->
"""
TEXT = """# Title

## One
Above it.

<!-- one -->
Not measured yet.
<!-- end -->

Below it, by hand: | no table |, <b>bold</b> and a backslash \\1.

<!-- two -->
| figure | value | unit | target | | note |
|---|---|---|---|---|---|
| **old** | 7 | s | <= 8 | met |  |
| **size** | 9 | GiB | <= 8 | missed |  |
<!-- end -->
"""
FIGURES = [Figure("fast", 123.4, "x", at_least=200.0, note="a | b"), Figure("plain", 2.0, "s"),
           Figure("variant", 1.0, "s", at_most=2.0, minor=True)]


def table(name: str = "one", figures: list[Figure] = FIGURES, error: str | None = None) -> Table:
    return Table(name, 3, 0.5, "2026-01-02", figures, yardstick=100.0, error=error)


# --- the document ---------------------------------------------------------------------------------------------------

def test_a_table_is_replaced_and_everything_around_it_kept() -> None:
    new = document.replaced(TEXT, "one", document.generated(table(), "2 cores"))
    before, after = TEXT.split("Not measured yet.")
    assert new.startswith(before)
    assert new.endswith(after)
    assert document.blocks(new)["one"].splitlines() == [
        "| figure | value | unit | target | | note |", "|---|---|---|---|---|---|",
        "| **fast** | 123 | x | >= 200 | missed | a \\| b |", "| plain | 2.00 | s |  |  |  |",
        "| variant | 1.00 | s | <= 2.00 | met |  |", "", "3 repeats, 2026-01-02, load 0.50 before; 2 cores."]


def test_replacing_twice_gives_what_replacing_once_gives() -> None:
    once = document.replaced(TEXT, "two", document.generated(table("two"), "2 cores"))
    assert document.replaced(once, "two", document.generated(table("two"), "2 cores")) == once


@pytest.mark.parametrize(("text", "message"), [
    (TEXT.replace("<!-- one -->", "<!-- eins -->"), "expected <!-- one --> and <!-- end --> on lines of their own"),
    (TEXT.replace("<!-- one -->", "<!-- two -->"), "line 12: <!-- two --> a second time"),
    (TEXT.replace("Not measured yet.\n<!-- end -->", ""), "line 11: <!-- two --> before the end of one"),
    (TEXT + "<!-- end -->\n", "line 18: <!-- end --> without a beginning"),
    (TEXT.rstrip().removesuffix("<!-- end -->"), "two has no end: expected <!-- end -->")])
def test_marks_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(document.DocumentError, match=f"^{re.escape(message)}$"):
        document.replaced(text, "one", "new")


def pages(folder: Path) -> document.Pages:
    found = document.Pages(folder / "front.md", folder / "tables.md")
    found.front.write_text(FRONT)
    found.tables.write_text(TEXT)
    return found


def test_the_front_page_has_the_headlines_of_all_tables_old_and_new(tmp_path: Path) -> None:
    here = pages(tmp_path)
    limits = [Threshold("one", name, 0.0, "because", at_least=3) for name in ("fast", "plain")]
    document.write([table(), table("two", error="it broke")], "2 cores", {"machine": "a new one"}, here, limits)
    found = document.blocks(document.read(here.front))
    assert found["fast"].splitlines()[2:] == [
        "| `one` | fast | 123 x | >= 200 | **missed** |", "| `two` | old | 7 s | <= 8 | met |"]
    assert found["large_runs"].splitlines()[2:] == ["| `two` | size | 9 GiB | <= 8 | **missed** |"]
    assert found["sure"].splitlines()[2:] == ["| `one` | 2026-01-02 | 3 | 0.50 |  | 2 |", "| `two` |  |  |  |  |  |"]
    assert found["environment"].splitlines()[2:] == ["| machine | a new one |", "| peers' environment | flwr 1 |"]
    assert document.read(here.front).startswith("# Title\nBy hand.\n")
    assert document.blocks(document.read(here.tables))["two"] == document.blocks(TEXT)["two"]  # it failed: the old one


def test_a_long_table_stands_apart_and_is_read_where_it_was(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.with_suffix("").mkdir()
    (tmp_path / "page" / "old.csv").write_text("a\n1\n")
    rows = "".join(f"| {number} | x \\| y, \"z\" |  |\n" for number in range(30))
    text = f"# A\n\n<!-- one -->\n| n | [a](b.md) | |\n|---|---|---|\n{rows}\nBelow.\n<!-- end -->\n"
    document.save(page, text)
    assert page.read_text() == "# A\n\n<!-- one -->\n[Table of 30 rows](page/one.csv)\n\nBelow.\n<!-- end -->\n"
    assert [file.name for file in (tmp_path / "page").iterdir()] == ["one.csv"]
    assert (tmp_path / "page" / "one.csv").read_text().splitlines()[:2] == ["n,[a](b.md),", '0,"x | y, ""z""",']
    assert document.read(page) == text
    document.save(page, document.read(page), most_words=200)
    assert page.read_text() == text
    (tmp_path / "page" / "own.csv").write_text("a\n1\n")
    page.write_text("Before.\n\n[Table of 1 rows](page/own.csv)\n\n" + text)
    assert "| 1 |" in document.read(page)
    document.save(page, document.read(page), most_words=200)
    assert page.read_text() == "Before.\n\n[Table of 1 rows](page/own.csv)\n\n" + text


def test_a_revision_that_lacks_what_a_probe_imports_runs_its_own(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tree, imports, value in (("first", "import emul.not_there", 0), ("own", "", 6), ("now", "", 3)):
        (tmp_path / tree / "benchmarks").mkdir(parents=True)
        (tmp_path / tree / "benchmarks" / "__init__.py").touch()
        (tmp_path / tree / "benchmarks" / "bench_x.py").write_text(
            f"{imports}\ndef probe():\n    print('{{\"s\": {value}}}')\n")

    @contextmanager
    def trees(revision: str, own: bool = False) -> Iterator[tuple[Path, Path]]:
        yield tmp_path / ("own" if own else "first"), tmp_path / "now"

    monkeypatch.setattr(against, "trees", trees)
    monkeypatch.setattr(against, "PROBES", {"x": "from benchmarks.bench_x import probe; probe()"})
    figure, = against.compare("abc", ["x"], 1)
    assert figure.value == 2.0
    assert figure.note.startswith("before with its own benchmarks; 6 before, 3 now")
    (tmp_path / "first" / "benchmarks" / "bench_x.py").write_text("def probe():\n    print('{\"s\": 12}')\n")
    figure, = against.compare("abc", ["x"], 1)
    assert figure.value == 4.0
    assert figure.note.startswith("12 before, 3 now")


def test_a_load_above_half_a_core_is_called_busy() -> None:
    text = document.replaced(TEXT, "one", document.generated(Table("one", 1, 0.51, "2026-01-02", FIGURES), "2 cores"))
    assert document.sureness(text, []).splitlines()[2] == "| `one` | 2026-01-02 | 1 | 0.51 | *busy* |  |"


def test_the_pages_have_a_place_for_every_benchmark_and_the_front_is_made_of_the_tables() -> None:
    text, tables = map(document.read, (document.PAGES.front, document.PAGES.tables))
    assert {*suite.names(), suite.APART} == set(document.blocks(tables))
    assert text == document.front(text, tables, thresholds.load())


def test_every_benchmark_is_found_by_its_name() -> None:
    for name in [*suite.names(), suite.APART]:
        assert callable(getattr(importlib.import_module(f"benchmarks.bench_{name}"), name))


# --- ratios ---------------------------------------------------------------------------------------------------------

FIGURE = Figure("a", 30.0, "s")
TABLE = table(figures=[FIGURE, Figure("b", 10.0, "s"), Figure("c", 10.0, "GB"), Figure("d", 4.2, "x")])


def threshold(**values: object) -> Threshold:
    return thresholds._checked(1, {"benchmark": "one", "figure": "a", "tolerance": 0.1, "reason": "so", **values})


@pytest.mark.parametrize(("values", "ratio"), [
    ({"over": "b", "at_least": 3.3}, 3.0), ({"over": "b", "at_most": 2.8}, 3.0),
    ({"per": "python", "at_least": 0.3}, 0.3), ({"figure": "d", "at_most": 4}, 4.2)])
def test_a_ratio_within_its_tolerance_holds(values: dict[str, object], ratio: float) -> None:
    assert thresholds.ratio(threshold(**values), TABLE) == pytest.approx(ratio)
    held, fell = thresholds.check([threshold(**values)], [TABLE])
    assert (len(held), fell) == (1, [])


@pytest.mark.parametrize("values", [{"over": "b", "at_least": 3.4}, {"over": "b", "at_most": 2.7},
                                    {"per": "python", "at_most": 0.2}, {"figure": "d", "at_least": 5}])
def test_a_ratio_beyond_its_tolerance_falls_and_is_named(values: dict[str, object]) -> None:
    held, (sentence,) = thresholds.check([threshold(**values)], [TABLE])
    assert held == []
    assert re.match(rf"one: {values.get('figure', 'a')}[ :]", sentence)
    assert sentence.endswith(": so")


@pytest.mark.parametrize(("values", "message"), [
    ({"at_least": 1}, "one: a: in s, which depends on the machine; expected over or per"),
    ({"at_least": 1, "over": "c"}, "one: a / c: s over GB is no ratio"),
    ({"at_least": 1, "over": "e"}, 'one: a / e: there is no figure "e"'),
    ({"at_least": 1, "figure": "f"}, 'one: f: there is no figure "f"')])
def test_what_gives_no_ratio_falls(values: dict[str, object], message: str) -> None:
    assert thresholds.check([threshold(**values)], [TABLE]) == ([], [message])


def test_a_benchmark_that_was_not_run_to_its_end_is_not_judged() -> None:
    wanted = threshold(figure="f", at_least=1)
    assert thresholds.check([wanted], [table("other"), table(error="it broke")]) == ([], [])


@pytest.mark.parametrize(("values", "message"), [
    ({"at_least": 1, "at_most": 2}, "expected at_least or at_most, one of them"),
    ({}, "expected at_least or at_most, one of them"),
    ({"at_least": "1"}, "at_least: found '1'"), ({"at_least": 1, "over": "b", "per": "python"}, "expected over or per"),
    ({"at_least": 1, "per": "second"}, "per: expected \"python\", found 'second'"),
    ({"at_least": 1, "tolerance": 1.0}, "tolerance: expected a share"), ({"at_last": 1}, "unknown key at_last")])
def test_a_mistake_in_the_file_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ThresholdError, match=rf"^threshold 1 \(a\): {re.escape(message)}"):
        threshold(**values)


def test_the_file_of_thresholds_is_sound() -> None:
    found = thresholds.load()
    assert {one.benchmark for one in found} <= {*suite.names(), suite.APART}
    assert len({(one.name, one.at_least is None) for one in found}) == len(found)
    assert all(len(one.reason) > 10 for one in found)


# --- a run of several -------------------------------------------------------------------------------------------------

def good(options: Options) -> Iterator[Figure]:
    yield Figure("repeats", options.repeats, "x", at_least=1.0)


def bad(options: Options) -> Iterator[Figure]:
    yield Figure("half", 1.0, "x")
    raise ValueError("no more")


def test_a_benchmark_that_fails_loses_nothing_of_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, file = pages(tmp_path), tmp_path / "figures.json"
    status = suite.run({"two": bad, "one": good}, 5, file, here, limits=[])
    assert status == 1
    found = document.blocks(document.read(here.tables))
    assert found["one"].splitlines()[2] == "| **repeats** | 5.00 | x | >= 1.00 | met |  |"
    assert found["two"] == document.blocks(TEXT)["two"]
    kept = {one["name"]: one for one in json.loads(file.read_text())["tables"]}
    assert [figure["value"] for figure in kept["two"]["figures"]] == [1.0]
    assert (kept["two"]["error"], kept["one"]["error"]) == ("ValueError: no more", None)
    assert kept["one"]["yardstick"] > 1000
    assert "two: ValueError: no more" in capsys.readouterr().out


@pytest.mark.parametrize(("at_least", "status"), [(3, 0), (4, 1)])
def test_the_exit_status_says_whether_a_ratio_fell(at_least: float, status: int,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    limit = Threshold("one", "repeats", 0.0, "because", at_least=at_least)
    assert suite.run({"one": good}, 3, limits=[limit]) == status
    assert ("one: repeats: 3.00, expected >= 4.00" in capsys.readouterr().out) == bool(status)


def test_an_import_that_fails_is_the_failure_of_that_benchmark() -> None:
    found = table(figures=[])
    common.measure(found, suite.find("none_such"))
    assert found.error is not None
    assert found.error.startswith("ModuleNotFoundError")


# --- memory of a process tree -----------------------------------------------------------------------------------------

def test_memory_between_two_readings_is_what_the_resident_sets_have_grown_by(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[float] = []

    def read(pid: int) -> float:
        readings.append(pss_bytes(pid))
        return readings[-1]

    monkeypatch.setattr(common, "pss_bytes", read)
    monkeypatch.setattr(common, "_PAUSE", 1e9)
    measure = common.Pss()
    before = measure(os.getpid())
    assert readings == [before]
    filled = np.ones(64 << 20, np.uint8)
    after = measure(os.getpid())
    assert len(readings) == 1
    assert after - before == pytest.approx(filled.nbytes, rel=0.1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        measure(os.getpid())
        assert len(readings) == 2                   # a process has come
        child.communicate(b"\n", timeout=30)
    measure(os.getpid())
    assert len(readings) == 3                       # and gone
    monkeypatch.setattr(common, "_PAUSE", -1.0)
    measure = common.Pss()
    for count in (4, 5):
        measure(os.getpid())
        assert len(readings) == count


# --- turns ------------------------------------------------------------------------------------------------------------

def contender(rounds: int) -> list[str]:
    """The command of one that does nothing in blocks of two rounds."""
    return common.python("from benchmarks.turns import Turn\nturn = Turn(2)\n"
                         f"for number in range(1, {rounds + 1}): turn.ended(number)\nprint('at the end')")


def test_contenders_take_turns_block_by_block_until_both_have_ended() -> None:
    found, said = take_turns([contender(6), contender(6)], 2)
    assert [len(blocks) for blocks in found] == [2, 2]
    assert all(block.wall_s > 0 for blocks in found for block in blocks)
    assert [text.splitlines()[-1] for text in said] == ["at the end"] * 2


def test_a_contender_that_ends_before_its_last_block_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended with 0: "):
        take_turns([contender(2)], 2)


@pytest.mark.parametrize(("calm", "percent", "target"), [(4, 10.0, "<= 6.00"), (3, 50.0, "")])
def test_pairs_count_in_which_nothing_else_was_about_and_without_them_there_is_no_verdict(
        calm: int, percent: float, target: str) -> None:
    quiet, loud = Block(1.0, 2.0, 0.0), Block(1.0, 2.0, 0.5)
    theirs = [quiet] * calm + [loud] * 9
    found = bench_overhead.Pairs([Block(1.1, 2.0, 0.0)] * calm + [Block(1.5, 2.0, 0.0)] * 9, theirs, [])
    figure = bench_overhead._wall("wall", found, 6)
    assert figure.value == pytest.approx(percent)
    assert figure.target == target


def test_a_round_is_one_that_has_ended_however_often_the_kernel_tells_of_progress(
        capsys: pytest.CaptureFixture[str]) -> None:
    bench_rounds.probe(100, 0, 2, 0)
    done = bench_rounds.parse(common.Run(capsys.readouterr().out, 0.0))
    assert len(done.per_round) == len(done.accuracies) == 2


def test_rounds_that_use_more_than_the_cores_have_were_timed_by_another_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosted Flower app's clock shows virtual time: its rounds of 0.05 s once stood in the table against Flower."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    line = "per_round=[5.0, 0.05, 0.05, 0.05] acc=[0.1, 0.1, 0.1, 0.1] cpu={}"
    assert bench_rounds.parse(common.Run(line.format(0.1), 0.0)).later_s == 0.05
    with pytest.raises(ValueError, match=r"^rounds of 0\.15 s in all used 3\.00 s of CPU on 2 cores$"):
        bench_rounds.parse(common.Run(line.format(1.0), 0.0))


def test_a_model_is_encoded_and_decoded_by_its_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_wire, "SIZES", {10: 1})
    beside = list(bench_wire.wire(common.Options(1)))[-1]
    assert beside.name == "bytes beside the array, 10 parameters"
    assert 10 < beside.value < 200


@pytest.mark.slow
def test_the_runs_that_benchmarks_wire_themselves_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    with bench_kernel.pool_of(0) as pool:
        assert bench_kernel.measure(bench_kernel.placed(100, 1, "half", 2000), pool).activations >= 1000
        bench_bulk.measure(bench_bulk.wiring(5, 1, 1), pool)
    for probe in (bench_kernel.parts_probe, bench_kernel.table_probe):
        probe(100, 5000)
        assert json.loads(capsys.readouterr().out)


def test_the_count_of_the_house_is_right_on_a_small_one(tmp_path: Path) -> None:
    sources = {
        "__init__": "", "top": '"""Said."""\nfrom emul.part import a\n\n\ndef f():\n    return a._twice()\n',
        "part/__init__": "", "part/a": "# why\nimport emul.part.b\n\n\ndef _once():\n    return _once()\n",
        "part/b": "from emul.part.a import _once\n\n\ndef g():\n    _once(_twice, _twice)\n\n\ndef _twice(): ...\n"}
    for name, text in sources.items():
        path = tmp_path / "emul" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = house.modules(tmp_path / "emul")
    graph = house.imports(found)
    a, b, top = "emul.part.a", "emul.part.b", "emul.top"
    assert set(graph.edges) == {(top, a), (a, b), (b, a)}
    assert house.floors(graph) == {"emul": 1, "emul.part": 1, a: 1, b: 1, top: 2}
    assert [list(house.called_once(tree)) for _, tree in found.values()] == [[], [], [], [], []]
    assert list(house.called_once(ast.parse("def _f():\n    return _f()\ndef g():\n    _f()\n"))) == ["_f"]
    assert house.lines(found) == {"docstrings": 1, "imports": 3, "comments": 1, "blank": 8, "code": 7}
    calls = [("", "top.py", "f"), ("top.py", "part/a.py", "g"), ("part/a.py", "part/a.py", "h"),
             ("part/a.py", "top.py", "called_back"), ("top.py", "part/__init__.py", "i"), ("", "top.py", "j")]
    assert house.stays(calls, house.floors(graph)) == (5, 1)
