"""The recipes for a container and for conda: their own steps are run, in roots and environments that hold nothing else.

No engine is needed. A stage of the Dockerfile is a root of its own, in which `RUN` runs; its base image is this
interpreter, and pip has no index but the packages of this environment, those that emul asks for and no others.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_environment import ROOT, Place
from ruamel.yaml import YAML

from benchmarks.install_size import closure, extras_of, places
from emul import __version__

RECIPE = YAML(typ="safe", pure=True).load((ROOT / "conda/recipe.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONDA = {"torch": "pytorch", "xxhash": "python-xxhash"}         # names of packages that conda-forge has others for
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_ROOT_USER_ACTION": "ignore",
           "PIP_NO_BUILD_ISOLATION": "0"}       # the last: builds take the setuptools that is there
BUILDING = ("pip", "setuptools")


# --- conda ------------------------------------------------------------------------------------------------------------

def test_the_recipe_of_conda_asks_for_what_the_project_does() -> None:
    asked = [re.sub(r"^[\w.]+", lambda name: CONDA.get(name[0], name[0]), one).replace(">=", " >=")
             for one in PROJECT["project"]["dependencies"]]
    python = f"python {PROJECT['project']['requires-python']}"
    assert RECIPE["requirements"]["run"] == [python, *asked]
    assert RECIPE["requirements"]["host"] == [python, "pip", PROJECT["build-system"]["requires"][0].replace(">", " >")]
    assert RECIPE["context"]["version"] == __version__
    assert RECIPE["build"]["python"]["entry_points"] == [f"emul = {PROJECT['project']['scripts']['emul']}"]
    assert RECIPE["about"]["summary"] == PROJECT["project"]["description"]


@pytest.mark.machine
@pytest.mark.slow
def test_the_steps_of_conda_s_recipe_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.link(more=BUILDING)
    place.environment |= OFFLINE
    sources = tmp_path / "sources"
    context(sources)
    user, place.here = place.here, sources
    place.run(RECIPE["build"]["script"])
    place.here = user
    for test in RECIPE["tests"]:
        for module in test.get("python", {}).get("imports", ()):
            place.run(f"python -c 'import {module}'")
        for command in test.get("script", ()):
            place.run(command)
    assert place.run("emul --version") == f"emul {__version__}\n"


# --- the container ----------------------------------------------------------------------------------------------------

def context(folder: Path) -> None:
    """What an engine hands the Dockerfile's `COPY . .`: the files that .dockerignore lets through."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    for name in kept:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, folder / name)


def instructions() -> Iterator[tuple[str, str]]:
    """Word and rest of each instruction of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def base(root: Path, requirements: list[str]) -> Iterator[str]:
    """Commands that make a root with the system's programs, this interpreter, and these packages alone."""
    yield f"mkdir {root} && mount -t tmpfs tmpfs {root} && cd {root}"
    yield "mkdir -m 1777 tmp && mkdir root home proc dev && cp -a /etc etc"
    ours = [] if Path(sys.base_prefix).is_relative_to("/usr") else [sys.base_prefix]
    for path in map(Path, ("/proc", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", *ours)):
        if path.is_symlink():
            yield f"cp -a {path} ."
        elif path.exists():
            yield f"mkdir -p .{path} && mount --bind {path} .{path}"
    yield f"chroot . {sys.base_prefix}/bin/python3 -m venv /opt/image"
    there = f"opt/image/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    yield f"rm -rf {there}/*setuptools* {there}/*distutils*"          # an older one than the project asks for
    found = places(closure(requirements))
    for number, folder in enumerate(dict.fromkeys(path.parent for path in found)):
        yield f"mkdir packages{number} && mount --bind {folder} packages{number}"
        for path in found:
            if path.parent == folder:
                yield f"ln -s /packages{number}/{path.name} {there}/"


def commands(folder: Path, requirements: dict[str, list[str]]) -> Iterator[str]:
    """The Dockerfile as commands of bash, the last of which defines `image`: it runs the entry point with arguments.

    requirements: the packages of each stage's base image.
    """
    root, arguments, user, where = Path(), "", "root", "/"
    entry, default = "", ""
    for word, rest in instructions():
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments += f"export {name}={shlex.quote(value)}; "
        elif word == "FROM":
            stage = rest.partition(" AS ")[2] or "last"
            root, user, where = folder / stage, "root", "/"
            yield from base(root, requirements[stage])
        elif word == "WORKDIR":
            where = rest
            yield f"mkdir -p {root}{where}"
        elif word == "COPY":
            source, target = rest.split()[-2:]
            stages = re.findall(r"^--from=(\w+) ", rest)
            yield (f"cp -r {folder / stages[0]}{source} {root}{target}" if stages else
                   f"cp -r {folder / 'context' / source}/. {root}{where}/{target}")
        elif word == "RUN":
            yield f"chroot --userspec={user} {root} sh -ec {shlex.quote(f'cd {where}; {arguments}{rest}')}"
        elif word == "USER":
            user = rest
        elif word == "ENTRYPOINT":
            entry = shlex.join(json.loads(rest))
        elif word == "CMD":
            default = shlex.join(json.loads(rest))
        else:
            raise AssertionError(f"an instruction that this test does not know: {word}")
    begin = shlex.quote(f'cd {where}; exec "$@"')
    yield (f"image() {{ [ $# -gt 0 ] || set -- {default}; "
           f'HOME=/home/{user} chroot --userspec={user} {root} sh -ec {begin} -- {entry} "$@"; }}')


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_steps_of_the_dockerfile_make_an_image_in_which_a_scenario_runs(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a root of its own is made by root, with unshare")
    context(tmp_path / "context")
    extras, = re.findall(r"^ARG EXTRAS=(\w+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    packages = {"build": ["setuptools"], "last": extras_of(extras)}
    lines = ["set -e", *commands(tmp_path, packages), "image | grep Usage", "image init .",
             "image run scenarios/quickstart.yaml --scheme fedavg --set stop.rounds=2",
             "image report runs/quickstart-fedavg-1 --figures figures",
             f"ls -ln {tmp_path / 'last' / 'work' / 'figures'}; test ! -e {tmp_path}/last/wheels"]
    path = "/opt/image/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(["unshare", "--mount", "bash", "-c", "\n".join(lines)], text=True, capture_output=True,
                          check=False, timeout=900, env={"PATH": path, "LANG": "C.UTF-8", **OFFLINE})
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert re.search(r"^fedavg +2 ", done.stdout, re.MULTILINE)
    assert re.search(r"^-rw\S+ 1 [1-9]\d* .* accuracy-time\.svg$", done.stdout, re.MULTILINE)      # not root's
