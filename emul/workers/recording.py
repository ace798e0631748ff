"""Messages of the types that a scenario wants to have kept, written as they are sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from emul.base import payloads
from emul.base.files import recorded
from emul.base.payloads import Head
from emul.message.wire import Encoded, type_of
from emul.roles.events import Action, RoleEvent, Send, SendEach
from emul.workers.payloads import Payloads


class Recording:
    """Recorded messages that one worker's nodes send, of some types in some rounds, below `directory`. Off the clock.

    rounds: first and last; a message outside rounds is always kept. room: bytes of frames that one node may leave; it
    does not depend on what others send, so that any number of workers keeps the same. frames: of the same worker.
    """

    def __init__(self, directory: str, names: list[str], kinds: Collection[str], rounds: tuple[int, int], room: int,
                 frames: Payloads):
        self._home, self._names, self._kinds, self._rounds = Path(directory), names, frozenset(kinds), rounds
        self._room, self._left = room, {}                       # type: int, dict[int, int]
        self._frames = frames

    def look(self, event: RoleEvent, actions: Iterable[Action]) -> None:
        """Keep what a role has sent at an event, if it is to be kept. Raises NotRecorded."""
        for action in actions:
            for send in _singly(action):
                encoded = self._frames.sent(event.node, send)
                if encoded is not None:
                    self._write(event.node, event.now, send, encoded)

    def _write(self, node: int, now_ns: int, send: Send, encoded: Encoded) -> None:
        first, last = self._rounds
        kind = type_of(send.kind)
        if kind not in self._kinds or (send.round and not first <= send.round <= last):
            return
        name = self._names[node]
        if node not in self._left:
            self._left[node] = self._room
            with recorded(self._home):
                payloads.begin(self._home, name)
        carried = encoded.size - encoded.declared
        kept = carried <= self._left[node]
        if kept:
            self._left[node] -= carried
        head = Head(node, send.first, send.to, kind, send.round, now_ns, send.size, kept)
        with recorded(self._home):
            payloads.append(self._home, name, head, encoded.frames() if kept else [])


def _singly(action: Action) -> Iterable[Send]:
    """The messages that the action sends."""
    if type(action) is SendEach:
        return map(action.singly, range(len(action.to)))
    return [action] if type(action) is Send else []
