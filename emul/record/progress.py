"""The output of a run for a person: a progress line while it goes, and a table of the schemes at the end.

With rich on a terminal, in plain lines otherwise. Nothing of it touches the run: it is called at the ends of rounds,
and between them every few thousand rows of the journal; it draws at most a few times a second.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Protocol, TextIO

from emul.base.plain import PlainMapping
from emul.base.units import format_size
from emul.record.marks import NOTE, accuracy_by, epsilons, in_words, marked, oracle_waits

_TERMINAL_EVERY_S = 0.1
_LINES_EVERY_S = 5.0
_SILENT_S = 5.0                                     # without the end of a round, before it is said
_SHORT_S = 2.0                                      # shorter work says nothing while it goes on
_STAY = 20                                          # lines above the bar of a notebook, the newest


class Progress:
    """The progress of one run, on stderr. `rounds`, `virtual_ns`: where it stops, if it is known. accuracy_of: the kind
    of its accuracy."""

    def __init__(self, scheme: str, rounds: int | None = None, virtual_ns: int | None = None, quiet: bool = False,
                 stream: TextIO | None = None, accuracy_of: str | None = None):
        self._scheme = scheme
        self._accuracy_of = accuracy_of
        self._rounds = rounds
        self._virtual_ns = virtual_ns
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._begin = time.monotonic()
        self._live = None if quiet else live(self._stream)
        self._last = self._begin                    # a run of less than the interval shows its last line only
        self._interval = _TERMINAL_EVERY_S if self._live else _LINES_EVERY_S
        self._line = ""
        self._share: float | None = None            # of the run that is done, where it is known
        self._shown = ""
        self._ended = self._begin, 0                # the end of the last round: in real time, in virtual ns

    def update(self, round: int, virtual_ns: int, accuracy: float | None = None) -> None:
        """A deciding node has left `round`, at `virtual_ns`; `accuracy` as last observed."""
        if self._quiet:
            return
        now = time.monotonic()
        self._ended = now, virtual_ns
        self._line = line(self._scheme, round, self._rounds, virtual_ns, self._virtual_ns, accuracy, now - self._begin,
                          self._accuracy_of)
        self._share = done(round, self._rounds, virtual_ns, self._virtual_ns)
        self._draw(now)

    def ended(self, round: int, virtual_ns: int, accuracy: float | None) -> None:
        """The run has come to its end with this accuracy: the evaluations that were under way are done."""
        if not self._quiet:
            self._line = line(self._scheme, round, None, virtual_ns, None, accuracy, time.monotonic() - self._begin,
                              self._accuracy_of)
            self._share = 1.0

    def silent(self, round: int, virtual_ns: int) -> None:
        """The run goes on, but no round ends: after a while of that a person is told."""
        now = time.monotonic()
        since, since_ns = self._ended
        if self._quiet or now - since < _SILENT_S:
            return
        self._line = (f"{self._scheme}  round {round}  no round has ended since t = {seconds(since_ns / 1e9)}, "
                      f"now t = {seconds(virtual_ns / 1e9)}  real {clock(now - self._begin)}")
        self._draw(now)

    def _draw(self, now: float) -> None:
        if now - self._last >= self._interval:
            self._last = now
            self._show()

    def _show(self) -> None:
        self._shown = self._line
        if self._live is not None:
            self._live.update(self._line, self._share)
        else:
            self._stream.write(self._line + "\n")
            self._stream.flush()

    def done(self) -> None:
        """The run is over: show where it got to, and leave the terminal as it was."""
        if not self._quiet and self._line and self._line != self._shown:
            self._show()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._quiet = True


class StepProgress:
    """The steps of something that is no run, on stderr: said once it has taken longer than two seconds.

    To be used as a context: when it is left the terminal is as it was. A thread says the step that takes long itself.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._last = time.monotonic()
        self._interval = _SHORT_S
        self._live: Live | None = None
        self._text = self._said = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StepProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """This is done now."""
        with self._lock:
            self._text = text
            now = time.monotonic()
            if now - self._last >= self._interval:
                self._last = now
                self._say(text)

    def _watch(self) -> None:
        while not self._over.wait(_SHORT_S):
            with self._lock:
                if self._text != self._said:
                    self._say(self._text)

    def _say(self, text: str) -> None:
        self._said = text
        if self._live is None:
            self._live = live(self._stream)
            self._interval = _TERMINAL_EVERY_S if self._live else _SHORT_S
        if self._live is not None:
            self._live.update(text)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()


class Live(Protocol):
    """A line that can be drawn again and again."""

    def update(self, line: str, share: float | None = None) -> None:
        """Draw it anew; share: of all that is to be done."""

    def write(self, line: str) -> None:
        """A line that stays, above it."""

    def stop(self) -> None:
        """Leave it."""


def live(stream: TextIO) -> Live | None:
    """A line that can be drawn again and again, on a terminal and in a notebook; None elsewhere."""
    if stream.isatty():
        return _OnTerminal(stream)
    display = _notebook()
    return None if display is None else _InNotebook(display)


class _OnTerminal:
    def __init__(self, stream: TextIO):
        from rich.console import Console
        from rich.status import Status

        self._status = Status("", console=Console(file=stream))
        self._status.start()

    def update(self, line: str, share: float | None = None) -> None:
        self._status.update(line)

    def write(self, line: str) -> None:
        self._status.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._status.stop()


def _notebook() -> Callable[..., object] | None:
    """The function that shows things in the output of a notebook's cell; None: this process serves no notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(sys.modules.get("IPython.display"), "display", None) if hasattr(shell, "kernel") else None


class _InNotebook:
    """A bar and the line beside it, in the output of a cell. By hand: rich draws anew there only with ipywidgets."""

    def __init__(self, display: Callable[..., object]):
        # A drawing has all lines that stay. With thousands of them, of a study, each would be as long as the notebook.
        self._stay: deque[str] = deque(maxlen=_STAY)
        self._left_out = 0
        self._line = self._bar = ""
        self._display = display
        self._handle: Any = None

    def update(self, line: str, share: float | None = None) -> None:
        self._line = line
        self._bar = "" if share is None else f'<progress value="{share:.3f}" max="1"></progress> '
        self._draw()

    def write(self, line: str) -> None:
        self._left_out += len(self._stay) == _STAY
        self._stay.append(line)
        self._draw()

    def stop(self) -> None:
        """The lines that stay are what is left; without any the last drawing is."""
        if self._stay and self._line:
            self._line = self._bar = ""
            self._draw()

    def _draw(self) -> None:
        lines = [*([f"{self._left_out} lines before these"] if self._left_out else []), *self._stay]
        plain = [*lines, *filter(None, [self._line])]
        html = "<br>".join([*map(escape, lines), *filter(None, [self._bar + escape(self._line)])])
        bundle = {"text/plain": "\n".join(plain), "text/html": f'<pre style="line-height:1.4">{html}</pre>'}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def done(round: int, rounds: int | None, virtual_ns: int, stop_ns: int | None) -> float | None:
    """The share of a run that is done, by what will end it; None: nobody knows.

    >>> done(3, 10, 5, None), done(3, 10, 5, 10), done(3, None, 5, None)
    (0.3, 0.5, None)
    """
    known = [at / end for at, end in ((round, rounds), (virtual_ns, stop_ns)) if end]
    return max(known, default=None)


def line(scheme: str, round: int, rounds: int | None, virtual_ns: int, stop_ns: int | None, accuracy: float | None,
         real_s: float, accuracy_of: str | None = None) -> str:
    """The progress line.

    >>> line("fedavg", 10, 30, 1_500_000_000, None, 0.9123, 4.0, "global")
    'fedavg  round 10/30  virtual 1.500 s  global accuracy 0.912  real 4 s  left 8 s'
    """
    parts = [scheme, f"round {round}/{rounds}" if rounds else f"round {round}", f"virtual {seconds(virtual_ns / 1e9)}"]
    if accuracy is not None:
        parts.append(f"{accuracy_by(accuracy_of)} {accuracy:.3f}")
    parts.append(f"real {clock(real_s)}")
    share = done(round, rounds, virtual_ns, stop_ns)
    if share is not None and 0 < share < 1:
        parts.append(f"left {clock(real_s * (1 - share) / share)}")
    return "  ".join(parts)


def seconds(value: float) -> str:
    """Virtual seconds to the millisecond; the exact figure stands in the tables."""
    return f"{value:.3f} s"


def clock(value: float) -> str:
    """Real time, roughly.

    >>> clock(0.234), clock(59.6), clock(3_725)
    ('0.2 s', '60 s', '1 h 02 min')
    """
    if value < 3:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def protection(summary: PlainMapping) -> list[str]:
    """The protection of the clients of a run, if the scheme's `analysis` has it: `preset`, if any, `guarantee`, and
    epsilon, the measured one where there is one.

    >>> protection({"analysis": {"preset": {"theory": "sound"}, "guarantee": {"theory": "holds"}, "epsilon_of_a_round":
    ...     {"theory": 3.0, "measured": 3.4}, "delta": {"theory": 1e-5}, "epsilon_in_total": {"theory": 55.7}}})
    ['preset sound, guarantee: holds; epsilon of a round 3.4, delta 1e-05, epsilon in total 55.7']
    """
    found = summary.get("analysis") or {}
    if "guarantee" not in found:
        return []
    said = [f"preset {found['preset']['theory']}"] if "preset" in found else []
    numbers = [f"{name.replace('_', ' ')} {one.get('measured', one['theory']):.4g}" for name, one in found.items()
               if name == "delta" or "epsilon" in name]
    text = ", ".join([*said, f"guarantee: {found['guarantee']['theory']}"])
    return ["; ".join([text, *([", ".join(numbers)] if numbers else [])])]


def rejections(summary: PlainMapping) -> list[str]:
    """Lines on rejected messages: of whom and why, the five most frequent; then how many more there are.

    >>> print(*rejections({"messages_rejected": 15, "violations": [
    ...     {"sender": "client3", "type": "Update", "reason": "not finite", "count": 12},
    ...     {"sender": "client1", "type": "Share", "reason": "x: 3", "count": 1}]}), sep="\\n")
    12 messages of client3 were rejected (Update: not finite)
    1 message of client1 was rejected (Share: x: 3)
    2 other messages were rejected
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in summary["violations"]:                   # of all roles that reject the same together
        counts[one["sender"], one["type"], one["reason"]] += one["count"]
    told = counts.most_common(5)
    lines = [f"{n:,} message{'s' * (n > 1)} of {sender} {'were' if n > 1 else 'was'} rejected ({kind}: {reason})"
             for (sender, kind, reason), n in told]
    more = summary["messages_rejected"] - sum(n for _, n in told)
    return [*lines, f"{more:,} other message{'s were' if more > 1 else ' was'} rejected"] if more else lines


_HEAD = ("scheme", "rounds", "failed rounds", "accuracy", "of", "epsilon in total", "virtual time", "bytes", "lost",
         "real time")


def table(summaries: Sequence[PlainMapping]) -> str:
    """The schemes side by side, one line each, from their summaries; plain text without a trailing newline."""
    body = without_empty([_HEAD, *(_cells(s) for s in summaries)])
    widths = [max(len(row[i]) for row in body) for i in range(len(body[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
             for row in body]
    return "\n".join([*lines, *([NOTE] if any(oracle_waits(s) for s in summaries) else [])])


def without_empty(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table, its heads in the first row, without the columns that have nothing but "-" below their head.

    >>> without_empty([["scheme", "accuracy", "lost"], ["fedavg", "-", "1/2"], ["krum", "-", "-"]])
    [['scheme', 'lost'], ['fedavg', '1/2'], ['krum', '-']]
    """
    kept = [i for i in range(len(rows[0])) if len(rows) == 1 or any(row[i] != "-" for row in rows[1:])]
    return [[row[i] for i in kept] for row in rows]


def _cells(s: PlainMapping) -> tuple[str, ...]:
    accuracy = s["accuracy"]
    return (marked(s["label"], s), str(s["rounds"]), str(s["rounds_failed"]),
            "-" if accuracy is None else f"{accuracy:.3f}", in_words(s.get("accuracy_of")) or "-",
            epsilons(s.get("privacy")) or "-", seconds(s["virtual_seconds"]), bytes_of(s),
            f"{s['messages_lost']}/{s['messages_sent']}", clock(s["real_seconds"]))


def bytes_of(summary: PlainMapping) -> str:
    """All bytes that crossed links; if some were declared and not carried, how many.

    >>> bytes_of({"bytes_total": 2_000, "bytes_declared": {"client": {"Update": 1_500}}})
    '2 kB (1.5 kB declared)'
    """
    declared = sum(sum(types.values()) for types in summary.get("bytes_declared", {}).values())
    total = rounded_size(summary["bytes_total"])
    return f"{total} ({rounded_size(declared)} declared)" if declared else total


def rounded_size(size: int) -> str:
    """Bytes to four digits, in powers of 1000.

    >>> rounded_size(17), rounded_size(14_632_001), rounded_size(2_000_000)
    ('17 B', '14.63 MB', '2 MB')
    """
    digits = max(len(str(size)) - 4, 0)
    return format_size(round(size / 10**digits) * 10**digits)
