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
from emul.loop import Clock as Clock
from emul.roles import Analysis as Analysis
from emul.roles import Contact as Contact
from emul.roles import Declared as Declared
from emul.roles import Holds as Holds
from emul.roles import Matrix as Matrix
from emul.roles import Message as Message
from emul.roles import Node as Node
from emul.roles import OctetRows as OctetRows
from emul.roles import Octets as Octets
from emul.roles import Realised as Realised
from emul.roles import Received as Received
from emul.roles import Round as Round
from emul.roles import RoundOver as RoundOver
from emul.roles import Scheme as Scheme
from emul.roles import Setting as Setting
from emul.roles import Variant as Variant
from emul.roles import Vector as Vector
from emul.roles import Words as Words
from emul.roles import World as World
from emul.roles import weighted_mean as weighted_mean

__version__: str
