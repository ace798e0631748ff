"""Names, of nodes above all: patterns that fit them, and a text that lists some of them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def is_pattern(name: str) -> bool:
    """True if it has a wildcard, one of `*`, `?` and `[`. (`@slow` has none: it is a name, of several nodes.)"""
    return any(c in name for c in "*?[")


def matches(name: str, pattern: str) -> bool:
    """True if it is that name, or a pattern (as of `fnmatch`, case counts) that fits it."""
    return name == pattern or fnmatchcase(name, pattern)


def listed(names: Sequence[str], most: int) -> str:
    """The names with commas; of more than `most` the first ones, and how many there are beyond.

    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
