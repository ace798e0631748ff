"""The most that a long TCP flow gets, by its RTT and its loss: what connections and deployments are compared with.

Formulas for loss-based congestion control (Reno; Cubic is close at short RTT) under independent losses. They say
nothing of BBR, which does not slow down for them. Times in ns, sizes in bytes, rates in bit/s of payload.
"""

from __future__ import annotations

from math import inf, sqrt

from emul.base.errors import NetworkError
from emul.network.links.connections import MSS_BYTES

RTO_NS = 200_000_000            # the least of Linux; RFC 6298 says 1 s, RFC 5348 4 RTT

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
