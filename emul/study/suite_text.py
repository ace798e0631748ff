"""The texts of a suite: on a terminal, in JSON, and as tables of a paper."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np

from emul.record.marks import MARK, NOTE, in_words, mean_text
from emul.study.stats import FEWEST, LEVEL, ends, student
from emul.study.suite_tables import METRICS, SuiteResults
from emul.study.text import aligned, escaped, tabular

_HEADS = {"time": "seconds to the target", "bytes": "MB to the target", "accuracy": "accuracy at the end"}


def printed(r: SuiteResults, badge: str) -> str:
    """The answer, a table for time, bytes and accuracy each, what cannot run, the badge."""
    targets = {target for target in r.target.values() if target is not None}
    goal = f", accuracy {targets.pop():g}" if len(targets) == 1 else ", by network and kind of accuracy"
    lines = [*answer(r)]
    for metric, head in _HEADS.items():
        if any(r.of(metric, network, scheme) for network in r.networks for scheme in r.schemes):
            lines += ["", f"{head}{goal if metric != 'accuracy' else ''}", *aligned(plain(r, metric))]
    lines += ["", *_legend(r)]
    for one in r.refused:
        lines.append(f"{one.scheme} cannot run on {one.network}: {one.reason}")
    return "\n".join([*lines, "", badge])


def _legend(r: SuiteResults) -> list[str]:
    said = ["means over seeds; (n): only n seeds reached the target; -: none did; x: cannot run"
            + ("; ?: not run on all seeds" if r.lacking else "")]
    said += [f"no rank on {network}: {', '.join(schemes)} {'have' if len(schemes) > 1 else 'has'} not run on all seeds "
             "here, so that nobody knows who wins" for network, schemes in r.lacking.items()]
    if len(r.seeds) < FEWEST:
        said.append("no intervals: they need 3 seeds or more, e.g. --seeds 0:5")
    if r.lossless:
        said.append(f"no rank: {', '.join(r.lossless)}, whose network loses nothing")
    return said + ([NOTE] if any(r.knowing.values()) else [])


def document(r: SuiteResults, badge: str) -> dict[str, Any]:
    """The results as plain values, for `--json`."""
    return {"badge": badge, "target": r.target, "networks": r.networks, "schemes": r.schemes, "seeds": r.seeds,
            "baseline": r.baseline, "refused": [vars(one) for one in r.refused],
            "accuracy_of": r.accuracy_of, "winners": {metric: {kind: r.winners(metric, kind) for kind in r.kinds()}
                                                      for metric in METRICS}, "answer": answer(r),
            **{name: [{key: None if value != value else value for key, value in row.items()}
                      for row in frame.astype(object).to_dict("records")]
               for name, frame in r.frames().items() if name != "curves"}}


def answer(r: SuiteResults) -> list[str]:
    """The winners by network, and how often they change: a paragraph for time, bytes and accuracy each."""
    said = [paragraph for kind in r.kinds() for metric in METRICS if (paragraph := _answer(r, metric, kind))]
    if len(r.kinds()) > 1:
        said.append("Not compared with one another: " + "; ".join(
            f"schemes with {in_words(kind) or 'no known'} accuracy ({', '.join(schemes)})"
            for kind, schemes in r.kinds().items())
            + ". These are different measures, so neither they nor what it takes to reach them can be ranked.")
    return said


_LEAST = {"time": "Least time to the target", "bytes": "Fewest bytes to the target",
          "accuracy": "Highest accuracy at the end of the network's time"}


def _answer(r: SuiteResults, metric: str, kind: str) -> str:
    won = r.winners(metric, kind)
    if not won or len(r.kinds()[kind]) < 2:
        return ""
    counted = Counter(won.values()).most_common()
    of = f", of schemes with {in_words(kind) or 'no known'} accuracy" if len(r.kinds()) > 1 else ""
    text = f"{_LEAST[metric]}{of}: " + ", ".join(f"{scheme} on {n}" for scheme, n in counted)
    text += f" of {len(won)} networks"
    tested = [sure for network in won if (sure := settled(r, metric, network, kind)) is not None]
    text += (f"; the paired t-test settles the lead over the second on {sum(tested)} of them." if tested else ".")
    pairs = list(combinations(won, 2))
    if pairs:
        first = next(iter(won))
        differ = sum(won[a] != won[b] for a, b in pairs)
        elsewhere = [network for network in won if won[network] != won[first]]
        text += (f" The winner differs in {differ} of {len(pairs)} pairs of networks; the winner of {first}, "
                 f"{won[first]}, "
                 + (f"does not win on {', '.join(elsewhere)}." if elsewhere else "wins on all."))
    without = [network for network in r.networks if network not in won and network not in r.lacking]
    if without:
        text += f" No scheme has a value on {', '.join(without)}."
    return text


def settled(r: SuiteResults, metric: str, network: str, kind: str) -> bool | None:
    """True if the paired t-test tells the best scheme of a kind from the second; None: it cannot be asked."""
    ranked = r.ranked(metric, network, kind)
    if len(ranked) < 2:
        return None
    a, b = (r.of(metric, network, scheme) for scheme in ranked[:2])
    both = [a[seed] - b[seed] for seed in a if seed in b]
    return student(both).p < 1 - LEVEL if len(both) >= FEWEST else None


def plain(r: SuiteResults, metric: str) -> list[list[str]]:
    """Networks x schemes of means as text, for a terminal; `-`: not reached, `x`: cannot run."""
    cannot = {(one.network, one.scheme) for one in r.refused}
    rows = [["network", *r.schemes], ["accuracy of", *(in_words(r.accuracy_of.get(s)) or "-" for s in r.schemes)]]
    for network in r.networks:
        row = [network]
        for scheme in r.schemes:
            values = list(r.of(metric, network, scheme).values())
            missing = len(r.ended.get((network, scheme), ())) - len(values)
            row.append("x" if (network, scheme) in cannot else
                       "?" if not values and scheme in r.lacking.get(network, ()) else "-" if not values else
                       mean_text(metric, float(np.mean(values))) + (f" ({len(values)})" if missing else "")
                       + MARK * bool(r.knowing.get((network, scheme))))
        rows.append(row)
    return rows


def latex(r: SuiteResults, badge: str) -> str:
    """The four tables for a paper, networks x schemes: the best of a row in bold, half the width of the interval."""
    return f"% {badge}\n" + "\n".join(_tabular(r, metric) for metric in METRICS)


def _tabular(r: SuiteResults, metric: str) -> str:
    unit, what = METRICS[metric]
    rows = [["network", *map(escaped, r.schemes)]]
    if len(r.kinds()) > 1:
        rows.append(["accuracy of", *(in_words(r.accuracy_of.get(scheme)) for scheme in r.schemes)])
    best = {(network, scheme) for kind in r.kinds() for network, scheme in r.winners(metric, kind).items()}
    for network in r.networks:
        cells = [escaped(network)]
        for scheme in r.schemes:
            values = list(r.of(metric, network, scheme).values())
            if not values:
                cells.append("--")
                continue
            low, high = ends(values)
            said = mean_text(metric, float(np.mean(values))) + (
                "" if low is None or high is None else rf" $\pm$ {mean_text(metric, (high - low) / 2)}")
            if missing := len(r.ended[network, scheme]) - len(values):
                said += rf"$^{{{len(values)}/{len(values) + missing}}}$"
            cells.append(rf"\textbf{{{said}}}" if (network, scheme) in best else said)
        rows.append(cells)
    return tabular(rows, f"{metric}{f', {unit}' if unit else ''}: {what}")
