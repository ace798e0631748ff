import pytest

from emul.base import errors
from emul.base.errors import EmulError, Problem, ScenarioError


def test_a_scenario_error_is_a_table_in_the_order_of_lines_with_the_unplaced_last():
    error = ScenarioError("scenarios/krum.yaml", [
        Problem("--set stop.rounds", "0", "expected a whole number, 1 or more"),
        Problem("schemes[1].name", '"krumm"', 'unknown scheme; did you mean "krum"?', 19),
        Problem("links[0].outage.p", "1.4", "expected a probability in [0, 1]", 12)])
    assert str(error) == """\
scenarios/krum.yaml: 3 errors
  line 12  links[0].outage.p  1.4      expected a probability in [0, 1]
  line 19  schemes[1].name    "krumm"  unknown scheme; did you mean "krum"?
           --set stop.rounds  0        expected a whole number, 1 or more"""
    assert [p.line for p in error.problems] == [12, 19, None]


def test_one_problem_is_one_error():
    assert str(ScenarioError("f", [Problem("a", "1", "expected 2", 3)])) == "f: 1 error\n  line 3  a  1  expected 2"


def test_every_exception_of_the_tree_is_an_emul_error():
    tree = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(tree) > 15
    assert all(issubclass(e, EmulError) for e in tree)


@pytest.mark.parametrize("name", ["TooFewClients", "NotDecodable", "NothingToReceive", "TimedOut"])
def test_what_a_round_swallows_is_a_protocol_failure_and_a_violation_is_not(name):
    assert issubclass(getattr(errors, name), errors.ProtocolFailure)
    assert not issubclass(errors.ProtocolViolation, errors.ProtocolFailure)
    assert not issubclass(errors.RoleError, errors.ProtocolFailure)


def test_a_notebook_shows_a_mistake_without_the_lines_of_emul(capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    history = pytest.importorskip("traitlets.config").Config({"HistoryManager": {"enabled": False}})
    shell(config=history).run_cell("from emul.base.errors import *; raise InputError('there is no scenario x.yaml')")
    assert capsys.readouterr().out == "InputError: there is no scenario x.yaml\n"
