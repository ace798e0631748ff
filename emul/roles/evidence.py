"""The evidence of an attacker on a run: the things that the run kept, and the facts about its task; a lack is said at
once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from emul.base.errors import InputError
from emul.base.kept import KeptError, KeptModel
from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.roles.scheme import AnyScheme

if TYPE_CHECKING:
    import pandas as pd

    from emul.learning import NodeTask, Task
    from emul.message.wire import Message

Rows = list[PlainDict]                  # column -> number, text or None: one row each thing that was attacked


class NotKept(InputError):
    """A run has not kept what an attack needs; the text has the line that its scenario lacks."""


@dataclass(frozen=True)
class Needs:
    """The needs of an attack on a run. payloads: types of messages. models: those of every round. schemes: (): any."""

    payloads: tuple[str, ...] = ()
    models: bool = False
    schemes: tuple[str, ...] = ()

    def record(self) -> str:
        """The line of a scenario that has it kept.

        >>> Needs(("Masked",), models=True).record()
        'record: {models: 1, payloads: [Masked]}'
        """
        parts = [*(["models: 1"] if self.models else []),
                 *([f"payloads: [{', '.join(self.payloads)}]"] if self.payloads else [])]
        return f"record: {{{', '.join(parts)}}}"


class Observed(Protocol):
    """A message that the run kept: `emul.record.payloads.KeptMessage`."""

    source: int
    source_name: str
    seq: int
    to: tuple[int, ...]
    round: int
    sent_ns: int
    message: Message


class RunEvidence(Protocol):
    """The result of `emul.load_run`, as far as attackers use it."""

    @property
    def path(self) -> Path: ...
    @property
    def summary(self) -> PlainDict: ...
    @property
    def rounds(self) -> pd.DataFrame: ...
    @property
    def messages(self) -> pd.DataFrame: ...
    @property
    def models(self) -> list[str]: ...
    def model(self, node: str | None = None, round_: int | None = None) -> KeptModel: ...
    def model_rounds(self, node: str) -> list[int]: ...
    def payload(self, kind: str, round_: int | None = None, source: str | None = None, to: str | None = None,
                plugins: Sequence[str] | None = None) -> list[Any]: ...
    def artefact(self, node: str, name: str) -> np.ndarray: ...


@dataclass(frozen=True)
class Evidence:
    """A run as an attacker sees it, and as the code that judges the attack does. The attack says what an attacker may
    use; `node`, with the samples and streams of a node, is for the truth that its guess is held against. names: node ->
    name. roles: role -> nodes. shards: name of a node that holds data -> its number among these. params: the scheme's.
    """

    run: RunEvidence
    task: Task
    scheme: AnyScheme
    params: Any
    names: Sequence[str]
    roles: Mapping[str, Sequence[int]]
    shards: Mapping[str, int]
    seed: int

    def require(self, needs: Needs) -> None:
        """Raises NotKept if the run is of another scheme, or has not kept all of it."""
        scheme = self.run.summary["scheme"]
        if needs.schemes and scheme not in needs.schemes:
            raise NotKept(f"{self.run.path}: a run of {scheme}; this attack is on {', '.join(needs.schemes)}")
        kept = self.run.summary.get("payloads", {})
        rounds = any(self.run.model_rounds(node) for node in self.run.models)
        if any(kind not in kept for kind in needs.payloads) or (needs.models and not rounds):
            raise NotKept(f"{self.run.path}: it has not kept what this attack needs; run its scenario again with "
                          f"{needs.record()}")

    def messages(self, kind: str, *, round_: int | None = None, source: str | None = None, to: str | None = None,
                 ) -> list[Any]:
        """Messages of a type (`Observed`) in the order of sending: of one round, of one sender, or those of which a
        copy has come to the node `to`, in time or not. Raises NotKept."""
        if kind not in self.run.summary.get("payloads", {}):
            raise NotKept(f"{self.run.path}: it has kept no {kind}; run its scenario again with "
                          f"{Needs((kind,)).record()}")
        return self.run.payload(kind, round_, source, to)

    def model(self, node: str | None = None, round_: int | None = None) -> KeptModel:
        """As `run.model`. Raises NotKept."""
        try:
            return self.run.model(node, round_)
        except KeptError as e:
            raise NotKept(f"{e}; with {Needs(models=True).record()} those of all rounds are kept") from None

    def models(self, node: str | None = None, round_: int | None = None) -> list[KeptModel]:
        """Every model that was kept, of rounds and last ones, or those of a node or a round; by node and round."""
        found = []
        for name in self.run.models if node is None else [node]:
            last = self.model(name)
            rounds = [number for number in self.run.model_rounds(name) if number != last.round]
            found += [self.model(name, number) for number in rounds if round_ in (None, number)]
            found += [last] if round_ in (None, last.round) else []
        if not found:
            raise NotKept(f"{self.run.path}: it has kept no such model; with {Needs(models=True).record()} those of "
                          "all rounds are kept")
        return found

    def node(self, name: str, round_: int = 0) -> NodeTask:
        """The task as a node saw it at its first call in a round: what it really did can be computed again."""
        return self.task.for_node(name, self.shards.get(name), lambda: round_)

    def rng(self, *names: str | int) -> np.random.Generator:
        """A stream of the attacker's own, the same at every attack on this run."""
        return generator(self.seed, "privacy attack", *names)


def answers(evidence: Evidence, kinds: Sequence[tuple[str, str]], node: str | None = None, round_: int | None = None,
            ) -> Iterator[tuple[Message, Observed]]:
    """(what the server sent in a round, what came of a node in answer), in the order of sending; of the first of these
    pairs of types that was kept. node, round_: of these alone. Raises NotKept."""
    kept = evidence.run.summary.get("payloads", {})
    found = next((pair for pair in kinds if all(kind in kept for kind in pair)), None)
    if found is None:
        needed = " or ".join(Needs(pair).record() for pair in kinds)
        raise NotKept(f"{evidence.run.path}: it has not kept what this attack needs; run its scenario again with "
                      f"{needed}")
    opened = {one.round: one.message for one in evidence.messages(found[0], round_=round_)}
    server = evidence.names[evidence.roles["server"][0]]
    some = False
    for one in evidence.messages(found[1], round_=round_, source=node, to=server):
        if one.round in opened:
            some = True
            yield opened[one.round], one
    if not some:
        raise NotKept(f"{evidence.run.path}: no {found[1]} of {node or 'any node'} in round {round_ or 'any'} has come "
                      "to the server")


# --- what an attack gives ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Picture:
    """An image beside what an attack made of it. true, found: (C, H, W) in [0, 1], C 1 or 3."""

    caption: str
    true: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class Findings:
    """The result of an attack that has pictures, too."""

    rows: Rows
    pictures: Sequence[Picture] = field(default_factory=list)
