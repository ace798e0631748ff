"""The group that takes part: the code and the keys of K clients, and the server's side of making it anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, TypeVar

import numpy as np

from emul.base.errors import TooFewClients
from emul.base.streams import generator
from emul.protocols.demands import shaped
from emul.protocols.setup import Inquiry, one_of_its_own
from emul.roles import Message, Node
from emul.schemes.fair_seccogc import gradient_coding, secure_keys
from emul.schemes.fair_seccogc.messages import Group, GroupHeld, GroupSum, PartialSum, Present, Rekey

ASKED_ROUNDS = 3                    # a client silent in so many is left out: a lost request costs one its round

Answer = TypeVar("Answer", Present, GroupHeld)


# --- code and keys of K clients -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Design:
    """The design of the code and the keys of a group; the same at every node."""

    s: int                                  # a relay needs s others; s lost partial sums do no harm
    code: Literal["cyclic_mds", "fractional", "tandon"]
    screen: int                             # draws of a `tandon` code, of which the best is kept
    lambda_: float                          # standard deviation of a key, per coordinate; 0: no keys
    keys: Literal["pairwise", "dealer", "component_seeds", "common_seed"]
    construction: Literal["fair_cyclic", "fair_general", "fair_projection", "random"]       # of A
    gamma: int | None                       # of `fair_cyclic`, the others in a row of A; None: K - 1

    @property
    def of_pairs(self) -> bool:
        """True if clients make their keys from secrets of pairs."""
        return bool(self.lambda_) and self.keys == "pairwise"

    @property
    def dealt(self) -> bool:
        """True if a dealer makes keys or their seeds."""
        return bool(self.lambda_) and self.keys != "pairwise"


# every node of a process asks for the same one, and screening 20 draws for K = 100 takes seconds: the first one pays
@cache
def code_matrix(code: str, K: int, s: int, screen: int, seed: int) -> np.ndarray:
    """G by its name, (K, K) float64, read-only. Raises ValueError if there is none for K and s."""
    if code == "cyclic_mds":
        G = gradient_coding.cyclic_mds(K, s)
    elif code == "fractional":
        G = gradient_coding.fractional(K, s)
    else:
        G = gradient_coding.tandon(K, s, generator(seed, "gradient code"), screen)
    G.flags.writeable = False
    return G


def gradient_code(design: Design, K: int, seed: int) -> np.ndarray:
    """G, (K, K) float64, the same at every node. Raises ValueError if there is none for K and s."""
    return code_matrix(design.code, K, design.s, design.screen, seed)


def no_code(code: str, K: int, s: int) -> str | None:
    """The reason why there is no such code; None: there is one."""
    if not 0 <= s <= K - 1:
        return f"expected 0..{K - 1} with {K} clients"
    if code == "cyclic_mds" and (K - s) % 2 == 0:
        return f"cyclic_mds needs K - s odd, K = {K} clients; s = {s + 1} would do"
    if code == "fractional" and K % (s + 1):
        return f"fractional needs s + 1 to divide K = {K} clients"
    return None


def fitted(design: Design, K: int) -> Design:
    """The design for a group of K: for all clients the scenario's, else with the largest s' <= s that has a code.

    Raises TooFewClients.
    """
    s = next((s for s in range(min(design.s, K - 1), -1, -1) if no_code(design.code, K, s) is None), None)
    if K < 2 or s is None:
        raise TooFewClients(f"set-up: {K} clients are there, too few for a sum")
    return replace(design, s=s, gamma=None if design.gamma is None else min(design.gamma, K - 1))


@cache
def generator_matrix(construction: str, K: int, lambda_: float, gamma: int, seed: int) -> np.ndarray:
    """A, (K, L) float64, that satisfies the conditions of its construction. Raises NoSuchKeys."""
    rng = generator(seed, "key generator")
    if construction == "random":
        return secure_keys.require(secure_keys.random_rows(K, lambda_, rng))
    if construction == "fair_cyclic":
        A = secure_keys.fair_cyclic(K, gamma, lambda_)
    elif construction == "fair_general":
        try:
            A = secure_keys.fair_general(K, lambda_, rng)
        except secure_keys.NoSuchKeys:
            A = secure_keys.fair_projection(K, lambda_, rng)
    else:
        A = secure_keys.fair_projection(K, lambda_, rng)
    return secure_keys.require(A, lambda_)


def key_generator(design: Design, K: int, seed: int) -> np.ndarray:
    """A of this design, (K, L) float64, the same at every node."""
    if design.keys == "pairwise":
        return secure_keys.pairwise(K, design.lambda_)
    return generator_matrix(design.construction, K, design.lambda_, K - 1 if design.gamma is None else design.gamma,
                            seed)


async def code_of(node: Node, design: Design, members: Sequence[int]) -> tuple[Design, np.ndarray]:
    """The design of a group, and its G."""
    now = fitted(design, len(members))
    return now, await node.compute("code", gradient_code, now, len(members), node.seed, work=len(members))


def wrong_design(design: Design, K: int) -> list[str]:
    """The mistakes in a design for K clients; for a scheme's `check`."""
    d, errors = design, []
    refused = no_code(d.code, K, d.s)
    if refused is not None:
        errors.append(f"s = {d.s}: {refused}")
    if d.of_pairs and (d.construction != "fair_cyclic" or d.gamma not in (None, K - 1)):
        found = d.construction if d.construction != "fair_cyclic" else f"gamma = {d.gamma}"
        errors.append(f"keys = pairwise: pairs make the keys of fair_cyclic with gamma = K - 1 = {K - 1}, not of "
                      f"{found}; let a dealer make them")
    if d.gamma is not None and (d.construction != "fair_cyclic" or not 1 <= d.gamma <= K - 1):
        errors.append(f"gamma = {d.gamma}: expected 1..{K - 1} with {K} clients, for fair_cyclic only")
    if d.screen < 1:
        errors.append(f"screen = {d.screen}: expected 1 draw or more")
    return errors


# --- the server's side ----------------------------------------------------------------------------------------------

@dataclass
class GroupMembers:
    """The clients that take part, as the server knows them."""

    members: list[int]                                  # ascending
    unsure: set[int]                                    # of them, who may not have the key ring or the group yet
    keys: dict[int, np.ndarray] = field(default_factory=dict)       # client -> public key
    epoch: int = 0                                      # number of the group: how often it was made anew
    in_vain: int = 0                                    # failed rounds since a success or a new group
    there: dict[int, np.ndarray] = field(default_factory=dict)      # client -> its key for the group to come
    asked: int = 0                                      # rounds in which was asked who is there; 0: nobody is


async def regroup(node: Node, design: Design, g: GroupMembers, timeout_s: float | None) -> None:
    """Those who answer are the group from now on. Raises TooFewClients while somebody may still do so, and if they are
    too few for any code; then the old group stays."""
    epoch, g.asked = g.epoch + 1, g.asked + 1
    answers = await _answers(node, [k for k in node.clients if k not in g.there], Rekey(epoch), Present, epoch,
                             timeout_s, one_of_its_own(g.there) if design.of_pairs else shaped(key=(0,)))
    g.there |= {k: m.key for k, m in answers.items()}
    silent = [k for k in node.clients if k not in g.there]
    if silent and g.asked < ASKED_ROUNDS:
        raise TooFewClients(f"set-up: {node.world.names[silent[0]]} has not said that it is there")
    there, g.there, g.asked, g.in_vain = g.there, {}, 0, 0
    fitted(design, len(there))
    g.epoch, g.members, g.keys, g.unsure = epoch, sorted(there), there, set(there)


async def tell_group(node: Node, g: GroupMembers, timeout_s: float | None) -> None:
    """See to it that every member knows the group. Raises TooFewClients."""
    group = Group(g.epoch, np.array(g.members, np.int32), np.stack([g.keys[k] for k in g.members]))
    g.unsure -= (await _answers(node, sorted(g.unsure), group, GroupHeld, g.epoch, timeout_s)).keys()
    if g.unsure:
        raise TooFewClients(f"set-up: {node.world.names[min(g.unsure)]} has not confirmed the group")


async def gather_sums(node: Node, group: GroupMembers, G: np.ndarray, d: int, timeout_s: float | None,
                      ) -> Mapping[int, PartialSum]:
    """{relay: its sum}, of this group."""
    def accept(message: PartialSum) -> None:
        near = int(np.count_nonzero(G[group.members.index(message.sender)]))
        if isinstance(message, GroupSum) and message.epoch != group.epoch:
            return                      # of an earlier group: honest, and no use
        shaped(heard=(-(-near // 8),), sum=(d,))(message)

    if not group.epoch:
        return await node.gather(PartialSum, group.members, timeout_s=timeout_s, accept=accept)
    found = await node.gather(GroupSum, group.members, timeout_s=timeout_s, accept=accept)
    return {k: m for k, m in found.items() if m.epoch == group.epoch}


async def _answers(node: Node, clients: list[int], question: Message, kind: type[Answer], epoch: int,
                   timeout_s: float | None, accept: Callable[[Answer], None] | None = None) -> dict[int, Answer]:
    """{client: its answer}, of those who answer for that group."""
    answers: dict[int, Answer] = {}
    await Inquiry(node, timeout_s).ask(lambda: [k for k in clients if k not in answers], question, kind, lambda got:
                                       answers.update({k: m for k, m in got.items() if m.epoch == epoch}), accept)
    return answers
