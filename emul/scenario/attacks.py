"""`attacks`: its models, their plain values, and back to YAML; names are checked where plug-ins are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator

from emul.base.names import MARK
from emul.base.plain import PlainDict, PlainMapping
from emul.registry.attacks import KINDS, KNOWS
from emul.scenario.sections import Fraction, Rounds, Section, given, one_of, rounds_text, without_none
from emul.scenario.wording import MISSING, Finding


@dataclass(frozen=True)
class NamedAttack:
    """An attack by its name, with its parameters as they are written."""

    name: str
    params: PlainMapping = field(default_factory=dict)


@dataclass(frozen=True)
class AttackSpec:
    """An attack of a `fraction` of the clients (drawn from the seed), or of `nodes`, names or a group (`@slow`), in
    rounds first .. last (None: for good).

    To their `data`, to the `prototypes` that they make, to the `update` that training gives, or to several of these.
    knows: own, colluders or all; None: the least that the attack on updates needs.
    """

    data: NamedAttack | None = None
    fraction: float | None = None
    nodes: tuple[str, ...] = ()
    prototypes: NamedAttack | None = None
    update: NamedAttack | None = None
    first: int = 1
    last: int | None = None
    knows: str | None = None

    def chosen(self) -> dict[str, NamedAttack]:
        """Kind -> attack, of those that are given."""
        return without_none(**{kind: getattr(self, kind) for kind in KINDS})


# --- models ---------------------------------------------------------------------------------------------------------

class AttackedShare(Section):
    # Above 0, at most 1.
    fraction: Fraction


def _attacked(value: object) -> Any:
    if isinstance(value, str) and value.startswith(MARK):
        return [value]
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return value
    if not isinstance(value, dict):
        raise ValueError('expected {fraction: 0.2}, a list of names, or a group such as "@slow"')
    return AttackedShare.model_validate(value)


def _chosen(value: object) -> NamedAttack:
    if isinstance(value, str) and value:
        return NamedAttack(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("expected the name of an attack or a mapping such as {name: scale, factor: 10}")
    return NamedAttack(value["name"], {key: below for key, below in value.items() if key != "name"})


AnyAttack = Annotated[NamedAttack, PlainValidator(_chosen, json_schema_input_type=str | PlainDict)]


class AttackRule(Section):
    # A list of names, `{fraction: 0.2}` of the clients, drawn by the seed, or a group, `"@slow"`.
    nodes: Annotated[Any, PlainValidator(_attacked, json_schema_input_type=AttackedShare | list[str] | str)]
    # The change of the node's training samples; test samples stay as they are.
    data: AnyAttack | None = None
    # The change of the prototypes that it makes.
    prototypes: AnyAttack | None = None
    # The change of the update that its training gives, before the scheme masks, codes or encrypts it.
    update: AnyAttack | None = None
    # `3..9`, `10..` (for good) or `4`; by default all.
    rounds: Rounds | None = None
    # For `update`: `own`, the attacker's own update; `colluders`, those of all attackers; `all`, everybody's. By
    # default the least that the attack needs.
    knows: Annotated[str, one_of(*KNOWS, what="knowledge")] | None = None

    def wrong(self) -> list[Finding]:
        """No kind of attack, or `knows` where no update is attacked."""
        if not given(self, *KINDS):
            return [((), MISSING, f"expected at least one of {', '.join(KINDS)}")]
        if self.knows is not None and self.update is None:
            return [(("knows",), self.knows, "is used by attacks on updates alone")]
        return []


# --- conversion -----------------------------------------------------------------------------------------------------

def attack_values(attacks: list[AttackRule], base: Path) -> list[AttackSpec]:
    """In the order of the file."""
    values = []
    for a in attacks:
        first, last = a.rounds or (1, None)
        whom: PlainDict = {"nodes": tuple(a.nodes)} if isinstance(a.nodes, list) else {"fraction": a.nodes.fraction}
        values.append(AttackSpec(**whom, data=a.data, prototypes=a.prototypes, update=a.update, first=first, last=last,
                                 knows=a.knows))
    return values


def attack_document(a: AttackSpec) -> dict[str, object]:
    """As a file says it."""
    named = {kind: {"name": c.name, **c.params} if c.params else c.name for kind, c in a.chosen().items()}
    always = a.first == 1 and a.last is None
    return {"nodes": list(a.nodes) or {"fraction": a.fraction}, **named,
            **without_none(rounds=None if always else rounds_text(a.first, a.last), knows=a.knows)}
