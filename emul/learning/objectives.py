"""The loss that local training minimises, said as a value: an `Objective` is a frozen dataclass that is called on a
batch.

    losses = objective(outputs, batch, weights)     (B,): one for each sample
    total  = objective.total(outputs, batch, weights) = sum_i weights_i losses_i, unless it says otherwise

`outputs` is what one forward pass of the model gives. `weights` (B,) says what a sample counts for the mean over its
batch: 1 / n for each of the n samples, 0 for those that only fill up a batch which is trained beside longer ones.
Fields that are NumPy arrays are data of the one client that trains (a prototype, a reference); they are tensors on the
model's device when the objective is called. All other fields are settings: who trains as one has the same.

Many clients are trained as one by mapping `total` over them (`torch.func.vmap`): no branch on a tensor's values, no
shape that depends on them. An objective that cannot be mapped is trained alone. Objectives add up: `CROSS_ENTROPY +
Proximal(0.1)`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from emul.base.errors import EmulError
from emul.base.plain import PlainMapping
from emul.learning.names import OBJECTIVE, find, unknown, with_options
from emul.learning.names import names as names_of
from emul.learning.pooling import Pooling

if TYPE_CHECKING:
    from torch import Tensor

_EPS = 1e-12                                # keeps the gradient of a distance finite at 0
_COSINE_EPS = 1e-8

WHOLE = Pooling("none")                     # features as they are


class Outputs(NamedTuple):
    """The outputs of one forward pass for B samples."""

    logits: Tensor                          # (B, ...): what the model's last layer gives; predictions in a regression
    features: Tensor | None = None          # (B, n): C of a model that is cut, for objectives with `on_features`
    forward: Callable[[Any], Outputs] | None = None     # another pass of the same model, for objectives with `alone`
    statistics: Mapping[str, Tensor] | None = None      # of the batch, by the buffers that follow them


class Batch(NamedTuple):
    """B samples."""

    x: Any                                  # inputs (B, *input_shape); {name: tensor} where a sample has several
    y: Tensor                               # (B,) int64 labels, or targets (B, ...) int64 or float32


@dataclass(frozen=True, eq=False)
class Objective(ABC):
    """A loss. Subclasses are frozen dataclasses (eq=False) that define `__call__`."""

    # A value and not any function of a model: nobody could tell whether two closures are the same, or store what they
    # gave. It takes what one forward pass gives, so the lone training calls it and the fused one maps it alone: `vmap`
    # of the whole net takes 2.5 times as long. Fields that are arrays are a client's own data, the others are settings
    # (`test_clients_of_a_users_objective_learn_as_one_what_each_learns_alone`).

    on_features: ClassVar[bool] = False     # true if it reads outputs.features
    linear: ClassVar[bool] = False          # ... as they are before the activation that ends the representation
    stacks: ClassVar[bool] = False          # true if `total` also takes G clients, (G, B, ...), and sums theirs
    alone: ClassVar[bool] = False           # true if it needs outputs.forward: such clients are not trained as one

    @abstractmethod
    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        """(B,) losses; of samples with weight 0 they may be anything finite."""

    def total(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        """The loss: a scalar. For losses of a batch that are not the mean of those of its samples."""
        return (self(outputs, batch, weights) * weights).sum()

    def of_all(self, outputs: Outputs, batch: Batch) -> Tensor:
        """`total` where all samples of the batch count alike."""
        return self.total(outputs, batch, equal_weights(batch.y))

    def at_logits(self, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor | None:
        """Gradient of `total` by the logits of G clients (G, B, C), if a closed form is faster than autograd."""
        return None

    def metrics(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The scores of an evaluation beside the loss, {name: (B,)}: the share of right classes where targets are
        such."""
        if batch.y.is_floating_point() or outputs.logits.shape[:-1] != batch.y.shape:
            return {}
        return {"accuracy": (outputs.logits.argmax(-1) == batch.y).double().reshape(len(batch.y), -1).mean(1)}

    @property
    def terms(self) -> tuple[Objective, ...]:
        """Its summands."""
        return (self,)

    @property
    def idle(self) -> bool:
        """True if it is 0 whatever the model: a sum leaves such terms out."""
        return False

    def __add__(self, other: Objective) -> Objective:
        terms = tuple(term for term in (*self.terms, *other.terms) if not term.idle)
        return Sum(terms) if len(terms) > 1 else terms[0] if terms else self

    def __str__(self) -> str:
        """Its name, with what is set otherwise than by default: `squared_error(factor=0.5)`."""
        said = [f"{f.name}={_shown(value)}" for f in fields(self)
                if hasattr(value := getattr(self, f.name), "shape") or value != f.default]
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
        return name + (f"({', '.join(said)})" if said else "")

    @property
    def settings(self) -> Hashable:
        """The properties that clients trained as one must share: all but the values of arrays."""
        kind = type(self)
        return (kind.__module__, kind.__qualname__, *((f.name, _setting(getattr(self, f.name))) for f in fields(self)))

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields that are data."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), np.ndarray)}

    def bound(self, arrays: Mapping[str, Any]) -> Objective:
        """The same with other values of `arrays`."""
        found = copy(self)
        for name, value in arrays.items():
            object.__setattr__(found, name, value)
        return found


@dataclass(frozen=True, eq=False)
class Sum(Objective):
    """The sum of several objectives."""

    parts: tuple[Objective, ...]

    def __post_init__(self) -> None:
        for said in ("on_features", "linear", "alone"):
            object.__setattr__(self, said, any(getattr(part, said) for part in self.parts))

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        found = self.parts[0](outputs, batch, weights)
        for part in self.parts[1:]:
            found = found + part(outputs, batch, weights)
        return found

    def total(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        """The totals of the parts, added: a part may have one that is not the mean of its losses."""
        found = self.parts[0].total(outputs, batch, weights)
        for part in self.parts[1:]:
            found = found + part.total(outputs, batch, weights)
        return found

    def of_all(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Those of the parts, each in the way that is fastest for it."""
        found = self.parts[0].of_all(outputs, batch)
        for part in self.parts[1:]:
            found = found + part.of_all(outputs, batch)
        return found

    def metrics(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Those of all parts; of one name, that of the first part which has it."""
        found: dict[str, Tensor] = {}
        for part in reversed(self.parts):
            found |= part.metrics(outputs, batch)
        return found

    @property
    def terms(self) -> tuple[Objective, ...]:
        """Its parts."""
        return self.parts

    def __str__(self) -> str:
        return " + ".join(map(str, self.parts))

    def arrays(self) -> dict[str, np.ndarray]:
        """{"<number of the part>.<name>": array}."""
        return {f"{i}.{name}": value for i, part in enumerate(self.parts) for name, value in part.arrays().items()}

    def bound(self, arrays: Mapping[str, Any]) -> Objective:
        """The same with other values of arrays, by their names in `arrays`."""
        return Sum(tuple(part.bound({name.partition(".")[2]: value for name, value in arrays.items()
                                     if name.partition(".")[0] == str(i)}) for i, part in enumerate(self.parts)))


@dataclass(frozen=True, eq=False)
class Penalty(Objective):
    """A term of the trained parameters alone, given by its gradient. It adds nothing to the loss of a sample."""

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        return weights * 0

    @abstractmethod
    def gradient(self, weights: Tensor, before: Tensor) -> Tensor:
        """Entry by entry, of `weights` as they are now and were `before` the training; both of any one shape."""


def split(objective: Objective) -> tuple[Objective | None, tuple[Penalty, ...]]:
    """(what is computed of outputs, None if nothing is; what is of the parameters alone)."""
    losses = [part for part in objective.terms if not isinstance(part, Penalty)]
    penalties = tuple(part for part in objective.terms if isinstance(part, Penalty))
    return (losses[0] if len(losses) == 1 else Sum(tuple(losses)) if losses else None), penalties


# --- of outputs and targets ---------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class CrossEntropy(Objective):
    """-log softmax(logits)[y]. Targets (B, ...) with logits (B, ..., C): the mean over a sample's own targets, without
    those that are `ignored`."""

    ignored: int = -100

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        logits, y = outputs.logits, batch.y
        if y.ndim == 1:
            return cross_entropy(logits, y, reduction="none", ignore_index=self.ignored)
        each = cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="none",
                             ignore_index=self.ignored).reshape(len(y), -1)
        return each.sum(1) / (y != self.ignored).reshape(len(y), -1).sum(1).clamp(min=1)

    def of_all(self, outputs: Outputs, batch: Batch) -> Tensor:
        from torch.nn.functional import cross_entropy

        if batch.y.ndim == 1:               # the same gradients to the bit, in fewer calls
            return cross_entropy(outputs.logits, batch.y, ignore_index=self.ignored)
        return super().of_all(outputs, batch)

    def at_logits(self, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor | None:
        import torch

        if y.ndim != 2:
            return None
        found = torch.softmax(logits, 2)
        found.scatter_add_(2, y.unsqueeze(2), found.new_full((), -1.0).expand(*y.shape, 1))
        return found.mul_(weights.unsqueeze(2))


CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True, eq=False)
class SquaredError(Objective):
    """factor * |prediction - target|^2, the mean or the sum `over` a sample's outputs. Targets that are labels are
    compared as one-hot vectors; `SquaredError(0.5, "sum")` is the loss of the equations that papers write so."""

    factor: float = 1.0
    over: Literal["mean", "sum"] = "mean"

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        off = outputs.logits - targets_like(batch.y, outputs.logits)
        square = (off**2).reshape(len(off), -1)
        return self.factor * (square.mean(1) if self.over == "mean" else square.sum(1))


def targets_like(y: Tensor, logits: Tensor) -> Tensor:
    """The targets in the shape of `logits` (B, ..., C): one-hot where they are labels."""
    import torch

    if y.is_floating_point():
        return y.reshape(logits.shape)
    known = torch.arange(logits.shape[-1], device=y.device)
    return (y.unsqueeze(-1) == known).to(logits.dtype)


# --- of parameters ------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Proximal(Penalty):
    """(mu / 2) |w - w_0|^2, w_0 the parameters that the training begins from. Li et al., MLSys 2020."""

    mu: float = 0.0

    @property
    def idle(self) -> bool:
        """True if mu is 0."""
        return not self.mu

    def gradient(self, weights: Tensor, before: Tensor) -> Tensor:
        """mu (w - w_0), in the shape of `weights`."""
        return (weights - before).mul_(self.mu)


@dataclass(frozen=True, eq=False)
class Linear(Penalty):
    """<direction, w>: a constant that is added to every gradient."""

    direction: np.ndarray                   # (d,) float32

    def gradient(self, weights: Tensor, before: Tensor) -> Tensor:
        """The direction, where the weights are trained."""
        direction: Any = self.direction
        found: Tensor = direction[:len(weights)]
        return found


# --- of features --------------------------------------------------------------------------------------------------

Kind = Literal["l2_sum", "l2_mean", "mse"]


@dataclass(frozen=True, eq=False)
class PrototypePull(Objective):
    """weight * distance of the pooled features p = pool(C) of a sample to the global prototype G^j of its class.

        l2_sum      sum over the classes j of the batch that have a G^j of the mean over its samples of
                    sqrt(|p - G^j|^2 + eps)
        l2_mean     the same over the number of those classes
        mse         mean over the samples that have one and over coordinates of (p - G^j)^2

    Yan et al., arXiv 2401.07558, equations 9 and 10; mse: the public code of FedProto (Tan et al., AAAI 2022).
    """

    on_features: ClassVar[bool] = True
    stacks: ClassVar[bool] = True           # a map over the clients costs a fifth of a step of digits_classic

    table: np.ndarray                       # (J, n') float32: G^j
    known: np.ndarray                       # (J,) bool: which of them there are
    weight: float = 1.0
    kind: Kind = "mse"
    pool: Pooling = WHOLE

    @classmethod
    def to(cls, means: Mapping[int, np.ndarray], classes: int, weight: float, kind: Kind,
           pool: Pooling) -> PrototypePull:
        """The pull to prototypes {class: (n',)}, of `classes` classes."""
        return cls(*_table(means, classes), weight, kind, pool)

    @property
    def idle(self) -> bool:
        """Weight 0, or no class that has a prototype."""
        return not (self.weight and self.known.any())

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        distance, share = self._parts(outputs, batch, weights)
        return distance * share / weights.clamp(min=1e-12)

    def total(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        """The term of the batch, a scalar; of G clients, (G, B, ...), the sum of theirs."""
        distance, share = self._parts(outputs, batch, weights)
        return (distance * share).sum()

    def _parts(self, outputs: Outputs, batch: Batch, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(distance of each sample, its share in the term): (B,) both, or (G, B) of G clients."""
        import torch

        table: Any = self.table
        known: Any = self.known
        assert outputs.features is not None
        y = batch.y
        mine = known.gather(-1, y) & (weights > 0)
        own = table.gather(-2, y.unsqueeze(-1).expand(*y.shape, table.shape[-1]))                 # G^j of each sample
        off = self.pool(outputs.features.flatten(0, -2)).view(*y.shape, -1) - own               # (..., B, n')
        square = (off**2).sum(-1)
        if self.kind == "mse":
            each = torch.full_like(square[..., :1], self.weight) / (
                mine.sum(-1, keepdim=True).clamp(min=1) * off.shape[-1])
            return square, mine * each
        held = (y.unsqueeze(-1) == torch.arange(table.shape[-2], device=y.device)) & mine.unsqueeze(-1)
        count = held.sum(-2)                                                                    # (..., J)
        share = self.weight / count.gather(-1, y).clamp(min=1).double()
        if self.kind == "l2_mean":
            share = share / (count > 0).sum(-1, keepdim=True).clamp(min=1)
        return torch.sqrt(square + _EPS), (mine * share).to(square.dtype)


@dataclass(frozen=True, eq=False)
class CosineAlignment(Objective):
    """weight * mean over the classes j of the batch that have a G^j of 1 - cos(c_j, G^j), c_j the mean of the features
    C of its samples of class j; the gradient goes through c_j."""

    on_features: ClassVar[bool] = True

    table: np.ndarray                       # (J, n) float32: G^j
    known: np.ndarray                       # (J,) bool: which of them there are
    weight: float = 1.0
    before_activation: bool = False         # C before the last activation of the representation

    def __post_init__(self) -> None:
        object.__setattr__(self, "linear", self.before_activation)

    @classmethod
    def to(cls, means: Mapping[int, np.ndarray], classes: int, weight: float = 1.0,
           linear: bool = False) -> CosineAlignment:
        """The alignment with prototypes {class: (n,)}, of `classes` classes."""
        return cls(*_table(means, classes), weight, linear)

    @property
    def idle(self) -> bool:
        """Weight 0, or no class that has a prototype."""
        return not (self.weight and self.known.any())

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        off, present, held = self._classes(outputs, batch, weights)
        each = off * present / present.sum().clamp(min=1) / held.sum(0).clamp(min=1)        # (J,), of one sample
        return self.weight * (held @ each) / weights.clamp(min=1e-12)

    def total(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        """The term of the batch, a scalar; samples of weight 0 are in no class's mean."""
        off, present, _ = self._classes(outputs, batch, weights)
        return self.weight * (off * present).sum() / present.sum().clamp(min=1)

    def _classes(self, outputs: Outputs, batch: Batch, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1 - cos (J,), which classes count (J,), which samples are of which (B, J))."""
        import torch
        from torch.nn.functional import cosine_similarity

        table: Any = self.table
        known: Any = self.known
        assert outputs.features is not None
        of_class = batch.y.unsqueeze(1) == torch.arange(len(table), device=batch.y.device)
        held = (of_class & (weights > 0).unsqueeze(1)).to(outputs.features.dtype)           # (B, J)
        count = held.sum(0)
        means = (held.T @ outputs.features) / count.clamp(min=1).unsqueeze(1)               # (J, n)
        return 1 - cosine_similarity(means, table, dim=1, eps=_COSINE_EPS), known & (count > 0), held


def _table(means: Mapping[int, np.ndarray], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """({class: (n,)} as (J, n) float32 with zeros where there is none, which there are (J,)); other classes have no
    samples and are left out."""
    means = {j: mean for j, mean in means.items() if 0 <= j < classes}
    size = max((len(mean) for mean in means.values()), default=0)
    table, known = np.zeros((classes, size), np.float32), np.zeros(classes, bool)
    for j, mean in means.items():
        table[j], known[j] = mean, True
    return table, known


# --- by name ------------------------------------------------------------------------------------------------------

# objectives for scenarios; the others need values that only a scheme knows
BUILT_IN: dict[str, Callable[..., Objective]] = {"cross_entropy": CrossEntropy, "squared_error": SquaredError}


class ObjectiveError(EmulError):
    """An objective is unknown, or an option is not what it should be."""


def names(plugins: Sequence[str] = ()) -> list[str]:
    """Every objective that a scenario may ask for."""
    return names_of(OBJECTIVE, BUILT_IN, plugins)


def parse(spec: str | PlainMapping) -> tuple[str, dict[str, object]]:
    """Name and options of an objective as a scenario writes it. Raises ObjectiveError.

    >>> parse("cross_entropy"), parse({"squared_error": {"factor": 0.5}})
    (('cross_entropy', {}), ('squared_error', {'factor': 0.5}))
    """
    found = with_options(spec)
    if found is None:
        raise ObjectiveError("expected one objective such as squared_error or {squared_error: {factor: 0.5}}")
    return found


def make(spec: str | PlainMapping, plugins: Sequence[str] = ()) -> Objective:
    """The objective of `spec`: a name, or {name: options}. Raises ObjectiveError."""
    name, options = parse(spec)
    build = BUILT_IN.get(name) or find(OBJECTIVE, name, plugins)
    if build is None:
        raise ObjectiveError(unknown("objective", names(plugins), name))
    try:
        found = build(**options)
    except TypeError as error:
        raise ObjectiveError(f"objective {name}: {error}") from error
    if not isinstance(found, Objective):
        raise ObjectiveError(f"objective {name}: expected an Objective, found {type(found).__name__}")
    return found


def equal_weights(y: Tensor) -> Tensor:
    """1 / B for each of B samples, (B,)."""
    import torch

    return torch.full((len(y),), 1 / max(1, len(y)), device=y.device)


def _shown(value: Any) -> str:
    return f"<{'x'.join(map(str, value.shape))}>" if hasattr(value, "shape") else str(value)


def _setting(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype)
    if isinstance(value, tuple):
        return tuple(map(_setting, value))
    return value.settings if isinstance(value, Objective) else value
