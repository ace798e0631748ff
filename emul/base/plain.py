"""Plain values: None, truth values, numbers and texts, and lists and mappings of them, as JSON and YAML hold them.

A scenario's file, the header of a journal, a summary and a parameter's value are made of them. The type of a value
depends on its key, which only the code that reads this key knows. That is why `Any` stands here, once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

PlainDict: TypeAlias = dict[str, Any]           # plain values by their names
PlainMapping: TypeAlias = Mapping[str, Any]     # the same for code that only reads them
