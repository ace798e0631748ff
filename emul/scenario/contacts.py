"""`contacts`: the plan of the times at which links transmit; its model, plain value, back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

from pydantic import PlainValidator

from emul.base.plain import PlainDict
from emul.network.models.contacts import GAPS, ContactSpec, Gap
from emul.scenario.sections import Section, absolute, duration_text, file_digest, without_none
from emul.scenario.values import PositiveDuration, Text


def _gap(value: object) -> str:
    if value not in GAPS:
        raise ValueError(f"expected one of {', '.join(GAPS)}")
    return str(value)


def _routes(value: object) -> str:
    if value != "fixed":
        raise ValueError("expected fixed" + ("; this version cannot choose routes by the time"
                                             if value == "earliest" else ""))
    return "fixed"


class ContactsRule(Section):
    file: Text | None = None
    step: PositiveDuration | None = None
    gap: Annotated[str, PlainValidator(_gap, json_schema_input_type=Gap)] = "hold"
    routes: Annotated[str, PlainValidator(_routes, json_schema_input_type=str)] = "fixed"
    sha256: Text | None = None


def contacts_value(rule: ContactsRule | None, base: Path) -> ContactSpec | None:
    """The plan as the network takes it; its file is looked for in `base`."""
    if rule is None:
        return None
    return ContactSpec(absolute(rule.file, base), cast(Gap, rule.gap), rule.sha256, step_ns=rule.step)


def contacts_document(spec: ContactSpec | None) -> PlainDict | None:
    """With the digest of the file; read again it is the same."""
    if spec is None:
        return None
    file = spec.file
    return without_none(file=None if file is None else str(file), step=duration_text(spec.step_ns), gap=spec.gap,
                        sha256=None if file is None else file_digest(file))
