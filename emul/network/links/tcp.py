"""The most that a long TCP flow gets, by its RTT and its loss: caps for flows in `Fluid`, and the cost of slow start.

Formulas for loss-based congestion control (Reno; Cubic is close at short RTT) under independent losses. They say
nothing of BBR, which does not slow down for them. Times in ns, sizes in bytes, rates in bit/s of payload.
"""

from __future__ import annotations

from math import inf, sqrt

from emul.base.errors import NetworkError

MSS_BYTES = 1448                # MTU 1500 less IPv4 20, TCP 20, timestamps 12
RTO_NS = 200_000_000            # the least of Linux; RFC 6298 says 1 s, RFC 5348 4 RTT
INITIAL_WINDOW = 10             # segments, RFC 6928

_NS = 10**9


def mathis_bps(rtt_ns: int, p: float, *, mss_bytes: int = MSS_BYTES, b: int = 1,
               window_bytes: float | None = None) -> float:
    """MSS / RTT * sqrt(3 / 2b) / sqrt(p). Mathis, Semke, Mahdavi, Ott 1997, eq. 3; at most window / RTT.

    p: loss events a packet, in [0, 1]; the square-root law holds below some percent. b: packets an acknowledgement
    (2: delayed). Infinite for no loss without a window. Raises NetworkError on other values.

    >>> round(mathis_bps(40_000_000, 0.0025))
    7093722
    """
    _check(rtt_ns, p, mss_bytes, b, window_bytes)
    rate = inf if not p else 8 * mss_bytes * _NS / rtt_ns * sqrt(1.5 / b) / sqrt(p)
    return min(rate, _window_bps(rtt_ns, window_bytes))


def pftk_bps(rtt_ns: int, p: float, *, mss_bytes: int = MSS_BYTES, b: int = 1, rto_ns: int = RTO_NS,
             window_bytes: float | None = None) -> float:
    """MSS / (RTT sqrt(2bp/3) + RTO min(1, 3 sqrt(3bp/8)) p (1 + 32 p^2)), at most window / RTT: timeouts counted.

    Padhye, Firoiu, Towsley, Kurose 1998, eq. 30; without the minimum RFC 5348, section 3.1. Arguments and errors as
    `mathis_bps`; `rto_ns`: the first retransmission timeout.

    >>> round(pftk_bps(40_000_000, 0.01))
    3187158
    """
    _check(rtt_ns, p, mss_bytes, b, window_bytes)
    if rto_ns < 0:
        raise NetworkError(f"rto {rto_ns!r}: expected ns, 0 or more")
    timeouts = rto_ns * min(1.0, 3 * sqrt(3 * b * p / 8)) * p * (1 + 32 * p * p)
    rate = inf if not p else 8 * mss_bytes * _NS / (rtt_ns * sqrt(2 * b * p / 3) + timeouts)
    return min(rate, _window_bps(rtt_ns, window_bytes))


def slow_start_rounds(size_bytes: int, *, mss_bytes: int = MSS_BYTES, window: int = INITIAL_WINDOW) -> int:
    """RTTs until all of it is sent if the window doubles in each from `window` segments and nothing else limits.

    >>> slow_start_rounds(1_000_000)
    7
    """
    segments, rounds, sent = -(-size_bytes // mss_bytes), 0, 0
    while sent < segments:
        sent += window << rounds
        rounds += 1
    return rounds


def slow_start_delay_ns(size_bytes: int, rtt_ns: int, rate_bps: float, *, mss_bytes: int = MSS_BYTES,
                        window: int = INITIAL_WINDOW) -> int:
    """The delay of the last byte against sending at `rate_bps` from the start, while the window is below rate * RTT.

    A round whose window takes less than an RTT to send waits for the rest of it, unless it is the last. An estimate:
    no losses, no delayed acknowledgements, no idle restart.

    >>> slow_start_delay_ns(1_000_000, 100_000_000, 1e9) // 10**6       # six rounds of 100 ms, of 912 kB in all
    592
    """
    left, lost, segments = size_bytes, 0.0, window
    while True:
        burst = segments * mss_bytes
        busy_ns = 8e9 * burst / rate_bps
        if burst >= left or busy_ns >= rtt_ns:
            return round(lost)
        lost += rtt_ns - busy_ns
        left -= burst
        segments *= 2


def _window_bps(rtt_ns: int, window_bytes: float | None) -> float:
    return inf if window_bytes is None else 8 * window_bytes * _NS / rtt_ns


def _check(rtt_ns: int, p: float, mss_bytes: int, b: int, window_bytes: float | None) -> None:
    problems = []
    if not rtt_ns > 0:
        problems.append(f"rtt {rtt_ns!r}: expected ns, more than 0")
    if not 0 <= p <= 1:
        problems.append(f"loss {p!r}: expected a probability in [0, 1]")
    if not mss_bytes > 0:
        problems.append(f"mss {mss_bytes!r}: expected bytes, more than 0")
    if not b >= 1:
        problems.append(f"b {b!r}: expected packets an acknowledgement, 1 or more")
    if window_bytes is not None and not window_bytes > 0:
        problems.append(f"window {window_bytes!r}: expected bytes, more than 0")
    if problems:
        raise NetworkError("tcp: " + "; ".join(problems))
