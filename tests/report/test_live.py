"""A run to watch: its journal followed as it grows, the state that comes of it, and a server that only reads."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.base.errors import InputError
from emul.record import journal
from emul.record.rundir import INCOMPLETE, RunDirectory
from emul.report import data
from emul.report.live.following import Follower
from emul.report.live.page import shown
from emul.report.live.server import Watching
from emul.report.live.state import DAMAGED, ENDED, RUNNING, STOPPED, RunProgress
from emul.scenario import loads

SCENARIO = """
emul: 1
name: watched
seed: 5
topology: {generator: star_mesh, clients: 4}
links:
- {match: "*", latency: 20 ms, bandwidth: 2 Mbit/s}
- {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 90 ms}, {name: secagg, threshold: 3}]
stop: {rounds: 6}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = engine.run(loads(SCENARIO), workers=0, out=tmp_path_factory.mktemp("watched"))
    return {result.scheme: result.directory for result in results if result.directory is not None}


def whole(path: Path) -> RunProgress:
    """The state at the end of a run."""
    state, reading = RunProgress(path), journal.read(path / "journal")
    state.begin(reading.header)
    for chunk in reading.chunks():
        state.take(chunk)
    state.observe(reading.observed)
    return state


# --- the state ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("scheme", ["fedavg", "secagg"])
def test_at_the_end_the_state_says_what_summary_and_report_say(runs: dict[str, Path], scheme: str) -> None:
    state, run = whole(runs[scheme]), data.open_run(runs[scheme])
    s = run.summary
    assert state.bytes == s["bytes_total"]
    assert {fate: n for fate, n in state.messages.items() if n} == {
        "sent": s["messages_sent"], **{fate: n for fate in ("delivered", "lost", "late", "to_ended", "rejected")
                                       if (n := s[f"messages_{fate}"])}}
    assert state.newest("accuracy") == s["accuracy"]
    assert sum(state.lost.values()) == s["messages_lost"]
    expected, found = data.curve(run), state.curve()
    for name in ("round", "virtual_s", "accuracy", "loss"):
        assert found[name].tolist() == expected[name].tolist(), name
    assert state.share() == 1
    assert state.traffic_frame().groupby("type")["bytes"].sum().to_dict() == {
        kind: n for kind, n in s["bytes_by_type"].items() if n}


def test_what_is_shown_is_json_at_every_moment(runs: dict[str, Path]) -> None:
    state, reading = RunProgress(runs["secagg"]), journal.read(runs["secagg"] / "journal")
    state.begin(reading.header)
    found = [row for chunk in reading.chunks() for row in chunk]
    for start in range(0, len(found), 97):
        state.take(found[start:start + 97])
        said = json.dumps(shown(state), allow_nan=False)
    state.observe(reading.observed)
    assert json.loads(json.dumps(shown(state), allow_nan=False))["figures"]
    assert '"state": "waiting"' in said or '"state": "ended"' in said


# --- following ------------------------------------------------------------------------------------------------------

class Told:
    """What a follower has told: (status, rows so far), in its order."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def __call__(self, state: RunProgress) -> None:
        self.found.append((state.status, state.rows))

    def until(self, status: str) -> None:
        soon(lambda: any(said == status for said, _ in self.found))


def soon(condition: Callable[[], Any], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def frames(path: Path) -> list[bytes]:
    """A journal in three pieces; the first two end in the middle of a frame."""
    content = (path / "journal").read_bytes()
    return [content[:len(content) // 3], content[len(content) // 3:2 * len(content) // 3],
            content[2 * len(content) // 3:]]


@pytest.fixture
def growing(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A directory of a run of which the first third is there."""
    path = tmp_path / "growing"
    path.mkdir()
    shutil.copy(runs["secagg"] / "scenario.resolved.yaml", path)
    (path / INCOMPLETE).touch()
    (path / "journal").write_bytes(frames(runs["secagg"])[0])
    return path


def grow(path: Path, *pieces: bytes) -> None:
    with (path / "journal").open("ab") as file:
        file.write(b"".join(pieces))


def test_a_journal_is_followed_as_it_grows_until_the_run_has_ended(runs: dict[str, Path], growing: Path) -> None:
    told, pieces = Told(), frames(runs["secagg"])
    follower = Follower(growing, told, every_s=0.01)
    with RunDirectory(growing).claimed():
        follower.start()
        told.until(RUNNING)
        grow(growing, pieces[1])
        soon(lambda: len({rows for _, rows in told.found}) > 1)
        grow(growing, pieces[2])
        soon(lambda: told.found[-1][1] == whole(runs["secagg"]).rows)
    (growing / INCOMPLETE).unlink()
    told.until(ENDED)
    assert told.found[-1] == (ENDED, whole(runs["secagg"]).rows)
    assert [rows for _, rows in told.found] == sorted(rows for _, rows in told.found)
    follower.stop()


def test_a_run_that_was_cut_off_is_told_once_and_followed_again_when_it_is_resumed(
        runs: dict[str, Path], growing: Path) -> None:
    told = Told()
    (growing / "error.txt").write_text("WorkerDied: worker 1 was killed\n")
    follower = Follower(growing, told, every_s=0.01)
    follower.start()
    told.until(STOPPED)
    follower.settle(10)
    time.sleep(0.1)
    assert [status for status, _ in told.found].count(STOPPED) == 1
    assert follower._state.why == "WorkerDied: worker 1 was killed"
    with RunDirectory(growing).claimed():
        (growing / "journal.resumed").write_bytes(b"".join(frames(runs["secagg"])))
        told.until(RUNNING)
        (growing / "journal.resumed").replace(growing / "journal")
    (growing / INCOMPLETE).unlink()
    told.until(ENDED)
    follower.stop()


def test_a_journal_met_while_its_head_was_written_is_read_again_before_a_follower_has_settled(
        runs: dict[str, Path], growing: Path) -> None:
    """A short run had ended before the next look, and nothing of it was logged."""
    (growing / "journal").write_bytes(frames(runs["secagg"])[0][:10])
    told = Told()
    follower = Follower(growing, told, every_s=0.5)
    follower.start()
    soon(lambda: told.found)
    (growing / "journal").write_bytes(b"".join(frames(runs["secagg"])))
    (growing / INCOMPLETE).unlink()
    follower.settle(20)
    follower.stop()
    assert told.found[-1] == (ENDED, whole(runs["secagg"]).rows)


def test_damage_is_told_with_its_place(growing: Path) -> None:
    content = bytearray((growing / "journal").read_bytes())
    content[len(content) // 2] ^= 1
    (growing / "journal").write_bytes(content)
    told = Told()
    follower = Follower(growing, told, every_s=0.01)
    follower.start()
    told.until(DAMAGED)
    follower.stop()
    assert "checksum is wrong" in follower._state.why


def test_a_run_that_is_watched_has_the_digest_of_one_that_is_not(runs: dict[str, Path], tmp_path: Path) -> None:
    told: list[str] = []
    followers: list[Follower] = []

    def begin() -> None:
        soon(lambda: list(tmp_path.glob("*/journal")))
        followers.append(Follower(next(tmp_path.glob("*/journal")).parent, lambda s: told.append(s.status), 0.01))
        followers[0].start()

    thread = threading.Thread(target=begin)
    thread.start()
    result, = engine.run(loads(SCENARIO), scheme="secagg", workers=0, out=tmp_path)
    thread.join()
    soon(lambda: ENDED in told)
    followers[0].stop()
    assert result.summary is not None
    assert result.summary["digest"] == json.loads((runs["secagg"] / "summary.json").read_text())["digest"]


# --- the server -----------------------------------------------------------------------------------------------------

@pytest.fixture
def watching(growing: Path) -> Iterator[Watching]:
    with RunDirectory(growing).claimed(), Watching(growing) as found:
        yield found


def test_a_port_that_is_taken_is_named(watching: Watching, growing: Path) -> None:
    with pytest.raises(InputError, match=rf"^port {watching.port}: Address already in use; 0 takes one that is free$"):
        Watching(growing, watching.port)


def ask(watching: Watching, path: str, method: str = "GET", host: str | None = None, **headers: str,
        ) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", watching.port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{watching.port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = b"" if answer.getheader("Content-Type") == "text/event-stream" else answer.read()
    found = answer.status, dict(answer.getheaders()), body
    connection.close()
    return found


def test_the_page_is_whole_and_asks_nobody_else(watching: Watching) -> None:
    status, headers, body = ask(watching, f"/{watching.token}/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert b'new EventSource("events")' in body
    assert ask(watching, f"/{watching.token}/", host=f"localhost:{watching.port}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "evil.example:80",
                                  "127.0.0.1.evil.example", ""])
def test_a_request_under_another_name_is_refused(watching: Watching, host: str) -> None:
    for path in ("", "events", "report"):
        assert ask(watching, f"/{watching.token}/{path}", host=host or " ")[0] in (400, 421)


def test_without_the_path_that_was_printed_nothing_is_answered(watching: Watching) -> None:
    for path in ("/", "/events", "/x/", f"/{watching.token}", f"/{watching.token}/../../etc/passwd",
                 f"/{watching.token}/journal", f"/{watching.token[:-1]}/events"):
        assert ask(watching, path)[0] in (400, 404), path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_it_only_reads(watching: Watching, method: str) -> None:
    assert ask(watching, f"/{watching.token}/", method)[0] == 501


def test_no_page_of_another_origin_may_read_it(watching: Watching) -> None:
    for path in ("", "events"):
        _, headers, _ = ask(watching, f"/{watching.token}/{path}", Origin="http://evil.example")
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(watching, f"/{watching.token}/events", Sec_Fetch_Site="cross-site")[0] == 403


def test_it_listens_on_loopback_alone(watching: Watching) -> None:
    assert watching._server.server_address[0] == "127.0.0.1"
    for address in {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}:
        if not str(address).startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((str(address), watching.port), 5)


def events(watching: Watching) -> Iterator[dict[str, Any]]:
    """The states that a page is sent."""
    with socket.create_connection(("127.0.0.1", watching.port), 20) as connection:
        connection.sendall(f"GET /{watching.token}/events HTTP/1.1\r\nHost: 127.0.0.1:{watching.port}\r\n\r\n".encode())
        with connection.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


def test_events_tell_how_it_grows_and_end_with_the_run_and_its_report(
        runs: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / runs["secagg"].name
    shutil.copytree(runs["secagg"], path)
    pieces = frames(path)
    (path / INCOMPLETE).touch()
    (path / "journal").write_bytes(pieces[0])
    with contextlib.ExitStack() as runs_on, Watching(path) as watching:
        runs_on.enter_context(RunDirectory(path).claimed())
        told = events(watching)
        first = next(state for state in told if state["status"] == RUNNING)
        assert first["share"] < 1
        grow(path, pieces[1])
        assert next(state for state in told if state["share"] > first["share"])["figures"]
        grow(path, pieces[2])
        next(state for state in told if state["share"] == 1)
        (path / INCOMPLETE).unlink()
        runs_on.close()
        assert [state["status"] for state in told][-1] == ENDED
        status, _, body = ask(watching, f"/{watching.token}/report")
        assert status == 200
        assert b"Space" in body or b"space" in body
