"""A deployment of SuperLink and SuperNodes in virtual time, against steps that are written down apart from it.

The oracle of one node goes through `start_client_internal`, `run_superexec` and `HttpGrid` of flwr by hand: who asks
when, on which connection, and when the answer is there. Nothing of `emul.schemes.flower` is in it but what starts it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_app import HEAD, TRAINS, write_app
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common import constant
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.supercore import constant as shared
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from emul import engine
from emul.base.streams import generator
from emul.message.wire import ENVELOPE_BYTES
from emul.scenario import loads
from emul.schemes.flower import encoding, installed
from emul.schemes.flower.polling import PARTS, Ledger, Stages
from emul.testing import Ran, run_text
from emul.workers.pool import Workers

ECHO = """
import json, pathlib
found, kind = [], "train"
time.sleep(4)
for n in range(1, 3):
    arrays = ArrayRecord([np.full(10, n + 10 * k) for k in range(context.run_config["arrays"])])
    begun = time.monotonic()
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": n})})
    replies = grid.send_and_receive([Message(content, node, kind) for node in sorted(grid.get_node_ids())])
    found.append([begun, time.monotonic(), len(replies)])
    time.sleep(8)
pathlib.Path(context.run_config["out"]).write_text(json.dumps(found))
"""
PROJECT = """
[project]
name = "tiny"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "tiny.server_app:app"
clientapp = "tiny.client_app:app"
[tool.flwr.app.config]
arrays = 1
out = ""
"""
START_S, REQUEST_S, SLEPT_S = 0.7, 0.02, 1.3


def folder_of(path: Path, body: str, train: str = "pass") -> Path:
    folder = write_app(path, body, train, client=TRAINS)
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def text_of(folder: Path, *sets: str, clients: int = 1, latency_ms: float = 0.0, **entry: Any) -> tuple[str, list[str]]:
    """A scenario with a deployed app, and its edits."""
    scheme = {"name": "flower", "app": str(folder), "runtime": "superlink", "start": f"{START_S} s",
              "request": f"{REQUEST_S} s", **entry}
    return HEAD + f"  - {json.dumps(scheme)}\n", [
        f"topology.clients={clients}", "links[0].bandwidth=infinite", f"links[0].latency={latency_ms} ms",
        "stop.rounds=8", *sets]


def deployed(folder: Path, *sets: str, **more: Any) -> Ran:
    text, edits = text_of(folder, *sets, **more)
    return run_text(text, *edits)


# --- one node, by hand -----------------------------------------------------------------------------------------------

def by_hand(down: int, up: int, rtt: float) -> list[list[float]]:
    """[begin, end] of both exchanges. down, up: objects of a message and of its reply."""
    idle: list[float] = []                  # connections: since when they are silent

    def connections(at: float, wanted: int) -> list[float]:
        """The times at which so many connections can be used from `at` on: at once, or a round trip later."""
        idle[:] = [since for since in idle if at - since < 5]
        ready = [at if idle and idle.pop() else at + rtt for _ in range(wanted)]
        return ready

    def request(at: float) -> float:
        end = connections(at, 1)[0] + rtt + REQUEST_S
        idle.append(end)
        return end

    def two_at_a_time(at: float, count: int) -> float:
        ends = connections(at, min(2, count))
        for _ in range(count):
            ends[ends.index(min(ends))] += rtt + REQUEST_S
        idle.extend(ends)
        return max(ends)

    def grid(origin: float, period: float, at: float) -> float:
        while origin < at:
            origin += period
        return origin

    def tried_again(at: float, there: float, draws: Any) -> float:
        """The objects are there when all are; who asks before asks again after 1, 2, 4, ... s, drawn 20 % about it."""
        delay = 1.0
        while at < there:
            at += max(delay * (0.8 + 0.4 * draws.random()) for _ in range(2))
            delay = min(2 * delay, 10)
        return at

    waits, pulls = generator(7, "retries", "client1"), generator(7, "pulls", "server")
    begin = generator(7, "polls", "client1").random() * 3
    looks = begin + generator(7, "superexec", "client1").random()
    end = begin + 2 * rtt + REQUEST_S       # the first look, on a new connection
    idle.append(end)
    begun, known, found = 4.0, False, []
    for _ in range(2):
        while end - REQUEST_S - rtt / 2 < begun + REQUEST_S:        # the metadata are there: a request of the app
            end = request(end + 3)
        if not known:                       # the run, and the app's bundle
            end, known = request(request(end)), True
        there = two_at_a_time(end, down)
        started = tried_again(grid(looks, 1, end) + START_S, there, waits)
        end = request(grid(request(there), 0.5, started + SLEPT_S))
        replied = end - REQUEST_S - rtt / 2
        end = two_at_a_time(end, up)
        look = begun + (2 + -(-down // 2)) * REQUEST_S
        look = tried_again(grid(look, 3 + REQUEST_S, replied), end - REQUEST_S - rtt / 2, pulls)
        found.append([begun, look + (1 + -(-up // 2)) * REQUEST_S])
        begun = found[-1][1] + 8
        end = request(end)                  # it looks again at once
    return found


@pytest.mark.parametrize("rtt_ms", [0, 50, 200])
@pytest.mark.parametrize("arrays", [1, 3, 12])
def test_one_node_takes_the_steps_that_are_written_in_flower(arrays: int, rtt_ms: int, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    ran = deployed(folder_of(tmp_path / "app", ECHO, f"time.sleep({SLEPT_S})"), latency_ms=rtt_ms / 2,
                   heartbeat="10000 s", config={"arrays": arrays, "out": str(out)})
    got = json.loads(out.read_text())
    down, up = 4 + 2 * arrays, 3            # message, its records, two records, of each array itself and one chunk
    assert [replies for *_, replies in got] == [1, 1]
    assert [pair[:2] for pair in got] == [pytest.approx(pair, abs=1e-6) for pair in by_hand(down, up, rtt_ms / 1e3)]
    assert (len(ran.payloads["PullObject"]), len(ran.payloads["PushObject"])) == (2 * down, 2 * up)
    sizes = [size for _ in range(2) for size in objects(arrays)]
    assert sorted(ran.payloads["PullObjectResponse"]) == [pytest.approx(one - ENVELOPE_BYTES, abs=9)
                                                          for one in sorted(map(response, sizes))]


def objects(arrays: int) -> list[int]:
    """Bytes of the objects of a message of the app, as Flower's own parts are."""
    content = RecordDict({"arrays": ArrayRecord([np.full(10, 1 + 10 * k) for k in range(arrays)]),
                          "config": ConfigRecord({"server-round": 1})})
    encoding.be(1, 1)
    message = Message(content, 2, "train")
    message.metadata.__dict__["_message_id"] = message.object_id
    return [len(one.deflate()) for one in get_all_nested_objects(message).values()]


def response(size: int) -> int:
    """The bytes of a response with an object of `size` bytes, as HTTP has them."""
    body = PullObjectResponse(object_found=True, object_available=True, object_content=bytes(size)).ByteSize()
    return 127 + len(str(body)) + body


# --- the waits of the installed flwr ---------------------------------------------------------------------------------

def test_waits_are_those_of_the_installed_version() -> None:
    found = installed.read()
    assert found.pushes == shared.FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES
    assert found.session_s == shared.OBJECT_PUSH_SESSION_TTL_SECONDS
    assert found.chunk_bytes == constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
    assert (found.heartbeat_s, found.patience) == (constant.HEARTBEAT_DEFAULT_INTERVAL, constant.HEARTBEAT_PATIENCE)
    assert (-found.heartbeat_range, found.heartbeat_range) == constant.HEARTBEAT_RANDOM_RANGE
    assert (found.node_poll_s, found.reply_poll_s, found.task_poll_s, found.server_poll_s) == (3, 0.5, 1, 3)


@pytest.mark.parametrize(("code", "lacks"), [
    ("", "constant HEARTBEAT_RANDOM_RANGE"),
    ("HEARTBEAT_RANDOM_RANGE = (-0.1, 0.1)", "function start_client_internal"),
    ("HEARTBEAT_RANDOM_RANGE = (-0.1, 0.1)\ndef start_client_internal(): time.sleep(wait)",
     "sleep(number) in start_client_internal")])
def test_a_name_that_is_gone_is_told_with_the_version(code: str, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.read.cache_clear()
    monkeypatch.setattr(installed, "_tree", lambda file: ast.parse(code))
    with pytest.raises(installed.UnknownFlower) as told:
        installed.read()
    assert str(told.value).startswith(f"flwr {installed.version()}: ")
    assert f" has no {lacks}; the runtimes superlink" in str(told.value)


# --- where the seconds of a round go ---------------------------------------------------------------------------------

def times(at: Sequence[float], compute: float, start: float, free: float = 0.0) -> Stages:
    pushed, delivered, received, replied, there = (round(one * 1e9) for one in at)
    return Stages(pushed, round(free * 1e9), delivered, received, replied, there, compute=round(compute * 1e9),
                 start=round(start * 1e9))


def test_the_parts_of_a_round_add_up_to_it() -> None:
    ledger = Ledger()
    ledger.push(2_000_000_000)                                      # the server has computed for two seconds
    quick = times((2, 3, 3.5, 8, 8.25), compute=2, start=1)         # polls: 1 before, 1.5 within its work
    slow = times((2, 4, 5, 12, 12.5), compute=4, start=1, free=2.5)
    ledger.pull(9_000_000_000, quick)
    ledger.pull(13_000_000_000, slow)
    assert ledger.closed(14_000_000_000) == {
        "seconds_poll": ((1 + 1.5 + 0.75) + (1.5 + 2 + 0.5)) / 2, "seconds_busy": 0.25, "seconds_start": 1,
        "seconds_compute": 3, "seconds_transfer": ((0.5 + 0.25) + (1 + 0.5)) / 2, "seconds_slowest": 2,
        "seconds_server": 3}


def test_a_late_reply_counts_from_the_last_push_on() -> None:
    ledger = Ledger()
    ledger.push(0)
    late = times((0, 1, 1.5, 9, 9.5), compute=7, start=0)           # 0.5 s of polls before it computes
    ledger.push(4_000_000_000)
    ledger.pull(10_000_000_000, late)
    found = ledger.closed(10_000_000_000)
    assert sum(found.values()) == 10
    assert [found[f"seconds_{part}"] for part in ("server", "compute", "transfer", "poll")] == [4, 5, 0.5, 0.5]


# --- faults ----------------------------------------------------------------------------------------------------------

ROUNDS = """
import json, pathlib
found = []
for n in range(1, 7):
    begun, nodes = time.monotonic(), sorted(grid.get_node_ids())
    replies = grid.send_and_receive([Message(RecordDict({"config": ConfigRecord({"server-round": n})}), node, "train")
                                     for node in nodes])
    said = {r.metadata.src_node_id: r.error.code if r.has_error() else 0 for r in replies}
    found.append([time.monotonic() - begun, nodes, sorted(said.items())])
    time.sleep(20)
pathlib.Path(context.run_config["out"]).write_text(json.dumps(found))
"""


def faulty(tmp_path: Path, *sets: str, train: str = "pass", **more: Any) -> list[Any]:
    out = tmp_path / "found.json"
    deployed(folder_of(tmp_path / "app", ROUNDS, train), *sets, clients=2, latency_ms=10,
             config={"out": str(out)}, **more)
    found: list[Any] = json.loads(out.read_text())
    return found


def test_a_node_that_misses_its_heartbeats_is_offline_and_its_message_an_error(tmp_path: Path) -> None:
    found = faulty(tmp_path, 'faults=[{at: 25 s, node: client1, crash: true, for: 120 s}]')
    codes = [{node: code for node, code in said} for _, _, said in found]
    errors = [n for n, said in enumerate(codes) if constant.ErrorCode.NODE_UNAVAILABLE in said.values()]
    assert len(errors) == 1
    # the first look of the app behind two heartbeats of 30 s after the last one, each with a round trip or two
    end = sum(seconds for seconds, *_ in found[:errors[0] + 1]) + 20 * errors[0]
    beat, draw = 20 * (1 - generator(7, "silent", "client1").random()), generator(7, "heartbeats", "client1")
    while (later := beat + 25 * (0.8 + 0.1 * (2 * draw.random() - 1))) < 25:
        beat = later
    assert 60 < end - beat < 60 + 3 + 0.2
    assert found[errors[0] + 1][1] == [3]       # it is sampled no longer
    assert found[-1][1] == [2, 3]               # until it is back
    assert codes[-1] == {2: 0, 3: 0}


def test_a_reply_whose_objects_do_not_come_is_an_error_after_three_minutes(tmp_path: Path) -> None:
    found = faulty(tmp_path, "links[0].latency=1 s", "faults=[{at: 18 s, node: client1, crash: true}]",
                   heartbeat="10 s")
    assert found[0][2] == [[2, constant.ErrorCode.MESSAGE_UNAVAILABLE], [3, 0]]     # the metadata have come before 18 s
    assert 180 < found[0][0] < 210


def test_a_process_that_dies_is_told_two_heartbeats_later(tmp_path: Path) -> None:
    found = faulty(tmp_path, train="if context.node_config['partition-id'] == 1 and "
                                   "message.content['config']['server-round'] == 2: sys.exit(3)")
    assert [code for _, _, said in found for _, code in said].count(constant.ErrorCode.CLIENT_APP_CRASHED) == 1
    assert 60 < found[1][0] < 70
    assert max(seconds for n, (seconds, *_) in enumerate(found) if n != 1) < 15


def test_a_request_that_is_lost_is_tried_again(tmp_path: Path) -> None:
    found = faulty(tmp_path, "faults=[{at: 20 s, link: client1->server, down: true, for: 15 s}]")
    assert all(code == 0 for _, _, said in found for _, code in said)
    assert max(seconds for seconds, *_ in found) > 20


def test_a_large_object_on_a_slow_link_is_asked_for_once(tmp_path: Path) -> None:
    body = ECHO.replace("np.full(10, n + 10 * k)", "np.full(125_000, n + 10 * k)")
    ran = deployed(folder_of(tmp_path / "app", body), "links[0].bandwidth=200 kbit/s", heartbeat="10000 s",
                   config={"out": str(tmp_path / "out.json")})
    assert len(ran.payloads["PullObject"]) == 2 * (4 + 2)
    assert [row["seconds_transfer"] > 40 for row in ran.rounds] == [True, True]


def test_a_superlink_that_starts_again_has_lost_its_run(tmp_path: Path) -> None:
    ran = deployed(folder_of(tmp_path / "app", ROUNDS), "faults=[{at: 25 s, node: server, crash: true, for: 10 s}]",
                   clients=2, config={"out": str(tmp_path / "out.json")})
    assert "the SuperLink has started again" in str(ran.rounds[-1])


# --- whole runs ------------------------------------------------------------------------------------------------------

def test_a_run_is_the_same_for_any_number_of_workers(tmp_path: Path, pools: list[Workers]) -> None:
    folder = folder_of(tmp_path / "app", ECHO)
    text, edits = text_of(folder, clients=3, latency_ms=5, config={"out": str(tmp_path / "out.json")})
    results = [engine.run(loads(text, sets=edits), workers=pool, out=tmp_path / "runs")[0] for pool in (0, pools[1])]
    assert [one.error for one in results] == [None] * 2
    assert len({one.summary["digest"] for one in results if one.summary is not None}) == 1


def test_a_round_says_where_its_seconds_go(tmp_path: Path) -> None:
    ran = deployed(folder_of(tmp_path / "app", ECHO, f"time.sleep({SLEPT_S})"), clients=3, latency_ms=5,
                   config={"out": str(tmp_path / "out.json")})
    first, second, *_ = ran.rounds
    for row in (first, second):
        parts = {part: row[f"seconds_{part}"] for part in PARTS}
        assert sum(parts.values()) == pytest.approx((row["left_ns"] - row["entered_ns"]) / 1e9, abs=1e-6)
        assert parts["compute"] == pytest.approx(SLEPT_S, abs=0.1)
        assert parts["start"] == START_S
