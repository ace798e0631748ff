"""Membership inference by a client of the run, on the model that it got: judged by the model's outputs.

    threshold   loss below the one that tells the known samples best; Yeom et al., CSF 2018
    surrogate   a network with 64 hidden units on [sorted outputs, loss, label] of the model under attack, of samples
                half of which were trained on; Salem et al., NDSS 2019
    shadow      the same network, on a model that the attacker has trained itself; Shokri et al., S&P 2017

The first two know a half of the members, and are judged by the others. Members and others count alike in all.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from emul.attacks.privacy.membership import LOW_FPR
from emul.attacks.ranges import at_least
from emul.base.extras import optional
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

if TYPE_CHECKING:
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


# --- attack models --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Candidates:
    """The outputs of a model for n samples. outputs: (n, C). labels: (n,). member: (n,) bool, the truth."""

    outputs: Array
    labels: Array
    member: Array

    @property
    def losses(self) -> Array:
        """(n,) squared distance to the one-hot label."""
        found: Array = np.square(self.outputs - self._one_hot).sum(1)
        return found

    @property
    def features(self) -> Array:
        """(n, 2 C + 1): sorted outputs, loss, one-hot label."""
        return np.concatenate([np.sort(self.outputs, 1), self.losses[:, None], self._one_hot], axis=1)

    @property
    def _one_hot(self) -> Array:
        return np.eye(self.outputs.shape[1])[self.labels]

    def only(self, chosen: Array) -> Candidates:
        """Those at these places."""
        return Candidates(self.outputs[chosen], self.labels[chosen], self.member[chosen])


def halves(member: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Places of a half of both kinds, and of the other half; as many members as others in each."""
    kinds = [rng.permutation(np.flatnonzero(member == kind)) for kind in (True, False)]
    n = min(map(len, kinds)) // 2
    return np.concatenate([kind[:n] for kind in kinds]), np.concatenate([kind[n:2 * n] for kind in kinds])


def by_threshold(known: Candidates, other: Candidates) -> dict[str, float]:
    """The success of the best threshold on the losses of `known` at telling `other`: see `told`."""
    losses = known.losses
    tells = [np.mean((losses <= at) == known.member) for at in losses]
    return success(-other.losses, other.member, -float(losses[int(np.argmax(tells))]))


def by_network(network: Any, other: Candidates) -> dict[str, float]:
    """The success of an attack model at telling them: see `told`."""
    return success(network.predict_proba(other.features)[:, 1], other.member, 0.5)


def attack_model(known: Candidates, rng: np.random.Generator, standardise: bool) -> Any:
    """A network with 64 hidden units that has learnt who of `known` is a member. standardise: its inputs, each to mean
    0 and deviation 1."""
    with optional("an attack model needs", "privacy"):
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    seed = int(rng.integers(1 << 31))
    made = make_pipeline(StandardScaler(), MLPClassifier((64,), alpha=0.1, max_iter=300, random_state=seed)) \
        if standardise else MLPClassifier((64,), max_iter=300, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return made.fit(known.features, known.member)


def success(score: Array, member: Array, cut: float) -> dict[str, float]:
    """asr, the share of right answers where a score of `cut` or more says member, both kinds counting alike; auc;
    tpr_at_fpr_1.

    >>> success(np.array([0.9, 0.2]), np.array([True, False]), 0.5)
    {'asr': 1.0, 'auc': 1.0, 'tpr_at_fpr_1': 1.0}
    """
    with optional("to judge an attack needs", "privacy"):
        from sklearn.metrics import roc_auc_score, roc_curve

    says = score >= cut
    false, true, _ = roc_curve(member, score)
    return {"asr": float((says[member].mean() + 1 - says[~member].mean()) / 2),
            "auc": float(roc_auc_score(member, score)), "tpr_at_fpr_1": float(true[false <= LOW_FPR].max())}
