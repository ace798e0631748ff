"""What people read: golden logs, differences, progress, the final table."""

import io
import time
from pathlib import Path

import pytest
from report_runs import make_run
from typer.testing import CliRunner

from emul import cli
from emul.base import rows as R
from emul.record.golden import golden, golden_text
from emul.record.progress import Progress, StepProgress, line, table
from emul.record.verify import first_difference

GOLDEN = """\
0.000000000 server starts
0.000000000 client1 starts
0.000000000 client2 starts
0.000000000 server enters round 1
0.000000000 server -> client1 Model 84 B round 1 by router
0.000000000 server -> client2 Model 84 B round 1 by router
0.000000000 server -> server Note 5 B round 1
0.000000000 server -> server Note of round 1 arrives
0.000000011 server -> client1 Model of round 1 goes on over router->client1
0.000000012 server -> client2 Model of round 1 goes on over router->client2
0.000000022 server -> client1 Model of round 1 arrives
0.000000022 client1 enters round 1
0.000000022 client1 resumes: complete, 1 messages
0.000000022 client1 computes train for 0.000000100 s
0.000000023 server -> client2 Model of round 1 arrives
0.000000023 client2 enters round 1
0.000000023 client2 resumes: complete, 1 messages
0.000000023 client2 computes train for 0.000000400 s
0.000000050 client2 crashes
0.000000122 client1 has computed
0.000000122 client1 -> server Update 184 B round 1 by router
0.000000122 client1 leaves round 1
0.000000134 client1 -> server Update of round 1 goes on over router->server
0.000000146 client1 -> server Update of round 1 arrives
0.000000146 server resumes: settled, 1 messages
0.000000146 server computes aggregate for 0.000000000 s
0.000000146 server has computed
0.000000146 server reports received
0.000000146 server leaves round 1
0.000000146 server enters round 2
0.000000146 server -> client1 Model 84 B round 2 by router
0.000000146 server -> client2 Model 84 B round 2 by router
0.000000157 server -> client1 Model of round 2 goes on over router->client1
0.000000158 server -> client2 Model of round 2 goes on over router->client2
0.000000168 server -> client1 Model of round 2 is lost on router->client1
0.000000169 server -> client2 Model of round 2 arrives, nobody there
0.000000170 client2 returns
0.000000170 client2 starts in round 1
0.000000170 client2 -> server Hello 34 B by router
0.000000170 client2 sends no Update to server in round 1
0.000000175 link router->client1 changes: down=True
0.000000181 client2 -> server Hello goes on over router->server
0.000000192 client2 -> server Hello arrives
0.000000200 server resumes: timeout
0.000000200 server reports note received
0.000000200 server leaves round 2: TimedOut: nobody answered
0.000000200 server enters round 3
0.000000200 server -> client1 Model 84 B round 3 by router
0.000000210 server resumes: timeout
0.000000210 server ends
0.000000210 client2 -> server Hello stays unread
"""


def test_the_golden_log_is_exact(rows, header):
    assert golden_text(rows, header) == GOLDEN


def test_the_golden_log_is_in_the_order_of_time_whatever_the_order_of_rows(rows, header):
    later = [row for row in rows if row[0] == R.COMPUTE]
    shuffled = [row for row in rows if row[0] != R.COMPUTE] + later
    assert sorted(golden(shuffled, header)) == sorted(GOLDEN.splitlines())
    times = [text.split()[0] for text in golden(shuffled, header)]
    assert times == sorted(times)


def test_no_float_of_a_model_and_no_digest_stand_in_the_golden_log(header):
    text = golden_text([(R.REPORT, 1, 0, 1, {"norm": 0.123456}, "c0ffee")], header)
    assert text == "0.000000001 server reports norm\n"


def test_equal_runs_have_no_difference(rows):
    assert first_difference(rows, [tuple(row) for row in rows]) is None
    assert first_difference([], []) is None
    nan = [(R.REPORT, 1, 0, 1, {"loss": float("nan")}, "")]
    assert first_difference(nan, [(R.REPORT, 1, 0, 1, {"loss": float("nan")}, "")]) is None


def test_the_first_difference_names_time_node_kind_fields_and_both_rows(rows, header):
    other = list(rows)
    other[10] = (R.DELIVER, 25, 0, 0, R.INBOX)
    other[20] = (R.COMPUTED, 1, 1)
    assert first_difference(rows, other, header) == (
        "row 10, 0.000000022 s, node 0 (server), deliver\n"
        "  recorded  deliver time_ns=22 source=0 seq=0 fate=0\n"
        "  replayed  deliver time_ns=25 source=0 seq=0 fate=0\n"
        "  differ in time_ns")


@pytest.mark.parametrize("turned", [False, True])
def test_a_run_that_ends_before_the_other_differs(rows, turned):
    pair = (rows[:2], rows[:3])
    found = first_difference(*(pair[::-1] if turned else pair))
    row = "start time_ns=0 node=2 round=0"
    assert found is not None
    assert found.splitlines() == [
        "row 2, 0.000000000 s, node 2, start",
        f"  recorded  {row if turned else '(ends before)'}", f"  replayed  {'(ends before)' if turned else row}"]


def test_an_integer_differs_from_a_float_but_a_list_not_from_a_tuple():
    def report(x):
        return [(R.REPORT, 1, 0, 1, {"x": x}, "")]

    assert first_difference(report(1), report(1.0)) is not None
    assert first_difference(report(1), report(True)) is not None
    assert first_difference(report([1]), report((1,))) is None


# --- progress -------------------------------------------------------------------------------------------------------

def test_the_progress_line():
    assert line("fedavg", 3, None, 20_000_000, None, None, 0.25) == "fedavg  round 3  virtual 0.020 s  real 0.2 s"
    assert line("krum", 30, 30, 10**9, None, 0.5, 300) == (
        "krum  round 30/30  virtual 1.000 s  accuracy 0.500  real 5 min")
    assert line("local", 30, 30, 10**9, None, 0.5, 300, "global_per_client") == (
        "local  round 30/30  virtual 1.000 s  global per client accuracy 0.500  real 5 min")
    assert line("krum", 5, None, 10**9, 4 * 10**9, None, 10).endswith("real 10 s  left 30 s")


def test_plain_progress_is_quiet_but_for_its_last_line(monkeypatch):
    monkeypatch.setattr("emul.record.progress.time.monotonic", lambda: 7.0)
    stream = io.StringIO()
    progress = Progress("fedavg", 3, None, stream=stream)
    for round_ in (1, 2, 3):
        progress.update(round_, round_ * 10**9, 0.5)
    progress.done()
    progress.done()
    assert stream.getvalue() == "fedavg  round 3/3  virtual 3.000 s  accuracy 0.500  real 0.0 s\n"


def test_the_last_line_has_the_accuracy_of_the_table(monkeypatch):
    monkeypatch.setattr("emul.record.progress.time.monotonic", lambda: 7.0)
    stream = io.StringIO()
    progress = Progress("fedavg", 3, None, stream=stream)
    progress.update(3, 3 * 10**9, 0.916)            # the last round is still being evaluated
    progress.ended(3, 3 * 10**9, 0.949)
    progress.done()
    assert stream.getvalue() == "fedavg  round 3  virtual 3.000 s  accuracy 0.949  real 0.0 s\n"


def test_progress_says_that_no_round_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    clock = iter([0.0, 1.0, 3.0, 10.0, 11.0])
    monkeypatch.setattr("emul.record.progress.time.monotonic", lambda: next(clock))
    progress = Progress("fedavg", 3, None, stream=stream)
    progress.update(1, 10**9, 0.5)
    progress.silent(2, 2 * 10**9)                   # for 2 s only
    progress.silent(2, 9 * 10**9)
    progress.silent(2, 10 * 10**9)
    progress.done()
    assert stream.getvalue().splitlines() == [
        "fedavg  round 2  no round has ended since t = 1.000 s, now t = 9.000 s  real 10 s",
        "fedavg  round 2  no round has ended since t = 1.000 s, now t = 10.000 s  real 11 s"]


def test_steps_say_nothing_for_two_seconds_and_then_a_line_every_two(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    clock = iter([0.0, 0.5, 1.9, 2.1, 3.0, 4.2, 5.0])
    monkeypatch.setattr("emul.record.progress.time.monotonic", lambda: next(clock))
    with StepProgress(stream) as steps:
        for step in "abcdef":
            steps.tell(step)
    assert stream.getvalue().splitlines() == ["c", "e"]


def test_a_single_step_that_takes_long_is_said_while_it_goes_on_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("emul.record.progress._SHORT_S", 0.05)
    with StepProgress(stream) as steps:
        steps.tell("reading a large run")
        while not stream.getvalue():                        # the step itself; the test's own timeout ends it
            time.sleep(0.01)
        time.sleep(0.2)
    assert stream.getvalue() == "reading a large run\n"


def test_a_replay_and_a_report_of_one_run_say_what_they_do_if_that_takes_long(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(StepProgress, "tell", lambda self, text: told.append(text))
    run = make_run(tmp_path, scheme="one", seed=1)
    monkeypatch.setattr("emul.engine.replay", lambda *given, step, **named: step("round 1") or "0f")
    for command in (["report", str(run)], ["replay", str(run)]):
        result = CliRunner().invoke(cli.app, command)
        assert result.exit_code == 0, result.output
    assert told == [f"reading {run}", "writing the page", f"computing {run} again", "round 1"]


def test_progress_can_be_quiet_and_a_run_without_rounds_shows_nothing():
    stream = io.StringIO()
    quiet = Progress("fedavg", 3, None, quiet=True, stream=stream)
    quiet.update(1, 1)
    quiet.done()
    Progress("fedavg", stream=stream).done()
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_line():
    stream = Terminal()
    progress = Progress("fedavg", 3, stream=stream)
    progress.update(1, 10**9)
    progress.done()
    assert "round 1/3" in stream.getvalue()


SUMMARY = {"label": "fedavg", "rounds": 28, "rounds_failed": 2, "accuracy": 0.91234, "virtual_seconds": 12.5,
           "bytes_total": 14_632_001, "messages_lost": 9, "messages_sent": 300, "real_seconds": 3.2}


def test_the_final_table():
    other = {**SUMMARY, "label": "fair_seccogc", "accuracy": None, "real_seconds": 7200, "bytes_total": 999}
    assert table([SUMMARY, other]) == (
        "scheme        rounds  failed rounds  accuracy  virtual time     bytes   lost   real time\n"
        "fedavg            28              2     0.912      12.500 s  14.63 MB  9/300         3 s\n"
        "fair_seccogc      28              2         -      12.500 s     999 B  9/300  2 h 00 min")
