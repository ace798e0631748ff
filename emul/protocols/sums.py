"""What schemes that sum quantised updates modulo a number have in common: the cohort, and how updates are coded."""

from __future__ import annotations

from typing import Literal, Protocol

from emul.primitives.quantise import Quantiser, QuantiserOverflow, SumOfUpdates
from emul.roles import World, checks


class Summed(Protocol):
    """The parameters of such a scheme."""

    @property
    def bits(self) -> int:
        """Of a quantised value."""

    @property
    def clip(self) -> float:
        """Values of an update outside [-clip, clip] are cut."""

    @property
    def fraction(self) -> float:
        """Of the clients, drawn each round."""

    @property
    def weights(self) -> Literal["samples", "uniform"]:
        """How clients count in the mean."""

    @property
    def stage_deadline_s(self) -> float | None:
        """Of each stage; None: until the fates are known."""


def cohort_size(p: Summed, clients: int) -> int:
    """n = |U0|, as `node.sample` draws it."""
    return max(1, round(p.fraction * clients))


def codec(p: Summed, clients: int, modulus: int) -> SumOfUpdates:
    """How the updates of a round become vectors of the field."""
    return SumOfUpdates(Quantiser(p.clip, p.bits), cohort_size(p, clients), modulus, p.weights == "samples")


def check_sum(p: Summed, world: World, modulus: int) -> list[str]:
    """What is wrong with these parameters, if anything."""
    if not 0 < p.fraction <= 1:
        return checks.fractions(fraction=p.fraction)
    errors, n = checks.times(stage_deadline=p.stage_deadline_s), cohort_size(p, world.clients)
    if n < 2:
        errors.append(f"fraction = {p.fraction}: draws {n} of {world.clients} clients, a sum needs at least 2")
    if not p.clip > 0:
        errors.append(f"clip = {p.clip}: expected a number above 0")
    elif not 1 <= p.bits <= 31:
        errors.append(f"bits = {p.bits}: expected 1..31")
    else:
        try:
            Quantiser(p.clip, p.bits).check_sum(n, modulus)
        except (QuantiserOverflow, ValueError) as e:
            errors.append(f"bits = {p.bits}: {e}")
    return errors
