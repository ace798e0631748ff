from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from emul.base.errors import ScenarioError
from emul.scenario import build_params, check_params
from emul.scenario.params import scenario_keys


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None
    window_ns: int = 0
    root_bytes: int = 0
    rate_bps: int | None = None
    lambda_: float = 0.1
    threshold: int | None = None
    verify: bool = True
    weights: Literal["samples", "uniform"] = "samples"
    label: str = ""
    sizes: tuple[int, ...] = ()
    pair: tuple[int, float] = (0, 0.0)
    names: list[str] = field(default_factory=list)
    table: dict[str, float] = field(default_factory=dict)
    mixed: int | str = 0
    levels: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Needy:
    s: int
    limit_s: float
    total: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.s > 9:
            raise ValueError("s = 10 exceeds 9")


def test_without_keys_the_defaults_stand():
    assert build_params(Params, {}) == Params()


def test_units_stand_in_the_values_and_not_in_the_keys():
    p = build_params(Params, {"deadline": "1500 ms", "window": "20 ms", "root": "1 kB", "rate": "2 MB/s",
                              "lambda": 0.5})
    assert p == Params(deadline_s=1.5, window_ns=20_000_000, root_bytes=1000, rate_bps=16_000_000, lambda_=0.5)


@pytest.mark.parametrize("nothing", ["none", None])
def test_none_is_a_value_where_the_type_allows_it(nothing):
    assert build_params(Params, {"deadline": nothing, "threshold": nothing}) == Params()
    assert check_params(Params, {"verify": nothing})[1][0][2] == "expected true or false"


def test_every_annotation_is_filled_by_its_type():
    p = build_params(Params, {"threshold": 4, "verify": False, "weights": "uniform", "label": "none", "sizes": [1, 2],
                              "pair": [1, 2], "names": ["a"], "table": {"x": 1}, "mixed": "m", "levels": [1, "none"]})
    assert p == Params(threshold=4, verify=False, weights="uniform", label="none", sizes=(1, 2), pair=(1, 2.0),
                       names=["a"], table={"x": 1.0}, mixed="m", levels=(1.0, None))
    assert type(p.pair[1]) is float
    assert type(p.sizes) is tuple


@pytest.mark.parametrize(("mapping", "found"), [
    ({"dedline": "3 s"}, (("dedline",), '"3 s"', 'unknown parameter; did you mean "deadline"?')),
    ({"deadline_s": 3}, (("deadline_s",), "3", 'unknown parameter; did you mean "deadline"?')),
    ({"deadline": 3}, (("deadline",), "3", "expected a duration such as 20 ms or 1 h: the unit is missing")),
    ({"root": "x"}, (("root",), '"x"', "expected a size such as 1 MB or 64 KiB")),
    ({"threshold": 4.0}, (("threshold",), "4.0", "expected none or a whole number")),
    ({"threshold": True}, (("threshold",), "true", "expected none or a whole number")),
    ({"lambda": float("nan")}, (("lambda",), "nan", "expected a number")),
    ({"lambda": float("inf")}, (("lambda",), "inf", "expected a number")),
    ({"lambda": "none"}, (("lambda",), '"none"', "expected a number")),
    ({"weights": "unifrm"}, (("weights",), '"unifrm"', 'unknown value; did you mean "uniform"?')),
    ({"weights": 1}, (("weights",), "1", "expected one of samples, uniform")),
    ({"label": 1}, (("label",), "1", "expected text")),
    ({"sizes": 3}, (("sizes",), "3", "expected a list, each a whole number")),
    ({"sizes": ["x"]}, (("sizes",), '["x"]', "expected a whole number")),
    ({"pair": [1]}, (("pair",), "[1]", "expected a list of 2 values")),
    ({"mixed": 0.5}, (("mixed",), "0.5", "expected a whole number or text")),
])
def test_each_mistake_is_told_with_what_is_expected(mapping, found):
    expected = found[2].replace("expected none or a whole number", "expected a whole number or none")
    assert check_params(Params, mapping) == (None, [(found[0], found[1], expected)])


def test_all_mistakes_come_at_once():
    with pytest.raises(ScenarioError) as caught:
        build_params(Needy, {"s": "x", "t": 1}, "scheme krum")
    assert str(caught.value) == """\
scheme krum: 3 errors
    t      1        unknown parameter; there are: s, limit
    s      "x"      expected a whole number
    limit  missing  expected a duration such as 20 ms or 1 h"""


def test_what_the_dataclass_itself_refuses_is_a_problem_of_the_whole():
    assert check_params(Needy, {"s": 10, "limit": "1 s"}) == (None, [((), "", "s = 10 exceeds 9")])


def test_a_key_that_another_field_has_keeps_its_unit():
    @dataclass(frozen=True)
    class Both:
        deadline: str = "soft"
        deadline_s: float = 1.0
        s: float = 1.0

    assert list(scenario_keys(Both)) == ["deadline", "deadline_s", "s"]


def test_a_type_that_no_scenario_can_hold_is_a_bug_of_the_scheme():
    @dataclass(frozen=True)
    class Odd:
        f: complex = 0j

    with pytest.raises(TypeError, match=r"^a scheme's parameter cannot be of type <class 'complex'>: no scenario can"):
        build_params(Odd, {"f": 1})


def test_any_takes_what_comes():
    @dataclass(frozen=True)
    class Free:
        x: Any = None

    assert build_params(Free, {"x": [1, {"a": 2}]}).x == [1, {"a": 2}]
