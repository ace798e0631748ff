"""Flower apps over emulated links, from their folder to the rows of a run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_app import BODY, LOSSY, SERVER, scenario, write_app

from emul import engine
from emul.base import rows as R
from emul.base.errors import EmulError, RunError
from emul.scenario import loads
from emul.schemes import flower
from emul.schemes.flower.current import running
from emul.testing import run_text
from emul.testing.world import Ran
from emul.workers.pool import Workers


def run(folder: Path, *sets: str, **entry: Any) -> Ran:
    return run_text(scenario({"app": str(folder), **entry}), *sets)


def told(capfd: pytest.CaptureFixture[str]) -> list[Any]:
    """What the app has printed, a JSON value a line."""
    return [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith(("{", "["))]


# --- what comes out -------------------------------------------------------------------------------------------------

def test_the_app_of_a_folder_runs_with_its_own_metrics(tmp_path: Path) -> None:
    ran = run(write_app(tmp_path))
    assert ran.summary["rounds"] == 3
    assert [row["accuracy"] for row in ran.rounds] == [1.5, 3.0, 4.5]       # the mean of 0, 1, 2, 3 is added each round
    assert [row["eval_acc"] for row in ran.rounds] == [1.5, 3.0, 4.5]
    assert [row["received"] for row in ran.rounds] == [8, 8, 8]


def test_its_config_is_flat_and_may_be_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_app(tmp_path, "import json\nprint(json.dumps(dict(context.run_config)))")
    run(folder, config={"num-server-rounds": 9, "solver": {"rate": 0.25}})
    assert told(capfd) == [{"num-server-rounds": 9, "solver.rate": 0.25}]


def test_what_the_server_app_evaluates_itself_counts_before_what_clients_do(tmp_path: Path) -> None:
    """Round 0 is before the first: it is nobody's."""
    body = BODY.replace("timeout=60", "timeout=60, evaluate_fn=lambda r, arrays: MetricRecord({'accuracy': r / 10})")
    assert [row["accuracy"] for row in run(write_app(tmp_path, body)).rounds] == [0.1, 0.2, 0.3]


def test_numbers_that_are_not_finite_are_told_with_their_client_and_round(tmp_path: Path) -> None:
    train = ("if context.node_config['partition-id'] == 2:\n"
             "    message.content['arrays'] = ArrayRecord([np.full(4, np.nan)])")
    found = run(write_app(tmp_path, train=train), "stop.rounds=2").summary["diverged"]
    first = {one["reason"]: (one["first_node"], one["first_round"]) for one in found}
    assert first["Train: arrays: not finite"] == ("client3", 1)
    assert first["the model of the app: not finite"] == ("server", 1)


def test_a_loop_of_the_apps_own_may_report_what_it_has_found(tmp_path: Path) -> None:
    body = ("import emul.schemes.flower\nfor n in (1, 2):\n"
            "    content = RecordDict({'arrays': ArrayRecord([np.ones(4) * n])})\n"
            "    grid.send_and_receive([Message(content, node, 'train') for node in grid.get_node_ids()], timeout=9)\n"
            "    emul.schemes.flower.report(accuracy=n / 10)")
    assert [row["accuracy"] for row in run(write_app(tmp_path, body)).rounds] == [0.1, 0.2]


def test_the_scenarios_task_may_say_what_the_model_is_worth() -> None:
    """The app of the EXAMPLE trains the scenario's model: its accuracy is then that of FedAvg beside it."""
    entry = {"server": "emul.schemes.flower.example:server", "client": "emul.schemes.flower.example:client",
             "evaluate": "task"}
    accuracy = [row["accuracy"] for row in run_text(scenario(entry)).rounds]
    plain = run_text(scenario().replace("schemes:\n", "schemes: [fedavg]"))
    assert accuracy == pytest.approx([row["accuracy"] for row in plain.rounds], abs=0.02)
    assert accuracy[-1] > 0.25


def test_several_apps_run_beside_schemes_of_emul(tmp_path: Path) -> None:
    text = scenario({"app": str(write_app(tmp_path / "a")), "label": "one"},
                    {"app": str(write_app(tmp_path / "b", train="time.sleep(1)")), "label": "two"}) + "  - fedavg\n"
    results = engine.run(loads(text), workers=0, out=tmp_path / "runs")
    assert [(r.scheme, r.error, r.violations) for r in results] == [
        ("one", None, ()), ("two", None, ()), ("fedavg", None, ())]
    one, two, _ = (r.summary for r in results)
    assert one is not None
    assert two is not None
    assert two["virtual_seconds"] == pytest.approx(one["virtual_seconds"] + 3)


# --- determinism ----------------------------------------------------------------------------------------------------

def test_digests_are_equal_for_any_number_of_workers_under_loss_and_when_replayed(
        tmp_path: Path, pools: list[Workers]) -> None:
    """Acceptance 1 of Flower apps. The clients draw from all global generators."""
    text = scenario({"app": str(write_app(tmp_path / "app")), "timeout": "1 s"})
    results = [engine.run(loads(text, sets=[LOSSY]), workers=pool, out=tmp_path / "runs")[0]
               for pool in (0, 0, *pools[:2])]
    assert [r.error for r in results] == [None] * 4
    summaries = [r.summary for r in results if r.summary is not None]
    assert len({(s["digest"], s["digest_model"]) for s in summaries}) == 1
    assert summaries[0]["messages_lost"] > 0
    directory = results[0].directory
    assert directory is not None
    assert engine.replay(directory, workers=pools[1]) == summaries[0]["digest"]


def test_another_seed_draws_other_clients_and_other_numbers(tmp_path: Path) -> None:
    folder = write_app(tmp_path)
    assert run(folder).summary["digest_model"] != run(folder, "seed=8").summary["digest_model"]


def test_an_app_leaves_the_global_generators_as_they_were(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    run(write_app(tmp_path, "import torch\ntorch.rand(5)"))
    assert torch.equal(torch.get_rng_state(), before)


def test_modules_of_an_app_are_new_in_every_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = SERVER + "\ncount = []\n"
    folder = write_app(tmp_path, "count.append(1)\nprint([len(count)])", server=server)
    run(folder)
    run(folder)
    assert told(capfd) == [[1], [1]]


# --- bytes ----------------------------------------------------------------------------------------------------------

def test_bytes_over_links_are_those_of_the_messages_times_their_hops(tmp_path: Path) -> None:
    """Acceptance 5. On a tree every message takes two links: 16 bytes of envelope a copy, on each."""
    tree = "topology={generator: tree, branching: 2, height: 2, roles: {server: [n1], client: {rule: leaves}}}"
    ran = run(write_app(tmp_path), tree)
    sent = sum(sum(sizes) + 16 * len(sizes) for sizes in ran.payloads.values())
    assert ran.summary["bytes_total"] == 2 * sent


def test_what_crosses_the_links_is_what_flower_serialises(tmp_path: Path) -> None:
    """Its message with all its metadata, but for what is the same to everybody, and some thirty bytes of emul's own."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
    from flwr.common.serde import recorddict_to_proto

    content = RecordDict({"arrays": ArrayRecord({"0": Array(np.zeros(4))}),
                          "config": ConfigRecord({"server-round": 1})})
    plain = len(recorddict_to_proto(content).SerializeToString())
    train = run(write_app(tmp_path)).payloads["Train"]
    assert all(plain + 30 < size < plain + 130 for size in train)


def test_an_app_names_the_phase_that_its_bytes_are_counted_under(tmp_path: Path) -> None:
    body = ("config = ConfigRecord({'emul.phase': 'warm'})\n"
            "content = RecordDict({'arrays': ArrayRecord([np.zeros(4)]), 'config': config})\n"
            "grid.send_and_receive([Message(content, node, 'train') for node in grid.get_node_ids()], timeout=9)")
    ran = run(write_app(tmp_path, body))
    assert {name: len(sizes) for name, sizes in ran.payloads.items()} == {"warm": 4, "warmReply": 4}


def test_an_action_of_the_app_is_counted_under_its_name(tmp_path: Path) -> None:
    body = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
            "print([m.has_error() for m in grid.send_and_receive([Message(content, 2, 'train.twice')], timeout=9)])")
    ran = run(write_app(tmp_path, body))
    assert sorted(ran.payloads) == ["Train.twice", "Train.twiceReply"]


def test_one_record_for_many_nodes_is_encoded_once(tmp_path: Path) -> None:
    ran = run(write_app(tmp_path))
    sends = Counter((row[2], row[5]) for row in ran.rows if row[0] == R.SEND and row[5] == "Train")
    assert sends == {(0, "Train"): 12}
    first = [row[1] for row in ran.rows if row[0] == R.SEND and row[5] == "Train"][:4]
    assert len(set(first)) == 1


# --- time -----------------------------------------------------------------------------------------------------------

def test_everything_that_an_app_reads_time_from_is_virtual(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = ("import json\nt = time.time(), time.monotonic(), time.perf_counter(), time.time_ns()\ntime.sleep(1000)\n"
            "m = Message(RecordDict(), 2, 'query')\n"
            "print(json.dumps([time.time() - t[0], time.monotonic() - t[1], time.perf_counter() - t[2],"
            " (time.time_ns() - t[3]) / 1e9, m.metadata.created_at - t[0]]))")
    ran = run(write_app(tmp_path, body))
    assert told(capfd) == [[1000.0] * 5]
    assert ran.summary["virtual_seconds"] == 1000


def test_sleep_of_a_client_app_delays_its_reply(tmp_path: Path) -> None:
    plain = run(write_app(tmp_path / "a"))
    slow = run(write_app(tmp_path / "b", train="time.sleep(2 if context.node_id == 3 else 0)"))
    assert slow.summary["virtual_seconds"] == pytest.approx(plain.summary["virtual_seconds"] + 6)


def test_replies_come_in_the_order_of_their_arrival(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
            "replies = grid.send_and_receive([Message(content, node, 'train') for node in (2, 3, 4, 5)])\n"
            "print([m.metadata.src_node_id for m in replies])")
    run(write_app(tmp_path, body, train="time.sleep({2: 3, 3: 1, 4: 2, 5: 0}[context.node_id])"))
    assert told(capfd) == [[5, 3, 4, 2]]


def test_a_batch_waits_for_its_timeout_in_virtual_time_and_no_longer(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\nt = time.time()\n"
            "replies = grid.send_and_receive([Message(content, n, 'train') for n in (2, 3, 4, 5)], timeout=1.5)\n"
            "print([len(replies), time.time() - t])")
    run(write_app(tmp_path, body, train="time.sleep(context.node_id - 2)"))
    assert told(capfd) == [[2, 1.5]]


def test_an_app_that_polls_sees_replies_when_they_have_come(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And one whose round is over all the same."""
    body = ("import json\nseen, t = [], time.time()\n"
            "def push(n, node):\n"
            "    config = ConfigRecord({'server-round': n})\n"
            "    content = RecordDict({'arrays': ArrayRecord([np.zeros(4)]), 'config': config})\n"
            "    return grid.push_messages([Message(content, node, 'train')])\n"
            "ids = {*push(1, 2), *push(1, 4), *push(2, 3)}\n"
            "while ids:\n"
            "    for m in grid.pull_messages(ids):\n"
            "        ids.remove(m.metadata.reply_to_message_id)\n"
            "        seen.append([m.metadata.src_node_id, time.time() - t])\n"
            "    time.sleep(1)\n"
            "print(json.dumps(seen))")
    ran = run(write_app(tmp_path, body, train="time.sleep(context.node_id - 1.5)"))
    assert told(capfd) == [[[2, 1.0], [3, 2.0], [4, 3.0]]]
    assert ran.summary["rounds"] == 2


def test_who_pulls_again_and_again_without_sleep_waits_for_the_next_arrival(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = ("import json\ncontent = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
            "t, pulls, got = time.time(), 0, []\n"
            "ids = grid.push_messages([Message(content, node, 'train') for node in (2, 3)])\n"
            "while len(got) < 2:\n    got += grid.pull_messages(ids)\n    pulls += 1\n"
            "print(json.dumps([pulls < 10, round(time.time() - t, 3)]))")
    run(write_app(tmp_path, body, train="time.sleep(context.node_id)"))
    assert told(capfd) == [[True, 3.04]]


ALL_LOST = "links[0].outage={model: bernoulli, p: 1, per: message}"


def test_a_message_with_a_ttl_of_its_own_becomes_an_error_when_it_expires(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As Flower has it; code 3: the message is not available."""
    body = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\nt = time.time()\n"
            "reply, = grid.send_and_receive([Message(content, 2, 'train', ttl=5)])\n"
            "print([reply.error.code, time.time() - t])")
    run(write_app(tmp_path, body), ALL_LOST)
    assert told(capfd) == [[3, 5.0]]


def test_who_waits_for_lost_messages_without_a_timeout_is_told_what_to_do(tmp_path: Path) -> None:
    body = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
            "grid.send_and_receive([Message(content, 2, 'train', ttl=5), Message(content, 3, 'train')])")
    with pytest.raises(EmulError, match=r"LostMessages: no reply to 1 of 2 messages \(train, to client2\) within their "
                                        r"TTL of 43200 s: .* Give the strategy or workflow a timeout"):
        run(write_app(tmp_path, body), ALL_LOST)


def test_a_transport_that_repeats_what_is_lost_needs_no_timeout(tmp_path: Path) -> None:
    body = BODY.replace(", timeout=60", ", timeout=None")
    ran = run(write_app(tmp_path, body), LOSSY, "links[0].transport={arq: selective_repeat}")
    assert [row["received"] for row in ran.rounds] == [8, 8, 8]


def test_the_scenario_shortens_the_timeouts_of_an_app(tmp_path: Path) -> None:
    assert run(write_app(tmp_path), ALL_LOST, timeout="2 s").summary["virtual_seconds"] == 12


# --- who is there ---------------------------------------------------------------------------------------------------

AWAY = "faults=[{node: client2, leave: true, at: 1 ms, for: 10 s}]"


@pytest.mark.parametrize(("connected", "count", "within"), [("asked", [3, 4, 4], (11, 13)),
                                                            ("always", [3, 3, 3], (12, 13))])
def test_an_app_may_wait_for_nodes_that_are_away(connected: str, count: list[int], within: tuple[int, int],
                                                 tmp_path: Path) -> None:
    """`sample_nodes` sleeps until there are enough; nodes that are asked say so themselves. FedAvg has counted how many
    it wants before: three."""
    body = BODY.replace("FedAvg()", "FedAvg(fraction_evaluate=0, min_available_nodes=4)").replace("60", "4")
    ran = run(write_app(tmp_path, body), AWAY, connected=connected)
    assert [row["received"] for row in ran.rounds] == count
    assert within[0] <= ran.summary["virtual_seconds"] < within[1]


def test_an_app_that_waits_for_more_nodes_than_there_are_is_told_so(tmp_path: Path) -> None:
    body = BODY.replace("FedAvg()", "FedAvg(min_available_nodes=5)")
    with pytest.raises(RunError, match=r"the server app has asked 10,000 times which nodes there are and sent nothing: "
                                       r"it may be waiting for more than the 4 that the scenario has"):
        run(write_app(tmp_path, body))


# --- what goes wrong ------------------------------------------------------------------------------------------------

def test_an_exception_of_a_client_app_is_a_reply_with_an_error(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ran = run(write_app(tmp_path, train="assert context.node_id != 3, 'no data'"))
    assert [(row["received"], row["client_errors"]) for row in ran.rounds] == [(8, 1)] * 3
    assert [r.getMessage() for r in caplog.records] == ["ClientApp of node 3: <class 'AssertionError'>:<'no data'>"]


def test_a_client_app_that_ends_its_process_is_a_reply_with_an_error(tmp_path: Path) -> None:
    """And not the end of the run."""
    ran = run(write_app(tmp_path, train="import sys\nif context.node_id == 3:\n    sys.exit(3)"))
    assert [(row["received"], row["client_errors"]) for row in ran.rounds] == [(8, 1)] * 3


def test_a_client_app_that_ends_while_it_is_imported_ends_the_run_with_its_name(tmp_path: Path) -> None:
    client = "import sys\nsys.exit('no GPU')"
    with pytest.raises(RunError, match=r"tiny.client_app has ended by SystemExit\('no GPU'\) while it was imported"):
        run(write_app(tmp_path, client=client))


FIRST = r"all 4 replies tell of an error; the first: client1: <class 'ValueError'>:<'no data'>"
INDEX = ("content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
         "replies = grid.send_and_receive([Message(content, n, 'train') for n in (2, 3, 4, 5)], timeout=2)\n"
         "[m for m in replies if m.has_content()][0]")


def test_a_round_in_which_every_client_app_fails_has_failed_and_says_why(tmp_path: Path) -> None:
    """The strategy goes on with the model that it has, and clients that cannot train evaluate it."""
    ran = run(write_app(tmp_path, train="raise ValueError('no data')"))
    assert [(row["completed"], row["received"], row["client_errors"]) for row in ran.rounds] == [(False, 8, 4)] * 3
    assert {row[4] for row in ran.rows if row[0] == R.LEAVE and row[2] == 0} == {f"TooFewClients: {FIRST}"}


def test_where_a_server_app_fails_since_every_client_has_the_cause_is_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(RunError) as raised:
        run(write_app(tmp_path, INDEX, "raise ValueError('no data')"))
    *_, error, cause = str(raised.value).splitlines()
    assert (error, cause) == ("IndexError: list index out of range", FIRST)


def test_where_a_server_app_fails_since_nobody_has_answered_the_last_line_names_them(tmp_path: Path) -> None:
    with pytest.raises(RunError) as raised:
        run(write_app(tmp_path, INDEX), ALL_LOST)
    assert str(raised.value).splitlines()[-1] == (
        "none of 4 messages was answered within 2 s: client1, client2, client3, client4")


def test_an_exception_of_a_server_app_ends_the_run_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)server_app.py\", line 12, in main\n    1 / 0\n.*ZeroDivisionError"):
        run(write_app(tmp_path, "1 / 0"))


def test_a_server_app_that_hangs_is_found(tmp_path: Path) -> None:
    """In a native call that no signal and no exception reaches."""
    body = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire(timeout=30)"
    with pytest.raises(RunError, match=r"(?s)not come back for 0.5 s; it is at\n.*in main\n    lock.acquire\(time"):
        run(write_app(tmp_path, body), stuck="500 ms")


def test_a_second_thread_of_the_app_cannot_ask_the_grid(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = ("from concurrent.futures import ThreadPoolExecutor\n"
            "content = RecordDict({'arrays': ArrayRecord([np.zeros(4)])})\n"
            "with ThreadPoolExecutor(1) as pool:\n"
            "    error = pool.submit(grid.send_and_receive, [Message(content, 2, 'train')]).exception()\n"
            "print(['second thread of the server app' in str(error) and 1])")
    run(write_app(tmp_path, body))
    assert told(capfd) == [[1]]


def test_an_app_that_the_run_has_no_more_rounds_for_ends_where_it_waits(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = f"try:\n    {BODY}\nfinally:\n    print([1])"
    ran = run(write_app(tmp_path, body), "stop.rounds=2")
    assert ran.summary["rounds"] == 2
    assert told(capfd) == [[1]]


def test_a_server_that_crashes_and_returns_begins_its_app_anew(tmp_path: Path) -> None:
    ran = run(write_app(tmp_path), "faults=[{node: server, crash: true, at: 50 ms, for: 1 s}]", "stop.rounds=9")
    assert ran.summary["virtual_seconds"] > 1
    assert [row["accuracy"] for row in ran.rounds if row["completed"]][-3:] == [1.5, 3.0, 4.5]


@pytest.mark.parametrize(("entry", "said"), [
    ({"app": "/nowhere"}, r'app = "/nowhere" +expected a folder with a pyproject.toml, as `flwr new` makes it'),
    ({"server": "a:b"}, r'client +missing; expected an `app`, or a client such as "package.module:app"'),
    ({"server": "a", "client": "b:c"}, r'server = "a" +expected package.module:attribute'),
    ({"app": "APP", "config": {"rounds": 3}},
     r"config.rounds +the app has no such key; its \[tool.flwr.app.config\] has num-server-rounds, solver.rate"),
    ({"app": "APP", "server": "tiny.nothing:app"}, r'server = "tiny.nothing:app" +there is no module tiny.nothing in'),
    ({"server": "nothing.here:a", "client": "b:c"}, r'server = "nothing.here:a" +there is no module nothing.here$'),
    ({"app": "APP", "timeout": "0 s"}, r"timeout = 0.0 s +expected a time above 0, or none")])
def test_what_is_wrong_with_an_app_is_said_before_the_run(entry: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = str(write_app(tmp_path))
    with pytest.raises(EmulError, match=said):
        loads(scenario({key: folder if value == "APP" else value for key, value in entry.items()}))


@pytest.mark.parametrize(("server", "said"), [
    ("tiny.server_app:nothing", r'server = "tiny.server_app:nothing": tiny.server_app has no nothing'),
    ("tiny.client_app:app", r"expected a ServerApp, found ClientApp")])
def test_a_component_that_is_not_there_ends_the_run_with_its_name(server: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=said):
        run(write_app(tmp_path), server=server)


def test_the_example_of_the_scheme_needs_no_folder() -> None:
    assert run_text(flower.EXAMPLE).summary["rounds"] == 3


def test_apps_that_stand_still_in_the_middle_of_a_fused_training_leave_the_clock_alone() -> None:
    """The client app's `local_update` waits for those of others, whose apps run meanwhile in the same thread."""
    alone, fused = (run_text(flower.EXAMPLE, "links[1].outage.p=0", f"fuse={how}") for how in (
        "off", "{clients: 3, lanes: 1}"))
    assert running() is None
    assert [row["loss"] for row in fused.rounds] == pytest.approx([row["loss"] for row in alone.rounds], rel=1e-4)
