"""Computations that are done together: who is with whom, whoever computes them; and what runs side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.learning.together import Together
from emul.network import LinkRule
from emul.roles import Message, Node
from emul.roles.events import Event, Fuse
from emul.scenario import Crash, FusedTraining, NodeSpeed, Stop
from emul.testing import MS, Ran, Shuffled, run_world
from emul.testing.world import scheme_of
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


MESSAGES = (Ask, Answer)


async def server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask(int(round_)))
            await node.gather(Answer, node.clients)


async def client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            ask = await node.recv(Ask, node.server)
            node.send(node.server, Answer(await node.compute("train", int, ask.number)))


async def impatient(node: Node, p: Any) -> None:
    """A round every 30 ms."""
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Ask(int(round_)))
            await node.sleep(0.03)


async def abandoning(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server, on_new_round="abandon"):
        with round_:
            node.send(node.server, Answer(await node.compute("train", int, 1)))


class Heard:
    """A pool that notes the groups that it is told of."""

    def __init__(self, pool: Any):
        self._pool, self.groups = pool, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def post(self, worker: int, event: Event) -> None:
        if isinstance(event, Fuse):
            self.groups.append(tuple(event.nodes))
        self._pool.post(worker, event)


def run(pool: Any, fuse: FusedTraining | None, roles: Any = None, **more: Any) -> tuple[Ran, list[tuple[int, ...]]]:
    heard = Heard(pool)
    world = run_world(roles or {"server": server, "client": client}, pool=heard, fuse=fuse, **more)
    return world, heard.groups


def test_clients_of_a_lane_that_compute_at_the_same_time_are_together() -> None:
    _, groups = run(Twin(), FusedTraining(10, 2), clients=6, costs={"train": 0.5})
    assert groups == [(1, 3, 5), (2, 4, 6)], "the server is node 0"


def test_no_more_than_asked_for_are_together() -> None:
    _, groups = run(Twin(), FusedTraining(2, 1), clients=5, costs={"train": 0.5}, stop=Stop(rounds=2))
    assert groups == [(1, 2), (3, 4), (5,)] * 2


def test_who_computes_without_cost_is_with_those_that_hear_of_it_within_the_lookahead() -> None:
    links = [LinkRule("*", latency_ns=10 * MS), LinkRule("server->client3", latency_ns=15 * MS),
             LinkRule("server->client4", latency_ns=40 * MS)]
    _, groups = run(Twin(), FusedTraining(10, 1), clients=4, links=links)
    assert groups == [(1, 2, 3), (4,)]


def test_slow_clients_are_trained_with_fast_ones_that_have_begun() -> None:
    _, groups = run(Twin(), FusedTraining(2, 1), clients=4, costs={"train": 0.5}, speeds=[NodeSpeed("client1", 0.1)])
    assert groups == [(2, 3), (4, 1)], "those that are due soonest, then who has begun"


def test_the_network_and_the_journal_are_those_of_clients_trained_one_by_one() -> None:
    alone, _ = run(Twin(), None, clients=5, costs={"train": 0.5}, stop=Stop(rounds=3))
    fused, _ = run(Twin(), FusedTraining(4, 2), clients=5, costs={"train": 0.5}, stop=Stop(rounds=3))
    assert fused.digest == alone.digest


def test_a_computation_that_is_cut_is_done_all_the_same() -> None:
    roles = {"server": impatient, "client": abandoning}
    world, groups = run(Twin(), FusedTraining(10, 1), roles, clients=3, costs={"train": 0.1}, stop=Stop(rounds=4))
    assert groups[0] == (1, 2, 3)
    assert world.digest == run(Twin(), None, roles, clients=3, costs={"train": 0.1}, stop=Stop(rounds=4))[0].digest


async def client_in_two_steps(node: Node, p: Any) -> None:
    """Nodes of even numbers begin with the one computation, the others with the other."""
    async for round_ in node.rounds(of=node.server):
        with round_:
            ask = await node.recv(Ask, node.server)
            labels = ("forward", "backward") if node.id % 2 else ("backward", "forward")
            for label in labels:
                await node.compute(label, int, ask.number)
            node.send(node.server, Answer(await node.compute("train", int, ask.number)))


@pytest.mark.parametrize(("batches", "expected"), [
    (True, [(1, 3), (2, 4), (1, 3), (2, 4), (1, 2, 3, 4)]), (False, [(1, 2, 3, 4)])])
def test_groups_are_of_one_label_and_passes_are_fused_where_batches_are_exchanged(
        batches: bool, expected: list[tuple[int, ...]]) -> None:
    costs = dict.fromkeys(("forward", "backward", "train"), 0.5)
    roles = replace(scheme_of({"server": server, "client": client_in_two_steps}), batches=batches)
    _, groups = run(Twin(), FusedTraining(10, 1), roles, clients=4, costs=costs)
    assert groups == expected


@settings(max_examples=20)
@given(clients=st.integers(1, 9), most=st.integers(2, 5), lanes=st.integers(1, 5),
       cost=st.sampled_from([0.0, 0.01, 0.3]),
       speeds=st.lists(st.sampled_from([0.2, 1.0, 3.0]), min_size=9, max_size=9),
       latencies=st.lists(st.integers(1, 60), min_size=9, max_size=9), crash=st.none() | st.integers(1, 900),
       back=st.none() | st.integers(1, 300), impatient_server=st.booleans())
def test_groups_do_not_depend_on_who_computes(clients: int, most: int, lanes: int, cost: float, speeds: list[float],
                                              latencies: list[int], crash: int | None, back: int | None,
                                              impatient_server: bool) -> None:
    roles = {"server": impatient, "client": abandoning} if impatient_server else {"server": server, "client": client}
    world: dict[str, Any] = {
        "clients": clients, "costs": {"train": cost}, "stop": Stop(rounds=4),
        "speeds": [NodeSpeed(f"client{i + 1}", speed) for i, speed in enumerate(speeds[:clients])],
        "links": [LinkRule("*", latency_ns=10 * MS), *(LinkRule(f"server->client{i + 1}", latency_ns=latency * MS)
                                                       for i, latency in enumerate(latencies[:clients]))],
        "faults": [] if crash is None else [Crash(crash * MS, "client1", back and back * MS)]}
    first, groups = run(Twin(), FusedTraining(most, lanes), roles, **world)
    assert all(len(group) <= most and len({node % lanes for node in group}) == 1 for group in groups)
    for pool in (Shuffled(2, 1), Shuffled(3, 2)):
        again, others = run(pool, FusedTraining(most, lanes), roles, **world)
        assert (again.digest, others) == (first.digest, groups)
    assert run(Twin(), None, roles, **world)[0].digest == first.digest


# --- side by side ---------------------------------------------------------------------------------------------------

def test_what_pieces_ask_for_is_done_together_by_key() -> None:
    calls: list[list[int]] = []

    def many(asked: Any) -> list[int]:
        calls.append(list(asked))
        return [10 * n for n in asked]

    together: Together[int, int] = Together(lambda n: n % 2, many)
    got: dict[int, list[int]] = {}

    def piece(number: int, times: int) -> None:
        assert together.running
        got[number] = [together.ask(number + k) for k in range(times)]

    spent = together.run([lambda n=n: piece(n, n) for n in range(4)])
    assert got == {0: [], 1: [10], 2: [20, 30], 3: [30, 40, 50]}
    assert calls == [[1, 3], [2], [4], [3], [5]]
    assert len(spent) == 4
    assert not together.running


def test_what_a_gpu_took_is_shared_by_those_who_asked() -> None:
    busy = [0]

    def many(asked: Any) -> list[int]:
        busy[0] += len(asked) * 10**12              # more than the CPU takes
        return list(asked)

    together: Together[int, int] = Together(lambda n: n % 2, many, lambda: busy[0])
    ask = together.ask
    assert together.run([lambda: None, lambda: ask(1), lambda: ask(3), lambda: ask(ask(2))])[1:] == [     # type: ignore
        10**12, 10**12, 2 * 10**12]


def test_an_error_of_what_is_done_together_reaches_all_who_asked() -> None:
    def many(asked: Any) -> list[int]:
        if 7 in asked:
            raise ValueError("seven")
        return list(asked)

    together: Together[int, int] = Together(lambda n: n // 5, many)
    seen: list[str] = []

    def piece(number: int) -> None:
        try:
            seen.append(str(together.ask(number)))
        except ValueError as error:
            seen.append(f"{number}: {error}")

    together.run([lambda n=n: piece(n) for n in (1, 6, 7)])
    assert sorted(seen) == ["1", "6: seven", "7: seven"]


def test_an_error_of_a_piece_is_raised() -> None:
    together: Together[int, int] = Together(lambda n: 0, list)
    with pytest.raises(ZeroDivisionError):
        together.run([lambda: None, lambda: 1 // 0])     # type: ignore[list-item, return-value]
    assert not together.running
