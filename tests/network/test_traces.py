"""Trace files: what is read, what is refused and how, and what is written back."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network.models.traceformats import FORMATS, TraceColumns, formatted, parse_trace
from emul.network.models.traces import TraceSpec, problem, read_trace

S = 10**9
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "traces" / "bandwidth"


def errors(text: str, format: str, name: str | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_trace(text, "some.trace", format, TraceColumns(name))
    return "\n".join(re.sub(" {2,}", "  ", line.strip()) for line in str(caught.value).splitlines()[1:])


@pytest.mark.parametrize("text", [
    "t,bandwidth\n0 s,20 Mbit/s\n500 ms,2 MB/s\n2 s,0 bit/s\n",
    "# made by hand\nt_s,bandwidth_mbps\n0,20\n\n0.5,16\n2,0\n",
    "time (ms),rate [Mbit/s],note\n0,2e1,a\n500,16,b\n2000,.0,c\n",
    "bandwidth_bps,timestamp_ns\n20000000,0\n16000000,5e8\n0,2000000000\n",
    "time_s,mbps\n0,20\n0.5,16\n2,0\n"])
def test_csv_in_whatever_units_is_the_same_trace(text):
    trace = parse_trace(text, "t", "csv")
    assert (trace.times_ns, trace.rates_bps) == ((0, S // 2, 2 * S), (20_000_000, 16_000_000, 0))
    assert (trace.length_ns, trace.period_ns) == (2 * S, None)
    assert (trace.service().rate_at(9 * S), trace.service().next_change(3 * S)) == (0, None)
    assert trace.service(loop=True).rate_at(2 * S) == 20e6                  # the last row says when it begins anew
    assert trace.service(loop=True, period_ns=3 * S).rate_at(3 * S) == 20e6


def test_one_trace_of_a_file_with_many_is_taken_by_its_name():
    text = "trace,time_s,mbps\na,0,1\na,1,2\nb,0,3\nb,2,4\n"
    assert parse_trace(text, "t", "csv", TraceColumns("b")).times_ns == (0, 2 * S)
    assert errors(text, "csv") == 'name  missing  expected the name of a trace in the file: "a", "b"'
    assert errors(text, "csv", "c") == 'name  "c"  expected the name of a trace in the file: "a", "b"'
    assert errors("t_s,mbps\n0,1\n", "csv", "c") == 'name  "c"  the file has no column "trace"'


def test_simgrid_profiles_are_in_bytes_a_second_and_repeat_as_simgrid_has_it():
    plain = "# bandwidth\n0 2500000\n1.5 1e6\n3 0.5\n"
    assert parse_trace(plain, "t", "simgrid").rates_bps == (20_000_000, 8_000_000, 4)
    assert parse_trace(plain, "t", "simgrid").period_ns is None
    looped = parse_trace(plain + "LOOPAFTER 2\n", "t", "simgrid")
    assert looped.period_ns == 5 * S                            # the last time and 2 s
    assert looped.service().rate_at(5 * S) == 20e6
    assert parse_trace("PERIODICITY 4\n" + plain, "t", "simgrid").period_ns == 4 * S
    assert parse_trace("0 1\n0 2\n1 3\n", "t", "simgrid").rates_bps == (16, 24)       # at one time the later counts


@pytest.mark.parametrize(("format", "text", "expected"), [
    ("csv", "", 'an empty file  expected a header such as "t_s,bandwidth_mbps" and at least one row below it'),
    ("csv", "t,bandwidth\n", 'no row  expected a header such as "t_s,bandwidth_mbps" and at least one row below it'),
    ("csv", "0,2.5\n1,3\n", 'line 1  header  "0,2.5"  expected a header such as "t_s,bandwidth_mbps", or format: plain '
                            'for two columns of seconds and Mbit/s'),
    ("csv", "a,b\n0,1\n", 'line 1  header  "a, b"  expected a column t and a column bandwidth, as in '
                          '"t_s,bandwidth_mbps"; or say which with time, such as time: "Timestamp [s]"'),
    ("csv", "t_s,bandwidth_parsec\n0,1\n", 'line 1  header  "bandwidth_parsec"  expected a bandwidth such as '
                                           '20 Mbit/s or 2 MB/s; "parsec" is no such unit'),
    ("csv", "t_s,rate_KBps\n0,1\n", 'line 1  header  "rate_KBps"  expected a bandwidth such as 20 Mbit/s or 2 MB/s; '
                                    '"KBps" is no such unit; did you mean kB/s or KiB/s?'),
    ("csv", "t_s,rate [KBps]\n0,1\n", 'line 1  rate [KBps]  "KBps"  expected a unit such as Mbit/s, mbps or kB/s'),
    ("csv", "t_s,down_mbps,up_mbps\n0,1,2\n", 'line 1  header  "down_mbps, up_mbps"  expected one column of rates: '
                                             'say which with column: "down_mbps"'),
    ("csv", "t_s,mbps\n0,1\n1,2\n1,3\n0.5,4\n",
     'line 4  t_s  1 s after the first  expected each time only once\n'
     'line 5  t_s  0.5 s after the first  expected times that ascend'),
    ("csv", "t_s,mbps\n0,nan\n1,-3\n3,4 Mbit/s\n",
     'line 2  mbps  "nan"  expected a rate; gaps: hold goes on with the one before, gaps: off is 0\n'
     'line 3  mbps  "-3"  expected a rate of 0 or more, below 2^63 bit/s\n'
     'line 4  mbps  "4 Mbit/s"  expected a rate of 0 or more, below 2^63 bit/s, without a unit: the header has it'),
    ("csv", "t_s,mbps\n0,1\n2\n", "line 3  1 values  expected 2, as the header has"),
    ("csv", "time,Mbps\n0,20\n1,30\n2,30\n",
     'line 1  time  "1"  expected a unit: time_s or time_ms in the header, "20 ms" in the values, or time: "time [s]"'),
    ("csv", "t_s,rate\n0,20\n", 'line 1  rate  "20"  expected a unit: rate_mbps in the header, "5 Mbit/s" in the '
                                'values, or column: "rate [Mbit/s]"'),
    ("plain", "0 2.5 1\n1,3\n", "line 1  3 values  expected two, seconds and Mbit/s\n"
                                "line 2  1 values  expected two, seconds and Mbit/s"),
    ("bytelog", "1 2 3\n", 'line 1  "1 2 3"  expected six: time, ms, latitude, longitude, bytes, ms since the last '
                           'row'),
    ("bytelog", "1 1000 0 0 5 1000\n9 3000 0 0 5 1000\n", "line 2  no rate from 1 s to 2 s  expected intervals without "
     "a gap; gaps: hold goes on with the rate before, gaps: off is 0"),
    ("iperf", '{"intervals": [{"streams": []}]}', "intervals  KeyError: 'sum'  expected the JSON of iperf3 -J, with "
                                                  "intervals[].sum"),
    ("iperf", "connect failed\n", "no interval  expected at least one"),
    ("mahimahi", "", "an empty trace  expected a last time above 0"),
    ("mahimahi", "0\n0\n", "0  expected a last time above 0"),
    ("mahimahi", "# made\n1\n5 \n3\n7.5\n",
     'line 4  3  expected times that do not descend; the line before has 5\n'
     'line 5  "7.5"  expected a whole number of milliseconds'),
    ("simgrid", "1 5\n", 'line 1  "1"  expected the time 0 first: before it SimGrid takes the link\'s own bandwidth, '
                         'and here the profile is that'),
    ("simgrid", "0 x\n", 'line 1  "0 x"  expected "t value", seconds and bytes a second'),
    ("simgrid", "0 1\n2 1\nPERIODICITY 1\n", "PERIODICITY  expected at least the last time, 2 s, and more than 0"),
    ("simgrid", "0 1\nPERIODICITY 1\nLOOPAFTER 1\n", "LOOPAFTER and PERIODICITY  expected one of them"),
    ("simgrid", "LOOPAFTER -1\n0 1\n", 'line 1  LOOPAFTER  "-1"  expected a number of seconds, 0 or more')])
def test_a_bad_trace_is_refused_with_its_line_and_what_is_expected(format, text, expected):
    assert errors(text, format) == expected


IPERF = """
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  1.19 MBytes  10.0 Mbits/sec    0   81.3 KBytes
[  5]   1.00-2.00   sec   610 KBytes  5000 Kbits/sec    0   99.0 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5]   0.00-2.00   sec  1.79 MBytes  7.50 Mbits/sec    0             sender
"""
TWO_STREAMS = IPERF.replace("[  5]", "[  7]") + IPERF.replace("[  5]", "[SUM]").replace("10.0", "20.0")


@pytest.mark.parametrize(("format", "text", "columns", "seconds", "mbps", "length"), [
    ("csv", "timestamp,rate_MBps\n1700000000,1\n1700000001.5,0.5\n", {}, [0, 1.5], [8, 4], 1.5),
    ("csv", "timestamp,rate_kBps\n1700000000000,1000\n1700000001500,500\n", {}, [0, 1.5], [8, 4], 1.5),
    ("csv", "t_s;bandwidth_mbps\n5;5,5\n6;2,25\n", {}, [0, 1], [5.5, 2.25], 1),
    ("csv", "Timestamp,Speed,DL_bitrate,UL_bitrate\n2021.03.02_23.59.59,3,24005,1\n2021.03.03_00.00.01,3,0,1\n",
     {"column": "DL_bitrate [kbit/s]"}, [0, 2], [24.005, 0], 2),
    ("csv", "at,bytes_per_s\n2024-06-01T12:00:00.5Z,1\n2024-06-01T14:00:01+02:00,2\n", {"time": "at"}, [0, 0.5],
     [8e-6, 16e-6], 0.5),
    ("csv", "run,seq_num,Throughput,lte\n1,1,1024,-61\n1,2,988,-61\n",
     {"time": "seq_num [s]", "column": "throughput [Mbps]"}, [0, 1], [1024, 988], 1),
    ("csv", "t_s,mbps\n0,-\n1,5\n2,\n3,NaN\n4,6\n5,-\n", {"gaps": "hold"}, [0, 3], [5, 6], 4),
    ("csv", "t_s,mbps\n0,-\n1,5\n2,\n3,6\n4,-\n", {"gaps": "off"}, [0, 1, 2, 3, 4], [0, 5, 0, 6, 0], 4),
    ("plain", "0.25 2.5\n1.30\t0.8\n2.25 3.1\n", {}, [0, 1.05, 2], [2.5, 0.8, 3.1], 2),
    ("bytelog", "1453120808131 0 51.04 3.73 125000 1000\n1453120809131 1000 51 3.7 250000 1000\n", {}, [0, 1], [1, 2],
     2),
    ("bytelog", "1 1000 0 0 125000 1000\n9 3000 0 0 125000 1000\n", {"gaps": "off"}, [0, 1, 2], [1, 0, 1], 3),
    ("bytelog", "1 1000 0 0 125000 1000\n9 3000 0 0 250000 1000\n", {"gaps": "hold"}, [0, 2], [1, 2], 3),
    ("iperf", IPERF, {}, [0, 1], [10, 5], 2), ("iperf", TWO_STREAMS, {}, [0, 1], [20, 5], 2),
    ("iperf", '{"intervals": [' + ", ".join(
        f'{{"sum": {{"start": {t}, "end": {t + 1}, "bits_per_second": {rate}, "omitted": {omitted}}}}}'
        for t, rate, omitted in ((0, 1e9, "true"), (1, 1e7, "false"), (2.0, 5e6, "false"))) + "]}",
     {}, [0, 1], [10, 5], 2)])
def test_traces_as_they_lie_about_are_read_from_their_first_row_on(format, text, columns, seconds, mbps, length):
    trace = parse_trace(text, "t", format, columns=TraceColumns(**columns))
    assert [t / S for t in trace.times_ns] == seconds
    assert [rate / 1e6 for rate in trace.rates_bps] == mbps
    assert trace.length_ns == length * S


@pytest.mark.parametrize(("text", "looks"), [
    ("0 2.5\n", "; it looks like plain (seconds and Mbit/s) or simgrid (seconds and bytes/s)"),
    ("1 0 51 3 4 5\n", "; it looks like bytelog"), (IPERF, "; it looks like iperf"),
    ('{"start": {}}', "; it looks like iperf"),
    ("7\n8\n", "; it looks like mahimahi"), ("a,b\n", "; it looks like csv"), ("", "")])
def test_where_nothing_says_the_format_the_error_says_what_a_file_looks_like(tmp_path, text, looks):
    (tmp_path / "some.log").write_text(text)
    assert problem(TraceSpec(tmp_path / "some.log")) == (
        "format", "missing", f"expected one of {', '.join(FORMATS)}{looks}")


def test_keys_that_a_format_does_not_use_are_refused(tmp_path):
    (tmp_path / "t.up").write_text("1\n")
    assert problem(TraceSpec(tmp_path / "t.up", gaps="off"))[0] == "gaps"
    assert problem(TraceSpec(tmp_path / "t.up", column="a"))[0] == "column"
    (tmp_path / "t.csv").write_text("t_s,a_mbps,b_mbps\n0,1,2\n1,3,4\n")
    spec = TraceSpec(tmp_path / "t.csv", column="b", loop=True, scale=0.5)
    assert problem(spec) is None
    assert spec.service().rate_at(0) == 1e6
    assert problem(TraceSpec(tmp_path / "t.csv", column="c_mbps"))[1:] == (
        f'{tmp_path / "t.csv"}: column, "c_mbps"', 'expected the name of a column; did you mean "b_mbps"?')


@pytest.mark.parametrize(("unit", "bps"), [
    ("bits/sec", 8), ("Kbits/sec", 8_000), ("Mbits/sec", 8_000_000), ("Gbits/sec", 8_000_000_000), ("Bytes/sec", 64),
    ("KBytes/sec", 8 * 8 << 10), ("MBytes/sec", 8 * 8 << 20), ("GBytes/sec", 8 * 8 << 30)])
def test_iperf_counts_bits_in_thousands_and_bytes_in_1024(unit, bps):
    text = "".join(f"[  5]   {t}.00-{t + 1}.00   sec  1.10 MBytes  8 {unit}    0\n" for t in range(2))
    assert parse_trace(text, "f", "iperf").rates_bps == (bps, bps)


@pytest.mark.parametrize("times", [
    ("2026-03-29T01:59:59+0100", "2026-03-29T03:00:01+0200"),          # over the hour that summer time takes
    ("2026-05-01T10:00:00Z", "2026-05-01T12:00:02+02:00"), ("2026-05-01 10:00:00.5", "2026-05-01 10:00:02,5"),
    ("1700000000000", "1700000002000"), ("1700000000", "1700000002"), ("1700000000000000", "1700000002000000")])
def test_times_of_day_count_from_the_first(times):
    trace = parse_trace(f"time;bandwidth_mbps\n{times[0]};5\n{times[1]};3\n", "f", "csv")
    assert (trace.times_ns, trace.length_ns) == ((0, 2 * 10**9), 2 * 10**9)
    minutes = parse_trace("time,bandwidth_mbps\n2026-05-01 10:00,5\n2026-05-01 10:02,3\n", "f", "csv")
    assert minutes.length_ns == 120 * 10**9


def test_at_most_twenty_problems_of_a_file_are_told():
    assert errors("1\n" + "x\n" * 50, "mahimahi").endswith("and 30 more")


@settings(max_examples=80)
@given(st.sampled_from(FORMATS), st.text(max_size=60) | st.lists(
    st.sampled_from(["0", "1", "1e3", "t", "bandwidth", "t_s", "mbps", ",", "\n", " ", "LOOPAFTER ", "PERIODICITY ",
                     "20 Mbit/s", "3 s", "-1", "nan", '"', "#", "\0", "trace", "1e99", "5.", "\r", "9" * 40]),
    max_size=25).map("".join), st.none() | st.just("a"))
def test_whatever_a_file_holds_the_answer_is_a_trace_or_a_scenario_error(format, text, name):
    try:
        trace = parse_trace(text, "fuzz", format, TraceColumns(name))
    except ScenarioError as error:
        caught = error
    else:
        caught = None
    if caught is not None:
        assert caught.problems
        assert all("\n" not in f"{p.place}{p.found}{p.expected}" for p in caught.problems)
        return
    for loop in (None, True):
        assert trace.service(loop).finish(0, 1) > 0


pieces = st.lists(st.tuples(st.integers(1, 5 * S), st.integers(0, 10**9)), min_size=2, max_size=6)


def trace_of(chosen):
    times, now = [], 0
    for length, _ in chosen:
        times.append(now)
        now += length
    return parse_trace("t_ns,bandwidth_bps\n" + "".join(f"{t},{rate}\n" for t, (_, rate)
                                                        in zip(times, chosen, strict=True)), "t", "csv")


@settings(max_examples=40)
@given(pieces)
def test_csv_and_simgrid_are_written_and_read_back_exactly(chosen):
    trace = trace_of(chosen)
    for format in ("csv", "simgrid"):
        again = parse_trace(formatted(trace, format), "t", format)
        assert (again.times_ns, again.rates_bps, again.length_ns) == (trace.times_ns, trace.rates_bps, trace.length_ns)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60).map(sorted))
def test_a_mahimahi_trace_survives_csv(stamps):
    first = parse_trace("".join(f"{s}\n" for s in stamps), "t", "mahimahi")
    assert formatted(first, "mahimahi").split() == [str(s) for s in stamps]
    assert sum(length * rate for length, rate in first.pieces()) == len(stamps) * 1500 * 8 * S


def test_the_contents_of_a_file_are_told_by_their_digest(tmp_path):
    file = tmp_path / "lte.csv"
    file.write_text("t_s,mbps\n0,1\n1,2\n")
    told = hashlib.sha256(file.read_bytes()).hexdigest()
    assert problem(TraceSpec(file, loop=True, period_ns=2 * S, sha256=told)) is None
    wrong = {"sha256": TraceSpec(file, sha256="0" * 64), "period": TraceSpec(file, loop=True, period_ns=S // 2),
             "loop": TraceSpec(file, "mahimahi", loop=False), "trace": TraceSpec(file, "mahimahi"),
             "name": TraceSpec(file, "simgrid", name="a"), "format": TraceSpec(tmp_path / "x.dat")}
    assert {field: (problem(spec) or ("",))[0] for field, spec in wrong.items()} == {field: field for field in wrong}
    assert problem(TraceSpec(file, period_ns=S)) == ("period", "1 s", "is used only with loop: true")
    assert problem(TraceSpec(file, "simgrid", loop=True))[0] == "loop"
    assert problem(TraceSpec(tmp_path / "none.csv"))[1] == f"{tmp_path / 'none.csv'}: No such file or directory"
    assert problem(TraceSpec(file, "mahimahi"))[1:] == (
        f'{file}: line 1, "t_s,mbps"', "expected a whole number of milliseconds (2 more)")
    file.write_text("t_s,mbps\n0,0\n")
    assert problem(TraceSpec(file)) == ("trace", "0 bit/s", "expected a trace that lets something through")


@pytest.mark.parametrize(("file", "name", "rows"), [("norway-3g-hsdpa.csv", "bus_1", 100),
                                                    ("nyu-mets-lte.csv", "7Train1", 1000)])
def test_real_traces_are_read(file, name, rows):
    if not (SHARED / file).exists():
        pytest.skip("needs the traces in ../shared/data")
    trace = read_trace(SHARED / file, columns=TraceColumns(name))
    assert len(trace.times_ns) > rows
    assert 0 < trace.service(loop=True).mean_bps < 1e9
