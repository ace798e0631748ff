"""`training: skip`: every message is encoded and carried, only the arithmetic of training and evaluation is left out.

A run without training is the run with it, message by message and to the nanosecond, unless something in it is decided
by what was learned. What does so is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from emul.primitives.compress import choose as codec_of
from emul.primitives.selection import choose as rule_of
from emul.scenario.labels import COMPRESS
from emul.scenario.values import Finding

SKIP = "skip"
_MEAN = "mean"


def cannot_skip(parts: dict[str, Any]) -> Iterator[Finding]:
    """What of the scenario, besides its schemes, needs training."""
    compute, stop = parts.get("compute"), parts.get("stop")
    if compute is not None and compute.mode == "measured":
        yield ("compute", "mode"), "measured", "nothing to measure: expected profile, recorded, zero or a trace"
    if stop is not None and stop.accuracy is not None:
        yield ("stop", "accuracy"), str(stop.accuracy), "nothing is evaluated: expected rounds or virtual_time alone"
    if parts.get("attacks"):
        yield ("attacks",), "", "change what is learned, and nothing is: expected none"


def needs_training(name: str, module: ModuleType, params: Any, entry: dict[str, Any]) -> Iterator[Finding]:
    """What of a scheme's entry, sound as it is, decides by what was learned."""
    if not getattr(module, "OBLIVIOUS", False):
        yield ("name",), name, "decides by updates, losses or gradients (or does not say that it does not: OBLIVIOUS)"
    rule = getattr(params, "aggregate", _MEAN)
    if rule != _MEAN:
        yield ("aggregate",), _named(rule), "judges updates by their values: expected mean"
    selection = getattr(params, "selection", None)
    if selection is not None and (rule_of(selection).tells or rule_of(selection).asks == "loss"):
        yield ("selection",), _named(selection), "chooses by losses or accuracies that clients tell"
    for way, codec in entry.get(COMPRESS, {}).items():
        if codec_of(codec).nbytes(_MANY) is None:
            yield (COMPRESS, way), _named(codec), "makes codes whose length depends on the values"


_MANY = 1000                            # coordinates: whether a code's length is known does not depend on how many


def _named(written: Any) -> str:
    return written if isinstance(written, str) else str(next(iter(written)))
