"""`EmulGrid`: the Grid of a server app whose role runs in emul. Imported only where an app runs.

Replies are handed out in the order of their arrival in virtual time. Calls that take time are asked of the role
(`Request`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from emul.base.errors import EmulError, ProtocolViolation
from emul.base.names import listed
from emul.schemes.flower import encoding
from emul.schemes.flower.current import AppClock, Notes, all_failed
from emul.schemes.flower.encoding import Run, sent_by
from emul.schemes.flower.guest import AnyReply, BeginRound, Guest, Replies, Request, Sleep, WhoIsThere
from emul.schemes.flower.messages import RUN_ID, SERVER_ID, Answer, Call

DEFAULT_TTL_S = 43_200              # of Flower: twelve hours
POLL_S = 1.0                        # a second empty pull without sleep in between takes at most so long
_POLLS = 10_000                     # times that an app may ask who is there without anything happening


class LostMessages(EmulError):
    """Replies that will not come, and an app that waits for them without a timeout."""


@dataclass
class Asked:
    """A message to which there is no reply yet. given_up: the app waits no longer; it may still pull the reply."""

    message: Message
    node: int
    expires_ns: int
    given_up: bool = False


def expired(asked: Asked, why: str) -> Error:
    """Flower's error for a message without a reply."""
    return Error(ErrorCode.MESSAGE_UNAVAILABLE, f"no reply within the TTL of {asked.message.metadata.ttl:g} s: {why}")


class RoundNumbers:
    """Flower counts no rounds: its strategies write a number into their messages, others put it into `group_id`.

    A round begins with the first message whose number is another one. An app that writes none begins a round each time
    that it trains and waits for the replies.
    """

    def __init__(self) -> None:
        self._number = ""
        self._trained = False

    def begins(self, number: str, trains: bool) -> bool:
        """True if a batch of messages begins another round than the one that goes on, which is the first at first.

        number: what the app calls its round; "": nothing. trains: it is a batch of trainings that is waited for.

        >>> r = RoundNumbers()
        >>> [r.begins("1", True), r.begins("1", False), r.begins("2", True), r.begins("1", True)]
        [False, False, True, True]
        >>> r = RoundNumbers()
        >>> [r.begins("", False), r.begins("", True), r.begins("", False), r.begins("", True)]
        [False, False, False, True]
        """
        if number:
            begins, self._number = bool(self._number) and number != self._number, number
            return begins
        if not trains or self._number:
            return False
        begins, self._trained = self._trained, True
        return begins


@dataclass
class EmulGrid(Grid):
    """node_of: Flower's number of a node -> emul's. timeout_s: at most so long is waited for replies. asks: which nodes
    there are is asked of them; else all of them always are, but those that do not take part in a round. joined: those
    that take part in this round (0) or the next one (1)."""

    guest: Guest
    clock: AppClock
    node_of: dict[int, int]
    names: Sequence[str]
    notes: Notes
    timeout_s: float | None = None
    asks: bool = False
    joined: Callable[[int], Collection[int]] | None = None      # None: all, always

    def __post_init__(self) -> None:
        self._run = Run.create_empty(RUN_ID)
        self._rounds = RoundNumbers()
        self._outgoing: list[tuple[list[int], Call]] = []
        self._asked: dict[str, Asked] = {}
        self._arrived: dict[str, tuple[Asked, Message]] = {}       # in the order of arrival
        self._number = 0
        self._empty_at = -1                         # the virtual time of a pull that found nothing
        self._watched = 0                           # questions who is there, with nothing under way
        self._evaluates, self._last_type = True, ""     # whether it does after each training; what was sent last
        self.nothing_came = ""                      # the reason why the app's last wait brought no result; "": it did

    # --- the seven members of a Grid ------------------------------------------------------------------------------

    def set_run(self, run: object) -> None:
        """There is one run; it is known."""

    @property
    def run(self) -> Run:
        return self._run

    def create_message(self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str,
                       ttl: float | None = None) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        busy = {one.node for one in self._asked.values() if not one.given_up}
        if self.guest.in_its_thread and not busy:
            self._watched += 1
            if self._watched > _POLLS:
                raise EmulError(f"the server app has asked {_POLLS:,} times which nodes there are and sent nothing: it "
                                f"may be waiting for more than the {len(self.node_of)} that the scenario has")
        if not (self.asks and self.guest.in_its_thread):
            if self.joined is None:
                return sorted(self.node_of)
            # an app asks before its messages begin the round: the next one, if this one's last are sent
            there = self.joined(self._last_type == ("evaluate" if self._evaluates else "train"))
            return sorted(number for number, node in self.node_of.items() if node in there)
        # a node that has not answered a message yet is busy with it, and cannot say that it is there
        there = set(self._ask(WhoIsThere())) | busy
        return sorted(number for number, node in self.node_of.items() if node in there)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Take messages on; their replies are welcome whenever they come."""
        return self._push(list(messages), floating=True)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The replies that have come. An app that pulls again at once, though nothing has come, waits for the next
        arrival."""
        ids = list(message_ids)
        if self._empty_at == self.clock.now_ns and any(name in self._asked for name in ids):
            self._take(self._ask(AnyReply(self.clock.now_ns + round(POLL_S * 1e9))))
        self._drain()
        self._expire(ids, named=False)
        found = self._given_out(ids)
        self._empty_at = -1 if found else self.clock.now_ns
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send a batch at one instant, and wait until all replies are there or the timeout has passed.

        A reply that comes later can be pulled by the name of its message until the next round begins.
        """
        ids = self._push(list(messages), floating=False)
        limit = min((s for s in (timeout, self.timeout_s) if s is not None), default=None)
        until = None if limit is None else self.clock.now_ns + round(max(0.0, limit) * 1e9)
        while waiting := {name: self._asked[name] for name in ids if name in self._asked}:
            first = min(one.expires_ns for one in waiting.values())
            deadline = first if until is None else min(first, until)
            self._take(self._ask(Replies({name: one.node for name, one in waiting.items()}, deadline)))
            self._expire(ids, named=until is None)
            if until is not None and self.clock.now_ns >= until:
                break
        for name in ids:
            if name in self._asked:
                self._asked[name].given_up = True
        found = self._given_out(ids)
        if waiting and not found:
            who = [one.node for one in waiting.values()]
            self.nothing_came = f"none of {len(ids)} messages was answered within {limit or 0:g} s: {self._these(who)}"
        return found

    # --- what the role wants ----------------------------------------------------------------------------------------

    def name_of(self, answer: Answer) -> str:
        """The name of the message that it answers; "": it has none."""
        return encoding.answered(answer)

    def outgoing(self) -> list[tuple[list[int], Call]]:
        """The messages to be sent now: (nodes, message), in order."""
        found, self._outgoing = self._outgoing, []
        return found

    def sleep(self, seconds: float) -> None:
        """The stand-in of `time.sleep` in the app."""
        if math.isfinite(seconds):
            self._ask(Sleep(seconds))

    def closing(self) -> BeginRound:
        """The report on the round that ends."""
        model = None if self.notes.model is None else encoding.vector_of(self.notes.model)
        metrics, failure = self.notes.closed(), self.notes.failure()
        return BeginRound(model, metrics, self.notes.counted(), failure)

    # --- sending --------------------------------------------------------------------------------------------------

    def _push(self, messages: list[Message], floating: bool) -> list[str]:
        """Take messages on, each distinct RecordDict serialised once; their names."""
        self._watched = 0
        if not messages:
            return []
        self._begin_round(messages[0], floating)
        absent = [] if self.joined is None else sorted({*self.node_of.values()}.difference(self.joined(0)))
        encoded: dict[int, np.ndarray] = {}
        for message in messages:
            sent_by(message, RUN_ID, SERVER_ID)
        for batch in self._batches(messages):
            first = batch[0]
            if id(first.content) not in encoded:
                encoded[id(first.content)] = encoding.records(first.content)
            self._number += 1
            call = encoding.call_of(first, str(self._number), encoded[id(first.content)], floating)
            self._outgoing.append(([self.node_of[m.metadata.dst_node_id] for m in batch], call))
            for message in batch:
                self._sent(message, str(self._number), absent)
        return [message.metadata.message_id for message in messages]

    def _batches(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Messages that differ in their receivers alone, one for each receiver, in order."""
        found: dict[tuple[object, ...], list[dict[int, Message]]] = {}
        for message in messages:
            meta = message.metadata
            if meta.dst_node_id not in self.node_of:
                raise ValueError(f"there is no node {meta.dst_node_id}: get_node_ids() says which there are")
            alike = found.setdefault((id(message.content), meta.message_type, meta.group_id, meta.ttl), [])
            for batch in alike:
                if meta.dst_node_id not in batch:
                    batch[meta.dst_node_id] = message
                    break
            else:
                alike.append({meta.dst_node_id: message})
        return [list(batch.values()) for alike in found.values() for batch in alike]

    def _sent(self, message: Message, number: str, absent: Sequence[int]) -> None:
        name = encoding.message_id(number, message.metadata.dst_node_id)
        message.metadata.__dict__["_message_id"] = name
        expires = self.clock.now_ns + round(message.metadata.ttl * 1e9)
        asked = Asked(message, self.node_of[message.metadata.dst_node_id], expires)
        if asked.node in absent:
            self._answer_for(name, asked, expired(asked, "the node takes no part in this round"))
        else:
            self._asked[name] = asked

    def _begin_round(self, first: Message, floating: bool) -> None:
        trains = first.metadata.message_type.partition(".")[0] == "train"
        begins = self._rounds.begins(encoding.round_of(first), trains and not floating)
        kind = first.metadata.message_type.partition(".")[0]
        if begins and self._last_type == "train":
            self._evaluates = False
        elif kind == "evaluate":
            self._evaluates = True
        self._last_type = kind
        model = encoding.arrays(first.content)
        if model is not None and first.metadata.message_type in ("train", "evaluate"):
            self.notes.model = model
        if begins:
            self._ask(self.closing())
            self._asked = {name: one for name, one in self._asked.items() if not one.given_up}
            self._arrived = {name: came for name, came in self._arrived.items() if not came[0].given_up}

    # --- receiving ------------------------------------------------------------------------------------------------

    def _ask(self, request: Request) -> Any:
        return self.guest.ask(request)

    def _drain(self) -> None:
        """Take what lies in the inbox."""
        if self._asked:
            self._take(self._ask(Replies({name: one.node for name, one in self._asked.items()}, self.clock.now_ns)))

    def _take(self, answers: list[Answer]) -> None:
        for answer in answers:
            try:
                reply = encoding.reply_of(answer)
            except ProtocolViolation:
                continue                            # of an attacker: to the app it is lost
            name = reply.metadata.reply_to_message_id
            asked = self._asked.get(name)
            if asked is None or asked.node != answer.sender:
                continue                            # nobody asks for it any more
            del self._asked[name]
            if self.clock.now_ns > asked.expires_ns:
                self._answer_for(name, asked, expired(asked, "the reply has expired"))
                continue
            reply.metadata.__dict__["_message_id"] = f"{name}.reply"
            self._arrived[name] = asked, reply

    def _given_out(self, ids: Iterable[str]) -> list[Message]:
        """The replies to these messages that are here: the app gets them now, and they count in the round."""
        wanted = set(ids)
        found = [self._arrived.pop(name) for name in list(self._arrived) if name in wanted]
        for asked, reply in found:
            if reply.metadata.message_id:           # not one that was made up for it
                self._note(asked, reply)
        if found:
            errors = [self._failure(asked, reply) for asked, reply in found if reply.has_error()]
            self.nothing_came = all_failed(errors) if len(errors) == len(found) else ""
        return [reply for _, reply in found]

    def _note(self, asked: Asked, reply: Message) -> None:
        notes, kind = self.notes, asked.message.metadata.message_type.partition(".")[0]
        notes.replies += 1
        notes.errors += reply.has_error()
        if kind == "train" and reply.has_error():
            notes.untrained.append(self._failure(asked, reply))
        elif kind == "train":
            notes.trained += 1
        elif kind == "evaluate" and reply.has_content():
            notes.found.append(encoding.scalars(reply.content))

    def _failure(self, asked: Asked, reply: Message) -> str:
        return f"{self.names[asked.node]}: {reply.error.reason}"

    def _expire(self, ids: Sequence[str], named: bool) -> None:
        """Messages live as long as their TTL. Flower then makes up an error for a reply. But who has set neither a TTL
        nor a timeout waits for what will not come, which is an error. named: such a one waits."""
        gone = {name: self._asked[name] for name in ids
                if name in self._asked and self.clock.now_ns >= self._asked[name].expires_ns}
        if named and any(one.message.metadata.ttl >= DEFAULT_TTL_S for one in gone.values()):
            raise LostMessages(self._lost(list(gone.values()), len(ids)))
        for name, one in gone.items():
            del self._asked[name]
            self._answer_for(name, one, expired(one, "it was lost, or its reply was"))

    def _answer_for(self, name: str, asked: Asked, error: Error) -> None:
        """The reply to a message is this error."""
        sent = Message.__new__(Message)
        sent.__dict__.update(asked.message.__dict__)
        self._arrived[name] = asked, Message(error, reply_to=sent)

    def _lost(self, gone: Sequence[Asked], count: int) -> str:
        who = self._these([one.node for one in gone])
        meta = gone[0].message.metadata
        return (f"no reply to {len(gone)} of {count} messages ({meta.message_type}, to {who}) within their TTL of "
                f"{meta.ttl:g} s: they or their replies are lost, and the app waits for them without a timeout. Give "
                "the strategy or workflow a timeout, or the scheme in the scenario (timeout: 30 s), or the links a "
                "transport that repeats what is lost (transport: {arq: selective_repeat})")

    def _these(self, nodes: Sequence[int]) -> str:
        return listed([self.names[node] for node in nodes], 5)
