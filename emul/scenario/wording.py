"""The wording of a mistake in a file: its place, the value as it was written, the nearest name that there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from emul.base.errors import Problem, ScenarioError

Path = tuple[str | int, ...]            # ("links", 0, "outage", "p")
Finding = tuple[Path, str, str]         # (path below what is looked at, found, expected)

MISSING = "missing"                     # found where nothing was written

# keys and words of earlier revisions -> what a file says now
GONE = {
    "duplex": "two directions that share time are a medium, `medium: air` with `media: {air: {efficiency: 1}}`",
    "rtt_weighted": "sharing: connections with transport: {tcp: {}} has the shares of TCP, window by window",
    **dict.fromkeys(("mathis", "pftk"), "sharing: connections with transport: {tcp: {}} has TCP's windows and losses"),
}

# Words of other tools -> ours.
_SAME = {"delay": "latency", "loss": "outage", "drop": "outage", "rate": "bandwidth", "throughput": "bandwidth",
         "capacity": "bandwidth", "dataset": "data", "optimizer": "solver", "learning_rate": "lr",
         "batch_size": "batch", "num_clients": "clients", "num_rounds": "rounds",
         "algorithm": "schemes", "strategy": "schemes",
         "packet_loss": "outage", "jitter": "latency", "id": "label"}


@dataclass
class Verdicts:
    """The result of a check: mistakes, warnings, and what is good to know."""

    found: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __iadd__(self, other: Verdicts) -> Verdicts:
        self.found += other.found
        self.warnings += other.warnings
        self.notes += other.notes
        return self


def place(path: Path) -> str:
    """A path as text.

    >>> place(("links", 0, "outage", "p"))
    'links[0].outage.p'
    """
    return suffix(path, None)


def suffix(path: Path, before: str | None) -> str:
    """A path as text behind `before`; None: nothing stands before it."""
    parts = [f"[{p}]" if isinstance(p, int) else f".{p}" for p in path]
    text = "".join(parts)
    return text[1:] if before is None and text.startswith(".") else text


def shown(value: object) -> str:
    """A value as the error table shows it: YAML-like, on one line, cut at 40 characters.

    >>> shown("krumm"), shown(1.4), shown(None), shown({"p": 1})
    ('"krumm"', '1.4', 'null', '{p: 1}')
    """
    text = _flow(value)
    return text if len(text) <= 40 else text[:37] + "..."


def one_line(text: str, most: int) -> str:
    """Text without line breaks and control characters, cut at `most`."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in text[:most + 1])
    return text if len(text) <= most else text[:most - 3] + "..."


def scenario_error(file: str, problems: list[Problem]) -> ScenarioError:
    """All problems of a file, each on one line whatever its keys and values hold."""
    clean = [Problem(one_line(p.place, 100), one_line(p.found, 100), one_line(p.expected, 400), p.line, p.file)
             for p in problems]
    return ScenarioError(file, clean)


def _flow(value: object) -> str:
    if isinstance(value, str):
        return f'"{one_line(value, 60)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)[1:-1]}: {_flow(v)}" for k, v in list(value.items())[:9]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v) for v in value[:20]) + "]"
    return str(value)


def nearest(found: str, known: Iterable[str]) -> str:
    """'; did you mean "x"?', or the list of what there is where nothing is near. At most 20 names are listed.

    Of what is gone: what to say in its place.
    """
    if found in GONE:
        return f"; {found} is gone: {GONE[found]}"
    known = [str(name) for name in known]
    near = [_SAME[found.lower()]] if _SAME.get(found.lower()) in known else (
        get_close_matches(found[:100], known, n=1) or get_close_matches(found[:100].lower(), known, n=1))
    if near:
        return f'; did you mean "{near[0]}"?'
    return there_are(known)


def there_are(known: Sequence[str]) -> str:
    """The first 20 of the names that there are; "" if there is none."""
    more = ", ..." if len(known) > 20 else ""
    return f"; there are: {', '.join(known[:20])}{more}" if known else ""
