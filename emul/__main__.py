"""`python -m emul`, and the console script `emul`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:      # `python -m` puts the current folder first
    _folder = sys.path.pop(0)
    if __file__.startswith(f"{_folder}/"):                  # an emul that is not installed
        sys.path.append(_folder)

import gc
import io
import os
import signal


def main() -> None:
    """Entry point: the commands, of which already the import may be interrupted, and the end once more."""
    _open_streams()
    try:
        gc.disable()                # nothing that is imported goes again: looking for it is 8 % of `emul check`
        from emul.cli import main as commands

        gc.freeze()
        gc.enable()
        commands()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)       # noqa: T201
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)    # the process ends: an impatient Ctrl-C has nothing to end


def _open_streams() -> None:
    """Have 0, 1 and 2 open, if whoever has started the command has closed them: else the next files get these numbers,
    and what is printed is written to them. And print any name of a file, also one that is no UTF-8."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)          # gets the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
