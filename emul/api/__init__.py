"""emul in Python: what the commands do, as functions that take and give values. docs/python.md has examples.

    runs = emul.run("scenarios/quickstart.yaml", set={"stop.rounds": 5})
    runs[0].rounds                  # frames of pandas
    runs.plot.accuracy()            # charts of Altair

Scenarios are paths, mappings or `Scenario`s; nothing here needs a main guard, and all of it works in a notebook.
"""

from emul.api.calls import Checked, Explained, check, explain, load_scenario, run
from emul.api.devices import check_device
from emul.api.runs import Run, RunFailed, Runs, load_run
from emul.api.studies import Study, StudyFailed, compare, load_study, sweep
from emul.scenario import Scenario

__all__ = ["Checked", "Explained", "Run", "RunFailed", "Runs", "Scenario", "Study", "StudyFailed", "check",
           "check_device", "compare", "explain", "load_run", "load_scenario", "load_study", "run", "sweep"]
