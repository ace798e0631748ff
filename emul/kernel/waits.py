"""Waits: how one begins, who has it looked at again, and how it ends. `fates.py` says what it may know.

A wait with a timeout (the `deadline` of most schemes) ends when all that it needs has come or its time is up, whichever
is first; the timeout is an entry of the calendar, taken up in `loop.py`. A wait without one ends when the fates of all
its messages are known.
"""

from __future__ import annotations

from itertools import islice
from sys import intern

from emul.base import rows
from emul.kernel import precedents
from emul.kernel.calendar import DEADLINE, FATE, LOOK, TIMER
from emul.kernel.fates import departure_known_at, is_coming, round_is_over, settle, still_there, take_from_inbox
from emul.kernel.parts import Copy, KNode, Patience, Payload, Strand
from emul.kernel.state import Kernel
from emul.message.wire import type_of
from emul.roles.events import Abstain, Drop, Ready, Ref, Reject, Unread, Wait, WaitEnd

_READ_ON = 32                       # messages, at most, that a role reads one after the other without asking


def wait(kernel: Kernel, node: KNode, action: Wait) -> None:
    """The node waits: for what its inbox may hold already, and for fates that may be known already."""
    action.where = intern(action.where)         # decoded anew for each wait, and kept by every node that waits
    strand = node if not action.activity else node.activities[action.activity]
    _go_on(kernel, node, strand, Patience(action, node.time))


def _go_on(kernel: Kernel, node: KNode, strand: Strand, patience: Patience) -> None:
    action, strand.patience = patience.wait, patience
    strand.epoch += 1
    if node.in_round and round_is_over(node) and strand is node:
        kernel.take_now(node, LOOK, node)
        return
    if action.deadline >= 0:
        kernel.later(node, max(action.deadline, node.time), DEADLINE, (strand, strand.epoch), TIMER)
    satisfied = take_from_inbox(node, patience) if node.inbox else not patience.need
    if patience.fates:
        _watch(kernel, node, patience, satisfied)
        satisfied = satisfied or not patience.open
    if satisfied:
        kernel.take_now(node, LOOK, node)


def _watch(kernel: Kernel, node: KNode, patience: Patience, satisfied: bool) -> None:
    """Have the node hear of those whose fate is open, and of those that is known by now, unless it is satisfied."""
    nodes, network = kernel.nodes, kernel.network
    round_, lossless = node.round if node.in_round else 0, not node.losses
    kernel.watched |= patience.open
    for number in sorted(patience.open):
        source = nodes[number]
        source.watch(node.id)
        if satisfied or (lossless and still_there(source, node, round_)):
            continue
        _await_departure(kernel, node, patience, number)
        settle(nodes, network, node, patience, number, node.time)


def abstain(kernel: Kernel, node: KNode, action: Abstain) -> None:
    """The node says that it will not send these types to these nodes in this round."""
    kernel.log((rows.ABSTAIN, node.time, node.id, action.round, action.to, [type_of(kind) for kind in action.kinds]))
    if not node.abstained:
        node.abstained = {}
    for target in action.to:
        for kind in action.kinds:
            node.abstained.setdefault((target, kind, action.round), node.time)
    tell_watchers(kernel, node.time, node)


def resume(kernel: Kernel, time: int, node: KNode, strand: Strand, outcome: WaitEnd) -> None:
    """End a wait of a node, its role's own or that of an activity, and hand over what it got."""
    patience = strand.patience
    assert patience is not None
    strand.patience = None
    strand.epoch += 1
    got = patience.unread() if patience.handed else list(patience.got.values())
    if outcome == WaitEnd.ROUND_OVER:
        node.put_back(got)                      # unread: late once the round is left
        close_round(kernel, time, node)
        return
    if patience.wait.accepts:
        strand.refusable = patience
    if kernel.imitators and node.id in kernel.imitators:        # of its message, which stays until the round is left
        kernel.log((rows.RESUME, time, node.id, int(outcome), len(got)))
        precedents.go_on(kernel, node, Ready(node.id, time, [], outcome))
        return
    refs = []
    for copy in got:
        payload = copy.payload
        if patience.sources is None and copy.source != node.id:
            node.activations_here -= 1          # a node that reads others' messages one by one is in no endless loop
        if payload is None:
            refs.append(Ref(copy.source, copy.seq, True, copy.frames))
        else:
            last = payload.settle(node.worker)
            refs.append(_ref(copy, payload, last))
            if last and node.id in kernel.ahead:        # it has been read, and nobody knew that it was the last time
                kernel.port.post(node.worker, Drop(payload.source, payload.first))
    kernel.log((rows.RESUME, time, node.id, int(outcome), len(refs)))
    if strand.number:
        kernel.log((rows.BESIDE, time, node.id, strand.number, 0))
    ready = Ready(node.id, time, refs, outcome, strand.number)
    if patience.sources is None and patience.need == 1:
        if node.reads and node.inbox and node.id not in kernel.ahead:
            ready.unread = _unread_behind(kernel, node)
        node.reads += 1
    kernel.open_activation(node, time, ready)


def _unread_behind(kernel: Kernel, node: KNode) -> list[Unread]:
    """The messages that a node which reads one after the other will get next, if nothing but itself can keep it from
    that: as many as it has read so far, since it may stop to do something else."""
    # A server that takes updates one by one has hundreds of one instant in its inbox, and with an exchange between
    # processes for each of them nobody else had work meanwhile: with two workers a later round of FedBuff takes 0.62 of
    # the CPU so (0.49 to 0.66 in five pairs on a busy machine).
    if not kernel.steady or node.activities or node.leaders or node.id in kernel.learning:
        return []
    found = []
    for copy in islice(node.inbox, min(node.reads, _READ_ON)):
        if copy.round and copy.round != node.round:
            break
        found.append(_unread(copy, False))
    return found


def only_unread(kernel: Kernel, node: KNode) -> Unread | None:
    """The content of the inbox of a node that enters its round, if that is one message of this round and nothing but
    the node itself can keep it from taking it."""
    # It travels with the event of the entry: one exchange between processes less, about 8 messages of 70 in a round of
    # 100 clients. Timings do not show it (10 and 4 % less CPU and 18 % more, on a busy machine). Under faults a crash
    # at that instant would have to come between (`test_nobody_goes_on_at_once_where_a_fault_could_come_between`).
    if len(node.inbox) != 1 or not kernel.steady or node.activities:
        return None
    copy, = node.inbox
    if copy.round and copy.round != node.round:
        return None
    nodes = kernel.nodes
    return _unread(copy, all(leader not in node.coming and nodes[leader].out_latency > 0 for leader in node.leaders))


def _unread(copy: Copy, last: bool) -> Unread:
    payload = copy.payload
    if payload is None:
        return Unread(copy.kind, Ref(copy.source, copy.seq, True, copy.frames), last)
    return Unread(copy.kind, _ref(copy, payload, False), last)      # its last reader is known at the end


def _ref(copy: Copy, payload: Payload, last: bool) -> Ref:
    """The name of the frames of a copy, which may be those that another node has sent (`precedents`)."""
    return Ref(payload.source, payload.first, last, None, -1 if payload.source == copy.source else copy.source)


def reject(kernel: Kernel, node: KNode, action: Reject) -> None:
    """The role refuses some of what its wait has brought: the wait goes on, with its deadline, sources and beginning.

    In a wait without a timeout the refused messages count as lost. A wait that needs a number of messages goes on until
    as many others have come.
    """
    strand = node if not action.activity else node.activities[action.activity]
    patience = strand.refusable
    assert patience is not None
    for source, reason in zip(action.sources, action.reasons, strict=True):
        copy = patience.got.pop(source)
        kernel.log((rows.REJECT, node.time, copy.source, copy.seq, reason))
        if patience.fates:
            patience.open.add(source)
            node.losses = [*node.losses, copy]
    patience.handed = set(patience.got)
    node.activations_here -= 1                  # as often as others have sent to it: no endless loop
    _go_on(kernel, node, strand, patience)


def close_round(kernel: Kernel, time: int, node: KNode) -> None:
    """Tell the node that its leaders have left its round behind."""
    kernel.log((rows.RESUME, time, node.id, int(WaitEnd.ROUND_OVER), 0))
    precedents.go_on(kernel, node, Ready(node.id, time, [], WaitEnd.ROUND_OVER))


def _await_departure(kernel: Kernel, node: KNode, patience: Patience, source: int) -> None:
    """If `source` has already gone from this wait, but the word of it is still under way: look again then."""
    known = departure_known_at(kernel.nodes, kernel.network, node, patience, source)
    if known is not None and known > node.time:
        kernel.later(node, known, FATE, (node, source))


def tell_watchers(kernel: Kernel, time: int, source: KNode) -> None:
    """`source` has left a round, abstained or ended: whoever waits for it learns so after the least latency."""
    # Only its watchers look again: if every wait looked at every departure, a round of n clients would cost n squared.
    gone = []
    for watcher in sorted(source.watchers) if len(source.watchers) > 1 else source.watchers:
        node = kernel.nodes[watcher]
        waits = node.waits_for(source.id)
        if not waits:
            gone.append(watcher)
        for patience in waits:
            if is_coming(node, patience, source.id):
                continue
            known = departure_known_at(kernel.nodes, kernel.network, node, patience, source.id)
            if known is not None:
                kernel.later(node, max(known, time), FATE, (node, source.id))
    if gone:
        source.unwatch(gone)
        if not source.watchers:
            kernel.watched.discard(source.id)


def depart(kernel: Kernel, time: int, node: KNode) -> None:
    """`node` has left a round, or ended: tell those who wait for it, and for followers that it never called."""
    # A round of 100 clients must cost the same with 100 registered clients and with a million. So the kernel asks the
    # nodes whose wait depends on this one and those that follow it, and loops over no others
    # (`test_the_work_of_a_round_is_that_of_its_sampled_clients`).
    if node.watchers:
        tell_watchers(kernel, time, node)
    followers, ended = kernel.followers.get(node.id), node.finished or not node.alive
    if not followers:
        return
    for number in sorted(followers & kernel.watched):
        follower = kernel.nodes[number]         # all its leaders may have left a round that it never entered
        if ended or follower.round < node.left:
            tell_watchers(kernel, time, follower)
    if ended and time + node.out_latency <= kernel.limit:   # followers that wait for a round may wait for nothing
        for number in sorted(followers):
            follower = kernel.nodes[number]
            if follower.next is not None:
                kernel.later(follower, time + kernel.latency(node, follower), LOOK, follower)
