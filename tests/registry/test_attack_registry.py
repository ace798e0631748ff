"""Attacks are found by kind and name, in emul and in plug-ins."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from emul.registry import attacks


def test_every_kind_has_attacks_and_plug_ins_add_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = ModuleType("my_attacks")
    vars(mine)["ATTACKS"] = {"update": {"mine": abs}, "privacy": lambda: {"peek": abs}}
    monkeypatch.setitem(sys.modules, "my_attacks", mine)
    for kind in (*attacks.KINDS, attacks.PRIVACY):
        ours, theirs = attacks.known(kind), attacks.known(kind, ["my_attacks"])
        assert ours
        assert list(ours) == sorted(ours)
        assert set(theirs) - set(ours) == {"update": {"mine"}, "privacy": {"peek"}}.get(kind, set())


def test_a_planned_attack_is_made_with_its_parameters_and_holds_in_its_rounds() -> None:
    planned = attacks.Planned("update", "sign_flip", {"factor": 2.0}, first=3, last=4)
    assert attacks.make(planned).factor == 2.0
    assert [round_ for round_ in range(7) if planned.holds(round_)] == [3, 4]
    with pytest.raises(KeyError):
        attacks.make(attacks.Planned("update", "no_such_attack"))
