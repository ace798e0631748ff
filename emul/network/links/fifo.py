"""Links that send one message after the other, from their parameters: a `Link` where it will do, else a `FullLink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emul.base.errors import NetworkError
from emul.base.streams import key64
from emul.network.links.crossqueues import CrossQueue
from emul.network.links.features import Delay, Switching
from emul.network.links.full_link import FullLink
from emul.network.links.link import Link
from emul.network.links.transport import Arq
from emul.network.models.contacts import TimedLatency
from emul.network.models.outages import Outage
from emul.network.models.profiles import VaryingRate
from emul.network.models.residual import LinkLoad
from emul.network.rules import LinkParameters, LinkRule, mixture_problem


def needs_all_full(rules: Sequence[LinkRule]) -> bool:
    """True if some link hands on heads: then every link must know what to do with a tail that follows."""
    return any(isinstance(rule.switching, Switching) for rule in rules)


def fifo_link(src: int, dst: int, names: tuple[str, str], p: LinkParameters, lost: Outage | None,
              delay: int | Delay | TimedLatency, seed: int, *, profile: VaryingRate | None = None, full: bool = False,
              load: LinkLoad | None = None, cross: CrossQueue | None = None) -> Link:
    """The link of `p` with its models; `names` of its ends key the streams.

    profile: a rate that varies, in place of the bandwidth. full: a FullLink is wanted in any case. load:
    background rates. cross: background messages.
    """
    # Two classes, because most links of most runs are plain: 1.4 million messages a second, and 0.44 million of a link
    # with features that uses none. Both plan a message when it is offered, since an event for each stage would cost
    # links that never change (`test_without_features_it_does_what_the_plain_link_does`).
    bandwidth: Any = p.bandwidth_bps if profile is None else None
    plain = (isinstance(delay, int) and p.transport == "datagram" and p.queue is None
             and profile is None and load is None and cross is None and getattr(lost, "timeline", None) is None
             and not full)
    if plain:
        assert isinstance(delay, int)
        return Link(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu)
    wrong = mixture_problem(p)
    if wrong is not None:
        raise NetworkError(f"link {names[0]} -> {names[1]}: {wrong[0]}: {wrong[1]}")
    return FullLink(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu, profile=profile, queue=p.queue,
                    switching=p.switching if isinstance(p.switching, Switching) else None,
                    transport=p.transport if isinstance(p.transport, Arq) else None,
                    key=key64(seed, "transport", *names), load=load, cross=cross)
