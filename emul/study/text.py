"""What a comparison says on a terminal, in plain text."""

from __future__ import annotations

from collections.abc import Sequence

from emul.record.marks import NOTE, among
from emul.study.compare import LESS_IS_BETTER, METRICS, Comparison, judged, own, reached, verdict
from emul.study.stats import MOST_SEEDS, Interval

_HEADS = {"accuracy_at_equal_time": "accuracy at equal time", "accuracy_at_equal_bytes": "at equal bytes",
          "time_to_target": "time to target", "bytes_to_target": "MB to target"}
_MORE = {"time_to_target": "time", "bytes_to_target": "bytes"}


def comparison(c: Comparison) -> str:
    """A table of the schemes, then who needs least; several lines without a trailing newline."""
    count = len(c.seeds)
    lines = [f"target accuracy {c.target:g} ({c.target_from})" if c.target is not None else c.target_from,
             *_aligned([["scheme", "reached", *_HEADS.values()],
                        *([among(scheme, c.knowing), f"{reached(c, scheme)}/{count}",
                           *(_shown(own(c, metric, scheme), METRICS[metric][0]) for metric in _HEADS)]
                          for scheme in c.schemes)])]
    for metric in LESS_IS_BETTER:
        lines += ["", *_verdict(c, metric)]
    lines += ["", _about_intervals(count), *([NOTE] if c.knowing else [])]
    return "\n".join(lines)


def _verdict(c: Comparison, metric: str) -> list[str]:
    found = verdict(c, metric)
    if found is None:
        return [f"least {_MORE[metric]} to the target: no scheme reached it"]
    unit = METRICS[metric][0]
    lines = [f"least {_MORE[metric]} to the target: {among(found.best, c.knowing)}, {_shown(found.own, unit)} {unit}"]
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
    """What the paired t-test says of a difference; nothing where there is none, or the values do not vary."""
    tested = judged(c)
    said = tested.get((metric, scheme, best)) or tested.get((metric, best, scheme))
    if more.student is None or said is None or not more.student.sd:
        return []
    pairs = sum(key[0] == metric for key in tested)
    line = f"    paired t [{more.student.low:.3g}, {more.student.high:.3g}], p = {more.student.p:.2g}"
    if pairs > 1:
        line += f", of {pairs} pairs {said.p:.2g}"
    if said.settled:
        return [f"{line}: settled"]
    return [f"{line}: not settled; a difference of this size takes "
            + (f"about {said.seeds} seeds" if said.seeds is not None else f"more than {MOST_SEEDS:,} seeds")]


def _about_intervals(count: int) -> str:
    if count < 3:
        return "no intervals: they need 3 seeds or more, e.g. --seeds 0:5"
    few = "; with so few seeds they are too short, see docs/studies.md" if count < 10 else ""
    return (f"[low, high]: 95 % bootstrap intervals of means over {count} seeds{few}\n"
            "paired t: the interval that holds for few seeds, too; p of several pairs by Holm")


def _shown(i: Interval, unit: str) -> str:
    if i.mean is None:
        return "-"
    return (f"{i.mean:.3f}" if not unit else f"{i.mean:.3g}") + _ends(i, not unit)


def _ends(i: Interval, fraction: bool = False) -> str:
    if i.low is None or i.high is None:
        return ""
    return f" [{i.low:.3f}, {i.high:.3f}]" if fraction else f" [{i.low:.3g}, {i.high:.3g}]"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
