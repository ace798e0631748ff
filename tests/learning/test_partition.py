import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.learning import partition
from emul.learning.partition import make
from emul.learning.shards import PartitionError

LABELS = st.lists(st.integers(0, 4), min_size=20, max_size=80).map(np.array)
DISJOINT = st.sampled_from(["iid"]) | st.sampled_from([0.05, 0.3, 1.0, 100.0]).map(lambda a: {"dirichlet": a})


def shards(spec, labels, clients, seed=3):
    made = make(spec, labels, clients, seed)
    return [made.indices(client) for client in range(clients)]


@settings(deadline=None, max_examples=60)
@given(DISJOINT, LABELS, st.integers(1, 20), st.integers(0, 2**40))
def test_shares_are_disjoint_deterministic_and_of_the_size_that_is_told(spec, labels, clients, seed):
    got = shards(spec, labels, clients, seed)
    everything = np.concatenate(got)
    assert len(set(everything.tolist())) == len(everything)
    assert set(everything.tolist()) <= set(range(len(labels)))
    made = make(spec, labels, clients, seed)
    assert [len(g) for g in got] == [made.size(client) for client in range(clients)]
    for a, b in zip(got, shards(spec, labels, clients, seed), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(deadline=None)
@given(LABELS, st.integers(1, 20))
def test_iid_covers_everything_with_sizes_that_differ_by_one_at_most(labels, clients):
    got = shards("iid", labels, clients)
    assert sorted(np.concatenate(got).tolist()) == list(range(len(labels)))
    assert {len(g) for g in got} <= {len(labels) // clients, len(labels) // clients + 1}


@settings(deadline=None)
@given(LABELS, st.integers(1, 20), st.sampled_from([1e-8, 0.1, 10.0]))
def test_dirichlet_shares_are_equal_and_leave_less_than_one_a_client(labels, clients, alpha):
    got = shards({"dirichlet": alpha}, labels, clients)
    assert {len(g) for g in got} == {len(labels) // clients}


def test_a_small_alpha_gives_few_classes_and_a_large_one_the_mixture_of_the_set():
    labels = np.repeat(np.arange(10), 600)

    def classes_of(alpha):                          # effective number, 1 / sum p^2, mean over clients
        counts = [np.bincount(labels[g], minlength=10) / len(g) for g in shards({"dirichlet": alpha}, labels, 20)]
        return np.mean([1 / (p**2).sum() for p in counts])
    assert classes_of(0.05) < 2.5 < 3 < classes_of(0.5) < 7 < 9.5 < classes_of(1000.0)


def test_dirichlet_follows_each_clients_own_proportions_while_stock_lasts():
    labels = np.repeat(np.arange(4), 5000)
    first = np.bincount(labels[shards({"dirichlet": 0.5}, labels, 100, seed=11)[0]], minlength=4)
    q = partition.generator(11, "partition", "dirichlet", 0).dirichlet(np.full(4, 0.5))
    assert np.abs(first / 200 - q).max() < 4 * np.sqrt(0.25 / 200)


@pytest.mark.parametrize(("clients", "per_client"), [(10, 2), (7, 3), (5, 10), (3, 1), (40, 4)])
def test_class_space_gives_each_client_its_number_of_classes_and_each_class_as_many_holders(clients, per_client):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
    got = shards({"classes": per_client}, labels, clients)
    held = [set(labels[g].tolist()) for g in got]
    assert {len(h) for h in held} == {per_client}
    holders = [sum(c in h for h in held) for c in range(10)]
    assert max(holders) - min(holders) <= 1
    everything = np.concatenate(got)
    assert len(set(everything.tolist())) == len(everything) == 60 * sum(h > 0 for h in holders)
    for c, h in enumerate(holders):                 # a class is shared equally by its holders
        sizes = {int((labels[g] == c).sum()) for g in got} - {0}
        assert sizes <= {60 // max(h, 1), 60 // max(h, 1) + 1}


def test_more_classes_than_there_are_is_refused():
    with pytest.raises(PartitionError, match=r"^classes: expected 1 to 2 classes a client, found 3$"):
        make({"classes": 3}, np.array([0, 1, 0, 1]), 2, 0)


@settings(deadline=None)
@given(st.integers(0, 99_999), st.integers(1, 10))
def test_a_bootstrap_share_does_not_depend_on_the_number_of_clients(client, draws):
    labels = np.zeros(50, int)
    many, fewer = (make({"bootstrap": draws}, labels, n, 7) for n in (100_000, client + 1))
    np.testing.assert_array_equal(many.indices(client), fewer.indices(client))
    assert many.size(client) == len(many.indices(client)) == draws


def test_bootstrap_draws_with_replacement_and_differs_between_clients():
    made = make({"bootstrap": 5000}, np.zeros(50, int), 2, 7)
    a, b = made.indices(0), made.indices(1)
    assert sorted(set(a.tolist())) == list(range(50))
    assert np.bincount(a).max() < 160               # 100 expected, sd 10
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("spec", ["iid", {"dirichlet": 0.5}, {"classes": 2}, {"bootstrap": 10},
                                  {"sizes": "linear"}, {"sizes": {"lognormal": 1.0}}, {"shards": 2}])
def test_another_seed_gives_another_partition(spec):
    labels = np.repeat(np.arange(5), 20)
    one, two = shards(spec, labels, 4, 1), shards(spec, labels, 4, 2)
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("spec", "text"), [
    ("idd", 'unknown partition "idd"; did you mean "iid"?'),
    ({"iid": None, "classes": 2}, "expected one partition such as iid or {dirichlet: 0.2}, "
                                  "found {'iid': None, 'classes': 2}"),
    ("iid", "iid: 5 clients cannot share 4 samples without repetition; use bootstrap")])
def test_what_cannot_be_divided_is_said(spec, text):
    with pytest.raises(PartitionError, match=f"^{re.escape(text)}$"):
        make(spec, np.array([0, 1, 0, 1]), 5, 0)


# --- sizes and shards ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("law", "weights"), [
    ("linear", [1, 2, 3, 4]), ("square", [1, 4, 9, 16]), ("exponential", np.exp([1, 2, 3, 4]).tolist())])
def test_sizes_follow_their_law_and_cover_everything(law: str, weights: list[float]) -> None:
    found = shards({"sizes": law}, np.zeros(10_000, np.int64), 4)
    expected = np.array(weights) / sum(weights) * (10_000 - 4) + 1
    assert np.abs([len(s) for s in found] - expected).max() < 1
    assert sorted(np.concatenate(found).tolist()) == list(range(10_000))


def test_lognormal_sizes_have_that_spread_and_do_not_depend_on_the_number_of_clients() -> None:
    few, many = ([len(s) for s in shards({"sizes": {"lognormal": 0.8}}, np.zeros(10**6, np.int64), k)]
                 for k in (200, 400))
    logs = np.log(many)
    assert 0.8 - 0.12 < logs.std() < 0.8 + 0.12                     # four standard errors of 400
    ratio = np.array(few) / np.array(many[:200])
    assert ratio.max() / ratio.min() < 1.01                         # the same draws, of another total


@given(st.integers(1, 40), st.integers(0, 60), st.sampled_from(["linear", "square", "exponential"]))
def test_every_client_has_a_sample(clients: int, more: int, law: str) -> None:
    found = shards({"sizes": law}, np.zeros(clients + more, np.int64), clients)
    assert min(len(s) for s in found) >= 1
    assert sum(len(s) for s in found) == clients + more


def test_each_client_has_its_shards_of_the_sorted_samples() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))
    found = shards({"shards": 2}, labels, 50)                       # 100 shards of 20: a class is 10 whole shards
    assert {len(s) for s in found} == {40}
    assert sorted(np.concatenate(found).tolist()) == list(range(2000))
    held = [np.bincount(labels[s], minlength=10) for s in found]
    assert all(set(counts.tolist()) <= {0, 20, 40} for counts in held)
    assert sum((counts > 0).sum() == 2 for counts in held) > 30     # the others got two shards of one class
    with pytest.raises(PartitionError, match=r"^shards: 50 clients with 41 shards each need 2050 samples, there are"):
        shards({"shards": 41}, labels, 50)


# --- degree ---------------------------------------------------------------------------------------------------------

def test_a_class_goes_to_its_group_with_probability_q_and_else_to_all_others_alike():
    labels = np.repeat(np.arange(4), 4000)
    shares = shards({"degree": 0.7}, labels, 8)
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    counts = np.array([np.bincount(labels[s], minlength=4) for s in shares])        # (8 clients, 4 classes)
    main = counts.argmax(axis=1)
    assert sorted(main.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    for g in range(4):
        of_group = counts[main == g].sum(axis=0) / 4000
        np.testing.assert_allclose(of_group, np.where(np.arange(4) == g, 0.7, 0.1), atol=0.025)
        assert abs(np.subtract(*counts[main == g].sum(axis=1))) <= 1


def test_degree_one_over_the_classes_is_iid_and_degree_one_is_a_class_each():
    labels = np.repeat(np.arange(5), 2000)
    even = np.array([np.bincount(labels[s], minlength=5) / len(s) for s in shards({"degree": 0.2}, labels, 5)])
    np.testing.assert_allclose(even, 0.2, atol=0.03)
    assert {len(set(labels[s].tolist())) for s in shards({"degree": 1.0}, labels, 5)} == {1}


def test_fewer_clients_than_classes_make_no_groups():
    with pytest.raises(PartitionError, match=r"^degree: 3 clients make no group for each of the 4 classes$"):
        shards({"degree": 0.5}, np.repeat(np.arange(4), 10), 3)


@pytest.mark.parametrize(("avg", "std", "least", "most"), [(3, 1, 2, 4), (3, 2, 2, 5), (4, 1, 3, 5), (4, 2, 2, 6),
                                                           (5, 1, 4, 6), (5, 2, 3, 7), (6, 2, 4, 8), (7, 2, 5, 9)])
def test_class_space_draws_numbers_of_classes_from_the_ranges_of_ppfpl(avg, std, least, most):
    """Check 13 of PPFPL: 2..5 classes for Avg 3, Std 2, and so on; every number of the range comes."""
    labels = np.repeat(np.arange(10), 2000)
    held = {len(set(labels[part.indices(k)].tolist())) for part in (
        partition.make({"class_space": {"avg": avg, "std": std, "shots": 2, "test_shots": 1}}, labels, 20, seed)
        for seed in range(12)) for k in range(20)}
    assert held == set(range(least, most + 1))
