"""Labels from the gradients that cross the cut of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.base.streams import generator
from emul.primitives.clustering import matched
from emul.protocols.alignment import POINT
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

_TURNS = 30                             # of k-means
_EPS = 1e-30                            # of the length of a gradient


@dataclass(frozen=True)
class LabelLeakage:
    """Samples of one class have gradients of one direction. Li et al., ICLR 2022 (arXiv 2102.08504), section 3, whose
    cosine attack is on two classes; here for any number of them.

    The attacker holds what the server of `u_split` does, dL/dz of every sample, or what a party of `vertical` does,
    dL/de_k, and no label. It needs `record: {payloads: [HeadGradients]}`, of `vertical` `[Begin, Aligned, Gradients]`.
    Without `known` it makes as many clusters of directions as there are classes (spherical k-means, the best of
    `tries`); what they are called does not count. With `known` it has the labels of so many samples of each class, and
    gives every other sample the class whose mean direction is nearest.
    """

    node: str | None = None             # `u_split`: the owner of the labels, `vertical`: the party; none: all of them
    known: int = 0                      # samples of each class whose labels the attacker has
    tries: int = 5                      # beginnings of k-means

    NEEDS: ClassVar[Needs] = Needs(schemes=("u_split", "vertical"))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns, a row for each client and round: samples; classes (that they have); accuracy (share of samples whose
        label is found; of clusters under the best matching of names); majority (share of the most frequent class: what
        an attacker without gradients reaches)."""
        payloads, seen = _VIEWS[evidence.run.summary["scheme"]]
        evidence.require(Needs(payloads))
        found: dict[tuple[str, int], list[tuple[np.ndarray, np.ndarray]]] = {}
        for name, round_, gradients, labels in seen(evidence, self.node):
            if gradients.dtype != np.float32:
                raise NotKept(f"{evidence.run.path}: gradients are packed (compress), which this attack does not open")
            found.setdefault((name, round_), []).append((gradients.reshape(len(gradients), -1), labels))
        if not found:
            raise NotKept(f"{evidence.run.path}: it has kept no {payloads[-1]} of {self.node or 'any client'}")
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


Seen = Iterator[tuple[str, int, np.ndarray, np.ndarray]]    # (client, round, gradients (b, ...), true labels (b,))


def _seen_by_server(evidence: Evidence, node: str | None) -> Seen:
    """Of every message of `u_split`."""
    plans: dict[tuple[str, int], tuple[np.ndarray, list[list[np.ndarray]]]] = {}
    for one in evidence.messages("HeadGradients", source=node):
        key = one.source_name, one.round
        if key not in plans:
            seen, plan = evidence.node(*key).planned()
            most = evidence.params.micro_batches
            plans[key] = seen.y.numpy(), [np.array_split(rows, min(most, len(rows))) for rows in plan]
        message, (y, parts) = one.message, plans[key]
        yield *key, message.values, y[parts[message.step][message.part]]


def _seen_by_party(evidence: Evidence, node: str | None) -> Seen:
    """Of every message of `vertical`. The true labels are those of the samples that the server's seed chooses among the
    common ones, whose order the server draws for each alignment."""
    server = evidence.names[evidence.roles["server"][0]]
    holder, draws = evidence.node(server), generator(evidence.seed, "role", server)
    aligned = {one.round: one.message.positions for one in evidence.messages("Aligned")}
    common, plans = np.zeros(0, np.int64), dict[int, list[np.ndarray]]()
    for one in evidence.messages("Begin"):
        if one.message.align:
            draws.bytes(POINT)
            order = draws.permutation(holder.ids())
            common = order[aligned.get(one.round, np.zeros(0, np.int64))]
        plans[one.round] = [common[rows] for rows in holder.plan(len(common), one.message.seed)] if len(common) else []
    for party in [evidence.names[k] for k in evidence.roles["client"]] if node is None else [node]:
        for one in evidence.messages("Gradients", to=party):
            yield party, one.round, one.message.values, holder.labels_of(plans[one.round][one.message.step])


_VIEWS = {"u_split": (("HeadGradients",), _seen_by_server),
          "vertical": (("Begin", "Aligned", "Gradients"), _seen_by_party)}


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
