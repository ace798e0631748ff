"""What links draw, as rows; a record in the place of the models; what it does not hold; bad records."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network import HERE, LinkRule, TopologySpec, build
from emul.network.linkrecord import BeyondRecord, LinkRecord
from emul.network.models.latency import JitterSpec, LognormalSpec, latency
from emul.network.models.outages import (
    FadingSpec,
    GilbertSpec,
    LossTraceSpec,
    OnOffSpec,
    OutageSpec,
    Timed,
    TracedLoss,
    outage,
)
from emul.network.models.profiles import PiecewiseConstant
from emul.network.realisation import COLUMNS, MOST_RATES, read, realised
from emul.network.recorded import Realisation

MS = 10**6
END = 100_000
OFFERED = {0: 3, 1: 2, 2: 5, 4: 1}

SPECS = {
    "message": OutageSpec(0.4), "packet": OutageSpec(0.2, "packet"), "round": OutageSpec(0.4, "round"),
    "slot": OutageSpec(0.4, "slot", 1000), "any_slot": OutageSpec(0.1, "slot", 1000, span="any_slot"),
    "pause": OutageSpec(0.4, "slot", 1000, span="pause"), "gilbert": GilbertSpec(0.3, 0.4),
    "gilbert packet": GilbertSpec(0.2, 0.4, 0.9, 0.05, "packet"), "gilbert round": GilbertSpec(0.3, 0.4, per="round"),
    "gilbert slot": GilbertSpec(0.2, 0.4, 0.9, 0.05, "slot", 1000), "on_off": OnOffSpec(3000, 2000),
    "on_off pause": OnOffSpec(3000, 2000, span="pause"), "fading": FadingSpec(1000, 10.0, 2.0)}
KINDS = {"packet": "first_lost_packet", "gilbert packet": "first_lost_packet", "slot": "up", "any_slot": "up",
         "pause": "up", "gilbert slot": "up", "on_off": "up", "on_off pause": "up", "fading": "up"}


def rows_of(spec, delay=0, offered=OFFERED, seed=7):
    return list(realised("a", "b", outage(spec, seed, "a", "b"), latency(delay, seed, "a", "b"), offered, END))


def as_csv(path: Path, rows) -> Path:
    with path.open("w", newline="") as f:
        out = csv.writer(f)
        out.writerow(COLUMNS)
        out.writerows(["" if v is None else int(v) if isinstance(v, bool) else v for v in row] for row in rows)
    return path


def as_parquet(path: Path, rows) -> Path:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    kinds = [pa.string()] * 3 + [pa.int64()] * 4 + [pa.float64()]
    values = [[None if v is None else float(v) for v in column] if name == "value" else list(column)
              for name, column in zip(COLUMNS, columns, strict=True)]
    pq.write_table(pa.table([pa.array(v, k) for v, k in zip(values, kinds, strict=True)], names=list(COLUMNS)), path)
    return path


@pytest.fixture(params=["csv", "parquet"])
def write(request, tmp_path):
    return lambda rows: (as_csv if request.param == "csv" else as_parquet)(tmp_path / f"record.{request.param}", rows)


# --- rows -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", SPECS)
def test_the_rows_of_a_link_are_the_fates_that_its_model_draws(name):
    rows, model = rows_of(SPECS[name]), outage(SPECS[name], 7, "a", "b")
    assert rows
    assert {row[:3] for row in rows} == {("a", "b", KINDS.get(name, "lost"))}
    for _, _, what, round, k, start, end, value in rows:
        if what == "up":
            assert value == model.states.up_at(start) == model.states.up_at(end - 1) != model.states.up_at(end)
        elif what == "lost":
            assert value == model.lost(0, 0, round, k or 0, 1)
        else:
            assert all(model.lost(0, 0, round, k, n) == (value is not None and value < n) for n in (1, 2, 5, 40))
    if KINDS.get(name) == "up":
        assert [row[5] for row in rows] == [0, *(row[6] for row in rows[:-1])]
        assert rows[-1][5] < END <= rows[-1][6]
    elif "round" in name:
        assert [row[3:5] for row in rows] == [(0, 0), (0, 1), (0, 2), (1, None), (2, None), (4, None)]
    else:
        assert [row[3:5] for row in rows] == [(t, k) for t, n in OFFERED.items() for k in range(n)]


def test_the_rows_of_latencies_are_the_draws():
    spec = LognormalSpec(20 * MS, 0.5)
    rows, model = rows_of(None, spec), latency(spec, 7, "a", "b")
    assert [(row[2], row[7]) for row in rows] == [
        ("latency_ns", model.draw(t, k)) for t, n in OFFERED.items() for k in range(n)]


def test_a_link_that_carried_nothing_or_draws_nothing_has_no_rows():
    assert rows_of(OnOffSpec(3000, 2000), LognormalSpec(20 * MS, 0.5), {}) == []
    assert rows_of(None, 20 * MS) == []


def test_a_network_tells_the_rows_of_its_links_once_each():
    rules = [LinkRule("*", latency_ns=LognormalSpec(20 * MS, 0.5), outage=OutageSpec(0.3, "round"))]
    network = build(TopologySpec(generator="star", clients=2), rules, 7)
    for u, v in ((0, 1), (1, 0), (2, 0)):
        network.link(u, v).offer(0, "m", 100, 1)
    rows = list(network.realised(END))
    assert [row[:5] for row in rows if row[2] == "lost"] == [
        ("server", "client1", "lost", 1, None), ("client1", "server", "lost", 1, None),
        ("client2", "server", "lost", 1, None)]
    assert [row[:5] for row in rows if row[2] == "latency_ns"] == [
        ("server", "client1", "latency_ns", 1, 0), ("client1", "server", "latency_ns", 1, 0),
        ("client2", "server", "latency_ns", 1, 0)]


# --- a record in the place of a model -------------------------------------------------------------------------------

def recorded(record: Realisation, beyond: str, spec, delay=0, seed=7):
    return replace(record, beyond=beyond).models("a", "b", outage(spec, seed, "a", "b"), latency(delay, seed, "a", "b"))


@pytest.mark.parametrize("name", SPECS)
def test_a_model_on_its_own_record_does_what_it_did(name, write):
    """On another seed the record decides within it, and the other model after it."""
    spec, delay = SPECS[name], JitterSpec("normal", 20 * MS, 5 * MS)
    record = read(write(rows_of(spec, delay)))
    mine, other = outage(spec, 7, "a", "b"), outage(spec, 8, "a", "b")
    same, _ = recorded(record, "stream", spec, delay)
    model, lateness = recorded(record, "stream", spec, delay, seed=8)
    indices = [(t, k) for t, n in OFFERED.items() for k in range(n)]
    late = latency(delay, 7, "a", "b")
    assert [lateness.draw(*i) for i in indices] == [late.draw(*i) for i in indices]
    assert lateness.draw(9, 0) == latency(delay, 8, "a", "b").draw(9, 0)
    assert (same.timeline is None) == (mine.timeline is None)
    for start in range(0, END - 20_000, 1777):
        for round, k in indices:
            for packets in (1, 7):
                asked = (start, start + 2500, round, k, packets)
                assert same.lost(*asked) == model.lost(*asked) == mine.lost(*asked)
    for at in range(2 * END, 2 * END + 30_000, 333):
        asked = (at, at + 2500, 9, 1, 3)
        assert same.lost(*asked) == mine.lost(*asked)
        assert model.lost(*asked) == other.lost(*asked)
    if KINDS.get(name) == "up":
        for t in range(0, 2 * END, 991):
            assert same.states.up_at(t) == mine.states.up_at(t)
            assert same.states.next_change(t) == mine.states.next_change(t)


def ask(model, at, round):
    """What a link would ask of a transmission at a time."""
    return model.lost(at, at, round, 0, 1) if model.timeline is None else model.timeline.next_change(at)


@pytest.mark.parametrize("name", SPECS)
def test_beyond_error_ends_the_run_at_what_the_record_does_not_hold(name, write):
    spec, delay = SPECS[name], LognormalSpec(20 * MS, 0.5)
    model, lateness = recorded(read(write(rows_of(spec, delay))), "error", spec, delay)
    model.lost(500, 600, 2, 4, 3)
    lateness.draw(2, 4)
    with pytest.raises(BeyondRecord, match=r"^link a -> b: the latency of message 5 of round 2 is not in the record"):
        lateness.draw(2, 5)
    with pytest.raises(BeyondRecord, match=r"^link a -> b: .* not in the record.* \(beyond: error\)$"):
        ask(model, 10 * END, 3)
    nothing, lateness = recorded(Realisation(Path(), {}, {}), "error", spec, delay)
    with pytest.raises(BeyondRecord, match="has no fates and no states"):
        ask(nothing, 0, 1)
    with pytest.raises(BeyondRecord):
        lateness.draw(1, 0)


def test_beyond_error_asks_nothing_of_a_link_that_draws_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("t_s,up\n0,1\n1,0\n")
    model, late = recorded(Realisation(Path(), {}, {}), "error", LossTraceSpec(tmp_path / "t.csv"), 5)
    assert (model.lost(2 * 10**9, 0, 1, 0, 1), late) == (True, 5)
    assert recorded(Realisation(Path(), {}, {}), "error", None) == (None, 0)


def test_a_state_that_ends_after_the_record_is_not_guessed(write):
    spec = SPECS["any_slot"]
    model, _ = recorded(read(write([("a", "b", "up", None, None, 0, 5000, 1)])), "error", spec)
    assert not model.lost(1000, 5000, 1, 0, 1)
    with pytest.raises(BeyondRecord):
        model.lost(1000, 5001, 1, 0, 1)


def test_beyond_repeat_begins_anew(write):
    rows = [("a", "b", "lost", 0, 0, None, None, 1), ("a", "b", "lost", 2, 0, None, None, 1),
            ("a", "b", "lost", 2, 1, None, None, 0), ("a", "b", "lost", 3, None, None, None, 1),
            ("a", "b", "latency_ns", 2, 0, None, None, 11), ("a", "b", "latency_ns", 2, 3, None, None, 22)]
    model, late = recorded(read(write(rows)), "repeat", None, 5)
    lost = [[model.lost(0, 0, t, k, 1) for k in range(4)] for t in range(6)]
    two, three = [True, False, True, False], [True] * 4
    assert lost == [[True] * 4, two, two, three, three, two]     # rounds 1, 4, 5 are the recorded 2, 3, 2
    assert [late.draw(2, k) for k in range(4)] == [11, 22, 11, 22]
    assert late.draw(7, 1) == 22
    assert late.draw(0, 0) == 5                                  # nothing of round 0 to repeat
    states, _ = recorded(read(write([("a", "b", "up", None, None, 0, 3, 1), ("a", "b", "up", None, None, 3, 5, 0)])),
                         "repeat", None)
    assert [states.lost(t, t, 1, 0, 1) for t in range(12)] == [t % 5 >= 3 for t in range(12)]
    assert states.states.next_change(4) == 5
    assert states.states.next_change(5) == 8


def test_a_link_without_a_model_follows_a_record_and_is_sound_after_it(write):
    model, late = recorded(read(write([("a", "b", "lost", 1, None, None, None, 1)])), "stream", None, 5)
    assert [model.lost(0, 0, t, 0, 1) for t in (1, 2)] == [True, False]
    assert late == 5


def test_a_record_can_lower_what_a_latency_can_fall_to(write):
    record = read(write([("client1", "server", "latency_ns", 1, 0, None, None, 3 * MS)]))
    network = build(TopologySpec(generator="star", clients=2), [LinkRule("*", latency_ns=20 * MS)], 7, record)
    assert [network.out_latency_ns(v) for v in (0, 1, 2)] == [20 * MS, 3 * MS, 20 * MS]
    assert (network.latency_ns(1, 2), network.latency_ns(2, 1)) == (23 * MS, 40 * MS)
    link = network.link(1, 0)
    link.offer(0, "a", 10, 1)
    link.offer(50 * MS, "b", 10, 1)
    assert (link.latency_ns, link.advance(3 * MS), link.advance(69 * MS)) == (3 * MS, [("a", True, HERE, 0)], [])
    assert link.next_change() == 70 * MS


def test_the_draws_of_a_trace_of_probabilities_are_replayed(tmp_path, write):
    (tmp_path / "t.csv").write_text("t_s,loss\n0,0.3\n1,0.8\n")
    spec = LossTraceSpec(tmp_path / "t.csv")
    rows = rows_of(spec)
    assert {row[2] for row in rows} == {"draw"}
    model, _ = recorded(read(write(rows)), "stream", spec, seed=8)
    assert isinstance(model, TracedLoss)
    mine = outage(spec, 7, "a", "b")
    for at in (0, 10**9):
        assert [model.lost(at, at, 2, k, 1) for k in range(5)] == [mine.lost(at, at, 2, k, 1) for k in range(5)]


def rates_of(rate, end=END):
    return [row[5:] for row in realised("a", "b", None, 0, OFFERED, end, rate)]


def test_the_rows_of_a_rate_are_its_pieces_unless_they_are_too_many():
    assert rates_of(PiecewiseConstant([0, 30_000], [100, 200], 50_000)) == [
        (0, 30_000, 100), (30_000, 50_000, 200), (50_000, 80_000, 100), (80_000, 100_000, 200)]
    assert rates_of(PiecewiseConstant([0], [100])) == [(0, None, 100)]
    assert rates_of(PiecewiseConstant([0, 3], [100, 200], 5), 4 * MOST_RATES) == []


def follows(record, beyond, profile=None, bandwidth=8 * 10**9):
    return replace(record, beyond=beyond).rate("a", "b", profile, bandwidth)


@given(st.integers(0, 60), st.integers(0, 200), st.integers(0, 60))
def test_a_recorded_rate_goes_over_into_the_links_own(start, size, length):
    """Against the same pieces in one profile: 1 byte/ns until 10, 2 until 20, then what comes after."""
    rows = [("a", "b", "rate_bps", None, None, 0, 10, 8e9), ("a", "b", "rate_bps", None, None, 10, 20, 16e9)]
    record = LinkRecord("a -> b", rates=[(row[5], row[6], int(row[7])) for row in rows])
    record = Realisation(Path(), {("a", "b"): record}, {})
    trace = PiecewiseConstant([0, 30, 35], [24 * 10**9, 0, 8 * 10**9])
    for beyond, profile, whole in (
            ("stream", None, PiecewiseConstant([0, 10, 20], [8 * 10**9, 16 * 10**9, 8 * 10**9])),
            ("stream", trace, PiecewiseConstant([0, 10, 20, 30, 35], [n * 10**9 for n in (8, 16, 24, 0, 8)])),
            ("repeat", trace, PiecewiseConstant([0, 10], [8 * 10**9, 16 * 10**9], 20))):
        rate = follows(record, beyond, profile)
        assert rate.finish(start, size) == whole.finish(start, size)
        assert rate.sent_bytes(start, start + length) == whole.sent_bytes(start, start + length)
        assert (rate.rate_at(start), rate.next_change(start)) == (whole.rate_at(start), whole.next_change(start))


def test_a_recorded_rate_ends_the_run_or_lasts(write):
    rate = follows(read(write([("a", "b", "rate_bps", None, None, 0, 10, 8e9)])), "error")
    assert (rate.finish(0, 10), rate.next_change(3)) == (10, 10)
    for ask in (lambda: rate.finish(0, 11), lambda: rate.rate_at(10), lambda: rate.sent_bytes(5, 11)):
        with pytest.raises(BeyondRecord, match=r"^link a -> b: its rate after 10 ns is not in the record"):
            ask()
    rate = follows(read(write([("a", "b", "rate_bps", None, None, 0, None, 8e9)])), "error")
    assert (rate.finish(7, 10**6), rate.next_change(3)) == (7 + 10**6, None)
    assert follows(Realisation(Path(), {}, {}), "error") is None


def test_a_link_sends_at_the_recorded_rate(write):
    record = read(write([("server", "client1", "rate_bps", None, None, 0, 1000, 0),
                         ("server", "client1", "rate_bps", None, None, 1000, None, 8e9)]))
    link = build(TopologySpec(generator="star", clients=1), [LinkRule("*", latency_ns=5)], 7, record).link(0, 1)
    link.offer(0, "a", 100, 1)
    assert link.next_change() == 1000 + 100 + 5


def test_what_is_not_held_is_counted_by_kind(write):
    held = read(write(rows_of(OutageSpec(0.3), LognormalSpec(20 * MS, 0.5), {1: 2})))
    more = rows_of(OutageSpec(0.3), LognormalSpec(20 * MS, 0.5), {1: 3, 2: 1})
    assert held.beyond_counts(more) == {"lost": 2, "first_lost_packet": 0, "lost_packet": 0, "draw": 0, "up": 0,
                                         "latency_ns": 2, "rate_bps": 0, "background_bps": 0}
    held = read(write([("a", "b", "up", None, None, 0, 50_000, 1)]))
    states = rows_of(SPECS["slot"])
    assert held.beyond_counts(states)["up"] == sum(row[5] >= 50_000 for row in states) > 0
    other = [("x", *row[1:]) for row in more]
    assert held.beyond_counts(other)["lost"] == 4


# --- reading --------------------------------------------------------------------------------------------------------

HEAD = "source,destination,what,round,k,start_ns,end_ns,value\n"


def test_a_record_written_by_hand_needs_only_the_columns_it_uses(tmp_path):
    path = tmp_path / "hand.csv"
    path.write_text("what,source,destination,value,start_s,end_ms\n# measured\nup,a,b,1,0,1500\nup,a,b,0,1.5,\n\n"
                    "fault_down,a,b,1,3,\n")
    model, _ = recorded(read(path), "stream", None)
    assert isinstance(model, Timed)
    assert [model.lost(t * MS, 0, 1, 0, 1) for t in (0, 1499, 1500, 10**9)] == [False, False, True, True]


def test_costs_are_read_in_their_order(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(HEAD + "n1,train,compute_ns,2,1,,,70\nn1,train,compute_ns,1,0,,,50\n")
    assert read(path).computations == {("n1", "train"): [50, 70]}
    path.write_text(HEAD + "n1,train,compute_ns,2,1,,,70\n")
    with pytest.raises(ScenarioError, match="no computation 0 of train at n1"):
        read(path)


@pytest.mark.parametrize(("row", "expected"), [
    ("a,b,lots,1,0,,,1", "line 2  what  'lots'  expected one of lost, first_lost_packet, lost_packet, draw, up, "
                         "latency_ns"),
    (",b,lost,1,0,,,1", "line 2  source  None  expected a name"),
    ("a,b,lost,,0,,,1", "line 2  round  nothing  expected a number"),
    ("a,b,lost,1.5,0,,,1", "line 2  round  1.5  expected a whole number, 0 or more"),
    ("a,b,lost,0,,,,1", "line 2  k  nothing  expected the number of the message: those of round 0 have a fate each"),
    ("a,b,lost,1,0,,,2", "line 2  value  2  expected 1 or 0"),
    ("a,b,lost,1,0,,,nan", 'line 2  value  "nan"  expected a number'),
    ("a,b,lost,1,0,5,,1", "line 2  start_ns  '5'  is not used by lost"),
    ("a,b,latency_ns,1,0,,,-3", 'line 2  value  "-3"  expected a duration of 0 or more, below 2^63 ns'),
    ("a,b,draw,1,0,,,1", "line 2  value  1  expected a number in [0, 1)"),
    ("a,b,up,,,5,9,1", "line 2  start_ns  5  expected 0: up rows of a link stand end to end from 0"),
    ("a,b,up,,,0,0,1", "line 2  end_ns  0  expected a time after 0, the start"),
    ("a,b,up,,,0,,1\na,b,up,,,5,,1", "line 3  start_ns  5  expected nothing after a row without an end: up rows"),
    ("a,b,up,,,0,4,1\na,b,up,,,5,,1", "line 3  start_ns  5  expected 4: up rows of a link stand end to end from 0"),
    ("a,b,lost,1,0,,,1\na,b,lost,1,0,,,1", "line 3    lost of round 1, k 0  expected it only once"),
    ("a,b,lost,1,0,,,1\na,b,up,,,0,,1", "line 3  what  up  expected lost, as in earlier rows of this link: it has"),
    ("a,b,lost", "line 2    3 values  expected 8, as the header has"),
])
def test_a_bad_row_is_told_with_line_column_and_expectation(tmp_path, row, expected):
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + row + "\n")
    with pytest.raises(ScenarioError) as caught:
        read(path)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 1 error"
    assert lines[1].strip().startswith(expected)


def test_all_bad_rows_of_a_table_are_told_by_their_numbers(tmp_path):
    path = as_parquet(tmp_path / "network.parquet", [
        ("a", "b", "lost", 1, 0, None, None, 1), ("a", "b", "lost", 1, 1, None, None, 7), ("a", "b", "gone", 1, 0, None,
                                                                                          None, 1)])
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path)
    assert [(p.place, p.found) for p in caught.value.problems] == [("row 2, value", "7.0"), ("row 3, what", "'gone'")]
    path.write_bytes(b"PAR1 no table")
    with pytest.raises(ScenarioError, match="expected the table `network` of a run"):
        read(tmp_path)


@pytest.mark.parametrize(("text", "expected"), [
    ("", "expected a header with the columns source, destination, what, value"),
    ("source,destination,what\n", "expected a header with the columns source, destination, what, value"),
    (HEAD.replace("k,", "k,k,"), "expected a header"),
    (HEAD.replace("start_ns", "start_s,start_ms"), "expected a header")])
def test_a_header_that_means_nothing_is_refused(tmp_path, text, expected):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=expected):
        read(path)


def test_a_missing_record_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "gone.csv"):
        with pytest.raises(ScenarioError, match="o such file"):
            read(path)


@pytest.mark.parametrize(("column", "values", "said"), [
    ("what", pa.array([["lost"]]), "column what: of list"), ("value", pa.array([[1.0]]), "column value: of list"),
    ("source", pa.array([7]), "column source: of int64, expected text")])
def test_a_column_of_another_type_is_refused(tmp_path, column, values, said):
    path = as_parquet(tmp_path / "network.parquet", [("a", "b", "lost", 1, 0, None, None, 1)])
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
    with pytest.raises(ScenarioError, match=said):
        read(path)


def test_a_small_file_of_endless_rows_and_one_that_is_no_file_are_refused(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "network.parquet", [("a", "b", "lost", 1, 0, None, None, 1)] * 50)
    monkeypatch.setattr("emul.base.parquet._CELLS", 10)
    monkeypatch.setattr("emul.base.parquet._CELLS_A_BYTE", 0)
    with pytest.raises(ScenarioError, match="50 rows of 8 columns, expected at most 10 values"):
        read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ScenarioError, match="expected a regular file"):
        read(path)


CELLS = st.sampled_from(["", "a", "b", "lost", "up", "draw", "latency_ns", "first_lost_packet", "compute_ns",
                         "fault_down", "0", "1", "2", "-1", "nan", "inf", "1e999", "0.5", "20 ms", "\"", "9" * 30])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELLS, min_size=8, max_size=8).map(",".join), max_size=5).map(lambda r: HEAD + "\n".join(r))
       | st.text(max_size=40))
def test_whatever_a_record_holds_it_is_read_or_refused(tmp_path, text):
    path = tmp_path / "fuzz.csv"
    path.write_text(text)
    try:
        record = read(path)
    except ScenarioError:
        return
    model, late = recorded(record, "repeat", OutageSpec(0.3), 5)
    assert model.lost(3, 9, 1, 0, 1) in (True, False)
    assert late == 5 or late.draw(1, 0) >= 0
