"""The setting that all roles of a PPFPL run share, and the costs of its computations where nothing is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Parameters
from emul.schemes.ppfpl.decisions import WeightRule
from emul.schemes.ppfpl.keys import KeyPlan
from emul.schemes.ppfpl.messages import CiphertextSizes
from emul.schemes.ppfpl.slots import Layout

# Seconds of CPU for one ciphertext, of 8192 coefficients (after _C: of 16384), as TenSEAL 0.3.18 took them on the
# machine whose numbers stand in docs/schemes/ppfpl.md. `benchmarks/bench_ppfpl.py` measures them anew
SECONDS = {"encrypt": 4.5e-3, "decrypt": 0.7e-3, "norm": 4.8e-3, "class_sum": 0.8e-3, "products": 6.4e-3,
           "signs": 4e-3, "combine": 5.4e-3, "check_norm": 1.1e-3, "square_norms": 1.1e-3, "pack": 4.5e-3,
           "unpack": 1.1e-3, "decide": 1.1e-3, "reencrypt": 10.7e-3, "start_C": 45e-3, "iterate_C": 45e-3,
           "mask_C": 13e-3, "refresh_C": 19e-3, "excess_C": 14e-3, "decide_C": 3e-3, "pack_C": 18e-3}
ROTATED = 13.5e-3                         # the cost of a sum of all slots by rotations, beside
KEYGEN_S, KEYGEN_GALOIS_S, KEYGEN_C_S = 0.1, 0.43, 0.22
LOAD_S, LOAD_GALOIS_S, LOAD_C_S = 0.055, 0.12, 0.11


@dataclass(frozen=True)
class PpfplSetting:
    """One run's."""

    rule: WeightRule
    layout: Layout
    real: bool                          # he: ckks
    upload_deadline_s: float | None
    server_timeout_s: float | None

    @property
    def frames(self) -> CiphertextSizes:
        """The sizes that receivers demand of ciphertexts."""
        return CiphertextSizes(self.layout, self.real)

    @property
    def scheme(self) -> KeyPlan:
        """The pairs of keys."""
        return KeyPlan(self.real, not self.layout.packed, self.iterates)

    @property
    def iterates(self) -> bool:
        """True if the servers go through the iterated maximum."""
        return self.rule.compare == "max_iter" and self.rule.weight != "uniform"

    @property
    def packs(self) -> Parameters:
        """Under which the verifier packs its values."""
        return COMPARISON if self.iterates else PROTOTYPES

    def cost_s(self, label: str, ciphers: int = 1, sums: int = 0) -> float | None:
        """The cost that is charged for so many ciphertexts; None for real ones: they cost the time that they take.
        sums: of slots, by rotations where classes are not packed."""
        if self.real:
            return None
        return ciphers * SECONDS[label] + (0.0 if self.layout.packed else sums * ROTATED)

    @property
    def keygen_s(self) -> float | None:
        """The cost that is charged for making all pairs of keys."""
        return None if self.real else KEYGEN_S + (not self.layout.packed) * KEYGEN_GALOIS_S + self.iterates * KEYGEN_C_S

    def load_s(self, role: str) -> float | None:
        """The cost that is charged for making a role's keys ready."""
        galois, c = role == "aggregator" and not self.layout.packed, role != "client" and self.iterates
        return None if self.real else LOAD_S + galois * LOAD_GALOIS_S + c * LOAD_C_S
