"""Quantities as people write them ("20 ms", "20 Mbit/s", "1 MiB") as the exact integers that the emulator uses.

The one place where units are parsed. A bare number is refused (but 0): a latency of "20" is the most repeated mistake
with such tools. Pint knows the units; the arithmetic is in fractions, so nothing is rounded on the way.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pint

LARGEST = 2**63 - 1     # the largest value of a 64-bit column of a table
END_OF_TIME = 2**62     # ns, 146 years: no run goes on for longer, and the sum of two such times fits a column

_QUANTITY = re.compile(r"([+-]?)(\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2}))?\s*(.*)",
                       re.ASCII | re.DOTALL)
_UNIT = re.compile(r"[A-Za-z\u00b5\u03bc]{1,20}(?: ?/ ?[A-Za-z\u00b5\u03bc]{1,20})?")

_DURATION = "a duration such as 20 ms or 1 h"
_BANDWIDTH = "a bandwidth such as 20 Mbit/s or 2 MB/s"
_SIZE = "a size such as 1 MB or 64 KiB"
_PROBABILITY = "a probability in [0, 1]"


# Those that nearly every scenario has; a test compares them with Pint's, which takes 0.3 s to load.
_TIME, _RATE, _BITS = (("second", 1),), (("bit", 1), ("second", -1)), (("bit", 1),)
_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_USUAL: dict[str, tuple[Fraction, tuple[tuple[str, int], ...]]] = {
    "s": (Fraction(1), _TIME), "ms": (Fraction(1, 10**3), _TIME), "us": (Fraction(1, 10**6), _TIME),
    "ns": (Fraction(1, 10**9), _TIME), "min": (Fraction(60), _TIME), "h": (Fraction(3600), _TIME),
    "µs": (Fraction(1, 10**6), _TIME), "sec": (Fraction(1), _TIME), "seconds": (Fraction(1), _TIME),
    **{f"{prefix}{unit}{per}": (Fraction(factor * bits), root) for prefix, factor in _SI.items()
       for unit, bits in (("bit", 1), ("B", 8)) for per, root in (("", _BITS), ("/s", _RATE))},
    **{f"{prefix}i{unit}{per}": (Fraction(bits << shift), root) for prefix, shift in (("K", 10), ("M", 20), ("G", 30))
       for unit, bits in (("bit", 1), ("B", 8)) for per, root in (("", _BITS), ("/s", _RATE))}}


@cache
def _registry() -> pint.UnitRegistry:
    import pint  # here: paid only by who writes an unusual unit, or a wrong one

    return pint.UnitRegistry(non_int_type=Fraction)


@cache
def _factor(unit: str) -> tuple[Fraction, tuple[tuple[str, int], ...]] | None:
    """`unit` as a factor of root units, e.g. "MB/s" -> (8000000, (("bit", 1), ("second", -1))); None if unknown.

    Compared by root units, not by dimension: a bit has no dimension, so that MHz would pass for a bandwidth.
    """
    if unit in _USUAL:
        return _USUAL[unit]
    try:
        root: Any = _registry().Quantity(Fraction(1), _registry().parse_units(unit)).to_root_units()
        return Fraction(root.magnitude), tuple(sorted((name, int(power)) for name, power in root.unit_items()))
    except Exception:   # pint raises its own, AttributeError, tokenize errors and more for what is no unit
        return None


def _exact(value: object, wanted: tuple[tuple[str, int], ...], scale: Fraction, expected: str, whole: str,
           bits: int = 63, rounded: bool = False) -> int:
    """The integer number of base units in `value`, below 2^bits; `scale` = base units in one root unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value == 0:
            return 0
        finite = math.isfinite(value) and value > 0
        raise ValueError(f"expected {expected}" + (": the unit is missing" if finite else ""))
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}")
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"expected {expected}")
    sign, digits, exponent, unit = match.groups()
    number = Fraction(digits) * Fraction(10) ** int(exponent or 0)
    if not unit:
        if number == 0:
            return 0
        raise ValueError(f"expected {expected}: the unit is missing")
    factor = _factor_of(unit, wanted)
    if factor is None:
        raise ValueError(f'expected {expected}; "{unit[:20]}" is no such unit{_hint(unit, wanted)}')
    if sign == "-" and number:
        raise ValueError(f"expected {expected}, not negative")
    result = number * factor * scale
    if rounded:
        result = Fraction(round(result))
    if result.denominator != 1:
        raise ValueError(f"expected {expected}, in whole {whole}")
    if result >= 1 << bits:
        raise ValueError(f"expected {expected}, below 2^{bits} {whole}" + " (146 years)" * (bits == 62))
    return int(result)


def _factor_of(unit: str, wanted: tuple[tuple[str, int], ...], usual: bool = False) -> Fraction | None:
    """Root units in one `unit`, None where it is no unit of what is wanted. usual: Pint is not asked."""
    unit = unit.strip().replace(" ", "")
    if wanted == _RATE:
        unit = _rate_as_written_by_tools(unit)
    found = _USUAL.get(unit) if usual else _factor(unit) if _UNIT.fullmatch(unit) else None
    return found[0] if found is not None and found[1] == wanted else None


def _rate_as_written_by_tools(unit: str) -> str:
    """A unit of rates as tools write it, in ours: Mbps, mbps, Mbits/sec and Mbit are Mbit/s, MBps and Mbytes/s MB/s.

    b for bits stands only before "ps": Mb/s is refused, since many write it for bytes. K is k of bits, which nobody
    counts in 1024, and refused of bytes, which some do.
    """
    if match := re.fullmatch(r"([kmgtKMGT]?)(i?)(?:bps|[Bb]its?(?:/s|/sec|/second|ps)?)", unit):
        prefix, binary = match.groups()
        return ("K" if prefix in "kK" and binary else prefix.upper().replace("K", "k")) + binary + "bit/s"
    if match := re.fullmatch(r"([kMGT]?|[KMGT]i)(?:Bps|[Bb]ytes?(?:/s|/sec|/second|ps)|B/sec)", unit):
        return f"{match[1]}B/s"
    return unit


def _hint(unit: str, wanted: tuple[tuple[str, int], ...]) -> str:
    """The unit that the writer of a wrong one probably meant: of some usual slips, those that fit."""
    meant: list[str] = ["ms", "min"] if unit == "m" else []
    if match := re.fullmatch(r"([kmgt]?)(i?)(b|bits?|bytes?)(ps|/s|/sec)?", unit.replace(" ", ""), re.IGNORECASE):
        prefix, binary, what, per = (part or "" for part in match.groups())
        prefix = prefix.lower() if prefix in "kK" and not binary else prefix.upper()
        both = ["bit", "B"] if what in "bB" and (what == "b" or (per and per.lower() == "ps" and per != "ps")) else [
            "bit" if what.lower().startswith("bit") else "B"]
        meant = [f"{prefix}{binary}{one}{'/s' if per else ''}" for one in both]
        if prefix == "k" and "B" in both:
            meant.append(f"KiB{'/s' if per else ''}")
    meant = [one for one in meant if one != unit and _factor_of(one, wanted) is not None]
    return "; did you mean " + " or ".join(meant) + "?" if meant else ""


def duration_unit(unit: str, usual: bool = False) -> Fraction | None:
    """Nanoseconds in one `unit`; None where it is no unit of time. usual: only of those that need no Pint.

    >>> duration_unit("ms"), duration_unit("m")
    (Fraction(1000000, 1), None)
    """
    found = _factor_of(unit, _TIME, usual)
    return None if found is None else found * 10**9


def bandwidth_unit(unit: str, usual: bool = False) -> Fraction | None:
    """Bits per second in one `unit`; None where it is no unit of rates. usual: only of those that need no Pint.

    >>> bandwidth_unit("MBps"), bandwidth_unit("mbps")
    (Fraction(8000000, 1), Fraction(1000000, 1))
    """
    return _factor_of(unit, _RATE, usual)


def duration_ns(value: object, rounded: bool = False) -> int:
    """Nanoseconds in a duration. Raises ValueError (what is expected) for anything else, bare numbers but 0 included,
    and for what is no shorter than a run can be (END_OF_TIME). rounded: a part of one, as measured values have, is no
    mistake.

    >>> duration_ns("20 ms"), duration_ns("1.5 h"), duration_ns(0)
    (20000000, 5400000000000, 0)
    """
    return _exact(value, _TIME, Fraction(10**9), _DURATION, "nanoseconds", 62, rounded)


def bandwidth_bps(value: object, rounded: bool = False) -> int:
    """Bits per second in a bandwidth; rounded: as in `duration_ns`. Raises ValueError.

    >>> bandwidth_bps("20 Mbit/s"), bandwidth_bps("2 MB/s")
    (20000000, 16000000)
    """
    return _exact(value, _RATE, Fraction(1), _BANDWIDTH, "bit/s", rounded=rounded)


def size_bytes(value: object) -> int:
    """Bytes in a size; SI prefixes are powers of 1000, Ki, Mi, Gi of 1024. Raises ValueError.

    >>> size_bytes("1 GB"), size_bytes("1 MiB")
    (1000000000, 1048576)
    """
    return _exact(value, _BITS, Fraction(1, 8), _SIZE, "bytes")


def probability(value: object) -> float:
    """A number in [0, 1], or a percentage "30%". Raises ValueError.

    >>> probability(0.3), probability("30%")
    (0.3, 0.3)
    """
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,30})?) ?%", value.strip(), re.ASCII)
        number = float(Fraction(match[1]) / 100) if match else math.nan
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = value
    else:
        number = math.nan
    if not 0 <= number <= 1:    # NaN fails here too
        raise ValueError(f"expected {_PROBABILITY}")
    return float(number)


def _decimal(number: int, unit: int) -> str:
    """number / unit exactly, as a decimal fraction; `unit` is a power of ten."""
    whole, rest = divmod(number, unit)
    tail = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{tail}" if tail else str(whole)


def _formatted(number: int, units: tuple[tuple[int, str], ...]) -> str:
    """`number` in the largest of `units` (value, name; descending) that does not exceed it."""
    value, name = next(((v, n) for v, n in units if number >= v), units[-1])
    return f"{_decimal(number, value)} {name}"


def format_duration(ns: int) -> str:
    """A duration that `duration_ns` reads back exactly; hours and minutes only where they are whole.

    >>> format_duration(20_000_000), format_duration(90_000_000_000), format_duration(7_200_000_000_000)
    ('20 ms', '90 s', '2 h')
    """
    for unit, name in ((3_600_000_000_000, "h"), (60_000_000_000, "min")):
        if ns and ns % unit == 0:
            return f"{ns // unit} {name}"
    return _formatted(ns, ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")))


def format_size(size: int) -> str:
    """A size that `size_bytes` reads back exactly.

    >>> format_size(1_500_000), format_size(65536), format_size(17)
    ('1.5 MB', '64 KiB', '17 B')
    """
    if size % 1000:
        for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if size and size % unit == 0:
                return f"{size // unit} {name}"
    return _formatted(size, ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B")))


def format_bandwidth(bps: int) -> str:
    """A bandwidth that `bandwidth_bps` reads back exactly.

    >>> format_bandwidth(20_000_000), format_bandwidth(1)
    ('20 Mbit/s', '1 bit/s')
    """
    return _formatted(bps, ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s")))
