"""The requests of a server app to the role that hosts it: everything that takes virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from emul.schemes.flower.guest import Request


@dataclass
class Replies(Request):
    """Wait until these messages are answered, or until a time. Other messages that come meanwhile are handed over, too.

    asked: name of the message -> the node that it was sent to.
    """

    asked: dict[str, int]
    until_ns: int


@dataclass
class AnyReply(Request):
    """Wait for an answer of any node, until a time."""

    until_ns: int


@dataclass
class WhoIsThere(Request):
    """Ask all nodes whether they are there; the answer: those that say so in time."""


@dataclass
class Sleep(Request):
    """Do nothing."""

    seconds: float


@dataclass
class BeginRound(Request):
    """The begin of another round, to which the next messages belong. model, metrics, counts: of the one that ends.

    failure: why it has failed; "": it has not.
    """

    model: np.ndarray | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failure: str = ""
