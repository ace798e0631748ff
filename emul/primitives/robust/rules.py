"""The robust rules by the names that a scenario uses: `aggregate: median`, `aggregate: {krum: {f: 2}}`.

A rule is a frozen dataclass of parameters and a function (updates, parameters, given) -> Aggregation. `Given` holds the
other inputs of a rule: whose the updates are, the server's own update, and what the rule returned as its state.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emul.base.plain import PlainMapping
from emul.primitives.robust.aggregation import Aggregation, Updates
from emul.primitives.robust.bulyan import bulyan
from emul.primitives.robust.clipping import centred_clipping, norm_clipping
from emul.primitives.robust.coordinates import coordinate_median, trimmed_mean
from emul.primitives.robust.fltrust import fltrust
from emul.primitives.robust.foolsgold import foolsgold
from emul.primitives.robust.geometric import geometric_median
from emul.primitives.robust.krum import krum, multi_krum
from emul.primitives.written import choose as written_choice


@dataclass(frozen=True)
class Given:
    """The knowledge of a rule besides the updates."""

    clients: tuple[int, ...] = ()                       # the senders of the rows
    samples: NDArray[np.integer] | None = None          # (n,), what they say that they trained on
    reference: NDArray[np.floating] | None = None       # (d,), the server's own update of this round
    state: Any = None                                   # `Aggregation.state` of the round before


# --- parameters, as a scenario writes them ----------------------------------------------------------------------------

def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"{name} = {value}: expected at least {least}")


def _above_0(name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{name} = {value}: expected a number above 0")


@dataclass(frozen=True)
class Krum:
    """The update nearest to its n - f - 2 nearest neighbours; n >= 2 f + 3. Blanchard et al., NeurIPS 2017."""

    f: int                              # malicious ones
    unproven: bool = False              # also with fewer updates, as long as there are f + 3

    def __post_init__(self) -> None:
        _at_least("f", self.f, 0)

    def least(self) -> int:
        """The fewest updates that the rule takes."""
        return self.f + 3 if self.unproven else 2 * self.f + 3


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the `m` best updates by Krum's score."""

    m: int | None = None                # none: n - f - 2

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least("m", 1 if self.m is None else self.m, 1)

    def least(self) -> int:
        """The fewest updates that the rule takes."""
        return max(super().least(), self.m or 0)


@dataclass(frozen=True)
class Median:
    """The median of every coordinate. Yin et al., ICML 2018."""


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of every coordinate without the `f` (a share `beta` of) largest and smallest. Yin et al., ICML 2018."""

    f: int | None = None
    beta: float | None = None           # one of both is needed

    def __post_init__(self) -> None:
        if (self.f is None) == (self.beta is None):
            raise ValueError("expected either f or beta")
        _at_least("f", self.f or 0, 0)
        if not 0 <= (self.beta or 0) < 0.5:
            raise ValueError(f"beta = {self.beta}: expected a share of the updates in [0, 1/2)")

    def least(self) -> int:
        """The fewest updates that the rule takes."""
        return 2 * (self.f or 0) + 1


@dataclass(frozen=True)
class GeometricMedian:
    """The smoothed point of least distance to all. Pillutla et al., IEEE TSP 2022."""

    weights: Literal["uniform", "samples"] = "uniform"      # samples: the number that a client claims
    nu: float = 1e-6                    # smoothing, a share of the median distance
    iterations: int = 100               # at most
    tolerance: float = 1e-4             # of the last step, relative to the median distance

    def __post_init__(self) -> None:
        _above_0("nu", self.nu)
        _at_least("iterations", self.iterations, 1)
        _at_least("tolerance", self.tolerance, 0)


@dataclass(frozen=True)
class FoolsGold:
    """The mean, weighted by how unlike the histories of others a client's is. Fung et al., RAID 2020."""

    kappa: float = 1.0                  # confidence; larger ones cut sharper

    def __post_init__(self) -> None:
        _above_0("kappa", self.kappa)


@dataclass(frozen=True)
class FLTrust:
    """The mean of updates of the length of the server's own, weighted by their cosine with it, if above 0. Cao et al.,
    NDSS 2021. Root data: `root` of the task, or `held_out` of its data; the server trains before it sends the model."""


@dataclass(frozen=True)
class NormClipping:
    """The mean of updates cut to a norm. Sun et al., 2019."""

    bound: float                        # M, of the Euclidean norm of an update
    weights: Literal["uniform", "samples"] = "uniform"      # samples: the number that a client claims

    def __post_init__(self) -> None:
        _above_0("bound", self.bound)


@dataclass(frozen=True)
class CentredClipping:
    """The mean of updates cut to a distance from the last aggregate, at first 0. Karimireddy et al., ICML 2021."""

    radius: float                       # tau, of the distance of an update to the centre
    iterations: int = 1

    def __post_init__(self) -> None:
        _above_0("radius", self.radius)
        _at_least("iterations", self.iterations, 1)


@dataclass(frozen=True)
class Bulyan:
    """Krum, repeated, then the values nearest to the median; n >= 4 f + 3. El Mhamdi et al., ICML 2018."""

    f: int                              # malicious ones

    def __post_init__(self) -> None:
        _at_least("f", self.f, 0)

    def least(self) -> int:
        """The fewest updates that the rule takes."""
        return 4 * self.f + 3


# --- rules ------------------------------------------------------------------------------------------------------------

def _samples(weights: str, given: Given) -> NDArray[np.integer] | None:
    if weights == "uniform":
        return None
    if given.samples is None:
        raise ValueError("weights: samples needs the number of samples of each client")
    return given.samples


def _reference(given: Given) -> NDArray[np.floating]:
    if given.reference is None:
        raise ValueError("fltrust needs a reference, the server's own update of this round")
    return given.reference


@dataclass(frozen=True)
class Rule:
    """params: frozen dataclass. run: (updates, parameters, given). reference: it needs the server's own update."""

    params: type
    run: Callable[[Updates, Any, Given], Aggregation]
    reference: bool = False


RULES: Mapping[str, Rule] = types.MappingProxyType({
    "krum": Rule(Krum, lambda x, p, given: krum(x, p.f, unproven=p.unproven)),
    "multi_krum": Rule(MultiKrum, lambda x, p, given: multi_krum(x, p.f, p.m, unproven=p.unproven)),
    "median": Rule(Median, lambda x, p, given: coordinate_median(x)),
    "trimmed_mean": Rule(TrimmedMean, lambda x, p, given: trimmed_mean(x, p.f, p.beta)),
    "geometric_median": Rule(GeometricMedian, lambda x, p, given: geometric_median(
        x, _samples(p.weights, given), p.nu, p.iterations, p.tolerance)),
    "foolsgold": Rule(FoolsGold, lambda x, p, given: foolsgold(x, given.clients, given.state, p.kappa)),
    "fltrust": Rule(FLTrust, lambda x, p, given: fltrust(x, _reference(given)), reference=True),
    "norm_clipping": Rule(NormClipping, lambda x, p, given: norm_clipping(x, p.bound, _samples(p.weights, given))),
    "centred_clipping": Rule(CentredClipping, lambda x, p, given: centred_clipping(
        x, p.radius, p.iterations, given.state)),
    "bulyan": Rule(Bulyan, lambda x, p, given: bulyan(x, p.f)),
})


@dataclass(frozen=True)
class Chosen:
    """A rule with its parameters: what `aggregate:` says."""

    name: str
    params: Any

    @property
    def rule(self) -> Rule:
        """The entry of `RULES`."""
        return RULES[self.name]

    @property
    def least(self) -> int:
        """The fewest updates that the rule takes."""
        return self.params.least() if hasattr(self.params, "least") else 1

    def __call__(self, updates: Updates, given: Given | None = None) -> Aggregation:
        """Aggregate (n, d) updates. Raises what the rule raises; ValueError if `given` lacks what it needs."""
        return self.rule.run(updates, self.params, given or Given())


def choose(written: str | PlainMapping) -> Chosen:
    """The rule that a scenario writes: its name, or {name: {parameter: value}}.

    Raises ValueError with everything that is wrong with it.

    >>> choose({"krum": {"f": 2}})
    Chosen(name='krum', params=Krum(f=2, unproven=False))
    """
    kinds = {name: rule.params for name, rule in RULES.items()}
    return Chosen(*written_choice(written, kinds, "rule"))
