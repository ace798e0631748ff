"""A scheme's check sees no task that is wrong, and a module of a user's that fails says so in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul.base.errors import ScenarioError
from emul.learning import names
from emul.registry import schemes
from emul.scenario import loads
from emul.schemes import ebs_cfl, fedrfq, fltrust, ifca, scaffold


@pytest.mark.parametrize(("scheme", "edit", "said"), [
    (fltrust, "task.root.samples=full", "task.root.samples"),
    (fltrust, "task.root=3", "task.root"),
    (scaffold, "task.solver=fast", "task.solver"),
    (scaffold, "task.solver={sgd: {lr: 0.1}, adam: {}}", "task.solver"),
    (ebs_cfl, "task.clusters=[2]", "task.clusters"),
    (fedrfq, "task.model=[digits_classic]", "task.model"),
    (fedrfq, "task=3", "task")])
def test_a_wrong_task_is_an_error_of_the_task_whatever_a_scheme_asks_of_it(scheme: object, edit: str,
                                                                          said: str) -> None:
    """Checks of schemes took it for sound, and failed with errors of Python's."""
    with pytest.raises(ScenarioError) as wrong:
        loads(scheme.EXAMPLE, "scenario", [edit])               # type: ignore[attr-defined]
    assert {problem.place.partition(" ")[2] or problem.place for problem in wrong.value.problems} == {said}


def test_what_a_scheme_finds_wrong_apart_from_the_task_is_told_with_it() -> None:
    with pytest.raises(ScenarioError) as wrong:
        loads(ifca.EXAMPLE, "scenario", ["task.model=cnn_of_digits", "schemes[0].fraction=2"])
    assert [problem.found for problem in wrong.value.problems] == ["fraction = 2.0", '"cnn_of_digits"']


@pytest.mark.parametrize(("text", "said"), [
    ("import math\nmath.no_such_thing\n", "AttributeError: module 'math' has no attribute 'no_such_thing' "
                                          "(mine_LINE.py, line 2)"),
    ("import emul\nimport no_such\n", "ModuleNotFoundError: No module named 'no_such' (mine_LINE.py, line 2)"),
    ("import sys\nsys.exit(3)\n", "SystemExit: 3 (mine_LINE.py, line 2)"),
    ("def f(:\n", "SyntaxError: invalid syntax (mine_LINE.py, line 1)"),
    ("raise ValueError('as the test wants')\n", "ValueError: as the test wants (mine_LINE.py, line 1)")])
def test_a_plug_in_that_fails_while_it_is_imported_says_where(text: str, said: str, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"mine_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    said = said.replace("mine_LINE", name)
    with pytest.raises(schemes.NotAScheme) as scheme:
        schemes.find(name, [name])
    assert str(scheme.value) == f'scheme "{name}" ({name}) cannot be imported: {said}'
    with pytest.raises(names.PluginError) as plugin:
        names.imported(name)
    assert str(plugin.value) == f'plug-in "{name}" cannot be imported: {said}'
