"""Plain values: None, truth values, numbers and texts, and lists and mappings of them, as JSON and YAML hold them.

A scenario's file, the header of a journal, a summary and a parameter's value are made of them. The type of a value
depends on its key, which only the code that reads this key knows. That is why `Any` stands here, once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

PlainDict: TypeAlias = dict[str, Any]           # plain values by their names
PlainMapping: TypeAlias = Mapping[str, Any]     # the same for code that only reads them


# Python's True and False are numbers, too, and YAML's `yes` is True: where a number is expected they are a mistake.

def is_number(value: object) -> TypeGuard[float]:
    """True if it is a number, and no truth value. NaN and infinity are numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: object, least: int = 1) -> TypeGuard[int]:
    """True if it is a whole number, `least` or more, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
