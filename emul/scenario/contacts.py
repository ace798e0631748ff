"""`contacts`: the plan of the times at which links transmit; its model, plain value, back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

from pydantic import PlainValidator

from emul.base.plain import PlainDict
from emul.network.models.contacts import GAPS, PLAN_FORMATS, ROUTINGS, ContactSpec, Gap, PlanFormat, Routing
from emul.scenario.sections import Section, absolute, duration_text, file_digest, without_none
from emul.scenario.values import PositiveDuration, Text


def _gap(value: object) -> str:
    if value not in GAPS:
        raise ValueError(f"expected one of {', '.join(GAPS)}")
    return str(value)


def _routes(value: object) -> str:
    if value not in ROUTINGS:
        raise ValueError(f"expected one of {', '.join(ROUTINGS)}")
    return str(value)


def _format(value: object) -> str:
    if value not in PLAN_FORMATS:
        raise ValueError(f"expected one of {', '.join(PLAN_FORMATS)}")
    return str(value)


class ContactsRule(Section):
    file: Text | None = None
    format: Annotated[str, PlainValidator(_format, json_schema_input_type=PlanFormat)] = "csv"
    step: PositiveDuration | None = None
    gap: Annotated[str, PlainValidator(_gap, json_schema_input_type=Gap)] = "hold"
    routes: Annotated[str, PlainValidator(_routes, json_schema_input_type=Routing)] = "fixed"
    sha256: Text | None = None


def contacts_value(rule: ContactsRule | None, base: Path) -> ContactSpec | None:
    """The plan as the network takes it; its file is looked for in `base`."""
    if rule is None:
        return None
    return ContactSpec(absolute(rule.file, base), cast(Gap, rule.gap), rule.sha256, cast(Routing, rule.routes),
                       cast(PlanFormat, rule.format), step_ns=rule.step)


def contacts_document(spec: ContactSpec | None) -> PlainDict | None:
    """With the digest of the file; read again it is the same."""
    if spec is None:
        return None
    file = spec.file
    return without_none(file=None if file is None else str(file), format=None if spec.format == "csv" else spec.format,
                        step=duration_text(spec.step_ns), gap=spec.gap, routes=None if spec.routes == "fixed" else
                            spec.routes,
                        sha256=None if file is None else file_digest(file))
