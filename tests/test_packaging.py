"""What ships and releases emul agrees with itself: version, classifiers, workflow, image, templates."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from emul import __version__, cli
from emul.base import files
from emul.templates import TemplateError, write_plugin

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def yaml(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text(encoding="utf-8"))


def emul(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["emul", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


# --- version --------------------------------------------------------------------------------------------------------

def test_the_version_has_one_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version", "urls"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "emul.__version__"}
    assert yaml("CITATION.cff")["version"] == __version__
    assert emul(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"emul {__version__}\n"


# --- the public address ----------------------------------------------------------------------------------------------

def with_address(line: str | None, folder: Path) -> tuple[str, dict[str, str]]:
    """README and the first cells of the notebooks once docs/address.py has run in a copy with this line; None: ours."""
    for name in ("docs/address.py", "README.md", "CITATION.cff"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", dirs_exist_ok=True)
    if line is not None:
        others = re.sub(r"^repository-code:.*\n", "", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.MULTILINE)
        (folder / "CITATION.cff").write_text(others + line, encoding="utf-8")
    subprocess.run([sys.executable, "docs/address.py"], cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "README.md").read_text(encoding="utf-8"), {
        path.stem: "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        for path in sorted((folder / "notebooks").glob("*.ipynb"))}


def test_badges_and_links_are_those_of_the_address(tmp_path: Path) -> None:
    assert with_address(None, tmp_path)[0] == (ROOT / "README.md").read_text(encoding="utf-8")
    assert all((tmp_path / "notebooks" / path.name).read_bytes() == path.read_bytes()
               for path in (ROOT / "notebooks").glob("*.ipynb"))
    home = "https://github.com/some/where"
    readme, cells = with_address(f"repository-code: {home}\n", tmp_path)
    named = set(re.findall(rf"\({home}/actions/workflows/([\w.]+)\)", readme))
    assert named == {"ci.yml"}
    assert all((ROOT / ".github/workflows" / name).is_file() for name in named)
    assert "github/v/release/some/where?" in readme
    assert len(readme.split()) < 900
    assert cells
    assert all(f"https://colab.research.google.com/github/some/where/blob/main/notebooks/{stem}.ipynb)" in text
               and f"/v2/gh/some/where/main?labpath=notebooks%2F{stem}.ipynb)" in text for stem, text in cells.items())
    with pytest.raises(subprocess.CalledProcessError) as refused:
        with_address("repository-code: https://example.org/emul\n", tmp_path)
    assert b"expected https://github.com/OWNER/NAME" in refused.value.stderr


# --- the forge's workflow, the image ---------------------------------------------------------------------------------

def test_the_workflow_tests_every_python_that_the_classifiers_name() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"]
             if re.search(r"Python :: 3\.\d+$", text)]
    test = yaml(".github/workflows/ci.yml")["jobs"]["test"]
    assert test["strategy"]["matrix"]["python"] == named
    assert f">={named[0]}" == PROJECT["project"]["requires-python"]
    assert {system.partition("-")[0] for system in test["strategy"]["matrix"]["os"]} == {"ubuntu", "macos"}


def test_workflows_call_targets_and_scripts_of_the_checkout_and_nothing_else() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert [one.stem for one in workflows] == ["ci", "release", "site"]
    commands = [line for one in workflows for job in yaml(f".github/workflows/{one.name}")["jobs"].values()
                for step in job["steps"] if "run" in step for line in step["run"].splitlines()]
    strange = [line for line in commands if not (line.removeprefix("make ") in targets if line.startswith("make ") else
                                                 re.fullmatch(r"\.ci/\w+", line) and os.access(ROOT / line, os.X_OK))]
    assert strange == []
    assert set(commands) == {"make lint", "make demo", "make test", ".ci/run", ".ci/partitioners", "make dist",
                             "make docs"}


def test_a_tag_releases_and_nothing_else_does() -> None:
    # YAML 1.1 would read the key `on` as true
    assert {one.stem: yaml(f".github/workflows/{one.name}")["on"] for one in (ROOT / ".github/workflows").glob("*.yml")
            } == {"ci": {"push": {"branches": ["main"]}, "pull_request": None},
                  "site": {"push": {"branches": ["main"]}, "pull_request": None}, "release": {"push": {"tags": ["v*"]}}}


def test_extras_that_scripts_install_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "Makefile", *sorted((ROOT / ".ci").iterdir()))]
    extras = {extra for text in texts for group in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in group.split(",")}
    assert {"test", "ray", "flwr_datasets"} <= extras <= set(PROJECT["project"]["optional-dependencies"])


def test_the_image_is_built_from_all_that_the_wheel_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert lines[1] == "*"
    assert all((ROOT / name).exists() for name in kept)
    needed = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "emul"}
    assert needed | set(files.SHIPPED.values()) <= kept
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["emul"]' in image
    extras, = re.findall(r"^ARG EXTRAS=(\w+)$", image, re.MULTILINE)
    assert extras in PROJECT["project"]["optional-dependencies"]
    python, = re.findall(r"^ARG PYTHON=(3\.\d+)$", image, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]
    assert image.index("\nUSER emul\n") < image.index("\nENTRYPOINT")


def test_pip_is_handed_one_more_index_and_keeps_its_own() -> None:
    """`--index-url` would take the place of the index that pip is configured for, maybe the only one it reaches."""
    files = [*(ROOT / name for name in ("Makefile", "Dockerfile", "README.md", "emul/templates.py")),
             *ROOT.glob(".github/workflows/*"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md"),
             *ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("benchmarks/**/*.txt")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert [name for name, text in texts.items() if re.search(r"(?<!extra-)index-url", text)] == []
    assert [name for name, text in texts.items() if "pypi.org" in text] == []
    way = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert {name for name, text in texts.items() if way in text} >= {"Makefile", "README.md", "install.md"}


def test_the_page_lists_every_extra() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    said = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", page.partition("## Extras")[2],
                                                         re.MULTILINE))))
    assert said - {"pip"} == set(PROJECT["project"]["optional-dependencies"]) - {"test", "docs"}


# --- a plug-in package -----------------------------------------------------------------------------------------------

def test_a_new_plugin_is_a_package_with_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert emul(monkeypatch, "new-plugin", "my_plugin", "--dir", str(tmp_path)) == 0
    home = tmp_path / "my_plugin"
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"install it, run it:  pip install --editable {home} && emul run {home / 'my_plugin.yaml'}")
    project = tomllib.loads((home / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["emul.schemes"] == {"my_plugin": "my_plugin.scheme"}
    written = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert written == {"pyproject.toml", "README.md", "my_plugin.yaml", "src/my_plugin/__init__.py",
                       "src/my_plugin/py.typed", "src/my_plugin/scheme.py", "tests/test_my_plugin.py"}
    assert not [name for name in written if re.search("NAME|--plugin my_|plugins=", (home / name).read_text())]


def test_a_new_plugin_overwrites_nothing_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(TemplateError, match=r"mine: exists already; nothing was written"):
        write_plugin("mine", tmp_path)
    with pytest.raises(TemplateError, match=r'^plugin name "fedavg": there is a scheme of this name already'):
        write_plugin("fedavg", tmp_path)
    with pytest.raises(TemplateError, match=r'^plugin name "a-b": expected a Python identifier'):
        write_plugin("a-b", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
