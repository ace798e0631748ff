"""FedAvg with client sampling and a round deadline. McMahan et al., AISTATS 2017, Algorithm 1.

    client k    Delta_k = w_k - w, w_k: local training from w
    server      w <- w + sum_{k in S_t} n_k Delta_k / sum_{k in S_t} n_k       S_t: those drawn that have answered

`aggregate` puts a robust rule in the place of that mean. Deviation: the server averages updates (differences) instead
of models, which is the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from emul.primitives.selection import choose
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import MEAN, judged, judging, reference_of, rule_of, wrong_rule
from emul.protocols.rounds import (
    begin,
    choose_cohort,
    finite,
    gather_updates,
    receive_model,
    report_both,
    send_model,
    sent_before,
)
from emul.protocols.selection import by_plan, tell, telling, wrong_selection
from emul.protocols.updates import compression, send_update
from emul.roles import Node, Scheme, World, checks, weighted_mean
from emul.roles.evaluation import of_all
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # C: of the clients, drawn each round
    weights: Literal["samples", "uniform"] = "samples"      # n_k / n, or 1 / K; of the mean
    aggregate: WrittenChoice = MEAN     # or a rule of emul.primitives.robust: median, {krum: {f: 2}}
    personal: bool = False              # `accuracy` is that of the clients' models after local training, on their own
    #                                     test samples, beside that of the received one
    selection: WrittenChoice | None = None     # or a rule of emul.primitives.selection: {oort: {count: 10}}


async def server(node: Node, p: Params) -> None:
    s, how, rule = begin(node, p.selection), compression(node), rule_of(p.aggregate)
    async for round_ in node.rounds():
        with round_:
            reference = await reference_of(node, rule, s.model)             # [] but for rules that need root data
            cohort = await choose_cohort(node, s, p.fraction, p.deadline_s)
            await send_model(node, how, s, cohort)
            updates = await gather_updates(node, how, s, cohort, p.deadline_s)
            if rule is None:
                model = await node.compute("aggregate", weighted_mean, s.model, updates, p.weights)
            else:
                model = await judged(node, s, rule, updates, reference)
            s.model = finite(model)
            node.report(parameters=s.model, evaluate=partial(of_all, node.task.evaluate) if p.personal else None,
                        received=len(updates), cohort=len(cohort))


async def client(node: Node, p: Params) -> None:
    how = compression(node)
    s, selection = sent_before(node, how), None if p.selection is None else choose(p.selection)
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await receive_model(node, how, s, selection)
            if model is None:                   # asked, and not selected
                continue
            delta, samples = await node.compute("train", node.task.local_update, model, cost_s=node.training_s())
            if p.personal:
                report_both(node, model, delta)
            await tell(node, selection, model)
            await send_update(node, how, s, delta, samples)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.fractions(fraction=params.fraction) + checks.times(deadline=params.deadline_s)
            + wrong_selection(params.selection, world, params.fraction)
            + wrong_rule(params.aggregate, params.fraction, world, params.selection))


EXAMPLE = example("fedavg", "deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    oblivious=lambda p: judging(p.aggregate) + telling(p.selection), compress=("up", "down"),
    declares=True, timeouts=("deadline_s",), honest=rounds.honest_update,
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
