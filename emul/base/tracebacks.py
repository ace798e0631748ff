"""Errors of code that a user has brought, as the user can act upon them: their own lines, and little of emul's."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

from emul.base.errors import EmulError

WHOLE = "EMUL_TRACEBACK"        # environment variable, which workers inherit: no line of emul's is left out
_MOST = 20_000                   # characters of a text; a traceback of fifty frames has a third
_EMUL = f"{Path(__file__).parents[1]}{os.sep}"
_PYTHON = f"{sysconfig.get_paths()['stdlib']}{os.sep}"
_places: dict[tuple[CodeType, int], str] = {}


def caller(depth: int) -> str:
    """file:line, `depth` frames up: where a role waits."""
    # A role waits at few lines of its file, and very often, so each place is written once.
    frame = sys._getframe(depth + 1)
    key = (frame.f_code, frame.f_lineno)
    place = _places.get(key)
    if place is None:
        place = _places[key] = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return place


def writable(text: str) -> str:
    r"""A text that somebody else's code has made, as any file, frame or terminal takes it: of bounded length, and
    surrogates, which are no UTF-8, as escapes.

    >>> writable("no file \udcff")
    'no file \\udcff'
    """
    left = len(text) - _MOST
    text = text if left <= 0 else f"{text[:_MOST]} ... ({left} characters more)"
    return text.encode("utf-8", "backslashreplace").decode()


def shown(text: str) -> str:
    r"""A text for a terminal, which takes control characters of a stranger's file for commands: as escapes.

    >>> shown("line 1\n\x1b[2Jline 2")
    'line 1\n\\x1b[2Jline 2'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def named(error: BaseException) -> str:
    """Type and text of an error.

    >>> named(ValueError("no such node"))
    'ValueError: no such node'
    """
    return writable(f"{type(error).__name__}: {error}")


def one_line(error: BaseException) -> str:
    """An error in one line: one of emul's as it is, another with its type and where it came from."""
    text = writable(" ".join(str(error).split())[:300])
    if isinstance(error, EmulError):
        return text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _library(frame.filename)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{'' if isinstance(error, SyntaxError) else place}"


def _library(file: str) -> bool:
    """True if a file belongs to emul, to Python or to an installed package: no line of the user's."""
    return file.startswith((_EMUL, _PYTHON, "<")) or "site-packages" in file


def whole() -> bool:
    """True if somebody has asked for tracebacks with emul's own lines, too."""
    return bool(os.environ.get(WHOLE))


def traceback_of(error: BaseException) -> str:
    """The traceback. Where a line of the user's has a part in it, that line and the error stand above it, and emul's
    frames are left out, but for the last one of all, where that has raised the error."""
    found = traceback.TracebackException.from_exception(error)
    own = [frame for frame in found.stack if not _library(frame.filename)]
    head = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {_last_line(found)}\n" if own else ""
    if not whole() and (left_out := _shorten(found)):
        head += f"({left_out} {'line' if left_out == 1 else 'lines'} of emul left out: emul --traceback shows them)\n"
    return writable(head + "".join(found.format()))


def standing(frames: Sequence[FrameType]) -> str:
    """The line that code has come to and is still at, and the calls that lead there. frames: from the outermost on.

    The line is the innermost one of the user's; where none is, of emul's.
    """
    found = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    lines = ([frame for frame in found if not _library(frame.filename)]
             or [frame for frame in found if frame.filename.startswith(_EMUL)] or list(found))
    place = f"{Path(lines[-1].filename).name}, line {lines[-1].lineno}, in {lines[-1].name}" if lines else "?"
    return writable(f"{place}\n{''.join(found.format())}".rstrip())


def _last_line(found: traceback.TracebackException) -> str:
    return "".join(found.format_exception_only()).strip().splitlines()[-1].strip()[:300]


def _shorten(found: traceback.TracebackException) -> int:
    """Leave emul's frames out; how many they were."""
    frames, left_out = list(found.stack), 0
    if not all(_library(frame.filename) for frame in frames):
        kept = [frame for i, frame in enumerate(frames)
                if i == len(frames) - 1 or not frame.filename.startswith(_EMUL)]
        left_out = len(frames) - len(kept)
        found.stack = traceback.StackSummary.from_list(kept)
    return left_out + sum(_shorten(cause) for cause in (found.__cause__, found.__context__) if cause is not None)
