"""The parts of all sections of a scenario file: the kinds of values, the base of the models, and back to YAML.

A kind of value is an annotated type for pydantic that says itself what it expects.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from emul.base import units
from emul.base.plain import PlainDict
from emul.base.units import format_duration
from emul.network.models.traces import digest
from emul.scenario.wording import MISSING, Finding, nearest

# ---- kinds of values ----

# a quantity in the JSON schema: a number with a unit, whichever units there are, or 0
QUANTITY = (r"^\s*[+-]?(\d+(\.\d+)?|\.\d+)([eE][+-]?\d+)?\s*[A-Za-z\u00b5\u03bc]+( ?/ ?[A-Za-z\u00b5\u03bc]+)?\s*$"
            r"|^\s*[+-]?0+(\.0+)?\s*$")
Quantity = Annotated[str, Field(pattern=QUANTITY)] | Literal[0]
Written = str | int                                 # a quantity in a file: text with a unit, or 0


def findings(found: list[Finding]) -> PydanticCustomError:
    """Problems of a model as a whole, each with its own place: pydantic would put them all at the model."""
    return PydanticCustomError("findings", "problems", {"findings": found})


def whole(least: int, most: int = units.LARGEST) -> PlainValidator:
    """A whole number in least .. most."""
    limits = f", {least} or more (below 2^63)" if most == units.LARGEST else f" in {least}..{most}"
    written = Annotated[int, Field(ge=least, le=None if most == units.LARGEST else most)]

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"expected a whole number{limits}")
        return value
    return PlainValidator(check, json_schema_input_type=written)


def number(expected: str, accept: Callable[[float], bool]) -> PlainValidator:
    """A finite number that `accept`s."""
    def check(value: Any) -> float:
        sound = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
        if not sound or math.isnan(value) or not accept(value):
            raise ValueError(f"expected {expected}")
        return value
    return PlainValidator(check, json_schema_input_type=float)


def one_of(*words: str, what: str = "value") -> PlainValidator:
    """One of a few words."""
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"expected one of {', '.join(words)}")
        if value not in words:
            raise ValueError(f"unknown {what}{nearest(value, words)}" if len(words) > 1 else f'expected "{words[0]}"')
        return value
    return PlainValidator(check, json_schema_input_type=Literal[words])


LEAST_STAY_NS = 1000        # of what happens again and again: a shorter one takes a run without end


def stay_ns(value: object) -> int:
    """A duration, or the mean of durations, of which a run goes through one after the other."""
    found = units.duration_ns(value)
    if found < LEAST_STAY_NS:
        raise ValueError("expected more than 0" if found == 0 else
                         f"expected {units.format_duration(LEAST_STAY_NS)} or more: a run goes through all of them")
    return found


def unit(parse: Callable[[object], int], least: int = 0) -> PlainValidator:
    """A quantity with its unit; `least` = 1 where 0 makes no sense."""
    def check(value: object) -> int:
        result = parse(value)
        if result < least:
            raise ValueError("expected more than 0")
        return result
    return PlainValidator(check, json_schema_input_type=Quantity)


def rounds_text(first: int, last: int | None) -> str:
    """As a file says it; last None: for good."""
    return f"{first}..{'' if last is None else last}"


def rounds_list(value: object) -> tuple[tuple[int, int | None], ...]:
    """Rounds, or a list of such, ascending and apart."""
    found = tuple(_rounds(one) for one in (value if isinstance(value, list) and value else [value]))
    if any(last is None or last >= first for (_, last), (first, _) in pairwise(found)):
        raise ValueError("expected rounds in ascending order that do not overlap, such as [1..5, 10..20]")
    return found


def _rounds(value: object) -> tuple[int, int | None]:
    match = re.fullmatch(r"(\d{0,9})(?:(\.\.)(\d{0,9}))?", str(value), re.ASCII)
    if match is not None and not isinstance(value, bool) and (match[1] or match[3]):
        first = int(match[1] or 1)
        last = int(match[3]) if match[3] else None if match[2] else first
        if first >= 1 and (last is None or first <= last):
            return first, last
    raise ValueError("expected rounds such as 3..9 or 10..")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 4096 or not value.isprintable():
        quoted = isinstance(value, int | float) and not isinstance(value, bool)
        raise ValueError(f'expected text: in quotes, "{value}"' if quoted else "expected text")
    return value


def _name(value: object) -> str:
    """Text, or a whole number: in many files vertices have numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def bandwidth(value: object) -> int | str:
    """bit/s above 0, or "infinite"."""
    if value == "infinite":
        return value
    if value == 0 or (result := units.bandwidth_bps(value)) == 0:
        raise ValueError("expected a bandwidth above 0; a link that is down is a fault, one without limit is infinite")
    return result


Text = Annotated[str, PlainValidator(_text, json_schema_input_type=str)]
Name = Annotated[str, PlainValidator(_name, json_schema_input_type=str | int)]
Flag = Annotated[bool, PlainValidator(_flag, json_schema_input_type=bool)]
Seed = Annotated[int, whole(0)]
Count = Annotated[int, whole(1)]
Positive = Annotated[float, number("a positive number", lambda x: x > 0)]
Fraction = Annotated[float, number("a fraction in (0, 1]", lambda x: 0 < x <= 1)]
Probability = Annotated[float, PlainValidator(units.probability, json_schema_input_type=float | str)]
Duration = Annotated[int, unit(units.duration_ns)]
PositiveDuration = Annotated[int, unit(units.duration_ns, least=1)]
Stay = Annotated[int, unit(stay_ns)]
Size = Annotated[int, unit(units.size_bytes)]
PositiveSize = Annotated[int, unit(units.size_bytes, least=1)]
# first, last; None: for good
RoundsList = Annotated[tuple[tuple[int, int | None], ...], PlainValidator(
    rounds_list, json_schema_input_type=Written | list[Written])]
Rounds = Annotated[tuple[int, int | None], PlainValidator(_rounds, json_schema_input_type=Written)]
Bandwidth = Annotated[int | str, PlainValidator(bandwidth, json_schema_input_type=Quantity | Literal["infinite"])]


# ---- classes by weight, of which each node draws one ----

Weights = Mapping[str, float]


_LARGEST_WEIGHT = 1e300                     # their sum is a number


def _weights(value: Any) -> dict[str, float]:
    """Of devices or of classes of links."""
    if isinstance(value, str) and value:
        return {value: 1.0}
    sound = isinstance(value, dict) and value and all(
        isinstance(name, str) and isinstance(weight, (int, float)) and not isinstance(weight, bool)
        and 0 <= weight <= _LARGEST_WEIGHT for name, weight in value.items())
    if not sound or not sum(value.values()) > 0:
        raise ValueError("expected the name of a class, or several by weight, {phone_high: 0.2, phone_low: 0.8}")
    return {name: float(weight) for name, weight in value.items()}


def plain_weights(weights: Weights | None) -> dict[str, float] | None:
    """As a scenario file says them."""
    return None if weights is None else dict(weights)


AnyWeights = Annotated[dict[str, float], PlainValidator(_weights, json_schema_input_type=str | dict[str, float])]


# ---- the base of the models ----

SoundParts: TypeAlias = Mapping[str, Any]       # field of Scenario -> its value, of sections that are sound


class Section(BaseModel):
    """Base: unknown keys are refused, nothing changes after the check."""

    # built when first used: most models are only parts of `Document`, which builds them anyway
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def wrong(self) -> list[Finding]:
        """The mistakes that no field can see alone; called once the fields are sound."""
        return []

    @model_validator(mode="after")
    def _whole(self) -> Section:
        found = self.wrong()
        if found:
            raise findings(found)
        return self


def given(model: Section, *names: str) -> list[str]:
    """Those of the fields that are not None, in this order."""
    return [name for name in names if getattr(model, name) is not None]


def exactly_one(model: Section, *names: str) -> list[Finding]:
    """Exactly one of `names` is to be given."""
    found = given(model, *names)
    return [] if len(found) == 1 else [((), ", ".join(found) or MISSING, f"expected one of {', '.join(names)}")]


def absolute(file: str | None, base: Path) -> Path | None:
    """A file as a scenario in the directory `base` names it."""
    # normpath and not resolve: a link to a data set stays the link that the user named
    return None if file is None else Path(os.path.normpath(base / file))


# ---- back to YAML ----

def without_none(**values: object) -> PlainDict:
    return {key: value for key, value in values.items() if value is not None}


def duration_text(ns: int | None) -> str | None:
    """As `format_duration`; None for None."""
    return None if ns is None else format_duration(ns)


def file_digest(file: Path) -> str | None:
    """SHA-256 of a file's contents; None where it cannot be read, which is told where it is used."""
    try:
        return digest(file)
    except OSError:
        return None
