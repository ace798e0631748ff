"""The numbers of a suite: what each scheme takes to the target on each network, differences to a baseline, ranks.

Runs end when the network's time is over, not at the target: so the accuracy at the end is that of equal time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.record.rundir import SUMMARY, read_json
from emul.study import tables
from emul.study.comparison import choose_targets, first_reaching, last_within
from emul.study.job import CELLS
from emul.study.runs import StudyOutcome
from emul.study.stats import FEWEST, ends, holm, student

if TYPE_CHECKING:
    import pandas as pd

METRICS = {                         # name -> (unit, what it is)
    "time": ("s", "virtual time of the first observation that reaches the target"),
    "bytes": ("MB", "10^6 bytes on links until then"),
    "accuracy": ("", "the last accuracy observed within the network's time"),
}
COSTS = ("time", "bytes")

COLUMNS = {
    "suite": {                      # one row a network and scheme
        "network": "the network",
        "scheme": "the scheme's label",
        "accuracy_of": "what its accuracy is of (`emul.roles.evaluation.KINDS`); ranks are among schemes of one kind",
        "seeds": "seeds that were run to their end",
        "reached": "of these, how many reached the target",
        **{f"{metric}{end}": f"{text}{' (mean)' if not end else ''}" for metric, (_, what) in METRICS.items()
           for end, text in (("", what), ("_low", "lower end of the 95 % interval of this mean; null: below 3 seeds"),
                             ("_high", "its upper end"))},
        **{f"{metric}_rank": f"rank on this network by {metric}; null: never reached" for metric in METRICS},
        "oracle_waits": "waits that knew fates, of all seeds together",
    },
    "metrics": {                    # one row a network, scheme, seed and metric
        "network": "the network", "metric": "the metric", "scheme": "the scheme's label", "seed": "the seed",
        "value": "its value; null: not reached", "unit": "its unit; empty: a fraction",
    },
    "differences": {                # one row a network, metric and scheme with an accuracy of the baseline's kind
        "network": "the network", "metric": "the metric", "scheme": "the scheme's label",
        "baseline": "the scheme that it is compared with",
        "n_seeds": "seeds that both have a value for",
        "mean": "mean over these of value of scheme - value of baseline",
        "t_low": "lower end of its 95 % interval by the paired t-test; null: none can be had",
        "t_high": "its upper end",
        "p": "p-value of this test",
        "p_holm": "the same, adjusted for the number of schemes on this network and metric (Holm)",
        "unit": "unit of the three; empty: a fraction",
    },
}

SuiteValues = dict[tuple[str, str, str], dict[int, float]]       # (metric, network, scheme) -> seed -> value


@dataclass(frozen=True)
class RefusedScheme:
    """A scheme that cannot run on a network, and why."""

    network: str
    scheme: str
    reason: str


@dataclass(frozen=True)
class SuiteResults:
    """The measurements. target: None where no accuracy was observed, or each kind of it has another. seeds: those asked
    for. ended: (network, scheme) -> the seeds that were run to their end. knowing: (network, scheme) -> waits that knew
    fates. lossless: schemes under which nothing is lost; they have no rank, since their network is another one than
    that of the others. lacking: network -> the schemes that have not run there on all seeds, such as those of another
    shard; such a network has no ranks."""

    networks: list[str]
    schemes: list[str]
    seeds: list[int]
    baseline: str
    target: dict[str, float | None]             # by network
    values: SuiteValues
    ended: dict[tuple[str, str], list[int]]
    accuracy_of: dict[str, str]                 # scheme -> one of `emul.roles.evaluation.KINDS`, if it has accuracies
    knowing: dict[tuple[str, str], int]
    refused: list[RefusedScheme]
    curves: pd.DataFrame
    lossless: Collection[str] = ()
    lacking: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, metric: str, network: str, scheme: str) -> dict[int, float]:
        """seed -> value, of the seeds that have one."""
        return self.values.get((metric, network, scheme), {})

    def kinds(self) -> dict[str, list[str]]:
        """Kind of accuracy -> the schemes that have it: only these are compared with one another."""
        return tables.by_kind(self.schemes, self.accuracy_of)

    def ranked(self, metric: str, network: str, kind: str) -> list[str]:
        """The schemes of a kind of accuracy with a value, the best first. A scheme that reached the target on more
        seeds goes before those that reached it on fewer, since where these did not they would have needed more. None
        where runs are lacking."""
        if network in self.lacking:
            return []
        sign = 1 if metric in COSTS else -1

        def place(scheme: str) -> tuple[int, float]:
            values = list(self.of(metric, network, scheme).values())
            return -len(values), sign * float(np.mean(values))

        return sorted((scheme for scheme in self.kinds().get(kind, ())
                       if scheme not in self.lossless and self.of(metric, network, scheme)), key=place)

    def winners(self, metric: str, kind: str) -> dict[str, str]:
        """Network -> its best scheme of a kind of accuracy, where there is one."""
        return {network: found[0] for network in self.networks if (found := self.ranked(metric, network, kind))}

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables of `COLUMNS`, and the curves."""
        import pandas as pd

        metrics = [(network, metric, scheme, seed, self.of(metric, network, scheme).get(seed), METRICS[metric][0])
                   for (network, scheme), seeds in self.ended.items() for metric in METRICS for seed in seeds]
        return {"suite": _suite(self),
                "metrics": pd.DataFrame(metrics, columns=list(COLUMNS["metrics"])).astype({"value": float}),
                "differences": _differences(self), "curves": self.curves}


def measured(path: Path, study: StudyOutcome, networks: Sequence[str], schemes: Sequence[str], seeds: Sequence[int],
             target: float | None, baseline: str, refused: Sequence[RefusedScheme],
             lossless: Collection[str]) -> SuiteResults:
    """Read the runs of a suite. target: None: by network and kind, 95 % of the lowest median final accuracy."""
    import pandas as pd

    values: SuiteValues = {}
    ended: dict[tuple[str, str], list[int]] = {}
    knowing: Counter[tuple[str, str]] = Counter()
    seen: list[pd.DataFrame] = []
    targets: dict[str, float | None] = {}
    kinds: dict[str, str] = {}
    for network in networks:
        mine = [cell for cell in study.runs if cell.network == network]
        frame = tables.results(path, mine)
        kinds |= tables.kinds_of(frame)
        by_scheme, _ = choose_targets(target, None, frame)
        several = {*by_scheme.values()}
        targets[network] = target if len(several) != 1 else several.pop()
        for cell in mine:
            run = path / CELLS / cell.key
            summary, curve = read_json(run / SUMMARY), tables.curve(run)
            seen.append(curve.assign(network=network, scheme=cell.scheme, seed=cell.seed))
            ended.setdefault((network, cell.scheme), []).append(cell.seed)
            knowing[network, cell.scheme] += sum(summary["oracle_waits"].values())
            limit = cell.scenario.stop.virtual_time_ns
            within = math.inf if limit is None else limit / 1e9
            for metric, value in measure(curve, by_scheme.get(cell.scheme), within).items():
                values.setdefault((metric, network, cell.scheme), {})[cell.seed] = value
    names = ["network", *tables.COLUMNS["curves"]]
    curves = pd.concat(seen, ignore_index=True)[names] if seen else pd.DataFrame(columns=names)
    cannot = {(one.network, one.scheme) for one in refused}
    lacking = {network: [scheme for scheme in schemes if (network, scheme) not in cannot
                         and len(ended.get((network, scheme), ())) < len(seeds)] for network in networks}
    return SuiteResults(list(networks), list(schemes), list(seeds), baseline, targets, values, ended, kinds,
                        dict(knowing), list(refused), curves, lossless,
                        {n: found for n, found in lacking.items() if found})


def measure(curve: pd.DataFrame, target: float | None, within_s: float) -> dict[str, float]:
    """Value by metric of `METRICS`, of those that the run has.

    curve: `emul.study.tables.curve` of it. within_s: the network's time. A round under way when the
    time is over goes on to its end, so the accuracy at the end is the last one observed within the time.
    """
    accuracy = curve["accuracy"].to_numpy(float)
    last = last_within(curve["virtual_s"].to_numpy(float), accuracy, within_s)
    found = {} if last is None else {"accuracy": last}
    at = None if target is None else first_reaching(accuracy, target, np.arange(len(accuracy), dtype=float))
    if at is not None:
        here = curve.iloc[int(at)]
        found |= {"time": float(here["virtual_s"]), "bytes": float(here["mb"])}
    return found


# --- tables -----------------------------------------------------------------------------------------------------------

def _suite(r: SuiteResults) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for network in r.networks:
        for scheme in r.schemes:
            if (network, scheme) not in r.ended:
                continue
            kind = r.accuracy_of.get(scheme, "")
            ranks = {metric: r.ranked(metric, network, kind) for metric in METRICS}
            row: dict[str, Any] = {"network": network, "scheme": scheme, "accuracy_of": kind,
                                   "seeds": len(r.ended[network, scheme]),
                                   "reached": len(r.of("time", network, scheme))}
            for metric in METRICS:
                values = list(r.of(metric, network, scheme).values())
                low, high = ends(values)
                row |= {metric: float(np.mean(values)) if values else None, f"{metric}_low": low,
                        f"{metric}_high": high}
            row |= {f"{metric}_rank": ranks[metric].index(scheme) + 1 if scheme in ranks[metric] else None
                    for metric in METRICS}
            rows.append(row | {"oracle_waits": r.knowing[network, scheme]})
    frame = pd.DataFrame(rows, columns=list(COLUMNS["suite"]))
    numbers = [f"{metric}{end}" for metric in METRICS for end in ("", "_low", "_high", "_rank")]
    return frame.astype(dict.fromkeys(numbers, float))


def _differences(r: SuiteResults) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for network in r.networks:
        for metric in METRICS:
            base: dict[int, float] = r.of(metric, network, r.baseline)
            own: list[dict[str, Any]] = []
            for scheme in r.schemes:
                both = {seed: value - base[seed] for seed, value in r.of(metric, network, scheme).items()
                        if seed in base}
                if scheme == r.baseline or not both or r.accuracy_of.get(scheme) != r.accuracy_of.get(r.baseline):
                    continue
                tested = student(list(both.values())) if len(both) >= FEWEST else None
                own.append({"network": network, "metric": metric, "scheme": scheme, "baseline": r.baseline,
                            "n_seeds": len(both), "mean": float(np.mean(list(both.values()))),
                            "t_low": tested and tested.low, "t_high": tested and tested.high, "p": tested and tested.p,
                            "p_holm": None, "unit": METRICS[metric][0]})
            sure = [row for row in own if row["p"] is not None]
            for row, p in zip(sure, holm([row["p"] for row in sure]), strict=True):
                row["p_holm"] = p
            rows += own
    frame = pd.DataFrame(rows, columns=list(COLUMNS["differences"]))
    return frame.astype(dict.fromkeys(("mean", "t_low", "t_high", "p", "p_holm"), float))
