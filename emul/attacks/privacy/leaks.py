"""The values that the server of MP-DP reads off blocks without noise, as an attack on a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emul.attacks.privacy import clear_blocks
from emul.attacks.privacy.clear_blocks import BlocksUndetermined, Floats
from emul.attacks.privacy.pixels import is_image, matched, pixels
from emul.base.plain import PlainDict
from emul.roles.evidence import Evidence, Findings, Needs, Picture, answers

if TYPE_CHECKING:
    from emul.learning import NodeTask
    from emul.roles.evidence import Observed

_EXACT = 1e-6               # of a number of a normalised input
_OTHERS = 50                # samples of nobody, that a test of membership must not take for members


@dataclass(frozen=True)
class ClearBlocks:
    """Inputs and labels in closed form from Psi and Phi, which `preset: paper` of mp_dp, mp_cdp and mp_dp_naive send
    without noise. Against X. Yang et al., arXiv 2412.11737, 2024 (erratum 2 of the project's specification).

    The attacker holds what the server does: the message of one client and the disguised model; neither its secrets nor
    the noise matter. It needs `record: {payloads: [Disguised, Blocks]}`, of masks in the ring `[Disguised, Masked]`:
    words of the ring are then read as if they were numbers, and tell nothing. Any batch: the first layer's blocks span
    the inputs, a perfect test of membership. Inputs themselves: of one sample where the first layer is linear, of a
    batch where there is one hidden layer. Of other models one sample's features are found; `gradient_inversion` with
    `match: clear` does the rest.
    """

    node: str | None = None             # the sender of the message; none: of all
    round_: int | None = None

    NEEDS: ClassVar[Needs] = Needs(payloads=("Disguised",))

    def __call__(self, evidence: Evidence) -> Findings:
        """Columns: samples; rank of the first layer's blocks; residual_members (largest), residual_others (least), of
        test samples: 0 means that an input lies in what the blocks span; members_told; recovered (share of inputs
        found to 1e-6); input_error (largest, of normalised inputs); labels_right; features_error (relative, of h^ /
        alpha of one sample)."""
        found = [_of(evidence, opening, one) for opening, one in answers(
            evidence, (("Disguised", "Blocks"), ("Disguised", "Masked")), self.node, self.round_)]
        return Findings([row for row, _ in found], [picture for _, pictures in found for picture in pictures])


@dataclass(frozen=True)
class _Message:
    """The update that a client has sent, by layers, and the truth."""

    node: NodeTask
    hidden: Floats                      # W^, (d,)
    diagonals: Floats
    directions: Floats                  # (G, n_L) rows a_g; the unit vectors in the full variant
    parts: list[Floats]                 # (S, *shape) of each parameter
    hidden_parts: list[Floats]          # of W^
    x: Floats                           # (b, *input_shape)
    y: NDArray[np.int64]                # (b,)

    @property
    def clear(self) -> slice:
        """Blocks beside ghat, or ghat where there are no others."""
        return slice(1, None) if len(self.parts[0]) > 1 else slice(None)

    @property
    def linear(self) -> bool:
        """True if the first layer is a matrix on the inputs, with a bias."""
        first, second = self.parts[0], self.parts[1]
        return first.ndim == 3 and second.ndim == 2 and first.shape[2] == self.x[0].size

    @property
    def one_hidden(self) -> bool:
        """True if that layer feeds the last one."""
        return self.linear and len(self.parts) == 4

    def passed(self, x: Floats) -> tuple[Floats, Floats]:
        """(y^ (b, n_L), h^ (b, n_{L-1})) of the disguised model."""
        import torch

        through = self.node.disguise().forward(self.diagonals)
        found = self.node.forward(self.hidden, torch.from_numpy(x.reshape(len(x), *self.x.shape[1:])), through=through)
        assert found.features is not None
        return found.logits.numpy(), found.features.numpy()


def _message(evidence: Evidence, opening: Any, one: Observed) -> _Message:
    from emul.attacks.privacy.seen_gradients import blocks_of  # here: torch takes a second to load

    s, node = evidence.params.settled(), evidence.node(one.source_name, one.round)
    disguise, batch = node.disguise(), node.batch()
    blocks = blocks_of(one.message, s, disguise, len(evidence.roles["client"]))
    of_each = [list(evidence.task.named(block).values()) for block in blocks]
    hidden = opening.parameters.astype(np.float64)
    directions = opening.directions if len(opening.directions) else np.eye(disguise.outputs)
    return _Message(node, hidden, opening.diagonals.astype(np.float64), directions,
                    [np.stack(part) for part in zip(*of_each, strict=True)],
                    list(evidence.task.named(hidden).values()), batch.x.numpy().astype(np.float64), batch.y.numpy())


def _of(evidence: Evidence, opening: object, one: Observed) -> tuple[PlainDict, list[Picture]]:
    sent = _message(evidence, opening, one)
    row = {"node": one.source_name, "round": one.round, "samples": len(sent.x), **_spanned(evidence, sent)}
    try:
        found, labels = _inputs(sent, evidence.rng("clear blocks", one.source_name, one.round))
    except BlocksUndetermined:
        found = labels = None
    row |= _found(sent, found, labels) | {"features_error": _features_error(sent)}
    if found is None or not is_image(evidence.task.data):
        return row, []
    found = found[matched(found, sent.x)]
    errors = np.abs(found - sent.x.reshape(len(found), -1)).max(1)
    a, b = (pixels(x.reshape(sent.x.shape), evidence.task.data) for x in (found, sent.x))
    return row, [Picture(f"{one.source_name}, round {one.round}: largest error {error:.1g}", true, own)
                 for true, own, error in zip(b, a, errors, strict=True)]


def _spanned(evidence: Evidence, sent: _Message) -> PlainDict:
    """rank, residual_members, residual_others, members_told."""
    if not sent.linear:
        return dict.fromkeys(("rank", "residual_members", "residual_others", "members_told"))
    basis = clear_blocks.span_of_inputs(sent.parts[0][sent.clear])
    data = evidence.task.data
    others = np.asarray(data.inputs(np.asarray(data.test_x)[:_OTHERS]), np.float64)
    members, strangers = ([clear_blocks.residual(x.reshape(-1), basis) for x in some] for some in (sent.x, others))
    return {"rank": len(basis), "residual_members": max(members), "residual_others": min(strangers),
            "members_told": max(members) < _EXACT < min(strangers)}


def _inputs(sent: _Message, rng: np.random.Generator) -> tuple[Floats | None, NDArray[np.int64] | None]:
    """(inputs (b, n_0) in any order, their labels), as far as model and blocks allow. Raises BlocksUndetermined."""
    if not sent.linear:
        return None, None
    weights = np.concatenate([sent.parts[0], sent.parts[1][:, :, None]], axis=2)[sent.clear]    # (S - 1, n_1, n_0 + 1)
    if not sent.one_hidden or len(weights) == 1:
        alone = len(sent.x) == 1
        return clear_blocks.input_of_one(weights[-1, :, :-1], weights[-1, :, -1])[None] if alone else None, None
    slices = clear_blocks.slices_of(weights[:-1], weights[-1], sent.directions @ sent.hidden_parts[2])
    x = clear_blocks.inputs_of_batch(slices, len(sent.x), rng)
    outputs, features = sent.passed(x)
    return x, clear_blocks.labels_of_batch(slices, x, sent.diagonals * (features > 0), outputs, features.sum(1),
                                           sent.directions)


def _found(sent: _Message, found: Floats | None, labels: NDArray[np.int64] | None) -> PlainDict:
    """recovered, input_error, labels_right."""
    if found is None:
        return dict.fromkeys(("recovered", "input_error", "labels_right"))
    order = matched(found, sent.x)
    errors = np.abs(found[order] - sent.x.reshape(len(sent.x), -1)).max(1)
    return {"recovered": float((errors < _EXACT).mean()), "input_error": float(errors.max()),
            "labels_right": None if labels is None else float((labels[order] == sent.y).mean())}


def _features_error(sent: _Message) -> float | None:
    """Of h^ / alpha of one sample; None of a batch, or without Psi."""
    if len(sent.x) > 1 or len(sent.parts[0]) == 1:
        return None
    last = next(part for part in reversed(sent.parts) if part.ndim == 3)[1]         # of Psi_1: a_1 (alpha h^)^T
    row = last[np.abs(sent.directions[0]).argmax()]
    _, (true,) = sent.passed(sent.x)
    return float(np.linalg.norm(row / row.sum() - true / true.sum()) / np.linalg.norm(true / true.sum()))
