"""The wheel in an environment of its own: what it declares is enough, and every step of docs/install.md works there.

The environments hold links to packages of this one: exactly those that the wheel asks for, and nothing is downloaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from own_environment import ROOT, Place, built, wheel_in

from benchmarks.install_size import megabytes
from emul import __version__
from emul.schemes import flower

pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("built"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def commands(page: str, heading: str) -> list[str]:
    """The lines after `$` in the console blocks below a heading of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [line[2:] for block in re.findall(r"^```console\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
            for line in block.splitlines() if line.startswith("$ ")]


def test_every_step_of_the_page_works_in_an_environment_of_its_own(place: Place, wheel: Path) -> None:
    said: dict[str, str] = {}
    for command in commands("docs/install.md", "From a wheel to a figure"):
        if command.startswith("python -m venv"):
            continue                        # made already
        if command.startswith("pip install"):
            extras = re.findall(r"\[([\w,]+)\]", command)
            names = extras[0].split(",") if extras else []
            place.link(*names)
            place.install(str(wheel) + (f"[{extras[0]}]" if extras else ""))
            if not extras:
                missing = place.run("emul report runs", code=2)
                assert missing == "figures need Altair, which is not installed: pip install 'emul[report]'\n"
            continue
        if command.startswith("cd "):
            place.here /= command.removeprefix("cd ")
            continue
        said[command.split()[1]] = place.run(command)
    assert {"init", "check", "run", "report", "new-scheme", "new-task"} <= set(said)
    assert (place.here / "figures" / "accuracy-time.svg").is_file()
    assert said["--version"] == f"emul {__version__}\n"


def test_a_plugin_package_is_built_installed_and_listed(place: Place, wheel: Path, tmp_path: Path) -> None:
    place.link()
    place.install(str(wheel))
    for command in commands("docs/writing-a-scheme.md", "A package of your own"):
        if command.startswith("pip install"):
            place.install(str(built(place.here / "mine", tmp_path)))
        else:
            said = place.run(command)
            if command == "emul schemes":
                assert re.search(r"^mine: ", said, re.MULTILINE)
            if command.startswith("emul run"):
                assert re.search(r"^mine +3 +0 ", said, re.MULTILINE)
    assert "mine/src" not in place.run("python -c 'import mine; print(mine.__file__)'")


def test_a_plugin_with_a_wrong_call_fails_under_mypy(place: Place, wheel: Path) -> None:
    place.link()
    place.install(str(wheel))
    place.run("emul new-plugin mine")
    scheme = place.here / "mine/src/mine/scheme.py"
    with (place.here / "mine/pyproject.toml").open("a") as project:         # they are large, and no matter here
        project.write('\n[[tool.mypy.overrides]]\nmodule = ["torch.*", "networkx.*"]\nfollow_imports = "skip"\n')

    def complaints() -> list[str]:
        done = subprocess.run([sys.executable, "-m", "mypy", "--python-executable", str(place.home / "bin" / "python"),
                               "--follow-imports=silent"], cwd=place.here / "mine", env=place.environment, text=True,
                              capture_output=True, check=False, timeout=900)
        return re.findall(r"^src/mine/scheme.py:\d+: error: (.*)$", done.stdout, re.MULTILINE)
    assert complaints() == []
    text = scheme.read_text()
    scheme.write_text(text.replace("node.gather(Update, cohort, timeout_s=p.deadline_s)",
                                   "node.gather(Update, cohort, timeout=p.deadline_s)"))
    found = complaints()
    assert found
    assert 'Unexpected keyword argument "timeout"' in found[0]


def test_flower_apps_run_with_the_extra(place: Place, wheel: Path) -> None:
    """The one line of docs/install.md: nothing else of this environment is there."""
    place.link()
    place.install(str(wheel))
    (place.here / "app.yaml").write_text(flower.EXAMPLE, encoding="utf-8")
    assert "Flower is not installed  pip install 'emul[flower]'" in place.run("emul check app.yaml", code=2)
    place.link("flower")
    place.install(f"{wheel}[flower]")
    place.run("emul check app.yaml")
    assert re.search(r"^flower +3 +0 ", place.run("emul run app.yaml --quiet --workers 1"), re.MULTILINE)


def test_a_plain_install_is_below_three_fifths_of_what_it_was() -> None:
    assert megabytes() < 0.6 * megabytes("stats", "privacy", "report")
