"""Every scheme survives what one of its clients, or one of its servers where it has several, may send.

The node takes part as an honest one would, so that it is asked and answers, but what it sends is spoilt on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base import rows as R
from emul.protocols.alignment import Aligned
from emul.registry import schemes
from emul.roles import Message, Node
from emul.scenario import Behaviour, Limits, Scenario, loads
from emul.testing import Ran
from emul.testing.world import run_wiring
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Strange(Message):
    """No type of any scheme."""

    number: int = 0


Spoil = Callable[[Message], Iterable[Any]]


def fields_of(message: Message) -> dict[str, Any]:
    return {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}     # type: ignore[arg-type]


def changed(message: Message, change: Callable[[Any], Any]) -> Message:
    """The message with every field changed; its class's own checks are not asked."""
    found = object.__new__(type(message))
    for name, value in fields_of(message).items():
        object.__setattr__(found, name, change(value))
    return found


def other_fields(message: Message) -> Message:
    """A message of the same name and other fields."""
    cls = dataclass(frozen=True)(type(type(message).__name__, (Message,), {"__annotations__": {"x": int, "y": str},
                                                                           "unscoped": message.unscoped}))
    return cls(1, "two")


def dtype(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.int16 if value.dtype == np.float64 else np.float64)
    return value


def shape(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[:1].reshape((1,) * value.ndim)
    if isinstance(value, (bytes, str, list, tuple)):
        return value[:1]
    return {} if isinstance(value, dict) else value


def longer(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.concatenate([value] * 3) if value.ndim else value
    return value * 3 if isinstance(value, (bytes, str, list, tuple)) else value


def nan(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.full_like(value, np.nan)
    return float("nan") if isinstance(value, float) else value


def absurd(value: Any) -> Any:
    """Of the right type, and of values that nobody sends."""
    if isinstance(value, np.ndarray):
        return np.full_like(value, 255 if value.dtype == np.uint8 else 3e38 if value.dtype.kind == "f" else
                            np.iinfo(value.dtype).max)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return 10**400
    return b"\xff" * len(value) if isinstance(value, bytes) else value


def zero(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.zeros_like(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return -1
    return bytes(len(value)) if isinstance(value, bytes) else value


def wrong_type(value: Any) -> Any:
    return "text" if not isinstance(value, str) else 7


def huge(message: Message) -> Message:
    """100 MB in the first field that can hold them."""
    values = fields_of(message)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.ndim:
            values[name] = np.zeros((100_000_000 // value.dtype.itemsize // max(1, int(np.prod(value.shape[1:]))),
                                     *value.shape[1:]), value.dtype)
            break
        if isinstance(value, bytes):
            values[name] = bytes(100_000_000)
            break
    found = object.__new__(type(message))
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def each(change: Callable[[Any], Any]) -> Spoil:
    return lambda message: [changed(message, change)]


SPOILS: dict[str, Spoil] = {
    "unknown types": lambda message: [Strange()], "wrong fields": lambda message: [other_fields(message)],
    "wrong types": each(wrong_type), "dtype": each(dtype), "shape": each(shape), "longer": each(longer),
    "NaN": each(nan), "absurd values": each(absurd), "zeros": each(zero)}


def rotation(message: Message) -> Iterator[Any]:
    """All of them at once, one after the other; the sound message comes last."""
    for spoil in SPOILS.values():
        yield from spoil(message)
    yield message


ALL = {"rotation": rotation, **SPOILS}


class Spoilt:
    """A node whose messages are spoilt on the way out."""

    def __init__(self, node: Node, spoil: Spoil, times: int, rounds: tuple[int, ...]):
        self._node, self._spoil, self._times, self._rounds = node, spoil, times, rounds
        self._floods = 4                        # of its messages are sent so often, then each is sent once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def send(self, target: int, message: Message) -> None:
        self.broadcast([target], message)

    def broadcast(self, targets: Iterable[int], message: Message) -> None:
        to, memory = list(targets), self._node._desk.memory
        now = memory.round
        for bad in self._spoil(message):
            for other in self._rounds or (0,):
                memory.round = max(0, now + other)
                for _ in range(self._times if self._floods > 0 else 1):
                    self._node.broadcast(to, bad)
        self._floods -= 1
        memory.round = now


def example(name: str) -> Scenario:
    scenario: Scenario = loads(schemes.find(name).example, name)
    return dataclasses.replace(scenario, stop=dataclasses.replace(scenario.stop, rounds=2, virtual_time_ns=60 * 10**9))


def hostile(name: str, role: str, spoil: Spoil, times: int = 1, rounds: tuple[int, ...] = (),
            limits: Limits = Limits()) -> tuple[Ran, str]:     # noqa: B008
    """The scheme's example with its last node of a role spoilt; and that node's name."""
    honest = schemes.find(name)

    async def bad(node: Node, p: Any) -> None:
        await honest.roles[role](Spoilt(node, spoil, times, rounds), p)

    scheme = dataclasses.replace(honest, behaviours={role: {"hostile": bad}})
    scenario = example(name)
    with schemes.lend(name, scheme):
        wiring = engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1)
        setup = wiring.setups[0]
        who = setup.names[setup.roles[role][-1]]
        scenario = dataclasses.replace(scenario, limits=limits, faults=[*scenario.faults, Behaviour(who, "hostile")])
        world = run_wiring(engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1), Twin())
    assert not world.invariants.violations, world.invariants.text()
    return world, who


def survives(world: Ran, who: str) -> set[str]:
    """Nobody else is blamed, but by the hostile node itself. Returns the reasons."""
    names = world.header["names"]
    target = {(row[2], row[3]): row[4] for row in world.rows if row[0] == R.SEND}
    found = [(names[row[2]], row[4]) for row in world.rows
             if row[0] == R.REJECT and names[target[row[2], row[3]]] != who]
    assert {sender for sender, _ in found} <= {who}
    return {reason for _, reason in found}


SEVERAL = ["fedrfq"]                    # schemes with servers that may be faulty, one of them
FAST = ("fedavg", "secagg")


def cases(every: bool) -> list[Any]:
    found = []
    for name in schemes.known():
        learns = "client" if "client" in schemes.find(name).roles else "peer"
        for role in [learns] + ["server"] * (name in SEVERAL):
            slow = not every and name not in FAST
            found.append(pytest.param(name, role, marks=pytest.mark.slow) if slow else (name, role))
    return found


@pytest.mark.parametrize(("name", "role"), cases(every=True))
def test_a_scheme_survives_one_that_sends_all_kinds_of_wrong_messages(name: str, role: str) -> None:
    world, who = hostile(name, role, rotation)
    found = survives(world, who)
    if name != "local":
        assert "unknown message type 'Strange'" in found
        assert len(found) >= 3


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize(("name", "role"), cases(every=False))
def test_a_scheme_survives_one_kind_of_wrong_messages(name: str, role: str, spoil: str) -> None:
    world, who = hostile(name, role, SPOILS[spoil])
    found = survives(world, who)
    assert found or name == "local" or spoil not in ("unknown types", "wrong fields")


@pytest.mark.parametrize(("name", "role"), cases(every=False))
def test_a_scheme_survives_messages_of_other_rounds(name: str, role: str) -> None:
    survives(*hostile(name, role, lambda message: [message], rounds=(-5, -1, 1, 5)))


@pytest.mark.parametrize(("name", "role"), cases(every=False))
def test_a_scheme_survives_a_flood(name: str, role: str) -> None:
    slow = name not in FAST
    survives(*hostile(name, role, lambda message: [message], times=3000 if slow else 300,
                      limits=Limits(max_unread=1000 if slow else 50)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "role"), cases(every=False))
def test_a_scheme_survives_100_MB(name: str, role: str) -> None:
    survives(*hostile(name, role, lambda message: [huge(message), message]))


@pytest.mark.parametrize("name", FAST)
def test_honest_divergence_is_an_outcome_of_its_rounds(name: str) -> None:
    scenario = example(name)
    task = {**scenario.task, "solver": {"sgd": {"lr": 1e38, "steps": 8, "batch": 16}}}
    scenario = dataclasses.replace(scenario, task=task)
    world = run_wiring(engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1), Twin())
    why = {row[4] for row in world.rows if row[0] == R.LEAVE and row[2] != 0 and row[4]}
    assert any(text.startswith("NotSendable: ") for text in why), why
    assert not world.summary["violations"]


def test_an_empty_alignment_is_a_violation() -> None:
    def empty(message: Message) -> Iterator[Any]:
        yield dataclasses.replace(message, positions=message.positions[:0]) if isinstance(message, Aligned) else message

    world, _ = hostile("vertical", "server", empty)
    assert {row[4] for row in world.rows if row[0] == R.REJECT} == {"positions: no sample in common"}
