"""`take: drawn` and `scale`: every link follows a trace of its own, the same one in every run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.network import LinkRule, TopologySpec, build
from emul.network.models.profiles import Begun
from emul.network.models.traceformats import Trace, TraceColumns
from emul.network.models.traces import TraceSpec, problem, read_trace, trace_names
from emul.scenario.devices import SHIPPED_LINKS as SHIPPED_CLASSES
from emul.scenario.devices import read_links

S = 10**9
TEXT = "trace,time_s,mbps\na,0,1\na,10,3\na,20,3\nb,0,8\nb,5,8\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(TEXT)
    return path


def test_links_draw_among_the_traces_of_a_file_and_where_they_begin(file: Path) -> None:
    spec = TraceSpec(file, drawn=True)
    each = [spec.of(7, f"client{k}", "server") for k in range(200)]
    assert each == [TraceSpec(file, drawn=True).of(7, f"client{k}", "server") for k in range(200)]
    assert each != [spec.of(8, f"client{k}", "server") for k in range(200)]
    of_a = [one for one in each if one.name == "a"]
    assert 70 < len(of_a) < 130                             # a half, within four standard deviations
    assert {one.start_ns for one in of_a} <= {k * 20 * S // 64 for k in range(64)}
    assert 8 * S < sum(one.start_ns for one in of_a) / len(of_a) < 12 * S
    assert {one.name for one in (TraceSpec(file, name="b", drawn=True).of(7, f"c{k}", "s") for k in range(9))} == {"b"}


def test_a_link_follows_what_it_has_drawn(file: Path) -> None:
    rules = [LinkRule("*", latency_ns=1), LinkRule("client*->*", bandwidth_bps=TraceSpec(file, drawn=True, scale=0.5))]
    network = build(TopologySpec("star", clients=20), rules, 7)
    rates = set()
    for v in network.roles["client"]:
        found = network.bandwidth(v, network.roles["server"][0])
        assert found == TraceSpec(file, drawn=True, scale=0.5).of(7, network.names[v], "server")
        rates.add(float(found))
    assert rates == {1e6, 4e6}                              # half of the means of a and of b


def cut(trace: Trace, start_ns: int) -> Trace:
    """The trace from `start_ns` on, and then its part before that."""
    ends = (*trace.times_ns[1:], trace.length_ns)
    pieces = list(zip(trace.times_ns, ends, trace.rates_bps, strict=True))
    after = [(max(begin, start_ns) - start_ns, rate) for begin, end, rate in pieces if end > start_ns]
    before = [(begin - start_ns + trace.length_ns, rate) for begin, end, rate in pieces if begin < start_ns]
    times, rates = zip(*after, *before, strict=True)
    return Trace(times, rates, trace.length_ns)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=6), st.integers(0, 100),
       st.integers(0, 40), st.integers(0, 60))
def test_begun_elsewhere_a_trace_is_the_one_that_is_cut_there(
        pieces: list[tuple[int, int]], start: int, begin: int, tenths: int) -> None:
    times = [S * sum(length for length, _ in pieces[:i]) for i in range(len(pieces))]
    length = S * sum(length for length, _ in pieces)
    trace = Trace(tuple(times), tuple(rate for _, rate in pieces), length)
    start = start * S % length
    begun, moved = Begun(trace.service(loop=True), start), cut(trace, start).service(loop=True)
    assert begun.mean_bps == moved.mean_bps
    for t in range(0, 2 * length + 1, S // 2):
        assert (begun.rate_at(t), begun.next_change(t)) == (moved.rate_at(t), moved.next_change(t))
        assert begun.sent_bytes(t, t + begin * S) == moved.sent_bytes(t, t + begin * S)
    size = Fraction(tenths, 10)
    assert begun.finish(begin * S, size) == moved.finish(begin * S, size)


def test_the_mean_of_drawn_traces_is_that_of_all_of_them(file: Path) -> None:
    assert float(TraceSpec(file, drawn=True)) == pytest.approx((2e6 + 8e6) / 2)
    assert trace_names(file) == ["a", "b"]
    assert read_trace(file, columns=TraceColumns("a")).scaled(0.25).rates_bps == (250_000, 750_000, 750_000)


@pytest.mark.parametrize(("text", "more", "expected"), [
    (TEXT, {"loop": True}, ("loop", "", "is not used with take: drawn, where a trace begins anew at its end")),
    ("trace,time_s,mbps\na,0,1\nb,0,8\nb,5,8\n", {}, (
        "trace", "a: 0 s", "expected traces that last and let something through")),
    ("trace,time_s,mbps\na,0,0\na,9,4\n", {}, (
        "trace", "a: 9 s", "expected traces that last and let something through"))])
def test_what_no_link_can_draw_is_refused(tmp_path: Path, text: str, more: dict[str, bool], expected: object) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert problem(TraceSpec(path, drawn=True, **more)) == expected


# --- the traces that are shipped --------------------------------------------------------------------------------------

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios" / "traces"


def of_each(file: str) -> tuple[list[float], list[float]]:
    """(seconds, mean in Mbit/s over time) of each trace of a file, ascending."""
    each = [read_trace(SHIPPED / file, columns=TraceColumns(name)) for name in trace_names(SHIPPED / file)]
    return (sorted(one.length_ns / S for one in each),
            sorted(sum(ns * rate for ns, rate in one.pieces()) / one.length_ns / 1e6 for one in each))


@pytest.mark.parametrize("file", ["norway-3g.csv", "new-york-lte.csv"])
def test_the_page_of_the_traces_says_what_is_in_them(file: str) -> None:
    lengths, means = of_each(file)
    row = next(line for line in (SHIPPED / "README.md").read_text().splitlines() if line.startswith(f"| `{file}`"))
    short = f"; {sum(s < 250 for s in lengths)} are shorter than 250" if lengths[0] < 250 else ""
    assert row.split(" | ")[2:] == [
        f"{len(lengths)}", ", ".join(f"{s:,.0f}" for s in (lengths[0], median(lengths), lengths[-1])) + short,
        ", ".join(f"{mbps:.2f}" for mbps in (means[0], median(means), means[-1])) + " |"]


def test_the_class_3g_has_the_rate_that_it_has_from_the_traces() -> None:
    assert read_links(SHIPPED_CLASSES)["3g"].down_bps == round(median(of_each("norway-3g.csv")[1]), 2) * 1e6
