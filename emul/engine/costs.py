"""Sources of the virtual time of computations: the file of a profile, or the record of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from emul.base.errors import Problem, ScenarioError
from emul.base.files import read_text
from emul.record.journal import RecordError
from emul.record.tables import recorded_costs
from emul.scenario import Scenario
from emul.scenario.running import CostTrace, read_trace

PROFILE_VERSION = 1


@dataclass(frozen=True)
class CostSource:
    """A mode of `emul.roles.costs` with what it reads, loaded.

    profile: {"scheme/role/label": [a, b]}, seconds at speed 1 = a + b * work. recorded: {node: costs in ns, in order}.
    trace: what goes before the mode; None: nothing.
    """

    mode: str
    profile: dict[str, list[float]] = field(default_factory=dict)
    recorded: dict[int, list[int]] = field(default_factory=dict)
    trace: CostTrace | None = None


def load_costs(scenario: Scenario) -> CostSource:
    """The profile or the record that the scenario names, and its trace. Raises ScenarioError naming the file."""
    trace = None if scenario.compute.trace is None else read_trace(scenario.compute.trace)
    return replace(_of_mode(scenario), trace=trace)


def _of_mode(scenario: Scenario) -> CostSource:
    mode, path = scenario.compute.mode, scenario.compute.file
    if mode == "profile":
        assert path is not None
        if not path.exists():
            name = str(scenario.path or scenario.name)
            raise ScenarioError(name, [Problem("compute.file", str(path), "there is no such file; this writes it: "
                                               f"emul profile {name} -o {path}", scenario.compute.line)])
        return CostSource(mode, profile=read_profile(path))
    if mode == "recorded":
        assert path is not None
        try:
            return CostSource(mode, recorded=recorded_costs(path))
        except (OSError, RecordError) as e:
            raise ScenarioError(str(scenario.path or scenario.name), [Problem(
                "compute.file", str(path), f"expected a run directory or its journal: {e}",
                scenario.compute.line)]) from None
    return CostSource(mode)


def read_profile(path: Path) -> dict[str, list[float]]:
    """{"scheme/role/label": [a, b]} from a file of `emul profile`: seconds at speed 1 = a + b * work.

    Raises ScenarioError with everything that is wrong with the file.
    """
    content = _read_json(path)
    version = content.get("emul_profile") if isinstance(content, dict) else content
    if not isinstance(content, dict) or version != PROFILE_VERSION:
        raise _wrong(path, "emul_profile", repr(version), f"expected version {PROFILE_VERSION}")
    costs = content.get("costs")
    if not isinstance(costs, dict):
        raise _wrong(path, "costs", repr(costs), 'expected {"scheme/role/label": [a, b]}')
    problems = [Problem(f"costs.{key}", repr(value), "expected two numbers of seconds, [a, b]")
                for key, value in costs.items() if not (isinstance(value, list) and len(value) == 2 and all(
                    isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < math.inf for v in value))]
    if problems:
        raise ScenarioError(str(path), problems)
    return costs


Charge = tuple[str, str, float]         # entry of a profile, what is computed (`Timing.same`), work


def unequal(profile: Mapping[str, Sequence[float]], charges: Iterable[Charge]) -> list[str]:
    """Warnings of one computation that costs more under one scheme than under another, by more than a tenth."""
    seconds: dict[str, dict[str, float]] = {}
    for key, same, work in charges:
        if same and key in profile:
            a, b = profile[key]
            seconds.setdefault(same, {}).setdefault(key, a + b * work)
    found = []
    for same, each in sorted(seconds.items()):
        (least, low), (most, high) = (pick(each.items(), key=itemgetter(1)) for pick in (min, max))
        if high > _ALIKE * low:
            found.append(f"compute.file: one computation, {same}, is charged {low * 1e3:.4g} ms as {least} and "
                         f"{high * 1e3:.4g} ms as {most}: a comparison of these schemes depends on it; `emul profile` "
                         "measures one cost for all, or write the same")
    return found


_ALIKE = 1.1                            # below, two measurements of one computation on one machine differ as well


def _read_json(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except OSError as e:
        raise _wrong(path, "", e.strerror or "unreadable", "expected a file that `emul profile` has written") from None
    except (ValueError, RecursionError) as e:
        raise _wrong(path, "", str(e), "expected JSON as `emul profile` writes it") from None


def _wrong(path: Path, place: str, found: str, expected: str) -> ScenarioError:
    return ScenarioError(str(path), [Problem(place, found, expected)])
