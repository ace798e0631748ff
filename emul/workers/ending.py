"""The end of workers with their coordinator: by a descriptor where there are such, else by asking now and then."""

from __future__ import annotations

import os


class Ending:
    """Of the process `pid`. descriptor: can be read once it has ended (Linux); None: ask whether the end has `come`."""

    def __init__(self, pid: int):
        self._pid, self._parent = pid, os.getppid()
        self.descriptor = _descriptor(pid)

    def come(self) -> bool:
        """True if the process has ended. A parent has as soon as somebody else takes its place, and others once
        nobody has to hear of their end any more."""
        if self._parent == self._pid:
            return os.getppid() != self._pid
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:         # there is one
            return False
        return False


def _descriptor(pid: int) -> int | None:
    opened = getattr(os, "pidfd_open", None)
    try:
        return None if opened is None else int(opened(pid))
    except OSError:                     # it has ended, or the system's call is not there, or forbidden
        return None
