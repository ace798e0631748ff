"""The start-up of commands, CPU seconds, the best of several: `python -m benchmarks.start_up`."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

_SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "quickstart.yaml"
_REPEATS = 5
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    'python -c "import numpy"': ["-c", "import numpy"],
    'python -c "import emul"': ["-c", "import emul"],
    "emul --help": ["-m", "emul", "--help"],
    "emul --version": ["-m", "emul", "--version"],
    'python -c "import emul.api.calls"': ["-c", "import emul.api.calls"],
    "emul check scenarios/quickstart.yaml": ["-m", "emul", "check", str(_SCENARIO)],
}


def seconds(arguments: list[str]) -> float:
    """CPU seconds of a process of this interpreter, and of those that it starts."""
    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime
    before = used()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return used() - before


def main() -> None:
    for name, arguments in COMMANDS.items():
        seconds(arguments)              # byte code is written, and what a check finds is kept
        print(f"{name:<38} {min(seconds(arguments) for _ in range(_REPEATS)):.3f} s")


if __name__ == "__main__":
    main()
