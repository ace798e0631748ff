"""emul in Python: what the commands do, as functions that take and give values. docs/python.md has examples.

    runs = emul.run("scenarios/quickstart.yaml", set={"stop.rounds": 5})
    runs[0].rounds                  # frames of pandas
    runs.plot.accuracy()            # charts of Altair

Scenarios are paths, mappings or `Scenario`s; nothing here needs a main guard, and all of it works in a notebook.
"""

from typing import TYPE_CHECKING

from emul.base.lazy import lazily
from emul.scenario import Scenario

if TYPE_CHECKING:
    from emul.api.calls import Checked, Explained, check, check_device, explain, load_scenario, run
    from emul.api.runs import Run, RunFailed, Runs, load_run
    from emul.api.studies import Study, StudyFailed, compare, load_study, suite, sweep
else:
    __getattr__ = lazily(__name__, {
        "calls": ("Checked", "Explained", "check", "check_device", "explain", "load_scenario", "run"),
        "runs": ("Run", "RunFailed", "Runs", "load_run"),
        "studies": ("Study", "StudyFailed", "compare", "load_study", "suite", "sweep")})

__all__ = ["Checked", "Explained", "Run", "RunFailed", "Runs", "Scenario", "Study", "StudyFailed", "check",
           "check_device", "compare", "explain", "load_run", "load_scenario", "load_study", "run", "suite", "sweep"]
