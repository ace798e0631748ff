"""Arguments and result of a scheme's `analysis(params, setting, run)`: theory beside measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emul.base.errors import EmulError
from emul.base.plain import PlainDict

# name -> a value of theory (numbers, text, lists and dictionaries of them), or (value, what it came to): a number that
# follows from what really happened, or the name of something measured: a reported value (its mean over the rounds),
# "failed" (share of the rounds entered), "rounds" (completed), "messages.<Type>" (copies sent per round entered)
Analysis = PlainDict
Passage = tuple[int, str, str]      # (round of the sender, source, target) of a copy


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


def _none_sent(kind: str) -> frozenset[Passage]:
    return frozenset()


def _none_reported(name: str) -> dict[tuple[int, str], object]:
    return {}


@dataclass(frozen=True)
class Realised:
    """The course of a run, by which privacy is accounted. Nodes go by their names; no field: nothing happened.

    sent, arrived, late: type of message -> (round, source, target) of the copies that were sent; of those that came to
    the inbox of their target in time; and of those that came too late: the round was over for the target before it read
    them, or it had ended. reported: name -> {(round, node): value}, of any node, such as the noise that a client has
    drawn: `node.report` tells it off the clock.
    """

    rounds: tuple[int, ...] = ()                    # that a deciding node entered, ascending
    completed: tuple[int, ...] = ()
    sent: Callable[[str], frozenset[Passage]] = _none_sent
    arrived: Callable[[str], frozenset[Passage]] = _none_sent
    late: Callable[[str], frozenset[Passage]] = _none_sent
    reported: Callable[[str], Mapping[tuple[int, str], Any]] = _none_reported

    def participation(self, kind: str) -> dict[str, int]:
        """Node -> rounds in which it sent such a message, to whomever and whether or not it arrived; only who did."""
        rounds: dict[str, set[int]] = {}
        for round_, source, _ in self.sent(kind):
            rounds.setdefault(source, set()).add(round_)
        return {node: len(found) for node, found in sorted(rounds.items())}

    def heard(self, kind: str, target: str) -> dict[int, frozenset[str]]:
        """Round -> of whom such a message arrived at `target` in time; only rounds in which one did."""
        found: dict[int, set[str]] = {}
        for round_, source, to in self.arrived(kind):
            if to == target:
                found.setdefault(round_, set()).add(source)
        return {round_: frozenset(sources) for round_, sources in sorted(found.items())}
