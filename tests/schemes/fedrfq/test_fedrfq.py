"""FedRFQ over a network: what servers agree on, with faults of every kind, and what clients make of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import RoleFailed, ScenarioError
from emul.primitives.bft.pbft import body_digest
from emul.protocols.agreement.clients import Result, Upload
from emul.protocols.agreement.clients import agreed as taken_result
from emul.protocols.agreement.servers import Ballot, accept
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.tables import derive
from emul.roles import Node
from emul.scenario import Crash, Scenario, loads
from emul.schemes import fedrfq
from emul.schemes.fedrfq import prototypes, security_probability
from emul.testing import Ran, run_world
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: fedrfq
seed: 3
topology: {generator: star_mesh, clients: CLIENTS, servers: SERVERS}
links:
  - {match: "*", latency: {distribution: uniform, mean: 5 ms, jitter: 2.5 ms}, transport: reliable}
task:
  data: {set: digits}
  partition: {class_space: {avg: 4, std: 1, shots: 6, test_shots: 10}}
  model: digits_classic
  solver: {sgd: {lr: 0.05, momentum: 0.5, epochs: 1, batch: 8}}
compute: {mode: zero}
faults: FAULTS
attacks: ATTACKS
schemes: [{name: SCHEME}]
stop: {rounds: ROUNDS}
evaluation: {every: 100}
"""


def text(scheme: str = "fedrfq", clients: int = 8, servers: int = 4, rounds: int = 3, faults: str = "[]",
         attacks: str = "[]") -> str:
    values = {"CLIENTS": clients, "SERVERS": servers, "SCHEME": scheme, "ROUNDS": rounds, "FAULTS": faults,
              "ATTACKS": attacks}
    found = TEXT
    for key, value in values.items():
        found = found.replace(key, str(value))
    return found


def execute(scenario: Scenario, pool: Any = None) -> Ran:
    (name, raw), = scenario.schemes
    wiring = engine.wire(scenario, name, raw, 1 if pool is None else pool.workers)
    journal = MemoryJournal(engine.header(wiring))
    finished = engine.execute(wiring, pool or Twin(), journal)
    return Ran(journal.rows, journal.header, finished, journal.close())


def run(*changes: Any, **how: Any) -> Ran:
    scenario = loads(text(**how), "t")
    for change in changes:
        scenario = dataclasses.replace(scenario, **change)
    return execute(scenario)


def told(world: Ran) -> list[dict[str, Any]]:
    """Rows of the table of rounds."""
    found: list[dict[str, Any]] = derive(columns(world.rows), world.header).rounds
    return found


def agreed(world: Ran, servers: int = 4, without: tuple[int, ...] = ()) -> dict[int, set[str]]:
    """round -> what the servers have agreed on."""
    found: dict[int, set[str]] = {}
    for row in told(world):
        if row["node"] < servers and row["node"] not in without and row.get("agreed") is not None:
            found.setdefault(row["round"], set()).add(row["agreed"])
    return found


def models(world: Ran, servers: int = 4) -> list[tuple[int, int, str]]:
    """(round, client, digest) of what the clients have made of it; they go on until the last server has returned."""
    last = max(row["round"] for row in told(world))
    return sorted((row[3], row[2], row[5]) for row in world.rows
                  if row[0] == R.REPORT and row[2] >= servers and row[5] and row[3] <= last)


def sent(world: Ran) -> Counter[str]:
    return Counter(row[5] for row in world.rows if row[0] == R.SEND)


@pytest.fixture(scope="module")
def honest() -> Ran:
    return run()


def test_without_faults_every_round_takes_27_messages_of_the_servers_and_one_decision(honest: Ran):
    assert {t: len(v) for t, v in agreed(honest).items()} == {1: 1, 2: 1, 3: 1}
    counted = sent(honest)
    assert counted["PrePrepare"] == 3 * 3
    assert counted["Prepare"] == counted["Commit"] == 3 * 12
    assert counted["Upload"] == counted["Result"] == 3 * 4 * 8
    assert not {"ViewChange", "NewView", "Fetch", "Bodies", "Decision", "Ask", "Undecided"} & set(counted)
    rounds = [row for row in told(honest) if row["node"] < 4]
    assert {row["view"] for row in rounds} == {0}
    held = sum(len(np.unique(labels)) for labels in _labels(honest))
    assert {row["uploaded"] for row in rounds} == {24 * held}


def _labels(world: Ran) -> list[np.ndarray]:
    from emul.learning import Task

    setup = world.finished.wiring.setups[0]
    assert setup.task is not None
    task = Task(setup.task, len(setup.roles["client"]), setup.seed)
    return [task.data.train_y[task.indices(c)] for c in range(task.clients)]


@pytest.mark.parametrize("behaviour", ["crashed", "silent", "equivocating", "tampering", "dropping", "wrong_votes",
                                       "colluding", "slow"])
@pytest.mark.parametrize("server", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_with_one_faulty_server_of_any_kind_the_prototypes_are_those_without(behaviour: str, server: int,
                                                                             honest: Ran):
    world = run(faults=f"[{{node: server{server}, behave: {behaviour}}}]")     # server2 leads round 1, server4 round 3
    assert agreed(world, without=(server - 1,)) == agreed(honest)
    assert models(world) == models(honest)


def test_two_faulty_servers_of_seven_change_nothing_but_time_and_bytes():
    faults = "[{node: server2, behave: equivocating}, {node: server3, behave: silent}]"
    world, honest = (run(servers=7, rounds=2, faults=f, scheme="fedrfq, faults: 2") for f in (faults, "[]"))
    assert agreed(world, 7, (1, 2)) == agreed(honest, 7)
    assert models(world, 7) == models(honest, 7)
    assert world.kernel.end_ns > honest.kernel.end_ns
    assert world.summary["bytes_total"] > honest.summary["bytes_total"]


def test_more_than_f_crashed_servers_end_the_round_by_its_timeout_and_the_report_names_the_quorum():
    world = run(faults="[{node: server1, behave: crashed}, {node: server2, behave: crashed}]", rounds=2)
    assert agreed(world) == {}
    assert world.summary["rounds"] == 0
    assert world.summary["rounds_failed"] == 2
    why = [row["why"] for row in told(world) if row["node"] in (2, 3)]
    assert len(why) == 4
    for reason in why:
        assert reason.startswith("NoQuorum: no quorum in round ")
        assert "of 4 servers in view" in reason
        assert "3 are needed; not heard: server1, server2" in reason
    assert {row.get("decided") for row in told(world) if row["node"] in (2, 3)} == {False}
    assert 2.0 < world.kernel.end_ns / 1e9 < 2.2                # two rounds of a second: clients keep G and go on
    assert len(models(world)) == 16


def test_two_colluding_servers_of_four_deceive_nobody(honest: Ran):
    world = run(faults="[{node: server2, behave: colluding}, {node: server3, behave: colluding}]")
    assert agreed(world, without=(1, 2)) == agreed(honest)


def test_a_client_that_signs_two_uploads_is_left_out_everywhere():
    world = run(faults="[{node: client1, behave: two_faced}]", rounds=2)
    found = agreed(world)
    assert {t: len(v) for t, v in found.items()} == {1: 1, 2: 1}
    uploaded = {row["uploaded"] for row in told(world) if row["node"] < 4}
    assert uploaded == {24 * sum(len(np.unique(labels)) for labels in _labels(world)[1:])}
    assert any("upload signed twice" in (row.get("rejected") or "") for row in told(world))


def test_a_fault_of_some_rounds_holds_in_these_alone(honest: Ran):
    world = run(faults="[{node: server3, behave: tampering, rounds: 2}]", rounds=3)      # server3 leads round 2
    views = {row["round"]: row["view"] for row in told(world) if row["node"] == 0}
    assert views == {1: 0, 2: 1, 3: 0}
    assert agreed(world, without=(2,)) == agreed(honest)
    rejected = {row["round"]: row.get("rejected") for row in told(world) if row["node"] == 0}
    assert "wrong result" in rejected[2]
    assert not rejected[1]
    assert not rejected[3]


def test_a_behaviour_that_cannot_begin_in_the_middle_is_an_error_that_says_so():
    with pytest.raises(RoleFailed, match=r"server3: a behaviour that holds for some rounds changes in round 2; a role "
                                         r"must then ask for rounds before it waits for anything"):
        run(faults="[{node: server3, behave: crashed, rounds: 2}]")


def test_a_server_that_crashes_and_returns_agrees_again(honest: Ran):
    end = honest.kernel.end_ns
    world = run({"faults": [Crash(end // 3, "server4", end // 4)]}, rounds=5)
    assert {len(v) for v in agreed(world).values()} == {1}
    assert {row["round"] for row in told(world) if row["node"] == 3 and row["completed"]} >= {1, 4, 5}


def test_lost_uploads_are_fetched_from_servers_that_have_them():
    lossy = text(rounds=4).replace("transport: reliable}", "transport: reliable}\n  "
                                   '- {match: "client*->server*", outage: {model: bernoulli, p: 0.2, per: message}, '
                                   "transport: datagram}")
    world = execute(loads(lossy, "t"))
    found = agreed(world)
    assert sorted(found) == [1, 2, 3, 4]
    assert {len(v) for v in found.values()} == {1}
    assert sent(world)["Fetch"] > 0


def test_psi_2_leaves_out_exactly_the_two_clients_that_shift_their_prototypes():
    attacks = "[{nodes: [client3, client6], prototypes: shift}]"
    world = run(scheme="fedrfq, psi: 2", attacks=attacks, clients=10)
    assert {row["excluded"] for row in told(world) if row["node"] < 4} == {"client3 client6"}
    assert world.summary["poisoned"] == ["client3", "client6"]


def test_the_printed_aggregation_makes_prototypes_collapse():
    def norms(aggregate: str) -> float:
        bodies = []
        original = prototypes.filtered_mean

        def noted(*args: Any) -> prototypes.Filtered:
            found = original(*args)
            bodies.append(np.mean([np.linalg.norm(v / prototypes.UNIT) for v in found.prototypes.values()]))
            return found
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(prototypes, "filtered_mean", noted)
            run(scheme=f"fedrfq, lambda: 1.0, aggregate: {aggregate}", rounds=3, clients=20)
        return float(bodies[-1])

    assert norms("printed") < 0.01 < norms("mean")


def test_what_cannot_be_is_refused_when_the_scenario_is_read():
    with pytest.raises(ScenarioError) as refused:
        loads(text(scheme="fedrfq, faults: 2, psi: 8, map: [7, 7], lambda: -1", clients=8), "t", check=True)
    said = str(refused.value)
    for expected in ("needs 7 servers, the topology has 4", "expected a number below 8, the number of clients",
                     "map 7 x 7: expected a product of 50", "expected a number, 0 or above"):
        assert expected in said


def test_theory_and_measure_of_the_servers_messages_agree(honest: Ran):
    analysis = honest.summary["analysis"]
    for name, value in (("pre_prepares", 3.0), ("prepares", 12.0), ("commits", 12.0), ("uploads", 32.0)):
        assert analysis[f"{name}_per_round"] == {"theory": value, "measured": value}
    assert analysis["security_probability_0.25"]["theory"] == security_probability(4, 0.25)


def test_the_same_digests_for_any_number_of_worker_processes(honest: Ran, pools: list[Any]):
    again = execute(loads(text(), "t"), pools[1])
    assert again.digest == honest.digest
    faulty = text(faults="[{node: server3, behave: tampering, rounds: 2}, {node: server3, behave: silent, rounds: 3}]")
    digests = {execute(loads(faulty, "t"), pool).digest for pool in (None, pools[1])}
    assert len(digests) == 1
    assert digests != {honest.digest}


# --- what single functions refuse -----------------------------------------------------------------------------------

def _signed(t: int, client: int, body: bytes, by: str) -> Upload:
    from emul.base.streams import seed_bytes
    from emul.primitives.bft import signing
    from emul.primitives.bft.pbft import upload_statement

    return Upload(body, signing.sign(seed_bytes(7, "ed25519", by), upload_statement(
        t, client, body_digest(body))))


def test_a_forged_a_replayed_and_an_invalid_upload_are_dropped_with_their_reason():
    node = SimpleNamespace(seed=7, world=SimpleNamespace(names=["server1", "client1", "client2", "client3", "client4"]))
    good = prototypes.to_bytes(prototypes.quantise({3: np.ones(24)}))
    got = {1: _signed(5, 1, good, "client1"),
           2: _signed(5, 2, good, "client1"),               # in the name of another one
           3: _signed(4, 3, good, "client3"),               # of the last round
           4: _signed(5, 4, good[:-1], "client4")}          # signed, but no upload
    ballot = Ballot(lambda body: prototypes.from_bytes(body, 24, 10), lambda inputs: b"", fedrfq.numbers)
    entries = accept(SimpleNamespace(node=node, ballot=ballot, replica=SimpleNamespace(t=5)), got)      # type: ignore
    assert [e.client for e in entries] == [1]
    assert ballot.rejected == {"forged upload": 2, "invalid upload": 1}


def test_a_client_takes_what_f_plus_1_servers_say_and_nothing_else():
    """Two of three say the same; one signature is another server's."""
    from emul.base.streams import seed_bytes
    from emul.primitives.bft import signing
    from emul.primitives.bft.pbft import pack

    def result(server: int, body: bytes, by: int | None = None) -> Result:
        key = seed_bytes(7, "ed25519", f"server{by or server}")
        return Result(body, signing.sign(key, pack("Result", 1, body)))

    taken: list[bytes | None] = []

    async def client(node: Node, p: fedrfq.Params) -> None:
        async for round_ in node.rounds(sync=node.servers, quorum=2):
            with round_:
                taken.append(await taken_result(node, 1, p.faults, p.result_timeout_s))

    async def server(node: Node, p: fedrfq.Params) -> None:
        bodies = {1: result(1, b"a"), 2: result(2, b"b", by=3), 3: result(3, b"b"), 4: result(4, b"a")}
        async for round_ in node.rounds():
            with round_:
                await node.sleep(0.01 * node.index)
                node.broadcast(node.clients, bodies[node.index + 1])
                await node.sleep(1.0)           # the run ends with the servers

    scheme = replace(fedrfq.SCHEME, roles={"server": server, "client": client}, decides=None)
    run_world(scheme, clients=1, servers=4)
    assert taken[0] == b"a"                                  # two "b" came first, of which one was forged
