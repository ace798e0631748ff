"""What a server app asks of the role that hosts it: whatever takes virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from emul.flower.guest import Request


@dataclass
class Replies(Request):
    """Wait for one answer of each of these nodes, until a time."""

    nodes: list[int]
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
class NextRound(Request):
    """What is sent from now on belongs to another round. model, metrics, counts: of the one that ends."""

    model: np.ndarray | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
