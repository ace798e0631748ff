"""Names, of nodes above all: patterns that fit them, and texts that list some of them; many warnings in few lines."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from fnmatch import fnmatchcase

MARK = "@"                          # begins a pattern that names a group of nodes or a class of links
_EACH = 3                           # texts of one kind that are told one by one
_KINDS = 20                         # kinds that are told


def is_pattern(name: str) -> bool:
    """True if it has a wildcard, one of `*`, `?` and `[`. (`@slow` has none: it is a name, of several nodes.)"""
    return any(c in name for c in "*?[")


def matches(name: str, pattern: str, names: Container[str]) -> bool:
    """True if it is that name, or a pattern (as of `fnmatch`, case counts) that fits it. A pattern that is itself one
    of `names`, such as `R[1]` or `?`, is that name alone.

    >>> matches("R1", "R[1]", ["R1", "R2"]), matches("R1", "R[1]", ["R1", "R[1]"])
    (True, False)
    """
    return name == pattern or (pattern not in names and fnmatchcase(name, pattern))


def listed(names: Sequence[str], most: int) -> str:
    """The names with commas; of more than `most` the first ones, and how many there are beyond.

    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def kind_of(text: str) -> str:
    """The text without its numbers and what it quotes: warnings that differ in these alone are of one kind.

    >>> kind_of('links[3]: the rule "client7->*" matches no link') == kind_of('links[20]: the rule "a" matches no link')
    True
    """
    return re.sub(r'"[^"]*"|\d+', "#", text)


def by_kind(texts: Iterable[str]) -> list[str]:
    """Warnings without repetitions, in natural order (faults[9] before faults[10]). More than three of a kind are one
    line with their number, and so are kinds beyond the first 20: 100,000 warnings are still read.

    >>> by_kind(f"faults[{i}]: nothing happens" for i in (10, 9, 8, 0))
    ['faults[0]: nothing happens (and 3 more like this)']
    """
    kinds: dict[str, list[str]] = {}
    for text in sorted(set(texts), key=_natural):
        kinds.setdefault(kind_of(text), []).append(text)
    found: list[str] = []
    for alike in list(kinds.values())[:_KINDS]:
        found += alike if len(alike) <= _EACH else [f"{alike[0]} (and {len(alike) - 1:,} more like this)"]
    left = sum(map(len, list(kinds.values())[_KINDS:]))
    found.sort(key=_natural)
    return found + ([f"{left:,} more warnings, of {len(kinds) - _KINDS:,} other kinds"] if left else [])


def _natural(text: str) -> list[tuple[str, int]]:
    return [(part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(re.split(r"(\d+)", text))]
