"""One round of EBS-CFL without nodes, for tests: keys, uploads of random updates, what the server makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.primitives.robust.rfca import Clustered, Weighting, rfca
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.masking.keys import (
    DealerKeys,
    ServerKeys,
    SktMask,
    Zeta,
    draw_keys,
    server_keys,
    verification_keys,
)
from emul.schemes.ebs_cfl.masking.rounds import Order, Trust, directions_of, group_sums, trust


@dataclass
class Masked:
    """A round: participants S, of whom those in `uploads` have answered."""

    keys: DealerKeys
    seed: int
    references: np.ndarray                  # (m, l)
    clusters: dict[int, int]                # S -> its choice
    updates: dict[int, np.ndarray]          # S -> (l,)
    rows: dict[int, np.ndarray]             # S -> R_i
    uploads: dict[int, np.ndarray]

    @property
    def shape(self) -> Shape:
        return self.keys.shape

    @property
    def server(self) -> ServerKeys:
        return server_keys(self.keys)

    def group_of(self, i: int) -> int:
        return next(g for g, group in enumerate(self.shape.groups) if i in group)

    def alphas(self, weighting: Weighting = "joint", full: bool = False) -> list[dict[int, np.ndarray]]:
        """{client: alpha_i} of each set."""
        h, found = rounds.directions(self.references), []
        for which, Gamma in enumerate(rounds.gammas(self.shape, self.keys.A, h, weighting)):
            if full:
                tensors = [rounds.full(self.keys, group, Gamma) for group in self.shape.groups]
                found.append({i: rounds.encoded_by_tensor(tensors[self.group_of(i)], u)
                              for i, u in self.uploads.items()})
            else:
                factors = {i: rounds.factor(rounds.compact(self.keys.members[i], Gamma, which), Gamma)
                           for i in self.uploads}
                found.append({i: rounds.encoded(factors[i], rounds.product(Gamma, u)) for i, u in self.uploads.items()})
        return found

    def trusts(self, weighting: Weighting = "joint", full: bool = False) -> list[Trust]:
        return [trust(self.shape, self.server, each) for each in self.alphas(weighting, full)]

    def result(self, weighting: Weighting = "joint", order: Order = "reassociated", full: bool = False,
               correction: np.ndarray | None = None) -> np.ndarray:
        """(m, l), by the masks."""
        return directions_of(self.shape, self.server, group_sums(self.shape, self.uploads),
                             self.trusts(weighting, full), order, correction)

    def plain(self, weighting: Weighting = "joint") -> Clustered:
        """The same in the clear."""
        return rfca([self.updates[i] for i in self.uploads], [self.clusters[i] for i in self.uploads],
                    self.references, weighting)

    def error(self, weighting: Weighting = "joint", **how: object) -> float:
        """Largest difference between both, of an entry."""
        return float(np.abs(self.result(weighting, **how) - self.plain(weighting).directions).max())  # type: ignore

    def corrected(self) -> np.ndarray:
        return rounds.correction(self.keys, self.rows, list(self.uploads))

    def checked(self, i: int, delta: np.ndarray, how: str = "per_segment", sigma: float = 1.0) -> str:
        """What is wrong with an upload that says it is client i's."""
        e = rounds.expected(dict(enumerate(self.keys.members)), self.rows)[sorted(self.rows).index(i)]
        vk = verification_keys(self.keys)[self.group_of(i)]
        return rounds.wrong(delta, vk, e, sigma, self.shape.d, how)  # type: ignore[arg-type]


def masked_round(n: int, m: int, l: int, t: int, q: int = 1, *, seed: int = 1,          # noqa: E741
                 participants: list[int] | None = None,
                 missing: tuple[int, ...] = (), zeta: Zeta = "traceless", skt_mask: SktMask = "off", sigma: float = 1.0,
                 pull: float = 0.5, laplace: bool = False, verify: str = "per_segment", keys: DealerKeys | None = None,
                 number: int = 1,
                 layers: tuple[int, ...] = ()) -> Masked:
    """Updates are `pull` times the reference of a random cluster plus noise."""
    rng = np.random.Generator(np.random.Philox(key=seed * 1000 + number))
    keys = keys or draw_keys(Shape(n, m, l, t, q, layers), seed, zeta, skt_mask, verify)  # type: ignore[arg-type]
    S = list(range(n)) if participants is None else participants
    references = np.random.Generator(np.random.Philox(key=seed)).standard_normal((m, l))
    clusters = {i: int(rng.integers(0, m)) for i in S}
    noise = rng.laplace if laplace else rng.normal
    updates = {i: (pull * references[clusters[i]] + noise(0, 1, l)).astype(np.float32) for i in S}
    rows = rounds.mask_rows(keys, seed, (number, 0), S, sigma)
    uploads = {i: rounds.upload(keys.shape, updates[i], clusters[i], keys.A, keys.members[i].P[0],
                                rounds.round_key(keys.members[i], rows[i])) for i in S if i not in missing}
    return Masked(keys, seed, references, clusters, updates, rows, uploads)
