"""Arguments that a function cannot take are refused by name, before anything is read or runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul


@pytest.mark.parametrize(("wrong", "said"), [
    ({"scenario": None}, "scenario = None: expected a path, a mapping or a Scenario"),
    ({"scenario": b"a.yaml"}, "scenario = b'a.yaml': expected a path, a mapping or a Scenario"),
    ({"schemes": 3}, "schemes = 3: expected labels or names of schemes, one at least; None: all"),
    ({"schemes": ["fedavg", 3]}, 'schemes = ["fedavg", 3]: expected labels or names of schemes, one at least; None: '
                                 "all"),
    ({"workers": "two"}, 'workers = "two": expected a number of processes, 0 or more (0: none, everything in this '
                         "process); None: one a core"),
    ({"workers": True}, "workers = True: expected a number of processes, 0 or more (0: none, everything in this "
                        "process); None: one a core"),
    ({"set": ["stop.rounds=1"]}, 'set = ["stop.rounds=1"]: expected changes by path such as {"stop.rounds": 5}'),
    ({"set": None}, 'set = None: expected changes by path such as {"stop.rounds": 5}'),
    ({"out": 3}, "out = 3: expected a path, or None"),
    ({"plugins": 3}, "plugins = 3: expected the name of a module, or a list of names"),
    ({"store": 1.5}, "store = 1.5: expected a path, or None"),
    ({"quiet": "no"}, 'quiet = "no": expected True or False')])
def test_an_argument_of_a_wrong_type_is_named(small: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        emul.run(**{"scenario": small, "workers": 0} | wrong)
    assert str(caught.value) == said
    assert not Path("runs").exists()


def test_a_value_that_cannot_be_is_named_and_so_are_several(small: Path) -> None:
    with pytest.raises(ValueError, match=r"^workers = -1: expected a number of processes, 0 or more .*one a core$"):
        emul.run(small, workers=-1)
    with pytest.raises(TypeError, match=r"^schemes = 3: expected .*\nworkers = -1: expected .*\nout = 4: expected .*$"):
        emul.run(small, schemes=3, workers=-1, out=4)           # type: ignore[arg-type]


@pytest.mark.parametrize("call", [emul.run, emul.compare, emul.sweep])
def test_no_scheme_at_all_is_an_error_and_none_means_all(small: Path, call: Any) -> None:
    for none in ([], (), np.array([], str)):
        with pytest.raises(ValueError, match=r"^schemes = .*: expected labels or names of schemes, one at least; None: "
                                             r"all$"):
            call(small, schemes=none, workers=0)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"jobs": "2"}, 'jobs = "2": expected 1 or more'), ({"jobs": 1.5}, "jobs = 1.5: expected 1 or more"),
    ({"workers": "x"}, 'workers = "x": expected a number of processes'),
    ({"engine": 3}, "engine = 3: expected local or ray"),
    ({"out": 3}, "out = 3: expected a path, or None")])
def test_studies_name_theirs_too(small: Path, wrong: dict[str, Any], said: str) -> None:
    for call in (emul.compare, emul.sweep):
        with pytest.raises(TypeError) as caught:
            call(small, **wrong)
        assert str(caught.value).startswith(said)
    with pytest.raises(TypeError, match=r'^target = "x": expected a number from 0 to 1$'):
        emul.compare(small, target="x")                         # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'^grid = \["a"\]: expected lists of values by path such as '):
        emul.sweep(small, ["a"])                                # type: ignore[arg-type]


def test_reading_and_explaining_name_theirs_too(small: Path) -> None:
    for read in (emul.load_run, emul.load_study):
        with pytest.raises(TypeError, match=r"^path = None: expected a path$"):
            read(None)                                          # type: ignore[arg-type]
    for asked in (emul.check, emul.explain, emul.load_scenario):
        with pytest.raises(TypeError, match=r"^scenario = 3: expected a path, a mapping or a Scenario$"):
            asked(3)                                            # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^workers = -1: expected "):
        emul.explain(small, workers=-1)


def test_what_numpy_and_pathlib_have_is_taken(small: Path) -> None:
    run, = emul.run(small, workers=np.int64(0), seed=np.int64(0), schemes=np.array(["fedavg"]), out=None, quiet=True,     # type: ignore
                    set={"stop.rounds": np.int32(1)})
    assert run.path == Path("runs/small-fedavg-1")
