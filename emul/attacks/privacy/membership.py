"""Membership inference: was this sample trained on? A loss below a threshold says yes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.base.extras import optional
from emul.base.kept import KeptModel
from emul.base.plain import PlainDict
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

LOW_FPR = 0.01                          # of Carlini et al., S&P 2022: success where few are accused wrongly


@dataclass(frozen=True)
class Membership:
    """Loss threshold. Yeom, Giacomelli, Fredrikson, Jha, CSF 2018 (arXiv 1709.01604), section 3.2: a sample is taken
    for one that was trained on if the model's loss on it is below the mean training loss.

    The attacker holds a model that a node reported, the candidates with their labels, and the mean training loss, as
    the paper has it. It needs a kept model of any scheme: the last ones are always kept, `record: {models: n}` keeps
    those of rounds. Members of a client's model are its own training samples, of another node's those of all clients;
    the others are test samples (the client's own, where the partition gives it some). Both kinds count the same,
    however many there are.
    """

    node: str | None = None             # the owner of the model; none: of every node that left one
    round_: int | None = None           # none: every model that was kept

    NEEDS: ClassVar[Needs] = Needs()

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: asr (share of right answers), advantage (true less false positives), auc, tpr_at_fpr_1 (at 1 %)."""
        found = [self._of(model, evidence) for model in evidence.models(self.node, self.round_)
                 if model.vector().shape == (evidence.task.dimension,)]
        if not found:
            raise NotKept(f"{evidence.run.path}: what its nodes reported are no models of the task")
        return found

    def _of(self, model: KeptModel, evidence: Evidence) -> PlainDict:
        own = [model.node] if model.node in evidence.shards else list(evidence.shards)
        vector = model.vector()
        members = np.concatenate([evidence.node(name).loss(vector, "train", each=True) for name in own])
        others = evidence.node(model.node).loss(vector, "test", each=True)
        return {"node": model.node, "round": model.round, "members": len(members), "others": len(others),
                **judged(members, others)}


def judged(members: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Measures of telling the losses (m,) of samples that were trained on from those (n,) of samples that were not.

    >>> judged(np.array([0.0, 0.1]), np.array([1.0, 2.0]))["auc"]
    1.0
    """
    with optional("to judge an attack needs", "privacy"):
        from sklearn.metrics import roc_auc_score, roc_curve

    members, others = _finite(members), _finite(others)
    threshold = float(members.mean())
    tpr, fpr = float((members <= threshold).mean()), float((others <= threshold).mean())
    truth = np.repeat([1, 0], [len(members), len(others)])
    score = -np.concatenate([members, others])
    false, true, _ = roc_curve(truth, score)
    return {"loss_members": threshold, "loss_others": float(others.mean()), "asr": (tpr + 1 - fpr) / 2,
            "advantage": tpr - fpr, "auc": float(roc_auc_score(truth, score)),
            "tpr_at_fpr_1": float(true[false <= LOW_FPR].max())}


def _finite(losses: np.ndarray) -> np.ndarray:
    """Losses whose mean is finite, those of a model that has diverged, too."""
    largest = float(np.finfo(np.float32).max)
    found: np.ndarray = np.clip(np.where(np.isnan(losses), largest, losses), 0, largest)
    return found
