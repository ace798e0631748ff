"""Fluid sharing: one arrival or departure among 1,000 flows on 100 links; a star's uploads; a lone message.

Routes are of 1 to 4 links drawn at random, so that all flows are in one component. An event is the completion taken,
the rates solved anew and the next completion known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median, quantiles

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.network.links.fluid import Fluid

FLOWS, LINKS = 1000, 100
TARGET_MS = 1.0


def maxmin(options: Options) -> Iterable[Figure]:
    runs = [_mesh() for _ in range(options.repeats)]
    every = [ms for run in runs for ms in run]
    yield Figure("re-solve, 1,000 flows on 100 links", median(median(run) for run in runs), "ms", at_most=TARGET_MS,
                 note=f"an arrival and a departure each; 90 % below {quantiles(every, n=10)[-1]:.2f} ms")
    for name, server_bps in (("bottleneck at the server", 1e9), ("none but access links", 1e12)):
        yield Figure(f"1,000 uploads in a star, {name}", median(_star(server_bps) for _ in range(options.repeats)), "s",
                     note="all start at once, sizes differ: 1,000 arrivals and 1,000 completions")
    yield Figure("a message alone on two links", median(_alone() for _ in range(options.repeats)), "us",
                 note="start, next_change, advance")


def _mesh() -> list[float]:
    """ms of each of 200 events with about 1,000 flows present: every completion is followed by an arrival."""
    rng = generator(1, "bench/maxmin")
    fluid = Fluid()
    for _ in range(LINKS):
        fluid.add_link(10 ** rng.uniform(7, 9))

    def start(now_ns: int, item: int) -> None:
        route = rng.choice(LINKS, size=int(rng.integers(1, 5)), replace=False).tolist()
        fluid.start(now_ns, item, int(rng.integers(10**5, 10**8)), route)

    for item in range(FLOWS):
        start(0, item)
    times = []
    for item in range(FLOWS, FLOWS + 100):
        now_ns = fluid.next_change()
        assert now_ns is not None
        begin = time.perf_counter()
        fluid.advance(now_ns)
        fluid.next_change()
        times.append(1e3 * (time.perf_counter() - begin))
        start(now_ns + 1, item)
        begin = time.perf_counter()
        fluid.next_change()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def _star(server_bps: float) -> float:
    """Seconds for all uploads, from the first start to the last completion."""
    fluid = Fluid()
    server = fluid.add_link(server_bps)
    access = [fluid.add_link(2e7 + 1000 * client) for client in range(FLOWS)]
    begin = time.perf_counter()
    for client, link in enumerate(access):
        fluid.start(0, client, 10**6 + 1000 * client, [link, server])
    ended = 0
    while (due := fluid.next_change()) is not None:
        ended += len(fluid.advance(due))
    assert ended == FLOWS
    return time.perf_counter() - begin


def _alone(messages: int = 10_000) -> float:
    """us a message."""
    fluid = Fluid()
    links = [fluid.add_link(2e7), fluid.add_link(1e9)]
    begin = time.perf_counter()
    for now_ns in range(0, messages * 10**9, 10**9):
        fluid.start(now_ns, now_ns, 1000, links)
        due = fluid.next_change()
        assert due is not None
        fluid.advance(due)
    return 1e6 * (time.perf_counter() - begin) / messages


if __name__ == "__main__":
    main(maxmin, text=__doc__)
