"""`emul.check_device`: whether a GPU computes what the CPU does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emul import engine
from emul.api.arguments import require
from emul.api.asked import Names, listed, loaded
from emul.base.errors import Problem, ScenarioError
from emul.learning.smoke import Smoke, smoke
from emul.scenario import Given, Scenario


def check_device(device: str = "cuda", scenario: Given | None = None, *, set: Mapping[str, object] = {},
                 seed: int | None = None, plugins: Names = ()) -> Smoke:
    """Train, train clients as one, and evaluate, on the CPU and on a device, as `emul check --device` does.

    device: cpu, cuda or such as cuda:1. scenario: whose task is tried; None: a small one that needs no data. Raises
    DeviceError, which says why there is no such GPU, and ScenarioError.
    """
    require(device=device, set=set, plugins=plugins)
    if scenario is None:
        return tried(device)
    require(scenario=scenario)
    return tried(device, loaded(scenario, set, seed, plugins), listed(plugins))


def tried(device: str, plan: Scenario | None = None, plugins: Sequence[str] = ()) -> Smoke:
    """Of a loaded scenario the task, with its clients and its seed. Raises DeviceError, ScenarioError: it has none."""
    if plan is None:
        return smoke(device)
    setup = engine.wire(plan, *plan.schemes[0], plugins=plugins).setups[0]
    if setup.task is None:
        raise ScenarioError(str(plan.path or plan.name), [Problem("task", "missing", "is needed to try a device with")])
    return smoke(device, setup.task, setup.holders, setup.seed, plugins)
