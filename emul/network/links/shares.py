"""The parts of flows on links with shared bandwidth: the links, the flows, and the clocks' tolerances."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Protocol

from emul.base.errors import NetworkError
from emul.base.plain import is_number
from emul.network.links.stalls import Stall

WORK_PER_BYTE = 8e9             # bits a byte times ns a second: work / (bit/s) is a time in ns
# A completion this much after a whole ns counts as at it: rounding must not cost a ns where the true time is whole.
# Not a simple fraction, so that the times of simple examples do not lie on the border.
SNAP_NS = 7.3e-4
TIE_NS = 1e-7                   # flows that end so close together end in one event
TIE = 1e-15                     # the same, relative to the clock: a few units in its last place


class RateProfile(Protocol):
    """A link's rate over time, piecewise constant."""

    def rate_at(self, t_ns: int) -> float:
        """bit/s from `t_ns` on, 0 or more."""
        ...

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the rate changes, None if it never does again."""
        ...


class SharedLink:
    """A link and the flows on it. The notes of a filling on it hold for that filling."""

    __slots__ = ("bandwidth_bps", "flows", "follows", "index", "left_bps", "open", "profile", "stalls", "stamp",
                 "stands_since", "watched")

    constrains = True               # it limits its flows, if its bandwidth is finite
    roams: Callable[[int], int] | None = None       # of a link of a medium that becomes another one: time -> its number

    def __init__(self, index: int, bandwidth_bps: float | None, profile: RateProfile | None = None):
        self.index = index
        self.bandwidth_bps = bandwidth_bps          # None is infinite
        self.profile = profile
        self.follows = profile is not None          # no `change` has taken its place
        self.flows: dict[Flow, None] = {}          # in the order of their start
        self.stands_since = 0                       # where its bandwidth is 0: from when on
        self.stalls: list[Stall] = []               # those that were over while it was in use
        self.watched = False                        # the profile's next breakpoint is in the heap
        self.stamp = 0                              # of the last search for groups that met it
        self.left_bps = 0.0                         # while filling: what is left
        self.open = 0                               # ... for so many flows

    def alone_bps(self, flow: Flow) -> float:
        """The rate of its only flow, as far as this link is concerned."""
        return self.bandwidth_bps or 0.0


class MediumMember(Protocol):
    """A link that belongs to a medium, as a flow over it knows it: `emul.network.links.media.MediumLink`."""

    bandwidth_bps: float | None

    @property
    def medium(self) -> SharedLink:
        """The medium, whose time its packets take."""
        ...

    @property
    def station(self) -> Hashable:
        """Its sender, which gets a share of the time."""
        ...

    @property
    def seconds_a_bit(self) -> float:
        """The time of a bit in its medium; inf: the link stands still."""
        ...


class Flow:
    """An item on its links, with what is left of it."""

    __slots__ = ("active", "anchor", "background", "cap_bps", "capped", "cost", "group", "item", "links", "members",
                 "order", "quiet", "rate_bps", "share", "version", "work")

    def __init__(self, order: int, item: Hashable, work: float, links: tuple[SharedLink, ...],
                 quiet: bool, background: bool = False):
        self.order = order
        self.item = item
        self.quiet = quiet                          # its end is no event while it is alone
        self.background = background                # nobody waits for its end
        self.work = work                            # bit ns / s, at the group's clock or, in a hub, at `anchor`
        self.links = links
        self.active: tuple[SharedLink, ...] = ()         # those that limit it: of finite bandwidth, and media
        self.members: tuple[MediumMember, ...] = ()      # its links that belong to a medium
        self.rate_bps = 0.0                         # in a mesh
        self.group: FlowGroup | None = None
        self.cap_bps = inf                          # in a hub: of the links that it has for itself
        self.capped = False
        self.share = 1.0                            # ... its rate at the level 1,
        self.cost = 1.0                             # ... and what a bit/s takes of what is shared
        self.anchor = 0.0
        self.version = 0


class FlowGroup(Protocol):
    """Flows that share links, directly or through others, on a clock of their own: a `Mesh` or a `Hub`."""

    flows: dict[Flow, None]
    ns: int
    due: int | None             # of the next completion, in whole ns; None: never
    epoch: int                  # of its entry in a heap of completions
    stale: bool                 # it must be solved before anything is asked of it
    until_regroup: int          # changes: then it may have fallen apart, or be of the other kind

    def accepts(self, links: Sequence[SharedLink]) -> bool:
        """True if a new flow over `links` (finite ones, which hold it not yet) leaves it a group of its kind."""
        ...

    def add(self, flow: Flow) -> None:
        """Take a flow that has no group, at the clock."""
        ...

    def discard(self, flow: Flow) -> None:
        """Let a flow go, at the clock."""
        ...

    def recap(self, link: SharedLink) -> None:
        """The bandwidth of `link` has changed."""
        ...

    def settle(self, now_ns: int) -> None:
        """Bring the clock to `now_ns`."""
        ...

    def work(self, flow: Flow, now_ns: int | None = None) -> float:
        """The rest of a flow at `now_ns`, before the next completion; None: at the clock."""
        ...

    def rate_bps(self, flow: Flow) -> float:
        """The flow's rate, as solved."""
        ...

    def solve(self) -> None:
        """Find all rates, and when the next flow ends."""
        ...

    def plan(self) -> None:
        """Set `due`."""
        ...

    def finish(self) -> tuple[list[Flow], float]:
        """The flows that end at the next completion, taken out, and when: the clock is there now."""
        ...

    def clock(self) -> tuple[int, float]:
        """Whole ns, and a rest below 1."""
        ...


def check_bandwidth(link: int, bandwidth_bps: object) -> None:
    """Raise NetworkError on what no link can have."""
    if not is_number(bandwidth_bps) or not 0 <= bandwidth_bps < inf:
        raise NetworkError(f'link {link}: bandwidth {bandwidth_bps!r}: expected a number of bit/s, 0 or more, '
                           'or "infinite"')
