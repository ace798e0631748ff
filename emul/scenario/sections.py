"""The common base of the models of all parts of a scenario file, and how checked values are written back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator

from emul.base.plain import PlainDict
from emul.base.units import format_duration
from emul.network.models.traces import digest
from emul.scenario.values import findings
from emul.scenario.wording import MISSING, Finding

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
