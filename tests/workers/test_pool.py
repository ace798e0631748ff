"""A pool of real processes: what it computes, what it survives, how it ends."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import echo_scheme
import msgspec
import pytest
from digested import digests

from emul import engine
from emul.base.errors import RoleFailed, WorkerDied
from emul.base.files import remove_held_folder
from emul.base.rows import Row
from emul.record import rundir
from emul.record.journal import MemoryJournal, read
from emul.roles.events import Drop
from emul.scenario import Scenario, load, loads
from emul.testing import Shuffled
from emul.workers import patience
from emul.workers.pool import Workers
from emul.workers.process import Ending
from emul.workers.transport import Ipc
from emul.workers.twin import Twin

SKELETON = Path(__file__).resolve().parents[2] / "scenarios" / "skeleton.yaml"
ECHO = """
emul: 1
name: echo
seed: 3
topology: {generator: star_mesh, clients: 5}
links: [{match: "*", latency: 5 ms, bandwidth: 100 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: digits_cnn, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: echo_scheme%s}]
stop: {rounds: 4}
"""
PLUGINS = ["echo_scheme"]


def echo(*sets: str, **params: Any) -> Scenario:
    """The scenario of `echo_scheme`, without the learning task that this scheme has no use for."""
    text = ECHO % "".join(f", {k}: {v}" for k, v in params.items())
    return dataclasses.replace(loads(text, sets=sets, plugins=PLUGINS), task={})


def later(seconds: float, do: Callable[[], None]) -> list[float]:
    """Do it in so many seconds; the list holds when it was done."""
    done: list[float] = []

    def now() -> None:
        done.append(time.monotonic())
        do()
    timer = threading.Timer(seconds, now)
    timer.daemon = True
    timer.start()
    return done


# --- results ----------------------------------------------------------------------------------------------------------

def test_twin_and_any_number_of_workers_compute_the_same_run(pools: list[Workers]) -> None:
    scenario = load(SKELETON, sets=["stop.rounds=3"])
    with Twin() as twin:
        expected = digests(scenario, twin, [])
    assert [digests(scenario, pool, []) for pool in pools] == [expected] * 3


def test_a_pool_outlives_runs_and_keeps_nothing_of_them(pools: list[Workers], tmp_path: Path) -> None:
    one, other = echo(length=8), echo(length=5000)
    with Twin() as twin:
        first, second = digests(one, twin, PLUGINS), digests(other, twin, PLUGINS)
    assert first != second
    pool = pools[1]
    assert [digests(s, pool, PLUGINS) for s in (one, other, one, one)] == [first, second, first, first]
    results = [engine.run(one, workers=pool, out=tmp_path, plugins=PLUGINS)[0] for _ in range(2)]
    assert all(r.error is None and r.summary is not None for r in results)
    assert [r.summary["digest_journal"] for r in results if r.summary] == [first[0]] * 2
    assert [r.directory.name for r in results if r.directory] == ["echo-echo_scheme-1", "echo-echo_scheme-2"]


def test_payloads_of_several_megabytes_cross_between_workers(pools: list[Workers]) -> None:
    scenario = echo("stop.rounds=2", length=2_000_000)      # 8 MB each, 15 of them a round
    with Twin() as twin:
        expected = digests(scenario, twin, PLUGINS)
    assert digests(scenario, pools[2], PLUGINS) == expected


@pytest.mark.parametrize("workers", [1, 3])
def test_no_payload_stays_behind_when_every_message_was_read(workers: int) -> None:
    pool = Shuffled(workers, seed=4)
    digests(echo(), pool, PLUGINS)
    for core, posted in zip(pool._cores, pool._posted, strict=True):
        assert all(type(event) is Drop for event in posted)
        for event in posted:
            core.put(event)
        assert not core._payloads
    assert all(not outbox for outbox in pool._outboxes)


def test_no_payload_stays_behind_when_messages_are_lost() -> None:
    pool = Shuffled(3, seed=5)
    digests(load(SKELETON, sets=["stop.rounds=3", "links[1].outage.p=0.6"]), pool, [])
    for core, posted in zip(pool._cores, pool._posted, strict=True):
        for event in posted:
            core.put(event)
        assert not core._payloads
    assert all(not outbox for outbox in pool._outboxes)


# --- failures that a pool survives ------------------------------------------------------------------------------------

def test_an_exception_in_a_role_ends_the_run_with_its_traceback_and_not_the_pool(pools: list[Workers]) -> None:
    pool = pools[1]
    with Twin() as twin:
        expected = digests(echo(), twin, PLUGINS)
    for _ in range(3):
        with pytest.raises(RoleFailed) as error:
            digests(echo(fault="raise"), pool, PLUGINS)
        assert "client2" in str(error.value)
        assert "round 2" in str(error.value)
        assert "echo_scheme.py" in str(error.value)
        assert "LookupError: a bug of this role" in str(error.value)
        assert digests(echo(), pool, PLUGINS) == expected


def test_workers_that_cannot_begin_say_why_and_can_begin_the_next_run(pools: list[Workers]) -> None:
    pool = pools[2]
    with Twin() as twin:
        expected = digests(echo(), twin, PLUGINS)
    for _ in range(3):
        with pytest.raises(RoleFailed, match=r"^a worker could not begin the run:\n(?s:.*)this worker cannot begin\n$"):
            digests(echo(fault="setup"), pool, PLUGINS)
        assert digests(echo(), pool, PLUGINS) == expected


class Interrupted(Exception):
    pass


def cut_after(rows: int) -> MemoryJournal:
    """A journal that raises Interrupted instead of taking one more row."""
    journal = MemoryJournal({})

    def extend(found: Sequence[Row]) -> None:
        journal.rows.extend(found[:rows - len(journal.rows)])
        if len(journal.rows) == rows:
            raise Interrupted
    journal.extend = extend
    return journal


def test_a_run_that_is_cut_at_any_point_leaves_the_pool_usable(pools: list[Workers]) -> None:
    pool, scenario = pools[1], echo(length=3000)
    name, raw = scenario.schemes[0]
    with Twin() as twin:
        expected = digests(scenario, twin, PLUGINS)

    for rows in (0, 1, 7, 20, 45, 60, 90, 130):
        wiring = engine.wire(scenario, name, raw, pool.workers, PLUGINS)
        with pytest.raises(Interrupted):
            engine.execute(wiring, pool, cut_after(rows))
        assert digests(scenario, pool, PLUGINS) == expected


@pytest.mark.machine
def test_an_interrupt_while_a_run_ends_leaves_the_pool_usable(pools: list[Workers]) -> None:
    pool = pools[1]
    with Twin() as twin:
        expected = digests(echo(), twin, PLUGINS)
    poll = pool._poll
    for cut in range(1, 4):
        name, raw = echo().schemes[0]
        wiring = engine.wire(echo(), name, raw, pool.workers, PLUGINS)
        pool.open(wiring.setups)
        count = 0

        def interrupted() -> None:
            nonlocal count
            count += 1
            if count == 1:
                raise KeyboardInterrupt
            poll()
        pool._poll = interrupted            # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            pool.finish()
        if cut > 1:
            pool.abort()
        pool._poll = poll                   # type: ignore[method-assign]
        assert digests(echo(), pool, PLUGINS) == expected


# --- failures that it does not ----------------------------------------------------------------------------------------

@pytest.mark.machine
def test_a_killed_worker_is_noticed_without_waiting_for_its_heartbeat_and_named() -> None:
    with Workers(2, timeout_s=3600) as pool:
        victim = pool._processes[1].pid
        later(0.7, lambda: os.kill(victim, signal.SIGKILL))
        with pytest.raises(WorkerDied) as error:
            digests(echo(busy="0.3 s"), pool, PLUGINS)
        assert str(error.value) == f"worker 1 (process {victim}) ended with exit code -9"
        with pytest.raises(WorkerDied, match=r"^this pool has lost a worker; make a new one$"):
            digests(echo(), pool, PLUGINS)
        others = [p.pid for p in pool._processes]
    assert not any(map(alive, others))


@pytest.mark.machine
def test_a_stopped_worker_is_noticed_by_its_missing_heartbeat() -> None:
    with Workers(2, timeout_s=1.5) as pool:
        victim = pool._processes[0].pid
        stopped = later(0.7, lambda: os.kill(victim, signal.SIGSTOP))
        with pytest.raises(WorkerDied) as error:
            digests(echo(busy="0.3 s"), pool, PLUGINS)
        assert 0.9 < time.monotonic() - stopped[0] < 5
        assert str(error.value) == f"worker 0 (process {victim}) sent no heartbeat for 1.5 s"
    assert not alive(victim)


def test_a_worker_is_heard_of_while_it_computes(tmp_path: Path) -> None:
    """A computation ends once its worker has been heard of four times since it began."""
    with Workers(1) as pool:
        poll, heard = pool._poll, set[float]()

        def noting() -> None:
            poll()
            if (tmp_path / "begun").exists():
                heard.add(pool._last_beat[0])
            if len(heard) == 5:                     # the first may have come before
                (tmp_path / "enough").touch()
        pool._poll = noting                         # type: ignore[method-assign]
        digests(echo("topology.clients=2", "stop.rounds=1", folder=tmp_path), pool, PLUGINS)
        assert len(heard) >= 5


@pytest.mark.parametrize("workers", [2, 0])
@pytest.mark.parametrize(("fault", "what", "round_"), [
    ("hang", "did not come to a wait", 2), ("hang in work", "did not end a computation", 1)])
def test_a_role_that_never_comes_to_a_wait_is_ended_and_named(tmp_path: Path, fault: str, what: str,
                                                              round_: int, workers: int) -> None:
    sound, scenario = (loads(ECHO % f", length: 3658, fault: '{wrong}'", sets=["workers={patience: 1 s}"],
                             plugins=PLUGINS) for wrong in ("", fault))
    begin = time.monotonic()
    (result,) = engine.run(scenario, workers=workers, out=tmp_path, plugins=PLUGINS)
    assert time.monotonic() - begin < 30
    assert result.error is not None
    first, *stack = result.error.splitlines()
    _, spin = inspect.getsourcelines(echo_scheme.spin)
    assert re.fullmatch(rf"RoleHangs: client\d \(client\) {what} within 1 s of real time \(workers.patience\) in round "
                        rf"{round_}: echo_scheme.py, line ({spin + 1}|{spin + 2}), in spin", first)
    assert any("in client" in one or "in work" in one for one in stack)
    assert result.directory is not None
    assert list(read(result.directory / rundir.JOURNAL))            # what was computed before is kept,
    file = result.directory / rundir.SCENARIO
    file.write_text(file.read_text().replace(f"fault: {fault}", "fault: ''"))       # once the role is mended,
    (resumed,) = engine.resume(result.directory, workers=workers, plugins=PLUGINS)  # and gone on with
    with Twin() as twin:
        assert resumed.error is None
        assert resumed.summary is not None
        assert resumed.summary["digest_journal"] == digests(sound, twin, PLUGINS)[0]


def test_patience_is_not_tried_by_many_short_steps_and_computations() -> None:
    with Workers(2) as pool, Twin() as twin:
        patient = echo("workers={patience: 1 s}", "stop.rounds=2", busy="0.3 s")
        expected = digests(echo("stop.rounds=2"), twin, PLUGINS)
        assert [digests(patient, one, PLUGINS) for one in (pool, twin)] == [expected] * 2
        assert "workers.patience" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("workers", [1, 0])
def test_a_call_that_lets_no_other_thread_run_is_noticed_once_it_ends(tmp_path: Path, workers: int) -> None:
    scenario = loads(ECHO % ", length: 3658, fault: hold", sets=["workers={patience: 1 s}"], plugins=PLUGINS)
    (result,) = engine.run(scenario, workers=workers, out=tmp_path, plugins=PLUGINS)
    assert result.error is not None     # the role may have gone on a little until another thread can see it
    assert re.match(r"RoleHangs: a call let no other thread run for \d+\.\d s, more than 1 s of real time "
                    r"\(workers\.patience\); it has come to \S+\.py, line \d+, in ", result.error)


def test_a_call_that_does_not_end_is_said_and_ends_the_run_once_it_does(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises nothing in a call of C code: here it goes on until the line about it has been logged."""
    blocked, warnings = threading.Lock(), []
    blocked.acquire()
    monkeypatch.setattr(echo_scheme, "blocked", blocked)

    def warning(text: str, *given: object) -> None:
        warnings.append(text % given)
        blocked.release()
    monkeypatch.setattr(patience._log, "warning", warning)
    scenario = loads(ECHO % ", length: 3658, fault: block", sets=["workers={patience: 1 s}"], plugins=PLUGINS)
    (result,) = engine.run(scenario, workers=0, out=tmp_path, plugins=PLUGINS)
    assert result.error is not None
    assert re.match(r"RoleHangs: client\d \(client\) did not come to a wait within 1 s of real time "
                    r"\(workers\.patience\) in round 2: echo_scheme\.py, line \d+, in client", result.error)
    assert len(warnings) == 1
    assert "the run ends as soon as this call does" in warnings[0]


def test_an_exception_that_a_watchdog_sends_twice_does_not_leave_the_code_that_closes_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    watchdog = patience.Watchdog(1.0, lambda node: ("", "", 0))
    join, times = watchdog._thread.join, []

    def late() -> None:
        join()
        times.append(1)
        if len(times) == 1:
            watchdog._raise(ctypes.py_object(patience.Overdue))         # Python raises it here, within close()

    monkeypatch.setattr(watchdog._thread, "join", late)
    watchdog.close()
    assert len(times) == 2


@pytest.mark.machine
def test_a_thread_of_a_worker_that_fails_ends_the_worker_at_once() -> None:
    with Workers(1) as pool:
        pool._inboxes[0].send_multipart([pool._token, b"P", b"\xc1"])
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match=r"^worker 0 \(process \d+\) ended with exit code 1$"):
            digests(echo(busy="0.2 s"), pool, PLUGINS)
        assert time.monotonic() - begin < 5


def test_a_loop_that_fails_tells_its_traceback_and_not_just_that_it_died() -> None:
    with Workers(2) as pool:
        name, raw = echo().schemes[0]
        pool.open(engine.wire(echo(), name, raw, 2, PLUGINS).setups)
        pool._control.send_multipart([pool._senders[1], b"E", b"\xc1"])
        with pytest.raises(RoleFailed, match=r"^a worker failed:\nTraceback (?s:.*)msgspec\.DecodeError"):
            pool.observation(0, 1)
        pool.abort()                        # as the engine does: nothing more to say, and it must not hang
        with pytest.raises(WorkerDied, match=r"^this pool has lost a worker; make a new one$"):
            digests(echo(), pool, PLUGINS)


# --- life -------------------------------------------------------------------------------------------------------------

def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_socket_directory_is_private_and_goes_with_the_pool() -> None:
    with Workers(2) as pool:
        assert isinstance(pool._transport, Ipc)
        directory = Path(pool._transport.directory)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert sorted(p.name for p in directory.iterdir()) == ["beat", "control", "emul.lock", "w0", "w1"]
        processes = [p.pid for p in pool._processes]
    assert not directory.exists()
    assert not any(map(alive, processes))
    pool.close()                            # twice does no harm


def test_socket_paths_stay_short_where_the_temporary_directory_has_a_long_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    directory = Path(Ipc.new().directory)
    try:
        assert len(f"{directory}/control") < 107
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert list(deep.iterdir()) == []
    finally:
        remove_held_folder(directory)


@pytest.mark.parametrize("n", [0, -1])
def test_a_pool_has_at_least_one_worker(n: int) -> None:
    with pytest.raises(ValueError, match=rf"^workers = {n}: expected at least 1$"):
        Workers(n)


def test_an_idle_pool_does_not_block_its_workers_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The I/O thread must go on, whether or not anybody takes the beats: else it would miss the coordinator's end."""
    import zmq

    from emul.workers import process

    class Full:
        def send_multipart(self, parts: list[bytes], flags: int = 0) -> None:
            assert flags & zmq.NOBLOCK
            raise zmq.Again

    class Stop(BaseException):
        pass

    class Poller:
        polls = 0

        def register(self, *_: object) -> None: ...

        def poll(self, timeout: int) -> list[object]:
            self.polls += 1
            if self.polls > 3:
                raise Stop
            return []

    monkeypatch.setattr(process, "BEAT_S", 0.0)
    io = object.__new__(process.IO)
    io._beat, io._index, io._inbox = Full(), 0, None        # type: ignore[assignment]
    io._poller, io._watched, io._lost, io._run, io.patience = Poller(), [], [], 0, None     # type: ignore[assignment]
    io._coordinator = Ending(os.getpid())
    io._token = b""
    with pytest.raises(Stop):
        io._serve_forever()


def test_set_up_survives_the_wire_that_workers_are_told_by() -> None:
    from emul.workers.setup import Setup
    scenario = load(SKELETON)
    setup = engine.wire(scenario, *scenario.schemes[0], workers=2).setups[1]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(setup), type=Setup) == setup


@pytest.mark.parametrize("params", [{"pair": "[3, 4]"}, {"blob": "65 MiB"}])
def test_parameters_and_large_messages_are_the_same_in_processes_and_in_the_twin(
        params: dict[str, str], pools: list[Workers]) -> None:
    scenario = dataclasses.replace(echo("stop.rounds=1", **params))
    one = digests(scenario, Twin(), PLUGINS)
    assert digests(scenario, pools[1], PLUGINS) == one
