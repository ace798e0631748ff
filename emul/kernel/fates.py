"""The facts that a wait may know: matching, fates, and rounds that a quorum has reached. Nothing here changes the
calendar.

The *fate* of a source, for a wait without a timeout, is one of

    arrived     a matching message of it lies unread in the inbox
    pending     one is under way, or may still be sent
    lost        one was lost; used up by the wait that it settles
    never       the source abstained, has left the round, has ended or crashed, and the word of it has had time to come

No node's state is read across nodes but through such departures, known after the least latency between the two. News
from the state itself would be faster than light, and would depend on how far that node has been run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from emul.kernel.calendar import FAR
from emul.kernel.parts import Copy, KNode, Patience
from emul.network import Network


def matches(node: KNode, patience: Patience, copy: Copy) -> bool:
    """True if `copy` is one that the node waits for now. Of no round, or outside rounds: any round will do."""
    if patience.sources is not None and copy.source not in patience.sources:
        return False
    if patience.kinds and copy.kind not in patience.kinds:
        return False
    if not copy.round or not node.round:
        return True
    return copy.round == node.round if node.in_round else copy.round > node.left


def take_from_inbox(node: KNode, patience: Patience) -> bool:
    """Move what the wait asks for out of the inbox, in order of arrival. True: it is all there."""
    inbox, taken = node.inbox, list[int]()
    for place, copy in enumerate(inbox):
        if len(patience.got) >= patience.need:
            break
        if (patience.sources is None or copy.source not in patience.got) and matches(node, patience, copy):
            patience.take(copy)
            taken.append(place)
    if len(taken) == 1:                     # a server that takes them one by one has thousands behind the first
        del inbox[taken[0]]
    elif taken:
        gone = set(taken)
        node.inbox = [copy for place, copy in enumerate(inbox) if place not in gone]
    node.unread = None
    return len(patience.got) >= patience.need


def give_to_activity(node: KNode, copy: Copy) -> bool:
    """Give a copy that has come to the first activity that waits for it. False: none does."""
    for activity in node.activities.values():
        patience = activity.patience
        if (patience is not None and len(patience.got) < patience.need
                and (patience.sources is None or copy.source not in patience.got) and matches(node, patience, copy)):
            patience.take(copy)
            return True
    return False


def is_coming(node: KNode, patience: Patience, source: int) -> bool:
    """True if a copy that the wait asks for is under way from `source`: its arrival or loss will tell."""
    return any(matches(node, patience, copy) for copy in node.coming.get(source, ()))


def settle(nodes: Sequence[KNode], network: Network, node: KNode, patience: Patience, source: int, time: int) -> bool:
    """Look at the fate of `source` for a wait of the node at `time`. True: nothing is open any more."""
    if source not in patience.open:
        return False
    if is_coming(node, patience, source):
        return False
    for place, copy in enumerate(node.losses):
        if copy.source == source and matches(node, patience, copy):
            del node.losses[place]
            break
    else:
        known = departure_known_at(nodes, network, node, patience, source)
        if known is None or known > time:
            return False
    patience.open.discard(source)
    return not patience.open


def still_there(source: KNode, node: KNode, round_: int) -> bool:
    """True if nothing that `source` has done can have settled a fate of a round for `node`; 0: outside rounds. Nearly
    always."""
    return (source.finished_at is None and not source.downs and not source.abstained
            and (not round_ or (source.left < round_ and not source.skipped and not source.spans
                                and (source.round >= round_ or not source.leaders or node.id in source.leaders))))


def departure_known_at(nodes: Sequence[KNode], network: Network, node: KNode, patience: Patience, source_id: int,
                       ) -> int | None:
    """The time when `node` knows that `source` will never send what a wait is for; None: it may yet come.

    Reads the source's past only, with its times: the source may have been run ahead of the node, or the node of it.
    """
    source = nodes[source_id]
    round_ = node.round if node.in_round else 0
    left = _left_at(source, round_) if round_ else None
    abstained = _abstained_at(source, node, patience, round_) if source.abstained else None
    led = bool(round_) and source.round < round_ and source.leaders and node.id not in source.leaders
    times = [time for time in (source.finished_at, abstained, left) if time is not None]
    if not times and not source.downs and not led:
        return None                         # nearly always: it is still there
    latency = network.latency_ns(source.vertex, node.vertex) if source is not node else 0
    known = [time + latency for time in times]
    # The first absence that is seen at some time of this wait. A search in place of a look at each: a node that has
    # been down 100,000 times would else cost a second for each wait
    # (`test_the_work_of_a_wait_does_not_grow_with_the_absences_before_it`).
    seen = bisect_right(source.downs, patience.since - latency, key=_up_again_at)
    if seen < len(source.downs):
        known.append(max(source.downs[seen][0] + latency, patience.since))
    if led:
        gone = [_left_at(nodes[leader], round_) for leader in source.leaders]
        if None not in gone:
            told = [time + network.latency_ns(nodes[leader].vertex, source.vertex)
                    for leader, time in zip(source.leaders, gone, strict=True) if time is not None]
            known.append(max(*told, source.followed_at) + latency)
    return min(known, default=None)


def _up_again_at(down: tuple[int, int | None]) -> int:
    return FAR if down[1] is None else down[1]


def _down_for_good_at(source: KNode) -> int | None:
    """Since when `source` is down and will never return. None: it is not."""
    return source.downs[-1][0] if source.downs and source.downs[-1][1] is None else None


def _left_at(source: KNode, round_: int) -> int | None:
    """Since when `source` has left this round, or will not enter it any more."""
    if (source.left < round_ and not source.skipped and not source.spans and not source.downs
            and source.finished_at is None):
        return None                         # nearly always
    if source.spans and _is_planned_away(source, round_):
        return 0
    times = [one.sinces[bisect_left(one.highs, round_)] for one in source.skipped if one.low <= round_ <= one.highs[-1]]
    times += [time for time in (_down_for_good_at(source), source.finished_at) if time is not None]
    if source.left >= round_:
        found = bisect_left(source.departures, (round_,))       # ascending in both
        times += [since for _, since in source.departures[found:found + 1]]
    return min(times, default=None)


def _is_planned_away(source: KNode, round_: int) -> bool:
    """True if the plan keeps `source` out of the round, and it has entered no round behind this gap."""
    following = bisect_right(source.spans, round_, key=itemgetter(0))
    if following and round_ <= source.spans[following - 1][1]:
        return False
    return following == len(source.spans) or source.round < source.spans[following][0] - 1


def _abstained_at(source: KNode, node: KNode, patience: Patience, round_: int) -> int | None:
    """Since when `source` has abstained from every type that the wait accepts."""
    if not patience.kinds:
        return None
    times = [source.abstained.get((node.id, kind, round_)) for kind in patience.kinds]
    return None if None in times else max(t for t in times if t is not None)


def skip_lost_rounds(follower: KNode, lost: Copy, time: int) -> bool:
    """A leader's message of a round that the follower has not entered is lost: has it left that round by this?

    It has, unless something of that round or a later one from its leaders is in its inbox or under way.
    """
    if lost.round <= follower.round or lost.source not in follower.leaders:
        return False
    rounds = [c.round for c in follower.inbox if c.source in follower.leaders]
    for leader in follower.leaders:
        rounds += [c.round for c in follower.coming.get(leader, ())]
    low = max([follower.round, *rounds]) + 1
    if low > lost.round:
        return False
    follower.skip(low, lost.round, time)
    return True


def newest_reached(node: KNode, group: Sequence[int], quorum: int) -> int:
    """The newest round that `quorum` of `group` have reached, as far as messages to this node have shown."""
    if len(group) == 1:                         # nearly always: 0.14 us in place of 0.87
        return node.reached.get(group[0], 0)
    reached = sorted((node.reached.get(n, 0) for n in group), reverse=True)
    return reached[quorum - 1]


def round_is_over(node: KNode) -> bool:
    """True if a quorum of the node's leaders has reached a round later than its own."""
    return (bool(node.leaders) and node.in_round
            and newest_reached(node, node.leaders, node.quorum) > node.round)


def all_ended_known_at(nodes: Sequence[KNode], network: Network, node: KNode, leaders: Iterable[int]) -> int | None:
    """The time when the node knows that all leaders have ended for good; None: they have not."""
    known = 0
    for leader in leaders:
        source = nodes[leader]
        if source.finished_at is None and not source.downs:
            return None                         # nearly always
        ends = [time for time in (_down_for_good_at(source), source.finished_at) if time is not None]
        if not ends:
            return None
        known = max(known, min(ends) + network.latency_ns(source.vertex, node.vertex))
    return known
