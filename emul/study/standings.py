"""Statistics of the rows of a league: the point that tuning chose, ranks on each network, and how far these hold.

    t_s(n, i)       virtual seconds until scheme s reaches the target of network n on seed i; infinite: it did not
    log t_s / t_b   paired by seed. Both infinite: 0. Its median has a bootstrap interval, and Wilcoxon's signed-rank
                    test is exact over all signs, p by Holm among the schemes that are compared with one leader
    leader          the least median time. A lead is settled if no other scheme has its rank

F. Wilcoxon, Individual Comparisons by Ranking Methods, Biometrics Bulletin 1, 1945. Dolan and More, Benchmarking
Optimization Software with Performance Profiles, Mathematical Programming 91, 2002.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import numpy as np

from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.study.leagues import LIKELIHOOD, REPLICATE, SCORING, SUMS, TUNING, League
from emul.study.stats import RESAMPLES, holm
from emul.study.text import aligned

Row = Mapping[str, str]
WHY = "first_failure"               # a column of leagues of sums: node, stage and count

ALPHA = 0.05
TARGETS = (0.98, 1.0, 1.02)         # shares of the target under which ranks are compared
FACTORS = (1.0, 1.5, 2.0, 4.0)       # of performance profiles


def path_of(row: Row) -> np.ndarray:
    """(observations, 3): virtual seconds, MB, accuracy, within the time of the network."""
    return np.array([[float(x) for x in one.split(":")] for one in row["path"].split()]).reshape(-1, 3)


def reaching(row: Row, target: float) -> tuple[float, float]:
    """(virtual seconds, MB) of the first observation that reaches the target; infinite: none does."""
    path = path_of(row)
    at = np.flatnonzero(path[:, 2] >= target)
    return (float(path[at[0], 0]), float(path[at[0], 1])) if len(at) else (math.inf, math.inf)


def final(row: Row) -> float:
    """The last accuracy within the time of the network; 0: there is none."""
    path = path_of(row)
    return float(path[-1, 2]) if len(path) else 0.0


# --- tuning -----------------------------------------------------------------------------------------------------------

def chosen(league: League, rows: Sequence[Row]) -> dict[str, int]:
    """Label -> the point that its tuning chose, of those whose tuning is whole; of entries with one point that; of
    others the published one.

    The best by time to the goal of the network, then by final accuracy: ranks are taken within a network and seed, and
    their mean counts. The goal is `target` of the median final accuracy of the baseline's point that is best by final
    accuracy.
    """
    found = {entry.label: 0 for entry in league.entries if entry.points == 1} | league.published()
    goal: dict[str, float] = {}
    places = [(network, seed) for network in league.networks for seed in league.tuning_seeds]
    for entry in sorted(league.entries, key=lambda entry: entry.label != league.baseline):
        own = {(row["network"], int(row["seed"]), int(row["point"])): row for row in rows
               if row["part"] == TUNING and row["label"] == entry.label}
        if entry.points == 1 or len(own) < len(places) * entry.points:
            continue
        if entry.label == league.baseline:
            best = _best([[(0.0, -final(own[*place, point])) for point in range(entry.points)] for place in places])
            goal = {network: league.target * float(np.median([
                final(own[league.target_on or network, seed, best]) for seed in league.tuning_seeds]))
                for network in league.networks}
        if goal:
            found[entry.label] = _best([[(reaching(row, goal[place[0]])[0], -final(row)) for row in (
                own[*place, point] for point in range(entry.points))] for place in places])
    return found


def _best(scores: Sequence[Sequence[tuple[float, float]]]) -> int:
    """The point with the least mean rank. scores: of each place, those of the points, the least is best."""
    return int(np.argmin(np.mean([ranks(one) for one in scores], axis=0)))


def ranks(values: Sequence[float] | Sequence[tuple[float, float]]) -> list[float]:
    """Ranks from 1, the mean rank where values are equal.

    >>> ranks([3, 1, 3])
    [2.5, 1.0, 2.5]
    """
    place: dict[object, list[int]] = {value: [] for value in values}
    for number, value in enumerate(sorted(values), start=1):
        place[value].append(number)
    return [float(np.mean(place[value])) for value in values]


# --- results ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Standing:
    """A scheme on a network. times: by seed, s. ratio, to_baseline: of its times to those of the first and of the
    baseline, median with 95 % interval."""

    label: str
    rank: int
    point: int
    times: dict[int, float]
    mb: float
    accuracy: float
    interval: tuple[float, float]
    ratio: tuple[float, float, float]
    to_baseline: tuple[float, float, float]

    @property
    def median(self) -> float:
        """Of the times, s."""
        return median([*self.times.values()])


def standings(league: League, rows: Sequence[Row], network: str, seeds: Sequence[int] | None = None,
              share: float = 1.0, part: str = SCORING) -> list[Standing]:
    """The schemes of a network that have all seeds, the best first. Those that the test does not tell from the first
    of their group have one rank. seeds: some of those of the part. share: of the target."""
    seeds = league.seeds_of(part) if seeds is None else seeds
    scored: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row["part"] == part and row["network"] == network and int(row["seed"]) in seeds:
            scored.setdefault(row["label"], {})[int(row["seed"])] = row
    scored = {label: own for label, own in scored.items() if len(own) == len(seeds)}
    target = share * target_of(league, rows, network, part)
    if league.baseline not in scored or math.isnan(target):
        return []
    times = {label: {seed: reaching(own[seed], target)[0] for seed in seeds} for label, own in scored.items()}
    left = sorted(scored, key=lambda label: (median([*times[label].values()]),
                                             -float(np.median([final(row) for row in scored[label].values()]))))
    first = left[0]
    found: list[Standing] = []
    while left:
        leader, rest, rank = left[0], left[1:], len(found) + 1
        tests = [log_ratios(times[label], times[leader]) for label in rest]
        p = holm([signed_rank(one) for one in tests])
        group = [leader, *(label for label, one in zip(rest, p, strict=True) if one >= ALPHA)]
        for label in group:
            own = scored[label]
            found.append(Standing(
                label, rank, int(next(iter(own.values()))["point"]), times[label],
                median([reaching(row, target)[1] for row in own.values()]),
                float(np.median([final(row) for row in own.values()])), median_interval([*times[label].values()]),
                ratio_of(times[label], times[first]), ratio_of(times[label], times[league.baseline])))
        left = [label for label in left if label not in group]
    return found


def target_of(league: League, rows: Sequence[Row], network: str, part: str = SCORING) -> float:
    """The accuracy to reach on a network: a share of the median that the tuned baseline ends with, over all seeds; on
    the network that decides it for all, if the league has one. Not a number where the baseline was not scored."""
    ends = [final(row) for row in rows if (row["part"], row["network"], row["label"]) == (
        part, league.target_on or network, league.baseline)]
    return league.target * float(np.median(ends)) if ends else math.nan


def goal(league: League, rows: Sequence[Row], network: str) -> str:
    """The target of a network in words."""
    value = target_of(league, rows, network)
    return {SUMS: "a sum", LIKELIHOOD: f"exp(- loss) = {value:.3f}"}.get(league.measure, f"{100 * value:.1f} %")


def log_ratios(one: Mapping[int, float], other: Mapping[int, float]) -> np.ndarray:
    """log one / other by seed; 0 where both are infinite."""
    return np.array([0.0 if one[seed] == other[seed] else math.inf if math.isinf(one[seed]) else
                     -math.inf if math.isinf(other[seed]) else math.log(one[seed] / other[seed]) for seed in one])


def ratio_of(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, float, float]:
    """The median of one / other, paired by seed, and the ends of its interval."""
    ratios = log_ratios(one, other)
    middle, low, high = (float(np.exp(x)) for x in (median(ratios), *median_interval(ratios)))
    return middle, low, high


def median_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The 95 % percentile bootstrap of a median; values may be infinite."""
    x = np.sort(np.asarray(values, float))
    drawn = np.sort(generator(0, "league").integers(0, len(x), (RESAMPLES, len(x))), axis=1)
    medians = np.sort(_middle(x[drawn[:, (len(x) - 1) // 2]], x[drawn[:, len(x) // 2]]))
    return float(medians[int(0.025 * RESAMPLES)]), float(medians[int(0.975 * RESAMPLES)])


def median(values: Sequence[float] | np.ndarray) -> float:
    """The median of values that may be infinite; between -inf and inf it is the upper one."""
    x = np.sort(np.asarray(values, float))
    return float(_middle(x[(len(x) - 1) // 2], x[len(x) // 2]))


def _middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The middle of two values that ascend, without the sum of two infinite ones, which is no number."""
    with np.errstate(invalid="ignore"):
        return np.where(low == high, low, np.where(np.isinf(high), high, (low + high) / 2))


def signed_rank(values: Sequence[float] | np.ndarray) -> float:
    """p of Wilcoxon's two-sided signed-rank test, exact over all signs; values of 0 are left out.

    Raises ValueError for more than 20 values.

    >>> signed_rank([1, 2, 3, 4, 5])
    0.0625
    """
    x = np.asarray([value for value in values if value != 0])
    if len(x) > 20:
        raise ValueError(f"{len(x)} values: expected 20 at most, for the signs are counted one by one")
    if not len(x):
        return 1.0
    weights = np.array(ranks([abs(value) for value in x.tolist()]))
    sums = np.zeros(1)
    for weight in weights:
        sums = np.concatenate([sums - weight, sums + weight])
    seen = abs(float((np.sign(x) * weights).sum()))
    return float(np.mean(np.abs(sums) >= seen - 1e-9))


def profile(found: Sequence[Standing]) -> dict[str, list[float]]:
    """Label -> the shares of the seeds on which it needs at most `FACTORS` times the least time of that seed."""
    best = {seed: min(one.times[seed] for one in found) for seed in found[0].times}
    return {one.label: [float(np.mean([math.isfinite(t) and t <= factor * best[seed]
                                       for seed, t in one.times.items()])) for factor in FACTORS] for one in found}


def spearman(one: Sequence[Standing], other: Sequence[Standing]) -> float:
    """The rank correlation of median times, of the schemes that both have; not a number below three."""
    a, b = ({each.label: each.median for each in own} for own in (one, other))
    common = [label for label in a if label in b]
    if len(common) < 3:
        return math.nan
    x, y = (np.array(ranks([own[label] for label in common])) for own in (a, b))
    return math.nan if np.ptp(x) == 0 or np.ptp(y) == 0 else float(np.corrcoef(x, y)[0, 1])


def leaders(found: Sequence[Standing]) -> set[str]:
    """The schemes of the first rank."""
    return {one.label for one in found if one.rank == 1}


def unsettled(found: Sequence[Standing]) -> set[str]:
    """The first scheme, and those whose interval of the ratio to it holds 1."""
    return {one.label for one in found if one.ratio[1] <= 1}


# --- what is said -----------------------------------------------------------------------------------------------------

HEAD = ("rank", "scheme", "median s", "interval", "times the first", "interval of these", "times the baseline",
        "their interval", "reached", "share of seeds at most 1, 1.5, 2, 4 times the least", "MB", "accuracy", "point")


def table_lines(found: Sequence[Standing]) -> list[list[str]]:
    """The lines of a network's table, below `HEAD`."""
    first = found[0].label if found else ""
    shares = profile(found) if found else {}
    return [[str(one.rank), one.label, _said(one.median), _ends(one.interval),
             *("" if one.label == first else said for said in (_said(one.ratio[0]), _ends(one.ratio[1:]))),
             _said(one.to_baseline[0]), _ends(one.to_baseline[1:]),
             f"{sum(map(math.isfinite, one.times.values()))} of {len(one.times)}",
             ", ".join(f"{share:.2g}" for share in shares[one.label]), _said(one.mb),
             f"{100 * one.accuracy:.1f} %", str(one.point)] for one in found]


def _said(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ends(ends: tuple[float, ...]) -> str:
    return f"{_said(ends[0])} to {_said(ends[1])}"


def lines(league: League, rows: Sequence[Row], networks: Sequence[str] = ()) -> Iterator[str]:
    """The tables of a league as text, what they rest on, and the badge."""
    for network in networks or (*league.networks, *league.extended):
        own = standings(league, rows, network)
        if not own:
            yield f"{network}: {league.baseline} has not been scored on all seeds yet"
            continue
        yield f"{network}: seconds to {goal(league, rows, network)}"
        yield from aligned([HEAD, *table_lines(own)])
        missing = [entry.label for entry in league.entries if entry.label not in {one.label for one in own}]
        if missing:
            yield f"not whole: {', '.join(missing)}"
        yield ""
    yield from findings(league, rows, networks)


def findings(league: League, rows: Sequence[Row], networks: Sequence[str] = ()) -> Iterator[str]:
    """The contrast, how far ranks hold, the points that were chosen, and the badge."""
    found = {network: own for network in networks or (*league.networks, *league.extended)
             if (own := standings(league, rows, network))}
    for network, own in found.items():
        if contrast(league, own):
            yield f"{network}: {contrast_line(league, own)}"
    if found:
        yield from agreement(league, rows, list(found))
    for network in found:
        yield from given_up(league, rows, network)
    points = chosen(league, rows)
    yield "chosen points: " + "; ".join(
        f"{entry.label} {points[entry.label]} ({', '.join(f'{key} {value:g}' for key, value in values.items())})"
        for entry in league.entries if entry.label in points
        for values in [entry.values(points[entry.label], league.first)])
    yield badge(league, rows)


def contrast(league: League, found: Sequence[Standing]) -> list[Standing]:
    """The baseline, its contrast, and the schemes that the contrast is behind and the baseline is not. Empty: one of
    the two has no standing."""
    of = {one.label: one for one in found}
    if league.baseline not in of or league.contrast not in of:
        return []
    base, other = of[league.baseline], of[league.contrast]
    return [base, other, *(one for one in found if one is not base and base.rank <= one.rank < other.rank)]


def contrast_line(league: League, found: Sequence[Standing]) -> str:
    """The times of the baseline and its contrast, their ratio with its interval, and whom the contrast is behind."""
    base, other, *between = contrast(league, found)
    ratio, low, high = other.to_baseline
    takes = (f"takes {_said(ratio)} times as long as {base.label}, {_ends((low, high))} "
             f"({_said(other.median)} and {_said(base.median)} s)" if math.isfinite(ratio) else
             f"does not reach the target on most seeds; {base.label} takes {_said(base.median)} s")
    return f"{other.label} {takes}" + (
        f"; it is behind {', '.join(one.label for one in between)}, which {base.label} is not" if between else "")


def moved_lines(league: League, rows: Sequence[Row], network: str) -> Iterator[str]:
    """The schemes of the first rank with each assumed number of a network halved and doubled, and without: of those
    schemes that were run with both."""
    for name, (of, edit) in league.suite.moved().items():
        if of == network and (found := standings(league, rows, name)):
            labels = {one.label for one in found}
            if len(labels) < 2:
                continue
            now = leaders(found)
            before = leaders(standings(league, [row for row in rows if row["label"] in labels], network))
            first, without = (", ".join(sorted(one)) for one in (now, before))
            yield f"{name} ({edit}), among {', '.join(sorted(labels))}: first {first}, " + (
                "as without it" if now == before else f"without it {without}")


def given_up(league: League, rows: Sequence[Row], network: str) -> Iterator[str]:
    """Of each scheme whose sums did not all come on a network, of a league of sums: how many, and a reason."""
    if league.measure == SUMS:
        for entry in league.entries:
            place = (SCORING, network, entry.label)
            own = [row for row in rows if (row["part"], row["network"], row["label"]) == place]
            if reasons := sorted({row[WHY].partition(": ")[2] for row in own if not row["path"]}):
                yield (f"{network}: {entry.label} gave {sum(not row['path'] for row in own)} of {len(own)} sums up: "
                       + f"such as {reasons[0]}")


def repeated(league: League, rows: Sequence[Row], network: str) -> tuple[list[Standing], list[Standing], bool]:
    """The standings of a network on two sets of seeds, and whether the same schemes lead on both.

    The sets are the scoring and its replicate, of the schemes that have both, and leaders have the first rank. Without
    a replicate they are the halves of the seeds, of which no test can settle a lead: leaders are those whose interval
    of the ratio holds 1.
    """
    own = standings(league, rows, network, part=REPLICATE)
    among = {one.label for one in own}
    found = standings(league, [row for row in rows if row["label"] in among], network)
    if own and len(found) == len(own):
        return found, own, leaders(found) == leaders(own)
    one, other = (standings(league, rows, network, half) for half in (league.seeds[::2], league.seeds[1::2]))
    return one, other, unsettled(one) == unsettled(other)


def agreement(league: League, rows: Sequence[Row], networks: Sequence[str]) -> Iterator[str]:
    """The rank correlations between two sets of seeds (`repeated`), targets and networks, by Spearman, and whether the
    same schemes lead on both sets."""
    halved = []
    for network in networks:
        found, own, same = repeated(league, rows, network)
        if found and len(found[0].times) < len(league.seeds):
            halved.append((network, spearman(found, own), same))
            continue
        one, other = (", ".join(sorted(leaders(each))) for each in (found, own))
        yield (f"{network}, {len(league.replicate)} other seeds of {len(own)} schemes: first {other}, "
               + ("as before" if same else f"before {one}") + f"; Spearman {spearman(found, own):.2f}")
    if halved:
        yield (f"halves of the seeds: the same schemes lead on {sum(same for *_, same in halved)} of {len(halved)} "
               "networks; Spearman " + ", ".join(f"{network} {value:.2f}" for network, value, _ in halved))
    at = {network: [standings(league, rows, network, share=share) for share in TARGETS] for network in networks}
    yield "0.98 and 1.02 of the target, beside it: Spearman " + ", ".join(
        f"{network} {spearman(low, middle):.2f}, {spearman(high, middle):.2f}" for network, (low, middle, high)
        in at.items())
    if len(networks) > 1:
        yield "between networks: Spearman " + ", ".join(
            f"{one} and {other} {spearman(at[one][1], at[other][1]):.2f}"
            for i, one in enumerate(networks) for other in networks[i + 1:])


def badge(league: League, rows: Sequence[Row]) -> str:
    """One line for a paper; its digest covers the digests of all rows."""
    said = sorted(f"{row['key']} {row['digest']}\n" for row in rows)
    digest = blake2b("".join(said).encode(), digest_size=8).hexdigest()
    return (f"emul suite {league.suite.version}, league {league.name} {league.definition}: {league.trained_on}, "
            f"{len(rows)} runs, digest {digest}")


LEADERBOARD = ("league", "scheme", "network", "task", "rank", "median_s", "low_s", "high_s", "ratio", "ratio_low",
               "ratio_high", "to_baseline", "to_baseline_low", "to_baseline_high", "seeds", "reached", "accuracy", "mb",
               "point", "values", "digest", "code", "revision", "who", "date")


def leaderboard(league: League, rows: Sequence[Row]) -> list[PlainDict]:
    """A row a scheme and network that is whole, `LEADERBOARD`."""
    found = []
    spaces = {entry.label: entry for entry in league.entries}
    for network in (*league.networks, *league.extended):
        for one in standings(league, rows, network):
            mine = [row for row in rows if row["part"] == SCORING and (row["network"], row["label"]) == (
                network, one.label)]
            digest = blake2b("".join(sorted(row["digest"] for row in mine)).encode(), digest_size=8).hexdigest()
            numbers = [f"{x:.6g}" for x in (one.median, *one.interval, *one.ratio, *one.to_baseline)]
            values = spaces[one.label].values(one.point, league.first)
            found.append(dict(zip(LEADERBOARD, [
                league.name, one.label, network, league.trained_on, one.rank, *numbers, len(one.times),
                sum(map(math.isfinite, one.times.values())), f"{one.accuracy:.4g}", f"{one.mb:.5g}", one.point,
                json.dumps(values), digest, mine[0]["code"], mine[0]["revision"],
                spaces[one.label].who,
                max(row["made"] for row in mine)], strict=True)))
    return found


def curves(league: League, rows: Sequence[Row], network: str) -> list[PlainDict]:
    """Of each scheme that is whole, {scheme, virtual_s, accuracy}: the median over seeds of the last accuracy seen."""
    mine = [row for row in rows if row["part"] == SCORING and row["network"] == network]
    end = max((path_of(row)[-1, 0] for row in mine if row["path"]), default=0.0) if league.rounds else (
        league.units * league.unit_s()[network])
    found = []
    for label, own in groupby(sorted(mine, key=lambda row: row["label"]), key=lambda row: row["label"]):
        paths = [path_of(row) for row in own]
        for at in np.linspace(end / 60, end, 60):
            seen = [path[np.searchsorted(path[:, 0], at, side="right") - 1, 2] if len(path) and path[0, 0] <= at
                    else np.nan for path in paths]
            if not np.isnan(seen).all():
                found.append({"scheme": label, "virtual_s": float(at), "accuracy": float(np.nanmedian(seen))})
    return found

