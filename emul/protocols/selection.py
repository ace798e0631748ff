"""Choosing who takes part in a synchronous round by a rule of `emul.primitives.selection`.

    server      asks candidates, if the rule wants to know of them: Call, or Probe with the model
    candidate   answers: Here, or Told with its loss
    server      says to each whether it takes part: Verdict; then sends its model to those that it has not probed
    client      sends Told, if the rule learns from who takes part, and its update
    server      ends the round with the first K updates

A scheme has a parameter `selection`, None by default, and its roles call, in this order,

    server      selecting = node.state(...).selecting, which is begin(p.selection); selecting.cohort, .gather, .learn
    client      asked, then its training, then tell

K is `count` of the rule, or what the scheme's fraction comes to; ceil(over K) are chosen. The server waits for the
answers of candidates until the scheme's deadline, or the window of the rule. To choose is a computation of the server,
"select", among so many clients. Of a rule that goes by the contact plan the server asks nobody: it reads the plan, and
the scheme says `knows_topology=by_plan`. Bytes of the arrays, without headers: Probe 4 d.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from emul.base.errors import TooFewClients
from emul.base.streams import generator
from emul.learning import NodeTask
from emul.primitives.selection import Common, Heard, SelectionRule, begun, choose
from emul.primitives.selection.choice import PowerOfChoice
from emul.primitives.selection.contact import FirstContact
from emul.primitives.selection.fedcs import FedCS
from emul.primitives.selection.uniform import Available
from emul.primitives.written import WrittenChoice
from emul.protocols.demands import demand, shaped
from emul.roles import Message, Node, Vector, World

M = TypeVar("M", bound=Message)

MOST_TOLD = 1e12                    # beyond it a loss is none


@dataclass(frozen=True)
class Call(Message):
    """Server to candidate: are you there?"""


@dataclass(frozen=True)
class Here(Message):
    """Candidate to server."""


@dataclass(frozen=True)
class Probe(Message):
    """Server to candidate: how large is your loss?"""

    parameters: Vector              # w, (d,) float32


@dataclass(frozen=True)
class Told(Message):
    """Client to server: its loss, utility or accuracy, or the seconds of its training, as the rule wants it."""

    value: float


@dataclass(frozen=True)
class Verdict(Message):
    """Server to candidate: whether it takes part."""

    chosen: bool


MESSAGES = (Call, Here, Probe, Told, Verdict)


@dataclass
class Selecting:
    """A rule at a server, over a run. It is part of the server's state."""

    p: Common
    rule: SelectionRule
    chosen: list[int] = field(default_factory=list)     # of this round
    need: int = 0                                       # updates that end it
    since_s: float = 0.0                                # virtual time of the choice
    seconds: dict[int, float] = field(default_factory=dict)     # client -> from the choice to its update

    @property
    def probed(self) -> bool:
        """True if those who are chosen have the model already."""
        return self.p.asks == "loss"

    async def cohort(self, node: Node, model: Vector, usual: int, deadline_s: float | None) -> list[int]:
        """Those who take part in this round, ascending. usual: K where the rule has none. Raises TooFewClients."""
        clients = node.joined(node.clients)
        K = min(self.p.count or usual, len(clients))
        count = min(chosen_for(self.p, K), len(clients))
        rng = generator(node.seed, "selection", node.name, node.round)
        candidates, answers = list[int](), dict[int, float]()
        if self.p.asks:
            candidates = await node.compute("select", self.rule.candidates, rng, clients, count, work=len(clients))
            answers = await ask(node, self.p, candidates, model, deadline_s)
        elif isinstance(self.p, FirstContact):
            answers = reached(node, self.p, model)
        self.chosen = await node.compute("select", self.rule.choose, rng, clients, count, node.round, answers,
                                         work=len(clients))
        node.broadcast([k for k in candidates if k in self.chosen], Verdict(True))
        node.broadcast([k for k in candidates if k not in self.chosen], Verdict(False))
        if not self.chosen:
            raise TooFewClients(f"none of the {len(candidates)} clients that were asked has answered" if candidates and
                                not answers else "the rule has no client left to choose")
        self.need = K if K <= len(self.chosen) <= count else len(self.chosen)
        self.since_s, self.seconds = node.now, {}
        return self.chosen

    async def gather(self, node: Node, timeout_s: float | None, kind: type[M], accept: Callable[[M], None],
                     ) -> dict[int, M]:
        """`node.gather` of the cohort, which ends with the first K, and notes when each came."""
        got, waiting = dict[int, M](), set(self.chosen)
        while waiting and len(got) < self.need:
            left = None if timeout_s is None else max(0.0, self.since_s + timeout_s - node.now)
            came = await node.gather(kind, waiting, timeout_s=left, need=1, accept=accept)
            if not came:
                break
            got |= came
            waiting -= came.keys()
            self.seconds |= dict.fromkeys(came, node.now - self.since_s)
        return dict(sorted(got.items()))

    async def learn(self, node: Node, samples: Mapping[int, int]) -> None:
        """The round is over, with these updates. samples: {client: n_k}. Raises TooFewClients: fewer than `least`."""
        told: dict[int, float] = {}
        if self.p.tells and self.seconds:
            got = await node.gather(Told, self.seconds, timeout_s=0.0, accept=sensible)    # sent before the updates
            told = {k: message.value for k, message in got.items()}
        self.rule.learn(Heard(node.round, self.chosen, dict(sorted(self.seconds.items())), node.now - self.since_s,
                              told, samples))
        if len(samples) < self.p.least:
            raise TooFewClients(f"{len(samples)} of {len(self.chosen)} clients have answered, least = {self.p.least}")


async def cohort_of(node: Node, rule: Selecting | None, model: Vector, fraction: float | None,
                    deadline_s: float | None) -> list[int]:
    """The clients of a round: by the rule, else a fraction that is drawn; None: all clients."""
    if rule is None:
        return node.sample(node.clients, 1.0 if fraction is None else fraction)
    return await rule.cohort(node, model, max(1, round((fraction or 1.0) * len(node.joined(node.clients)))), deadline_s)


async def updates_of(node: Node, rule: Selecting | None, kind: type[M], cohort: list[int], deadline_s: float | None,
                     accept: Callable[[M], None], samples: Callable[[M], int]) -> dict[int, M]:
    """Their updates, of which the rule then learns; samples: n_k of one. Raises TooFewClients: fewer than `least`."""
    if rule is None:
        return await node.gather(kind, cohort, timeout_s=deadline_s, accept=accept)
    got = await rule.gather(node, deadline_s, kind, accept)
    await rule.learn(node, {k: samples(update) for k, update in got.items()})
    return got


def begin(written: WrittenChoice | None) -> Selecting | None:
    """The state with which a server begins; None: no rule is given."""
    if written is None:
        return None
    p = choose(written)
    return Selecting(p, begun(p))


async def ask(node: Node, p: Common, candidates: Collection[int], model: Vector, deadline_s: float | None,
              ) -> dict[int, float]:
    """The answers of candidates that come in time: {client: its loss}, or 0 of those that are there."""
    if isinstance(p, Available | FedCS):
        node.broadcast(candidates, Call())
        return dict.fromkeys(await node.gather(Here, candidates, timeout_s=p.window_s), 0.0)
    node.broadcast(candidates, Probe(model))
    got = await node.gather(Told, candidates, timeout_s=deadline_s, accept=sensible)
    return {k: message.value for k, message in got.items()}


def reached(node: Node, p: FirstContact, model: Vector) -> dict[int, float]:
    """{client: the virtual time at which a model that is sent now is there by the plan, or an update of as many bytes
    is back}; without those that the plan never reaches."""
    size = 4 * len(model)
    there = node.world.arrivals(node.id, node.joined(node.clients), node.now_ns, size)
    if p.training_s is not None:
        training_ns, me = round(p.training_s * 1e9), node.id
        back = {k: node.world.arrivals(k, [me], at + training_ns, size).get(me) for k, at in there.items()}
        there = {k: at for k, at in back.items() if at is not None}
    return {k: at / 1e9 for k, at in there.items()}


def sensible(message: Told) -> None:
    """For `accept`: the value is one that a loss may have."""
    demand(0 <= message.value <= MOST_TOLD, "value: no loss, utility or accuracy")


# --- at a client --------------------------------------------------------------------------------------------------

async def asked(node: Node, p: Common | None, whole: Callable[[Vector], Vector] | None = None, size: int | None = None,
                ) -> tuple[bool, Vector | None]:
    """The talk before the model: (whether this client takes part, the model if it has come already).

    whole: of a scheme that shares a part of its model, `size` numbers, what makes it the model whose loss is told.
    """
    if p is None or not p.asks:
        return True, None
    model = None
    if isinstance(p, Available | FedCS):
        await node.recv(Call, node.server)
        node.send(node.server, Here())
    else:
        assert isinstance(p, PowerOfChoice)
        probe = await node.recv(Probe, node.server, accept=shaped(parameters=(size or node.task.dimension,)))
        model = probe.parameters
        most, judged = p.batch if p.loss == "cpow_d" else 0, model if whole is None else whole(model)
        node.send(node.server, Told(await node.compute("probe", mean_loss, node.task, judged, most)))
    verdict = await node.recv(Verdict, node.server)
    return verdict.chosen, model


async def tell(node: Node, p: Common | None, model: Vector, since_ns: int) -> None:
    """After the training and before the update: what the rule wants to know, of a client that can say it. model: as it
    was received, at `since_ns`."""
    if p is not None and p.tells == "seconds":
        node.send(node.server, Told((node.now_ns - since_ns) / 1e9))
    elif p is not None and p.tells:
        value = await node.compute("measure", measured, node.task, model, p.tells)
        if value is not None:
            node.send(node.server, Told(value))


def mean_loss(task: NodeTask, model: Vector, most: int) -> float:
    """On this client's training samples, on at most so many of them; 0: on all. Without samples it is 0."""
    return float(task.loss(model, most=most)) if task.samples() else 0.0


def measured(task: NodeTask, model: Vector, what: str) -> float | None:
    """The value that a rule `tells`: the loss; Oort's utility, n sqrt(mean of squared losses); the accuracy on own
    tests, and 1 / (1 + loss) where the targets are numbers. None: this client has no test sample."""
    if what == "accuracy":
        seen = task.evaluate_own(model)
        value = float(seen["accuracy"] if "accuracy" in seen else 1 / (1 + seen["loss"]))
        return None if math.isnan(value) else value
    if what == "loss" or not task.samples():
        return mean_loss(task, model, 0)
    losses = np.asarray(task.loss(model, each=True), np.float64)
    return float(len(losses) * math.sqrt(np.mean(losses**2)))


# --- in a scenario ------------------------------------------------------------------------------------------------

def wrong_selection(written: WrittenChoice | None, world: World, fraction: float = 1.0) -> list[str]:
    """Mistakes in a rule, for a scheme's `check`. fraction: of the clients, where the rule has no `count`."""
    if written is None:
        return []
    try:
        p = choose(written)
    except ValueError as error:
        return [f"selection = {written if isinstance(written, str) else next(iter(written), written)}: {error}"]
    if p.count is not None and p.count > world.clients:
        return [f"selection = {name_of(written)}: count = {p.count}: expected at most {world.clients}, the number of "
                "clients"]
    K = taking_part(written, fraction, world.clients)
    return [f"selection = {name_of(written)}: {wrong}" for wrong in _wrong_for(p, K, world)]


def by_plan(p: Any) -> bool:
    """For `knows_topology`: parameters whose `selection` goes by the contact plan. A rule that is wrong does not."""
    try:
        return p.selection is not None and choose(p.selection).plan
    except ValueError:
        return False


def telling(written: WrittenChoice | None) -> list[str]:
    """The reasons why a run with this selection depends on what was learned (`Scheme.oblivious`); []: it does not."""
    if written is None or (choose(written).tells in ("", "seconds") and choose(written).asks != "loss"):
        return []
    return [f"selection = {name_of(written)}: chooses by losses or accuracies that clients tell"]


def wrong_without_probing(written: Any, world: World, fraction: float, why: str) -> list[str]:
    """As `wrong_selection`, of a scheme whose candidates cannot be sent a model alone. why: what else they need."""
    wrong = wrong_selection(written, world, fraction)
    if wrong or written is None or choose(written).asks != "loss":
        return wrong
    return [f"selection = {name_of(written)}: candidates are sent the model alone, and {why}; expected loss: rpow_d, "
            "that asks nobody, or another rule"]


def _wrong_for(p: Common, K: int, world: World) -> list[str]:
    """Mistakes in a rule in rounds of K updates."""
    errors, chosen = [], min(chosen_for(p, K), world.clients)
    if p.least > K:
        errors.append(f"least = {p.least}: expected at most {K}, the updates that end a round")
    if isinstance(p, PowerOfChoice) and p.candidates < chosen:
        errors.append(f"candidates = {p.candidates}: expected at least {chosen}, those chosen")
    if p.plan and world.terrain is None:
        errors.append(f"the scheme {world.scheme} does not know the contact plan: expected knows_topology=by_plan")
    elif p.plan and not world.planned:
        errors.append("expected a network with contacts: this one has none, so no client is reached before another")
    if p.asks == "loss" and "down" in world.compress:
        errors.append("compress.down: candidates are sent the model as it is; expected loss: rpow_d, that asks nobody, "
                      "or no compress.down")
    return errors


def chosen_for(p: Common, K: int) -> int:
    """ceil(over K): how many are chosen, if there are as many."""
    return math.ceil(p.over * K - 1e-9)


def name_of(written: WrittenChoice) -> str:
    """Of the rule."""
    return written if isinstance(written, str) else next(iter(written))


def taking_part(written: WrittenChoice | None, fraction: float, clients: int) -> int:
    """The number of updates in a round if all answer. A rule that is wrong counts as none."""
    try:
        count = None if written is None else choose(written).count
    except ValueError:
        count = None
    return min(clients, count or max(1, round(fraction * clients)))
