"""`python -m emul`, and the console script `emul`."""

import sys


def main() -> None:
    """Entry point: the commands, of which already the import may be interrupted."""
    try:
        from emul.cli import main as commands
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)       # noqa: T201
        sys.exit(130)
    commands()


if __name__ == "__main__":
    main()
