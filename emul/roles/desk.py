"""The engine's side of a node: what passes between a role and the worker that runs it.

A role sees its `Node` alone. The trampoline and the worker hold the `Desk` of the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any

import numpy as np

from emul.base.errors import NotSendable, RoleError, WireError
from emul.base.tracebacks import caller
from emul.message.verdicts import judge
from emul.message.wire import Encoded, Message, Vector, encode, encode_each
from emul.roles.activities import Activities
from emul.roles.costs import Costs
from emul.roles.evaluation import Evaluate
from emul.roles.events import Action, Ready
from emul.roles.job import Job

REASON = 200                        # characters of a reason that are kept
LANE = "compute"                    # the lane of all computations, unless a scheme declares others

# source, message, number of the first copy, targets -> its frames, if they travel with the action
Keep = Callable[[int, Encoded, int, list[int]], list[bytes] | None]
Observe = Callable[[int, int, Vector, Evaluate | None], str]            # node, round, parameters, how -> their digest
Artefact = Callable[[int, str, int, object], None]      # node, name, round, array: left in the run directory
Fetch = Callable[[Ready], list[Message]]                # the messages that an event names


@dataclass(slots=True)
class Memory:
    """The part of a node that survives a crash with return; if the crash wipes it, `state` alone is lost."""

    state: Any = None
    round: int = 0
    sent: int = 0                               # copies sent so far: the next sequence number
    computed: int = 0                           # computations begun so far
    activities: int = 0                         # begun so far
    generators: dict[str, np.random.Generator] = field(default_factory=dict)


def keep_nothing(source: int, encoded: Encoded, first: int, to: list[int]) -> list[bytes] | None:
    """Messages sent from here go nowhere."""
    return None


def _observe_nothing(node: int, round: int, parameters: Vector, evaluate: Evaluate | None) -> str:
    return ""


def _leave_nothing(node: int, name: str, round: int, array: object) -> None:
    return None


def _no_attackers(round: int) -> set[int] | None:
    return None


def _no_cluster(node: int) -> int | None:
    return None


def _fetch_nothing(event: Ready) -> list[Message]:
    return []


@dataclass(frozen=True)
class Offered(Message):
    """The values that a node has made known off the clock; goes with its messages, off the wire."""

    values: dict[str, Any]


class Desk:
    """The tools that a worker gives to a node, and the things that the node leaves there in one activation."""

    __slots__ = ("actions", "activities", "artefact", "attackers", "cluster", "costs", "deviates", "excused_ns",
                 "fetch", "growth", "job", "keep", "lanes", "main", "memory", "observe", "offered", "offers", "types",
                 "unawaited")

    def __init__(self, memory: Memory, costs: Costs, *, keep: Keep = keep_nothing, observe: Observe = _observe_nothing,
                 fetch: Fetch = _fetch_nothing, artefact: Artefact = _leave_nothing,
                 types: Mapping[str, type[Message]] | None = None, deviates: bool = False,
                 lanes: Sequence[str] = (LANE,)):
        self.memory = memory
        self.costs = costs
        self.keep = keep
        self.observe = observe
        self.fetch = fetch
        self.artefact = artefact
        self.attackers: Callable[[int], set[int] | None] = _no_attackers       # in a round, for the observer
        self.cluster: Callable[[int], int | None] = _no_cluster         # that a node's data are of, for the observer
        self.types = types                          # of messages that the scheme's nodes know; None: any
        self.deviates = deviates                    # a BEHAVIOUR: what it sends is nobody's programming error
        self.offers = False                         # somebody wants to know what is offered
        self.offered: dict[str, object] = {}           # in this round
        self.growth = 0.0                           # declared bytes of a byte of arrays, of a declared model
        self.lanes = lanes                          # names of those of a node's computations
        self.main: CoroutineType[object, object, None]        # of the role
        self.activities: Activities | None = None   # None: the role has never begun one
        self.job: Job | None = None                 # the computation that it waits for, or the newest that it asked for
        self.actions: list[Action] = []             # in this activation
        self.unawaited: list[str] = []              # places of suspensions asked for in this activation
        self.excused_ns = 0                         # CPU time of encoding and digests: the engine's, not the role's

    def begin(self) -> None:
        """An activation begins."""
        self.actions = []
        self.excused_ns = 0
        self.unawaited.clear()

    def next_activity(self) -> int:
        """The number of an activity that begins now: a node counts them over its crashes, too."""
        self.memory.activities += 1
        return self.memory.activities

    # --- messages of the node, encoded and judged ---

    def encoded(self, message: Message) -> tuple[Encoded, str]:
        """The frames, and why no receiver will take them; "": they are what the message's annotations say."""
        self._must_be_known(message)
        try:
            encoded = encode(message)
        except WireError as e:
            if not self.deviates:
                raise
            encoded, reason = Encoded(b"", []), str(e)[:REASON]
        else:
            if self.growth:
                encoded.grow(self.growth)
            reason = self._verdict(message, encoded)
        if self.offered:
            encoded.aside = encode(Offered(self.offered))
        return encoded, reason

    def encoded_each(self, messages: list[Message]) -> list[tuple[Encoded, str]]:
        """As `encoded`, of many of one type."""
        self._must_be_known(messages[0])
        if self.deviates or self.offered or self.growth:    # each may be wrong, have something with it, or be larger
            return [self.encoded(message) for message in messages]
        encoded_each = encode_each(messages)
        for message, encoded in zip(messages, encoded_each, strict=True):
            self._verdict(message, encoded)
        return [(encoded, "") for encoded in encoded_each]

    def _must_be_known(self, message: Message) -> None:
        """Raise RoleError for what is no message, or one of a type that nobody could read."""
        kind = type(message).__name__
        if not isinstance(message, Message):
            raise RoleError(f"{caller(4)}: a {kind} cannot be sent: it is no Message")
        if self.types is not None and kind not in self.types and not self.deviates:
            raise RoleError(f"{caller(4)}: {kind} is not in messages of the scheme, so that nobody could read it: "
                            f"write messages=({', '.join([*self.types, kind])},)")

    def _verdict(self, message: Message, encoded: Encoded) -> str:
        """The reason why every receiver will refuse it; "": it is sound. Raises what `send` raises, unless the role
        deviates."""
        # Judged once, where it is encoded, and not by each of a thousand receivers; a role never sees what it could not
        # decode. What only a receiver can know is for `accept` of its wait
        # (`test_what_is_not_what_its_type_says_is_rejected_and_the_wait_goes_on`).
        kind = type(message).__name__
        found = judge(message, encoded, self.types)
        if found is None:
            return ""
        if self.deviates:
            return found.reason[:REASON]
        text = f"{kind}: {found.reason}"
        raise NotSendable(text) if found.diverged else WireError(text)
