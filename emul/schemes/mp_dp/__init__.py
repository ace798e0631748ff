"""MP-DP: gradients of a disguised model under noise that many draw together. X. Yang et al., arXiv 2412.11737.

Each round the server multiplies the weights of its model by one-time secrets, W^ = R o W (+ r on the last layer).
Clients take one gradient of it, clip it, add own noise eta and pairwise noise Delta that cancels in the sum, and the
server recovers the mean gradient of the true model with its own noise:

    m_k = c_k ghat_k + eta_k + sum_{v in N(k)} Delta_kv          g = R o (ghat - sum_c r_c Psi_c + v Phi)
    W <- W - lr g,   ghat, Psi_c, Phi: gradients of S_0 = 1/2 |d|^2, alpha d_c, 1/2 alpha^2,   d = y^ - target

Three presets, since the published privacy does not hold:

    paper       as published, typos mended: for reproduction. The server knows R, so the noise that it sees is uniform
                and bounded; Psi, Phi travel in the clear and give away the inputs
    masked      the same, with all blocks in a sum of a ring: the server learns the sums of ghat + noise, Psi and Phi,
                these two exactly, so no DP
    sound       no additive part, clipping of what the client sees, Gaussian noise in the message, masks of a ring:
                sum of clipped ghat + N(0, K sigma_eta^2), which is (eps, delta)-DP. Clients learn the model up to
                positive scales, that is its outputs

sigma_eta and sigma_Delta follow from eps and delta by the exact theta = B^2 max_k (C^-1)_kk of the mask graph
(`emul.primitives.dp`), and `analysis` accounts by who was really heard. One local step on one batch: disguised models
cannot be trained for several. Rounding to the ring after adding Gaussian noise is for emulation; a discrete Gaussian is
the rigorous choice. Keys and secrets come from the scenario's seed, for emulation only.

Deviations: keys are fresh each round, not of a set-up; uniform noise of pairs on biases is not mended for the scale
that they lack, as own noise is. Messages and their bytes: `emul.schemes.mp_dp.messages`.

Protects: `sound`: a client's gradient from all, by (eps, delta)-DP of the sum, and the model from clients up to its
scales. Not: `paper` and `masked` give inputs away (Psi, Phi); false gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from emul.base.errors import ProtocolViolation
from emul.base.plain import PlainDict
from emul.protocols import pairwise
from emul.protocols.demands import Refused
from emul.protocols.mp_dp.client import Contribution, as_agreed
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.settings import (
    Additive,
    Clip,
    Graph,
    Loss,
    Noise,
    Precision,
    Preset,
    Repair,
    Settings,
    wrong_settings,
)
from emul.protocols.pairwise.client import contribute
from emul.roles import Analysis, Node, Realised, Scheme, Setting, World
from emul.roles.example import example
from emul.schemes.mp_dp.account import account
from emul.schemes.mp_dp.double import DoubleNoise
from emul.schemes.mp_dp.messages import MESSAGES
from emul.schemes.mp_dp.real import take_part
from emul.schemes.mp_dp.server_role import serve


@dataclass(frozen=True)
class Params:
    preset: Preset = "sound"                # gives the values for None below
    eps: float | None = 3.0                 # None: no noise of clients' own
    delta: float = 1e-5
    budget: Literal["round", "total"] = "round"     # eps is of each round, or of `rounds` together
    rounds: int | None = None               # of the budget, with budget: total
    bound: float = 1.0                      # B, of a client's contribution in the l2 norm
    records: int | None = None              # b: each sample's gradient is clipped to B, and their sum is over b, the
    #                                         task's batch: one record is the unit of privacy; None: a client is
    mean_samples: float | None = None       # n / K, known to all: client k counts n_k over it; None: all count alike
    graph: Graph = "n_out"                  # of masks, which the server draws: n others for each client; complete where
    #                                         K <= n + 1
    n: int = 5
    inflation: float = 1.05                 # x, of sigma_eta where masks are real: less of it, more sigma_Delta
    losses: int = 0                         # clients of a round whose noise may be missing: sigma_eta is made for that
    scales: Literal["chi3", "chi3_series", "log_uniform"] | None = None      # of R; sound: log_uniform, else chi3
    kappa: float = 1.5                      # log_uniform: R in [1/kappa, kappa]
    additive: Additive | None = None        # r on the outputs; sound: off, else full
    directions: int = 1                     # G of additive: compact
    output_scale: float | None = None       # of r; None: 1 / n_{L-1}, few digits lost, little hidden; published: 1
    clip: Clip | None = None                # by the norm of the message, by what public bounds allow the true gradient,
    #                                         or by that (oracle); sound: message, else oracle
    scale_bound: float | None = None        # clip: bound: R_max; None: kappa of log_uniform scales
    output_bound: float | None = None       # clip: bound: rho, of ||r||_2, with the additive part
    noise: Noise | None = None              # of clients and pairs; sound: gaussian, else uniform
    masks: Literal["ring", "real"] | None = None              # paper: real, on ghat alone; else ring, on all
    sigma_delta: float | None = None        # of real masks; None: the least that is enough
    ring_bits: Literal[64, 32] = 64
    ring_fraction: int | None = None        # f, bits after the point; None: 24, or as many as fit
    repair: Repair | None = None            # of dropouts; paper: off, else shamir
    threshold: int | None = None            # tau of shamir; None: floor(2 deg / 3) + 1, 2 at least
    verify_spare: bool = False              # shares beyond tau are held against the others; needs repair: shamir
    loss: Loss = "squared"                  # 1/2 |y^ - one-hot|^2; or, without the additive part, the task's own
    lr: float = 0.1
    dtype: Precision | None = None          # of the model that travels, and of real blocks; sound: float32
    fraction: float = 1.0                   # of the clients, drawn each round
    stage_deadline_s: float | None = None   # of each stage; None: until the fates are known

    def settled(self) -> Settings:
        """The parameters with those of the preset filled in; with masks of the ring a repair, which they need."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        preset = dict(PRESETS[self.preset])
        if self.masks == "ring" and preset["repair"] == "off":
            preset["repair"] = "shamir"
        return Settings(**given | {name: value for name, value in preset.items() if given[name] is None}, own="share")


_PUBLISHED: PlainDict = {"scales": "chi3", "additive": "full", "clip": "oracle", "noise": "uniform",
                              "dtype": "float64"}
PRESETS: dict[str, PlainDict] = {
    "paper": {**_PUBLISHED, "masks": "real", "repair": "off"},
    "masked": {**_PUBLISHED, "masks": "ring", "repair": "shamir"},
    "sound": {"scales": "log_uniform", "additive": "off", "clip": "message", "noise": "gaussian", "dtype": "float32",
              "masks": "ring", "repair": "shamir"}}


async def server(node: Node, p: Params) -> None:
    await serve(node, p.settled())


async def client(node: Node, p: Params) -> None:
    """Rounds of a client, which keeps nothing between them: gradients of the blocks, clipping, noise, masks."""
    s = p.settled()
    async for round_ in node.rounds(of=node.server):
        with round_:
            K = s.cohort(len(node.clients))
            disguise = await node.compute("model", node.task.disguise)
            opening = await node.recv(Disguised, node.server, timeout_s=s.rules(K).patience_s,
                                      accept=as_agreed(s, node.task, disguise))
            own = Contribution(node, s, opening, K)
            try:
                if s.repair == "shamir":
                    masking = None if s.masks == "ring" else DoubleNoise(s, opening, node.task.dimension).masked
                    await contribute(node, s.rules(K), own.values, own.encoded, masking)
                else:
                    await take_part(node, s, K, own)
            except ProtocolViolation as e:
                raise Refused(str(e)) from e


def unsent(params: Params) -> list[str]:
    """The messages that it never sends: those of the other repairs."""
    repair = params.settled().repair
    own = {"shamir": ["AdvertiseKey", "Roster", "Blocks", "Dropped", "Seeds", "Begin", "Survived", "Consent",
                      "Consents", *pairwise.unsent("server")],
           "seeds": [kind.__name__ for kind in pairwise.MESSAGES],
           "off": ["Dropped", "Seeds", *(kind.__name__ for kind in pairwise.MESSAGES)]}
    return own[repair]


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    s = params.settled()
    errors = wrong_settings(s) + wrong_records(s, world)
    return errors or wrong_masks(s, s.cohort(world.clients))


def wrong_records(s: Settings, world: World) -> list[str]:
    """The mistakes in settings with records as the unit of privacy."""
    if s.records is None:
        return []
    errors = []
    if s.additive != "off":
        errors.append(f"records = {s.records}: expected additive: off, since Psi and Phi have no noise for a record")
    solver, = (world.task.get("solver") or {"sgd": {}}).values()
    if s.records != solver.get("batch"):
        errors.append(f"records = {s.records}: expected the batch of task.solver, which is {solver.get('batch')}")
    return errors


def wrong_masks(s: Settings, K: int) -> list[str]:
    """The mistakes in masks and repair for K clients a round."""
    errors = []
    if K < 2:
        errors.append(f"fraction = {s.fraction}: draws {K} client, a sum needs at least 2")
    if not 0 <= s.losses <= K - 2:
        errors.append(f"losses = {s.losses}: expected 0..{max(0, K - 2)}, two clients less than a round has")
    if s.masks == "ring" and s.repair == "off":
        errors.append("repair = off: a sum in the ring with masks left in it is random; expected shamir or seeds")
    if s.masks == "ring" and s.sigma_delta is not None:
        errors.append(f"sigma_delta = {s.sigma_delta}: masks of the ring are uniform; expected with masks: real")
    if s.masks == "real" and s.eps is not None and s.sigma_delta is None and not s.inflation > 1:
        errors.append(f"inflation = {s.inflation}: expected above 1, or no sigma_delta is enough")
    if s.verify_spare and s.repair != "shamir":
        errors.append(f"verify_spare = {s.verify_spare}: expected with repair: shamir, since nothing else is shared")
    if not errors and s.repair == "shamir" and not 2 <= s.rules(K).t <= s.degree(K) + 1:
        errors.append(f"threshold = {s.rules(K).t}: expected 2..{s.degree(K) + 1}, a client and its neighbours")
    if not errors and s.masks == "ring" and s.f(K) < 8:
        errors.append(f"ring_bits = {s.ring_bits}: leaves {s.f(K)} bits after the point for {K} clients, expected 8")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """Warnings of the limits of the presets' protection."""
    s, found = params.settled(), []
    if s.flaws():
        found.append(f"preset = {s.preset}: no (eps, delta) holds against the server: " + "; ".join(s.flaws()))
    if s.additive != "off":
        found.append(f"additive = {s.additive}: a client can estimate the secret r by least squares, and then has the "
                     "model up to positive scales, that is its outputs")
    if s.repair == "off":
        found.append("repair = off: the noise of a pair whose other client drops out stays in the sum")
    return found


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """The guarantee that holds, per round and in total, by the clients that really took part."""
    return account(params.settled(), run, setting.rounds, len(setting.roles["client"]))


EXAMPLE = example("mp_dp", "stage_deadline: 500 ms", links=(), model="digits_mlp",
                  solver="lr: 0.1, steps: 1, batch: 32", sections="""
faults:
  - {node: client2, stage: Masked, drop: true, rounds: 2}
""")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=MESSAGES, stateless=("client",),
    unsent=unsent, disguises=True, timeouts=("stage_deadline_s",), check=check, warn=warn, analysis=analysis,
    example=EXAMPLE)
