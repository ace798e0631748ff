"""Packages whose names are imported late have all that they say they have, and load no more than was asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from emul.base.lazy import lazily


@pytest.mark.parametrize("package", ["emul.api", "emul.engine", "emul.kernel", "emul.attacks.privacy"])
def test_a_package_has_every_name_that_it_lists(package: str) -> None:
    module = import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'nothing'$"):
        _ = module.nothing


def test_a_name_is_looked_up_once() -> None:
    module = import_module("emul.kernel")
    vars(module).pop("Kernel", None)
    assert module.Kernel is vars(module)["Kernel"]
    assert lazily("emul.kernel", {"state": ["Kernel"]})("Kernel") is module.Kernel


def loaded(code: str) -> set[str]:
    """The modules that a process has loaded once it has run `code`."""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True,
                          text=True, check=True, timeout=120)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(("code", "without"), [
    ("import emul", {"numpy", "typer", "emul.base.errors"}),
    ("import emul.cli", {"numpy", "torch", "pandas", "pydantic", "emul.scenario"}),
    ("import emul.scenario", {"torch", "pandas", "scipy", "pyarrow", "pint", "simpy", "zmq", "cryptography",
                              "emul.kernel.loop", "emul.schemes.pefl.attacks"})])
def test_what_takes_long_to_load_is_not_loaded_by_who_does_not_need_it(code: str, without: set[str]) -> None:
    assert not loaded(code) & without
