"""A model of a client's own, from the disguised one that it got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.attacks.ranges import at_least
from emul.roles.evidence import Evidence, Needs, Rows

Array = np.ndarray


@dataclass(frozen=True)
class Extraction:
    """An attack in which a client approximates the server's model. Tramer et al., USENIX Security 2016; agreement and
    fidelity as in Jagielski et al., USENIX Security 2020; against X. Yang et al., arXiv 2412.11737, 2024.

    The attacker holds what a client does: the disguised model and its own samples. `outputs`: the model as it came.
    `adaptive`: less alpha times the r that is estimated from its samples. `probe`: a linear map from the disguised
    features to its labels, by least squares. `student`: a model of the same architecture from other first weights, that
    learns the adaptive outputs of its inputs. It needs `record: {payloads: [Disguised]}`.
    """

    node: str | None = None             # the attacker; none: the first client
    round_: int | None = None           # none: the last that was kept
    own: int = 60                       # of its samples, that r is estimated from
    steps: int = 400                    # of Adam, in which the student learns

    NEEDS: ClassVar[Needs] = Needs(payloads=("Disguised",))

    def __post_init__(self) -> None:
        at_least(1, own=self.own, steps=self.steps)

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: by, samples (of its own), agreement (share of test samples that get the class which the server's
        model gives), output_error (relative, of the outputs; none of a probe), accuracy, accuracy_true."""
        from emul.attacks.privacy.held_model import fitted, held_model, held_out_samples, samples_of

        held = held_model(evidence, self.node, self.round_)
        own_x, own_y = samples_of(evidence, [held.node])
        r = held.estimated(own_x[:self.own], own_y[:self.own])
        x, labels = held_out_samples(evidence)
        own, test = held.views(own_x, r), held.views(x, r)
        weights = np.linalg.lstsq(_with_one(own.features), np.eye(test.true.shape[1])[own_y], rcond=None)[0]
        assert test.disguised is not None
        assert test.adaptive is not None
        student = fitted(held.task, evidence.task.initial_parameters(1), own_x, own.held, self.steps)
        found = {"outputs": test.disguised, "adaptive": test.adaptive, "probe": _with_one(test.features) @ weights,
                 "student": type(held)(held.node, held.round, held.task, student).views(x, None).true}
        return [{"node": held.node, "round": held.round, "by": by, "samples": len(own_y),
                 **nearness(outputs, test.true, labels)} | ({"output_error": None} if by == "probe" else {})
                for by, outputs in found.items()]


def nearness(found: Array, true: Array, labels: Array) -> dict[str, float | None]:
    """agreement, output_error, accuracy, accuracy_true of outputs (n, C).

    >>> nearness(np.array([[0.0, 2.0]]), np.array([[0.0, 1.0]]), np.array([0]))
    {'agreement': 1.0, 'output_error': 1.0, 'accuracy': 0.0, 'accuracy_true': 0.0}
    """
    said, right = found.argmax(1), true.argmax(1)
    return {"agreement": float((said == right).mean()),
            "output_error": float(np.linalg.norm(found - true) / np.linalg.norm(true)),
            "accuracy": float((said == labels).mean()), "accuracy_true": float((right == labels).mean())}


def _with_one(features: Array) -> Array:
    return np.pad(features, ((0, 0), (0, 1)), constant_values=1)
