"""What parameters of attacks may be."""

from __future__ import annotations

import pytest

from emul.base.errors import ScenarioError
from emul.registry import attacks
from emul.scenario.params import build_params


@pytest.mark.parametrize(("attack", "parameter", "value", "expected"), [
    ("gradient_inversion", "restarts", 0, "1 or above"), ("gradient_inversion", "iterations", 0, "1 or above"),
    ("gradient_inversion", "most", -1, "1 or above"), ("gradient_inversion", "step", -1.0, "above 0"),
    ("gradient_inversion", "tv", -0.1, "0 or above"), ("client_membership", "own", 0, "1 or above"),
    ("client_membership", "shadow_steps", -1, "1 or above"), ("extraction", "own", 0, "1 or above"),
    ("extraction", "steps", 0, "1 or above")])
def test_parameters_of_privacy_attacks_have_ranges(attack: str, parameter: str, value: float, expected: str) -> None:
    made = attacks.parameters(attacks.known("privacy")[attack])
    with pytest.raises(ScenarioError, match=rf"{parameter} = {value}: expected a number,? {expected}"):
        build_params(made, {parameter: value}, "the attack")
