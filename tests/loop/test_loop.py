"""`emul.Clock`: what its calls mean, and what it says when it is asked for what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

import emul
from emul.cli import main
from emul.engine import replay
from emul.loop import LoopError
from emul.scenario.devices import read_devices, step_time

NETWORK: dict[str, Any] = {"emul": 1, "name": "net", "seed": 7, "topology": {"generator": "star", "clients": 4},
                           "links": [{"match": "*", "latency": "20 ms", "bandwidth": "8 Mbit/s"}]}
RING: dict[str, Any] = {**NETWORK, "name": "ring", "topology": {"generator": "ring", "peers": 4}}
W = np.zeros(1000, np.float32)


def network(**more: Any) -> dict[str, Any]:
    return {**NETWORK, **more}


def clock_on(out: Path, **more: Any) -> emul.Clock:
    return emul.Clock(network(**more), out=out)


def one_round(clock: emul.Clock, takes: float = 0.1, **gather: Any) -> list[str]:
    with clock.round() as now:
        for c in clock.clients:
            with now.client(c, down=W) as at:
                at.takes(takes)
                at.up(W)
        return now.gather(**gather)


# --- what a block costs ---------------------------------------------------------------------------------------------

def test_a_stated_time_is_divided_by_the_speed_of_the_node(tmp_path: Path) -> None:
    clock = clock_on(tmp_path, nodes=[{"match": "client3", "speed": 0.25}])
    one_round(clock, takes=0.1)
    done = clock.finish().computations
    cost = dict(zip(done["name"][done.label == "train"], done.cost_ns[done.label == "train"], strict=True))
    assert cost == {"client1": 10**8, "client2": 10**8, "client3": 4 * 10**8, "client4": 10**8}


def test_a_block_without_a_time_costs_its_own_cpu_time_and_not_that_of_emul(tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    large = np.zeros(10**7, np.float32)
    with clock.round() as now:
        with now.client("client1", down=large) as one:
            sum(range(10**6))
            one.up(large + 0)
        with now.client("client2", down=large) as other:
            other.up(large)
        now.gather()
    done = clock.finish().computations
    first, second = done[done.label == "train"].cost_ns.tolist()
    assert first > 2e6 > second, "the encoding of 40 MB is not the client's"
    assert [first, second] == [one.cpu_ns, other.cpu_ns], "nothing of the roles is added"


def test_the_file_says_what_a_computation_costs_and_a_stated_time_goes_before(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text('{"emul_profile": 1, "costs": {"loop/client/train": [0.5, 0], '
                                         '"loop/client/tune": [0.25, 0]}}')
    clock = clock_on(tmp_path, compute={"mode": "profile", "file": str(tmp_path / "costs.json")})
    with clock.round() as now:
        with now.client("client1"):
            sum(range(10**6))
        with now.client("client2", label="tune"):
            pass
        with now.client("client3") as at:
            at.takes(1)
        now.gather()
    done = clock.finish().computations
    assert done[done.label != "loop"].cost_ns.tolist() == [5 * 10**8, 25 * 10**7, 10**9]
    assert done[done.label != "loop"].declared.tolist() == [False, False, True]


BOARDS = "device,kind,idle_w,compute_w,send_w,receive_w,flops,bandwidth,efficiency,use,launch_s\n" \
    "slow,board,1,3,0,0,1e9,1e9,0.5,0.25,1e-5\nfast,board,2,8,0,0,1e11,2e10,0.5,0.5,1e-6\n"


def test_a_counted_step_takes_what_the_device_of_its_client_takes(tmp_path: Path) -> None:
    (tmp_path / "boards.csv").write_text(BOARDS)
    devices = {"table": str(tmp_path / "boards.csv"),
               "nodes": [{"match": "client*", "device": "slow"}, {"match": "client2", "device": "fast"}]}
    clock = clock_on(tmp_path, devices=devices, compute={"mode": "model"}, nodes=[{"match": "client3", "speed": 2},
                                                                                  {"match": "client4", "flops": 1e9}])
    model = torch.nn.Linear(500, 200)

    def step() -> None:
        model(torch.ones(8, 500)).sum().backward()
    count = clock.count(step)
    assert count.flops == 2 * 2 * 8 * 500 * 200, "a product forward, and one for the gradient of the weights"
    with clock.round() as now:
        for c in clock.clients:
            with now.client(c) as at:
                at.takes(count, steps=3)
        now.gather()
    done = clock.finish().computations
    slow, fast = (step_time(read_devices(tmp_path / "boards.csv")[name], count).seconds for name in ("slow", "fast"))
    assert done[done.label == "train"].set_index("name").cost_ns.to_dict() == {
        name: round(3e9 * seconds) for name, seconds in (
            ("client1", slow), ("client2", fast), ("client3", slow / 2), ("client4", count.flops / 1e9))}


@pytest.mark.parametrize(("file", "said"), [
    ({"compute": {"mode": "model"}}, "at.takes(): client1 has no device: expected such as devices:"),
    ({"devices": {"nodes": [{"match": "*", "device": "laptop"}]}},
     "client1 is a laptop, of which the table says no flops"),
    ({"devices": {"table": "quick.csv", "nodes": [{"match": "*", "device": "quick"}]}},
     "seconds by a device need compute: {mode: model}"),
])
def test_a_counted_step_needs_to_know_how_fast_its_client_is(
        file: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quick.csv").write_text("device,kind,speed,flops,bandwidth,efficiency,use,launch_s\nquick,board,2,1,1,1,1,0\n")
    clock = clock_on(tmp_path, **file)
    with pytest.raises(LoopError) as e, clock.round() as now, now.client("client1") as at:
        at.takes(clock.count(lambda: torch.ones(2, 2) @ torch.ones(2, 2)))
    assert said in str(e.value)
    if "compute" in file:
        with pytest.raises(LoopError, match=r"client1: compute: .mode: model. has no price of this block: "), \
                clock.round() as now, now.client("client1"):
            pass


# --- sizes ----------------------------------------------------------------------------------------------------------

def test_arrays_are_encoded_and_numbers_are_declared_and_shown_apart(tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    with clock.round() as now:
        with now.client("client1", down={"w": torch.zeros(10, 25), "n": 3}) as at:
            at.up(50_000)
        now.gather()
    sent = clock.finish().messages
    assert 1000 < sent.payload_bytes[0] < 1120
    assert sent.declared_bytes[0] == 0
    assert 50_000 < sent.payload_bytes[1] < 50_040
    assert sent.declared_bytes[1] == 50_000


@pytest.mark.parametrize(("payload", "said"), [
    (1.5, "at.up(): float: expected arrays"), ("model", "at.up(): str: expected arrays"),
    (True, "at.up(): bool: expected"),
    (-1, "at.up(): -1 bytes: expected 0"), (torch.nn.Linear(2, 2), "at.up(): Linear is a model: give its arrays"),
    ([np.array(["a"])], "an array of dtype <U1 cannot be sent")])
def test_what_has_no_size_is_refused(payload: object, said: str, tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    with pytest.raises(LoopError) as e, clock.round() as now, now.client("client1") as at:
        at.up(payload)
    assert said in str(e.value)


# --- waits ----------------------------------------------------------------------------------------------------------

def test_gather_ends_with_all_with_some_or_with_the_deadline_and_the_order_is_that_of_arrival(tmp_path: Path) -> None:
    speeds = {"client1": 0.5, "client2": 2, "client3": 0.1}
    clock = clock_on(tmp_path, nodes=[{"match": name, "speed": speed} for name, speed in speeds.items()])
    assert one_round(clock) == ["client2", "client4", "client1", "client3"]
    begin = clock.now_s
    assert one_round(clock, first=2) == ["client2", "client4"]
    assert one_round(clock, deadline=0.3) == ["client2", "client4", "client1"]
    assert begin > 1
    run = clock.finish()
    assert run.rounds["round"].tolist() == [1, 2, 3]


def test_late_updates_come_with_their_round_to_an_asynchronous_loop(tmp_path: Path) -> None:
    clock = emul.Clock(network(nodes=[{"match": "client3", "speed": 0.1}]), mode="asynchronous", out=tmp_path)
    heard = one_round(clock, deadline=0.3)
    assert (heard, clock.late()) == (["client1", "client2", "client4"], [])
    with clock.round() as now:
        for c in ("client1", "client2"):
            now.send(c, W, up=W, takes=0.9)
        assert now.gather(deadline=1) == ["client1", "client2"]
    (late,) = clock.late()
    assert (late.client, late.round) == ("client3", 1)
    assert clock.next(timeout=5) is None, "nobody has work"
    clock.finish()


def test_an_update_that_comes_after_its_round_is_late_in_a_synchronous_loop(tmp_path: Path) -> None:
    clock = clock_on(tmp_path, nodes=[{"match": "client3", "speed": 0.5}])
    assert one_round(clock, deadline=0.2) == ["client1", "client2", "client4"]
    assert one_round(clock, takes=0.01, deadline=0.5) == ["client1", "client2", "client4", "client3"]
    run = clock.finish()
    assert run.messages[run.messages.fate == "late"].source_name.tolist() == ["client3"]


# --- peers ----------------------------------------------------------------------------------------------------------

def both_ways(names: list[str]) -> list[tuple[str, str]]:
    return [(a, b) for k, a in enumerate(names) for b in (names[k - 1], names[(k + 1) % len(names)])]


def test_a_step_of_peers_ends_at_a_barrier(tmp_path: Path) -> None:
    clock = emul.Clock(RING, mode="peers", out=tmp_path)
    for slow in clock.clients[:2]:
        with clock.round() as now:
            with now.client(slow) as at:
                at.takes(1)
            heard = now.exchange(both_ways(clock.clients), W)
        assert {name: sorted(others) for name, others in heard.items()} == {
            name: sorted(b for b, a in both_ways(clock.clients) if a == name) for name in clock.clients}
    clock.report(accuracy=0.5)
    run = clock.finish()
    entered = run.rounds[run.rounds["round"] == 2].entered_ns
    assert (entered > 10**9).all(), "all know of the slowest, who is through after a second"
    assert entered.max() - entered.min() <= 2 * 20 * 10**6, "they know of it a latency or two later"
    assert set(run.messages.type) == {"Exchanged"}, "the barrier costs no bytes"
    assert run.accuracy == 0.5


def test_a_lost_message_of_a_peer_is_not_heard_and_all_go_on(tmp_path: Path) -> None:
    links = [*NETWORK["links"], {"match": "peer1->peer2", "outage": {"model": "bernoulli", "p": 1}}]
    clock = emul.Clock({**RING, "links": links}, mode="peers", out=tmp_path)
    for _ in range(2):
        with clock.round() as now:
            heard = now.exchange(both_ways(clock.clients), {name: W for name in clock.clients})
        assert heard["peer2"] == ["peer3"]
        assert len(heard["peer1"]) == 2
    clock.finish()


# --- faults ---------------------------------------------------------------------------------------------------------

def test_who_is_away_is_not_available_and_what_is_sent_to_it_is_lost(tmp_path: Path) -> None:
    clock = clock_on(tmp_path, faults=[{"at": "100 ms", "node": "client2", "leave": True, "for": "1 s"},
                                       {"at": "100 ms", "node": "client3", "crash": True}])
    assert clock.available() == clock.clients
    assert one_round(clock) == ["client1", "client4"]
    assert clock.available() == ["client1", "client4"]
    assert one_round(clock, takes=1, deadline=2) == ["client1", "client4"]
    assert clock.available() == ["client1", "client2", "client4"]
    clock.finish()


def test_a_client_whose_battery_is_empty_is_not_available(tmp_path: Path) -> None:
    (tmp_path / "boards.csv").write_text(BOARDS)
    devices = {"table": str(tmp_path / "boards.csv"),
               "nodes": [{"match": "client*", "device": "slow"},
                         {"match": "client2", "device": "slow", "battery": 2.5}]}
    clock = clock_on(tmp_path, devices=devices, compute={"mode": "model"})
    assert one_round(clock, takes=0.5, deadline=2) == clock.clients, "1.5 J, and 0.1 J while it waits"
    assert clock.available() == clock.clients
    assert "client2" not in one_round(clock, takes=0.5, deadline=2)
    assert clock.available() == ["client1", "client3", "client4"]
    clock.finish()


def test_another_loop_meets_the_same_losses(tmp_path: Path) -> None:
    outage = {"model": "bernoulli", "p": 0.5, "per": "round"}
    lossy = [*NETWORK["links"], {"match": "client*->server", "outage": outage}]
    found = []
    for takes in (0.1, 0.7):
        clock = clock_on(tmp_path, links=lossy)
        found.append([sorted(one_round(clock, takes=takes)) for _ in range(6)])
        clock.finish()
    assert found[0] == found[1]
    assert len({len(heard) for heard in found[0]}) > 1


# --- afterwards -----------------------------------------------------------------------------------------------------

def lossy_run(tmp_path: Path, **more: Any) -> emul.Run:
    clock = emul.Clock(network(links=[*NETWORK["links"], {"match": "client1->server", "outage": {
        "model": "bernoulli", "p": 0.5}}]), out=tmp_path, **more)
    for r in range(4):
        one_round(clock, deadline=1)
        clock.report(accuracy=r / 10, drift=2)
    return clock.finish()


def test_a_run_has_tables_an_accuracy_and_can_be_replayed(tmp_path: Path) -> None:
    run = lossy_run(tmp_path, label="mine")
    assert (run.scheme, run.accuracy, run.summary["accuracy_of"]) == ("mine", 0.3, "loop")
    assert run.rounds.accuracy.tolist() == [0.0, 0.1, 0.2, 0.3]
    assert run.rounds.drift.tolist() == [2] * 4
    assert run.report(tmp_path / "report.html").stat().st_size > 10_000
    assert replay(run.path) == run.digest


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """(exit code, what is printed) of a command."""
    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["emul", *map(str, words)])
        with pytest.raises(SystemExit) as e:
            main()
        said = capsys.readouterr()
        return int(e.value.code or 0), said.out + said.err
    return run


def file_of(network: dict[str, Any], path: Path) -> Path:
    YAML().dump(network, path)
    return path


def test_what_if_takes_the_loops_decisions_to_another_network(
        command: Command, tmp_path: Path) -> None:
    run = lossy_run(tmp_path / "before")
    file = file_of(network(links=[*NETWORK["links"], {"match": "client1->server", "outage": {
        "model": "bernoulli", "p": 0.5}}]), tmp_path / "net.yaml")
    code, said = command("run", file, "--what-if", run.path, "--set", 'links[0].bandwidth="4 Mbit/s"', "--quiet",
                         "--out", tmp_path / "after")
    assert code == 0
    assert "decides here as it did there" in said
    again = emul.load_run(next((tmp_path / "after").iterdir()))
    assert again.accuracy == run.accuracy
    arrived = [one.messages[one.messages.fate == "delivered"].arrived_ns.tolist() for one in (run, again)]
    assert len(arrived[0]) == len(arrived[1])
    assert all(b > a for a, b in zip(*arrived, strict=True))


def test_what_if_refuses_a_decision_that_would_differ_and_names_it(
        command: Command, tmp_path: Path) -> None:
    run = lossy_run(tmp_path / "before")
    code, said = command("run", file_of(NETWORK, tmp_path / "net.yaml"), "--what-if", run.path, "--quiet",
                         "--out", tmp_path / "after")
    assert code == 1
    assert "the loop has heard client2, client3, client4, and on this network it hears client1, client2" in said
    code, said = command("run", file_of(network(topology={"generator": "star", "clients": 3}), tmp_path / "net.yaml"),
                         "--what-if", run.path, "--quiet", "--out", tmp_path / "after")
    assert code == 2
    assert "the loop's nodes are server, client1, client2, client3, client4" in said


def test_runs_of_two_loops_are_compared_seed_by_seed(command: Command, tmp_path: Path) -> None:
    runs = []
    for label, size in (("small", 1000), ("large", 100_000)):
        for seed in (1, 2):
            clock = emul.Clock(NETWORK, label=label, seed=seed, out=tmp_path)
            for r in range(3):
                with clock.round() as now:
                    for c in clock.clients:
                        now.send(c, size, up=size, takes=0.1 * seed)
                    now.gather(deadline=1)
                clock.report(accuracy=r / 10)
            runs.append(clock.finish().path)
    code, said = command("compare", *runs, "--target", "0.2", "--no-report", "--out", tmp_path / "study")
    assert code == 0, said
    rows = emul.load_study(tmp_path / "study").differences
    time, = rows[rows.metric == "time_to_target"].to_dict("records")
    one_way = 8 * 99_002 / 8e6                  # seconds of what the larger message has more, and of its size's digits
    assert (time["scheme"], time["baseline"], time["n_seeds"]) in {("small", "large", 2), ("large", "small", 2)}
    assert abs(time["mean"]) == pytest.approx(3 * 2 * one_way, rel=1e-4)
    code, said = command("compare", runs[0], runs[1], "--no-report", "--out", tmp_path / "other")
    assert code == 2
    assert "expected two labels or more to compare" in said


def test_the_draws_of_one_loop_can_be_those_of_another(tmp_path: Path) -> None:
    first = lossy_run(tmp_path)
    clock = clock_on(tmp_path, seed=99, network={"replay": str(first.path)})
    heard = [sorted(one_round(clock, deadline=1)) for _ in range(4)]
    lost = first.messages[first.messages.fate == "lost"]["round"].tolist()
    assert [number for number, names in enumerate(heard, 1) if "client1" not in names] == lost != []
    clock.finish()


def test_a_network_for_a_loop_is_checked_and_explained_and_cannot_run_alone(
        command: Command, tmp_path: Path) -> None:
    file = file_of(NETWORK, tmp_path / "net.yaml")
    assert command("check", file) == (0, f"{file}: ok; a network for a loop (emul.Clock)\n")
    code, said = command("explain", file)
    assert code == 0
    assert "Routes" in said
    assert "scheme" not in said
    code, said = command("run", file, "--quiet", "--out", tmp_path)
    assert code == 1
    assert "emul.Clock in a program runs one" in said
    wrong = file_of({**NETWORK, "schemes": ["fedavg"], "stop": {"rounds": 1}, "compute": {"mode": "zero"},
                     "task": {}}, file)
    assert "task.data" in command("check", wrong)[1]
    assert command("check", file_of({**NETWORK, "links": [{"match": "*", "latenzy": "1 s"}]}, file))[0] == 2


# --- errors ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("call", "said"), [
    (lambda clock, now: now.client("client11"), "unknown client 'client11': expected one of clock.clients; did"),
    (lambda clock, now: now.client(3), "which are names such as 'client1'"),
    (lambda clock, now: clock.round(), "round 1 has not ended"),
    (lambda clock, now: clock.finish(), "round 1 has not ended"),
    (lambda clock, now: clock.next(), 'clock.next() is of mode="asynchronous"'),
    (lambda clock, now: clock.late(), 'clock.late() is of mode="asynchronous"'),
    (lambda clock, now: now.exchange([]), 'now.exchange() is of mode="peers"'),
    (lambda clock, now: now.gather(first=0), "expected a number of clients"),
    (lambda clock, now: now.gather(deadline=-1), "deadline = -1: expected seconds"),
    (lambda clock, now: now.send("client1", takes=float("nan")), "at.takes() = nan: expected seconds"),
    (lambda clock, now: [now.send("client1"), now.send("client1")], "client1 has a block in round 1 already"),
    (lambda clock, now: clock.report(accuracy=[1]), "clock.report(accuracy=[1]): expected a number"),
    (lambda clock, now: clock.report(accuracy="90%"), "clock.report(accuracy='90%'): expected a number"),
    (lambda clock, now: now.send("client1"), "nobody has gathered its updates"),
    (lambda clock, now: [now.send("client1"), now.gather(), now.send("client2")], "round 1 has gathered"),
])
def test_a_mistake_is_said_in_words(call: Any, said: str, tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    with pytest.raises(LoopError) as e, clock.round() as now:
        call(clock, now)
    assert said in str(e.value)


def test_numbers_of_numpy_and_of_torch_are_numbers_and_zero_is_one(tmp_path: Path) -> None:
    clock = emul.Clock(NETWORK, seed=np.int64(0), out=tmp_path)                                 # type: ignore[arg-type]
    assert one_round(clock, takes=np.float32(0), first=np.int64(2)) == ["client1", "client2"]
    clock.report(accuracy=np.array(0.0), loss=torch.tensor(0.5), other=np.float32(0))
    with clock.round() as now:
        now.send("client1", down=np.int64(0), up=0, takes=0)
        assert now.gather(deadline=0) == []
    clock.report(accuracy=0)
    run = clock.finish()
    assert run.scenario.seed == 0
    assert run.rounds["accuracy"].tolist()[::len(run.rounds) - 1] == [0.0, 0.0]


def test_modes_and_peers_say_what_they_want(tmp_path: Path) -> None:
    with pytest.raises(LoopError, match='expected synchronous, asynchronous or peers; did you mean "synchronous"'):
        emul.Clock(NETWORK, mode="synchron")                # type: ignore[arg-type]
    clock = emul.Clock(RING, mode="peers", out=tmp_path)
    for call, said in ((lambda now: now.exchange([("peer1", "peer1")], W), "expected pairs"),
                       (lambda now: now.exchange([("peer1", "peer2")], {"peer3": W}), "payloads has nothing of it"),
                       (lambda now: now.client("peer1", down=W), "peers send by now.exchange"),
                       (lambda now: now.gather(), "needs a server"), (lambda now: now.server(), "needs a server"),
                       (lambda now: [now.exchange([]), now.exchange([])], "more steps between peers is a scheme")):
        with pytest.raises(LoopError, match=said), clock.round() as now:
            call(now)
    with pytest.raises(LoopError, match="needs deadline="):
        one_round(emul.Clock(NETWORK, mode="asynchronous", out=tmp_path))


def test_a_block_that_raises_abandons_its_round_and_the_loop_may_go_on(tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    with pytest.raises(ZeroDivisionError), clock.round() as now, now.client("client1", down=W) as at:
        at.takes(1 / 0)
    assert sorted(one_round(clock)) == clock.clients
    run = clock.finish()
    assert run.summary["rounds"] == 1
    assert run.summary["rounds_failed"] == 1
    assert "abandoned: ZeroDivisionError" in run.rounds.why[0]
    with pytest.raises(LoopError, match="the clock has finished: make another"):
        clock.round()


def test_a_fork_cannot_ask(tmp_path: Path) -> None:
    clock = clock_on(tmp_path)
    one_round(clock)
    child = os.fork()
    if not child:
        try:
            clock.round()
        except LoopError as error:
            os._exit(0 if "forked from the one that made the clock" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(one_round(clock)) == clock.clients, "its parent goes on"
    clock.finish()


def test_torchs_threads_stay_what_they_are(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    clock = clock_on(tmp_path)
    one_round(clock)
    assert torch.get_num_threads() == before
    clock.finish()


PROGRAM = """
import os, signal, sys
import numpy as np
import emul
clock = emul.Clock({network}, out={out!r})
for number in range(3):
    with clock.round() as now:
        for c in clock.clients:
            now.send(c, 1000, up=1000, takes=0.1)
        now.gather()
    if number == 1:
        {end}
"""


@pytest.mark.machine
@pytest.mark.parametrize(("end", "code"), [("os.kill(os.getpid(), signal.SIGINT)", -2), ("sys.exit(3)", 3)])
def test_an_interrupt_leaves_a_readable_run(
        end: str, code: int, command: Command, tmp_path: Path) -> None:
    program = PROGRAM.format(network=NETWORK, out=str(tmp_path), end=end)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode in (code, 130), ended.stderr
    with pytest.warns(emul.record.load.IncompleteRun):
        run = emul.load_run(next(tmp_path.iterdir()))
    assert (run.messages["round"] == 2).sum() == 8
    code, said = command("resume", run.path, "--quiet")
    assert code == 1
    assert "the record of the loop ends in round 2" in said
