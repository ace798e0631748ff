"""PowerSGD: each matrix of a model as the product of two thin ones. Vogels, Karimireddy, Jaggi, NeurIPS 2019, Alg. 1.

    P = orthogonalise(M Q);  Q <- M^T P;  sent: P, Q;  decoded: P Q^T          M: (n, m), one step of power iteration

Q is the one of the sender's last vector (warm start), at first drawn. A tensor of more dimensions is a matrix of its
first one; vectors, and matrices that two thin ones would not make smaller, go as they are. Deviation: in the paper
workers average P and then Q by two all-reduces and so factor their mean; here each client factors its own vector, in
one message, and the mean of the products has a rank of up to n r.

Bytes: 4 (sum over matrices of r (n + m), r = min(rank, n, m), plus all other numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emul.primitives.compress.codec import Codec, Floats, Octets, Reader, Shapes, finite, joined, sendable


@dataclass(frozen=True)
class PowerSGD(Codec):
    """Each matrix as P Q^T of `rank`, with a warm start. Vogels et al., NeurIPS 2019.

    Bytes: 4 (sum of r (n + m) + all other numbers)
    """

    rank: int = 2
    feedback: bool = True
    _shapes: Shapes = ()                # of the tensors of a vector; (): it is one vector

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank = {self.rank}: expected at least 1")

    @property
    def unbiased(self) -> bool:
        return False

    def shaped(self, shapes: Shapes) -> PowerSGD:
        """The same for vectors that are made of tensors of these shapes."""
        return replace(self, _shapes=shapes)

    def encode(self, x: Floats, rng: np.random.Generator, warm: Any = None) -> tuple[Octets, object]:
        """Tensor by tensor: P and Q, or its numbers."""
        parts: list[np.ndarray] = []
        kept: list[Floats] = []
        before, at = iter(warm or ()), 0
        for n, m, r in self._tensors(len(x)):
            values, at = x[at:at + n * m], at + n * m
            if not r:
                parts.append(values)
                continue
            matrix = values.reshape(n, m)
            q = next(before) if warm else rng.standard_normal((m, r), np.float32)
            p = np.linalg.qr(matrix @ q)[0]
            q = sendable(matrix.T @ p)
            parts += [sendable(p), q]
            # a vector of zeros leaves no direction to begin with
            kept.append(q if q.any() else rng.standard_normal((m, r), np.float32))
        return joined(parts), kept

    def decode(self, code: Octets, d: int) -> Floats:
        reader, parts = Reader(code), []
        with np.errstate(over="ignore", invalid="ignore"):
            for n, m, r in self._tensors(d):
                if r:
                    p, q = reader.numbers("<f4", n * r).reshape(n, r), reader.numbers("<f4", m * r).reshape(m, r)
                    parts.append((p @ q.T).reshape(-1))
                else:
                    parts.append(reader.numbers("<f4", n * m))
        reader.end()
        return finite(np.concatenate(parts))

    def nbytes(self, d: int) -> int:
        return 4 * sum(r * (n + m) if r else n * m for n, m, r in self._tensors(d))

    def _tensors(self, d: int) -> list[tuple[int, int, int]]:
        """(n, m, rank) of each tensor as a matrix; rank 0: it goes as it is."""
        found = []
        for shape in self._shapes or ((d,),):
            n, m = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (math.prod(shape), 1)
            r = min(self.rank, n, m)
            found.append((n, m, r if len(shape) > 1 and r * (n + m) < n * m else 0))
        return found
