"""Blocks behind real noise of pairs and of their own clients, in the stages of the pairwise protocol (double masking).

    m_k = c_k ghat_k + eta_k + sum_{v in N(k)} Delta_kv + Delta(b_k)

The server gets shares of the keys of the dropped and of the b_k of those that were heard, never both of one client. Of
a client that is said to have dropped out and then is late, it knows the noise of the pairs; Delta(b_k) keeps that
message at mu of the round (`Settings.sigma_self`). Of those that were heard it knows Delta(b_k), and not the noise of
the pairs: what it sees in the end is as of `emul.schemes.mp_dp.real`. All noise is on ghat alone. Reals travel as
words of 32 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emul.primitives.dp.laws import pair_noise, seed_noise
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.settings import Settings
from emul.protocols.pairwise.hand import Encode
from emul.protocols.pairwise.messages import Masked
from emul.roles import Vector


@dataclass(frozen=True)
class DoubleNoise:
    """The agreed noise of a round: mask and unmask as `contribute` and `secure_sum` take them."""

    s: Settings
    opening: Disguised
    d: int

    @property
    def sigma_self(self) -> float:
        """Standard deviation of Delta(b)."""
        return self.s.sigma_self(self.opening.sigma_eta, self.opening.sigma_delta)

    def masked(self, i: int, b: bytes, seeds: Mapping[int, bytes], values: Vector, samples: int, encode: Encode,
               ) -> tuple[np.ndarray, float]:
        """(m_i, (S d,) reals of the agreed type; what `encode` says of clipping)."""
        x, clipped = encode(values, samples)
        noisy = x.copy()
        noisy[:self.d] += self._pairs(i, seeds) + self._own(b)
        return noisy.astype(self.s.word), clipped

    def unmasked_sum(self, masked: Mapping[int, Masked], self_seeds: Mapping[int, bytes],
                     dropped: Mapping[int, Mapping[int, bytes]], words: int) -> tuple[np.ndarray, int]:
        """((S d,) float64, the sum over those that were heard; draws of noise). The noise that a dropped client would
        have added cancels the noise that its neighbours have added for it."""
        total = np.array([m.y.view(self.s.word) for m in masked.values()], np.float64).sum(0)
        for i in sorted(self_seeds):
            total[:self.d] -= self._own(self_seeds[i])
        for j in sorted(dropped):
            total[:self.d] += self._pairs(j, dropped[j])
        return total, len(self_seeds) + sum(map(len, dropped.values()))

    def _pairs(self, i: int, seeds: Mapping[int, bytes]) -> np.ndarray:
        return pair_noise(i, seeds, self.d, self.opening.sigma_delta, self.s.noise)

    def _own(self, b: bytes) -> np.ndarray:
        return seed_noise(b, self.d, self.sigma_self, self.s.noise)
