"""One reader for all tables: every dialect of CSV, and files that are none."""

import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base import tables
from emul.base.errors import ScenarioError
from emul.base.files import read_limited, read_text
from emul.base.units import LARGEST

PLAIN = "t_s,loss,name\n0,0.5,a\n1.5,0,b\n"


def columns(table: tables.TextTable) -> tuple[list[int | None], list[float | None], list[str | None]]:
    found = table.durations("t"), table.shares("loss"), table.column("name", str)
    table.check()
    return found


@pytest.mark.parametrize("text", [
    PLAIN, "\ufeff" + PLAIN, PLAIN.replace("\n", "\r\n"), PLAIN.replace("\n", "\r"), PLAIN.replace(",", "\t"),
    PLAIN.replace(",", ";"), PLAIN.replace(",", ";").replace(".", ","), "sep=;\n" + PLAIN.replace(",", ";"),
    PLAIN.replace(",", "|"), PLAIN.replace(",", "\t").replace(".", ","),
    "# measured\n\n" + PLAIN.replace("a\n", "a\n  # again\n\n"),
    PLAIN.replace("\n", ",\n"), PLAIN.replace("\n", ",,,\n"), PLAIN.replace("\n", " ,\n"), PLAIN.rstrip("\n"),
    'more,"t_s",loss,name\n",",0,0.5,"a"\n"x\ny",1.5,0,b\n', ",t_s,loss,name\n0,0,0.5,a\n1,1.5,0,b\n",
    "t_ms,loss,name\n0,50%,a\n1500,0 %,b\n", "t [s],loss_%,Name\n0,50,a\n1.5,0,b\n",
    "Time (ms),Loss (percent),NAME\n0,50,a\n1.5e3,0e0,b\n", "t,loss,name\n0 s,0.5,a\n1500 ms,0,b\n,,\n"])
def test_every_dialect_says_the_same(text):
    assert columns(tables.parse(text.removeprefix("\ufeff"), Path("t.csv"))) == (
        [0, 1_500_000_000], [0.5, 0.0], ["a", "b"])


@pytest.mark.parametrize(("text", "problem"), [
    ("t_s,loss,name\n0,0.5\n", "line 2    2 values  expected 3, as the header has"),
    ("t_s,loss,name\n0,0.5,a,b\n", "line 2    4 values  expected 3, as the header has"),
    ('t_s,loss,name\n0,1,"a\n1,0,b\n', "line 2    unexpected end of data  expected values with a comma, ; or tab "
     "between them"),
    ("t_s;loss;name\n1,234;0;a\n5.5;0;b\n", "line 3    5.5, 0, b  expected one decimal mark in a column, comma or "
     "point"),
    ('t_s,loss,name\n"1,234.5",0,a\n', 'line 2  t_s  "1,234.5"  expected a number without marks of thousands'),
    ("t_s\tloss\tname\n1,234\t0\ta\n", 'line 2  t_s  "1,234"  expected a number without marks of thousands'),
    ("t_s,loss,name\n-,0,a\n", 'line 2  t_s  "-"  expected a number, found none'),
    ("t_s,t_ms,loss,name\n0,0,0,a\n", "line 1    t_s, t_ms  expected one column t"),
    ("t_parsec,loss,name\n0,0,a\n", "line 1    t_parsec,loss,name  expected a header with the columns t_s (or another "
     "unit), loss, name"),
    ("t [parsec],loss,name\n0,0,a\n", 'line 1  t [parsec]  "parsec"  expected a unit of time such as ms'),
    ("t_s,loss,name\n0,130%,a\n", 'line 2  loss  "130%"  expected a probability in [0, 1], or in %'),
    ("t_s,loss,name\n0e999999999,0,a\n", 'line 2  t_s  "0e999999999"  expected a number'),
    ("t,loss,name\n0,0,a\n1,0,b\n2,0,c\n3,0,d\n", 'line 3  t  "1"  expected a duration such as 20 ms or 1 h: the unit '
     "is missing, here and in 2 more; or in the name of the column, as in t_ms"),
    ("t_s,loss,name\n1e999,0,a\n", 'line 2  t_s  "1e999"  expected a number'),
    ("t_s,loss,name\n1_0,0,a\n", 'line 2  t_s  "1_0"  expected a number'),
])
def test_a_bad_table_is_told_with_its_line(tmp_path, text, problem):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        columns(tables.read(file, ("t=s", "loss", "name")))
    assert str(caught.value).splitlines()[1].strip() == problem


def test_of_two_forms_that_fit_the_longer_counts_and_two_that_differ_are_refused(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("more,b,a\n1,2,3\n")
    assert tables.read(file, ("a",), ("a", "b")).header == ["more", "b", "a"]
    with pytest.raises(ScenarioError, match="expected a header with the columns a or b, not both"):
        tables.read(file, ("a",), ("b",))


@given(st.text(st.sampled_from("t_s,;\t\n\r\"#0123456789.eE%-\0 "), max_size=60))
def test_garbage_raises_nothing_but_scenario_errors(text):
    try:
        table = tables.parse(text, Path("t.csv"))
        for name in table.header:
            for read in (table.durations, table.rates, table.shares):
                read(name)
        table.check()
    except ScenarioError:
        pass


@pytest.mark.parametrize(("name", "found"), [
    ("throughput_MBps", ("throughput", "MBps")), ("rate [kB/s]", ("rate", "kB/s")), ("mbps", ("", "mbps")),
    ("DL_bitrate (kbps)", ("dl_bitrate", "kbps")), ("throughput_KiB/s", ("throughput", "KiB/s")),
    ("name", ("name", None)), ("t", ("t", None)), ("s", ("", "s")), ("bits_per_second", ("", "bits/second"))])
def test_a_column_says_what_it_holds_and_in_which_unit(name, found):
    assert tables.title(name) == found


@pytest.mark.parametrize("unit", ["MBps", "MB/s", "mbps", "Mbit/s", "KiB/s", "Bps", "kbps"])
def test_a_rate_is_the_same_with_its_unit_in_the_header_and_in_the_cell(unit):
    texts = f"rate_{unit}\n8\n", f"rate [{unit}]\n8\n", f"rate\n8 {unit}\n", f"Rate ({unit})\n8.0\n"
    bits = {"MBps": 8e6, "MB/s": 8e6, "mbps": 1e6, "Mbit/s": 1e6, "KiB/s": 8192, "Bps": 8, "kbps": 1e3}[unit]
    assert [tables.parse(text, Path("t.csv")).rates("rate") for text in texts] == [[8 * bits]] * 4


@given(st.integers(0, 10**24), st.integers(0, 30), st.sampled_from(["", "."]), st.sampled_from([
    Fraction(1), Fraction(10**9), Fraction(1, 8), Fraction(5, 2), Fraction(3, 7)]))
def test_a_plain_number_is_rounded_as_its_fraction_is(digits, decimals, point, unit):
    text = str(digits).rjust(decimals + 1, "0")
    text = f"{text[:-decimals]}.{text[-decimals:]}" if decimals else text + point
    expected = round(Fraction(text) * unit)
    readers = tables.durations_in(unit), tables.rates_in(unit)
    if expected > LARGEST:
        for read in (*readers, lambda text: tables.duration(text, unit)):
            with pytest.raises(ValueError, match="below 2"):
                read(text)
    else:
        assert tables.duration(text, unit) == tables.rate(text, unit) == expected
        assert [read(text) for read in readers] == [expected] * 2


@pytest.mark.parametrize("text", ["\u0661", "\u00b2", "1_0", "+1", " 1", "", "1e", "1 ms", "-1", "nan"])
def test_cells_that_are_no_plain_numbers_are_read_one_by_one(text):
    def outcome(read) -> object:
        try:
            return read(text)
        except ValueError as error:
            return str(error)
    unit = Fraction(10**6)
    assert outcome(tables.durations_in(unit)) == outcome(lambda text: tables.duration(text, unit))
    assert outcome(tables.rates_in(unit)) == outcome(lambda text: tables.rate(text, unit))


CELLS = st.text(st.sampled_from(list("1a.;# \t\"\r\f\u0661=")), max_size=2)
LINES = st.lists(st.lists(CELLS | st.just("1"), min_size=1, max_size=3).map(",".join), max_size=5)


@given(LINES | st.lists(st.lists(st.sampled_from(["", "1", "b"]), min_size=2, max_size=2).map(",".join), max_size=5),
       st.sampled_from(["\n", "", "\n\n"]), st.sampled_from(["", "t,x\n", "sep=,\n", "t,\n"]))
def test_plain_rows_are_those_of_the_reader_of_all_dialects(lines, end, head):
    text = head + "\n".join(lines) + end

    def outcome() -> object:
        try:
            table = tables.parse(text, Path("t.csv"))
        except ScenarioError as error:
            return str(error)
        return table.header, table.header_line, list(table.rows), [table.cells(at) for at in range(len(table.header))]
    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables.PlainRows, "of", lambda text: None)
        assert found == outcome()


def test_plain_rows_are_a_sequence():
    rows = tables.parse("t,x\n1,2\n3,4\n5,6\n", Path("t.csv")).rows
    assert isinstance(rows, tables.PlainRows)
    assert (len(rows), rows[0], rows[-1]) == (3, (2, ["1", "2"]), (4, ["5", "6"]))
    assert rows[1:] == [(3, ["3", "4"]), (4, ["5", "6"])]
    with pytest.raises(IndexError):
        rows[3]


def test_a_number_is_exact_and_its_exponent_is_bounded():
    assert tables.finite("0.1") == Fraction(1, 10)
    assert tables.finite("-1.5E-3") == Fraction(-3, 2000)
    for text in ("0e999999999", "1e999", "nan", "inf", "0x10", "1_000", "", "1" * 50, "\u0661"):
        with pytest.raises(ValueError, match=r"^expected a number"):
            tables.finite(text)


def test_only_a_regular_file_of_a_bounded_size_is_read(tmp_path):
    def why(path: Path, most: int = 100) -> str | None:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the text is compared
            read_text(path, most)
        return caught.value.strerror

    os.mkfifo(tmp_path / "pipe")
    sparse = tmp_path / "sparse"
    sparse.touch()
    os.truncate(sparse, 2**33)
    wide, bare, latin = (tmp_path / name for name in ("wide", "bare", "latin"))
    wide.write_text("a,b\n", encoding="utf-16")
    bare.write_text("a,b\n", encoding="utf-16-le")
    latin.write_bytes("name\nÅrhus\n".encode("latin-1"))
    bad = (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "no", wide, bare, latin)
    assert [why(path) for path in bad] == [
        "is no regular file", "is no regular file", "Is a directory", "No such file or directory",
        "is UTF-16: save it as UTF-8", "is UTF-16: save it as UTF-8", "is no UTF-8 text"]
    assert why(sparse) == "has more than 100 bytes"
    assert why(sparse, 2**20) == "has more than 1 MiB"
    assert why(Path("a\0b")) == "embedded null byte"
    assert read_limited(wide, 10) == wide.read_bytes()
