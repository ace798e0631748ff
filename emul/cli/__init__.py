"""The commands, a file for each group of them; importing one registers its commands.

Exit codes: 0 ok, 1 a run failed or a replay differs, 2 bad input, 3 an invariant is violated, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from emul import __version__
from emul.base.errors import EmulError, ScenarioError
from emul.cli import export, network, report, runs, schemes, store, study, traces, tune  # noqa: F401
from emul.cli.options import BAD_INPUT, FAILED, INTERRUPTED, OK, app


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if version:
        print(f"emul {__version__}")
        raise typer.Exit


def _about_input(error: EmulError) -> bool:
    """Whether it says that something does not exist, or cannot be used, that the command line names."""
    from emul.record.export import ExportError
    from emul.record.journal import RecordError
    from emul.schemes import NotAScheme, UnknownScheme
    from emul.store import StoreError
    from emul.study.directory import StudyError
    from emul.study.ray_engine import RayMissing
    from emul.templates import TemplateError

    return isinstance(error, (ExportError, NotAScheme, RecordError, RayMissing, StoreError, StudyError, TemplateError,
                              UnknownScheme))


def main() -> None:
    """Entry point of the console script: errors that a user can mend are printed, never their traceback."""
    sys.path.insert(0, "")          # plug-ins lie where the user is
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except ScenarioError as e:
        print(e, file=sys.stderr)
        sys.exit(BAD_INPUT)
    except EmulError as e:
        print(e, file=sys.stderr)
        sys.exit(BAD_INPUT if _about_input(e) else FAILED)
    except Exception as e:
        if not hasattr(e, "show"):  # else an error of the command line itself
            raise
        e.show()
        sys.exit(BAD_INPUT)
    if code == INTERRUPTED:         # newer versions of typer return it instead of raising
        print("interrupted", file=sys.stderr)
    sys.exit(code or OK)
