"""`network`: whether a run is made on a record of a network, and leaves one; its model, plain value, back to YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator

from emul.network.linkrecord import BEYOND
from emul.scenario.sections import Section, absolute, without_none
from emul.scenario.values import Text, one_of
from emul.scenario.wording import Finding


@dataclass(frozen=True)
class NetworkUse:
    """replay: a run directory or a table whose draws links take; `beyond`: what they do where it has none.

    record: whether the run's own draws are written into its directory.
    """

    replay: Path | None = None
    beyond: str = "stream"
    record: bool = True


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


class NetworkRule(Section):
    replay: Text | None = None
    beyond: Annotated[str, one_of(*BEYOND, what="mode")] | None = None
    record: Annotated[bool, PlainValidator(_flag, json_schema_input_type=bool)] = True

    def wrong(self) -> list[Finding]:
        """`beyond` without a record to replay."""
        if self.beyond is not None and self.replay is None:
            return [(("beyond",), "", "is used only with replay")]
        return []


def network_value(rule: NetworkRule, base: Path) -> NetworkUse:
    """The rule as the network takes it; a run directory is looked for in `base`, and `beyond` is "stream" by
    default."""
    return NetworkUse(absolute(rule.replay, base), rule.beyond or "stream", rule.record)


def network_document(use: NetworkUse) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if use == NetworkUse():
        return None
    replay = None if use.replay is None else str(use.replay)
    return without_none(replay=replay, beyond=use.beyond if replay else None, record=None if use.record else False)
