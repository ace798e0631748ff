"""Packages that a plain install leaves out: the packages of each extra, imported late, with an error that names the
extra.

    with optional("confidence intervals need", "stats"):
        from scipy.stats import bootstrap

Extras are those of pyproject.toml: `stats` (SciPy), `report` (Altair, vl-convert), `privacy` (scikit-learn,
SciPy, dp-accounting), `orbits` (sgp4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emul.base.errors import InputError

_NAMES = {"scipy": "SciPy", "sklearn": "scikit-learn", "altair": "Altair", "vl_convert": "vl-convert",
          "dp_accounting": "dp-accounting", "sgp4": "sgp4"}


class MissingExtra(InputError, ImportError):
    """The request needs a package that a plain install lacks; the text has the command that installs it."""


@contextmanager
def optional(needs: str, extra: str) -> Iterator[None]:
    """Around imports of packages of an extra. needs: what is done with them, with its verb, for the error.

    Raises MissingExtra where one of them is not installed; whatever else goes wrong in the block is passed on.

    >>> with optional("to fly needs", "wings"): raise ModuleNotFoundError(name="scipy.stats")
    Traceback (most recent call last):
    emul.base.extras.MissingExtra: to fly needs SciPy, which is not installed: pip install 'emul[wings]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = _NAMES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise MissingExtra(f"{needs} {package}, which is not installed: pip install 'emul[{extra}]'") from error
