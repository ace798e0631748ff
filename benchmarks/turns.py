"""Contenders that take turns: each runs a block of rounds while the other waits, in one pair of process trees.

The load and the clock of a machine that others share change within seconds. Two blocks that follow each other meet
nearly the same machine, so what is compared is the ratio of each such pair. A contender calls `Turn.ended` after each
round, when all that belongs to the round is done; `take_turns` runs two of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.common import ROOT, cpu_seconds

CALM = 0.05                         # of one core, that may be busy with something else


@dataclass(frozen=True)
class Block:
    """Some rounds of one contender: seconds of real time, of CPU of its process tree, and of CPU that the machine spent
    on anything else meanwhile, or had taken from it by its host."""

    wall_s: float
    cpu_s: float
    others_s: float

    @property
    def calm(self) -> bool:
        """True if nothing else was about, to speak of."""
        return self.others_s <= CALM * self.wall_s


@dataclass
class Turn:
    """A contender's side. rounds: of a block; 0: it takes no turns. The first block has start and first round in it."""

    rounds: int = 0
    _begin: float = field(default_factory=time.monotonic)
    _used: tuple[float, float] = field(default_factory=lambda: (0.0, busy_seconds()))

    def is_over(self, number: int) -> bool:
        """True if a block ends with this round, from 1."""
        return self.rounds > 0 and number % self.rounds == 0

    def ended(self, number: int) -> None:
        """This round is done: at the end of a block say so, and wait until it is this contender's turn again."""
        if not self.is_over(number):
            return
        wall_s = time.monotonic() - self._begin
        all_ = busy_seconds() - self._used[1]       # first: to look at the own ones takes a while
        own = cpu_seconds(os.getpid()) - self._used[0]
        print(f"BLOCK {wall_s:.6f} {own:.3f} {max(0.0, all_ - own):.3f}", flush=True)
        sys.stdin.readline()
        self._used = cpu_seconds(os.getpid()), busy_seconds()
        self._begin = time.monotonic()


def busy_seconds() -> float:
    """CPU seconds of all cores since the machine began that were not idle, what its host has taken included."""
    with open("/proc/stat", encoding="ascii") as lines:
        user, nice, system, _, _, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class Contender:
    """A command that takes turns, from its start until it has ended."""

    command: Sequence[str]
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        env = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")}
        self._process = subprocess.Popen(self.command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)

    def block(self) -> Block:
        """Wait until it has run its block. Raises RuntimeError if it ends before."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            name, *seconds = line.split()
            if name == "BLOCK":
                return Block(*map(float, seconds))
        raise RuntimeError(f"{' '.join(self.command)} ended with {self._process.wait()}: "
                           f"{''.join(self.output)[-2000:]}")

    def go(self) -> None:
        """It is its turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Let it go on to its end after its last block: all that it has said."""
        output, _ = self._process.communicate("\n")
        return "".join(self.output) + output


def take_turns(commands: Sequence[Sequence[str]], blocks: int) -> tuple[list[list[Block]], list[str]]:
    """(blocks of each command after its first, its output). Each has to end one block more than `blocks`. The one
    that begins changes from pair to pair, so that a drift meets both alike."""
    contenders = [Contender(command) for command in commands]
    for contender in contenders:
        contender.block()
    found: list[list[Block]] = [[] for _ in contenders]
    for number in range(blocks):
        order = list(enumerate(contenders))
        for place, contender in order if number % 2 == 0 else reversed(order):
            contender.go()
            found[place].append(contender.block())
    return found, [contender.end() for contender in contenders]
