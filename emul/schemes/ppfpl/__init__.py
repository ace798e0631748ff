"""PPFPL: class prototypes averaged under encryption by two servers that weigh them by their direction. Zhang et al.,
arXiv 2504.03173, corrected.

    client m    L = cross entropy + lambda * mean over the classes of the batch of 1 - cos(c_k, C_k)
                u_mk = c_mk / |c_mk|, c_mk (n,) the mean feature of its samples of class k; sends Enc_v(u_mk)
    A, V        T_k = sum over the accepted holders of u_mk;  sim_mk = u_mk . T_k / |T_k|
                b_mk = 1 if sim_mk > chi;  j_mk = b_mk sim_mk;  C_k = sum_m j_mk u_mk / sum_m j_mk, under Enc_x
    client m    decrypts C_k

Models are never sent. The aggregator A has no secret key, the verifier V that of v, all clients that of x. The page
docs/schemes/ppfpl.md says what each of them learns all the same, and what one client and A learn together.

`he: ckks` encrypts with TenSEAL (extra `he`): such runs repeat in decisions, sizes and times, and to about 1e-9 in
values. `he: plain` goes through the same messages, masks and decisions on plain numbers, declares the bytes and states
the times of ciphertexts, and repeats to the bit.

Deviations: the printed test for rejected prototypes rejects honest ones, so it is a comparison with a reference; masks
are additive and fresh; prototypes lie packed in blocks (`layout: per_class` as printed); the initial model is known to
all and not sent.

`messages`      the ten messages of a round, those of the iterated maximum, and what a receiver demands of them
`keys`          the key centre, and how every party comes to its keys
`setting`       what all roles share of the parameters, and the costs of a run in which nothing is encrypted
`aggregator_role`   A's rounds: norms, class sums, products, comparison, average
`verifier_role`     V's answers
`decisions`     the rule in the clear; `ciphertexts` the same on encrypted rows, laid out as `slots` says
`faults`        clients that send what they should not
`attacks`       what V learns of the clients: `SharedMask`, `SlotLeak`

Protects: prototypes from two servers that do not collude, beyond norms and similarities; the model from malicious
prototypes. Not: which classes a client holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from emul.base.errors import NotSendable, ProtocolFailure
from emul.base.plain import PlainDict
from emul.learning import NodeTask
from emul.learning.models import BUILT_IN, name_of
from emul.learning.objectives import CosineAlignment
from emul.learning.pooling import Pooling
from emul.primitives.he.ckks import PROTOTYPES, Box, available
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy
from emul.schemes.ppfpl import aggregator_role as a
from emul.schemes.ppfpl import messages
from emul.schemes.ppfpl import verifier_role as v
from emul.schemes.ppfpl.ciphertexts import Cohort, Rows
from emul.schemes.ppfpl.decisions import WeightRule, cosine_quantiles
from emul.schemes.ppfpl.faults import FAULTS, Honest
from emul.schemes.ppfpl.keys import Boxes, key_centre, take_keys
from emul.schemes.ppfpl.messages import GlobalPrototypes, LocalPrototypes, SealedRows
from emul.schemes.ppfpl.setting import PpfplSetting
from emul.schemes.ppfpl.slots import Layout

WHOLE = Pooling("none")                 # features are exchanged as they are

Prototypes = dict[int, np.ndarray]      # class -> (n,) float64


@dataclass(frozen=True)
class Params:
    lambda_: float = 1.0                # weight of the alignment
    chi: float = 0.0                    # cosine above which a prototype is accepted, in [-1, 1)
    weight: Literal["sim", "shifted", "uniform"] = "sim"            # j: b sim; b (1 + sim) / 2; 1, whatever chi says
    compare: Literal["masked_sign", "max_iter"] = "masked_sign"     # max_iter: the iterated maximum of Algorithm 6
    d: int = 9                          # its iterations
    scaled: bool = True                 # it iterates on twice what is printed, which halves its error
    layout: Literal["packed", "per_class"] = "packed"               # per_class: a ciphertext for each prototype
    he: Literal["plain", "ckks"] = "plain"
    prototype_layer: Literal["relu", "linear"] = "relu"             # features after or before the last ReLU
    min_holders: int = 1                # accepted clients of a class, below which it keeps its prototype
    upload_deadline_s: float | None = None      # of the clients; None: until the fates are known
    server_timeout_s: float | None = None       # of each message between the servers, and of keys


def setting(p: Params, task: NodeTask) -> PpfplSetting:
    """The setting that all roles have in common."""
    rule = WeightRule(p.chi, p.weight, p.compare, p.d, p.scaled, p.min_holders)
    layout = Layout(task.classes, task.feature_size, PROTOTYPES.slots, p.layout == "packed")
    return PpfplSetting(rule, layout, p.he == "ckks", p.upload_deadline_s, p.server_timeout_s)


# --- servers --------------------------------------------------------------------------------------------------------

async def kgc(node: Node, p: Params) -> None:
    how = setting(p, node.task)
    await key_centre(node, how.scheme, how.keygen_s)


async def aggregator(node: Node, p: Params) -> None:
    how, s = setting(p, node.task), node.state(a.State())
    async for round_ in node.rounds():
        with round_:
            found = a.RoundFindings()
            try:
                await a.aggregate(node, how, s, found)
            except ProtocolFailure:
                tell(node, how, s, found)
                raise
            tell(node, how, s, found)


def tell(node: Node, how: PpfplSetting, s: a.State, found: a.RoundFindings) -> None:
    """Report what the round has come to, failed or not; of plain runs the prototypes, too, and how they agree."""
    plain: PlainDict = {}
    if not how.real:
        C = [how.layout.vector(k, row) for k, row in sorted(s.latest.items())]
        plain["parameters"] = np.concatenate([*C, np.zeros(0)]).astype(np.float32)
        plain["evaluate"] = partial(agreement, found.cohort, found.uploads)
    node.report(**plain, **found.values, classes=len(found.classes), kept_classes=len(s.latest) - len(found.classes))
    if found.judged:
        node.judged(found.judged, found.kept)


def agreement(cohort: Cohort | None, uploads: Mapping[int, Rows], _: Vector) -> dict[str, float]:
    """The distribution of the cosines of a plain run, off the clock: no party sees it."""
    if cohort is None:
        return {}
    own = {m: dict(zip(cohort.layout.rows_of(held), uploads[m], strict=True)) for m, held in cohort.held.items()}
    return cosine_quantiles({m: {k: cohort.layout.vector(k, own[m][cohort.layout.place(k)[0]]) for k in held}
                             for m, held in cohort.held.items()})


async def verifier(node: Node, p: Params) -> None:
    how, s = setting(p, node.task), node.state(v.State())
    async for round_ in node.rounds(of=node.nodes("aggregator")[0]):
        with round_:
            await v.verify(node, how, s)


# --- clients --------------------------------------------------------------------------------------------------------

@dataclass
class ClientState:
    model: Vector                       # (d,) float32, this client's own
    boxes: Boxes | None = None
    prototypes: Prototypes = field(default_factory=dict)            # C, as decrypted last


async def client(node: Node, p: Params, fault: type[Honest] = Honest) -> None:
    """fault: what this client does wrong with its prototypes."""
    how, s, wrong = setting(p, node.task), node.state(ClientState(node.task.initial_parameters())), fault()
    source, = node.nodes("aggregator")
    async for round_ in node.rounds(of=source):
        with round_:
            got = await node.recv(GlobalPrototypes, source, accept=how.frames.prototypes)
            if s.boxes is None:
                s.boxes = await take_keys(node, how.scheme, got.dealt.tolist(), p.server_timeout_s,
                                          how.load_s("client"))
            if len(got.sealed.rows):
                s.prototypes = await node.compute("decrypt", opened, s.boxes.x, how.layout, got.sealed.rows, got.where,
                                                  cost_s=how.cost_s("decrypt", len(got.sealed.rows)))
            s.model, own = await node.compute("train", train, node.task, s.model, dict(s.prototypes), p)
            node.report(s.model, evaluate=node.task.evaluate_own)
            if not all(np.isfinite(u).all() for u in own.values()):
                raise NotSendable("LocalPrototypes: features are not finite")
            if not own:
                raise NotSendable("LocalPrototypes: the features of all classes are dead")
            rows = await node.compute("encrypt", sealed, s.boxes.v, how.layout, own, wrong, node.stream("fault"),
                                      cost_s=how.cost_s("encrypt", len(how.layout.rows_of(list(own)))),
                                      volatile=how.real)
            node.send(source, wrong.message(LocalPrototypes(np.array(sorted(own), np.uint32), SealedRows.of(rows, 0))))


def opened(box: Box, layout: Layout, rows: Rows, where: np.ndarray) -> Prototypes:
    """C of all classes that have one. where: (J,), 1 + the ciphertext of a class."""
    values = [box.decrypt(cipher) for cipher in box.open(rows)]
    return {k: layout.vector(k, values[at - 1]) for k, at in enumerate(where.tolist()) if at}


def train(task: NodeTask, model: Vector, means: Prototypes, p: Params) -> tuple[Vector, Prototypes]:
    """L from `model` on: (the model after it, u of each class whose features are not dead)."""
    linear = p.prototype_layer == "linear"
    pull = CosineAlignment.to(means, task.classes, p.lambda_, linear)
    after, own, _ = task.train_prototypes(model, task.objective + pull, WHOLE, linear=linear, unit=True)
    return after, own


def sealed(box: Box, layout: Layout, own: Prototypes, fault: Honest, rng: np.random.Generator) -> Rows:
    """Enc_v of the own prototypes, row by row."""
    table = fault.rows(layout, layout.table(own), sorted(own))
    return fault.sealed(box.seal([box.encrypt(row) for _, row in sorted(table.items())], 0), rng)


def repeats(params: Params) -> bool:
    """CKKS takes no seed."""
    return params.he == "plain"


# --- what may be faulty ---------------------------------------------------------------------------------------------

async def no_align(node: Node, p: Params) -> None:
    """A client that trains without the alignment."""
    await client(node, replace(p, lambda_=0.0))


def _faulty(fault: type[Honest]) -> Any:
    async def faulty_client(node: Node, p: Params) -> None:
        await client(node, p, fault)
    return faulty_client


# --- checks ---------------------------------------------------------------------------------------------------------

def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p = params
    errors = checks.not_negative(lambda_=p.lambda_)
    errors += checks.times(upload_deadline=p.upload_deadline_s, server_timeout=p.server_timeout_s)
    errors += checks.at_least(0, "0 iterations or more", d=p.d) + checks.at_least(
        1, "1 client or more", min_holders=p.min_holders)
    if not -1 <= p.chi < 1:
        errors.append(f"chi = {p.chi}: expected a cosine in [-1, 1)")
    elif p.chi < 0 and p.weight == "sim":
        errors.append(f"chi = {p.chi}: with weight: sim weights could be negative; use shifted or uniform")
    if p.he == "ckks" and not available():
        errors.append("he = ckks: needs TenSEAL: pip install emul[he]")
    return errors + wrong_model(p, name_of(world.task.get("model")))


def wrong_model(p: Params, name: str) -> list[str]:
    """The mistakes in the model for prototypes, if anything is known of it."""
    model = BUILT_IN.get(name)
    if model is None:
        return []
    if model.features is None:
        return [f"model = {name}: expected one with a representation and a decision, such as "
                f"{', '.join(n for n, m in BUILT_IN.items() if m.features)}"]
    errors = []
    if model.features > PROTOTYPES.slots:
        errors.append(f"model = {name}: features of length {model.features} do not fit {PROTOTYPES.slots} slots")
    if p.prototype_layer == "linear" and not model.relu:
        errors.append(f"prototype_layer = linear: the representation of {name} does not end with a ReLU")
    return errors


EXAMPLE = example("ppfpl", "upload_deadline: 1 s, server_timeout: 1 s", topology="star_mesh, clients: 5, servers: 3",
                  bandwidth="200 Mbit/s", links=(lossy("client*->server1"),),
                  partition="{class_space: {avg: 4, std: 1, shots: 10, test_shots: 10}}", model="digits_classic",
                  rounds=2)

SCHEME = Scheme(
    params=Params, roles={"kgc": kgc, "aggregator": aggregator, "verifier": verifier, "client": client},
    messages=messages.MESSAGES,
    behaviours={"client": {"no_align": no_align, **{name: _faulty(fault) for name, fault in FAULTS.items()}}},
    places={"aggregator": "server[0]", "verifier": "server[1]", "kgc": "server[2]", "client": "client"},
    decides="aggregator", deterministic=repeats, timeouts=("upload_deadline_s", "server_timeout_s"), check=check,
    accuracy="personal", example=EXAMPLE)
