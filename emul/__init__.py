"""emul: a network emulator for federated learning.

Schemes really run in worker processes; a SimPy event calendar decides, in virtual time, when each message arrives or
that it is lost; every byte is counted.

    emul.run(scenario)        run the schemes of a scenario: a path, a mapping or a Scenario
    emul.compare(scenario)    the same on several seeds, and what differs between the schemes
    emul.sweep(scenario)      the same for every combination of values
    emul.suite(schemes)       schemes over the networks of the suite, and who is best where
    emul.check, emul.explain  what is wrong with a scenario, and what it amounts to
    emul.check_device("cuda") whether a GPU computes what the CPU does
    emul.load_run(path)       the tables of a run directory, as pandas frames: see `emul.record.load`
    emul.Clock(network)       a network for a training loop that one already has
    emul.load_study(path)     the tables of a sweep, a comparison or a suite: see `emul.study.directory`

    emul.Node, emul.Scheme, emul.Message, emul.Vector, ...      what a scheme of one's own is written with

docs/python.md and docs/writing-a-scheme.md explain them; `__init__.pyi` has the types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.9.0"

_ROLES = ("Analysis", "Contact", "Declared", "Holds", "Matrix", "Message", "Node", "OctetRows", "Octets", "Realised",
          "Received", "Round", "RoundOver", "Scheme", "Setting", "Variant", "Vector", "Words", "World", "weighted_mean")
_API = ("Checked", "Explained", "Run", "RunFailed", "Runs", "Scenario", "Study", "StudyFailed", "check",
        "check_device", "compare", "explain", "load_run", "load_scenario", "load_study", "run", "suite", "sweep")

_CLOCK = "Clock"


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for: `import emul` costs nothing, and no layer may come with it."""
    if name in _API or name in _ROLES or name == _CLOCK:
        return getattr(import_module(
            "emul.api" if name in _API else "emul.roles" if name in _ROLES else "emul.loop"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_API, *_ROLES, _CLOCK])
