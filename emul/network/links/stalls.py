"""The times at which links stand still, which the connections of TCP over them leave out.

While a link stands still it sends nothing, and nothing is acknowledged. When it goes on, acknowledgements come at the
pace of before. So a train that was under way counts as begun later by as long as it was held up. Shorter stops than
`LEAST_NS`, such as the milliseconds without an opportunity in a trace of Mahimahi, belong to the pace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from math import ceil

from emul.network.models.profiles import VaryingRate

LEAST_NS = 200_000_000          # the least retransmission timeout of Linux
_STEP_NS = LEAST_NS // 2

Stall = tuple[float, float]     # from, to


def note_stall(stalls: list[Stall], since: float, until: float) -> None:
    """A link has stood still between these times."""
    if until - since >= LEAST_NS:
        stalls.append((since, until))


def stalled_ns(stalls: Iterable[Sequence[Stall]], start: float, end: float) -> float:
    """For so long at least one of several links stood still between two times. stalls: of each link, ascending.

    >>> stalled_ns([[(0, 5), (10, 20)], [(15, 30)]], 3, 25)
    17.0
    """
    late = [kept for of in stalls if of and (kept := _since(of, start))]        # none, for nearly every train
    found, at = 0.0, start
    for since, until in merge(*late):
        since, until = max(since, at), min(until, end)
        if until > since:
            found += until - since
            at = until
    return found


def _since(stalls: Sequence[Stall], start: float) -> Sequence[Stall]:
    """Those that end after `start`, ascending."""
    i = len(stalls)
    while i and stalls[i - 1][1] > start:
        i -= 1
    return stalls[i:]


def of_profile(profile: VaryingRate, start: float, end: float) -> list[Stall]:
    """The stalls of a rate that varies between two times."""
    found: list[Stall] = []
    begin = at = int(start)
    # A stall holds a whole step without a byte: a trace with a rate a millisecond is not walked through piece by piece,
    # which took five times as long as all else of a message of 4 MB.
    while at < end:
        if profile.sent_bytes(at, at + _STEP_NS):
            at += _STEP_NS
            continue
        piece, since = max(begin, at - _STEP_NS), None
        while piece < end:
            if profile.rate_at(piece) == 0:
                since = piece if since is None else since
            else:
                if since is not None:
                    note_stall(found, since, piece)
                since = None
                if piece > at:
                    break
            change = profile.next_change(piece)
            piece = ceil(end) if change is None else change
        if since is not None:
            note_stall(found, since, end)
        begin = at = piece
    return found
