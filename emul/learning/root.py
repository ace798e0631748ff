"""Root data: training samples that a trusted node holds, such as the server of FLTrust, and that no client has.

    task: {root: {samples: 100}}                          uniformly from the training set, without replacement
    task: {root: {samples: 100, bias: 0.5, class: 3}}     half of them of class 3, the others uniformly of other classes
    task: {root: {samples: 100, parts: labels}}           cut into parts by label, where a scheme asks for parts of it

`bias` is the bias probability of Cao et al., NDSS 2021, section V-A; with C classes 1 / C is next to none. Where the
task has clusters, each gives an equal share, and is one part. Deviation: the paper draws root data from the clients'
own, here clients do not have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.base.errors import EmulError
from emul.base.plain import PlainMapping
from emul.base.streams import generator

KEYS = ("samples", "bias", "class", "parts")


class RootError(EmulError):
    """The training set cannot give such root data."""


@dataclass(frozen=True)
class Root:
    """`root` of a task, read."""

    samples: int
    bias: float | None = None               # share of them that is of class `towards`; None: as they come
    towards: int = 0
    parts: Literal["random", "labels"] = "random"


def parse(spec: PlainMapping) -> Root:
    """`root` as a scenario writes it and `emul.scenario.task` has found it sound."""
    return Root(spec["samples"], spec.get("bias"), spec.get("class") or 0, spec.get("parts") or "random")


def draw(root: Root, labels: np.ndarray, clusters: np.ndarray | None, seed: int) -> np.ndarray:
    """The training samples that are root data: ascending indices (samples,) int64.

    labels: targets of the training set, (n, ...). clusters: (n,), or None. Raises RootError if there are too few.
    """
    if clusters is None:
        return np.sort(_drawn(root, labels, np.arange(len(labels)), root.samples, seed, 0))
    held = np.unique(clusters)
    share, more = divmod(root.samples, len(held))
    return np.sort(np.concatenate([_drawn(root, labels, np.flatnonzero(clusters == c), share + (i < more), seed, i)
                                   for i, c in enumerate(held)]))


def _drawn(root: Root, labels: np.ndarray, pool: np.ndarray, n: int, seed: int, cluster: int) -> np.ndarray:
    order = generator(seed, "root", cluster).permutation(pool)
    if root.bias is None:
        return _first(order, n, "training samples")
    of_class = labels[order] == root.towards
    chosen = round(root.bias * n)
    return np.concatenate([_first(order[of_class], chosen, f"training samples of class {root.towards}"),
                           _first(order[~of_class], n - chosen, "training samples of other classes")])


def _first(order: np.ndarray, n: int, what: str) -> np.ndarray:
    if n > len(order):
        raise RootError(f"root: needs {n} {what}, there are {len(order)}")
    return order[:n]


def part(root: Root, indices: np.ndarray, labels: np.ndarray, clusters: np.ndarray | None, c: int, m: int,
         seed: int) -> np.ndarray:
    """Part c of m of the root data `indices`: those of cluster c where there are clusters, which must then be m; else
    an m-th of them, by label or at random. labels, clusters: of the training set.

    Raises RootError if clusters are not m, or a part is empty.
    """
    if not 0 <= c < m:
        raise RootError(f"root: expected a part in 0..{m - 1}, found {c}")
    if clusters is not None:
        held = np.unique(clusters)
        if len(held) != m:
            raise RootError(f"root: {m} parts of data with {len(held)} clusters")
        found = indices[clusters[indices] == held[c]]
    else:
        order = generator(seed, "root", "parts").permutation(indices)
        if root.parts == "labels":
            order = order[np.argsort(labels[order], kind="stable")]
        found = np.sort(np.array_split(order, m)[c])
    if not len(found):
        raise RootError(f"root: part {c} of {m} is empty, there are {len(indices)} samples")
    return found
