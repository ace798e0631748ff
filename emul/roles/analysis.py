"""What a scheme's `analysis(params, setting)` is given, and what it gives: theory beside what a run has measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emul.base.errors import EmulError

# name -> a value of theory (numbers, text, lists and dictionaries of them), or (value, name of what was measured):
# a reported value (its mean over the rounds), "failed" (share of the rounds entered), "rounds" (completed),
# "messages.<Type>" (copies sent per round entered)
Analysis = dict[str, Any]


class NoAnalysis(EmulError):
    """The theory does not cover this run; the text says why."""


@dataclass(frozen=True)
class Setting:
    """Facts of a run as plain values. Nodes go by their names."""

    roles: Mapping[str, tuple[str, ...]]            # role -> nodes, in the order of their numbers
    outage: Callable[[str, str], float]             # (source, target) -> probability that a message is lost; NoAnalysis
    seed: int
    rounds: int                                     # that a deciding node entered
    steps: int | None = None                        # I, of a local update, where the solver counts steps
