"""The price of connections of TCP: rounds of FedAvg on a WAN with and without them, and events and time of a message.

The WAN is a star of 100 clients, 50 ms and 20 Mbit/s a link, `sharing: connections`; a message is 15 kB, two trains.
Runs with and without `transport: {tcp: {}}` are interleaved, and a ratio is the median of the pairs. Where git has the
revision before there were connections of TCP, runs that do not use them are compared with it, too: rounds on queues,
and on shares.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.against import compare
from benchmarks.bench_rounds import Rounds, emul
from benchmarks.common import ROOT, Figure, Options, main
from emul.network.links.connections import TcpStack
from emul.network.links.flows import FlowLink, Flows

WAN = "links=[{match: '*', latency: 50 ms, bandwidth: 20 Mbit/s, overhead: {preset: ipv4_tcp}, sharing: connections%s}]"
TCP = ", transport: {tcp: {}}"
BEFORE = "5126f34"                          # has none of it
TARGET = 1.5                                # times the round without them
SLOWER = 0.98                               # of the speed before, where nobody uses them
SIZE = 400_000
PATHS = [(bps, rtt_ms, own) for bps in (10**7, 10**8) for rtt_ms in (20, 50, 100, 200) for own in (True, False)]
ROUNDS = {0: 21, 1: 5}                      # epochs: rounds


def connections(options: Options) -> Iterable[Figure]:
    yield from messages(options)
    yield from rounds(options)
    yield from unused(options)


def messages(options: Options) -> Iterator[Figure]:
    """A message of 400 kB on a new connection without loss, over all `PATHS`."""
    for sharing in ("connections", "tcp_fifo"):
        for own in (False, True):
            events = [one_message(sharing, *path) for path in PATHS if path[2] is own]
            pieces = sharing == "tcp_fifo" and own      # of 8 packets, since connections of one node take turns there
            yield Figure(f"events of a message of 400 kB, {sharing}, {'own' if own else 'other'} link, at most",
                         max(events), "", at_most=None if pieces else 6,
                         note=f"{min(events)} to {max(events)} over {len(events)} paths")
        times = []
        for _ in range(options.repeats):
            begin = time.process_time()
            for path in PATHS:
                one_message(sharing, *path)
            times.append((time.process_time() - begin) / len(PATHS) * 1e6)
        yield Figure(f"CPU of a message of 400 kB, {sharing}", median(times), "us")


def one_message(sharing: Any, bps: int, rtt_ms: int, own: bool) -> int:
    """So many events it takes. own: the slow link is the sender's own; else it lies behind one without a limit."""
    flows, latency = Flows(sharing), rtt_ms * 10**6 // 2
    rates: Sequence[int | None] = [bps] if own else [None, bps]
    links = [FlowLink(flows, flows.link(rate), place, place + 1, 0 if place else latency, rate, None, 52, 1448,
                      TcpStack()) for place, rate in enumerate(rates)]
    flows.start(0, "message", SIZE, True, links, latency, (0, len(links)))
    events = 0
    while (due := flows.next_change()) is not None:
        flows.advance(due)
        events += 1
    return events


def rounds(options: Options) -> Iterator[Figure]:
    """Rounds on the WAN, in turn without and with TCP."""
    for epochs, count in ROUNDS.items():
        pairs: list[tuple[Rounds, Rounds]] = []
        for place in range(options.repeats):
            order = ["", TCP] if place % 2 == 0 else [TCP, ""]
            both = {tcp: emul(100, epochs, count, 2, WAN % tcp) for tcp in order}
            pairs.append((both[""], both[TCP]))
        ratio = median(with_tcp.later_s / without.later_s for without, with_tcp in pairs)
        cpu = median(with_tcp.cpu_s / without.cpu_s for without, with_tcp in pairs)
        what = "round of one epoch" if epochs else "no-op round"
        without_s, with_s = (median(pair[side].later_s for pair in pairs) for side in (0, 1))
        yield Figure(f"{what} on a WAN, 100 clients: with TCP over without", ratio, "x", at_most=TARGET,
                     note=f"{without_s:.3f} s without, {with_s:.3f} s with; CPU of all {cpu:.2f} x")


def unused(options: Options) -> Iterator[Figure]:
    """Runs without TCP against the revision before; none where git does not have it."""
    known = subprocess.run(["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"], cwd=ROOT, check=False,
                           capture_output=True)
    if known.returncode:
        return
    for figure in compare(BEFORE, ["round", "round_shared"], options.repeats, own=True):
        wall = "CPU" not in figure.name
        yield Figure(f"without TCP, {figure.name}: speed over that before", figure.value, "x",
                     at_least=SLOWER if wall else None, note=f"{BEFORE}: {figure.note}")


if __name__ == "__main__":
    main(connections, text=__doc__)
