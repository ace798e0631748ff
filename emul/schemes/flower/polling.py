"""A Grid whose app looks for replies now and then, and where the seconds of such a round go.

Flower's `HttpGrid`, beside a SuperLink, and its `InMemoryGrid`, in the simulation, both keep replies until the app
pulls them, and `send_and_receive` pulls every so many seconds. Imported only where an app runs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message

from emul.schemes.flower.grid import EmulGrid
from emul.schemes.flower.guest import BeginRound, Sleep

PULL_S = 0.01                       # a pull that finds nothing, of an app that pulls again without a sleep

# --- where the seconds of a round go --------------------------------------------------------------------------------

PARTS = ("poll", "busy", "start", "transfer", "compute", "slowest", "server")


@dataclass
class Stages:
    """Of one message, by the clock of the SuperLink, in ns; -1: not yet. free: when its node had sent its last reply.

    compute, start: ns that its ClientApp has computed or slept, and that its process has taken to start.
    """

    pushed: int
    free: int
    delivered: int = -1                 # its metadata, to the node that has looked for it
    received: int = -1                  # the node has all of it
    replied: int = -1                   # the metadata of the reply have come
    there: int = -1                     # and all of it
    pulled: int = -1                    # and the app has it
    compute: int = 0
    start: int = 0

    def spans(self) -> list[tuple[str, int, int]]:
        """(part, begin, end) one after the other, from `pushed` to `pulled`. Polls of a node surround its work."""
        if self.delivered < 0 or self.received < 0 or self.replied < 0:
            return [("busy", self.pushed, self.pulled)]             # of a node that was not there
        found, at = [], self.pushed
        waited = max(0, self.replied - self.received - self.start - self.compute)
        for part, end in (("busy", min(max(self.free, at), self.delivered)), ("poll", self.delivered),
                          ("transfer", self.received), ("poll", self.received + waited),
                          ("start", self.received + waited + self.start), ("compute", self.replied),
                          ("transfer", max(self.replied, self.there)), ("poll", self.pulled)):
            found.append((part, at, max(at, end)))
            at = max(at, end)
        return found


class Ledger:
    """The seconds of each round by what they went for, in the mean over the replies that the app waited for.

    An app pushes messages and pulls replies. From one push to the last pull before the next one, each reply that was
    pulled has seconds of its own, and then waits for the slowest; what is between that and the next push is the
    server's. So the parts of a round add up to it.
    """

    def __init__(self) -> None:
        self._pulled: list[Stages] = []
        self._begin = self._last = 0
        self._sums = dict.fromkeys(PARTS, 0.0)

    def pull(self, now_ns: int, times: Stages) -> None:
        """The app has got a reply."""
        times.pulled = self._last = now_ns
        self._pulled.append(times)

    def push(self, now_ns: int) -> None:
        """The app sends messages, or its round ends: what it has waited for before is over."""
        end = self._last if self._pulled else self._begin
        for times in self._pulled:
            for part, begin, until in [("transfer", self._begin, times.pushed), *times.spans(),
                                       ("slowest", times.pulled, end)]:
                share = max(0, min(until, end) - max(begin, self._begin))
                self._sums[part] += share / len(self._pulled) / 1e9
        self._sums["server"] += (now_ns - end) / 1e9
        self._pulled, self._begin, self._last = [], now_ns, now_ns

    def closed(self, now_ns: int) -> dict[str, float]:
        """Of the round that ends now: {seconds_part: seconds}, which `emul explain` shows as a table."""
        self.push(now_ns)
        found = {f"seconds_{part}": round(seconds, 9) for part, seconds in self._sums.items()}
        self._sums = dict.fromkeys(PARTS, 0.0)
        return found


# --- the Grid --------------------------------------------------------------------------------------------------------

@dataclass
class PollingGrid(EmulGrid):
    """A Grid whose replies lie somewhere until the app pulls them. poll_s: between two pulls of `send_and_receive`."""

    poll_s: float = field(kw_only=True)
    ledger: Ledger = field(default_factory=Ledger)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """As Flower's."""
        return self._push(list(messages), floating=True)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """As Flower's. One that finds nothing at the instant of the last one takes `PULL_S`."""
        if self._empty_at == self.clock.now_ns:
            self._ask(Sleep(PULL_S))
        found = self._pulled(list(message_ids))
        self._empty_at = -1 if found else self.clock.now_ns
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push, then pull every `poll_s` until all replies are there or the timeout is over, as Flower does."""
        missing = self._push(list(messages), floating=False)
        limit = min((s for s in (timeout, self.timeout_s) if s is not None), default=math.inf)
        begun, found = self.clock.now_ns, list[Message]()
        while (self.clock.now_ns - begun) / 1e9 < limit:
            got = self._pulled(missing)
            found += got
            answered = {reply.metadata.reply_to_message_id for reply in got}
            missing = [name for name in missing if name not in answered]
            if not missing:
                break
            self._ask(Sleep(self.poll_s))
        return found

    def _pulled(self, names: list[str]) -> list[Message]:
        self._fetch(names)
        self._expire(names, named=False)
        return self._given_out(names)

    @abstractmethod
    def _fetch(self, names: Sequence[str]) -> None:
        """Take the replies to these messages that are there."""

    def closing(self) -> BeginRound:
        """The report on the round that ends, with where its seconds went."""
        found = super().closing()
        found.counts |= self.ledger.closed(self.clock.now_ns)
        return found
