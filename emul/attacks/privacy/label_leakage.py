"""Labels from the gradients that cross the cut of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.primitives.clustering import matched
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

_TURNS = 30                             # of k-means
_EPS = 1e-30                            # of the length of a gradient


@dataclass(frozen=True)
class LabelLeakage:
    """Samples of one class have gradients of one direction. Li et al., ICLR 2022 (arXiv 2102.08504), section 3, whose
    cosine attack is on two classes; here for any number of them.

    The attacker holds what the server of `u_split` does: dL/dz of every sample, and no label. It needs
    `record: {payloads: [HeadGradients]}`. Without `known` it makes as many clusters of directions as there are classes
    (spherical k-means, the best of `tries`); what they are called does not count. With `known` it has the labels of so
    many samples of each class, and gives every other sample the class whose mean direction is nearest.
    """

    node: str | None = None             # the owner of the labels; none: of every client
    known: int = 0                      # samples of each class whose labels the attacker has
    tries: int = 5                      # beginnings of k-means

    NEEDS: ClassVar[Needs] = Needs(payloads=("HeadGradients",), schemes=("u_split",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns, a row for each client and round: samples; classes (that they have); accuracy (share of samples whose
        label is found; of clusters under the best matching of names); majority (share of the most frequent class: what
        an attacker without gradients reaches)."""
        found: dict[tuple[str, int], list[tuple[np.ndarray, np.ndarray]]] = {}
        for name, round_, gradients, labels in _seen(evidence, self.node):
            found.setdefault((name, round_), []).append((gradients, labels))
        if not found:
            raise NotKept(f"{evidence.run.path}: it has kept no HeadGradients of {self.node or 'any client'}")
        return [self._of(evidence, name, round_, *map(np.concatenate, zip(*parts, strict=True)))
                for (name, round_), parts in sorted(found.items())]

    def _of(self, evidence: Evidence, name: str, round_: int, gradients: np.ndarray, labels: np.ndarray,
            ) -> dict[str, object]:
        classes, counts = np.unique(labels, return_counts=True)
        directions = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), _EPS)
        rng = evidence.rng("label leakage", name, round_)
        if self.known:
            accuracy = nearest(directions, labels, self.known, rng)
        else:
            accuracy = matched(clusters(directions, len(classes), self.tries, rng).tolist(), labels.tolist())
        return {"node": name, "round": round_, "samples": len(labels), "classes": len(classes), "accuracy": accuracy,
                "majority": float(counts.max() / len(labels))}


def _seen(evidence: Evidence, node: str | None) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """(client, round, gradients (b, n), true labels (b,)) of every message."""
    plans: dict[tuple[str, int], tuple[np.ndarray, list[list[np.ndarray]]]] = {}
    for one in evidence.messages("HeadGradients", source=node):
        key = one.source_name, one.round
        if key not in plans:
            seen, plan = evidence.node(*key).planned()
            most = evidence.params.micro_batches
            plans[key] = seen.y.numpy(), [np.array_split(rows, min(most, len(rows))) for rows in plan]
        message, (y, parts) = one.message, plans[key]
        values = message.values
        if values.dtype != np.float32:
            raise NotKept(f"{evidence.run.path}: gradients are packed (compress: up), which this attack does not open")
        yield *key, values.reshape(len(values), -1), y[parts[message.step][message.part]]


def clusters(x: np.ndarray, k: int, tries: int, rng: np.random.Generator) -> np.ndarray:
    """Spherical k-means of unit vectors (n, d): the cluster of each, (n,), of the beginning whose cosines are largest.

    >>> found = clusters(np.array([[1., 0], [.9, .1], [0, 1]]), 2, 3, np.random.default_rng(1)).tolist()
    >>> found in ([0, 0, 1], [1, 1, 0])
    True
    """
    best, most = np.zeros(len(x), np.int64), -np.inf
    for _ in range(tries):
        centres = x[[int(rng.integers(len(x)))]]
        while len(centres) < k:                         # the next one is far from those there are (k-means++)
            far = np.maximum(1 - (x @ centres.T).max(1), 0) + _EPS
            centres = np.concatenate([centres, x[[int(rng.choice(len(x), p=far / far.sum()))]]])
        for _ in range(_TURNS):
            own = (x @ centres.T).argmax(1)
            sums = np.stack([x[own == c].sum(0) for c in range(k)])
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(lengths > _EPS, sums / np.maximum(lengths, _EPS), centres)
        cosines = x @ centres.T
        if cosines.max(1).sum() > most:
            best, most = cosines.argmax(1), float(cosines.max(1).sum())
    return best


def nearest(x: np.ndarray, labels: np.ndarray, known: int, rng: np.random.Generator) -> float:
    """The share of the samples whose label is unknown that get the right one, by the largest cosine with the mean of
    the known ones of a class; nan where all are known."""
    classes = np.unique(labels)
    told = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:known] for c in classes])
    means = np.stack([x[told[labels[told] == c]].mean(0) for c in classes])
    rest = np.setdiff1d(np.arange(len(x)), told)
    if not len(rest):
        return float("nan")
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _EPS)
    return float((classes[(x[rest] @ means.T).argmax(1)] == labels[rest]).mean())
