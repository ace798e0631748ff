"""`training: skip`: every message is encoded and carried, only the arithmetic of training and evaluation is left out.

A run without training is the run with it, message by message and to the nanosecond, unless something in it is decided
by what was learned. A scenario with such a part is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from emul.base.plain import PlainMapping
from emul.primitives.compress import choose as codec_of
from emul.primitives.written import WrittenChoice
from emul.roles.scheme import AnyScheme
from emul.scenario.labels import COMPRESS
from emul.scenario.sections import SoundParts
from emul.scenario.wording import Finding

SKIP = "skip"


def cannot_skip(parts: SoundParts) -> Iterator[Finding]:
    """The parts of the scenario, besides its schemes, that need training."""
    compute, stop = parts.get("compute"), parts.get("stop")
    if compute is not None and compute.mode == "measured":
        yield ("compute", "mode"), "measured", "nothing to measure: expected profile, recorded, zero or a trace"
    for key in ("accuracy", "loss") if stop is not None else ():
        if (target := getattr(stop, key)) is not None:
            yield ("stop", key), str(target), "nothing is evaluated: expected rounds or virtual_time alone"
    if parts.get("attacks"):
        yield ("attacks",), "", "change what is learned, and nothing is: expected none"


def needs_training(scheme: AnyScheme, params: object, entry: PlainMapping) -> Iterator[Finding]:
    """The parts of a scheme's sound entry that decide by what was learned."""
    said = scheme.oblivious(params) if callable(scheme.oblivious) else []
    if not scheme.oblivious:
        yield (("name",), scheme.name,
               "decides by updates, losses or gradients (or does not say that it does not: oblivious)")
    for text in said:
        head, _, reason = text.partition(": ")
        key, _, value = head.partition(" = ")
        yield (key,), value, reason
    for way, codec in entry.get(COMPRESS, {}).items():
        if codec_of(codec).nbytes(_MANY) is None:
            yield (COMPRESS, way), _named(codec), "makes codes whose length depends on the values"


_MANY = 1000                            # coordinates: whether a code's length is known does not depend on how many


def _named(written: WrittenChoice) -> str:
    return written if isinstance(written, str) else str(next(iter(written)))
