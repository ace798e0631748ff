"""The types of what `import emul` offers; `__init__.py` imports it when first asked for."""

from emul.api import Checked as Checked
from emul.api import Explained as Explained
from emul.api import Run as Run
from emul.api import RunFailed as RunFailed
from emul.api import Runs as Runs
from emul.api import Scenario as Scenario
from emul.api import Study as Study
from emul.api import StudyFailed as StudyFailed
from emul.api import check as check
from emul.api import check_device as check_device
from emul.api import compare as compare
from emul.api import explain as explain
from emul.api import load_run as load_run
from emul.api import load_scenario as load_scenario
from emul.api import load_study as load_study
from emul.api import run as run
from emul.api import suite as suite
from emul.api import sweep as sweep

__version__: str
