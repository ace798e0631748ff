"""`limits`: how much of what a peer sends is taken; its model, plain value, back to YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from emul.base.units import format_size
from emul.kernel.parts import MAX_MESSAGE, MAX_UNREAD
from emul.scenario.sections import Section
from emul.scenario.values import PositiveSize, whole


@dataclass(frozen=True)
class Limits:
    """max_message: bytes of a message with its envelope. max_unread: messages of one sender in one node's inbox.

    A message beyond a limit is rejected on arrival, as any message that does not fit its type.
    """

    max_message: int = MAX_MESSAGE
    max_unread: int = MAX_UNREAD


class LimitsRule(Section):
    max_message: PositiveSize = Limits.max_message
    max_unread: Annotated[int, whole(1, 10**9)] = Limits.max_unread


def limits_document(limits: Limits) -> dict[str, object] | None:
    """None where it says nothing that is not the default."""
    if limits == Limits():
        return None
    return {"max_message": format_size(limits.max_message), "max_unread": limits.max_unread}
