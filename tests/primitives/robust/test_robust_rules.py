"""Rules by name: what a scenario may write, what each needs, and that each is the function that it names."""

import dataclasses

import numpy as np
import pytest

from emul.primitives import robust
from emul.primitives.robust import RULES, Given, choose

X = np.random.default_rng(0).standard_normal((11, 5)).astype(np.float32)
GIVEN = Given(clients=tuple(range(11)), samples=np.arange(1, 12), reference=X[0], state=None)
WRITTEN = {
    "krum": ({"f": 2}, lambda: robust.krum(X, 2)),
    "multi_krum": ({"f": 2, "m": 3}, lambda: robust.multi_krum(X, 2, 3)),
    "median": ({}, lambda: robust.coordinate_median(X)),
    "trimmed_mean": ({"beta": 0.2}, lambda: robust.trimmed_mean(X, beta=0.2)),
    "geometric_median": ({"weights": "samples"}, lambda: robust.geometric_median(X, GIVEN.samples)),
    "foolsgold": ({"kappa": 2}, lambda: robust.foolsgold(X, GIVEN.clients, kappa=2)),
    "fltrust": ({}, lambda: robust.fltrust(X, X[0])),
    "norm_clipping": ({"bound": 1.5}, lambda: robust.norm_clipping(X, 1.5)),
    "centred_clipping": ({"radius": 1}, lambda: robust.centred_clipping(X, 1)),
    "bulyan": ({"f": 2}, lambda: robust.bulyan(X, 2)),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_the_function_that_it_names(name):
    values, direct = WRITTEN[name]
    expected, found = direct(), choose({name: values})(X, GIVEN)
    assert found.aggregate.tobytes() == expected.aggregate.tobytes()
    assert found.kept == expected.kept
    assert found.why == expected.why
    assert found.aggregate.shape == (5,)
    assert found.aggregate.dtype == np.float64
    assert found.scores.shape == (11,)
    if found.weights is not None:
        np.testing.assert_allclose(found.weights @ X.astype(float), found.aggregate, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_takes_as_few_updates_as_it_says_and_changes_none(name):
    chosen = choose({name: WRITTEN[name][0]})
    given = dataclasses.replace(GIVEN, clients=tuple(range(chosen.least)), samples=np.ones(chosen.least, int))
    updates = X[:chosen.least].copy()
    updates.flags.writeable = False
    chosen(updates, given)
    if chosen.least > 1:
        with pytest.raises((robust.TooManyByzantine, ValueError)):
            chosen(updates[:-1], given)


def test_a_name_alone_takes_the_defaults():
    assert choose("median") == choose({"median": {}}) == choose({"median": None})
    assert choose("fltrust").rule.reference
    assert choose({"krum": {"f": 2, "unproven": True}}).least == 5
    assert choose({"krum": {"f": 2}}).least == 7


def test_the_state_of_a_round_goes_into_the_next():
    rule = choose({"centred_clipping": {"radius": 0.1}})
    first = rule(X, GIVEN)
    second = rule(X, Given(state=first.state))
    assert second.aggregate.tolist() == robust.centred_clipping(X, 0.1, centre=first.aggregate).aggregate.tolist()


@pytest.mark.parametrize(("written", "message"), [
    ("krumm", 'unknown rule "krumm"; did you mean "krum"?'),
    ("mean", 'unknown rule "mean"; did you mean "median"?'),
    ({"zzz": {}}, f'unknown rule "zzz"; expected one of {", ".join(RULES)}'),
    ("krum", "krum: f is missing"),
    ({"krum": {"f": 1.5, "g": 2}}, 'krum: unknown parameter "g", expected f, unproven; '
                                   "krum: f = 1.5: expected a whole number"),
    ({"krum": {"f": True}}, "krum: f = True: expected a whole number"),
    ({"krum": {"f": -1}}, "krum: f = -1: expected at least 0"),
    ({"krum": 2}, "krum: found 2, expected {parameter: value}"),
    ({"median": {"f": 2}}, 'median: unknown parameter "f", expected none'),
    ({"trimmed_mean": {}}, "trimmed_mean: expected either f or beta"),
    ({"trimmed_mean": {"beta": 0.5}}, "trimmed_mean: beta = 0.5: expected a share of the updates in [0, 1/2)"),
    ({"norm_clipping": {"bound": "1"}}, "norm_clipping: bound = '1': expected a number"),
    ({"norm_clipping": {"bound": float("inf")}}, "norm_clipping: bound = inf: expected a number"),
    ({"norm_clipping": {"bound": 1, "weights": "size"}},
     "norm_clipping: weights = 'size': expected uniform or samples"),
    ({"multi_krum": {"f": 0, "m": 0}}, "multi_krum: m = 0: expected at least 1"),
    ({"a": 1, "b": 2}, "found {'a': 1, 'b': 2}, expected the name of a rule, or {name: {parameter: value}}"),
    (3, "found 3, expected the name of a rule, or {name: {parameter: value}}"),
])
def test_what_is_wrong_is_said(written, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        choose(written)
    assert str(error.value) == message


def test_what_a_rule_needs_and_does_not_get_is_said():
    with pytest.raises(ValueError, match=r"^fltrust needs a reference, the server's own update of this round$"):
        choose("fltrust")(X)
    with pytest.raises(ValueError, match=r"^weights: samples needs the number of samples of each client$"):
        choose({"norm_clipping": {"bound": 1, "weights": "samples"}})(X)
