"""What a peer sends that is not what its type, the protocol or a limit says: rejected, counted, never the run's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import NothingToReceive, ProtocolViolation, RoleFailed, TimedOut
from emul.network import LinkRule
from emul.roles import Message, Node, Scheme, Vector
from emul.scenario import Behaviour, Limits, Stop
from emul.testing import MS, NoParams, Ran, Shuffled, run_world


@dataclass(frozen=True)
class Update(Message):
    delta: Vector
    samples: int = 1


@dataclass(frozen=True)
class Go(Message):
    pass


@dataclass(frozen=True)
class Strange(Message):
    """No type of the scheme."""

    number: int = 0


MESSAGES = (Go, Update)


def good(samples: int = 1) -> Update:
    return Update(np.ones(4, np.float32), samples)


def four(update: Update) -> None:
    if update.delta.shape != (4,):
        raise ProtocolViolation(f"delta of shape {update.delta.shape}, expected (4,)")


Behave = Callable[[Node], Any]


def world_of(bad: Behave, read: Callable[[Node], Any], honest: Behave | None = None, deviates: bool = True,
             **how: Any) -> Ran:
    """A server calls its clients and reads as it is told; client1 behaves as it is told, the others well."""
    def client(act: Behave) -> Any:
        async def role(node: Node, p: Any) -> None:
            async for round_ in node.rounds(of=node.server):
                with round_:
                    await node.recv(Go, node.server)
                    found = act(node)
                    if found is not None:
                        await found
        return role

    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Go())
                await read(node)

    def well(node: Node) -> None:
        node.send(node.server, good())

    scheme = Scheme(params=NoParams, roles={"server": server, "client": client(honest or well)}, messages=MESSAGES,
                    behaviours={"client": {"bad": client(bad)}})
    world = run_world(scheme, faults=[Behaviour("client1", "bad")] if deviates else [], **how)
    assert not world.invariants.violations, world.invariants.text()
    return world


class Reader:
    """Gathers updates of all clients, and keeps from whom and when."""

    def __init__(self, **how: Any):
        self.how, self.found = how, []

    async def __call__(self, node: Node) -> None:
        got = await node.gather(Update, node.clients, **self.how)
        self.found.append((node.now_ns // MS, {n: m.samples for n, m in got.items()}))


def refused(world: Ran) -> list[tuple[str, str, int]]:
    return [(one["sender"], one["reason"], one["count"]) for one in world.summary["violations"]]


# --- judged where it is encoded -------------------------------------------------------------------------------------

BAD: dict[str, tuple[Any, str]] = {
    "NaN": (Update(np.array([1, np.nan, 1, 1], np.float32)), "delta: not finite"),
    "infinite": (Update(np.array([1, np.inf, 1, 1], np.float32)), "delta: not finite"),
    "dtype": (Update(np.ones(4)), "delta: float64, expected float32"),
    "dimensions": (Update(np.ones((2, 2), np.float32)), "delta: 2 dimensions, expected 1"),
    "text": (Update(np.ones(4, np.float32), "many"), "samples: Expected `int`, got `str`"),     # type: ignore
    "no array": (Update("zeros"), "delta: expected ndarray, got str"),                          # type: ignore
    "unknown type": (Strange(), "unknown message type 'Strange'"),
    "not to be encoded": (Update(object()), "Update cannot be encoded: "),                      # type: ignore
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("how", [{}, {"timeout_s": 1.0}])
def test_what_is_not_what_its_type_says_is_rejected_and_the_wait_goes_on(case: str, how: dict[str, Any]) -> None:
    message, reason = BAD[case]
    reader = Reader(**how)
    world = world_of(lambda node: node.send(node.server, message), reader)
    # without a timeout it counts as lost; of an unknown type it is learnt from the departure that nothing else comes
    assert reader.found == [(1000 if how else 20, {2: 1, 3: 1})]
    (sender, said, count), = refused(world)
    assert (sender, count) == ("client1", 1)
    assert said.startswith(reason)
    assert world.summary["messages_rejected"] == 1
    assert world.summary["messages_lost"] == 0


def test_its_bytes_and_its_time_are_spent_as_ever() -> None:
    links = [LinkRule("*", latency_ns=10 * MS, bandwidth_bps=8_000_000)]
    nan, sound = (Update(np.full(1000, value, np.float32)) for value in (np.nan, 1.0))
    worlds = [world_of(lambda node, m=m: node.send(node.server, m), Reader(), links=links) for m in (nan, sound)]
    sent = [[row for row in w.rows if row[0] == R.SEND] for w in worlds]
    assert [(row[1], row[6], row[7]) for row in sent[0]] == [(row[1], row[6], row[7]) for row in sent[1]]
    times = [[row[1] for row in w.rows if row[0] in (R.DELIVER, R.REJECT)] for w in worlds]
    assert times[0] == times[1]


def test_an_honest_role_that_diverges_leaves_its_round_with_the_reason() -> None:
    reader = Reader()
    world = world_of(lambda node: None, reader, deviates=False,
                     honest=lambda node: node.send(node.server, Update(np.full(4, np.nan, np.float32))
                                                   if node.name == "client1" else good()))
    assert reader.found == [(20, {2: 1, 3: 1})]
    assert [row[4] for row in world.of("client1", R.LEAVE)] == ["NotSendable: Update: delta: not finite"]
    assert not refused(world)


@pytest.mark.parametrize(("message", "said"), [
    (Update(np.ones(4)), r"Update: delta: float64, expected float32"),
    (Strange(), r"Strange is not in messages of the scheme"),
    ("text", r"a str cannot be sent: it is no Message")])
def test_a_mistake_of_an_honest_role_is_an_error_of_its_author(message: Any, said: str) -> None:
    with pytest.raises(RoleFailed, match=said):
        world_of(lambda node: None, Reader(), deviates=False, honest=lambda node: node.send(node.server, message))


# --- judged by the receiver -----------------------------------------------------------------------------------------

def wrong_shape(node: Node) -> None:
    node.send(node.server, Update(np.ones(1, np.float32)))


@pytest.mark.parametrize(("how", "known_ms"), [({}, 20), ({"timeout_s": 1.0}, 1000), ({"need": 2}, 20)])
def test_accept_refuses_one_and_the_others_are_there(how: dict[str, Any], known_ms: int) -> None:
    reader = Reader(accept=four, **how)
    world = world_of(wrong_shape, reader)
    assert reader.found == [(known_ms, {2: 1, 3: 1})]
    assert refused(world) == [("client1", "delta of shape (1,), expected (4,)", 1)]


def test_a_good_message_after_a_bad_one_counts() -> None:
    async def both(node: Node) -> None:
        wrong_shape(node)
        await node.sleep(0.2)
        node.send(node.server, good(7))

    reader = Reader(accept=four, timeout_s=1.0)
    world_of(both, reader)
    assert reader.found == [(220, {1: 7, 2: 1, 3: 1})]


def test_without_a_timeout_a_refused_message_is_a_lost_one_unless_another_is_under_way() -> None:
    def both(node: Node) -> None:
        wrong_shape(node)
        node.send(node.server, good(7))

    reader = Reader(accept=four)
    world_of(both, reader)
    assert reader.found == [(20, {1: 7, 2: 1, 3: 1})]


@pytest.mark.parametrize(("timeout_s", "error"), [(None, NothingToReceive), (0.5, TimedOut)])
def test_recv_ends_as_if_nothing_had_come(timeout_s: float | None, error: type[Exception]) -> None:
    seen: list[str] = []

    async def read(node: Node) -> None:
        try:
            await node.recv(Update, 1, timeout_s, accept=four)
        except error as e:
            seen.append(type(e).__name__)

    world_of(wrong_shape, read)
    assert seen == [error.__name__]


def test_recv_any_takes_the_next() -> None:
    seen: list[int] = []

    async def read(node: Node) -> None:
        for _ in range(2):
            seen.append((await node.recv_any(Update, timeout_s=1.0, accept=four)).sender)

    world = world_of(wrong_shape, read)
    assert seen == [2, 3]
    assert refused(world) == [("client1", "delta of shape (1,), expected (4,)", 1)]


def test_what_was_accepted_is_not_read_twice_when_the_round_is_over() -> None:
    """A wait that has handed over a good message and refused another is cut by a new round of a leader."""
    async def pair(node: Node) -> None:
        if node.round == 1:
            node.send(3, Update(np.ones(1, np.float32)))
        await node.sleep(0.001)

    kept: list[dict[int, int]] = []

    async def honest(node: Node) -> None:
        if node.name == "client2":
            node.send(3, good(node.round))
        elif node.round == 1:
            await node.gather(Update, [1, 2], timeout_s=5.0, accept=four)       # cut: client1 never sends a good one
        else:
            kept.append({n: m.samples for n, m in (await node.gather(Update, [2], accept=four)).items()})

    async def read(node: Node) -> None:
        await node.sleep(0.1)

    world_of(pair, read, honest, stop=Stop(rounds=2))
    assert kept == [{2: 2}]


@pytest.mark.parametrize("workers", [2, 3])
def test_rejections_are_the_same_for_any_number_of_workers(workers: int) -> None:
    def bad(node: Node) -> None:
        wrong_shape(node)
        node.send(node.server, BAD["NaN"][0])
        node.send(node.server, good(3))

    one = world_of(bad, Reader(accept=four, timeout_s=0.5), stop=Stop(rounds=3))
    several = world_of(bad, Reader(accept=four, timeout_s=0.5), stop=Stop(rounds=3), pool=Shuffled(workers, 5))
    assert one.digest == several.digest


# --- limits ---------------------------------------------------------------------------------------------------------

def test_a_message_beyond_the_limit_is_rejected() -> None:
    reader = Reader()
    world = world_of(lambda node: node.send(node.server, Update(np.ones(10_000, np.float32))), reader,
                     limits=Limits(max_message=1000))
    assert reader.found == [(20, {2: 1, 3: 1})]
    assert refused(world) == [("client1", "larger than max_message", 1)]


def test_of_a_flood_no_more_than_the_limit_lies_unread() -> None:
    def flood(node: Node) -> None:
        for _ in range(10_000):
            node.send(node.server, good())

    async def read(node: Node) -> None:
        await node.sleep(1.0)
        got = await node.gather(Update, node.clients)
        assert set(got) == {1, 2, 3}

    world = world_of(flood, read, limits=Limits(max_unread=100))
    assert refused(world) == [("client1", "more than max_unread messages unread", 9_900)]


@pytest.mark.slow
def test_a_reader_of_a_flood_is_in_no_endless_loop() -> None:
    def flood(node: Node) -> None:
        for _ in range(12_000):
            node.send(node.server, Update(np.ones(1, np.float32)))

    async def read(node: Node) -> None:
        await node.sleep(1.0)
        for _ in range(2):
            await node.recv_any(Update, timeout_s=1.0, accept=four)

    world = world_of(flood, read, limits=Limits(max_unread=20_000))
    assert refused(world) == [("client1", "delta of shape (1,), expected (4,)", 12_000)]
