"""The choice of the clients of a round: rules as a scenario names them, `selection: uniform`, `selection: {oort:
{count: 10}}`.

A rule is a frozen dataclass of parameters and a state that chooses and learns (`rule.Rule`). Their use of the network,
such as asking candidates, is in `emul.protocols.selection`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

from emul.base.units import duration_ns
from emul.primitives.selection.choice import ChoiceRule, PowerOfChoice
from emul.primitives.selection.contact import FirstContact, FirstContactRule
from emul.primitives.selection.fedcs import FedCS, FedCSRule
from emul.primitives.selection.oort import Oort, OortRule
from emul.primitives.selection.rule import Asks, Common, Heard, SelectionRule, Tells
from emul.primitives.selection.tifl import Tifl, TiflRule
from emul.primitives.selection.uniform import Available, AvailableRule, UniformRule, UniformSelection
from emul.primitives.written import WrittenChoice
from emul.primitives.written import choose as written_choice

__all__ = ["KINDS", "RULES", "Asks", "Common", "Heard", "SelectionRule", "Tells", "begun", "choose"]

RULES: Mapping[str, tuple[type[Common], Callable[[Any], SelectionRule]]] = types.MappingProxyType({
    "uniform": (UniformSelection, UniformRule), "available": (Available, AvailableRule), "oort": (Oort, OortRule),
    "tifl": (Tifl, TiflRule), "power_of_choice": (PowerOfChoice, ChoiceRule),
    "contact": (FirstContact, FirstContactRule), "fedcs": (FedCS, FedCSRule)})
KINDS: Mapping[str, type[Common]] = types.MappingProxyType({name: kind for name, (kind, _) in RULES.items()})


def choose(written: WrittenChoice) -> Common:
    """The parameters of the rule that a scenario writes. Raises ValueError with everything that is wrong with it.

    >>> choose({"uniform": {"count": 10, "over": 1.3}})
    UniformSelection(count=10, over=1.3, least=1)
    """
    p: Common = written_choice(_in_seconds(written), KINDS, "selection")[1]
    return p


def begun(p: Common) -> SelectionRule:
    """The rule at the beginning of a run."""
    return dict(RULES.values())[type(p)](p)


def _in_seconds(written: object) -> Any:
    """With `window: 1 s` as window_s = 1.0, where a rule has such a time."""
    if not isinstance(written, Mapping) or len(written) != 1:
        return written
    (name, values), = written.items()
    if name not in KINDS or not isinstance(values, Mapping):
        return written
    fields = {field.name for field in dataclasses.fields(KINDS[name])}
    found = {}
    for key, value in values.items():
        if f"{key}_s" not in fields:
            found[key] = value
            continue
        try:
            found[f"{key}_s"] = duration_ns(value) / 1e9
        except ValueError as error:
            raise ValueError(f"{name}: {key} = {value!r}: {error}") from None
    return {name: found}
