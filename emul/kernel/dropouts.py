"""Nodes that drop out of a round at a named stage: just before they would send their first message of a type in it.

Nobody hears anything more of such a node in that round, and nothing of the round reaches it any more. Its role goes on,
as that of a node that is away does. It takes part again in the next round that it enters.
"""

from __future__ import annotations

from emul.base import rows
from emul.base.streams import uniform_at
from emul.kernel.parts import Copy, KNode
from emul.kernel.state import Kernel


def drops_out(kernel: Kernel, node: KNode, kind: str) -> bool:
    """True if nobody hears what the node sends now: it has dropped out of its round, or does so by this message."""
    # A fault at a message and not at a time loses clients at the same point of any protocol, however long its stages
    # take. A crash would not do: its end would have to be known before the next round, and everybody who waits would
    # learn of it (`test_dropping_out_takes_no_time_of_others`).
    round_ = node.round
    if round_ and round_ != node.dropped and any(
            drop.kind == kind and drop.first <= round_ and (drop.last is None or round_ <= drop.last)
            and (drop.p == 1.0 or uniform_at(drop.stream, round_) < drop.p)
            for drop in kernel.plan.dropouts.get(node.id, ())):
        node.dropped = round_
        kernel.log((rows.DROP, node.time, node.id, round_))
    return bool(round_) and round_ == node.dropped


def misses(receiver: KNode, copy: Copy) -> bool:
    """True if the copy arrives at a node that has dropped out of its round. One of no round: until the node enters
    another one."""
    return (copy.round or receiver.round) == receiver.dropped
