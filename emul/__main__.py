"""`python -m emul`, and the console script `emul`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:      # `python -m` puts the current folder first
    _folder = sys.path.pop(0)
    if __file__.startswith(f"{_folder}/"):                  # an emul that is not installed
        sys.path.append(_folder)

import gc
import signal


def main() -> None:
    """Entry point: the commands, of which already the import may be interrupted, and the end once more."""
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


if __name__ == "__main__":
    main()
