"""Samples of clients from the gradients that a server got of each of them, or of all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, Literal

from emul.attacks.ranges import above_zero, at_least
from emul.roles.evidence import Evidence, Findings, Needs


@dataclass(frozen=True)
class GradientInversion:
    """Candidates whose gradient comes near what a server got of one client, or with `of: sum` of a round.

    Inverting Gradients: Geiping et al., NeurIPS 2020; DLG: Zhu et al., NeurIPS 2019, with labels as in iDLG, Zhao et
    al. 2020.

    The attacker holds what the server does: its model, the message, the number of samples, which of them each local
    step took, and of mp_dp the secrets of the round. `labels: known` gives it the labels, too. With `match: clear` it
    takes Phi of `preset: paper`, which has neither noise nor labels in it, in place of the gradient. It needs
    `record: {payloads: [Model, Update]}` (fedavg and what sends its messages), `[Model, Gradient]` (dp_fedavg),
    `[Disguised, Blocks]` or `[Disguised, Masked]` (mp_dp with real masks, with masks of the ring).

    `of: sum` takes the step that the server's model made in a round, which is the mean of all that were heard, noise
    and all: no masks hide it. It needs `models: 1` besides, and is for `[Begin, Masked]` (secagg and what sends its
    messages), too.
    """

    of: Literal["client", "sum"] = "client"                 # sum: of all clients that were heard in a round
    by: Literal["inverting", "dlg"] = "inverting"
    match: Literal["gradient", "clear"] = "gradient"
    labels: Literal["inferred", "known", "joint"] = "inferred"      # joint: found with the samples, by dlg
    optimiser: Literal["adam", "lbfgs"] | None = None       # none: adam; of dlg lbfgs
    iterations: int = 400
    restarts: int = 1
    step: float = 0.1                   # of adam
    tv: float = 1e-4                    # weight of the total variation
    node: str | None = None             # the owner of the samples; none: of all
    round_: int | None = None
    most: int = 6                       # messages that are attacked, the first ones

    NEEDS: ClassVar[Needs] = Needs()

    def __post_init__(self) -> None:
        at_least(1, iterations=self.iterations, restarts=self.restarts, most=self.most)
        above_zero(step=self.step)
        at_least(0, tv=self.tv)
        if self.of == "sum" and (self.match == "clear" or self.node is not None):
            raise ValueError("of = sum: expected without node and without match: clear, which are of one client")

    def __call__(self, evidence: Evidence) -> Findings:
        """Columns: samples, labels_right (share), psnr, psnr_blind (of the mean training image), ssim, test_mse (of
        normalised inputs), feat_mse (of what feeds the last layer), distance (of the found gradient to what came),
        seen_cosine (of what came with the true gradient)."""
        # here, since torch takes a second to load, and a list of attacks or the check of a scenario does without it
        from emul.attacks.privacy.reconstruction import reconstructed, search
        from emul.attacks.privacy.seen_gradients import seen_gradients, seen_sums

        if self.of == "sum":
            seen = seen_sums(evidence, self.round_)
        else:
            seen = seen_gradients(evidence, self.match == "clear", self.node, self.round_)
        optimiser = self.optimiser or ("lbfgs" if self.by == "dlg" else "adam")
        how = partial(search, by=self.by, optimiser=optimiser, iterations=self.iterations, restarts=self.restarts,
                      step=self.step, tv=self.tv)
        return reconstructed(islice(seen, self.most), evidence, how, self.labels)
