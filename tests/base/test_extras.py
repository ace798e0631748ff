"""What a plain install leaves out is named where it is missing, and nothing else needs it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from emul.base.extras import MissingExtra, optional

HIDDEN = ("scipy", "sklearn", "altair", "vl_convert", "dp_accounting", "sgp4")
HIDE = f"""
import sys
for name in {HIDDEN!r}:
    sys.modules[name] = None        # importing it raises ModuleNotFoundError
"""


def plainly(code: str) -> str:
    """What a process without the optional packages prints."""
    done = subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_error_inside_the_block_is_passed_on() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_module'$"), optional("it needs", "stats"):
        import no_such_module  # noqa: F401


def test_a_missing_package_is_an_import_error_and_one_of_emul(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"^it needs SciPy, which is not installed: pip install 'emul\[stats\]'$"), \
            optional("it needs", "stats"):
        import scipy  # noqa: F401
    assert issubclass(MissingExtra, ImportError)


def test_every_scheme_and_data_set_loads_without_what_is_optional() -> None:
    assert plainly("""
from emul.registry import schemes
from emul.learning import data
for name in schemes.known():
    schemes.find(name)
print(len(data.load({"set": "digits"}).train_y))
""") == "1500\n"


@pytest.mark.parametrize(("code", "said"), [
    ("from emul.study.stats import interval; interval([1.0, 2.0, 4.0])",
     "confidence intervals need SciPy, which is not installed: pip install 'emul[stats]'"),
    ("from emul.primitives.dp import largest_mu; largest_mu(1.0, 1e-5)",
     "the noise of a guarantee needs SciPy, which is not installed: pip install 'emul[stats]'"),
    ("from emul.primitives.crypto.graphs import degree_and_threshold; degree_and_threshold(100, 0.1, 0.1)",
     "exact chances of a mask graph need SciPy, which is not installed: pip install 'emul[stats]'"),
    ("from emul.attacks.privacy.membership import judged; import numpy as np; judged(np.zeros(2), np.ones(2))",
     "to judge an attack needs scikit-learn, which is not installed: pip install 'emul[privacy]'"),
    ("from emul import cli; cli.study.require(True)",
     "confidence intervals need SciPy, which is not installed: pip install 'emul[stats]'"),
    ("from emul.api.studies import Study; from pathlib import Path; Study.plot.fget(None)",
     "figures need Altair, which is not installed: pip install 'emul[report]'"),
    ("from emul.report import write; from pathlib import Path; write(Path('.'))",
     "figures need Altair, which is not installed: pip install 'emul[report]'"),
    ("from emul.network.models.tle import Propagated; Propagated([])",
     "constellations from two-line elements need sgp4, which is not installed: pip install 'emul[orbits]'")])
def test_who_asks_for_more_is_told_which_extra_has_it(code: str, said: str) -> None:
    assert plainly(f"""
from emul.base.extras import MissingExtra
try:
    {code}
except MissingExtra as error:
    print(error)
""") == said + "\n"


def test_the_command_says_so_in_one_line_and_exits_with_2() -> None:
    assert plainly("""
from emul import cli
sys.argv = ["emul", "report", "."]
try:
    cli.main()
except SystemExit as ended:
    print(ended.code)
""") == "2\n"


def test_the_extras_hold_the_packages_that_errors_name_and_a_plain_install_none_of_them() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {Requirement(text).name for text in requirements}
    extras = {name: names(given) for name, given in project["optional-dependencies"].items()}
    assert extras["report"] == {"altair", "vl-convert-python"}
    assert extras["stats"] == {"scipy"}
    assert extras["orbits"] == {"sgp4"}
    assert extras["privacy"] == {"scikit-learn", "scipy", "dp-accounting"}
    assert not names(project["dependencies"]) & (
        extras["report"] | extras["privacy"] | extras["images"] | extras["orbits"])
    assert "threadpoolctl" in names(project["dependencies"])
