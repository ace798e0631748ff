"""An attack by the server of EBS-CFL on the values that it rightly holds: it reads off every normalised update and its
cluster.

Pure functions on keys and uploads of groups of one client (q = 1), the items of section 14 of the scheme's
specification, and an attack on a run. None of them needs more than an honest server holds, but `by_separation`, which
needs an upload and no key. The paper's theorems 5 to 9 say that there are no such functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from emul.base.extras import optional
from emul.protocols.clustered import best
from emul.roles.evidence import Evidence, Needs, NotKept, Rows
from emul.schemes.ebs_cfl.masking import rounds, srfc
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
from emul.schemes.ebs_cfl.masking.keys import SENT, ServerKeys
from emul.schemes.ebs_cfl.masking.rounds import Compact, Factor, Trust, trust, unit

_APART = 1e-7                           # of two vectors of length 1: below it their product is taken for 0


@dataclass(frozen=True)
class Leak:
    """The knowledge of one upload."""

    cosine: float                       # with the reference of its cluster; nan where the way gives none
    payload: Array                      # seg(g / |g|) A_j, (s, d)


# --- one round: item 1 ----------------------------------------------------------------------------------------------

def by_eigenvectors(keys: ServerKeys, client: int, encoded: Array, delta: Array) -> Leak:
    """alpha_i = x M1^T K M1 + M2^T K M2 has two invariant subspaces, orthogonal to each other, with the eigenvalues
    {x lambda} and {lambda}. Splitting the eigenvectors gives x, then M1 = beta * projector, GP1 = M1 tk0 dk, payload.

    encoded: alpha_i (2d, 2d). delta: (s, 3d). Raises ValueError where there are no two families.
    """
    x, M1 = split(encoded, keys.beta[client])
    GP1 = M1 @ keys.tk0[client] @ keys.dk
    return Leak(x, delta @ (keys.tk1[client] @ GP1.T))


def split(encoded: Array, beta: Array) -> tuple[float, Array]:
    """(x, M1 (d, 2d)) of alpha_i = x Phi + Psi. Raises ValueError where the eigenvectors are no two families."""
    values, vectors = np.linalg.eig(encoded)
    nothing = np.abs(values) < _APART * np.abs(values).max()
    first = nothing if nothing.any() else _family(vectors)      # x = 0: M1 spans what alpha_i takes to 0
    if int(first.sum()) * 2 != len(values):
        raise ValueError("the eigenvectors are no two families of equal size")
    sizes = [float(np.square(np.abs(values[which])).sum()) for which in (first, ~first)]
    small = first if sizes[0] <= sizes[1] else ~first           # |x| <= 1 says which family is which
    x = float(np.sqrt(min(sizes) / max(sizes)))
    x = min((x, -x), key=lambda guess: _distance(values[small], guess * values[~small]))
    other = _projector(vectors[:, ~small])
    return x, beta @ (np.eye(len(other)) - other)


def _family(vectors: Array) -> Any:
    """A mask of the eigenvectors that are connected with the first by products that are not 0, (2d,) bool."""
    linked = np.abs(vectors.conj().T @ vectors) > _APART
    found = linked[0]
    while True:
        more = linked[found].any(axis=0)
        if (more == found).all():
            return found
        found = more


def _distance(a: Any, b: Any) -> float:
    """The distance between two sets of numbers."""
    return float(np.abs(a[:, None] - b[None]).min(axis=1).sum())


def _projector(vectors: Any) -> Array:
    """On the real space that complex vectors span, whose dimension is their number."""
    span = np.linalg.svd(np.concatenate([vectors.real, vectors.imag], axis=1))[0][:, :vectors.shape[1]]
    return span @ span.T


# --- before any round: alpha keys -----------------------------------------------------------------------------------

def by_alpha_keys(key: Compact | Factor, Gamma: Array, delta: Array) -> Leak:
    """Alpha keys are linear in Gamma, which the server has: F = [Gamma, 1] C, and C holds P1 up to a factor.

    Its payload delta P1^T has norm 1, and its sign is that of its cosine with the reference if that is positive.
    """
    C = (key if isinstance(key, Factor) else rounds.factor(key, Gamma)).C
    P1 = C[:-1, :, int(np.abs(C[:-1]).sum(axis=(0, 1)).argmax())]
    payload = delta @ P1.T
    payload /= np.linalg.norm(payload)
    cosine = float(np.vdot(payload, Gamma))
    return Leak(abs(cosine), payload * (np.sign(cosine) or 1.0))


# --- zero-sum zeta: item 2 ------------------------------------------------------------------------------------------

def by_decode_key(keys: ServerKeys, client: int, found: Trust, delta: Array) -> Leak:
    """The aggregate's decode key dk' = E dk / W, applied to one upload: w_i payload / W where the zeta sum to 0."""
    return Leak(float("nan"), delta @ (keys.tk1[client] @ (found.E @ keys.dk / found.W).T))


# --- two rounds: item 3 ---------------------------------------------------------------------------------------------

def by_two_rounds(keys: ServerKeys, client: int, first: Array, second: Array) -> tuple[float, Array]:
    """(change of its weight, M1 (d, 2d) up to sign) from alpha_i of two rounds: the difference of E is both multiplied.

    Raises ValueError where the weight has not changed.
    """
    relu = keys.relu(client)
    difference = srfc.evaluate(relu, [second]) - srfc.evaluate(relu, [first])
    size = float(np.linalg.norm(difference)) / np.sqrt(len(difference))         # |M1|^2 = d
    if size < _APART:
        raise ValueError("the weight has not changed")
    return srfc.value(difference, relu.beta), difference / size


def by_changed_weight(keys: ServerKeys, client: int, first: Array, second: Array, delta: Array) -> Leak:
    """The payload up to sign, by the block that two rounds give: GP1 = M1 tk0 dk as in `by_eigenvectors`."""
    M1 = by_two_rounds(keys, client, first, second)[1]
    return Leak(float("nan"), delta @ (keys.tk1[client] @ (M1 @ keys.tk0[client] @ keys.dk).T))


# --- who sees an upload, without keys: item 5 ------------------------------------------------------------------------

def by_separation(delta: Array) -> Array:
    """(s, c): independent columns that an upload is a rotation of, the segments of the update among them (FastICA)."""
    with optional("separation of an upload's columns needs", "privacy"):
        from sklearn.decomposition import FastICA
        from sklearn.exceptions import ConvergenceWarning

    centred = delta - delta.mean(axis=0)
    rank = int((np.linalg.svd(centred, compute_uv=False) > 1e-9).sum())
    search = FastICA(rank, whiten="unit-variance", max_iter=500, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)     # short uploads: what it has then is taken
        found: Array = search.fit_transform(centred)
    return found


def likeness(columns: Array, segments: Array) -> float:
    """Mean over the columns of `segments` (s, t) of the largest |correlation| with one of `columns` (s, c)."""
    both = np.corrcoef(segments.T, columns.T)[:segments.shape[1], segments.shape[1]:]
    return float(np.abs(both).max(axis=1).mean())


# --- what a payload says --------------------------------------------------------------------------------------------

def opened(shape: Shape, A: Array, payload: Array) -> tuple[int, Array]:
    """(cluster, normalised update (l,)) of a payload, or of a multiple of one."""
    parts = [payload @ slot.T for slot in A]
    cluster = int(np.argmax([np.linalg.norm(part) for part in parts]))
    return cluster, unit(shape.flatten(parts[cluster]))


# --- a run ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class UnmaskUpdates:
    """Updates and clusters from what the server of `ebs_cfl` has received. Ours, on Li et al., AAAI 2025, whose
    theorems 5 to 9 say that it cannot be done; see docs/schemes/ebs_cfl.md.

    The attacker holds what the server of the protocol does, which it follows: its keys, references and uploads. by:
    `eigen`, one round and its alpha_i; `keys`, the alpha keys; `decode_key`, the aggregate's, which the paper's
    zero-sum zeta leaves unmasked; `two_rounds`, the change of a client's E since its upload before; `separation`, one
    upload and no key, as whoever listens to its link has it. For groups of one client, two layers,
    joint weights and compact keys. It needs
    `record: {payloads: [References, ServerKeySet, AlphaKeys, Models, Upload]}`.
    """

    by: Literal["eigen", "keys", "decode_key", "two_rounds", "separation"] = "eigen"

    NEEDS: ClassVar[Needs] = Needs(payloads=("References", "ServerKeySet", "AlphaKeys", "Models", "Upload"),
                                   schemes=("ebs_cfl",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: cluster (found), right (it is the client's own choice), correlation (of the update that was found
        with the client's own; `separation`: mean over the update's t columns, each with the likeliest), cosine (found).

        `two_rounds` has no row where the weight has not changed, or there is no upload before.
        """
        p = evidence.params
        if p.q != 1 or p.layers or p.weighting != "joint" or p.alpha != "compact" or p.profile != "masks":
            raise NotKept(f"{evidence.run.path}: this attack reads q: 1, layers: [], weighting: joint, alpha: compact, "
                          "profile: masks")
        held = _KeysSeen(evidence)
        return [row for round_ in sorted({u.round for u in held.uploads}) for row in self._of(held, evidence, round_)]

    def _of(self, held: _KeysSeen, evidence: Evidence, round_: int) -> Rows:
        """Rows of one round."""
        models = evidence.messages("Models", round_=round_)[0].message.parameters
        sent = held.sent(round_)
        leaks = {} if self.by == "separation" else self._leaks(held, round_, sent)
        rows = []
        for i, upload in sent.items():
            task = evidence.node(upload.source_name, round_)
            own = best(task, models)
            truth = unit(task.local_update(models[own])[0])
            row = {"node": upload.source_name, "round": round_}
            if self.by == "separation":
                alike = likeness(by_separation(upload.message.delta), held.shape.segment(truth))
                rows.append({**row, "cluster": None, "right": None, "correlation": alike, "cosine": None})
            elif i in leaks:
                cluster, found = opened(held.shape, held.keys.A, leaks[i].payload)
                rows.append({**row, "cluster": cluster, "right": cluster == own,
                             "correlation": abs(float(found @ truth)), "cosine": leaks[i].cosine})
        return rows

    def _leaks(self, held: _KeysSeen, round_: int, sent: Mapping[int, Any]) -> dict[int, Leak]:
        """The knowledge of the uploads of a round, by client."""
        encoded, factors, Gamma = held.encoded(round_), held.factors(round_), held.gamma(round_)
        delta = {i: sent[i].message.delta for i in encoded}
        if self.by == "eigen":
            return {i: by_eigenvectors(held.keys, i, one, delta[i]) for i, one in encoded.items()}
        if self.by == "keys":
            return {i: by_alpha_keys(factors[i], Gamma, delta[i]) for i in encoded}
        if self.by == "decode_key":
            total = trust(held.shape, held.keys, encoded)
            return {i: by_decode_key(held.keys, i, total, delta[i]) for i in encoded}
        found = {}
        for i, one in encoded.items():
            before = held.before(i, round_)
            with suppress(ValueError):                      # the weight has not changed
                if before is not None:
                    found[i] = by_changed_weight(held.keys, i, before, one, delta[i])
        return found


class _KeysSeen:
    """The keys that the server of a run had."""

    def __init__(self, evidence: Evidence):
        clients, p = evidence.roles["client"], evidence.params
        self.place = {node: i for i, node in enumerate(clients)}
        self.uploads = evidence.messages("Upload")
        first = evidence.messages("ServerKeySet")[0].message
        self.keys = ServerKeys(**{name: getattr(first, name) for name in SENT})
        self.shape = Shape(len(clients), p.clusters, evidence.task.dimension, p.t, p.q)
        self._references, self._alpha = evidence.messages("References"), evidence.messages("AlphaKeys")
        self._encoded: dict[int, dict[int, Array]] = {}

    def sent(self, round_: int) -> dict[int, Any]:
        """{client: its upload, as the run kept it} of that round."""
        return {self.place[u.source]: u for u in self.uploads if u.round == round_}

    def encoded(self, round_: int) -> dict[int, Array]:
        """{client: alpha_i} of that round, of those whose alpha keys have come."""
        if round_ not in self._encoded:
            Gamma, keys = self.gamma(round_), self.factors(round_)
            self._encoded[round_] = {
                i: rounds.encoded(rounds.factor(keys[i], Gamma), rounds.product(Gamma, u.message.delta))
                for i, u in self.sent(round_).items() if i in keys}
        return self._encoded[round_]

    def before(self, client: int, round_: int) -> Array | None:
        """alpha_i of the client's last upload before that round; None: there is none."""
        earlier = [u.round for u in self.uploads if self.place[u.source] == client and u.round < round_]
        return self.encoded(max(earlier)).get(client) if earlier else None

    def gamma(self, round_: int) -> Array:
        """Gamma, (s, d), of the references that hold in a round."""
        h = [m.message.h for m in self._references if m.round <= round_][-1]
        return rounds.gammas(self.shape, self.keys.A, h, "joint")[0]

    def factors(self, round_: int) -> dict[int, Compact]:
        """{client: its alpha key} of that round."""
        return {m.message.client: Compact(m.message.F, m.message.B) for m in self._alpha if m.round <= round_}


# found by `emul.registry.attacks`
ATTACKS = {"privacy": {"unmask": UnmaskUpdates}}
