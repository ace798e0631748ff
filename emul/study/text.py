"""A comparison as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from emul.record.marks import NOTE, among, in_words
from emul.record.progress import without_empty
from emul.roles.evaluation import KINDS
from emul.study.comparison import LESS_IS_BETTER, METRICS, Cheapest, Comparison, own, reached, tried, verdict
from emul.study.stats import FEWEST, MOST_SEEDS, Interval

_HEADS = {"accuracy_at_equal_time": "accuracy at equal time", "accuracy_at_equal_bytes": "at equal bytes",
          "time_to_target": "time to target, s", "bytes_to_target": "MB to target"}
_NEAREST = 3            # schemes beside the best one that an answer names
_MORE = {"time_to_target": "time", "bytes_to_target": "bytes"}


def answer(c: Comparison) -> list[str]:
    """The schemes that need least time and least bytes, the difference to the next ones, and the open questions: a
    paragraph each. It opens what the command prints, and the report."""
    if not c.targets:
        return [f"Nothing to compare: {c.target_from}."]
    kinds, found = c.kinds(), []
    for kind, schemes in kinds.items():
        targets = {c.targets[scheme] for scheme in schemes if scheme in c.targets}
        if targets:
            goal = f"{_kind(kind)}accuracy {targets.pop():g}"
            found += [said for metric in LESS_IS_BETTER if (said := _answer(c, metric, schemes, goal))] or [
                f"No scheme reached {goal}."]
    if len(kinds) > 1:
        said = "; ".join(f"{_kind(kind) or 'no known '}accuracy of {_and(schemes)}"
                         + (f" ({KINDS[kind]})" if kind in KINDS else "") for kind, schemes in kinds.items())
        found.append(f"Not compared with one another: {said}. These are different measures, so neither they nor what "
                     "it takes to reach them can be ranked.")
    return found


def _kind(kind: str) -> str:
    return f"{in_words(kind)} " if kind else ""


def _answer(c: Comparison, metric: str, schemes: Sequence[str], goal: str) -> str:
    found = verdict(c, metric, schemes)
    if found is None or found.own.mean is None:
        return ""
    unit, least = METRICS[metric][0], found.own.mean
    text = (f"{among(found.best, c.knowing)} needs the least {_MORE[metric]} to {goal}: "
            f"{least:.3g} {unit}{_ends(found.own)}")
    always = {scheme: mean for scheme, (_, seeds) in found.others.items()
              if seeds == reached(c, found.best) and (mean := own(c, metric, scheme).mean) is not None}
    nearest = sorted(always, key=lambda scheme: always[scheme])

    def more(scheme: str) -> str:           # nothing is a multiple of 0
        return f"{always[scheme] / least:.3g} times" if least else f"{always[scheme]:.3g} {unit}"

    told = [f"{among(scheme, c.knowing)} {more(scheme)}{' that' if least else ''}" for scheme in nearest[:_NEAREST]]
    if len(nearest) > _NEAREST:
        told.append(f"{len(nearest) - _NEAREST} more schemes up to {more(nearest[-1])}")
    text += f"; {_and(told)}." if told else "."
    seldom = [f"{among(scheme, c.knowing)} ({seeds} of {len(c.seeds)})" for scheme, (_, seeds) in found.others.items()
              if scheme not in always]
    if seldom:
        text += f" {_and(seldom)} reached it on fewer seeds."
    return f"{text} {_doubt(c, found, nearest)}".rstrip()


def _doubt(c: Comparison, found: Cheapest, others: Sequence[str]) -> str:
    """Against whom the paired t-test does not settle the lead."""
    if len(c.seeds) < FEWEST:
        return f"With {len(c.seeds)} seed{'s' * (len(c.seeds) != 1)} nothing is settled."
    open_ones = []
    for scheme in others:
        said = c.test(found.metric, scheme, found.best)
        if said is not None and not said.settled:
            open_ones.append(f"{among(scheme, c.knowing)} (about {said.seeds} seeds would settle it)"
                             if said.seeds is not None else
                             f"{among(scheme, c.knowing)} (more than {MOST_SEEDS:,} seeds)")
    return f"Not settled against {_and(open_ones)}." if open_ones else ""


def _and(parts: Sequence[str]) -> str:
    """
    >>> _and(["a", "b", "c"]), _and(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def comparison(c: Comparison) -> str:
    """The answer, a table of the schemes, then who needs least; several lines without a trailing newline."""
    count, kinds = len(c.seeds), c.kinds()
    lines = [*answer(c), "", _target(c), *aligned(without_empty(_rows(c)))]
    for kind, schemes in kinds.items():
        for metric in LESS_IS_BETTER:
            lines += ["", *_verdict(c, metric, schemes, f" of {_kind(kind)}accuracy" if len(kinds) > 1 else "")]
    few = "; with so few seeds they are too short, see docs/studies.md" if count < 10 else ""
    lines += ["", f"[low, high]: 95 % bootstrap intervals of means over {count} seeds{few}\n"
              "paired t: the interval that holds for few seeds, too" if count >= FEWEST else
              "no intervals: they need 3 seeds or more, e.g. --seeds 0:5", *([NOTE] if c.knowing else [])]
    return "\n".join(lines)


def _target(c: Comparison) -> str:
    """The goal: the accuracy that a scheme reports, of whatever kind that is."""
    by_kind = {kind: c.targets[scheme] for kind, schemes in c.kinds().items() for scheme in schemes
               if scheme in c.targets}
    if not by_kind:
        return c.target_from
    said = ", ".join(f"{_kind(kind)}accuracy {value:g}" for kind, value in by_kind.items())
    return f"target: {said} ({c.target_from})"


def _rows(c: Comparison) -> list[list[str]]:
    """The table of a comparison as text, heads first."""
    return [["scheme", "accuracy of", "epsilon in total", "reached", *_HEADS.values()],
            *([among(scheme, c.knowing), in_words(c.accuracy_of.get(scheme)) or "-",
               c.epsilons.get(scheme, "none").replace("none", "-"), f"{reached(c, scheme)}/{tried(c, scheme)}",
               *(_shown(own(c, metric, scheme), METRICS[metric][0]) for metric in _HEADS)] for scheme in c.schemes)]


def latex(c: Comparison) -> str:
    """The table of the schemes for a paper: means with their bootstrap intervals."""
    return tabular([[escaped(cell) for cell in row] for row in without_empty(_rows(c))],
                   f"{_target(c)}; [low, high]: 95 % bootstrap intervals of means over {len(c.seeds)} seeds")


def tabular(rows: Sequence[Sequence[str]], comment: str) -> str:
    r"""A table for LaTeX with booktabs, of cells that are `escaped`, heads in its first row.

    >>> print(tabular([["scheme", "time, s"], [escaped("top_k"), r"5 $\pm$ 1"]], "5 %").replace(chr(92), "/"))
    % needs the package booktabs; 5 %
    /begin{tabular}{lr}
    /toprule
    scheme & time, s //
    /midrule
    top/_k & 5 $/pm$ 1 //
    /bottomrule
    /end{tabular}
    <BLANKLINE>
    """
    head, *body = (" & ".join(row) + r" \\" for row in rows)
    return "\n".join([f"% needs the package booktabs; {comment}",
                      rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", head, r"\midrule", *body,
                      r"\bottomrule", r"\end{tabular}", ""])


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        **{c: f"\\{c}" for c in "_%&#${}"}}


def escaped(text: str) -> str:
    """Text for LaTeX.

    >>> escaped("top_k 5%").replace(chr(92), "/")
    'top/_k 5/%'
    """
    return "".join(_TEX.get(c, c) for c in text)


def _verdict(c: Comparison, metric: str, schemes: Sequence[str], of: str) -> list[str]:
    found = verdict(c, metric, schemes)
    if found is None:
        return [f"least {_MORE[metric]} to the target{of}: no scheme reached it"]
    unit = METRICS[metric][0]
    lines = [f"least {_MORE[metric]} to the target{of}: "
             f"{among(found.best, c.knowing)}, {_shown(found.own, unit)} {unit}"]
    for scheme, (more, seeds) in found.others.items():
        seldom = f"; it reached the target on {seeds} of {len(c.seeds)} seeds" if seeds < len(c.seeds) else ""
        if more.mean is None:
            said = "no seed on which both reached the target"
        else:
            clear = ("" if more.without_zero else
                     ": the interval holds 0" if more.low is not None else ": no interval, so nothing is shown")
            said = f"{more.mean:+.3g} {unit}{_ends(more)} over {more.n} seed{'s' * (more.n != 1)}{clear}"
        lines.append(f"  {among(scheme, c.knowing)}: {said}{seldom}")
        lines += _tested(c, metric, scheme, found.best, more)
    return lines


def _tested(c: Comparison, metric: str, scheme: str, best: str, more: Interval) -> list[str]:
    """The result of the paired t-test of a difference; nothing if there is none, or the values do not vary."""
    said = c.test(metric, scheme, best)
    if more.student is None or said is None or not more.student.sd:
        return []
    pairs = sum(key[0] == metric for key in c.tests)
    line = f"    paired t [{more.student.low:.3g}, {more.student.high:.3g}], p = {more.student.p:.2g}"
    if pairs > 1:
        line += f" for this pair alone, {said.p:.2g} by Holm for all {pairs} pairs"
    if said.settled:
        return [f"{line}: settled"]
    return [f"{line}: not settled; a difference of this size takes "
            + (f"about {said.seeds} seeds" if said.seeds is not None else f"more than {MOST_SEEDS:,} seeds")]


def _shown(i: Interval, unit: str) -> str:
    if i.mean is None:
        return "-"
    return (f"{i.mean:.3f}" if not unit else f"{i.mean:.3g}") + _ends(i, not unit)


def _ends(i: Interval, fraction: bool = False) -> str:
    if i.low is None or i.high is None:
        return ""
    return f" [{i.low:.3f}, {i.high:.3f}]" if fraction else f" [{i.low:.3g}, {i.high:.3g}]"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
