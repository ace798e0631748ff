"""What is declared and not carried: bytes that links count, and times that clocks are charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sealed_scheme
from sealed_scheme import OPEN_S, SEAL_S, SEALED, Stated

from emul import engine
from emul.base import rows as R
from emul.base.errors import RoleFailed
from emul.message.wire import ENVELOPE_BYTES
from emul.network import LinkRule
from emul.record.columns import columns
from emul.record.golden import golden_text
from emul.record.invariants import check_columns
from emul.record.journal import MemoryJournal
from emul.record.load import load_run
from emul.report.build import write
from emul.roles import Declared, Node
from emul.scenario import Stop, loads
from emul.scenario.faults import NodeSpeed, Slow
from emul.testing import MS, Ran, Shuffled, run_world

MESSAGES = (Stated,)

SCENARIO = """
emul: 1
name: sealed
seed: 3
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 8 kbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: sealed_scheme}]
stop: {rounds: 2}
"""


def world(seal: str = "declared", **more: Any) -> Ran:
    links = [LinkRule("*", latency_ns=10 * MS, bandwidth_bps=8_000)]        # a byte takes a millisecond
    return run_world(sealed_scheme, params={"seal": seal}, links=links, stop=Stop(rounds=2), **more)


def sizes(found: Ran, kind: str) -> set[tuple[int, int]]:
    return {(row[6], row[7]) for row in found.rows if row[0] == R.SEND and row[5] == kind}


def test_declared_bytes_take_their_time_and_their_place_on_every_link() -> None:
    found = world()
    (size, wire), = sizes(found, "Stated")
    assert 0 < size - SEALED < 60               # the names of the fields and of the type: the rest is declared
    assert wire == size + ENVELOPE_BYTES
    sent, came = (next(row[1] for row in found.of("client1", R.SEND)), found.of("server", R.DELIVER)[0][1])
    assert came - sent == 10 * MS + wire * MS
    assert found.invariants.violations == []


def test_what_is_declared_is_as_large_and_as_dear_as_the_real_thing() -> None:
    declared, real = world("declared"), world("real")
    (one, _), = sizes(declared, "Stated")
    (other, _), = sizes(real, "Sealed")
    assert abs(one - other) < 40                # how the two headers tell of their fields
    assert abs(declared.kernel.end_ns - real.kernel.end_ns) < 2 * 2 * 40 * MS
    assert declared.summary["digest_model"] == real.summary["digest_model"]


def test_the_summary_tells_by_role_what_was_declared() -> None:
    summary = world().summary
    assert summary["bytes_declared"] == {"client": {"Stated": 2 * 3 * (SEALED - 32)}}
    assert summary["seconds_declared"] == {"client": {"seal": 2 * 3 * SEAL_S}, "server": {"open": 2 * 3 * OPEN_S}}
    assert summary["seconds_declared"] == summary["compute_virtual_seconds"]
    assert world("real").summary["bytes_declared"] == {}


def test_declared_bytes_count_once_a_hop_and_not_where_none_is_taken() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.sleep(10)

    async def client(node: Node, p: Any) -> None:
        stated = Stated(np.zeros(4, np.float32), Declared(500))
        node.send(node.id, stated)
        node.send(node.peers[0], stated)                # in a star through the server: two hops
        await node.gather(Stated, node.clients)

    found = run_world({"server": server, "client": client}, clients=2)
    assert {row[4] for row in found.rows if row[0] == R.DECLARED} == {500}
    assert found.summary["bytes_declared"] == {"client": {"Stated": 2 * 2 * 500}}


@pytest.mark.parametrize("mode", ["zero", "measured", "profile", "recorded"])
def test_a_stated_time_is_charged_in_every_mode(mode: str) -> None:
    found = world(costs=engine.CostSource(mode))
    assert {row[4] for row in found.of("client1", R.COMPUTE)} == {round(SEAL_S * 1e9)}
    assert len(found.of("client1", R.STATED)) == len(found.of("client1", R.COMPUTE)) == 2


def test_a_stated_time_is_the_profiles_machines_and_a_slow_node_takes_longer() -> None:
    slowed = [Slow(0, "client2", 3.0)]
    found = world(speeds=[NodeSpeed("client1", 0.5)], faults=slowed, costs=engine.CostSource("zero"))
    taken = {name: found.of(name, R.COMPUTE)[0][4] / 1e9 for name in ("client1", "client2", "client3")}
    assert taken == {"client1": 2 * SEAL_S, "client2": 3 * SEAL_S, "client3": SEAL_S}


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused_with_its_place(wrong: float) -> None:
    async def server(node: Node, p: Any) -> None:
        await node.compute("seal", len, (), cost_s=wrong)

    async def client(node: Node, p: Any) -> None:
        return

    with pytest.raises(RoleFailed, match=r"test_declared\.py:\d+: compute\(cost_s=.*\): expected seconds, 0 or above"):
        run_world({"server": server, "client": client}, clients=1)


def test_the_run_is_the_same_for_any_number_of_workers(pools: list[Any]) -> None:
    scenario = loads(SCENARIO, plugins=["sealed_scheme"])
    found = []
    for pool in (pools[1], Shuffled(3, 1)):
        wiring = engine.wire(scenario, *scenario.schemes[0], pool.workers, ["sealed_scheme"])
        journal = MemoryJournal(engine.header(wiring))
        engine.execute(wiring, pool, journal)
        found.append(journal.close())
    assert len(set(found)) == 1


def test_tables_and_report_mark_what_was_declared(tmp_path: Path) -> None:
    result, = engine.run(loads(SCENARIO, plugins=["sealed_scheme"]), workers=0, out=tmp_path, plugins=["sealed_scheme"])
    assert result.directory is not None
    run = load_run(result.directory)
    assert (run.messages.declared_bytes == run.messages.type.map({"Stated": SEALED - 32, "Model": 0})).all()
    assert run.computations.declared.all()
    page = write(result.directory, tmp_path / "report.html").read_text()
    assert f"Of these, client Stated: {2 * 3 * (SEALED - 32):,} B were declared, not carried." in page
    assert "client seal: 1.5 s; server open: 3 s were stated by the scheme" in page


def test_the_golden_log_tells_of_both() -> None:
    found = world()
    log = golden_text(found.rows, found.header)
    assert f" {SEALED - 32} B of client1 -> server Stated of round 1 are declared\n" in log
    assert " client1 has stated that cost\n" in log


@pytest.mark.parametrize(("changed", "said"), [
    (lambda row: (*row[:4], row[4] + 10**6), "declares"), (lambda row: (*row[:3], 10**6, row[4]), "was never sent")])
def test_an_invariant_holds_declared_bytes_to_their_messages(changed: Any, said: str) -> None:
    found = world()
    at = next(i for i, row in enumerate(found.rows) if row[0] == R.DECLARED)
    wrong = [*found.rows[:at], changed(found.rows[at]), *found.rows[at + 1:]]
    report = check_columns(columns(wrong), found.header)
    assert any(said in v.detail for v in report.violations)
