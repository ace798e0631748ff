"""Links that send one message after the other, from their parameters: a `Link` where it will do, else a `FullLink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.streams import key64
from emul.network.graph.topology import Generated
from emul.network.links.connections import agreed
from emul.network.links.crossqueues import CrossQueue
from emul.network.links.features import Delay, Switching
from emul.network.links.full_link import FullLink
from emul.network.links.link import Link
from emul.network.links.transport import Arq, TcpCap
from emul.network.models.contacts import TimedLatency
from emul.network.models.loss import Outage
from emul.network.models.profiles import VaryingRate
from emul.network.models.residual import LinkLoad
from emul.network.rules import WINDOWED, LinkParameters, LinkRule, mixture_problem

if TYPE_CHECKING:           # a circle: the network makes its links here, and this asks it for rules and rates of a pair
    from emul.network.network import Network


class LinksError(NetworkError):
    """Rules of links that do not go together: `problems`, whose places are links."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__(str(ScenarioError("links", problems)))


def needs_all_full(rules: Sequence[LinkRule]) -> bool:
    """True if some link hands on heads: then every link must know what to do with a tail that follows."""
    return any(isinstance(rule.switching, Switching) for rule in rules)


def fifo_link(src: int, dst: int, names: tuple[str, str], p: LinkParameters, lost: Outage | None,
              delay: int | Delay | TimedLatency, seed: int, *, profile: VaryingRate | None = None, full: bool = False,
              load: LinkLoad | None = None, cross: CrossQueue | None = None) -> Link:
    """The link of `p` with its models; `names` key the streams: of the ends, sorted for a half-duplex link.

    profile: a rate that varies, in place of the bandwidth. full: a FullLink is wanted in any case. load:
    background rates. cross: background messages.
    """
    # Two classes, because most links of most runs are plain: 1.4 million messages a second, and 0.44 million of a link
    # with features that uses none. Both plan a message when it is offered, since an event for each stage would cost
    # links that never change (`test_without_features_it_does_what_the_plain_link_does`).
    bandwidth: Any = p.bandwidth_bps if profile is None else None
    plain = (isinstance(delay, int) and p.transport == "datagram" and p.queue is None and p.duplex == "full"
             and profile is None and load is None and cross is None and getattr(lost, "timeline", None) is None
             and not full)
    if plain:
        assert isinstance(delay, int)
        return Link(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu)
    wrong = mixture_problem(p)
    if wrong is not None:
        raise NetworkError(f"link {names[0]} -> {names[1]}: {wrong[0]}: {wrong[1]}")
    link = FullLink(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu, profile=profile, queue=p.queue,
                    switching=p.switching if isinstance(p.switching, Switching) else None,
                    transport=p.transport if isinstance(p.transport, (Arq, TcpCap)) else None,
                    key=key64(seed, "transport", *names), load=load, cross=cross)
    link.half_duplex = p.duplex == "half"
    return link


def half_duplex_problem(there: LinkParameters, back: LinkParameters, names: tuple[str, str]) -> Problem | None:
    """The reason that keeps two directions, of which one at least is half-duplex, from being one medium."""
    if there == back:
        return None
    source, destination = names
    different = ", ".join(name for name in there.__struct_fields__ if getattr(there, name) != getattr(back, name))
    return Problem(f"{source}->{destination} and {destination}->{source}", f"different {different}",
                   "expected the same of both directions of a half-duplex link: they are one medium")


def problems(network: Network, rules: Sequence[LinkRule]) -> list[Problem]:
    """The mistakes of links that do not go together, once each. Looked for only where a rule asks for what can be
    wrong."""
    plain = LinkRule("*")
    if all(getattr(rule, name) == getattr(plain, name) and rule.sharing != "tcp_fifo"
           for rule in rules for name in ("transport", "queue", "switching", "duplex", "medium")):
        return []
    found: dict[tuple[str, str], Problem] = {}
    for u, v in network.pairs():
        names = network.names[u], network.names[v]
        there = network.parameters(u, v)
        wrong = mixture_problem(there)
        if wrong is not None:
            still = "" if network.radio is None or there.bandwidth_bps is not None else network.radio.unmoved()
            found.setdefault(wrong, Problem(f"{names[0]}->{names[1]}", wrong[0], wrong[1] + still))
        if network.half_duplex(u, v):
            problem = half_duplex_problem(there, network.parameters(v, u), names)
            if problem is not None:
                found.setdefault((problem.found, problem.expected), problem)
        for problem in _disagreements(network, u, v):
            found.setdefault((problem.found, problem.expected), problem)
    return list(found.values())


def _disagreements(network: Network, u: int, v: int) -> list[Problem]:
    """Links that go on from u -> v where no node is, with another TCP than that has."""
    here = network.parameters(u, v)
    if here.sharing not in WINDOWED or isinstance(network.topology, Generated) or any(
            v in vertices for vertices in network.roles.values()):
        return []
    found = []
    for w in network.topology.neighbours(v):
        there = network.parameters(v, w)
        if w == u or there.sharing != here.sharing or agreed(there.transport) == agreed(here.transport):
            continue
        names = network.names
        found.append(Problem(f"{names[u]}->{names[v]} and {names[v]}->{names[w]}", "different transport tcp",
                             "expected the same of all links of a route, except for the buffer"))
    return found
