"""Membership in the training samples, judged by a model's outputs: thresholds and attack models that learn from samples
known to be so.

    threshold   loss below the one that tells the known samples best; Yeom et al., CSF 2018
    surrogate   a network with 64 hidden units on [sorted outputs, loss, label] of the model under attack, of samples
                half of which were trained on; Salem et al., NDSS 2019
    shadow      the same network, on a model that the attacker has trained itself; Shokri et al., S&P 2017

The first two know a half of the members, and are judged by the others. Members and others count alike in all.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.attacks.privacy.membership import LOW_FPR
from emul.base.extras import optional

Array = np.ndarray


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
