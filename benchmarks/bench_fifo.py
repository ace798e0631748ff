"""Messages a second through one FIFO link: offered, planned, delivered; alone, and with the calendar of a run.

*Pure*: `offer`, `next_change`, `advance` in turn, the queue of a busy link some messages deep. *SimPy*: the same, but
each arrival and each departure is an entry of the kernel's calendar, taken off it in its order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Literal

from benchmarks.common import Figure, Options, main
from emul.base.streams import key64
from emul.kernel.calendar import NETWORK, Calendar
from emul.network import Arq, FullLink, Link, OutageSpec, Queue, Switching
from emul.network.models.latency import JitterSpec, latency
from emul.network.models.outages import OnOffSpec, Outage, outage
from emul.network.models.profiles import PiecewiseConstant

MESSAGES = 100_000
PURE_TARGET, SIMPY_TARGET = 300_000, 100_000
_MS = 10**6
_RATE = 10**9                       # bit/s
_SIZE = 1_000                       # bytes: 8 us each
_GAP = 10_000                       # ns between two arrivals
_PACKETS = {"overhead_bytes": 66, "mtu": 1448}
_KEY = key64(1, "transport", "a", "b")


def _lossy(p: float = 0.01, per: Literal["message", "packet"] = "message") -> Outage | None:
    return outage(OutageSpec(p, per), 1, "a", "b")


PLAIN: dict[str, Callable[[], Link]] = {
    "plain": lambda: Link(0, 1, _MS, _RATE),
    "plain, loss a message": lambda: Link(0, 1, _MS, _RATE, _lossy()),
    "plain, packets": lambda: Link(0, 1, _MS, _RATE, None, 66, 1448),
}


def _full(**features: Any) -> Callable[[], Link]:
    return lambda: FullLink(0, 1, **{"latency": _MS, "bandwidth_bps": _RATE, "key": _KEY, **features})


FEATURES: dict[str, Callable[[], Link]] = {
    "no feature used": _full(),
    "latency drawn (normal)": _full(latency=latency(JitterSpec("normal", _MS, _MS // 10), 1, "a", "b")),
    "latency drawn, reordering": _full(
        latency=latency(JitterSpec("normal", _MS, _MS // 10, reorder=True), 1, "a", "b")),
    "outage that pauses": _full(outage=outage(OnOffSpec(50 * _MS, 5 * _MS, span="pause"), 1, "a", "b")),
    "rate that varies": _full(profile=PiecewiseConstant([0, 50 * _MS], [2 * _RATE, _RATE], 100 * _MS)),
    "drop-tail": _full(queue=Queue(64_000)),
    "packetized": _full(switching=Switching("packetized"), **_PACKETS),
    "stop-and-wait": _full(transport=Arq("stop_and_wait"), outage=_lossy(), latency=1_000),
    "selective repeat": _full(transport=Arq(), outage=_lossy(0.01, "packet"), latency=1_000, **_PACKETS),
}


def pure(link: Link, size: int = _SIZE) -> float:
    """Messages a second."""
    offer, next_change, advance = link.offer, link.next_change, link.advance
    left = 0
    begin = time.perf_counter()
    for i in range(MESSAGES):
        now = i * _GAP
        due = next_change()
        while due is not None and due <= now:
            left += len(advance(due))
            due = next_change()
        offer(now, i, size, 1)
    while (due := next_change()) is not None:
        left += len(advance(due))
    if left != MESSAGES:
        raise RuntimeError(f"{left} of {MESSAGES} messages left the link")
    return MESSAGES / (time.perf_counter() - begin)


def through_simpy(link: Link) -> float:
    """Messages a second, with an entry of the calendar for every arrival and every time at which messages leave."""
    calendar = Calendar()
    left, due_at = 0, None
    calendar.add(0, (NETWORK, 0, 0, 0, None, None))
    begin = time.perf_counter()
    while (now := calendar.next_time) is not None:
        for _, _, number, tag, _, _ in calendar.take_step(now):
            if tag:
                left += len(link.advance(now))
                due_at = None
            else:
                link.offer(now, number, _SIZE, 1)
                if number + 1 < MESSAGES:
                    calendar.add(now + _GAP, (NETWORK, 0, number + 1, 0, None, None))
        if due_at is None and (due_at := link.next_change()) is not None:
            calendar.add(due_at, (NETWORK, 1, left, 1, None, None))
    if left != MESSAGES:
        raise RuntimeError(f"{left} of {MESSAGES} messages left the link")
    return MESSAGES / (time.perf_counter() - begin)


def fifo(options: Options) -> Iterable[Figure]:
    def rate(measure: Callable[[Link], float], make: Callable[[], Link]) -> float:
        return median(measure(make()) for _ in range(options.repeats))

    for name, make in PLAIN.items():
        yield Figure(f"FIFO link, {name}", rate(pure, make), "messages/s", at_least=PURE_TARGET, minor=name != "plain")
    yield Figure("FIFO link, plain, SimPy", rate(through_simpy, PLAIN["plain"]), "messages/s", at_least=SIMPY_TARGET)
    for name, make in FEATURES.items():
        yield Figure(f"FIFO link with features, {name}", rate(pure, make), "messages/s")
    yield Figure("FIFO link with features, no feature used, SimPy", rate(through_simpy, FEATURES["no feature used"]),
                 "messages/s")
    big = median(pure_mb() for _ in range(options.repeats))
    yield Figure("FIFO link, selective repeat of 1 MB, 1 % loss a packet", big, "messages/s",
                 note="691 packets a message")


def pure_mb(messages: int = 1000) -> float:
    link = FEATURES["selective repeat"]()
    begin = time.perf_counter()
    for i in range(messages):
        link.offer(i * 100 * _MS, i, 10**6, 1)
        due = link.next_change()
        assert due is not None
        link.advance(due)
    return messages / (time.perf_counter() - begin)


if __name__ == "__main__":
    main(fifo, text=__doc__)
