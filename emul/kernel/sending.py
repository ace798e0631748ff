"""Waits for the end of a transmission (`node.sent`). A node that asks for none comes here for nothing.

A link of a node's own says in advance when a message has left the node. It is asked again then, since a fault may have
changed that. A link that shares its bandwidth cannot say: the end of the flow tells. Nor can a link that
gives back what a contact cuts: there a message has left when it has come to the link's end.
"""

from __future__ import annotations

from sys import intern
from typing import TypeAlias

from emul.kernel.calendar import FAR, LOOK, SENT
from emul.kernel.fates import round_is_over
from emul.kernel.parts import FLOW, OWN, RETURNING, Copy, KNode, Patience, Pipe, Strand
from emul.kernel.state import Kernel
from emul.kernel.waits import resume
from emul.roles.events import SENDING, AwaitSent, Wait, WaitEnd

# whose wait, its epoch, first link, message; None: when it has left is settled
Transmission: TypeAlias = tuple[Strand, int, Pipe | None, Copy | None]


def await_sent(kernel: Kernel, node: KNode, action: AwaitSent) -> None:
    """The node waits until its newest message to another one has left it."""
    strand = node if not action.activity else node.activities[action.activity]
    strand.patience = Patience(Wait([], [], 1, SENDING, intern(action.where)), node.time)
    strand.epoch += 1
    if node.in_round and round_is_over(node) and strand is node:
        kernel.later(node, node.time, LOOK, node)
        return
    pipe = node.ways.get(action.to, (None, None))[1]
    if kernel.network.earliest is not None:     # no way is kept: each message has its own
        pipe, copy = _newest_of_any_way(kernel, node, action.to)
    else:
        copy = None if pipe is None else _newest(kernel, node, pipe, action.to)
    if pipe is None or copy is None:
        kernel.later(node, node.time, SENT, (strand, strand.epoch, None, None))
    elif pipe.direct:
        kernel.later(node, max(node.time, pipe.link.busy_until), SENT, (strand, strand.epoch, None, None))
    else:
        what = strand, strand.epoch, pipe, copy
        kernel.sending.setdefault(copy, []).append((node, what))
        kernel.later(node, node.time, SENT, what)


def _newest(kernel: Kernel, node: KNode, pipe: Pipe, target: int) -> Copy | None:
    """The newest message to `target` that may still be on the first link of its way."""
    for copy in reversed(kernel.nodes[target].coming.get(node.id, ())):
        if not (copy.hop if pipe.kind == OWN else copy.through):
            return copy
    return None


def _newest_of_any_way(kernel: Kernel, node: KNode, target: int) -> tuple[Pipe | None, Copy | None]:
    """The same where routes depend on the time, and the link that it is on."""
    for copy in reversed(kernel.nodes[target].coming.get(node.id, ())):
        pipe = None if len(copy.path) < 2 else kernel.pipes.get((copy.path[0], copy.path[1]))
        if pipe is not None and not copy.hop and not copy.through:
            return pipe, copy
    return None, None


def look_at_transmission(kernel: Kernel, time: int, node: KNode, what: Transmission) -> None:
    """End the wait if the message has left the node by now; else look again when it may have."""
    strand, epoch, pipe, copy = what
    waits = strand.epoch == epoch and node.alive
    if waits and pipe is not None and copy is not None and not copy.through:
        if pipe.kind in (FLOW, RETURNING):      # `transmitted` will tell
            return
        end = pipe.link.end_of(copy)
        if end is not None and end > time:
            if end < FAR:                       # else the link is paused, and `link_changed` will tell
                kernel.later(node, end, SENT, what)
            return
    if copy is not None and (node, what) in kernel.sending.get(copy, ()):
        kernel.sending[copy].remove((node, what))
        if not kernel.sending[copy]:
            del kernel.sending[copy]
    if waits:
        resume(kernel, time, node, strand, WaitEnd.TIMEOUT)


def transmitted(kernel: Kernel, time: int, copy: Copy) -> None:
    """A copy has left a link that nodes share: those that wait for it go on."""
    copy.through = True
    if kernel.sending:
        for node, what in kernel.sending.pop(copy, ()):
            kernel.later(node, time, SENT, what)


def link_changed(kernel: Kernel, time: int) -> None:
    """A fault has changed a link: messages may leave earlier than was thought."""
    for waits in kernel.sending.values():
        for node, what in waits:
            kernel.later(node, time, SENT, what)
