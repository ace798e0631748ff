"""The frames of messages that one worker holds: of what its nodes have sent, until the last receiver has read them."""

from __future__ import annotations

from collections.abc import Callable

from emul.base.errors import RunError
from emul.message.wire import Encoded, from_frames
from emul.roles.events import Ref, Send

WITH_EVENT_BYTES = 1024             # a message for one node travels with its event up to this: to ship it costs more

Key = tuple[int, int]               # (source, number of the first copy)


class Payloads:
    """home: node -> its worker. mine: the number of this worker. outbox: for payloads that nodes of others will read;
    missing: waits for one that another worker ships. None: there is one worker alone."""

    # The kernel knows who may still read a message (`emul.kernel.parts: Payload`), and the last reader is told that it
    # is the last: so nothing stays longer than somebody can read it, and no model passes through the coordinator, which
    # would copy it twice
    # (`test_every_payload_is_freed_once_nobody_can_read_it`).

    def __init__(self, home: list[int], mine: int, outbox: dict[Key, Encoded] | None,
                 missing: Callable[[Key], Encoded | None] | None):
        self._home, self._mine, self._outbox, self._missing = home, mine, outbox, missing
        self._here: dict[Key, Encoded] = {}     # for nodes of this worker
        self.encoded = 0                        # bytes of the frames of all messages so far, a broadcast once

    def __len__(self) -> int:
        """Those that nodes of this worker have not read."""
        return len(self._here)

    def keep(self, source: int, encoded: Encoded, first: int, to: list[int]) -> list[bytes] | None:
        """Keep the frames for whoever will read them; those of a small message for one node elsewhere are returned, to
        travel with the action."""
        carried = encoded.size - encoded.declared
        self.encoded += carried
        home, mine = self._home, self._mine
        if len(to) == 1:
            if home[to[0]] == mine:
                self._here[source, first] = encoded
                return None
            if carried <= WITH_EVENT_BYTES and encoded.aside is None and encoded.header:
                return [encoded.header, *(buffer.tobytes() for buffer in encoded.buffers)]
        here = away = False
        for target in to:
            if home[target] == mine:
                here = True
            else:
                away = True
        if here:
            self._here[source, first] = encoded
        if away:
            assert self._outbox is not None
            self._outbox[source, first] = encoded
        return None

    def take(self, ref: Ref) -> Encoded:
        """The frames that a node of this worker reads. The last reader drops them. Raises RunError."""
        if ref.frames is not None:
            return from_frames(ref.frames)
        key = (ref.source, ref.first)
        encoded = self._here.get(key)
        if encoded is not None:
            if ref.last:
                del self._here[key]
            return encoded
        if self._missing is None:
            raise RunError(f"no payload for message {ref.first} of node {ref.source}")
        encoded = self._missing(key)
        if encoded is None:
            raise RunError("the run was aborted")
        if not ref.last:
            self._here[key] = encoded
        return encoded

    def sent(self, source: int, send: Send) -> Encoded | None:
        """The frames that a node of this worker has just sent. None: no node of this run will read them."""
        key = (source, send.first)
        if send.frames is not None:
            return from_frames(send.frames)
        return self._here.get(key) or (self._outbox or {}).get(key)

    def drop(self, key: Key) -> None:
        """No node of this worker will read it."""
        if self._here.pop(key, None) is None and self._missing is not None:
            self._missing(key)                  # it is on its way or has come: take it, so that it does not stay
