"""The program of a step of Slurm: a host, asked on stdin and answering on stdout, which ends with its `srun`."""

from __future__ import annotations

import os
import sys
import threading
from typing import IO

from emul.workers.hosting import ProcessHost
from emul.workers.launcher import address_towards
from emul.workers.steps import receive, send


def main(control: str) -> None:
    """Serve until stdin ends. control: the coordinator's address."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)                           # the worker prints where it does not disturb
    host = ProcessHost(address_towards(control.removeprefix("tcp://").rpartition(":")[0]))
    lock = threading.Lock()
    try:
        while True:
            number, method, given = receive(sys.stdin.buffer, tuple[int, str, list[object]])
            threading.Thread(target=_answer, args=(answers, lock, host, number, method, given), daemon=True).start()
    except EOFError:
        pass
    finally:
        host.end()
    os._exit(0)                             # a thread may wait for the worker


def _answer(answers: IO[bytes], lock: threading.Lock, host: ProcessHost, number: int, method: str,
            given: list[object]) -> None:
    value, wrong = None, ""
    try:
        value = getattr(host, method)(*given)
    except Exception as e:
        wrong = f"its host cannot {method}: {type(e).__name__}: {e}"
    with lock:
        send(answers, [number, value, wrong])


if __name__ == "__main__":
    main(sys.argv[1])
