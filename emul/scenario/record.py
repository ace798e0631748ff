"""`record`: what a run keeps beside its record, for attacks and evaluations; model, plain value, back to YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator

from emul.base.units import format_size
from emul.scenario.sections import Section, given, without_none
from emul.scenario.values import Count, PositiveSize, Rounds, rounds_text
from emul.scenario.wording import Finding

LIMIT_BYTES = 10**9                 # of payloads of one run


@dataclass(frozen=True)
class Recorded:
    """models: the parameters that nodes report, every so many rounds; None: the last ones alone.

    payloads: types of messages that are kept as they were sent, in rounds first .. last (None: to the end), at most
    `limit_bytes` of them, of which every node has an equal share.
    """

    models: int | None = None
    payloads: tuple[str, ...] = ()
    first: int = 1
    last: int | None = None
    limit_bytes: int = LIMIT_BYTES


def _types(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError("expected a list of types of messages such as [Model, Update]")
    return list(dict.fromkeys(value))


class RecordRule(Section):
    models: Count | None = None
    payloads: Annotated[list[str], PlainValidator(_types, json_schema_input_type=list[str] | str)] | None = None
    rounds: Rounds | None = None
    limit: PositiveSize | None = None

    def wrong(self) -> list[Finding]:
        """The mistakes in keys on payloads where none are kept."""
        if self.payloads is not None:
            return []
        return [((key,), "", "is used only with payloads") for key in given(self, "rounds", "limit")]


def record_value(rule: RecordRule) -> Recorded:
    first, last = rule.rounds or (1, None)
    return Recorded(rule.models, tuple(rule.payloads or ()), first, last, rule.limit or LIMIT_BYTES)


def record_document(recorded: Recorded) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if recorded == Recorded():
        return None
    always = recorded.first == 1 and recorded.last is None
    return without_none(
        models=recorded.models, payloads=list(recorded.payloads) or None,
        rounds=None if always else rounds_text(recorded.first, recorded.last),
        limit=None if recorded.limit_bytes == LIMIT_BYTES else format_size(recorded.limit_bytes))
