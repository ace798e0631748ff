"""Replies on both sides of a deadline: an app is given those that arrive in time, all of them and no others.

The oracle follows each client by hand: it is busy from the arrival of a call until it has slept, takes the next call
then, and skips the calls of rounds that are over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_app import CLIENT as CLIENT_APP
from flower_app import scenario, write_app
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.schemes.flower.messages import TrainReply
from emul.testing import run_text
from emul.testing.world import Ran

CLIENTS, ROUNDS, LIMIT_MS, LATENCY_MS = 10, 3, 1000, 10
KINDS = ("train", "evaluate")
HEAD = """
import json, pathlib
out, delays = pathlib.Path(context.run_config["out"]), json.loads(context.run_config["delays"])
def messages(n, kind):
    content = RecordDict({"arrays": ArrayRecord([np.zeros(4)]), "config": ConfigRecord({"server-round": n})})
    return [Message(content, node, kind) for node in sorted(grid.get_node_ids())]
def note(replies):
    found.append([[m.metadata.message_type, m.metadata.src_node_id] for m in replies])
    out.write_text(json.dumps(found))
found = []
"""
WAITING = HEAD + """
for n in range(1, 4):
    for kind in ("train", "evaluate"):
        note(grid.send_and_receive(messages(n, kind), timeout=1))
"""
PULLING = HEAD + """
ids = []
for n in range(1, 4):
    for kind in ("train", "evaluate"):
        ids += grid.push_messages(messages(n, kind))
        time.sleep(1)
        replies = grid.pull_messages(ids)
        ids = [one for one in ids if one not in {m.metadata.reply_to_message_id for m in replies}]
        note(replies)
"""
# how long a client sleeps is in the config: "kind.round.node"
CLIENT = """
import json, time
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

def work(message, context, kind):
    n = message.content["config"]["server-round"]
    time.sleep(json.loads(context.run_config["delays"])[f"{kind}.{n}.{context.node_id}"] / 1000)
    metrics = MetricRecord({"num-examples": 1, "who": context.node_id})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)

@app.train()
def train(message, context):
    return work(message, context, "train")

@app.evaluate()
def evaluate(message, context):
    return work(message, context, "evaluate")
"""
PROJECT = """
[tool.flwr.app.components]
serverapp = "tiny.server_app:app"
clientapp = "tiny.client_app:app"
[tool.flwr.app.config]
out = ""
delays = ""
"""


def folder_of(path: Path, body: str) -> Path:
    folder = write_app(path, body, client=CLIENT)
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


@pytest.fixture(scope="module", params=["send_and_receive", "push and pull"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("replies")
    return request.param, folder_of(path, WAITING if request.param == "send_and_receive" else PULLING)


@dataclass
class Busy:
    """A client, by hand. queue: calls (arrival, round, kind) that it has not taken."""

    number: int
    free_ms: int = 0
    queue: list[tuple[int, int, str]] = field(default_factory=list)

    def play(self, until_ms: int, delays: dict[str, int]) -> list[tuple[int, int, str]]:
        """Its replies (arrival, node, kind), to all calls that it takes until then."""
        replies = []
        while self.queue:
            begin = max(self.free_ms, self.queue[0][0])
            if begin > until_ms:
                break
            newest = max(round_ for arrival, round_, _ in self.queue if arrival <= begin)
            self.queue = [call for call in self.queue if call[1] >= newest]
            _, round_, kind = self.queue.pop(0)
            self.free_ms = begin + delays[f"{kind}.{round_}.{self.number}"]
            replies.append((self.free_ms + LATENCY_MS, self.number, kind))
        return replies


def in_time(delays: dict[str, int], pulls: bool) -> list[list[list[Any]]]:
    """What the app is given, batch by batch: [type, node] in order of arrival."""
    clients, now, found = [Busy(2 + n) for n in range(CLIENTS)], 0, []
    coming: list[tuple[int, int, str]] = []
    for round_ in range(1, ROUNDS + 1):
        for kind in KINDS:
            for client in clients:
                client.queue.append((now + LATENCY_MS, round_, kind))
                coming += client.play(now + LIMIT_MS, delays)
            end = now + LIMIT_MS
            came = sorted(reply for reply in coming if reply[0] <= end and (pulls or reply[0] > now))
            mine = [reply for reply in came if pulls or reply[2] == kind]
            if not pulls and len(mine) == CLIENTS:
                end = mine[-1][0]
            coming = [reply for reply in coming if reply not in came]
            now = end
            found.append([[kind, number] for _, number, kind in mine])
    return found


def drawn() -> st.SearchStrategy[dict[str, int]]:
    """Delays around the deadline, none of which ends a wait to the millisecond at the time of something else."""
    keys = [f"{kind}.{n}.{2 + node}" for kind in KINDS for n in range(1, ROUNDS + 1) for node in range(CLIENTS)]
    near = st.integers(0, 12).map(lambda tenths: 100 * tenths)
    lists = st.lists(near, min_size=len(keys), max_size=len(keys))
    return lists.map(lambda found: {key: delay + 1 + n for n, (key, delay) in enumerate(zip(keys, found, strict=True))})


def play(folder: Path, out: Path, delays: dict[str, int]) -> tuple[Ran, list[list[list[Any]]]]:
    ran = run_text(scenario({"app": str(folder), "config": {"out": str(out), "delays": json.dumps(delays)}}),
                   f"topology.clients={CLIENTS}", f"links=[{{match: '*', latency: {LATENCY_MS} ms}}]",
                   "stop.rounds=9")
    return ran, json.loads(out.read_text())


@pytest.mark.slow
@settings(max_examples=15)
@given(delays=drawn())
def test_an_app_is_given_exactly_the_replies_that_arrive_in_time(app: tuple[str, Path], delays: dict[str, int]) -> None:
    mode, folder = app
    ran, found = play(folder, folder / "found.json", delays)
    assert found == in_time(delays, pulls=mode != "send_and_receive")
    assert sum(row["received"] for row in ran.rounds) == sum(map(len, found))


# --- one by one -----------------------------------------------------------------------------------------------------

def told(capfd: pytest.CaptureFixture[str]) -> list[Any]:
    """What the app has printed, a JSON value a line."""
    return [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith(("{", "["))]


CONTENT = "content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"


LATE = "time.sleep(6 if context.node_id == 2 else 1)"       # client 1 trains for so long, and five seconds are waited
LAGGING = CLIENT_APP.replace("    metrics =", "    time.sleep(5.5 if context.node_id == 5 else 0)\n    metrics =")


def test_a_late_reply_takes_the_place_of_none_under_a_strategy(tmp_path: Path) -> None:
    """Client 1 is late in training: its reply comes while others evaluate. Client 4 is late in the evaluation, so that
    the wait ends with its deadline."""
    body = "FedAvg().start(grid, ArrayRecord([np.zeros(4)]), timeout=5, num_rounds=3)"
    ran = run_text(scenario({"app": str(write_app(tmp_path, body, LATE, client=LAGGING))}))
    assert [row["received"] for row in ran.rounds] == [3 + 3] * 3
    assert [row["eval_acc"] for row in ran.rounds] == pytest.approx([2, 4, 6])      # the means of 1, 2, 3, without 0


def test_the_timeout_of_the_scenario_does_the_same(tmp_path: Path) -> None:
    ran = run_text(scenario({"app": str(write_app(tmp_path, train=LATE, client=LAGGING)), "timeout": "5 s"}))
    assert [row["received"] for row in ran.rounds] == [3 + 3] * 3


def test_a_reply_that_came_too_late_can_still_be_pulled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As in Flower: a message remains valid, whatever the timeout was. Not when its round is over."""
    body = (f"import json\n{CONTENT}asked = [Message(content, node, 'train') for node in (2, 3)]\n"
            "said = [len(list(grid.send_and_receive(asked, timeout=2)))]\ntime.sleep(2)\n"
            "ids = [m.metadata.message_id for m in asked]\n"
            "said += [[m.metadata.src_node_id for m in grid.pull_messages(ids)] for _ in range(2)]\n"
            "again = [Message(content, node, 'train') for node in (2, 3)]\n"
            "said += [len(list(grid.send_and_receive(again, timeout=2)))]\n"
            "list(grid.send_and_receive([Message(content, 3, 'train')], timeout=2))\ntime.sleep(4)\n"
            "said += [len(list(grid.pull_messages([m.metadata.message_id for m in again])))]\n"
            "print(json.dumps(said))")
    ran = run_text(scenario({"app": str(write_app(tmp_path, body, "time.sleep(3 if context.node_id == 2 else 0)"))}))
    assert told(capfd) == [[1, [2], [], 1, 0]]
    assert [row["received"] for row in ran.rounds] == [2, 1, 1]


def test_a_reply_within_its_ttl_is_given_out_though_others_of_the_batch_expire(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = (f"import json\n{CONTENT}t = time.time()\n"
            "replies = grid.send_and_receive([Message(content, node, 'train', ttl=3) for node in (2, 3)])\n"
            "print(json.dumps([[m.has_error() for m in replies], time.time() - t]))")
    ran = run_text(scenario({"app": str(write_app(tmp_path, body, "time.sleep(1 if context.node_id == 2 else 9)"))}))
    assert told(capfd) == [[[False, True], 3.0]]
    assert [row["received"] for row in ran.rounds] == [1]


def test_two_messages_for_one_client_are_both_answered_in_time(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In the order of arrival, which is not that of the clients."""
    body = (f"import json\n{CONTENT}other = RecordDict({{'arrays': ArrayRecord([np.ones(4)])}})\n"
            "asked = [Message(c, node, 'train') for node in (2, 3) for c in (content, other)]\n"
            "replies = grid.send_and_receive(asked, timeout=5)\n"
            "print(json.dumps([m.metadata.src_node_id for m in replies]))")
    run_text(scenario({"app": str(write_app(tmp_path, body, "time.sleep(2 if context.node_id == 2 else 0.5)"))}))
    assert told(capfd) == [[3, 3, 2, 2]]


def test_a_client_that_sleeps_is_busy_until_it_wakes(tmp_path: Path) -> None:
    """Though the round be over: it begins to train in the next one when it has slept, as one that computes does."""
    body = "FedAvg(fraction_evaluate=0).start(grid, ArrayRecord([np.zeros(4)]), timeout=5, num_rounds=2)"
    train = "time.sleep(7 if context.node_id == 2 else 1)"
    ran = run_text(scenario({"app": str(write_app(tmp_path, body, train))}))
    begun = [row for row in ran.rows if row[0] == R.COMPUTE and row[2] == 1 and row[3] == "train"]
    assert [round(row[1] / 1e9, 1) for row in begun] == [0.0, 7.0]


def test_a_client_that_crashes_while_it_sleeps_sends_nothing_when_it_is_back(tmp_path: Path) -> None:
    body = "FedAvg(fraction_evaluate=0).start(grid, ArrayRecord([np.zeros(4)]), timeout=5, num_rounds=1)"
    ran = run_text(scenario({"app": str(write_app(tmp_path, body, "time.sleep(2)"))}),
                   "faults=[{node: client1, crash: true, at: 1 s, for: 500 ms}]")
    assert [row["received"] for row in ran.rounds] == [3]


@pytest.mark.parametrize("raw", [b"", b"\n", b"\n\xff\xff\xff", b"\n\x04abcd", b"nothing of the kind", b"\n\xff\x7f"])
def test_bytes_that_are_no_message_answer_nothing(raw: bytes) -> None:
    from emul.schemes.flower import encoding

    assert encoding.answered(TrainReply(np.frombuffer(raw, np.uint8), 0.0)) == ""


@pytest.mark.parametrize("size", [1, 100, 127, 128, 16_384, 3_000_000])
def test_what_an_answer_answers_is_read_from_its_head(size: int) -> None:
    from flwr.proto.message_pb2 import Message, Metadata

    from emul.schemes.flower import encoding

    message = Message(metadata=Metadata(message_id="a" * size, reply_to_message_id="17.3"))
    message.content.items.add(key="k")
    raw = np.frombuffer(message.SerializeToString(), np.uint8)
    assert encoding.answered(TrainReply(raw, 0.0)) == "17.3"
