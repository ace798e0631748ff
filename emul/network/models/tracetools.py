"""Summaries of a trace of bandwidth, at a coarser step, and traces made by a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from numpy.random import Generator

from emul.base import units
from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.network.models.profiles import OPPORTUNITY_BYTES
from emul.network.models.traceformats import Trace, parse_trace

PERCENTILES = (5, 25, 50, 75, 95)
MOST_PIECES = 10_000_000        # of a generated trace


@dataclass(frozen=True)
class TraceSummary:
    """Over a trace's length, by time. Rates in bit/s, times in s; `percentiles` as PERCENTILES.

    off: share of the time at 0; on_s, off_s: mean length of a stretch above 0, and at 0 (0: there is none).
    below: {threshold: share of the time under it}.
    """

    length_s: float
    pieces: int
    mean_bps: float
    least_bps: int
    most_bps: int
    percentiles_bps: tuple[int, ...]
    off: float
    on_s: float
    off_s: float
    below: dict[int, float]


def summary(trace: Trace, thresholds_bps: Iterable[int] = ()) -> TraceSummary:
    """The summary of a trace, each of its pieces weighted by its length; `below` has the thresholds given, in bit/s."""
    pieces = list(trace.pieces())
    length = sum(ns for ns, _ in pieces)
    ordered = sorted((rate, ns) for ns, rate in pieces)
    reached = list(accumulate(ns for _, ns in ordered))
    # the rate under or at which the trace is for that share of the time
    percentiles = tuple(next(rate for (rate, _), upto in zip(ordered, reached, strict=True) if upto * 100 >= p * length)
                        for p in PERCENTILES)
    stretches: dict[bool, list[int]] = {True: [], False: []}
    before: bool | None = None
    for ns, rate in pieces:
        if (rate > 0) is before:
            stretches[rate > 0][-1] += ns
        else:
            stretches[rate > 0].append(ns)
        before = rate > 0
    on, off = (sum(s) / len(s) / 1e9 if s else 0.0 for s in (stretches[True], stretches[False]))
    return TraceSummary(length / 1e9, len(pieces), sum(ns * rate for ns, rate in pieces) / length, ordered[0][0],
                        ordered[-1][0], percentiles, sum(stretches[False]) / length, on, off,
                        {t: sum(ns for ns, rate in pieces if rate < t) / length for t in thresholds_bps})


def resampled(trace: Trace, step_ns: int) -> Trace:
    """The trace's mean over each step, rounded to bit/s; the last step may be a shorter one."""
    service = trace.service(loop=False)
    length = max(1, trace.length_ns)
    edges = [*range(0, length, step_ns), length]
    rates = [(2 * (service.work_at(b) - service.work_at(a)) + b - a) // (2 * (b - a))
             for a, b in pairwise(edges)]
    return Trace(tuple(edges[:-1]), tuple(rates), length, trace.period_ns)


# --- models ---------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Parameter:
    """One parameter of a model: how its text is read, what it is, and its default; None: it is needed."""

    parse: Callable[[str], object]
    what: str
    default: str | None = None


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value < 100:
        raise ValueError("expected a number above 0, below 100")
    return value


def _rates(text: str) -> tuple[int, ...]:
    rates = tuple(units.bandwidth_bps(part.strip()) for part in text.split(","))
    if len(rates) < 2:
        raise ValueError("expected two bandwidths or more, such as 1 Mbit/s,5 Mbit/s,20 Mbit/s")
    return rates


def _positive(text: str) -> int:
    value = units.duration_ns(text)
    if not value:
        raise ValueError("expected more than 0")
    return value


def _rate(what: str, default: str | None = None) -> Parameter:
    return Parameter(units.bandwidth_bps, f"{what}, such as 5 Mbit/s", default)


def _time(what: str, default: str | None = None) -> Parameter:
    return Parameter(_positive, f"{what}, such as 2 s", default)


_LENGTH = _time("of the trace, which then begins anew", "10 min")
MODELS: dict[str, dict[str, Parameter]] = {
    "constant": {"rate": _rate("the bandwidth"), "length": _LENGTH},
    "on_off": {"high": _rate("while up"), "low": _rate("while down", "0"), "up": _time("mean time up"),
               "down": _time("mean time down"), "length": _LENGTH},
    "random_walk": {"mean": _rate("in the middle"),
                    "sigma": Parameter(_factor, "of the logarithm's steps, a number such as 0.1", "0.1"),
                    "range": Parameter(_factor, "a number: it stays in mean / range .. mean * range", "4"),
                    "step": _time("between steps", "1 s"), "length": _LENGTH},
    "markov": {"rates": Parameter(_rates, "two or more, such as 1 Mbit/s,5 Mbit/s"), "hold": _time("mean time in one"),
               "length": _LENGTH},
    "sine": {"mean": _rate("in the middle"), "amplitude": _rate("at most the mean"),
             "period": _time("of the sine", "24 h"), "step": _time("between changes", "10 min"),
             "length": _time("of the trace, which then begins anew", "24 h")},
    "poisson": {"mean": _rate("of packets of 1,500 bytes"), "length": _LENGTH},
}


def explained(model: str, models: Mapping[str, Mapping[str, Parameter]] = MODELS) -> list[str]:
    """A line for each parameter of one of `models`: name, what it is, its default or that it is needed."""
    return [f"{name}: {parameter.what} [{'needed' if parameter.default is None else f'default: {parameter.default}'}]"
            for name, parameter in models[model].items()]


def generate(model: str, given: Mapping[str, str], seed: int) -> Trace:
    """A trace of one of MODELS, its parameters as text. Raises ValueError saying what is expected.

    constant: one rate. on_off: `high` and `low` in turn for exponential times with the means `up` and `down`.
    random_walk: the logarithm takes a normal step of standard deviation `sigma` every `step`, reflected at
    mean / range and mean * range. markov: one of `rates` for an exponential time of mean `hold`, then a neighbour of
    it. sine: mean + amplitude * sin(2 pi t / period) at each step. poisson: packets of 1,500 bytes at exponential
    distances, counted in milliseconds: a Mahimahi trace.
    """
    return _MAKERS[model](generator(seed, "trace", model), **read_parameters(model, MODELS[model], given))


def read_parameters(model: str, known: Mapping[str, Parameter], given: Mapping[str, str]) -> PlainDict:
    """The values of a model's parameters from their texts. Raises ValueError saying what is expected."""
    for name in given:
        if name not in known:
            raise ValueError(f"{name}: is not used by {model}, which has {', '.join(known)}")
    values: PlainDict = {}
    for name, parameter in known.items():
        text = given.get(name, parameter.default)
        if text is None:
            raise ValueError(f"{name}: is needed by {model}: {parameter.what}")
        try:
            values[name] = parameter.parse(text)
        except ValueError as error:
            raise ValueError(f'{name}: "{text}": {error}') from None
    return values


def _constant(draw: Generator, rate: int, length: int) -> Trace:
    return Trace((0,), (rate,), length, length)


def _on_off(draw: Generator, high: int, low: int, up: int, down: int, length: int) -> Trace:
    return _held(length, ((_exponential(draw, (up, down)[i % 2]), (high, low)[i % 2]) for i in range(MOST_PIECES)))


def _markov(draw: Generator, rates: Sequence[int], hold: int, length: int) -> Trace:
    def pieces() -> Iterable[tuple[int, int]]:
        place = int(draw.integers(len(rates)))
        for _ in range(MOST_PIECES):
            yield _exponential(draw, hold), rates[place]
            neighbours = [i for i in (place - 1, place + 1) if 0 <= i < len(rates)]
            place = neighbours[int(draw.integers(len(neighbours)))]
    return _held(length, pieces())


def _random_walk(draw: Generator, mean: int, sigma: float, range: float, step: int, length: int) -> Trace:
    wall = abs(math.log(range)) or 1e-9

    def pieces() -> Iterable[tuple[int, int]]:
        at = 0.0
        while True:
            yield step, round(mean * math.exp(at))
            at = (at + sigma * float(draw.standard_normal()) + wall) % (4 * wall)
            at = at - wall if at <= 2 * wall else 3 * wall - at         # reflected at both walls
    return _held(length, pieces())


def _sine(draw: Generator, mean: int, amplitude: int, period: int, step: int, length: int) -> Trace:
    if amplitude > mean:
        raise ValueError("amplitude: expected at most the mean")
    middles = (t + step / 2 for t in range(0, length, step))
    return _held(length, ((step, round(mean + amplitude * math.sin(2 * math.pi * t / period))) for t in middles))


def _poisson(draw: Generator, mean: int, length: int) -> Trace:
    if not mean:
        raise ValueError("mean: expected more than 0")
    gap_ms = OPPORTUNITY_BYTES * 8e3 / mean
    if length / 1e6 / gap_ms > MOST_PIECES:
        raise ValueError(f"length: expected at most {MOST_PIECES} packets")
    stamps, now, end = [], 0.0, -(-length // 10**6)
    while (now := now + float(draw.exponential(gap_ms))) < end:
        stamps.append(max(1, math.ceil(now)))
    # the last line is the length; of a file, so that what is written is what is used
    return parse_trace("".join(f"{stamp}\n" for stamp in [*stamps, end]), "generated", "mahimahi")


def _held(length: int, pieces: Iterable[tuple[int, int]]) -> Trace:
    """(duration, rate) in turn until `length`, which is where the trace begins anew."""
    times: list[int] = []
    rates: list[int] = []
    now = 0
    for duration, rate in pieces:
        if now >= length:
            break
        if len(times) >= MOST_PIECES:
            raise ValueError(f"length: expected at most {MOST_PIECES} pieces")
        times.append(now)
        rates.append(rate)
        now += duration
    return Trace(tuple(times), tuple(rates), length, length)


def _exponential(draw: Generator, mean_ns: int) -> int:
    return max(1, round(float(draw.exponential(mean_ns))))


_MAKERS: dict[str, Callable[..., Trace]] = {
    "constant": _constant, "on_off": _on_off, "random_walk": _random_walk, "markov": _markov, "sine": _sine,
    "poisson": _poisson}
