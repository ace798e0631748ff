"""Links that send one message after the other, from their parameters: a `Link` where it will do, else a `FullLink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.streams import key64
from emul.network.links.features import Delay, Switching
from emul.network.links.full_link import FullLink
from emul.network.links.link import Link
from emul.network.links.service import Service
from emul.network.links.transport import Arq, TcpCap
from emul.network.models.loss import Outage
from emul.network.rules import LinkParameters, LinkRule, mixture_problem

if TYPE_CHECKING:
    from emul.network.network import Network


class LinksError(NetworkError):
    """What rules say of links that does not go together: `problems`, whose places are links."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__(str(ScenarioError("links", problems)))


def needs_all_full(rules: Sequence[LinkRule]) -> bool:
    """Whether some link hands on heads: then every link must know what to do with a tail that follows."""
    return any(isinstance(rule.switching, Switching) for rule in rules)


def fifo_link(src: int, dst: int, names: tuple[str, str], p: LinkParameters, lost: Outage | None,
              delay: int | Delay, seed: int, *, profile: Service | None = None, full: bool = False) -> Link:
    """The link of `p` with its models; `names` key the streams: of the ends, sorted for a half-duplex link.

    profile: a rate that varies, in place of the bandwidth. full: a FullLink is wanted in any case.
    """
    bandwidth: Any = p.bandwidth_bps if profile is None else None
    plain = (isinstance(delay, int) and p.transport == "datagram" and p.queue is None and p.duplex == "full"
             and profile is None and getattr(lost, "timeline", None) is None and not full)
    if plain:
        assert isinstance(delay, int)
        return Link(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu)
    wrong = mixture_problem(p)
    if wrong is not None:
        raise NetworkError(f"link {names[0]} -> {names[1]}: {wrong[0]}: {wrong[1]}")
    link = FullLink(src, dst, delay, bandwidth, lost, p.overhead_bytes, p.mtu, profile=profile, queue=p.queue,
                    switching=p.switching if isinstance(p.switching, Switching) else None,
                    transport=p.transport if isinstance(p.transport, (Arq, TcpCap)) else None,
                    key=key64(seed, "transport", *names))
    link.half_duplex = p.duplex == "half"
    return link


def half_duplex_problem(there: LinkParameters, back: LinkParameters, names: tuple[str, str]) -> Problem | None:
    """What keeps two directions, of which one at least is half-duplex, from being one medium."""
    if there == back:
        return None
    source, destination = names
    different = ", ".join(name for name in there.__struct_fields__ if getattr(there, name) != getattr(back, name))
    return Problem(f"{source}->{destination} and {destination}->{source}", f"different {different}",
                   "expected the same of both directions of a half-duplex link: they are one medium")


def problems(network: Network, rules: Sequence[LinkRule]) -> list[Problem]:
    """What of the links does not go together, once each. Looked for only where a rule asks for what can be wrong."""
    plain = LinkRule("*")
    if all(getattr(rule, name) == getattr(plain, name)
           for rule in rules for name in ("transport", "queue", "switching", "duplex")):
        return []
    found: dict[tuple[str, str], Problem] = {}
    for u, v in network.pairs():
        names = network.names[u], network.names[v]
        there = network.parameters(u, v)
        wrong = mixture_problem(there)
        if wrong is not None:
            found.setdefault(wrong, Problem(f"{names[0]}->{names[1]}", *wrong))
        if there.duplex == "half" and network.topology.linked(v, u):
            problem = half_duplex_problem(there, network.parameters(v, u), names)
            if problem is not None:
                found.setdefault((problem.found, problem.expected), problem)
    return list(found.values())
