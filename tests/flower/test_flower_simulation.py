"""Flower's local simulation in virtual time, against its engine written down apart from it.

The oracle goes through `vce_api` and `InMemoryGrid` of flwr by hand, in steps of a hundredth of a second: a thread that
looks for the oldest message of each node, actors that take messages in turn, an app that looks for replies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flower_app import HEAD, TRAINS, write_app

from emul import engine
from emul.base.streams import generator
from emul.scenario import loads
from emul.schemes.flower import installed
from emul.schemes.flower.polling import PARTS
from emul.testing import Ran, run_text
from emul.workers.pool import Workers

TWICE = """
import json, pathlib
found = []
for n in range(1, 4):
    time.sleep(0.37)
    content = RecordDict({"config": ConfigRecord({"server-round": n})})
    nodes = sorted(grid.get_node_ids())
    begun = time.monotonic()
    floating = list(grid.push_messages([Message(content, node, "train") for node in nodes]))
    waited = grid.send_and_receive([Message(content, node, "train") for node in nodes])
    found.append([begun, time.monotonic(), len(waited)])
    time.sleep(20)
    found[-1].append(len(grid.pull_messages(floating)))
pathlib.Path("OUT").write_text(json.dumps(found))
"""
SLOW = "time.sleep(0.5 + 0.75 * context.node_config['partition-id'])"


def app_in(tmp_path: Path, body: str, train: str) -> Path:
    """An app that writes what it has found into `out.json`."""
    return write_app(tmp_path / "app", body.replace("OUT", str(tmp_path / "out.json")), train, client=TRAINS)


def simulated(folder: Path, *sets: str, clients: int = 2, **entry: Any) -> Ran:
    scheme = {"name": "flower", "app": str(folder), "runtime": "simulation", **entry}
    return run_text(HEAD + f"  - {json.dumps(scheme)}\n", f"topology.clients={clients}", "stop.rounds=9", *sets)


def found_by(tmp_path: Path, body: str, train: str, *sets: str, **entry: Any) -> Any:
    simulated(app_in(tmp_path, body, train), *sets, **entry)
    return json.loads((tmp_path / "out.json").read_text())


def by_hand(begun: float, actors: int, clients: int) -> float:
    """The end of a `send_and_receive` that begins at `begun`: two messages of each node, all pushed then. In units of
    10 us, so that no two instants are taken for one."""
    unit = 100_000
    now, look = round(begun * unit), unit // 10
    phase = look - round(generator(7, "looks", "server").random() * look)      # of the first look
    new = [[node, part] for part in (0, 1) for node in range(clients)]
    queue: list[list[int]] = []
    working: list[tuple[int, list[int]]] = []
    pull, left = now, {(node, 1) for node in range(clients)}
    arrived: set[tuple[int, ...]] = set()
    while True:
        for end, job in [one for one in working if one[0] == now]:
            working.remove((end, job))
            arrived.add(tuple(job))
        if (now - phase) % look == 0 and now > round(begun * unit):
            for node in range(clients):
                mine = [job for job in new if job[0] == node]
                if mine:
                    new.remove(mine[0])
                    queue.append(mine[0])
        while queue and len(working) < actors:
            job = queue.pop(0)
            working.append((now + round((0.5 + 0.75 * job[0]) * unit), job))
        if now == pull:
            if left <= arrived:
                return now / unit
            pull += look
        now += 1


@pytest.mark.parametrize(("actors", "clients"), [(1, 2), (2, 3), (3, 2), (8, 3)])
def test_messages_wait_for_a_look_and_for_an_actor_and_for_nothing_else(actors: int, clients: int, tmp_path: Path,
                                                                        ) -> None:
    found = found_by(tmp_path, TWICE, SLOW, "links[0].latency=3 s", clients=clients, num_actors=actors)
    assert [row[2:] for row in found] == [[clients, clients]] * 3
    assert [row[1] for row in found] == [pytest.approx(by_hand(row[0], actors, clients), abs=1e-3) for row in found]


COUNTING = """
import json, pathlib
found = []
for together in (1, 2, 1):
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    sent = list(grid.push_messages([Message(content, 2, "train") for _ in range(together)]))
    time.sleep(5)
    found += [reply.content["metrics"]["before"] for reply in grid.pull_messages(sent)]
pathlib.Path("OUT").write_text(json.dumps(found))
"""
COUNTS = """
before = context.state["count"]["n"] if "count" in context.state else 0
context.state["count"] = MetricRecord({"n": before + 1})
time.sleep(1)
return Message(RecordDict({"metrics": MetricRecord({"before": before})}), reply_to=message)
"""


def test_of_two_messages_of_a_node_at_once_one_loses_what_it_has_written_into_the_context(tmp_path: Path) -> None:
    assert found_by(tmp_path / "many", COUNTING, COUNTS, num_actors=2) == [0, 1, 1, 2]
    assert found_by(tmp_path / "one", COUNTING, COUNTS, num_actors=1) == [0, 1, 2, 3]


def test_links_and_their_faults_do_nothing(tmp_path: Path) -> None:
    folder = app_in(tmp_path, TWICE, SLOW)
    runs = [simulated(folder, *sets) for sets in (
        [], ["links[0].latency=3 s", "links[0].outage={model: bernoulli, p: 0.9, per: message}",
             "faults=[{at: 0 s, partition: [[server], [client1, client2]]}]"])]
    assert runs[0].rounds == runs[1].rounds


def test_a_node_computes_for_two_messages_at_once_in_lanes_of_its_own(tmp_path: Path) -> None:
    costs = tmp_path / "costs.csv"
    costs.write_text("node,label,seconds\n" + "".join(f"client{k},train,2\n" for k in (1, 2)))
    traced = f"compute={{trace: {costs}, take: in order, default: zero}}"
    for actors, least in ((4, 2.0), (1, 8.0)):
        found = found_by(tmp_path / f"{actors}", TWICE, "pass", traced, num_actors=actors)
        assert [row[1] - row[0] for row in found] == [pytest.approx(least + 0.1, abs=0.11)] * 3


def test_a_round_says_where_its_seconds_go(tmp_path: Path) -> None:
    ran = simulated(app_in(tmp_path, TWICE, "time.sleep(1)"), num_actors=1)
    parts = {part: ran.rounds[0][f"seconds_{part}"] for part in PARTS}
    assert parts["compute"] == pytest.approx(1, abs=0.01)
    assert (parts["start"], parts["transfer"]) == (0, 0)
    assert parts["busy"] == pytest.approx((0 + 1 + 1.9 + 2.9) / 4, abs=0.01)       # a look later come the second two


def test_waits_are_those_of_the_installed_version_and_a_name_that_is_gone_is_told(
        monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.schemes.flower import Params

    found = installed.simulation(Params())
    assert (found.look_s, found.server_poll_s) == (0.1, 0.1)
    assert installed.simulation(Params(server_poll_s=2.0)).server_poll_s == 2
    monkeypatch.setattr(installed, "_VCE", "server/gone.py")
    with pytest.raises(installed.UnknownFlower, match=rf"^flwr {installed.version()}: server/gone\.py has no text"):
        installed.simulation(Params())


def test_a_run_is_the_same_with_workers(tmp_path: Path, pools: Sequence[Workers]) -> None:
    scheme = {"name": "flower", "app": str(app_in(tmp_path, TWICE, SLOW)), "runtime": "simulation", "num_actors": 3}
    results = [engine.run(loads(HEAD + f"  - {json.dumps(scheme)}\n", sets=["stop.rounds=9"]), workers=pool,
                          out=tmp_path / "runs")[0] for pool in (0, pools[1])]
    assert [one.error for one in results] == [None, None]
    assert len({one.summary["digest"] for one in results if one.summary is not None}) == 1
