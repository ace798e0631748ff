"""The commands, a file for each group of them; importing one registers its commands.

Exit codes: 0 ok, 1 a run failed, a replay or a verified row differs, 2 bad input, 3 an invariant is violated, 130
interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from types import FrameType
from typing import Annotated

import typer

from emul import __version__
from emul.base.errors import EmulError, InputError
from emul.base.tracebacks import WHOLE, shown, whole

# the commands stand in `emul --help` in the order of these imports
from emul.cli import (  # noqa: F401
    devices,
    ended,
    network,
    report,
    runs,
    schemes,
    store,
    study,
    traces,
    tune,
    verify,
)
from emul.cli.options import BAD_INPUT, FAILED, INTERRUPTED, OK, TERMINATED, app

_TRACEBACK = "--traceback"


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
          traceback: Annotated[bool, typer.Option(_TRACEBACK, help=(
              "show errors with emul's own lines, too; may stand behind the command"))] = False) -> None:
    if version:
        print(f"emul {__version__}")
        raise typer.Exit


_terminated = False


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM, as Slurm, Docker and `timeout` send it: as Ctrl-C, so that rows are kept and nothing is left behind."""
    global _terminated
    _terminated = True
    raise KeyboardInterrupt("terminated")


def main() -> None:
    """Entry point of the console script: errors that a user can mend are printed, never their traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    if _TRACEBACK in sys.argv:      # anywhere: one repeats a command that has failed, with it at the end
        sys.argv.remove(_TRACEBACK)
        os.environ[WHOLE] = "1"
    warnings.filterwarnings("ignore", r".*: INCOMPLETE: ")      # the commands say so themselves
    code = _run_command()
    code = _flushed(code)
    if _terminated:                 # any error of the interrupted run, such as of workers that were told to end, too
        print("terminated", file=sys.stderr)
        sys.exit(TERMINATED)
    if code == INTERRUPTED:         # newer versions of typer return it instead of raising
        print("interrupted", file=sys.stderr)
    sys.exit(code or OK)


def _flushed(code: int | None) -> int | None:
    """The exit code, once all that was printed is out: FAILED where that cannot be, as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError as e:
        print(f"stdout: {e.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # else Python tries once more at its end
        return code or FAILED
    return code


def _run_command() -> int | None:
    """The exit code of the command that the command line names; what a user can mend is printed."""
    try:
        code: int | None = app(prog_name="emul", standalone_mode=False)
        return code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except EmulError as e:
        _print(e)
        return BAD_INPUT if isinstance(e, InputError) else FAILED
    except OSError as e:            # a disk that is full, a place that cannot be written, a directory that has gone
        why = "is no directory" if isinstance(e, (FileExistsError, NotADirectoryError)) else e.strerror or e
        print(f"{e.filename or 'output'}: {why}", file=sys.stderr)
        return FAILED if e.filename is None or e.errno == errno.ENOSPC else BAD_INPUT
    except Exception as e:
        if not hasattr(e, "show"):  # else an error of the command line itself
            raise
        e.show()
        return BAD_INPUT


def _print(error: EmulError) -> None:
    """The text of an error; with `--traceback` also the place where it was raised, and its cause."""
    if whole():
        traceback.print_exception(error)
    else:
        print(shown(str(error)), file=sys.stderr)
