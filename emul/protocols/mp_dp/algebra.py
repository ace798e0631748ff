"""The draws, clips and sums of MP-DP: the algebra of a round around the disguise of a model.

X. Yang et al., arXiv 2412.11737, sections 4 and 5, corrected: scales are positive, the additive part is divided by the
number of features, which costs fewer digits, and noise is of the laws that `emul.primitives.dp.laws` gives.

    server      secrets = drawn(...)             W^ = R o W + r
    client      ghat, Psi, Phi = blocks(...)     times c, plus noise on ghat
    server      g = R o (ghat - sum_c r_c Psi_c + v Phi)     of the mean of the blocks
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import ProtocolFailure
from emul.learning.disguise import BlockScalars, CannotBeDisguised, Disguise, Secrets, recovery_weights
from emul.learning.functional import Total
from emul.primitives.dp import laws
from emul.protocols.mp_dp.settings import Additive, Clip, Loss, Noise, Scales

if TYPE_CHECKING:
    from emul.learning.node_task import NodeTask

Vector = np.ndarray

_LEAST_SCALE = 1e-5                 # of the uniform law, as published
_DRAWS = 100                        # of secrets, until one keeps within the public bounds


class Unbounded(ProtocolFailure):
    """No draw of secrets has kept within the public bounds of `clip: bound`."""


@dataclass(frozen=True)
class Bounds:
    """The public bounds of the secrets with `clip: bound`: R <= scale = R_max and ||r||_2 <= output = rho."""

    scale: float
    output: float

    def keep(self, disguise: Disguise, secrets: Secrets) -> bool:
        """True if these secrets do, but for rounding."""
        return bool(disguise.multipliers(secrets).max() <= self.scale * (1 + 1e-9)
                    and np.linalg.norm(secrets.output) <= self.output * (1 + 1e-9))

    def norm(self, found: Vector, directions: Vector | None) -> float:
        """An upper bound of the norm of the true gradient, of (S, d) blocks: R_max (||ghat|| + rho ||Psi|| +
        rho^2 ||Phi||). directions: (G, n_L) of the compact variant, where rho is of r's coefficients along them."""
        norms = np.linalg.norm(found.astype(np.float64), axis=1)
        if len(norms) == 1:
            return self.scale * float(norms[0])
        rho = self.output if directions is None else self.output / float(np.linalg.svd(directions)[1].min())
        return self.scale * float(norms[0] + rho * np.linalg.norm(norms[1:-1]) + self.output**2 * norms[-1])


@dataclass(frozen=True)
class SecretsLaw:
    """The law that the secrets of a round are drawn by.

    scales: chi3: products |DN*(1)|, of two different factors (Gamma's duplication formula) or, chi3_series, of two
    equal ones as published; log_uniform: R in [1/kappa, kappa]; uniform: factors in (0, 1). additive: full: all n_L
    outputs hidden; compact: along so many public `directions`; off: r = 0. tied: transitional layers are 1, R_ij =
    r_i / r_j, with r of chi3, log_uniform or uniform, of which E R^2 is 3e4.
    """

    scales: Scales
    kappa: float
    additive: Additive
    directions: int
    output_scale: float | None = None       # r is multiplied by it; None: by 1 / n_{L-1}
    tied: bool = False
    bounds: Bounds | None = None            # drawn again until they hold: the laws are conditioned on that


@dataclass(frozen=True)
class DrawnSecrets:
    """The secrets of a round, and what of them is public: the directions (G, n_L) of the compact variant."""

    secrets: Secrets
    directions: Vector | None


def drawn(disguise: Disguise, law: SecretsLaw, rng: np.random.Generator) -> DrawnSecrets:
    """Fresh secrets. Raises Unbounded if none of 100 draws keeps within the law's bounds."""
    for _ in range(_DRAWS):
        found = _drawn(disguise, law, rng)
        if law.bounds is None or law.bounds.keep(disguise, found.secrets):
            return found
    assert law.bounds is not None
    raise Unbounded(f"unbounded: none of {_DRAWS} draws of secrets has R <= scale_bound = {law.bounds.scale:g} and "
                    f"||r|| <= output_bound = {law.bounds.output:g}; expected larger bounds")


def _drawn(disguise: Disguise, law: SecretsLaw, rng: np.random.Generator) -> DrawnSecrets:
    """r = (gamma o r^a) / n_{L-1}, or (sum_g gamma_g a_g) / n_{L-1}, all of N(0, 1), or times another scale: 1 as
    published, which hides more and costs digits."""
    rows = tuple(_scale(law, rng, width, alone, row=True)
                 for width, alone in zip(disguise.row_widths, disguise.row_alone, strict=True))
    if law.tied:
        columns = disguise.tied_columns(rows)
    else:
        columns = tuple(_scale(law, rng, width, alone, row=False)
                        for width, alone in zip(disguise.column_widths, disguise.column_alone, strict=True))
    n, directions = disguise.outputs, None
    scale = 1 / disguise.features if law.output_scale is None else law.output_scale
    output = np.zeros(n)
    if law.additive == "full":
        output = rng.normal(size=n) * rng.normal(size=n) * scale
    elif law.additive == "compact":
        directions = rng.normal(size=(law.directions, n))
        output = rng.normal(size=law.directions) @ directions * scale
    return DrawnSecrets(Secrets(rows, columns, output), directions)


def _scale(law: SecretsLaw, rng: np.random.Generator, width: int, alone: bool, row: bool) -> Vector:
    """alone: it is the only factor of a weight's R."""
    if law.scales == "log_uniform":
        return laws.log_uniform(rng, width, law.kappa, 1 if alone and not law.tied else 2)
    if law.scales == "uniform":
        return rng.uniform(0.0, 1.0, size=width) + _LEAST_SCALE
    if alone or law.tied:
        return laws.chi3(rng, width)
    if law.scales == "chi3_series":
        return laws.series(rng, width)
    return laws.duplicated_row(rng, width) if row else laws.duplicated_column(rng, width)


def number_of_blocks(additive: Additive, directions: int, outputs: int) -> int:
    """1 without the additive part, else ghat, a Psi for each direction, Phi."""
    return {"off": 1, "compact": directions + 2, "full": outputs + 2}[additive]


# --- the client -------------------------------------------------------------------------------------------------------

def blocks(task: NodeTask, parameters: Vector, diagonals: Vector, directions: Vector | None, additive: bool,
           loss: Loss, each: bool = False) -> tuple[Vector, int]:
    """((S, d) ghat, Psi_1.., Phi on the next batch, of the type of `parameters`; number of samples). each: ghat of
    every sample of the batch, (B, d). Raises CannotBeDisguised if these are not theirs alone."""
    disguise = task.disguise()
    if each and disguise.mixing:
        raise CannotBeDisguised(f'layer "{disguise.mixing[0]}" makes a sample\'s gradient depend on others of its '
                                "batch: expected no statistics of batches with records")
    wanted = BlockScalars(directions, disguise.outputs, additive) if loss == "squared" else Total(task.objective)
    return task.gradients(parameters, wanted, forward=disguise.forward(diagonals), each=each)


def clipping_factor(found: Vector, bound: float, clip: Clip, disguise: Disguise, known: DrawnSecrets | None,
                    bounds: Bounds | None = None, directions: Vector | None = None) -> float:
    """c of (S, d) blocks: min(1, B / norm), of what the client sees (message), of the most that the true gradient can
    have (bound), or, oracle, of the gradient that the server will recover, for which it would have to know the
    secrets. Section 6.4 of the specification."""
    if clip == "off":
        return 1.0
    if clip == "oracle":
        assert known is not None
        norm = float(np.linalg.norm(recovered(disguise, known, found)))
    elif clip == "bound":
        assert bounds is not None
        norm = bounds.norm(found, directions)
    else:
        norm = float(np.linalg.norm(found[0].astype(np.float64)))
    return min(1.0, bound / norm) if norm > 0 else 1.0


def noise(law: Noise, sigma: float, disguise: Disguise, scales: SecretsLaw,
          rng: np.random.Generator) -> Vector:
    """eta, (d,) float64. gaussian: N(0, sigma^2). uniform: DN(sigma, 1), times an own draw of each factor that R lacks
    for R o eta to be N(0, sigma^2) over the draw of R; who knows R sees bounded noise."""
    lacking = disguise.lacking()
    if law == "gaussian":
        return rng.normal(0.0, sigma, size=len(lacking))
    eta = laws.uniform_noise(rng, len(lacking), sigma)
    series = scales.scales == "chi3_series"
    for what, draw in ((1, laws.series if series else laws.duplicated_column),
                       (2, laws.series if series else laws.duplicated_row), (3, laws.chi3)):
        eta[lacking == what] *= draw(rng, int((lacking == what).sum()))
    return eta


# --- the server -------------------------------------------------------------------------------------------------------

def recovered(disguise: Disguise, known: DrawnSecrets, mean: Vector) -> Vector:
    """g, (d,) float64, of (S, d) blocks or a weighted mean of them."""
    weights = np.ones(1)
    if len(mean) > 1:
        weights = recovery_weights(known.secrets.output, known.directions)
    return disguise.recovered(mean.astype(np.float64), disguise.multipliers(known.secrets), weights)
