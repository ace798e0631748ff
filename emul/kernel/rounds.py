"""Rounds: entered, left, reported; and when the run ends.

A round is closed by the role that decides it: it leaves the block of `node.rounds()` when its wait has ended
(`emul.protocols.rounds`, for most schemes), and `leave_round` takes that in. A node that is in a round which its leader
has left is told so by `waits.close_round`, and a message that comes later is late (`messages.arrive`).
"""

from __future__ import annotations

from emul.base import rows
from emul.kernel import precedents
from emul.kernel.activities import offer_inbox
from emul.kernel.calendar import FAR, LOOK, STOP, TIMER
from emul.kernel.fates import all_ended_known_at, newest_reached, skip_lost_rounds
from emul.kernel.messages import discard_late, empty_inbox
from emul.kernel.parts import KNode
from emul.kernel.state import Kernel
from emul.kernel.waits import depart, only_unread, tell_watchers
from emul.roles.events import Entered, Finish, LeaveRound, NextRound, Report
from emul.roles.world import within


def next_round(kernel: Kernel, node: KNode, action: NextRound) -> None:
    """The node asks for a round: its own next one, or that of its leaders."""
    leaders: tuple[int, ...] = ()
    if action.of is not None:
        leaders = tuple(action.of)
        action, leaders = kernel.asked.setdefault((leaders, action.quorum, action.abandon, action.where),
                                                 (action, leaders))
    node.next = node.following = action
    node.patience = None                        # it was parked until an activity had ended
    if action.of is not None:
        if node.leaders != leaders:
            node.leaders, node.followed_at = leaders, node.time
            for leader in leaders:
                kernel.followers.setdefault(leader, set()).add(node.id)
            if node.watchers:                   # its leaders may have left what somebody waits for
                tell_watchers(kernel, node.time, node)
        node.quorum = action.quorum
        for copy in node.losses:                # lost before it was known whom the node follows
            if skip_lost_rounds(node, copy, node.time):
                tell_watchers(kernel, node.time, node)
        if (newest_reached(node, leaders, action.quorum) <= node.round
                and all_ended_known_at(kernel.nodes, kernel.network, node, leaders) is None):
            return                              # it waits for something that will have it looked at
    kernel.take_now(node, LOOK, node)


def try_next_round(kernel: Kernel, time: int, node: KNode) -> None:
    """Let the node enter a round, if it may by now; 0 tells it that there is none any more."""
    action = node.next
    assert action is not None
    if action.of is not None:
        number = newest_reached(node, action.of, action.quorum)
        if number <= node.round:
            ended = all_ended_known_at(kernel.nodes, kernel.network, node, action.of)
            if ended is None or ended > time:
                if ended is not None:
                    kernel.later(node, ended, LOOK, node)
                return
            number = 0
    else:
        own = _own_number(kernel, time, node, action)
        if own is None:
            return
        number = own
    if time >= kernel.limit or (number and _is_counted(kernel, node) and _must_stop(kernel, node, number)):
        number = 0                              # the run has ended, if at this very instant
    node.next = None
    if number:
        node.round = number
        node.in_round = True
        if number - 1 > node.left:
            node.left = number - 1
            node.depart(node.left, time)
        if node.skipped:
            node.enter_behind(number)
        node.time = time
        discard_late(kernel, node)
        if node.activities:
            offer_inbox(kernel, node)
        if node.id in kernel.deciders and number > kernel.entered:
            kernel.entered = number
            kernel.pulled = 0
            if kernel.plan.rounds:
                kernel.begun.append((number, time, node.id))
                for other in sorted(kernel.joining):
                    joining = kernel.nodes[other]
                    kernel.later(joining, time + kernel.latency(node, joining), LOOK, joining)
    kernel.log((rows.ENTER, time, node.id, number))
    precedents.enter(kernel, node, Entered(node.id, time, number, only_unread(kernel, node) if number else None))
    if number > 1 and node.watchers:
        tell_watchers(kernel, time, node)


def _own_number(kernel: Kernel, time: int, node: KNode, action: NextRound) -> int | None:
    """The number of the next round of a node that counts them by itself, 0 if there is none. None: it has not joined,
    and has no word of a round in which it takes part; it will be looked at when that can come."""
    number = node.round + 1
    if action.sync is not None:
        number = max(number, newest_reached(node, action.sync, action.quorum))
    spans = kernel.plan.rounds.get(node.id)
    if spans is None or within(spans, number) or (action.sync is None and node.id not in kernel.deciders):
        kernel.joining.discard(node.id)
        return number
    if spans[-1][1] < number:
        return 0
    kernel.joining.add(node.id)
    coming = False
    for begun, since, decider in reversed(kernel.begun):
        if begun <= node.round:
            break
        if within(spans, begun):
            word = since + kernel.latency(kernel.nodes[decider], node)
            if word <= time:
                kernel.joining.discard(node.id)
                return begun
            kernel.later(node, word, LOOK, node)
            coming = True
    if not coming and kernel.deciding:
        _end_with_the_last(kernel, time)
    return None


def _end_with_the_last(kernel: Kernel, time: int) -> None:
    """End the run if all deciders that are left wait to join: nobody begins the round that they wait for."""
    if kernel.deciding <= kernel.joining:
        kernel.end_ns = kernel.limit = max(kernel.end_ns, time)
        kernel.deciding.clear()


def leave_round(kernel: Kernel, node: KNode, action: LeaveRound) -> None:
    """The node has left its round: those who wait for it in this round will get nothing more."""
    node.in_round = False
    kernel.log((rows.LEAVE, node.time, node.id, action.round, action.why))
    if action.round > node.left:
        node.left = action.round
        node.depart(action.round, node.time)
        if len(node.departures) > 64:
            del node.departures[:32]
    if action.why and node.id not in kernel.deciders:
        kernel.rounds_missed[node.role] += 1
    discard_late(kernel, node)
    depart(kernel, node.time, node)
    if node.id in kernel.deciders:
        kernel.round_ended = True
        kernel.ended_ns, kernel.ended_after = node.time, kernel.activations
        if kernel.progress is not None:
            kernel.progress(kernel)


def _is_counted(kernel: Kernel, node: KNode) -> bool:
    """True of a decider, and of whoever leads deciders: a decider that cannot be reached any more would else wait for
    a leader that begins round after round, and the run would never end."""
    return node.id in kernel.deciders or not kernel.deciders.isdisjoint(kernel.followers.get(node.id, ()))


def _must_stop(kernel: Kernel, node: KNode, number: int) -> bool:
    stop = kernel.plan.stop
    if stop.observes and not kernel.stopped:
        for round_ in kernel.reports.pop(node.id, ()):
            if stop.reached(kernel.port.observation(node.id, round_).values):
                kernel.stopped = True
                kernel.stop_round = min(kernel.stop_round, kernel.entered)
    return number > kernel.stop_round


def plan_stop(kernel: Kernel, time: int, last: bool = False) -> None:
    """Have `stop_now` called at `time`."""
    kernel.calendar.add(time, (TIMER, -1, int(last), STOP, last, None))


def stop_now(kernel: Kernel, time: int, last: bool) -> None:
    """The virtual time is up: the round that is running is the last. It has as long again to end; then this is it.

    Without rounds nothing can end: this is it at once. A server that waits for ever for what nobody sends would else
    never stop, as long as anybody sleeps.
    """
    kernel.stopped = True
    kernel.stop_round = min(kernel.stop_round, kernel.entered)
    if not last and kernel.entered:
        plan_stop(kernel, min(2 * time, FAR), last=True)
        return
    kernel.end_ns = kernel.limit = time
    kernel.deciding.clear()


def report(kernel: Kernel, node: KNode, action: Report) -> None:
    """Note the values; a stop on accuracy or loss will ask for what they are worth."""
    kernel.log((rows.REPORT, node.time, node.id, action.round, action.values, action.digest))
    if (kernel.plan.stop.observes and action.digest and node.id in kernel.deciders
            and action.round % kernel.plan.evaluate_every == 0):
        kernel.reports.setdefault(node.id, []).append(action.round)


def finish(kernel: Kernel, node: KNode, action: Finish) -> None:
    """The role has returned, or failed by its protocol."""
    node.finished = True
    node.finished_at = node.time
    kernel.log((rows.FINISH, node.time, node.id, action.why))
    empty_inbox(kernel, node)
    decider_ended(kernel, node)
    depart(kernel, node.time, node)


def decider_ended(kernel: Kernel, node: KNode) -> None:
    """The node has ended for good. The run ends with the last of those whose rounds it counts; a follower that is down
    while the last of its leaders ends is through, too: there is no round for it when it comes back."""
    gone = {node.id}.union(n for n in kernel.followers.get(node.id, ()) if is_through(kernel, kernel.nodes[n]))
    if not gone.isdisjoint(kernel.deciding):
        kernel.deciding -= gone
        kernel.end_ns = max(kernel.end_ns, node.time)
        _end_with_the_last(kernel, node.time)


def is_through(kernel: Kernel, node: KNode) -> bool:
    """True of a node that is down and follows leaders that have all ended."""
    return (not node.alive and len(node.leaders) > 0
            and all_ended_known_at(kernel.nodes, kernel.network, node, node.leaders) is not None)
