"""Background traffic: microseconds of a message beside a rate, of a change of that rate, and of a background message.

CPU seconds. Rates change every 10 ms. Background messages are exponential, of 40 kB in the mean, and take 0.4 of a link
of 10 Mbit/s; each counts once for each link of its way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Literal

from benchmarks.common import Figure, Options, main
from emul.network import FlowLink, FullLink, LinkRule, TopologySpec, build
from emul.network.links.fluid import Fluid
from emul.network.models.background import SineRate, Traffic, WalkRate, rate_curve
from emul.network.models.elastic import MessageLaws
from emul.network.models.laws import Exponential, Fixed, UniformLaw
from emul.network.models.residual import LinkLoad, LoadEntry

_MBIT, _MS, _S = 10**6, 10**6, 10**9
_MESSAGES, _FLOWS = 20_000, 100
_LAWS = MessageLaws(Exponential(80 * _MS), Exponential(40_000))


def _load(own_bps: int, drawn: bool = True) -> LinkLoad:
    rate = (WalkRate(Fixed(10 * _MS), UniformLaw(0, own_bps // 2)) if drawn
            else SineRate(own_bps // 4, own_bps // 4, 1440 * _MS, 10 * _MS))
    return LinkLoad([LoadEntry("walk", rate_curve(Traffic("walk", rate, link="*"), 1, "a", "b"))], own_bps)


def beside_us(apart_ns: int) -> float:
    """A message on a first-in-first-out link, so long after the one before it."""
    link = FullLink(0, 1, _MS, 10 * _MBIT, load=_load(10 * _MBIT))
    begin = time.process_time()
    for i in range(_MESSAGES):
        link.offer(apart_ns * i, i, 250, 0)
        while (due := link.next_change()) is not None:
            link.advance(due)
    return (time.process_time() - begin) / _MESSAGES * 1e6


def change_us(drawn: bool) -> float:
    """A change of the background rate of the link that 100 flows have in common."""
    fluid, draw = Fluid(), random.Random(1)
    server = fluid.add_link(profile=_load(100 * _MBIT, drawn).residual("profile"))
    for i in range(_FLOWS):
        fluid.start(0, i, 10**12, [fluid.add_link(draw.choice([1, 5, 50]) * _MBIT), server])
    changes, begin = 0, time.process_time()
    while changes < _MESSAGES // 4:
        due = fluid.next_change()
        assert due is not None
        fluid.advance(due)
        changes += 1
    return (time.process_time() - begin) / changes * 1e6


def idle_us() -> float:
    """A change of the background rate of a link that nobody uses."""
    fluid = Fluid()
    idle, used = (fluid.add_link(profile=_load(100 * _MBIT).residual("profile")), fluid.add_link(_MBIT))
    fluid.start(0, "short", 1, [idle])
    fluid.start(0, "long", 10**9, [used])
    fluid.advance(_S)
    begin = time.process_time()
    for i in range(1, _MESSAGES + 1):
        fluid.advance(_S + 10 * _MS * i)
    return (time.process_time() - begin) / _MESSAGES * 1e6


def elastic_us(sharing: Literal["fifo", "maxmin"], hops: int) -> float:
    """A background message, a link of its way. A message of the scheme is under way all the time where links share;
    else one comes every 8 s, after 100 of the background."""
    rules = [LinkRule("*", latency_ns=_MS, bandwidth_bps=10 * _MBIT, sharing=sharing)]
    way = "client1->server" if hops == 1 else "client1->client2"
    network = build(TopologySpec(generator="star", clients=2), rules, 1, traffic=[
        Traffic("web", 0, flow=way, messages=_LAWS)])
    server, first, second = (network.names.index(name) for name in ("server", "client1", "client2"))
    link = network.link(first, server) if hops == 1 else network.link(server, second)
    until, begin = _MESSAGES * 80 * _MS, time.process_time()
    if isinstance(link, FlowLink):
        flows = network.flows
        flows.start(0, "m", 10**12, True, [link], 0)
        while (due := flows.next_change()) is not None and due < until:
            flows.advance(due)
    else:
        for at in range(0, until, 8 * _S):
            link.offer(at, at, 1, 0)
            while (due := link.next_change()) is not None:
                link.advance(due)
    return (time.process_time() - begin) / (_MESSAGES * hops) * 1e6


def traffic(options: Options) -> Iterable[Figure]:
    def least(ask: Callable[..., float], *args: object) -> float:
        return min(ask(*args) for _ in range(options.repeats))

    yield Figure("message beside a background rate, FIFO", least(beside_us, _MS), "us", at_most=10.0,
                 note="CPU; ten of them for each change of the rate")
    yield Figure("message beside a background rate, FIFO, with a change", least(beside_us, 10 * _MS), "us", minor=True,
                 note="CPU; the rate is drawn and changes once for each of them")
    for drawn in (False, True):
        yield Figure(f"change of a background rate under {_FLOWS} flows, a hub, {'a walk' if drawn else 'a sine'}",
                     least(change_us, drawn), "us", at_most=15.0, minor=drawn, note="CPU")
    yield Figure("change of a background rate on an idle link", least(idle_us), "us", minor=True,
                 note="CPU of asking; no change is looked at")
    for sharing, most in (("fifo", 15.0), ("maxmin", 30.0)):
        for hops in (1, 2):
            yield Figure(f"background message, a link of {hops}, {sharing}", least(elastic_us, sharing, hops), "us",
                         at_most=most, minor=hops == 1, note="CPU")


if __name__ == "__main__":
    main(traffic, text=__doc__)
