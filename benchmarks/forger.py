"""A node that forges what it sends, in every role of every scheme: no run ends by it, and none takes ten times as long.

    python -m benchmarks.forger                         # each behaviour for each message of each role of each scheme
    python -m benchmarks.forger --together              # all behaviours one after the other, a run for each message
    python -m benchmarks.forger --only 'secagg; diloco, survive'

The forger takes part as an honest node would, so that it is asked and answers. The messages of one class that it sends
are changed on the way out: lengths, signs, order, ids, types, empty, early, late, twice, in floods, not at all. A
receiver counts a violation and goes on. It must not raise an exception of its own, which would end the run.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul import engine
from emul.base import rows as R
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
Change = Callable[[Any], Any]


def fields_of(message: Message) -> dict[str, Any]:
    return {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}     # type: ignore[arg-type]


def made(message: Message, values: dict[str, Any]) -> Message:
    """A message of the same class with these values; the class's own checks are not asked."""
    found = object.__new__(type(message))
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def each(change: Change) -> Spoil:
    """Every field changed."""
    return lambda message: [made(message, {name: change(value) for name, value in fields_of(message).items()})]


def other_fields(message: Message) -> Message:
    """A message of the same name and other fields."""
    cls: Any = dataclass(frozen=True)(type(type(message).__name__, (Message,), {"__annotations__": {"x": int, "y": str},
                                                                           "unscoped": message.unscoped}))
    return cls(1, "two")


def arrays(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda value: change(value) if isinstance(value, np.ndarray) and value.size else value


def floats(number: float) -> Change:
    """Arrays of floats full of it, and floats."""
    def change(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return np.full_like(value, number)
        return number if isinstance(value, float) else value
    return change


def whole(change: Callable[[int], int]) -> Change:
    """Whole numbers, also those in lists, tuples and keys: ids, counts and positions."""
    def changed(value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return change(value)
        if isinstance(value, (list, tuple)):
            return type(value)(changed(one) for one in value)
        if isinstance(value, dict):
            return {changed(key): one for key, one in value.items()}
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size < 10_000:
            wrap = 256 ** value.dtype.itemsize          # as a machine wraps round
            found = np.array([change(int(one)) % wrap for one in value.ravel()], f"u{value.dtype.itemsize}")
            return found.view(value.dtype).reshape(value.shape)
        return value
    return changed


def sequences(change: Callable[[Any], Any]) -> Change:
    """Arrays, texts, bytes, lists and tuples that have an entry."""
    def changed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return change(value) if value.ndim and len(value) else value
        return change(value) if isinstance(value, (bytes, str, list, tuple)) and value else value
    return changed


def entries(change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> Change:
    return lambda value: change(dict(value)) if isinstance(value, dict) and value else value


def joined(*parts: Any) -> Any:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else functools.reduce(operator.add, parts)


def dtype(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.int16 if value.dtype == np.float64 else np.float64)
    return value


def shape(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[:1].reshape((1,) * value.ndim) if value.size else value
    if isinstance(value, (bytes, str, list, tuple)):
        return value[:1]
    return {} if isinstance(value, dict) else value


def absurd(value: Any) -> Any:
    """Of the right type, and of values that nobody sends."""
    if isinstance(value, np.ndarray):
        return np.full_like(value, 255 if value.dtype == np.uint8 else 3e38 if value.dtype.kind == "f" else
                            np.iinfo(value.dtype).max if value.dtype.kind in "iu" else value.dtype.type())
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


def empty(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value[:0] if value.ndim else value
    return type(value)() if isinstance(value, (bytes, str, list, tuple, dict)) else value


def one_nan(value: np.ndarray) -> np.ndarray:
    found = value.copy()
    if found.dtype.kind == "f":
        found.reshape(-1)[found.size // 2] = np.nan
    return found


def flipped(value: Any) -> Any:
    """One bit of bytes and arrays of bytes; truth values turned round."""
    if isinstance(value, bytes) and value:
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.size:
        found = value.copy()
        found.reshape(-1)[0] ^= 1
        return found
    return not value if isinstance(value, bool) else value


def noise(value: Any) -> Any:
    draw = np.random.default_rng(7)
    if isinstance(value, bytes):
        return draw.bytes(len(value))
    return draw.permuted(value) if isinstance(value, np.ndarray) and value.size else value


SPOILS: dict[str, Spoil] = {
    "unknown type": lambda message: [Strange()],
    "wrong fields": lambda message: [other_fields(message)],
    "wrong types": each(lambda value: "text" if not isinstance(value, str) else 7),
    "nothing": each(lambda value: None),
    "dtype": each(dtype),
    "shape": each(shape),
    "transposed": each(arrays(lambda value: value.T)),
    "one number": each(arrays(lambda value: value.reshape(-1)[0].reshape(()))),
    "one dimension more": each(arrays(lambda value: value[None])),
    "three times as long": each(sequences(lambda value: joined(value, value, value))),
    "longer by one": each(sequences(lambda value: joined(value, value[-1:]))),
    "shorter by one": each(sequences(lambda value: value[:-1])),
    "half": each(sequences(lambda value: value[:len(value) // 2])),
    "empty": each(empty),
    "reversed": each(sequences(lambda value: value[::-1])),
    "rotated": each(sequences(lambda value: joined(value[1:], value[:1]))),
    "one entry many times": each(sequences(lambda value: joined(*[value[:1]] * len(value)))),
    "NaN": each(floats(float("nan"))),
    "one NaN": each(arrays(one_nan)),
    "infinite": each(floats(float("inf"))),
    "minus infinite": each(floats(float("-inf"))),
    "largest": each(floats(3e38)),
    "smallest": each(floats(1e-45)),
    "ones": each(floats(1.0)),
    "absurd values": each(absurd),
    "zeros": each(zero),
    "signs": each(arrays(lambda value: -value if value.dtype.kind in "fiu" else value)),
    "ids and counts plus one": each(whole(lambda value: value + 1)),
    "ids and counts minus one": each(whole(lambda value: value - 1)),
    "ids of nobody": each(whole(lambda value: 10**6)),
    "negative ids": each(whole(lambda value: -7)),
    "one id for all": each(whole(lambda value: 1)),
    "too large for a machine": each(whole(lambda value: 2**63 + value)),
    "an entry less": each(entries(lambda value: dict(list(value.items())[1:]))),
    "an entry of nobody more": each(entries(lambda value: {**value, 10**6: next(iter(value.values()))})),
    "entries changed round": each(entries(lambda value: dict(zip(value, reversed(list(value.values())), strict=True)))),
    "one bit": each(flipped),
    "noise": each(noise),
    "strange text": each(lambda value: "../\x00\u2028" * 50 if isinstance(value, str) else value),
    "twice": lambda message: [message, message],
    "not at all": lambda message: [],
}
SURVIVE = """
emul: 1
name: survive
seed: 7
topology: {generator: star_mesh, clients: 3}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: NAME, survive: true, timeout: 600 ms, grace: 200 ms}]
stop: {rounds: 2}
"""
EARLY_AND_LATE = (-5, -1, 1, 5)         # rounds from that of the message: early and late
FLOOD = 300
DELIVERIES = ("other rounds", "flood", "held back until the next")
BEHAVIOURS = (*SPOILS, *DELIVERIES)


class Forger:
    """A node whose messages of one class are forged on the way out. kind: the class's name, "": every class."""

    def __init__(self, node: Node, behaviours: tuple[str, ...], kind: str, seen: set[str]):
        self._node, self._behaviours, self._kind, self._seen = node, behaviours, kind, seen
        self._floods = 4                        # of its messages are sent so often, then each is sent once
        self._held: tuple[list[int], Message] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def send(self, target: int, message: Message) -> None:
        self.broadcast([target], message)

    def broadcast(self, targets: Iterable[int], message: Message) -> None:
        to = list(targets)
        self._seen.add(type(message).__name__)
        if self._kind not in ("", type(message).__name__):
            self._node.broadcast(to, message)
            return
        for behaviour in self._behaviours:
            self._forge(behaviour, to, message)
        if len(self._behaviours) != 1:          # after all forgeries the sound one, so that the protocol goes on
            self._node.broadcast(to, message)

    def _forge(self, behaviour: str, to: list[int], message: Message) -> None:
        if behaviour in SPOILS:
            for bad in SPOILS[behaviour](message):
                self._node.broadcast(to, bad)
        elif behaviour == "other rounds":
            memory = self._node._desk.memory
            now = memory.round
            for other in EARLY_AND_LATE:
                memory.round = max(0, now + other)
                self._node.broadcast(to, message)
            memory.round = now
        elif behaviour == "flood":
            for _ in range(FLOOD if self._floods > 0 else 1):
                self._node.broadcast(to, message)
            self._floods -= 1
        else:
            held, self._held = self._held, (to, message)
            if held is not None:
                self._node.broadcast(*held)


def cases() -> list[str]:
    """Every scheme, and those that have a rendezvous with it: "diloco, survive"."""
    return [*schemes.known(), *(f"{name}, survive" for name in ("diloco", "local_sgd", "sparseloco"))]


def example(case: str) -> Scenario:
    name, _, survive = case.partition(", ")
    scenario: Scenario = loads(SURVIVE.replace("NAME", name) if survive else schemes.find(name).example, name)
    return dataclasses.replace(scenario, stop=dataclasses.replace(scenario.stop, rounds=2, virtual_time_ns=60 * 10**9))


def forged(case: str, role: str, behaviours: tuple[str, ...], kind: str = "",
           limits: Limits = Limits(max_unread=50)) -> tuple[Ran, str, set[str]]:     # noqa: B008
    """The scheme's example with its last node of a role as a forger; that node's name; classes of messages it sent.

    Raises what ends the run; AssertionError: an invariant is violated.
    """
    name = case.partition(", ")[0]
    honest, seen = schemes.find(name), set[str]()

    async def bad(node: Node, p: Any) -> None:
        await honest.roles[role](Forger(node, behaviours, kind, seen), p)   # type: ignore[arg-type]

    scenario = example(case)
    with schemes.lend(name, dataclasses.replace(honest, behaviours={role: {"hostile": bad}})):
        setup = engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1).setups[0]
        who = setup.names[setup.roles[role][-1]]
        scenario = dataclasses.replace(scenario, limits=limits, faults=[*scenario.faults, Behaviour(who, "hostile")])
        world = run_wiring(engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1), Twin())
    assert not world.invariants.violations, world.invariants.text()
    return world, who, seen


def blamed(world: Ran, who: str) -> dict[str, set[str]]:
    """node whose messages others than the forger `who` rejected -> reasons."""
    names = world.header["names"]
    target = {(row[2], row[3]): names[row[4]] for row in world.rows if row[0] == R.SEND}
    found: dict[str, set[str]] = {}
    for row in world.rows:
        if row[0] == R.REJECT and target[row[2], row[3]] != who:
            found.setdefault(names[row[2]], set()).add(row[4])
    return found


@dataclass(frozen=True)
class Case:
    scheme: str
    role: str
    kind: str
    behaviour: str
    error: str                          # the reason why the run ended, "" if it did not
    cpu_s: float
    honest_s: float                     # CPU time of the run without a forger


def hunt(names: Iterable[str], together: bool) -> Iterator[Case]:
    """All cases of these schemes, one after the other. together: all behaviours one after the other in one run."""
    for name in names:
        for role in schemes.find(name.partition(", ")[0]).roles:
            began = time.process_time()
            try:
                _, _, seen = forged(name, role, (), "no such class")
            except (KeyError, IndexError):      # the example has no node of this role
                continue
            honest_s = time.process_time() - began
            for kind in sorted(seen):
                for behaviours in ([BEHAVIOURS] if together else [(one,) for one in BEHAVIOURS]):
                    began, error = time.process_time(), ""
                    try:
                        world, who, _ = forged(name, role, behaviours, kind)
                        others = sorted(blamed(world, who).keys() - {who})
                        if others and role in ("client", "peer"):       # who trusts a server sends what it says
                            error = f"{', '.join(others)} blamed for what {who} sent"
                    except Exception as e:
                        error = f"{type(e).__name__}: {' '.join(str(e).split())[-300:]}"
                    yield Case(name, role, kind, "all" if together else behaviours[0], error,
                               time.process_time() - began, honest_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--together", action="store_true", help="all behaviours one after the other in one run")
    parser.add_argument("--only", default="", help="cases, with semicolons")
    arguments = parser.parse_args()
    ended = count = 0
    slowest: Case | None = None
    only = [one.strip() for one in arguments.only.split(";")] if arguments.only else cases()
    for case in hunt(only, arguments.together):
        count += 1
        where = f"{case.scheme}, {case.role}, {case.kind}, {case.behaviour}"
        if case.error:
            ended += 1
            print(f"{where}: {case.error}", flush=True)
        elif case.cpu_s > 10 * case.honest_s + 1:
            print(f"{where}: {case.cpu_s:.2f} s of CPU in place of {case.honest_s:.2f}", flush=True)
        if slowest is None or case.cpu_s / case.honest_s > slowest.cpu_s / slowest.honest_s:
            slowest = case
    print(f"{count} runs, {ended} ended by a forger")
    if slowest:
        print(f"slowest: {slowest.cpu_s:.2f} s of CPU in place of {slowest.honest_s:.2f}: {slowest.scheme}, "
              f"{slowest.role}, {slowest.kind}, {slowest.behaviour}")
    sys.exit(bool(ended))


if __name__ == "__main__":
    main()
