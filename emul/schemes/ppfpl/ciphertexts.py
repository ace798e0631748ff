"""`emul.schemes.ppfpl.decisions` on ciphertexts: what each of two servers computes, step by step.

The aggregator A holds no secret key; the verifier V decrypts under v, sees masked values only, and encrypts again under
the clients' key x. Zhang et al., arXiv 2504.03173, with additive masks that are fresh for each ciphertext:

    A   norm        Enc_v(x o x) + zero-sum mask                    V   check_norm      |u_mk|^2 of each block
    A   class_sum   T = sum x_m;  Enc_v(T o T) + zero-sum mask      V   square_norms    |T_k|^2, to 1e-6
    A   products    Enc_v(x o T) + mask of sum rho;  x + R          V   pack            s_mk + rho_mk in one vector
    A   signs       Enc_v(p (s - chi |T|)), p fresh for each pair   V   decide          b_mk
    V   reencrypt   Enc_x(b (s + rho)), Enc_x(x + R)                A   combine         Enc_x(C)

With `compare: max_iter` the sign is replaced by an iterated maximum under a third pair c (`start` .. `excess_of`), of
which V refreshes values behind masks; V then sees p_k h. Ciphertexts go in and come out as rows (`Box.seal`), so that
every result is plain data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.base.errors import ProtocolViolation
from emul.primitives.crypto.prg import prg
from emul.primitives.he.ckks import Box, Cipher
from emul.schemes.ppfpl.decisions import LEAST, WeightRule, iterate
from emul.schemes.ppfpl.slots import Layout, uniform, zero_sum

NORM_TOLERANCE = 1e-3                   # of |u|^2, which is 1
ACCEPT = 1e-6                           # of a masked excess: its noise is 3e-7 at most
C_LEVELS = 6                            # rescales that a fresh ciphertext under c bears
_DIGITS = 6                             # of |T|^2, as V tells it: what it decrypts is rounded, since A knows the cipher

Rows = np.ndarray                       # (ciphertexts, entries): sealed
Pair = tuple[int, int]                  # (client, class)


@dataclass(frozen=True)
class Cohort:
    """Clients and the classes that each holds, which says what lies where in the messages of the two servers."""

    layout: Layout
    held: Mapping[int, tuple[int, ...]]     # client -> its classes, ascending; clients ascending

    def sent(self) -> list[Pair]:
        """(client, row) of each client's ciphertexts, in their order."""
        return [(m, row) for m, own in self.held.items() for row in self.layout.rows_of(own)]

    def pairs(self, classes: Sequence[int] | None = None) -> list[Pair]:
        """(client, class) of all prototypes, of these classes; None: of all."""
        return [(m, k) for m, own in self.held.items() for k in own if classes is None or k in classes]

    def rows(self) -> list[int]:
        """Rows of the table of class sums, ascending."""
        return sorted({row for own in self.held.values() for row in self.layout.rows_of(own)})

    def only(self, clients: Sequence[int]) -> Cohort:
        """Of these clients."""
        among = set(clients)
        return Cohort(self.layout, {m: own for m, own in self.held.items() if m in among})

    def by_class(self, values: Mapping[Pair, float], client: int) -> dict[int, float]:
        """{class: value} of one client."""
        return {k: values[client, k] for k in self.held[client] if (client, k) in values}


# --- norms --------------------------------------------------------------------------------------------------------

def readable(box: Box, uploads: Mapping[int, Rows]) -> dict[int, str]:
    """{client: why its upload is no ciphertext}, of those whose upload is none."""
    found = {}
    for m, rows in uploads.items():
        try:
            box.open(rows)
        except ProtocolViolation as e:
            found[m] = str(e)
    return found


def norm(box: Box, cohort: Cohort, uploads: Mapping[int, Rows], seed: bytes) -> Rows:
    """A: the squares of each client's rows, their blocks' sums left open. 1 rescale."""
    return _squares(box, cohort.layout, _opened(box, cohort, uploads), seed)


def _opened(box: Box, cohort: Cohort, uploads: Mapping[int, Rows]) -> list[Cipher]:
    """The ciphertexts that the clients have sent, in the order of `cohort.sent`."""
    return [cipher for m in cohort.held for cipher in box.open(uploads[m])]


def _squares(box: Box, layout: Layout, ciphers: Sequence[Cipher], seed: bytes) -> Rows:
    if not layout.packed:
        return box.seal([box.total(cipher * cipher) for cipher in ciphers], 1)
    masks = zero_sum(seed, len(ciphers), layout)
    return box.seal([cipher * cipher + mask for cipher, mask in zip(ciphers, masks, strict=True)], 1)


def check_norm(box: Box, cohort: Cohort, squares: Rows) -> list[bool]:
    """V: whether every prototype of a client has length 1 and every other block is empty, by client."""
    sound = dict.fromkeys(cohort.held, True)
    for (m, row), cipher in zip(cohort.sent(), box.open(squares), strict=True):
        found = _block_sums(box, cohort.layout, cipher)
        wanted = np.zeros(len(found))
        for k in cohort.held[m]:
            of, place = cohort.layout.place(k)
            if of == row:
                wanted[place.start // cohort.layout.block] = 1.0
        sound[m] &= bool((np.abs(found - wanted) <= NORM_TOLERANCE).all())       # not of a NaN
    return list(sound.values())


def _block_sums(box: Box, layout: Layout, cipher: Cipher) -> np.ndarray:
    """(blocks,); of a `total` its one value."""
    found = box.decrypt(cipher)
    return layout.sums(found) if layout.packed else found[:1]


# --- class sums -----------------------------------------------------------------------------------------------------

def class_sum(box: Box, cohort: Cohort, uploads: Mapping[int, Rows], seed: bytes) -> tuple[Rows, Rows]:
    """A: (T by row, fresh; T o T, masked, 1 rescale)."""
    total: dict[int, Cipher] = {}
    for (_, row), cipher in zip(cohort.sent(), _opened(box, cohort, uploads), strict=True):
        total[row] = total[row] + cipher if row in total else cipher
    sums = [total[row] for row in cohort.rows()]
    return box.seal(sums, 0), _squares(box, cohort.layout, sums, seed)


def square_norms(box: Box, cohort: Cohort, squares: Rows) -> np.ndarray:
    """V: (J,) |T_k|^2, rounded; 0 of classes that nobody holds."""
    found = np.zeros(cohort.layout.classes)
    opened = dict(zip(cohort.rows(), box.open(squares), strict=True))
    sums = {row: _block_sums(box, cohort.layout, cipher) for row, cipher in opened.items()}
    for k in sorted({k for _, k in cohort.pairs()}):
        row, place = cohort.layout.place(k)
        found[k] = sums[row][place.start // cohort.layout.block if cohort.layout.packed else 0]
    return np.maximum(np.round(found, _DIGITS), 0.0)


def compared(cohort: Cohort, squares: np.ndarray) -> list[Pair]:
    """The pairs whose class sum is long enough to be compared with. squares: (J,), as V has told."""
    return cohort.pairs([k for k in range(len(squares)) if squares[k] >= LEAST**2])


# --- products -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Seeds:
    """Of A's masks in one round, 32 bytes each."""

    norm: bytes
    sums: bytes
    products: bytes
    rho: bytes
    R: bytes
    p: bytes

    def offsets(self, pairs: Sequence[Pair]) -> dict[Pair, float]:
        """rho_mk."""
        return dict(zip(pairs, uniform(self.rho, 1, len(pairs))[0].tolist(), strict=True))


def products(box: Box, cohort: Cohort, uploads: Mapping[int, Rows], T: Rows, pairs: Sequence[Pair],
             seeds: Seeds) -> tuple[Rows, Rows]:
    """A: (x o T with block sums hidden by rho, 1 rescale; x + R, fresh), by client and row."""
    layout, rho = cohort.layout, seeds.offsets(pairs)
    sums = dict(zip(cohort.rows(), box.open(T), strict=True))
    sent = cohort.sent()
    masks = zero_sum(seeds.products, len(sent), layout)
    R = uniform(seeds.R, len(sent), layout.slots)
    found, hidden = [], []
    for i, ((m, row), x) in enumerate(zip(sent, _opened(box, cohort, uploads), strict=True)):
        own = {k: v for k, v in cohort.by_class(rho, m).items() if layout.place(k)[0] == row}
        if layout.packed:
            for k, value in own.items():
                masks[i, layout.place(k)[1].start] += value
            found.append(x * sums[row] + masks[i])
        else:
            found.append(box.total(x * sums[row]) + own.get(row, 0.0))
        hidden.append(x + R[i])
    return box.seal(found, 1), box.seal(hidden, 0)


def hidden_products(box: Box, cohort: Cohort, masked: Rows, pairs: Sequence[Pair]) -> np.ndarray:
    """V: (pairs,) s + rho."""
    opened = dict(zip(cohort.sent(), box.open(masked), strict=True))
    sums = {at: _block_sums(box, cohort.layout, cipher) for at, cipher in opened.items()}
    found = np.zeros(len(pairs))
    for i, (m, k) in enumerate(pairs):
        row, place = cohort.layout.place(k)
        found[i] = sums[m, row][place.start // cohort.layout.block if cohort.layout.packed else 0]
    return found


def pack(box: Box, values: np.ndarray) -> Rows:
    """V: all pairs' values in as few ciphertexts as hold them, fresh."""
    return box.seal([box.encrypt(row) for row in _in_rows(values, box.slots)], 0)


def _in_rows(values: np.ndarray, slots: int) -> np.ndarray:
    """(rows, slots) of (pairs,), filled up with zeros."""
    found = np.zeros(max(1, -(-len(values) // slots)) * slots)
    found[:len(values)] = values
    return found.reshape(-1, slots)


# --- compare: masked_sign -----------------------------------------------------------------------------------------

def signs(box: Box, packed: Rows, pairs: Sequence[Pair], t: np.ndarray, chi: float, seeds: Seeds) -> Rows:
    """A: p (s - chi |T|), p log-uniform in 2^-4 .. 2^4, fresh for each pair. 1 rescale. t: (J,) |T_k|."""
    rho = seeds.offsets(pairs)
    limit = _in_rows(np.array([rho[m, k] + chi * t[k] for m, k in pairs]), box.slots)
    p = _in_rows(2.0**(_unit(seeds.p, len(pairs)) * 8 - 4), box.slots)
    return box.seal([(cipher - below) * factor for cipher, below, factor in zip(box.open(packed), limit, p,
                                                                                strict=True)], 1)


def decide(box: Box, masked: Rows, count: int) -> np.ndarray:
    """V: (pairs,) b."""
    found: np.ndarray = decrypted(box, masked, count) > ACCEPT
    return found


def decrypted(box: Box, rows: Rows, count: int) -> np.ndarray:
    """(count,): the slots of several ciphertexts, one after the other."""
    return np.concatenate([box.decrypt(cipher) for cipher in box.open(rows)])[:count]


def _unit(seed: bytes, count: int) -> np.ndarray:
    """(count,) uniform in [0, 1)."""
    found: np.ndarray = prg(seed, count) / 2.0**32
    return found


# --- compare: max_iter ----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Iterates:
    """q, a and u of all pairs under c, with the rescales of each."""

    q: Rows
    a: Rows
    u: Rows
    at: tuple[int, int] = (2, 2)        # of a and u; that of q is 1

    @property
    def spent(self) -> bool:
        """True if another iteration needs a refresh: fewer than three levels are left."""
        return C_LEVELS - max(self.at) < 3


def start(box: Box, packed: Rows, pairs: Sequence[Pair], t: np.ndarray, rule: WeightRule, seeds: Seeds) -> Iterates:
    """A: q = (s / |T| - chi) / 2, and a_0, u_0 of it."""
    rho = seeds.offsets(pairs)
    offset = _in_rows(np.array([rho[pair] for pair in pairs]), box.slots)
    scale = _in_rows(np.array([0.5 / t[k] for _, k in pairs]), box.slots)
    limit = _in_rows(np.full(len(pairs), rule.chi / 2), box.slots)
    root = (1.0 if rule.scaled else 0.5) / np.sqrt(2.0)
    q, a, u = [], [], []
    for cipher, rho_row, s, c in zip(box.open(packed), offset, scale, limit, strict=True):
        bare = cipher - rho_row
        q.append(bare * s - c)
        w = bare * (s * root) - c * root
        square = w * w
        a.append(square + square)
        u.append(square + -0.5)
    return Iterates(box.seal(q, 1), box.seal(a, 2), box.seal(u, 2))


def step(box: Box, now: Iterates) -> Iterates:
    """A: one iteration."""
    pairs = [iterate(a, u) for a, u in zip(box.open(now.a), box.open(now.u), strict=True)]
    at = (max(now.at) + 1, now.at[1] + 2)
    return Iterates(now.q, box.seal([a for a, _ in pairs], at[0]), box.seal([u for _, u in pairs], at[1]), at)


def masked(box: Box, now: Iterates, seed: bytes, sign: int = 1) -> Iterates:
    """A: a and u behind masks of full length; sign -1 takes them off."""
    masks = sign * uniform(seed, 2 * len(now.a), box.slots)
    a, u = ([cipher + mask for cipher, mask in zip(box.open(rows), part, strict=True)]
            for rows, part in ((now.a, masks[::2]), (now.u, masks[1::2])))
    return Iterates(now.q, box.seal(a, now.at[0]), box.seal(u, now.at[1]), now.at)


def refreshed(box: Box, rows: Rows) -> Rows:
    """V: the same values, fresh."""
    return box.seal([box.encrypt(box.decrypt(cipher)) for cipher in box.open(rows)], 0)


def references(classes: int, chi: float, seeds: Seeds) -> tuple[np.ndarray, np.ndarray]:
    """A: (p, p chi'), both (J,); p uniform in 0.5 .. 2, one for each class."""
    p = 0.5 + 1.5 * _unit(seeds.p, classes)
    return p, p * (1 + chi) / 2


def excess_of(box: Box, now: Iterates, pairs: Sequence[Pair], p: np.ndarray, scaled: bool) -> tuple[Rows, int]:
    """A: (p (h - chi'), its rescales)."""
    factor = _in_rows(np.array([p[k] for _, k in pairs]), box.slots)
    at = max(1, now.at[0]) + 1
    return box.seal([q * (f * 0.5) + a * (f * (0.5 if scaled else 1.0)) for q, a, f in
                     zip(box.open(now.q), box.open(now.a), factor, strict=True)], at), at


def decide_excess(box: Box, rows: Rows, pairs: Sequence[Pair], reference: np.ndarray, rule: WeightRule,
                  ) -> tuple[np.ndarray, np.ndarray]:
    """V: (b, p j), both (pairs,). reference: (J,) p chi'."""
    over = decrypted(box, rows, len(pairs))
    known = (1 + rule.chi) / 2
    ref = np.array([reference[k] for _, k in pairs])
    p = ref / known if known else np.ones(len(pairs))
    b = over > ACCEPT * p
    h = over + ref
    return b, np.where(b, h if rule.weight == "shifted" else 2 * h - p, 0.0)


# --- what comes out -------------------------------------------------------------------------------------------------

def reencrypt(v: Box, x: Box, cohort: Cohort, hidden: Rows, pairs: Sequence[Pair], j: np.ndarray,
              ) -> tuple[np.ndarray, Rows, Rows]:
    """V: (sums of j by class (J,); Enc_x of j over its blocks; Enc_x(x + R)), by client and row. j: (pairs,)."""
    values = dict(zip(pairs, j.tolist(), strict=True))
    sums = np.zeros(cohort.layout.classes)
    for (_, k), value in values.items():
        sums[k] += value
    spread = [x.encrypt(cohort.layout.spread(cohort.by_class(values, m), row)) for m, row in cohort.sent()]
    again = [x.encrypt(v.decrypt(cipher)) for cipher in v.open(hidden)]
    return sums, x.seal(spread, 0), x.seal(again, 0)


@dataclass(frozen=True)
class Weights:
    """A's knowledge of the weights: j_mk is the value that V has encrypted plus `offset`; scale_k j_mk is compared with
    LEAST."""

    b: Mapping[Pair, bool]
    offset: Mapping[Pair, float]
    total: Mapping[int, float]          # class -> sum of j

    @property
    def classes(self) -> list[int]:
        """Those that get a new prototype, ascending."""
        return sorted(self.total)


def weigh(pairs: Sequence[Pair], b: Sequence[bool], sums: np.ndarray, t: np.ndarray, scale: np.ndarray,
          rule: WeightRule, seeds: Seeds) -> Weights:
    """A: take rho off the sums. sums: (J,) as V has told; t: (J,) |T_k|; scale: (J,) what 1 weighs of a class."""
    kept = dict(zip(pairs, map(bool, b), strict=True))
    offset = dict.fromkeys(pairs, 0.0)
    if rule.weight != "uniform" and rule.compare == "masked_sign":
        rho = seeds.offsets(pairs)
        offset = {pair: (t[pair[1]] if rule.weight == "shifted" else 0.0) - rho[pair] if kept[pair] else 0.0
                  for pair in pairs}
    total, holders = {}, {}
    for k in sorted({k for _, k in pairs}):
        mine = [pair for pair in pairs if pair[1] == k]
        total[k] = float(sums[k]) + sum(offset[pair] for pair in mine)
        holders[k] = sum(kept[pair] for pair in mine)
    return Weights(kept, offset, {k: v for k, v in total.items()
                                  if v >= LEAST * scale[k] and holders[k] >= rule.min_holders})


def combine(box: Box, cohort: Cohort, values: Rows, hidden: Rows, weights: Weights, seeds: Seeds,
            ) -> tuple[list[int], Rows]:
    """A: (rows of the table, Enc_x(C) of them), those that have a class with a new prototype. 2 rescales."""
    layout, sent = cohort.layout, cohort.sent()
    R = uniform(seeds.R, len(sent), layout.slots)
    total: dict[int, Cipher] = {}
    for (m, row), j, u, mask in zip(sent, box.open(values), box.open(hidden), R, strict=True):
        part = (j + layout.spread(cohort.by_class(weights.offset, m), row)) * (u - mask)
        total[row] = total[row] + part if row in total else part
    rows = sorted({layout.place(k)[0] for k in weights.classes})
    inverse = {k: 1 / total_k for k, total_k in weights.total.items()}
    return rows, box.seal([total[row] * layout.spread(inverse, row) for row in rows], 2)
