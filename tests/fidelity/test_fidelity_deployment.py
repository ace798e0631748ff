"""Deployments: real nodes over TCP do what the emulated ones do, and what is said of both is computed as it is said."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

import benchmarks.deployment.__main__ as command
from benchmarks import document
from benchmarks.deployment import compare, namespaces, others, pages, predictions, superlink
from benchmarks.deployment.cases import (
    FRAME,
    MODELS,
    PLAIN,
    PLUGINS,
    REPLAYED,
    ROUTER,
    TCP,
    Case,
    Kernel,
    Model,
    Net,
    declared,
    recorded,
    replayed,
    scenario,
)
from benchmarks.deployment.networks import CASES, NETS, PARTS, TWELVE, below_edges
from benchmarks.deployment.node import RealNode
from benchmarks.deployment.predictions import AFTER, BEFORE, CHANGED, NONE, Prediction, standing
from benchmarks.deployment.processes import DeploymentFailed, Place, deploy, wired
from benchmarks.deployment.relay import Watch
from benchmarks.deployment.runs import (
    RUNS,
    Compared,
    Measured,
    compared,
    dropped_of,
    emulate,
    measure,
    on_loopback,
    write,
)
from emul.base import rows as R
from emul.base.rows import Row
from emul.message.wire import ENVELOPE_BYTES
from emul.network.links.connections import TcpStack

NODES = 4
FAST = Net("loopback", "htb", [1000] * NODES, [1000] * NODES)


def ports(count: int) -> list[int]:
    """Free ones, on loopback."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [s.getsockname()[1] for s in taken]
    for s in taken:
        s.close()
    return found


def of(rows: list[Row], kind: int) -> list[Row]:
    return [row for row in rows if row[0] == kind]


# --- real nodes over loopback ---------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def trained() -> tuple[Case, Measured]:
    case = Case("fedavg", FAST, "deadline: 60 s", 3, train_s=0, steps=2, slow={2: 2.0}, variant="trained")
    return case, on_loopback(case, ports(NODES))


@pytest.mark.machine
def test_a_deployment_learns_the_very_models_that_its_emulation_learns(trained: tuple[Case, Measured]) -> None:
    case, measured = trained
    models = [row[5] for row in of(measured.rows, R.REPORT)]
    assert len(set(models)) == 3
    assert models == [row[5] for row in of(emulate(case, measured, PLAIN), R.REPORT)]


@pytest.mark.machine
def test_sockets_carry_as_many_bytes_as_the_emulator_counts(trained: tuple[Case, Measured]) -> None:
    case, measured = trained
    assert measured.bytes_written == compare.sent_bytes(emulate(case, measured, PLAIN), NODES)


@pytest.mark.machine
def test_a_slow_node_takes_so_many_times_what_its_work_took_and_the_emulation_has_what_was_recorded(
        trained: tuple[Case, Measured], tmp_path: Path) -> None:
    case, measured = trained
    def costs(rows: list[Row]) -> list[tuple[int, str, int]]:
        return sorted((row[2], row[3], row[4]) for row in of(rows, R.COMPUTE))
    assert costs(measured.rows) == costs(emulate(case, measured, PLAIN))
    assert "speed: 0.5" in scenario(case, tmp_path, None)


@pytest.mark.machine
@pytest.mark.parametrize(("scheme", "params"), [
    ("secagg", "stage_deadline: 60 s"), ("gossip", "graph: ring, deadline: 60 s"),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in (
        ("fedbuff", "buffer: 2"), ("hierarchical", "edge_rounds: 2"),
        ("lightsecagg", "colluders: 0, answers: 2, stage_deadline: 60 s")))])
def test_schemes_run_over_sockets_as_they_are(scheme: str, params: str) -> None:
    edges = (3,) if scheme == "hierarchical" else ()
    case = Case(scheme, below_edges(FAST, edges), params, 2, train_s=0.02, edges=edges)
    measured = on_loopback(case, ports(NODES))
    found = compared(case, measured, [PLAIN])
    assert [len(times) for times in found.rounds.values()] == [2, 2]
    assert all(row[4] == "" for row in of(measured.rows, R.LEAVE))          # every round was completed
    if scheme != "fedbuff":                                                 # there who is first is for the machine
        assert found.sent[0] == found.sent[1]


@pytest.mark.machine
@pytest.mark.slow
def test_a_flower_app_runs_over_sockets_as_it_is() -> None:
    pytest.importorskip("flwr")
    case = Case("flower", FAST, "", 2, train_s=0.02)
    measured = on_loopback(case, ports(NODES))
    found = compared(case, measured, [PLAIN])
    assert [len(times) for times in found.rounds.values()] == [2, 2]
    assert found.sent[0] == found.sent[1]


@pytest.mark.machine
def test_a_declared_training_takes_at_least_that_long() -> None:
    two = Net("two", "htb", [1000] * 2, [1000] * 2)
    case = Case("gossip", two, "graph: ring, deadline: 60 s", 1, 0.05, slow={1: 2.0})
    rows = on_loopback(case, ports(2)).rows
    took = {row[2]: row[4] / 1e9 for row in of(rows, R.COMPUTE) if row[3] == "train"}
    assert took[0] >= 0.045
    assert took[1] >= 0.1


@pytest.mark.machine
def test_what_a_process_raises_ends_the_deployment_and_is_said(tmp_path: Path) -> None:
    text = scenario(Case("fedavg", FAST), tmp_path, None)
    with pytest.raises(DeploymentFailed, match="OSError"):
        deploy(text, [Place(("127.0.0.1", 1)), *[Place(("192.0.2.1", 7000))] * (NODES - 1)], plugins=PLUGINS,
               timeout_s=20)


@pytest.mark.machine
@pytest.mark.slow
def test_who_waits_for_ever_is_killed_when_its_time_is_up() -> None:
    case = Case("fedavg", FAST, rounds=2, train_s=3600)
    began = time.monotonic()
    with pytest.raises(DeploymentFailed, match="-9"):
        on_loopback(case, ports(NODES), timeout_s=6)
    assert time.monotonic() - began < 60


def own_sockets(among: Collection[int]) -> Iterator[socket.socket]:
    """TCP sockets of this process whose own port or whose peer's is one of these."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            s = socket.socket(fileno=os.dup(int(fd)))
            with s:
                ends = [s.getsockname()]
                with contextlib.suppress(OSError):          # one that listens has no peer
                    ends.append(s.getpeername())
                if any(len(end) == 2 and end[1] in among for end in ends):
                    yield s


TWO = Case("gossip", Net("two", "htb", [1000] * 2, [1000] * 2), "graph: ring, deadline: 60 s", 1, 0.01, slow={})


@pytest.mark.machine
def test_every_socket_of_a_deployment_sends_a_small_message_at_once(tmp_path: Path) -> None:
    where = ports(2)
    wiring = wired(scenario(TWO, tmp_path, None), 2, PLUGINS)
    nodes = [RealNode(wiring, me, [("127.0.0.1", port) for port in where]) for me in range(2)]
    both, found = threading.Barrier(2), []

    def ready() -> int:
        if both.wait(30) == 0:
            found.extend(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in own_sockets(where))
        both.wait(30)
        return time.monotonic_ns()

    async def live() -> None:
        await asyncio.wait_for(asyncio.gather(*(node.live(ready) for node in nodes)), 60)

    asyncio.run(live())
    assert found == [1] * 6             # of each node: one listens, one was accepted, one connected


def test_a_message_is_one_write(tmp_path: Path) -> None:
    written: list[list[bytes]] = []

    class Writer:
        def write(self, data: bytes) -> None:
            written.append([data])

        def writelines(self, data: list[bytes]) -> None:
            written.append(data)

        async def drain(self) -> None:
            pass

    async def send(*messages: list[bytes | memoryview]) -> None:
        node = RealNode(wired(scenario(TWO, tmp_path, None), 2, PLUGINS), 0, [])
        queue: asyncio.Queue[list[bytes | memoryview]] = asyncio.Queue()
        sending = asyncio.create_task(node._write(queue, cast(asyncio.StreamWriter, Writer())))
        for frames in messages:
            queue.put_nowait(frames)
        await asyncio.wait_for(queue.join(), 10)
        sending.cancel()

    asyncio.run(send([b"envelope", b"header"], [b"envelope", b"header", b"buffer"]))
    assert written == [[b"envelope", b"header"], [b"envelope", b"header", b"buffer"]]


# --- what is deployed -----------------------------------------------------------------------------------------------

def accepted(case: Case, model: Model, folder: Path) -> list[str]:
    """The nodes of a case whose scenario is accepted, in their order."""
    text = scenario(case, folder, declared(case, folder / "trace.csv"), case.tells_apart(model))
    return wired(text, 1, PLUGINS).plan.names


def test_every_network_is_a_scenario_whose_nodes_are_numbered_as_they_are_deployed(tmp_path: Path) -> None:
    for case in {str(case.net): case for case in [*CASES, *PARTS] if case.scheme != "flower"}.values():
        assert accepted(case, TCP, tmp_path) == [f"n{i + 2}" for i in range(case.net.nodes)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_of_the_links_accepts_fair_queues_one_queue_and_losses(model: Model, tmp_path: Path) -> None:
    for name in ("gossip htb", "gossip deep", "gossip wan"):
        assert accepted(next(case for case in CASES if case.name == name), model, tmp_path)


def test_there_are_eight_networks_of_every_kind_and_six_schemes_on_each() -> None:
    assert len(NETS) >= 8
    for net in NETS:
        assert len({case.scheme for case in CASES if case.net.name == net.name}) >= 6
    assert {net.loss for net in NETS} >= {0.0, 0.001, 0.005, 0.01, 0.02}
    assert {net.discipline for net in NETS} == {"htb", "tbf"}
    assert len(TWELVE.below(12)) == 5


def test_the_way_between_two_nodes_goes_by_what_both_are_below() -> None:
    net = Net("x", "htb", [9.0] * 5, [9.0] * 5, above=[ROUTER, 4, 4, 1, ROUTER], routers=1)
    assert net.nodes == 4
    assert net.links(3, 2) == [(3, True), (1, True), (2, False)]
    assert net.links(0, 3) == [(0, True), (4, False), (1, False), (3, False)]
    assert net.subtree(4) == [1, 2, 3, 4]


def test_clients_are_below_an_edge_that_is_where_they_were() -> None:
    assert [below_edges(TWELVE, (10, 11)).over(i) for i in range(13)] == [-1, *[10] * 5, *[11] * 4, -1, 12, -1]
    assert [below_edges(FAST, (2, 3)).over(i) for i in range(4)] == [-1, 3, -1, -1]


def test_windows_are_asked_for_as_the_queues_are() -> None:
    fifo = Case("fedavg", Net("x", "tbf", [2] * 3, [2] * 3, buffer=40_000))
    fair = Case("gossip", Net("x", "htb", [2] * 3, [2] * 3, queue=10))
    assert fifo.tells_apart(TCP).sharing == "tcp_fifo"
    assert fair.tells_apart(REPLAYED) == fair.tells_apart(TCP) == TCP
    assert fair.tells_apart(PLAIN) == PLAIN


def test_a_part_that_the_kernel_lacks_is_lacking_in_the_emulation(tmp_path: Path) -> None:
    whole = next(case for case in CASES if case.name == "fedavg fat")
    for kernel, lacking in ((Kernel(), {}), (Kernel(idle_restart=False, window=400),
                                             {"idle_restart": False, "initial_window": 400}),
                            (Kernel(hystart=False), {"hystart": False}), (Kernel(acks=False), {})):
        case = replace(whole, net=replace(whole.net, kernel=kernel))
        text = scenario(case, tmp_path, declared(case, tmp_path / "trace.csv"), case.tells_apart(TCP))
        found = wired(text, 1, PLUGINS).network
        router, server = (list(found.names).index(name) for name in ("n1", "n2"))
        assert found.stated(server, router).transport == replace(
            TcpStack(buffer_bytes=whole.net.queue * FRAME), **lacking)


def test_no_two_cases_have_one_name() -> None:
    assert len({case.name for case in [*CASES, *PARTS]}) == len(CASES) + len(PARTS)


def test_the_recorded_trace_has_every_computation_at_its_node_in_order(tmp_path: Path) -> None:
    rows: list[Row] = [(R.COMPUTE, 0, 1, "train", 2_000_000_000, 0.0, 1), (R.COMPUTE, 5, 0, "aggregate", 7, 0.0, 1),
                       (R.COMPUTE, 9, 1, "train", 1_500_000_000, 0.0, 2)]
    file = recorded(Case("fedavg", FAST), rows, tmp_path / "trace.csv")
    assert file.read_text().split() == ["node,label,seconds", "n3,train,2.000000000", "n2,aggregate,0.000000007",
                                        "n3,train,1.500000000"]


def test_a_fair_link_has_a_leaf_a_flow_and_a_fifo_link_one_queue() -> None:
    net = Net("x", "htb", [2] * 3, [2] * 3)
    up, down = namespaces.crossing(net, 0)
    assert (up, down) == ([(0, 1), (0, 2)], [(1, 0), (2, 0)])
    fair = namespaces.shaping(net, "eth0", 2, up)
    assert sum(" parent 1:1 classid 1:1" in line for line in fair) == 2
    assert [line.split()[-1] for line in fair if line.startswith("filter")] == ["1:10", "1:11"]
    assert all("ceil 2000kbit" in line for line in fair if line.startswith("class"))
    apart = namespaces.shaping(replace(net, kernel=Kernel(acks=False)), "eth0", 2, up)
    assert [line for line in apart if line not in fair] == [
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match u16 0 0xff80 at 2 flowid 1:0"]
    assert namespaces.shaping(Net("x", "tbf", [2] * 3, [2] * 3, buffer=40_000), "eth0", 2, up) == [
        "qdisc add dev eth0 root handle 1: tbf rate 2000kbit burst 3528 limit 40000"]


def test_flows_that_cross_a_shared_link_are_those_from_below_it_to_the_others() -> None:
    up, down = namespaces.crossing(TWELVE, 12)
    assert len(up) == len(down) == 5 * 7
    assert {one for one, _ in up} == {6, 7, 8, 9, 11} == {other for _, other in down}


# --- what the relay has lost ----------------------------------------------------------------------------------------

def packet(source: int, number: int, size: int, flags: int = 0x10) -> bytes:
    """IPv4 and TCP without options, as a TUN device has it."""
    ip = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 79, source, 2, 10, 79, 0, 2])
    tcp = (5000).to_bytes(2, "big") + (7100).to_bytes(2, "big") + (number % 2**32).to_bytes(4, "big") + bytes(4)
    return ip + tcp + bytes([5 << 4, flags]) + bytes(6) + bytes(size)


@pytest.mark.machine
def test_the_relay_drops_packets_of_data_by_their_number_and_says_which() -> None:
    watch = Watch((1 << 2 | 1 << 3).to_bytes(1, "little"))
    begin = 2**32 - 3                               # sequence numbers wrap
    said = [watch.drops(one) for one in (
        packet(1, begin - 1, 0, 0x02), packet(1, begin, 4), packet(1, begin + 4, 1448), packet(1, begin + 4, 0),
        packet(1, begin + 1452, 1448), packet(1, begin + 2900, 100), packet(1, begin + 1452, 1448))]
    assert said == [False, False, False, False, True, True, False]
    assert watch.seen == {("10.79.1.2", "10.79.0.2", 5000): [(0, 1448, 0), (1448, 1448, 1), (2896, 100, 1),
                                                             (1448, 1448, 0)]}


def test_what_was_lost_is_told_by_message_and_transmission(tmp_path: Path) -> None:
    sizes = [3000 - ENVELOPE_BYTES, 100 - ENVELOPE_BYTES, 2000 - ENVELOPE_BYTES]
    rows: list[Row] = [(R.SEND, 1, 1, seq, 0, "Update", size, 0, 1, -1, -1) for seq, size in zip((4, 7, 9), sizes,
                                                                                            strict=True)]
    packets = [[0, 1448, 0], [1448, 1448, 1], [2896, 104, 0], [1448, 1448, 1], [3000, 100, 0], [3100, 1448, 0],
               [1448, 1448, 0], [4548, 552, 1], [4548, 552, 0], [5100, 16, 1]]
    lost = dropped_of({1: [["10.79.1.2", "10.79.0.2", 5000, packets]]}, rows, 2)
    assert lost == [[1, 1, 0, 1, 0, [1, 3]], [1, 1, 0, 1, 1, []], [1, 1, 0, 1, 2, [1]]]
    assert replayed(Case("fedavg", FAST), lost, tmp_path / "lost.csv").read_text().split() == [
        "source,destination,what,round,k,value,sender,receiver", "n3,n1,lost_packet,1,0,1,n3,n2",
        "n3,n1,lost_packet,1,0,3,n3,n2", "n3,n1,lost_packet,1,1,,n3,n2", "n3,n1,lost_packet,1,2,1,n3,n2"]


@pytest.mark.machine
def test_an_emulation_loses_what_the_relay_has_dropped(trained: tuple[Case, Measured]) -> None:
    case, measured = trained
    lossy = replace(case, net=replace(case.net, delay_ms=[20.0] * NODES, loss=0.001))
    lost = [[k, k, 0, number, 0, []] for k in range(1, NODES) for number in range(1, 4)]
    clean = emulate(lossy, replace(measured, lost=lost), REPLAYED)
    lost[0] = [1, 1, 0, 1, 0, [5, 6]]
    dropped = emulate(lossy, replace(measured, lost=lost), REPLAYED)
    assert [row[4:] for row in of(clean, R.RESENT)] == []
    assert {row[2] for row in of(dropped, R.RESENT)} == {1}


# --- what is predicted ----------------------------------------------------------------------------------------------

STAR = Net("star", "htb", [10, 8, 4], [10, 8, 4], [10, 10, 20])


def test_the_formulas_of_others_by_hand() -> None:
    case = Case("fedavg", STAR, train_s=1.0, slow={2: 2.0})
    # 3.2 Mbit: at 8 Mbit/s 0.4 s and 20 ms; at 4 Mbit/s 0.8 s and 30 ms
    assert others.analytic(case) == pytest.approx(2 * 0.83 + 2)
    assert others.appfl(case) == pytest.approx(2 + 2 * 3.2e6 / 1024**2 / 4)
    first, second = 13.01 * 0.02 + 0.4 / 0.97, 13.01 * 0.03 + 0.8 / 0.97
    assert others.feddes(case) == pytest.approx(max(first + second + 2, first + 1 + first) + second)
    buffered = replace(case, scheme="fedbuff")
    assert others.analytic(buffered) == pytest.approx(3 / (1 / (2 * 0.42 + 1) + 1 / (2 * 0.83 + 2)))
    assert others.feddes(buffered) is None
    # stages of secure aggregation: three more ways there and back of the farthest
    assert others.analytic(replace(case, scheme="secagg")) == pytest.approx(2 * 0.83 + 2 + 3 * 0.06)
    # on a ring of three everybody waits for the farther one of two
    assert others.analytic(replace(case, scheme="gossip")) == pytest.approx(0.83 + 2)
    below = replace(case, scheme="hierarchical", edges=(2,), net=below_edges(STAR, (2,)))
    assert others.analytic(below) == pytest.approx(2 * 0.83 + 2 * (2 * 0.41 + 1))


def test_a_prediction_is_written_once_and_tells_whether_it_still_is_what_it_was(tmp_path: Path) -> None:
    said = Prediction("fedavg htb", "analytic", [[1.0, 2.0], [3.0]], "", "abc", "def", "2026-01-02T03:04:05+00:00")
    said.keep(tmp_path / "one.json")
    assert Prediction.read(tmp_path / "one.json") == (said, True)
    assert said.mean_s == 2.0
    with pytest.raises(FileExistsError):
        said.keep(tmp_path / "one.json")
    (tmp_path / "one.json").write_text((tmp_path / "one.json").read_text().replace("3.0", "3.1"))
    assert not Prediction.read(tmp_path / "one.json")[1]


def test_a_prediction_counts_only_if_the_deployment_knew_it() -> None:
    said = Prediction("fedavg htb", "analytic", [[1.0]], "", "abc", "def", "2026-01-02T03:04:05+00:00")
    later, known = "2026-01-02T03:05:00+00:00", {"analytic": said.digest}
    assert standing(said, True, later, known) == BEFORE
    assert standing(said, False, later, known) == CHANGED
    assert standing(replace(said, rounds=[[2.0]]), True, later, known) == CHANGED
    assert standing(said, True, later, {}) == AFTER
    assert standing(said, True, "2026-01-02T03:04:00+00:00", known) == AFTER
    assert standing(None, True, later, known) == NONE


def test_a_prediction_is_an_emulation_with_what_a_calibration_has_found(tmp_path: Path,
                                                                        trained: tuple[Case, Measured]) -> None:
    case, measured = trained
    costs = predictions.costs_of(case, measured.rows)
    assert set(costs) == {"server", "client"}
    text = Path(declared(replace(case, train_s=0.5), tmp_path / "trace.csv", costs) or "").read_text().split()
    assert [line for line in text if line.startswith("n2,")] == [
        "n2,train,0.450000000", "n2,train,0.500000000", "n2,train,0.550000000",
        f"n2,aggregate,{costs['server']['aggregate']:.9f}"]
    slow = Case("fedavg", STAR, "deadline: 60 s", 2, train_s=0.5, slow={})
    said, = predictions.of_models(slow, {"server": {"aggregate": 0.25}}, [PLAIN])
    plain, = predictions.of_models(slow, {}, [PLAIN])
    assert [len(seed) for seed in said.rounds] == [2]
    assert said.mean_s == pytest.approx(plain.mean_s + 0.25)
    assert said.scenario != plain.scenario


# --- what is compared -----------------------------------------------------------------------------------------------

def test_a_round_lasts_from_the_end_of_the_one_before_until_the_last_decider_has_left_it() -> None:
    rows: list[Row] = [(R.LEAVE, 10**9, 0, 1, ""), (R.LEAVE, 3 * 10**9, 1, 1, ""), (R.LEAVE, 9 * 10**9, 2, 1, ""),
                       (R.LEAVE, 4 * 10**9, 0, 2, ""), (R.LEAVE, 5 * 10**9, 1, 2, "")]
    assert compare.round_times(rows, {0, 1}) == [3.0, 2.0]


def test_a_node_is_in_its_round_from_entering_until_leaving() -> None:
    rows: list[Row] = [(R.ENTER, 1, 0, 1), (R.LEAVE, 10**9 + 1, 0, 1, ""), (R.ENTER, 2, 0, 2), (R.ENTER, 3, 0, 0)]
    assert compare.node_times(rows) == {(0, 1): 1.0}


def test_an_error_is_relative_to_what_was_measured() -> None:
    assert compare.errors([1.1, 0.9, 5], [1, 1]).tolist() == pytest.approx([0.1, -0.1])
    assert compare.node_errors({(0, 1): 2.0, (1, 1): 9.0}, {(0, 1): 1.0, (2, 1): 1.0}).tolist() == [1.0]


def test_cases_in_another_order_are_named_with_how_far_apart_they_were_measured() -> None:
    measured = {"a": 1.0, "b": 1.1, "c": 3.0}
    assert compare.ranking(measured) == ["a", "b", "c"]
    assert compare.swapped({"a": 1.2, "b": 1.1, "c": 3.0}, measured) == [("a", "b", pytest.approx(0.1))]
    assert compare.kendall({"a": 3, "b": 2, "c": 1}, measured) == -1
    assert compare.kendall(measured, measured) == 1


def test_without_a_pair_of_cases_there_is_no_order() -> None:
    assert isnan(compare.kendall({"a": 1.0}, {"a": 2.0}))


def test_laws_of_rounds_are_compared_by_their_distribution_functions() -> None:
    assert compare.law([1.0, 2, 3, 4, 5]) == pytest.approx([2, 3, 4, 4.6])
    assert compare.distance([1.0, 2.0], [1.0, 2.0]) == 0
    # 1 and 2 are below both samples of the other; each of these two is told from the other one alone
    assert compare.distances([[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [3.0, 9.0]]) == [1.0, 0.0]


FACTS = {"dropped": 3, "busy": 0.5, "others": 0.01, "machine": "one core", "date": "2026-01-02", "revision": "abc",
         "code": "def", "began": "2026-01-02T03:05:00+00:00", "lost": 2}


def deployment(case: str, repeat: int, measured: list[float], emulated: list[float]) -> Compared:
    names = [model.name for model in MODELS]
    return Compared(case, repeat, {"measured": measured, **dict.fromkeys(names, emulated)},
                    {name: [0.01, -0.03] for name in names}, (5, 5), (7, 6), FACTS)


def predicted(case: str, *seeds: list[float], predictor: str = TCP.name) -> tuple[Prediction, str]:
    return Prediction(case, predictor, list(seeds), "", "abc", "def", "2026-01-02T03:04:05+00:00"), BEFORE


def test_tables_are_made_of_what_was_written(tmp_path: Path) -> None:
    write([deployment("fedavg htb", 0, [1.0, 2.0], [1.0, 2.1]), deployment("gossip tbf", 0, [1.0, 2.0], [1.0, 2.0]),
           deployment("gossip tbf", 1, [1.1, 2.0], [1.1, 2.0])], tmp_path)
    late = predicted("gossip tbf", [1.0, 2.4])[0]
    predictions.write([predicted("fedavg htb", [1.0, 2.0]), (late, AFTER), predicted("fedavg htb", [3.0],
                                                                                    predictor="analytic")], tmp_path)
    assert pages.table_of_predictions(tmp_path).splitlines()[2:] == [
        "| `htb` | 1.500, 1.500, +0.0% |  |", "| `tbf` |  | 1.525, 1.700†, **+11.5%** |"]
    text = pages.tables(tmp_path)
    assert ("| fedavg htb | 1 times | 2 | 1.500 | 1.500 | 0.0% | 0.0% | 1.550 | **2.5%** | 4.5% | 2.0% | 0.000 "
            "| equal |") in text
    assert "| sizes over rates plus latency | 100.0% |  | 100.0% | 100.0% |  |  |" in text
    assert "| `sharing: connections` | **2.5%**, 4.5% | 0.0%, 0.0% | 0.0%, 2.5% | -1.00 |  |" in text
    assert "| one core | 2026-01-02 | abc | 3 | 50% to 50% | 1.0% |" in text
    assert "| abc | 2 before, 1 afterwards |" in text


def test_a_round_that_ends_with_whoever_is_first_is_judged_by_its_law(tmp_path: Path) -> None:
    write([deployment("fedbuff htb", 0, [1.0, 2.0], [1.0, 3.0]), deployment("fedbuff htb", 1, [3.0, 4.0], [1.0, 3.0])],
          tmp_path)
    predictions.write([predicted("fedbuff htb", [1.0, 3.0], [1.0, 3.0])], tmp_path)
    text = pages.tables(tmp_path)
    assert "| fedbuff htb | 2 times | 4 | 2.500 | 2.000 |  |  | 2.000 |  |  |  |" in text
    assert ("| fedbuff htb | 2 times | 1.75 2.50 3.25 | 3.70 | 1.00 2.00 3.00 | 3.00 | 0.25 | 1 | 1.00 | 0.50 |"
            in text)


def test_a_part_that_is_taken_away_stands_below_the_case_as_it_is_and_nowhere_else(tmp_path: Path) -> None:
    write([deployment("gossip far", 0, [2.0, 2.0], [1.0, 1.0]),
           deployment("gossip far, acknowledgements apart", 0, [1.0, 1.0], [1.0, 1.0])], tmp_path)
    predictions.write([predicted("gossip far", [1.0, 1.0])], tmp_path)
    lines = pages.tables(tmp_path).splitlines()
    assert [line for line in lines if "gossip far" in line][1:] == [
        "| gossip far | as it is | 2.000 | 1.000 | -50.0% |",
        "| gossip far | acknowledgements apart | 1.000 | 1.000 | +0.0% |"]
    assert "| `sharing: connections` | **50.0%**, **50.0%** | **50.0%**, **50.0%** |  |  |" in lines


def test_rows_of_cases_that_were_not_measured_again_stay(tmp_path: Path) -> None:
    write([deployment("fedavg htb", 0, [1.0], [1.0]), deployment("fedbuff far", 0, [2.0], [2.0])], tmp_path)
    write([deployment("fedbuff far", repeat, [3.0], [3.0]) for repeat in (0, 1)], tmp_path)
    with (tmp_path / "deployment_rounds.csv").open() as f:
        assert [(line["case"], line["repeat"], line["measured"]) for line in csv.DictReader(f)] == [
            ("fedavg htb", "0", "1.0"), ("fedbuff far", "0", "3.0"), ("fedbuff far", "1", "3.0")]


@pytest.mark.slow
def test_one_case_alone_is_predicted_and_compared_and_a_late_prediction_is_said(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("fedavg", FAST, "deadline: 60 s", 2, train_s=0.02)
    monkeypatch.setattr(command, "CASES", [case])
    monkeypatch.setitem(pages.BY_NAME, case.name, case)
    for module in (command, predictions):
        monkeypatch.setattr(module, "PREDICTING", (PLAIN,))
    monkeypatch.setattr(pages, "BEST", PLAIN)
    command.main(["predict", str(tmp_path), "--only", "loopback"])
    known = predictions.known_of(tmp_path, case.name)
    assert set(known) == {"analytic", "appfl", "feddes", PLAIN.name}
    measured = on_loopback(case, ports(NODES))
    replace(measured, began="2999-01-01T00:00:00+00:00", predictions={**known, "appfl": "another"}).keep(
        tmp_path / "fedavg-loopback-1.json")
    monkeypatch.setattr("benchmarks.deployment.runs.MODELS", (PLAIN,))
    monkeypatch.setattr(pages, "MODELS", (PLAIN,))
    monkeypatch.setattr("benchmarks.deployment.runs.BEST", PLAIN)
    capsys.readouterr()
    command.main(["compare", str(tmp_path), "--only", "loopback"])
    said = capsys.readouterr().out
    assert "| fedavg loopback | 1 times | 2 |" in said
    assert "by appfl was made or changed after the deployment (changed)" in said
    assert "by analytic was" not in said
    command.main(["predict", str(tmp_path), "--only", "loopback"])          # what is predicted is not predicted again
    assert predictions.known_of(tmp_path, case.name) == known


def test_a_directory_without_deployments_of_a_case_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no deployment of a case whose name contains 'htb'$"):
        command.main(["compare", str(tmp_path), "--only", "htb"])


def test_all_first_deployments_come_before_any_second(tmp_path: Path) -> None:
    repeats = [repeat for _, repeat, _ in command.files(tmp_path, "")]
    assert repeats == sorted(repeats)
    assert max(repeats) >= 4
    assert all(case.repeats >= 5 for case in CASES if case.asynchronous)


def test_every_run_says_when_where_and_of_what_it_is() -> None:
    runs = pd.read_csv(pages.HOME / "data" / RUNS)
    assert runs[["machine", "date", "revision", "code", "busy"]].notna().all().all()
    assert not runs["code"].str.endswith("+").any()         # nothing was changed after its commit


def test_the_page_has_every_case_of_the_committed_data_with_its_mean_round() -> None:
    lines = document.read(pages.PAGE).splitlines()
    rounds = pages.committed()
    for case, measured in pages.means(rounds).items():
        times = rounds[rounds["case"] == case]["repeat"].nunique()
        assert any(line.startswith(f"| {case} | {times} times |") and f" {measured:.3f} " in line for line in lines)


def test_the_page_has_the_tables_of_the_committed_data() -> None:
    if not (pages.HOME / "data" / predictions.PREDICTIONS).exists():
        pytest.skip("what is committed was measured before deployments were predicted")
    text = document.read(pages.PAGE)
    assert pages.table_of_predictions(pages.HOME / "data") in text
    assert pages.tables(pages.HOME / "data") in text


def test_the_page_of_flower_has_the_table_of_its_rows_and_predictions_are_older_than_deployments() -> None:
    rows = superlink.Table(superlink.TABLE, superlink.costs).rows
    assert superlink.page(rows) in document.read(superlink.PAGE)
    made = {source: {(row["app"], row["network"]): row["made"] for row in rows if row["source"] == source}
            for source in (superlink.SUPERLINK, superlink.DEPLOYED)}
    assert len(made[superlink.DEPLOYED]) > 1
    assert all(made[superlink.SUPERLINK][cell] < when for cell, when in made[superlink.DEPLOYED].items())


def test_filling_the_page_again_leaves_it_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / pages.PAGE.name
    shutil.copy(pages.PAGE, page)
    shutil.copytree(pages.PAGE.with_suffix(""), page.with_suffix(""))
    monkeypatch.setattr(pages, "PAGE", page)
    pages.fill()
    assert page.read_text(encoding="utf-8") == (pages.ROOT / "docs" / page.name).read_text(encoding="utf-8")
    apart = {file.name: file.read_bytes() for file in page.with_suffix("").iterdir()}
    assert apart == {file.name: file.read_bytes() for file in (pages.ROOT / "docs" / page.stem).iterdir()}


def test_rounds_in_step_over_links_without_loss_are_as_near_as_the_page_says() -> None:
    rounds = pages.committed()
    shaped = rounds[~pages.asynchronous(rounds) & pages.networks(rounds).isin(["htb", "tbf", "dsl"])]
    error = pages.off(shaped, PLAIN.name)
    assert error.median() <= pages.MEDIAN
    assert error.quantile(0.9) <= pages.MOST
    assert shaped["case"].nunique() >= 6
    pairs = compare.swapped(pages.means(shaped, PLAIN.name), pages.means(shaped, "measured"))
    assert [(x, y) for x, y, apart in pairs if apart > 0.001] == []         # below it they are ties


# --- over network namespaces ----------------------------------------------------------------------------------------

SMALL = Net("small", "htb", [20] * 3, [20] * 3)
WHOLE = Model("fifo", "packetized")


@pytest.fixture(scope="module")
def root() -> None:
    reason = namespaces.missing()
    if reason is not None:
        pytest.skip(reason)


def left_over(process: int | None = None) -> str:
    """Namespaces of deployments of a process, this one by default: others may deploy, too."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    mine = re.compile(rf"emuldep{process or os.getpid()}(r|n\d+)\b")
    return "\n".join(line for line in listed.splitlines() if mine.match(line))


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("net", [SMALL, Net("fifo", "tbf", [20] * 3, [20] * 3),
                                 Net("far", "htb", [20] * 3, [20] * 3, [2.0] * 3)], ids=lambda net: net.name)
def test_a_shaped_deployment_is_no_faster_than_its_emulation_and_leaves_nothing(net: Net) -> None:
    case = Case("fedavg", net, "deadline: 60 s", 3, train_s=0.1, slow={})
    measured = measure(case)
    found = compared(case, measured, [PLAIN, WHOLE])
    assert found.sent[0] == found.sent[1]
    # The kernel lets through what it is told to, but for a burst; how much slower all is depends on the machine. In one
    # queue TCP gives one flow more than the other, in any round: the client that has its model first sends while the
    # other still receives, at best as if messages went one after another.
    real, emulated = found.rounds["measured"], found.rounds[PLAIN.name]
    least = emulated if net.discipline == "htb" else found.rounds[WHOLE.name]
    assert all(one > 0.95 * other for one, other in zip(real, least, strict=True))
    assert found.wire[0] >= found.wire[1]               # acknowledgements, too
    assert left_over() == ""


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
@pytest.mark.usefixtures("root")
def test_switches_of_the_kernel_are_set_in_every_node() -> None:
    def said(*words: str) -> list[str]:
        return [subprocess.run(["ip", "netns", "exec", namespaces.namespace(i), *words], capture_output=True, text=True,
                               check=True).stdout.strip() for i in range(3)]

    with namespaces.built(replace(SMALL, kernel=Kernel(idle_restart=False, window=400))):
        assert said("sysctl", "-n", "net.ipv4.tcp_slow_start_after_idle") == ["0"] * 3
        assert all("initcwnd 400 initrwnd 400" in route for route in said("ip", "route", "show", "default"))
    if namespaces.HYSTART.exists():
        before = namespaces.HYSTART.read_text()
        with namespaces.built(replace(SMALL, kernel=Kernel(hystart=False))):
            assert namespaces.HYSTART.read_text().strip() == "0"
        assert namespaces.HYSTART.read_text() == before
    with namespaces.built(SMALL):
        assert said("sysctl", "-n", "net.ipv4.tcp_slow_start_after_idle") == ["1"] * 3
        assert all("initcwnd" not in route for route in said("ip", "route", "show", "default"))


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.usefixtures("root")
def test_an_interrupt_takes_everything_away(tmp_path: Path) -> None:
    run = subprocess.Popen([sys.executable, "-m", "benchmarks.deployment", "measure", str(tmp_path), "--only",
                            "fedavg wan"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           cwd=Path(__file__).resolve().parents[2])
    try:
        until = time.monotonic() + 60
        while not left_over(run.pid):
            assert run.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        run.wait(60)
    finally:
        run.kill()
    assert left_over(run.pid) == ""
