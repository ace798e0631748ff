"""A node that forges what it sends, in every role of every scheme: no run ends by it, and none takes ten times as long.

    python -m benchmarks.forger                         # each behaviour for each message of each role of each scheme
    python -m benchmarks.forger --together              # all behaviours one after the other, a run for each message
    python -m benchmarks.forger --only 'secagg; diloco, survive'

The forger takes part as an honest node would, so that it is asked and answers. The messages of one class that it sends
are changed on the way out: lengths, signs, order, ids, types, empty, early, late, twice, in floods, not at all. A
receiver counts a violation and goes on. It must not raise an exception of its own, which would end the run.

An honest run tells which behaviours change any message; the others are not run. Where it takes long, all forgeries of
a role are made of one honest run: the process forks where a forgery first sends other bytes than the honest role does.
The fork goes on as the forger, and the process itself waits for it and goes on honestly.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import operator
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul import engine
from emul.base import rows as R
from emul.base.errors import EmulError
from emul.message.wire import encode
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


LONGEST_S = 120                         # of CPU time of a fork, before it counts as one that does not end
FORKS_FROM_S = 0.08                     # of CPU time of the honest run: a fork costs 0.04 s


@dataclass(frozen=True)
class Forgery:
    """The messages of one class forged in these ways, one after the other. kind: the class, "": every class."""

    behaviours: tuple[str, ...] = ()
    kind: str = "no class"


def frames(message: Any) -> tuple[Any, ...]:
    """The bytes of a message; if it cannot be encoded, the reason."""
    try:
        encoded = encode(message)
    except EmulError as e:
        return (str(e),)
    return encoded.declared, *map(bytes, encoded.frames())


def changes(forgery: Forgery, message: Message) -> bool:
    """True if this forgery of `message` sends anything else than `message`."""
    if len(forgery.behaviours) != 1 or forgery.behaviours[0] in DELIVERIES:
        return True
    return [frames(bad) for bad in SPOILS[forgery.behaviours[0]](message)] != [frames(message)]


@dataclass(frozen=True)
class Outcome:
    """The end of a run with a forgery."""

    error: str = ""                     # the reason why it counts as a mistake
    cpu_s: float | None = None          # CPU time; None: as that of the honest run, which it is


class Branches:
    """The forgeries of one honest run, and their processes. ways: the behaviours of each forgery of each class. forks:
    False only notes which forgeries would change anything."""

    def __init__(self, ways: Iterable[tuple[str, ...]], forks: bool):
        self.forgery: Forgery | None = None             # of this process; None: it is the honest one
        self.outcomes: dict[Forgery, Outcome] = {}      # of all forgeries of the classes that were sent so far
        self.changed: list[Forgery] = []                # those that change anything
        self.threads = 1                                # the most that this process has had
        self._forks = forks
        self.own_s = 0.0                                # CPU time of this class in the honest process
        self._ways = list(ways)
        self._began = time.process_time()
        self._pending: dict[str, list[Forgery]] = {}    # class -> forgeries that have not changed anything yet
        self._answer = -1                               # where a fork writes how it ended

    def at(self, message: Message) -> Forgery | None:
        """The forgery of this process. An honest one forks here for each forgery that `message` shows first."""
        if self.forgery is not None:
            return self.forgery
        began, kind = time.process_time(), type(message).__name__
        self.threads = max(self.threads, threading.active_count())
        if kind not in self._pending:
            self._pending[kind] = [Forgery(behaviours, kind) for behaviours in self._ways]
            self.outcomes.update((forgery, Outcome()) for forgery in self._pending[kind])
        for forgery in [one for one in self._pending[kind] if changes(one, message)]:
            self._pending[kind].remove(forgery)
            self.changed.append(forgery)
            if self._forks and self._fork(forgery, began - self._began - self.own_s):
                return forgery
        self.own_s += time.process_time() - began
        return None

    def _fork(self, forgery: Forgery, before_s: float) -> bool:
        """True in the fork; in the process itself, once the fork has ended, False. before_s: CPU time until here."""
        answer, self._answer = os.pipe()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
            self.forgery = forgery
            return True
        os.close(self._answer)
        with open(answer) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        error, cpu_s = json.loads(text) if text else (
            f"its process ended with {os.waitstatus_to_exitcode(status)}, after at most {LONGEST_S} s of CPU", 0.0)
        self.outcomes[forgery] = Outcome(error, before_s + cpu_s)
        return False

    def end(self, error: str) -> None:
        """Of a fork: tell how it ended, and end it."""
        os.write(self._answer, json.dumps([error, time.process_time()]).encode())
        os._exit(0)


class Forger:
    """A node some of whose messages are forged on the way out. forgery: of a message, if this one may be forged."""

    def __init__(self, node: Node, forgery: Callable[[Message], Forgery | None]):
        self._node, self._forgery = node, forgery
        self._floods = 4                        # of its messages are sent so often, then each is sent once
        self._held: tuple[list[int], Message] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def send(self, target: int, message: Message) -> None:
        self.broadcast([target], message)

    def broadcast(self, targets: Iterable[int], message: Message) -> None:
        to = list(targets)
        forgery = self._forgery(message)
        if forgery is None or forgery.kind not in ("", type(message).__name__):
            self._node.broadcast(to, message)
            return
        for behaviour in forgery.behaviours:
            self._forge(behaviour, to, message)
        if len(forgery.behaviours) != 1:        # after all forgeries the sound one, so that the protocol goes on
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
           limits: Limits = Limits(max_unread=50)) -> tuple[Ran, str]:     # noqa: B008
    """The scheme's example with its last node of a role as a forger, and that node's name.

    Raises what ends the run; AssertionError: an invariant is violated.
    """
    return run(case, role, functools.partial(_always, Forgery(behaviours, kind)), limits)


def run(case: str, role: str, forgery: Callable[[Message], Forgery | None], limits: Limits) -> tuple[Ran, str]:
    """As `forged`; `forgery` says how each message is forged."""
    name = case.partition(", ")[0]
    honest = schemes.find(name)

    async def bad(node: Node, p: Any) -> None:
        await honest.roles[role](Forger(node, forgery), p)      # type: ignore[arg-type]

    scenario = example(case)
    with schemes.lend(name, dataclasses.replace(honest, behaviours={role: {"hostile": bad}})):
        setup = engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1).setups[0]
        who = setup.names[setup.roles[role][-1]]
        scenario = dataclasses.replace(scenario, limits=limits, faults=[*scenario.faults, Behaviour(who, "hostile")])
        world = run_wiring(engine.wire(scenario, name, dict(scenario.schemes[0][1]), 1), Twin())
    assert not world.invariants.violations, world.invariants.text()
    return world, who


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
    forged: bool                        # False: the behaviour changed no message, such as an array where there is none


def hunt(names: Iterable[str], together: bool) -> Iterator[Case]:
    """All cases of these schemes, one after the other. together: all behaviours one after the other in one run."""
    for name in names:
        for role in schemes.find(name.partition(", ")[0]).roles:
            yield from of_role(name, role, [BEHAVIOURS] if together else [(one,) for one in BEHAVIOURS])


def of_role(name: str, role: str, ways: Sequence[tuple[str, ...]]) -> list[Case]:
    """The cases of a role; [] if the example has no node of it."""
    scenario = example(name)
    if not engine.wire(scenario, *scenario.schemes[0], 1).setups[0].roles.get(role):
        return []
    began, survey = time.process_time(), Branches(ways, forks=False)
    error = ended(name, role, survey.at)
    if error:
        raise AssertionError(f"{name}, {role}, without a forgery: {error}")
    honest_s, outcomes = time.process_time() - began - survey.own_s, survey.outcomes
    if honest_s < FORKS_FROM_S or survey.threads > 1:       # a fork lacks the other threads, as those of a Flower app
        for forgery in survey.changed:
            began = time.process_time()
            error = ended(name, role, functools.partial(_always, forgery))
            outcomes[forgery] = Outcome(error, time.process_time() - began)
    else:
        branches, error = Branches(ways, forks=True), "its process was left"
        try:
            error = ended(name, role, branches.at)
        finally:
            if branches.forgery is not None:
                branches.end(error)
        outcomes = branches.outcomes
    return [Case(name, role, forgery.kind, "all" if len(forgery.behaviours) > 1 else forgery.behaviours[0], one.error,
                 honest_s if one.cpu_s is None else one.cpu_s, honest_s, one.cpu_s is not None)
            for forgery, one in outcomes.items()]


def _always(forgery: Forgery, message: Message) -> Forgery:
    return forgery


def ended(name: str, role: str, forgery: Callable[[Message], Forgery | None]) -> str:
    """The mistake in a run with a forger; "": there is none."""
    try:
        world, who = run(name, role, forgery, Limits(max_unread=50))
    except Exception as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[-300:]}"
    others = sorted(blamed(world, who).keys() - {who})
    if others and role in ("client", "peer"):           # who trusts a server sends what it says
        return f"{', '.join(others)} blamed for what {who} sent"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--together", action="store_true", help="all behaviours one after the other in one run")
    parser.add_argument("--only", default="", help="cases, with semicolons")
    arguments = parser.parse_args()
    ended = count = unchanged = 0
    slowest: Case | None = None
    for name in [one.strip() for one in arguments.only.split(";")] if arguments.only else cases():
        found = list(hunt([name], arguments.together))
        for case in found:
            where = f"{case.scheme}, {case.role}, {case.kind}, {case.behaviour}"
            if case.error:
                print(f"{where}: {case.error}", flush=True)
            elif case.cpu_s > 10 * case.honest_s + 1:
                print(f"{where}: {case.cpu_s:.2f} s of CPU in place of {case.honest_s:.2f}", flush=True)
            if slowest is None or case.cpu_s / case.honest_s > slowest.cpu_s / slowest.honest_s:
                slowest = case
        count += len(found)
        unchanged += sum(not case.forged for case in found)
        ended += sum(bool(case.error) for case in found)
        print(f"{name}: {len(found)} runs", flush=True)
    print(f"{count} runs, {ended} ended by a forger; in {unchanged} the behaviour changed nothing of the messages")
    if slowest:
        print(f"slowest: {slowest.cpu_s:.2f} s of CPU in place of {slowest.honest_s:.2f}: {slowest.scheme}, "
              f"{slowest.role}, {slowest.kind}, {slowest.behaviour}")
    sys.exit(bool(ended))


if __name__ == "__main__":
    main()
