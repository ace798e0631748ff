"""The attacks of a scenario on the nodes of one worker, and the attackers' knowledge of the others.

Nothing is sent about for that. The updates that others would send if they were honest are computed again, off the
clock, by fresh tasks from each node's own samples and streams (`Scheme.honest`), in groups that depend on round and
nodes alone: so the bits do not depend on who holds which node, and the run not on what attackers know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from emul.base.errors import RoleError
from emul.base.streams import generator, key64
from emul.learning.attack import Attack, Tamper, Transform
from emul.learning.dataset import mapped
from emul.message.wire import Encoded, Message, Vector, decode
from emul.registry import attacks
from emul.registry.attacks import Planned
from emul.roles.attackers import Known
from emul.roles.desk import Offered
from emul.workers.payloads import Key

if TYPE_CHECKING:
    from emul.learning import NodeTask, Task
    from emul.learning.training import Stream

_KEPT = 4                           # the last results: attackers of one worker ask one after the other


class Note(Struct, array_like=True, gc=False):
    """A vector that a node's training gave (again: as an attacker has computed it again), by its digest."""

    node: int
    round: int
    digest: str
    again: bool
    by: int                         # the node whose computation that was part of
    named: bool                     # the scheme has named a cohort: that was the population, and not all clients
    due_ns: int = 0                 # the time when that computation ends


class Received(dict[type[Message], Message]):
    """The newest message of each type that an attacker has received in this round."""

    def __missing__(self, kind: type[Message]) -> Message:
        raise RoleError(f"honest: an attacker has received no {kind.__name__} in this round")


@dataclass
class _Seen:
    """The messages that one attacker has received in its round."""

    round: int
    keys: dict[type[Message], Key]
    messages: Received
    offered: dict[str, Any]


@dataclass
class _Again:
    """The updates of some nodes that were computed again."""

    rows: dict[int, Vector]
    digests: dict[int, str]
    groups: dict[int, int]              # node -> the cluster that it chose; {}: the scheme has none
    scratch: dict[Hashable, dict[Hashable, object]]  # of what they know -> what they keep there


class Attacking:
    """The attackers of a run, for one worker."""

    def __init__(self, plans: Mapping[int, Sequence[Planned]], plugins: Sequence[str],
                 honest: Callable[..., object] | None, task: Task, names: Sequence[str],
                 shards: Sequence[Sequence[int]], group: int):
        """plans: node -> its attacks, of all nodes. honest: of the scheme (`Scheme.honest`). shards:
        runs of nodes that hold data, as in `Setup`. group: how many are trained as one, 1: none are."""
        self._plans = {node: [(p, attacks.make(p, plugins)) for p in each] for node, each in plans.items()}
        self._honest = honest
        self._task, self._names, self._group = task, names, group
        self._shard = {first + i: shard + i for first, shard, count in shards for i in range(count)}
        self.knowing = any(p.knows != "own" for each in plans.values() for p in each)
        self._seen: dict[int, _Seen] = {}
        self._again: dict[object, _Again] = {}
        self._pools: dict[tuple[int, ...], int] = {}        # attackers whose clean samples are taken as one -> a number
        self._fresh: dict[int, list[Note]] = {}
        self.notes: list[Note] = []
        self._trials = self._make_trials()

    def __contains__(self, node: int) -> bool:
        return node in self._plans

    def of(self, node: int) -> Attack | None:
        """The attack that is put into the task of a node. None: it is honest and nobody wants to know of it."""
        if node in self._plans:
            return _Attacker(self, node)
        return _Watched(self, node) if self.knowing and node in self._shard else None

    # --- what is measured -----------------------------------------------------------------------------------------

    def _make_trials(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Test samples with the trigger, and the labels that are wanted of them; one pair for each backdoor."""
        doors = dict.fromkeys(a for each in self._plans.values() for _, a in each if hasattr(a, "trial"))
        data = self._task.data
        return [door.trial(data.inputs(data.test_x), data.test_y.astype(np.int64)) for door in doors]

    def success(self, vector: Vector) -> dict[str, float]:
        """{"attack_success"}: the share of those labels that the model gives, the mean over the backdoors and, where
        `vector` is several models, over these; {} where there are none, or it is no model."""
        if not vector.size or vector.size % self._task.dimension:
            return {}
        models = vector.reshape(-1, self._task.dimension)
        found = [self._task.evaluate_on(x, y, model)["accuracy"] for x, y in self._trials for model in models]
        return {"attack_success": float(np.mean(found))} if found else {}

    def settle(self, node: int, due_ns: int) -> None:
        """A node's computation that has just been done ends at that time."""
        for note in self._fresh.pop(node, ()):
            note.due_ns = due_ns
            self.notes.append(note)

    # --- what attackers know --------------------------------------------------------------------------------------

    def knows_others(self, node: int) -> bool:
        return any(p.knows != "own" or self._asks_proxy(a) for p, a in self._plans.get(node, ()))

    def _asks_proxy(self, attack: object) -> bool:
        return self._honest is not None and getattr(attack, "PROXY", False)

    def received(self, node: int, round_: int, key: Key, message: Message, aside: Encoded | None) -> None:
        """An attacker that knows of others takes a message, and what came with it off the wire."""
        seen = self._seen.get(node)
        if seen is None or seen.round != round_:
            seen = self._seen[node] = _Seen(round_, {}, Received(), {})
        seen.keys[type(message)], seen.messages[type(message)] = key, message
        if aside is not None:
            offered = decode(aside, {Offered.__name__: Offered})
            assert isinstance(offered, Offered)
            seen.offered |= offered.values

    def attackers(self, round_: int) -> set[int]:
        """Nodes of which an attack is in force."""
        return {node for node, each in self._plans.items() if any(p.holds(round_) for p, _ in each)}

    def known(self, node: int, own: Vector, round_: int, how: str) -> Known:
        """The knowledge of `node`: how is one of `attacks.KNOWS`."""
        # The updates of others are computed again, from their samples and streams and off the clock, so an attack
        # changes no time and no byte. To send them about, the run would wait; with what a worker happens to hold, bits
        # would depend on the number of workers (`test_what_is_computed_again_is_what_was_sent_to_the_bit`).
        seen = self._seen.get(node)
        if seen is None or seen.round != round_:
            seen = _Seen(round_, {}, Received(), {})
        cohort = seen.offered.get("cohort")
        population = sorted({node, *(self._shard if cohort is None else map(int, cohort))})
        bad = self.attackers(round_).intersection(population)
        if how == "own":
            proxy = partial(self._proxy, seen, [node]) if seen.messages else None
            return Known(own[None], np.array([True]), len(population), len(bad), round=round_, proxy=proxy)
        whom = population if how == "all" else sorted(bad)
        again = self._compute_again(seen, whom)
        self._fresh.setdefault(node, []).extend(
            Note(n, round_, digest, True, node, cohort is not None) for n, digest in again.digests.items())
        group = again.groups.get(node)
        whom = [n for n in whom if again.groups.get(n) == group]
        fellows = [n for n in whom if n in bad]
        counted = len(whom) if how == "all" else len(population)
        return Known(np.stack([again.rows[n] for n in whom]), np.array([n in bad for n in whom]), counted,
                     len(fellows) if how == "all" else len(bad),
                     {name: value for name, value in seen.offered.items() if how == "all" and name != "cohort"},
                     group, whom.index(node), round_, key64(self._task.seed, "colluders", round_, group or 0),
                     partial(self._proxy, seen, fellows), again.scratch.setdefault((tuple(whom), how), {}))

    def _proxy(self, seen: _Seen, fellows: list[int]) -> Vector:
        """The update that the first of these attackers would make on the clean samples of all of them."""
        assert self._honest is not None
        first = fellows[0]
        number = -1 - self._pools.setdefault(tuple(fellows), len(self._pools))
        with self._task.apart():
            task = self._task.for_node(f"proxy of {self._names[first]}", self._shard.get(first), lambda: seen.round,
                                       _Pooled(number, [self._shard[n] for n in fellows], self._task))
            return self._honest_update(task, seen, first)[0]

    def _honest_update(self, task: NodeTask, seen: _Seen, node: int) -> tuple[Vector, int | None]:
        """(what `Scheme.honest` gives, the cluster that it says was chosen)."""
        assert self._honest is not None
        found = self._honest(task, seen.messages, node)
        vector, group = found if isinstance(found, tuple) else (found, None)
        return np.asarray(vector, dtype=np.float32), group

    def _compute_again(self, seen: _Seen, whom: list[int]) -> _Again:
        key = (seen.round, tuple(sorted((kind.__name__, k) for kind, k in seen.keys.items())), tuple(whom))
        if key not in self._again:
            with self._task.apart() as together:
                found = _Again({}, {}, {}, {})
                for group in (whom[i:i + self._group] for i in range(0, len(whom), self._group)):
                    pieces = [partial(self._one, found, n, seen) for n in group]
                    if len(pieces) > 1:
                        together.run(pieces)
                    else:
                        pieces[0]()
            self._again = dict(list(self._again.items())[1 - _KEPT:]) | {key: found}
        return self._again[key]

    def _one(self, again: _Again, node: int, seen: _Seen) -> None:
        poisoned = _Poisoned(self, node) if node in self._plans else None
        task: NodeTask = self._task.for_node(self._names[node], self._shard.get(node), lambda: seen.round, poisoned)
        again.rows[node], group = self._honest_update(task, seen, node)
        again.digests[node] = _digest(again.rows[node])
        if group is not None:
            again.groups[node] = group

    # --- the hooks of one node ------------------------------------------------------------------------------------

    def in_force(self, node: int, kind: str, round_: int) -> tuple[int, Planned, Any] | None:
        """(number, plan, attack): the last of that kind that holds in the round."""
        holds = [(i, p, a) for i, (p, a) in enumerate(self._plans[node]) if p.kind == kind and p.holds(round_)]
        return holds[-1] if holds else None

    def poison(self, node: int, round_: int) -> tuple[int, Transform] | None:
        found = self.in_force(node, "data", round_)
        if found is None:
            return None
        number, _, attack = found
        classes = self._task.data.classes
        return number, lambda x, y, rng: attack(x, y, classes, rng)

    def tamper(self, node: int, round_: int) -> Tamper | None:
        found = self.in_force(node, "prototypes", round_)
        return None if found is None else found[2]

    def note(self, node: int, own: Vector, round_: int) -> None:
        """Remember what a node's training gave, if somebody may compute it again."""
        if self.knowing and node in self._shard:
            self._fresh.setdefault(node, []).append(Note(node, round_, _digest(own), False, node, False))

    def update(self, node: int, own: Vector, stream: Stream) -> Vector:
        """The update that an attacker sends in place of `own`, or `own` itself. Takes no time that counts."""
        found = self.in_force(node, "update", stream.round)
        if found is None:
            return own
        _, plan, attack = found
        with self._task.apart():
            knows = self.known(node, own, stream.round, plan.knows)
            rng = generator(stream.seed, "update attack", self._names[node], stream.node, stream.round, stream.call)
            said = np.asarray(attack(own, rng, knows), dtype=np.float32)
        if said.shape != own.shape:
            raise RoleError(f"attack {plan.name}: expected a vector of shape {own.shape}, it returned {said.shape}")
        return said


class _Watched(Attack):
    """An honest node of which attackers want to know."""

    def __init__(self, attacking: Attacking, node: int):
        self._attacking, self._node = attacking, node

    def update(self, own: Vector, stream: Stream) -> Vector:
        self._attacking.note(self._node, own, stream.round)
        return own


class _Poisoned(_Watched):
    """An attacker before it attacks: what it would send if it were honest but for its samples."""

    def poison(self, round_: int) -> tuple[int, Transform] | None:
        return self._attacking.poison(self._node, round_)

    def update(self, own: Vector, stream: Stream) -> Vector:
        return own


class _Pooled(Attack):
    """Learns from the clean samples of several clients as if they were its own."""

    def __init__(self, number: int, clients: Sequence[int], task: Task):
        self._number, self._clients, self._task = number, clients, task

    def poison(self, round_: int) -> tuple[int, Transform] | None:
        def pooled(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            data = self._task.data
            chosen = np.concatenate([self._task.indices(client) for client in self._clients])
            raw: Any = mapped(lambda part: part[chosen], data.train_x)
            return data.inputs(raw), data.targets(data.train_y[chosen])

        return self._number, pooled


class _Attacker(_Poisoned):
    def tamper(self, round_: int) -> Tamper | None:
        return self._attacking.tamper(self._node, round_)

    def update(self, own: Vector, stream: Stream) -> Vector:
        self._attacking.note(self._node, own, stream.round)
        return self._attacking.update(self._node, own, stream)


def _digest(vector: Vector) -> str:
    return blake2b(np.ascontiguousarray(vector, np.float32).data, digest_size=16).hexdigest()
