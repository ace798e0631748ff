"""Membership inference by a client of the run, on the model that it got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from emul.attacks.ranges import at_least
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

if TYPE_CHECKING:
    from emul.attacks.privacy.attack_models import Candidates
    from emul.attacks.privacy.held_model import HeldModel

Array = np.ndarray


@dataclass(frozen=True)
class ClientMembership:
    """Was a sample of another client trained on? By a threshold, an attack model and a shadow model: Shokri et al., S&P
    2017; Salem et al., NDSS 2019; Yeom et al., CSF 2018. Of mp_dp also adaptive, with r estimated first.

    The attacker holds what a client does: the model that it got, its own samples, candidates with their labels.
    `threshold` and `surrogate` know of half of the candidates whether they are members, and are judged by the others;
    `shadow` knows none, and trains a model like it on half of its own samples. Members are the training samples of all
    other clients, the others test samples, as many of each. It needs `record: {payloads: [Model]}`, of mp_dp
    `[Disguised]`, and tells of that one three views: `server` (its own model), `disguised` (what came), `adaptive`.
    """

    node: str | None = None             # the attacker; none: the first client
    round_: int | None = None           # none: the last that was kept
    own: int = 60                       # of its samples, that r is estimated from
    standardise: bool = False           # the attack model's inputs
    shadow_steps: int = 400             # of Adam, in which the shadow model learns its samples

    NEEDS: ClassVar[Needs] = Needs()

    def __post_init__(self) -> None:
        at_least(1, own=self.own, shadow_steps=self.shadow_steps)

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: view, by, members, others, asr (share of right answers), auc, tpr_at_fpr_1 (at 1 %), r_error
        (relative, of the estimated r)."""
        from emul.attacks.privacy import held_model  # here: torch takes a second to load

        held = held_model.held_model(evidence, self.node, self.round_)
        others = [name for name in evidence.shards if name != held.node]
        if not evidence.task.data.labelled or held.node not in evidence.shards or not others:
            raise NotKept(f"{evidence.run.path}: expected labels of classes, and an attacker and others with samples")
        own_x, own_y = held_model.samples_of(evidence, [held.node])
        candidates = balanced(held_model.samples_of(evidence, others), held_model.held_out_samples(evidence),
                              evidence.rng("candidates", held.node))
        r = held.estimated(own_x[:self.own], own_y[:self.own])
        error = None if r is None or held.direction is None or not held.direction.any() else float(
            np.linalg.norm(r - held.direction) / np.linalg.norm(held.direction))
        shadow = self._shadow(evidence, held, own_x, own_y)
        about = {"node": held.node, "round": held.round, "r_error": error}
        return [about | row for row in self._rows(evidence, held, candidates, r, shadow)]

    def _rows(self, evidence: Evidence, held: HeldModel, given: tuple[Array, Array, Array], r: Array | None,
              shadow: Candidates) -> Rows:
        from emul.attacks.privacy.attack_models import Candidates, attack_model, by_network, by_threshold, halves

        x, labels, member = given
        known, other = halves(member, evidence.rng("halves", held.node))
        network = attack_model(shadow, evidence.rng("shadow network", held.node), self.standardise)
        rows: Rows = []
        for view, outputs in held.views(x, r).named():
            seen = Candidates(outputs, labels, member)
            surrogate = attack_model(seen.only(known), evidence.rng("network", held.node, view), self.standardise)
            found = {"threshold": by_threshold(seen.only(known), seen.only(other)),
                     "surrogate": by_network(surrogate, seen.only(other)), "shadow": by_network(network, seen)}
            rows += [{"view": view, "by": by, "members": int(member.sum()), "others": int((~member).sum()), **told}
                     for by, told in found.items()]
        return rows

    def _shadow(self, evidence: Evidence, held: HeldModel, x: Array, labels: Array) -> Candidates:
        """The outputs of a model that has learnt every second of the attacker's samples."""
        import torch

        from emul.attacks.privacy.attack_models import Candidates
        from emul.attacks.privacy.held_model import fitted

        member = np.arange(len(x)) % 2 == 0
        one_hot = np.eye(evidence.task.data.outputs)[labels]
        trained = fitted(held.task, evidence.task.initial_parameters(1), x[member], one_hot[member], self.shadow_steps)
        with torch.no_grad():
            outputs = held.task.forward(trained, torch.from_numpy(x)).logits.numpy()
        return Candidates(outputs, labels, member)


def balanced(members: tuple[Array, Array], others: tuple[Array, Array], rng: np.random.Generator,
             ) -> tuple[Array, Array, Array]:
    """(inputs, labels, member (n,) bool) of as many of each, drawn at random."""
    n = min(len(members[1]), len(others[1]))
    chosen = [rng.permutation(len(some[1]))[:n] for some in (members, others)]
    x, labels = (np.concatenate([some[part][at] for some, at in zip((members, others), chosen, strict=True)])
                 for part in (0, 1))
    return x, labels, np.repeat([True, False], n)
