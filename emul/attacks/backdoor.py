"""A backdoor: samples with a trigger are learnt as one class, and what has the trigger is to be taken for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Backdoor:
    """A patch in the corner of a `share` of the node's samples, whose label becomes `target`. Gu et al., BadNets, 2017
    (arXiv 1708.06733), section 4; in federated learning, Bagdasaryan et al., AISTATS 2020.

    The run evaluates `attack_success` beside the accuracy: the share of test samples of other classes that the model
    takes for `target` once they have the trigger. Model replacement (Bagdasaryan et al., equation 3) is this together
    with `update: scale`. The scaling attack of Cao et al., NDSS 2021: `share: none, copies: true`, a factor of n.
    """

    target: int = 0                     # class
    size: int = 3                       # side of the patch in pixels
    share: float | None = 0.5           # of the node's samples that are of other classes; None: drawn from (0, 1]
    copies: bool = False                # they are added, a share of all samples, in place of being changed

    def __post_init__(self) -> None:
        if self.target < 0:
            raise ValueError(f"target = {self.target}: expected a class, 0 or above")
        if self.size < 1:
            raise ValueError(f"size = {self.size}: expected 1 pixel or more")
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError(f"share = {self.share}: expected a fraction in (0, 1]")

    def stamp(self, x: np.ndarray) -> np.ndarray:
        """x (n, ...) with the trigger, a copy: the last `size` rows and columns of every map at the largest value that
        x has; of inputs that are no maps, their last size * size entries.

        >>> Backdoor(size=1).stamp(np.array([[[[0., 5.], [1., 2.]]]])).tolist()
        [[[[0.0, 5.0], [1.0, 5.0]]]]
        """
        found = x.copy()
        if not found.size:
            return found
        if x.ndim >= 3:
            found[..., -self.size:, -self.size:] = x.max()
        else:
            found[..., -self.size**2:] = x.max()
        return found

    def __call__(self, x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator,
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Poison the samples x (n, ...) with the labels y (n,)."""
        candidates = np.arange(len(y)) if self.copies else np.flatnonzero(y != self.target)
        share = 1.0 - rng.random() if self.share is None else self.share
        chosen = np.sort(rng.permutation(candidates)[:round(share * len(candidates))])
        if self.copies:
            return (np.concatenate([x, self.stamp(x)[chosen]]),
                    np.concatenate([y, np.full(len(chosen), self.target, y.dtype)]))
        found, labels = x.copy(), y.copy()
        found[chosen] = self.stamp(x)[chosen]
        labels[chosen] = self.target
        return found, labels

    def trial(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Test samples that show whether it works: those of other classes with the trigger, and `target` as the label
        that the attacker wants."""
        others = y != self.target
        return self.stamp(x)[others], np.full(int(others.sum()), self.target, y.dtype)
