"""The division of training samples among clients: one array of indices per client, from the labels and keyed streams.

`iid`           every sample to one client, sizes equal (they differ by one where the clients do not divide n)
`sizes: law`    as `iid` with unequal sizes: `linear`, `square`, `exponential` or `{lognormal: sigma}`
`shards: k`     the samples, sorted by label, in shards of equal size; every client gets k of them, by chance
`dirichlet: a`  label skew with equal sizes n // K; class proportions of each client ~ Dir(a 1_C)
`class_space: {avg: a, std: s, shots: n, test_shots: m}`   n samples of each of max(2, a - s) .. a + s classes
`classes: c`    every client holds c classes; a class is shared equally by those that hold it
`degree: q`     a group of clients for each class; a class goes to its own group with probability q, else to another
`bootstrap: n`  n samples with replacement, from the client's own stream: no memory per client, any number of them
`columns: ...`  by columns in place of samples (`emul.learning.columns`)
`by: column`    natural: all samples with the same value of a column, such as their writer, are with one client
`flwr_datasets: {NAME: {...}}`   by a partitioner of flwr-datasets (`emul.learning.flwr_partitions`)

Those of users (`emul.learning.names`) are functions (targets, columns, clients, value, rng) -> a list with an array of
indices for each client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.learning import columns as by_columns
from emul.learning import flwr_partitions
from emul.learning.names import PARTITION, find, unknown
from emul.learning.names import names as names_of
from emul.learning.shards import Columns, PartitionError, Shards


class Partition(Protocol):
    """The samples of each client. Clients are numbered from 0."""

    def size(self, client: int) -> int:
        """The number of samples of the client."""

    def indices(self, client: int) -> np.ndarray:
        """Indices of the client's samples, (size,) int64."""

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """Indices of the client's own test samples, from targets and columns of the test set; None: it has none of its
        own, and is evaluated by its labels."""


@dataclass(frozen=True)
class Bootstrap:
    """`draws` indices below n with replacement, kept as a key: a client's do not depend on the number of clients."""

    n: int
    draws: int
    seed: int

    def size(self, client: int) -> int:
        return self.draws

    def indices(self, client: int) -> np.ndarray:
        """(draws,) int64; made anew in every call, and the same."""
        return generator(self.seed, "partition", "bootstrap", client).integers(0, self.n, self.draws)

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """None, always: clients are evaluated by their labels."""
        return None


def make(spec: str | PlainDict, targets: np.ndarray, clients: int, seed: int, columns: Columns | None = None,
         plugins: Sequence[str] = ()) -> Partition:
    """The partition of `spec`: "iid", {"dirichlet": alpha}, {"classes": c}, {"by": column} and so on.

    targets: (n, ...) of the training set. columns: what else is known of its samples, {name: (n,)}. Raises
    PartitionError if the name is unknown, the samples do not suffice, or a rule needs labels where there are none.
    """
    name, value = parse(spec)
    columns = columns or {}
    if name == "by":
        return by(columns, clients, str(value), seed)
    if name == "columns":
        return by_columns.divided(targets, clients, value, seed)
    if name == flwr_partitions.NAME:
        return flwr_partitions.divided(targets, clients, value, seed, columns)
    if name not in RULES:
        return _of_user(name, value, targets, columns, clients, seed, plugins)
    _require_samples(name, targets, clients)
    return RULES[name](targets, clients, value, seed)


def require(spec: str | PlainDict, targets: np.ndarray, clients: int, *_: object) -> None:
    """Raise PartitionError as `make` does of a rule in NEVER_FAIL, without dividing."""
    _require_samples(parse(spec)[0], targets, clients)


def _require_samples(name: str, targets: np.ndarray, clients: int) -> None:
    if not len(targets):
        raise PartitionError(f"{name}: no training sample is left for the clients")
    if name != "bootstrap" and clients > len(targets):
        raise PartitionError(too_many(name, clients, len(targets)))
    if name in BY_LABELS and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
        raise PartitionError(f"{name}: expected a label for each sample, found targets of {targets.dtype} of shape "
                             f"{targets.shape}; use iid, bootstrap or by")


def names(plugins: Sequence[str] = ()) -> list[str]:
    """Every partition that can be asked for."""
    return names_of(PARTITION, (*RULES, "by", "columns", flwr_partitions.NAME), plugins)


def parse(spec: str | PlainDict) -> tuple[str, Any]:
    """Name and value of a partition as written in a scenario.

    >>> parse("iid"), parse({"dirichlet": 0.2})
    (('iid', None), ('dirichlet', 0.2))
    """
    if isinstance(spec, str):
        return spec, None
    if not isinstance(spec, dict) or len(spec) != 1:
        raise PartitionError(f"expected one partition such as iid or {{dirichlet: 0.2}}, found {spec!r}")
    (name, value), = spec.items()
    return str(name), value


def too_many(name: str, clients: int, samples: int) -> str:
    """The text of an error where samples do not suffice for one a client."""
    return f"{name}: {clients} clients cannot share {samples} samples without repetition; use bootstrap"


def iid(n: int, clients: int, seed: int) -> list[np.ndarray]:
    """A random order cut into `clients` parts; the first n mod clients of them hold one sample more."""
    order = generator(seed, "partition", "iid").permutation(n)
    return np.array_split(order, clients)


SIZE_LAWS = ("linear", "square", "exponential")         # by the client's number; and {lognormal: sigma}


def sizes(n: int, clients: int, law: str | dict[str, float], seed: int) -> list[np.ndarray]:
    """Size skew: a random order cut into parts whose sizes follow a law, one sample each at least.

    Client k = 1 .. K holds a share in proportion to k (`linear`), k^2 (`square`) or e^k (`exponential`), as the
    partitioners of flwr-datasets; or to exp(sigma z_k), z_k standard normal from the client's own stream.
    """
    k = np.arange(1, clients + 1, dtype=float)
    if isinstance(law, dict):
        sigma = float(law["lognormal"])
        weights = np.exp([sigma * generator(seed, "partition", "sizes", client).standard_normal()
                          for client in range(clients)])
    else:
        weights = {"linear": k, "square": k**2, "exponential": np.exp(k - clients)}[law]
    exact = (n - clients) * weights / weights.sum()
    counts = np.floor(exact).astype(np.int64)
    most_left = np.argsort(counts - exact, kind="stable")[:n - clients - int(counts.sum())]
    counts[most_left] += 1
    order = generator(seed, "partition", "sizes").permutation(n)
    return np.split(order, np.cumsum(1 + counts)[:-1])


def shards(labels: np.ndarray, clients: int, per_client: int, seed: int) -> list[np.ndarray]:
    """Samples sorted by label are cut into clients * per_client shards, of which every client gets `per_client` by
    chance: most hold so many classes. McMahan et al., AISTATS 2017, section 3 (200 shards of MNIST, 2 a client).

    The sizes of shards differ by one at most. Raises PartitionError where there are more shards than samples.
    """
    count = clients * per_client
    if count > len(labels):
        raise PartitionError(f"shards: {clients} clients with {per_client} shards each need {count} samples, "
                             f"there are {len(labels)}")
    cut = np.array_split(np.concatenate(_shuffled_classes(labels, seed, "shards")), count)
    dealt = generator(seed, "partition", "shards", "dealt").permutation(count).reshape(clients, per_client)
    return [np.concatenate([cut[i] for i in np.sort(own)]) for own in dealt]


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """Label skew with equal sizes: client k draws q_k ~ Dir(alpha 1_C) and takes n // K samples by q_k.

    Without replacement, clients in order; q_k is renormalised over the classes that are not yet exhausted. The last
    clients therefore live on what is left. n mod K samples belong to nobody.
    """
    pools = _shuffled_classes(labels, seed, "dirichlet")
    size = len(labels) // clients
    shards = []
    for client in range(clients):
        rng = generator(seed, "partition", "dirichlet", client)
        stock = np.array([len(pool) for pool in pools])
        counts = _counts_within(rng, rng.dirichlet(np.full(len(pools), alpha)), stock, size)
        shards.append(np.concatenate([pool[:count] for pool, count in zip(pools, counts, strict=True)]))
        pools = [pool[count:] for pool, count in zip(pools, counts, strict=True)]
    return shards


def _counts_within(rng: np.random.Generator, q: np.ndarray, stock: np.ndarray, size: int) -> np.ndarray:
    """The numbers of samples by class: multinomial by q; the excess over the stock is drawn again from other
    classes."""
    counts = np.zeros(len(q), dtype=np.int64)
    while (open_ := size - counts.sum()) > 0:           # each turn ends the loop or exhausts a class
        left = stock - counts
        p = np.where(left > 0, q, 0.0)
        if p.sum() < 1e-12:                             # no wish is left that can be met: by what is there
            p = left.astype(float)
        counts += np.minimum(rng.multinomial(open_, p / p.sum()), left)
    return counts


def classes(labels: np.ndarray, clients: int, per_client: int, seed: int) -> list[np.ndarray]:
    """Class space: every client holds `per_client` classes, each class shared equally by its holders.

    Classes are given out so that the numbers of holders differ by one at most, ties by chance. Classes that nobody
    holds (clients * per_client < C) stay unused.
    """
    pools = _shuffled_classes(labels, seed, "classes")
    if not 1 <= per_client <= len(pools):
        raise PartitionError(f"classes: expected 1 to {len(pools)} classes a client, found {per_client}")
    rng = generator(seed, "partition", "classes", "holders")
    holders: list[list[int]] = [[] for _ in pools]
    for client in range(clients):
        chance = rng.permutation(len(pools))
        fewest_first = chance[np.argsort([len(holders[c]) for c in chance], kind="stable")]
        for c in fewest_first[:per_client]:
            holders[c].append(client)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for pool, held_by in zip(pools, holders, strict=True):
        for client, part in zip(held_by, np.array_split(pool, max(1, len(held_by))), strict=False):
            parts[client].append(part)
    return [np.concatenate(part) for part in parts]


def degree(labels: np.ndarray, clients: int, q: float, seed: int) -> list[np.ndarray]:
    """Degree of non-IID data: clients are split at random into a group a class; a sample goes to the group of its class
    with probability q, else to one of the others, uniformly; in a group to all alike. q = 1 / C is i.i.d.
    Fang et al., USENIX Security 2020, section 7.1; Cao et al., NDSS 2021, section V-A.

    Raises PartitionError where there are fewer clients than classes that occur.
    """
    held, own = np.unique(labels, return_inverse=True)
    if clients < len(held):
        raise PartitionError(f"degree: {clients} clients make no group for each of the {len(held)} classes")
    rng = generator(seed, "partition", "degree")
    groups = np.array_split(rng.permutation(clients), len(held))
    away = rng.integers(1, max(2, len(held)), len(labels))              # steps to another group than the own one
    stays = rng.random(len(labels)) < q
    to = np.where(stays, own, (own + away) % len(held))
    shards: list[np.ndarray] = [np.empty(0, np.int64)] * clients
    for g, members in enumerate(groups):
        for client, shard in zip(members, np.array_split(rng.permutation(np.flatnonzero(to == g)), len(members)),
                                 strict=True):
            shards[client] = shard
    return shards


def _shuffled_classes(labels: np.ndarray, seed: int, rule: str) -> list[np.ndarray]:
    """Indices of each class that occurs, in increasing order of the class, each in a random order of its own."""
    return [generator(seed, "partition", rule, "class", int(c)).permutation(np.flatnonzero(labels == c))
            for c in np.unique(labels)]


CLASS_SPACE = {"avg": 1, "std": 0, "shots": 1, "test_shots": 1}     # its keys, and the least value of each
_DRAWS = 1000                           # of the class sets, before it is given up that every class has a holder


@dataclass(frozen=True)
class ClassSpace:
    """Clients with classes of their own, `shots` training and up to `test_shots` test samples of each."""

    held: list[np.ndarray]              # client -> its classes, ascending
    shards: Shards
    test_shots: int
    seed: int

    def size(self, client: int) -> int:
        return self.shards.size(client)

    def indices(self, client: int) -> np.ndarray:
        return self.shards.indices(client)

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """Of each of the client's classes `test_shots` without repetition, all where there are fewer. Clients draw on
        their own, so they may share some."""
        drawn = []
        for c in self.held[client].tolist():
            pool = np.flatnonzero(targets == c)
            rng = generator(self.seed, "partition", "class_space", "test", client, c)
            drawn.append(np.sort(rng.permutation(pool)[:self.test_shots]))
        return np.concatenate(drawn)


def class_space(labels: np.ndarray, clients: int, spec: dict[str, int], seed: int) -> ClassSpace:
    """Tan et al. 2022 (FedProto), public code: a client draws how many classes it holds, uniformly from
    max(2, avg - std) .. min(C, avg + std), then which, then `shots` samples of each, no sample twice over all clients.

    The class sets are drawn anew until every class has a holder. Raises PartitionError where that cannot be, or where
    a class has too few samples for its holders.
    """
    pools = _shuffled_classes(labels, seed, "class_space")
    low, high = max(2, spec["avg"] - spec["std"]), min(len(pools), spec["avg"] + spec["std"])
    if low > high:
        raise PartitionError(f"class_space: {low} to {high} classes a client, of {len(pools)}")
    for draw in range(_DRAWS):
        rng = generator(seed, "partition", "class_space", draw)
        held = [np.sort(rng.permutation(len(pools))[:count]) for count in rng.integers(low, high + 1, clients)]
        if len(np.unique(np.concatenate(held))) == len(pools):
            break
    else:
        raise PartitionError(f"class_space: {clients} clients of {low} to {high} classes leave one of {len(pools)} "
                             "classes without a holder")
    shots, taken = spec["shots"], [0] * len(pools)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for client, own in enumerate(held):
        for c in own.tolist():
            if taken[c] + shots > len(pools[c]):
                raise PartitionError(f"class_space: class {c} has {len(pools[c])} training samples; "
                                     f"{int(sum(c in h for h in held))} holders of {shots} shots need more")
            parts[client].append(pools[c][taken[c]:taken[c] + shots])
            taken[c] += shots
    return ClassSpace(held, Shards.of([np.concatenate(part) for part in parts]), spec.get("test_shots", 40), seed)


# --- by a column --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Groups:
    """Clients that hold whole groups: all samples with one value of a column."""

    shards: Shards
    column: str
    held: list[np.ndarray]              # client -> its values of the column

    def size(self, client: int) -> int:
        return self.shards.size(client)

    def indices(self, client: int) -> np.ndarray:
        return self.shards.indices(client)

    def test_indices(self, client: int, targets: np.ndarray, columns: Columns) -> np.ndarray | None:
        """The test samples of the client's groups, where the test set has the column."""
        if self.column not in columns:
            return None
        return np.flatnonzero(np.isin(columns[self.column], self.held[client]))


def by(columns: Columns, clients: int, column: str, seed: int) -> Groups:
    """Natural partition: the values of a column are dealt to the clients in a random order, so that the numbers of
    values differ by one at most. Raises PartitionError if there is no such column, or fewer values than clients."""
    if column not in columns:
        raise PartitionError(unknown("column", columns, column) if columns else
                             f'by: unknown column "{column}"; the data have none')
    values = np.unique(columns[column])
    if clients > len(values):
        raise PartitionError(f'by: {clients} clients cannot share the {len(values)} values of "{column}"')
    order = generator(seed, "partition", "by", column).permutation(len(values))
    held = [np.sort(values[part]) for part in np.array_split(order, clients)]
    return Groups(Shards.of([np.flatnonzero(np.isin(columns[column], own)) for own in held]), column, held)


def _of_user(name: str, value: object, targets: np.ndarray, columns: Columns, clients: int, seed: int,
             plugins: Sequence[str]) -> Partition:
    rule = find(PARTITION, name, plugins)
    if rule is None:
        raise PartitionError(unknown("partition", names(plugins), name))
    shards = [np.asarray(shard) for shard in rule(targets, columns, clients, value,
                                                  generator(seed, "partition", name))]
    if len(shards) != clients:
        raise PartitionError(f'partition "{name}": expected an array of indices for each of {clients} clients, '
                             f"found {len(shards)}")
    for client, shard in enumerate(shards):
        if shard.ndim != 1 or (shard.size and (shard.dtype.kind not in "iu" or not 0 <= shard.min() <= shard.max()
                                               < len(targets))):
            raise PartitionError(f'partition "{name}": client {client}: expected indices in 0..{len(targets) - 1}, '
                                 f"found {shard.dtype} of shape {shard.shape}")
    return Shards.of([shard.astype(np.int64) for shard in shards])


# --- by name ------------------------------------------------------------------------------------------------------

NEVER_FAIL = ("iid", "sizes", "dirichlet", "bootstrap")      # where there is a sample for each client
BY_LABELS = ("shards", "dirichlet", "classes", "class_space", "degree")
RULES: dict[str, Callable[[np.ndarray, int, Any, int], Partition]] = {
    "iid": lambda labels, clients, _, seed: Shards.of(iid(len(labels), clients, seed)),
    "sizes": lambda labels, clients, law, seed: Shards.of(sizes(len(labels), clients, law, seed)),
    "shards": lambda labels, clients, k, seed: Shards.of(shards(labels, clients, int(k), seed)),
    "dirichlet": lambda labels, clients, alpha, seed: Shards.of(dirichlet(labels, clients, float(alpha), seed)),
    "class_space": class_space,
    "classes": lambda labels, clients, c, seed: Shards.of(classes(labels, clients, int(c), seed)),
    "degree": lambda labels, clients, q, seed: Shards.of(degree(labels, clients, float(q), seed)),
    "bootstrap": lambda labels, _, n, seed: Bootstrap(len(labels), int(n), seed),
}
