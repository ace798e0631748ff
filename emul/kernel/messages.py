"""The way of a message: sent, offered to the links of its route, arrived, lost or late; and where its frames lie.

A link decides whether it loses a message (`emul.network.links`); `arrive` says what the receiver then knows of it, and
`emul.kernel.fates` when a wait ends because of that. The bytes of a message are counted by `emul.message.wire`, its
envelope and packets here and at the link (`Link.wire_bytes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from sys import intern

from emul.base import rows
from emul.base.streams import uniform_at
from emul.kernel.battery import carried
from emul.kernel.calendar import ADVANCE, FAR, FLOW_IN, FLOW_ON, LAND, LOCAL, NETWORK, OFFER
from emul.kernel.fates import give_to_activity, matches, settle, skip_lost_rounds
from emul.kernel.parts import FLOW, OWN, RETURNING, Copy, KNode, Payload, Pipe
from emul.kernel.sending import transmitted
from emul.kernel.state import Kernel
from emul.kernel.waits import tell_watchers
from emul.message.wire import ENVELOPE_BYTES, TAG, type_of
from emul.network import GIVEN_BACK, HERE, FlowLink, Link, Tail
from emul.network.graph.earliest import MOST_HOPS
from emul.roles.events import Drop, Send, SendEach

_REFUSALS = 8                       # kept of a source, for waits that know fates: a flood must not fill the memory
_ABSTENTIONS = 1000                 # kept of a node, before those of old rounds are forgotten


# --- sending --------------------------------------------------------------------------------------------------------

def send(kernel: Kernel, node: KNode, action: Send, example: int | None = None) -> None:
    """One copy for each target, offered to the first link of its way.

    example: the node that has sent this, if `node` imitates it (`precedents`): its frames stand for those of `node`.
    """
    time, source, kind, round_ = node.time, node.id, intern(action.kind), action.round
    first = seq = action.first if example is None else node.sent
    size = action.size + ENVELOPE_BYTES
    nodes, log = kernel.nodes, kernel.log
    name = type_of(kind) if TAG in kind else kind
    away = node.away or (bool(kernel.plan.dropouts) and drop_out(kernel, node, name))
    reason = action.reason
    if size > kernel.plan.max_message and not reason:
        reason = "larger than max_message"
    frames = action.frames
    payload = kernel.shared.get((source if example is None else example, action.first)) if kernel.shared else None
    if payload is None and frames is None and (len(action.to) > 1 or nodes[action.to[0]].worker != node.worker):
        payload = Payload(source, seq, node.worker)
    if payload is not None:
        for target in action.to:
            payload.expect(nodes[target].worker)
    for target in action.to:
        way = node.ways.get(target)
        if way is None:
            way = way_to(kernel, node, nodes[target], size)
        path, pipe = way
        copy = Copy(source, seq, target, kind, size, round_, payload, path, reason, frames)
        expect(nodes[target], copy)
        if pipe is None and target == source:
            log((rows.SEND, time, source, seq, target, name, action.size, 0, round_, -1, -1))
            kernel.later(node, time, LOCAL, (copy, True, 0, 0, None))
        elif pipe is None or away:              # nobody hears it; known when it would have come at the earliest
            copy.through = True
            log((rows.SEND, time, source, seq, target, name, action.size, 0, round_, -1, -1))
            kernel.calendar.add(time + kernel.latency(node, nodes[target]), (
                NETWORK, source, seq + FAR, LAND, (copy, False, 0, 0, None), nodes[target]))
        else:
            wire = size if pipe.plain else pipe.link.wire_bytes(size)
            log((rows.SEND, time, source, seq, target, name, action.size, wire, round_, pipe.src, pipe.dst))
            _offer(kernel, time, pipe, copy)
            if node.charge is not None:
                carried(kernel, node, time, wire, pipe.src, pipe.dst, node.charge.battery.send_w)
        seq += 1
    node.sent = seq
    if action.declared:
        for copy_number in range(first, seq):
            log((rows.DECLARED, time, source, copy_number, action.declared))


def send_each(kernel: Kernel, node: KNode, action: SendEach) -> None:
    """A copy of its own for each target. Journal, times and fates are those of single sends in this order."""
    # Shares of secrets are n^2 messages a round. With 300 nodes that all send to all, a message takes 15.1 us in one
    # pass, and 50.0 us one by one (in process, three pairs).
    # `test_bulk_is_single_sends_over_any_links_and_faults` holds both ways against each other.
    plain = not node.away and node.charge is None and kernel.network.earliest is None
    ways = _direct(kernel, node, action.to) if plain else None
    if ways is not None:
        kernel.unwritten.extend(_carry(kernel, node, action, ways))
        return
    for place in range(len(action.to)):
        send(kernel, node, action.singly(place))


def _direct(kernel: Kernel, node: KNode, targets: list[int]) -> list[tuple[Sequence[int], Pipe]] | None:
    """Route and first link to each; None: some are no links that say at once what becomes of a message."""
    ways, found = node.ways, []
    for target in targets:
        way = ways.get(target)
        if way is None:
            way = way_to(kernel, node, kernel.nodes[target], 0)
            ways = node.ways
        path, pipe = way
        if pipe is None or not pipe.direct:
            return None
        found.append((path, pipe))
    return found


def _carry(kernel: Kernel, node: KNode, action: SendEach, ways: list[tuple[Sequence[int], Pipe]]) -> list[rows.Row]:
    """Put each onto the first link of its way, which says at once what becomes of it. Their rows in the journal."""
    time, source, home, seq, round_ = node.time, node.id, node.worker, action.first, action.round
    kind, declared, reasons, frames = intern(action.kind), action.declared, action.reasons, action.frames
    name, nodes, most, add = intern(type_of(kind)), kernel.nodes, kernel.plan.max_message, kernel.calendar.add
    block: list[rows.Row] = []
    log = block.append
    for place, (target, size, (path, pipe)) in enumerate(zip(action.to, action.sizes, ways, strict=True)):
        receiver, link, full = nodes[target], pipe.link, size + ENVELOPE_BYTES
        reason = reasons[place] if reasons else ""
        if full > most and not reason:
            reason = "larger than max_message"
        own, payload = frames[place] if frames else None, None
        if own is None and receiver.worker != home:
            payload = Payload(source, seq, home)
            payload.expect(receiver.worker)
        copy = Copy(source, seq, target, kind, full, round_, payload, path, reason, own)
        expect(receiver, copy)
        log((rows.SEND, time, source, seq, target, name, size, full if pipe.plain else link.wire_bytes(full), round_,
             pipe.src, pipe.dst))
        if declared and declared[place]:
            log((rows.DECLARED, time, source, seq, declared[place]))
        due, delivered = link.carry(time, full, round_)
        add(due, (NETWORK, source, seq + FAR, LAND, (copy, delivered, HERE, 0, pipe), pipe.owner))
        if payload is not None and not (delivered and len(path) > 2):
            decide(kernel, copy, delivered)
        seq += 1
    node.sent = seq
    return block


def expect(receiver: KNode, copy: Copy) -> None:
    """The copy is under way to this node from now on."""
    coming, source = receiver.coming, copy.source
    if source in coming:
        coming[source].append(copy)
    elif coming:
        coming[source] = [copy]
    else:
        receiver.coming = {source: [copy]}


def way_to(kernel: Kernel, node: KNode, target: KNode, size: int) -> tuple[Sequence[int], Pipe | None]:
    """The vertices from node to target, and the first link of that route, which is kept for all that follows.

    Where routes depend on the time: those for a message of `size` bytes that is sent now, as far as they are known
    (`_leads_on`); the link is None where no plan delivers it.
    """
    way: tuple[Sequence[int], Pipe | None]
    earliest = kernel.network.earliest
    if target is node:
        way = (node.vertex,), None
    elif earliest is not None:
        found = earliest.way(node.vertex, target.vertex, node.time, size)
        if found is None:
            return (node.vertex, target.vertex), None
        return _known(found), find_pipe(kernel, found[0], found[1])
    else:
        path = kernel.network.route(node.vertex, target.vertex)
        way = path, find_pipe(kernel, path[0], path[1])
    if not node.ways:
        node.ways = {}
    node.ways[target.id] = way
    return way


def _known(way: Sequence[int]) -> list[int]:
    """All of a way that is known before the message is at its next vertex: from here to there, and the target."""
    return [*way[:2], way[-1]] if len(way) > 2 else list(way)


# --- nodes that drop out of a round, just before they would send their first message of a type in it -----------------
# Nobody hears anything more of such a node in that round, and nothing of the round reaches it any more. Its role goes
# on, as that of a node that is away does. It takes part again in the next round that it enters.

def drop_out(kernel: Kernel, node: KNode, kind: str) -> bool:
    """Let the node drop out of its round if a fault says so of this type. True if it has, now or before: then nobody
    hears what it sends."""
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


# --- from link to link ----------------------------------------------------------------------------------------------

def _leads_on(kernel: Kernel, time: int, copy: Copy, pipe: Pipe) -> bool:
    """Find the next link of a copy that is whole at a vertex, over the plan from now on. False: none delivers it, and
    it is lost, which is known after the least latency."""
    path, hop, earliest = copy.path, copy.hop, kernel.network.earliest
    assert earliest is not None
    assert isinstance(path, list)
    target = kernel.nodes[copy.target]
    found = earliest.way(path[hop], target.vertex, time, copy.size) if hop < MOST_HOPS else None
    if found is not None:
        path[hop:] = _known(found)
        return True
    transmitted(kernel, time, copy)
    known = time + kernel.network.latency_ns(path[hop], target.vertex)
    kernel.calendar.add(known, (NETWORK, copy.source, copy.seq + FAR, LAND, (copy, False, HERE, 0, pipe), target))
    return False


def _take_another_way(kernel: Kernel, time: int, copy: Copy, pipe: Pipe) -> None:
    """A contact has ended before the copy was through: it is whole at the near end of that link still."""
    if not _leads_on(kernel, time, copy, pipe):
        return
    other = find_pipe(kernel, copy.path[copy.hop], copy.path[copy.hop + 1])
    # The row comes when the hop begins, so the bytes of the hop that loses the message count: the sender has spent
    # them. If only delivered bytes counted, a scheme that loses half of its messages would look cheap
    # (`test_a_lost_message_occupies_the_link_and_is_known_when_it_would_have_arrived`).
    wire, source = other.link.wire_bytes(copy.size), kernel.nodes[copy.source]
    kernel.log((rows.HOP, time, copy.source, copy.seq, wire, other.src, other.dst))
    _offer(kernel, time, other, copy)
    if source.charge is not None and not copy.hop:
        carried(kernel, source, time, wire, other.src, other.dst, source.charge.battery.send_w)


def _to_begin_of_row(flows: Pipe, copy: Copy) -> None:
    """A contact has cut its flow over a row of shared links: it is at the first of them again. The bytes that have
    come to its target stay there; at another vertex they are of no use, since the way may be another one."""
    rest = flows.link.rest_of(copy)
    if copy.hop == len(copy.path) - 2:
        copy.size = min(copy.size, max(1, ceil(copy.size * rest.left_bytes / rest.size_bytes)))
    copy.hop -= rest.links - 1


def _offer(kernel: Kernel, time: int, pipe: Pipe, copy: Copy, tail: Tail = HERE) -> None:
    """The copy's next link. `tail`: when the rest of it will be here; it is, if that has passed."""
    if pipe.direct and tail.end_ns <= time:     # most links of most runs: `Link.carry` says what that saves
        due, delivered = pipe.link.carry(time, copy.size, copy.round)
        kernel.calendar.add(due, (NETWORK, copy.source, copy.seq + FAR, LAND, (copy, delivered, HERE, 0, pipe),
                                  pipe.owner))
        payload = copy.payload
        if payload is not None and payload.undecided and not (delivered and copy.hop < len(copy.path) - 2):
            decide(kernel, copy, delivered)
        return
    if pipe.kind or pipe.cut or tail.end_ns > time:
        if pipe.kind == FLOW:
            if tail.end_ns > time:              # it comes there whole, and may be lost there until then
                kernel.calendar.add(tail.end_ns, (NETWORK, copy.source, copy.seq + FAR, OFFER, (pipe, copy, tail),
                                                  None))
            else:
                _enter(kernel, time, pipe, copy, [])
        else:
            offer_to(kernel, time, pipe, copy, tail)
        return
    delivered = pipe.link.offer(time, copy, copy.size, copy.round)
    if pipe.due is None:
        _look_at(kernel, pipe)
    payload = copy.payload
    if (payload is not None and payload.undecided and kernel.early
            and not (delivered and copy.hop < len(copy.path) - 2)):
        decide(kernel, copy, delivered)


def offer_to(kernel: Kernel, time: int, pipe: Pipe, copy: Copy, tail: Tail) -> None:
    """Offer the copy to a link whose next departure this may change, or that shares its bandwidth."""
    if pipe.kind == FLOW:
        _enter(kernel, time, pipe, copy, [])
        return
    pipe.link.offer(time, copy, copy.size, copy.round, copy.hop >= len(copy.path) - 2, tail)
    look_again(kernel, pipe)


def _enter(kernel: Kernel, time: int, pipe: Pipe, copy: Copy, ends: list[tuple[Pipe, int]]) -> None:
    """The copy comes to a link that shares its bandwidth; `ends`: those before it in a row, and when it came there.

    One flow takes them all, up to the last in a row or one that loses it. It pays their latencies first, one after
    the other, and occupies them all at once after that, as flows of SimGrid do.
    """
    delivered, delay = pipe.link.enter(time, copy.size, copy.round)
    ends.append((pipe, time))
    number, seq, last = copy.source, copy.seq + FAR, copy.hop == len(copy.path) - 2
    if last or not delivered or not _row_goes_on(kernel, time + delay, copy):
        kernel.calendar.add(time + delay, (NETWORK, number, seq, FLOW_IN, (copy, delivered, ends), None))
    else:
        kernel.calendar.add(time + delay, (NETWORK, number, seq, FLOW_ON, (copy, ends), pipe.owner))


def _row_goes_on(kernel: Kernel, time: int, copy: Copy) -> bool:
    """True if the copy, which comes to the end of a shared link at `time`, goes on over another one without being whole
    in between. With routes by the time that link must be the next one by the plan, and transmit then."""
    path, at, earliest = copy.path, copy.hop + 1, kernel.network.earliest
    if earliest is None:
        return find_pipe(kernel, path[at], path[at + 1]).kind == FLOW
    assert isinstance(path, list)
    found = earliest.way(path[at], path[-1], time, copy.size) if at < MOST_HOPS else None
    if found is None:
        return False
    following = find_pipe(kernel, path[at], found[1])
    if following.kind != FLOW or not following.link.transmits(time):
        return False
    path[at:] = _known(found)
    return True


def enter_next(kernel: Kernel, time: int, copy: Copy, ends: list[tuple[Pipe, int]]) -> None:
    """The copy has paid the latency of one shared link, and comes to the next in a row."""
    copy.hop += 1
    pipe = find_pipe(kernel, copy.path[copy.hop], copy.path[copy.hop + 1])
    kernel.log((rows.HOP, time, copy.source, copy.seq, pipe.link.wire_bytes(copy.size), pipe.src, pipe.dst))
    _enter(kernel, time, pipe, copy, ends)


def start_flow(kernel: Kernel, time: int, copy: Copy, delivered: bool, ends: list[tuple[Pipe, int]]) -> None:
    """All latencies of a row of shared links are paid: now the copy occupies them."""
    if any(pipe.link.dropped_ns >= since for pipe, since in ends):      # a fault has dropped it on its way
        delivered = False
    flows = kernel.flows
    if flows is None:
        flows = kernel.flows = Pipe(kernel.network.flows, None, -1, 0, FLOW)
    source, target = kernel.nodes[copy.source], kernel.nodes[copy.target]
    kernel.network.flows.start(time, copy, copy.size, delivered, [pipe.link for pipe, _ in ends],
                               kernel.latency(source, target), (source.vertex, target.vertex), copy.round)
    look_again(kernel, flows)


def decide(kernel: Kernel, copy: Copy, delivered: bool) -> None:
    """The frames go to the receiver's worker once it is decided that they arrive, once per worker."""
    payload, worker = copy.payload, kernel.nodes[copy.target].worker
    if payload is None or worker == payload.home or copy.decided:
        return
    copy.decided = True
    payload.undecided -= 1
    last = not payload.undecided
    if delivered and not copy.reason and payload.ship(worker):
        kernel.port.ship(payload.source, payload.first, payload.home, worker, last)
    elif last:
        kernel.port.forget(payload.source, payload.first, payload.home)


def find_pipe(kernel: Kernel, src: int, dst: int) -> Pipe:
    """The pipe of the link from vertex `src` to vertex `dst`, made on first use."""
    pipe = kernel.pipes.get((src, dst))
    if pipe is None:
        link = kernel.network.link(src, dst)
        kind = FLOW if isinstance(link, FlowLink) else RETURNING if link.returns else OWN
        pipe = kernel.pipes[src, dst] = Pipe(link, kernel.at.get(dst), src, dst, kind)
        pipe.direct = kind == OWN and kernel.early and type(link) is Link
    return pipe


def _look_at(kernel: Kernel, pipe: Pipe) -> None:
    """Have the calendar look at the link when the next thing leaves it."""
    due = pipe.due = pipe.link.next_change()
    if due is None:
        return
    if pipe.stale and due in pipe.stale:        # it was to be looked at then, before the link changed
        pipe.stale.discard(due)
        return
    owner = pipe.owner if pipe.kind == OWN else None
    kernel.calendar.add(due, (NETWORK, pipe.src, pipe.dst - FAR, ADVANCE, pipe, owner))


def look_again(kernel: Kernel, pipe: Pipe) -> None:
    """As `_look_at`, where the next thing may leave earlier or later than was thought."""
    if pipe.due is not None:
        pipe.stale = (pipe.stale or set()) | {pipe.due}
    _look_at(kernel, pipe)


def leave_link(kernel: Kernel, time: int, pipe: Pipe) -> list[tuple[Copy, bool, Tail, int]]:
    """The copies that leave the link now; and the calendar is told when to look at it next."""
    # A link with one sender gets its offers in the order of time. One with many ends does not, because nodes run ahead,
    # and to sort what it is offered it would have to take back decisions that others have seen. So offers and arrivals
    # are entries of the calendar (`test_neither_lookahead_nor_the_order_of_answers_shows`).
    if pipe.due != time:                        # the link has changed since, and was scheduled anew
        if pipe.stale:
            pipe.stale.discard(time)
        return []
    left = pipe.link.advance(time)
    _look_at(kernel, pipe)
    if pipe.kind == OWN:
        return left
    # it has many ends: what arrives does so in an entry of the node where it does, which may have to wait for it
    for copy, delivered, tail, resent in left:
        last = find_pipe(kernel, copy.path[copy.hop], copy.path[copy.hop + 1])     # on which it is lost, if it is
        if tail is not GIVEN_BACK:
            transmitted(kernel, time, copy)
        elif pipe.kind == FLOW:
            _to_begin_of_row(pipe, copy)
        end = find_pipe(kernel, copy.path[copy.hop], copy.path[copy.hop + 1])
        if resent and pipe.kind == FLOW:            # over all links of its row; `arrive` tells of the last one
            hop = copy.hop - 1
            while hop >= 0 and (before := find_pipe(kernel, copy.path[hop], copy.path[hop + 1])).kind == FLOW:
                kernel.log((rows.RESENT, time, copy.source, copy.seq, resent, before.src, before.dst))
                hop -= 1
        owner = end.owner if tail is not GIVEN_BACK else kernel.at.get(end.src)
        kernel.calendar.add(time, (NETWORK, copy.source, copy.seq + FAR, LAND,
                                  (copy, delivered, tail, resent, last), owner))
    return []


# --- arrival --------------------------------------------------------------------------------------------------------

def arrive(kernel: Kernel, time: int, copy: Copy, delivered: bool, tail: Tail, resent: int, pipe: Pipe | None,
            ) -> KNode | None:
    """A copy has left a link. Returns its receiver if this may end a wait of it."""
    receiver = kernel.nodes[copy.target]
    if resent:
        assert pipe is not None
        kernel.log((rows.RESENT, time, copy.source, copy.seq, resent, pipe.src, pipe.dst))
    if delivered and pipe is not None and copy.hop < len(copy.path) - 2:
        copy.hop += 1
        if kernel.network.earliest is not None and not _leads_on(kernel, time, copy, pipe):
            return None
        onward = find_pipe(kernel, copy.path[copy.hop], copy.path[copy.hop + 1])
        kernel.log((rows.HOP, time, copy.source, copy.seq, onward.link.wire_bytes(copy.size),
                   onward.src, onward.dst))
        _offer(kernel, time, onward, copy, tail)
        return None
    if tail is GIVEN_BACK:
        assert pipe is not None
        _take_another_way(kernel, time, copy, pipe)
        return None
    source = copy.source
    under_way = receiver.coming[source]
    if len(under_way) == 1:
        del receiver.coming[source]
    else:
        under_way.remove(copy)
    gone = receiver.away or (bool(receiver.dropped) and misses(receiver, copy))
    payload = copy.payload
    if payload is not None and payload.undecided:
        decide(kernel, copy, delivered and not gone)
    if not delivered or (gone and pipe is not None):
        link = (-1, -1) if pipe is None else (pipe.src, pipe.dst)
        kernel.log((rows.LOST, time, copy.source, copy.seq, *link))
        _unread(kernel, copy)
        return _know_loss(kernel, time, receiver, copy)
    if not receiver.alive or receiver.finished:
        kernel.log((rows.DELIVER, time, copy.source, copy.seq, rows.TO_ENDED))
        _unread(kernel, copy)
        _miss_round(kernel, time, receiver, copy)
        return None
    if receiver.charge is not None and pipe is not None:
        carried(kernel, receiver, time, pipe.link.wire_bytes(copy.size), pipe.src, pipe.dst,
                receiver.charge.battery.receive_w)
    if copy.round and copy.round <= receiver.left:
        kernel.log((rows.DELIVER, time, copy.source, copy.seq, rows.DELIVERED_LATE))
        _unread(kernel, copy)
        return None
    reason = copy.reason
    if not reason and len(receiver.inbox) >= kernel.plan.max_unread:
        reason = _flooding(kernel, receiver, copy.source)
    if reason:
        kernel.log((rows.REJECT, time, copy.source, copy.seq, reason))
        _unread(kernel, copy)
        return _know_loss(kernel, time, receiver, copy)
    kernel.log((rows.DELIVER, time, copy.source, copy.seq, rows.INBOX))
    if copy.round and copy.round > receiver.reached.get(copy.source, 0):
        if not receiver.reached:
            receiver.reached = {}
        receiver.reached[copy.source] = copy.round
    patience = receiver.patience
    if (patience is not None and len(patience.got) < patience.need
            and (patience.sources is None or copy.source not in patience.got)
            and matches(receiver, patience, copy)):
        patience.take(copy)
    elif receiver.activities and give_to_activity(receiver, copy):
        pass
    elif receiver.inbox:
        receiver.inbox.append(copy)
        receiver.oldest = min(receiver.oldest, copy.round or FAR)
        if receiver.unread is not None:
            receiver.unread[copy.source] = receiver.unread.get(copy.source, 0) + 1
    else:
        receiver.inbox, receiver.oldest = [copy], copy.round or FAR
    return receiver


def _flooding(kernel: Kernel, receiver: KNode, source: int) -> str:
    """The reason why no more messages of `source` are taken; "": they are. Counted where an inbox is large only, and
    then kept."""
    counts = receiver.unread
    if counts is None:
        counts = receiver.unread = Counter(copy.source for copy in receiver.inbox)
    return "more than max_unread messages unread" if counts.get(source, 0) >= kernel.plan.max_unread else ""


def _know_loss(kernel: Kernel, time: int, receiver: KNode, copy: Copy) -> KNode | None:
    _miss_round(kernel, time, receiver, copy)
    if not receiver.alive or receiver.finished or (copy.round and copy.round <= receiver.left):
        return None
    if not copy.reason or sum(c.source == copy.source for c in receiver.losses) < _REFUSALS:
        receiver.losses = [*receiver.losses, copy]
    for patience in receiver.waits():
        if not matches(receiver, patience, copy):       # it is no news of what is waited for; a flood of such must not
            continue                                    # be searched for each
        if settle(kernel.nodes, kernel.network, receiver, patience, copy.source, time):
            return receiver
    return None


def _miss_round(kernel: Kernel, time: int, follower: KNode, copy: Copy) -> None:
    """A leader's message was lost, or came while the follower was down: rounds it can no longer enter are left."""
    if not follower.finished and skip_lost_rounds(follower, copy, time):
        tell_watchers(kernel, time, follower)


def _unread(kernel: Kernel, copy: Copy) -> None:
    """This copy will not be read: its worker may drop the frames after the last such copy."""
    payload, worker = copy.payload, kernel.nodes[copy.target].worker
    if payload is None:
        if copy.frames is None:                 # they lie in the sender's worker, which is the receiver's
            kernel.port.post(worker, Drop(copy.source, copy.seq))
    elif payload.settle(worker) and payload.has(worker):
        kernel.port.post(worker, Drop(payload.source, payload.first))


def discard_late(kernel: Kernel, node: KNode) -> None:
    """Forget what belongs to rounds that the node has left."""
    left = node.left
    if node.inbox and node.oldest <= left:
        keep = []
        for copy in node.inbox:
            if copy.round and copy.round <= left:
                kernel.log((rows.LATE, node.time, copy.source, copy.seq))
                _unread(kernel, copy)
            else:
                keep.append(copy)
        node.inbox, node.unread = keep, None
        node.oldest = min((copy.round for copy in keep if copy.round), default=FAR)
    if node.losses:
        node.losses = [c for c in node.losses if not c.round or c.round > left]
    if len(node.abstained) > _ABSTENTIONS:      # old ones: the word of all of them has arrived
        node.abstained = {key: since for key, since in node.abstained.items() if not key[2] or key[2] >= left}


def empty_inbox(kernel: Kernel, node: KNode) -> None:
    """The node has ended or crashed: what it has not read will not be read."""
    for copy in node.inbox:
        kernel.log((rows.UNREAD, node.time, copy.source, copy.seq))
        _unread(kernel, copy)
    node.inbox, node.unread = [], None
    node.losses = []
