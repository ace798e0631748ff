"""Workers in an allocation of Slurm: a step for each, spread over the nodes; frames by TCP under CURVE.

    with Workers(8, launcher=Steps(cluster("slurm", 8))) as pool:
        run(scenario, workers=pool)

`srun` starts a host (`emul.workers.host`) on a node and gives it its CPUs and GPUs. The host is asked and answers
through the pipes of its `srun`, which carry the pool's keys, too; events and payloads do not go through Slurm. A host
whose `srun` has gone ends its worker.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import IO, TypeVar

import msgspec

from emul.base.errors import RunError
from emul.workers.launcher import address_towards
from emul.workers.ray_address import NoCluster
from emul.workers.remote import Hosted, require_alike, require_meeting
from emul.workers.transport import Tcp, WorkerSettings

_PLACED_S = 120                     # for Slurm to begin a step
_ANSWER_S = 300                     # for a host to do what is small, on a machine that is busy
_END_S = 5
T = TypeVar("T")
_LENGTH = struct.Struct(">Q")       # before each frame


class SlurmStep:
    """A host in a step of its own, and the worker that it has started."""

    def __init__(self, command: Sequence[str]):
        # srun takes the job's own $SLURM_GPUS_PER_NODE before what a step asks for: the first step would have all GPUs
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_GPUS")}
        # in a session of its own: Ctrl-C is this process's, which ends its workers in order
        self._srun = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                                      env=environment)
        assert self._srun.stdin is not None
        self._to: IO[bytes] = self._srun.stdin
        self._asked: dict[int, Future[object]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()       # of what is asked
        self._over = threading.Event()
        self._how = "has not ended"
        self._lost = ""                     # why the host cannot be asked any more
        self.sentinel, self._ended = os.pipe()
        self.address, self.pid = "", 0
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, method: str, *given: object) -> Future[object]:
        """The host's answer, once it comes. It fails with RunError."""
        answer: Future[object] = Future()
        with self._lock:
            if self._lost:
                answer.set_exception(RunError(self._lost))
                return answer
            number = next(self._numbers)
            self._asked[number] = answer
            with contextlib.suppress(OSError, ValueError):      # `_read` notices; the latter: it is closed
                send(self._to, [number, method, given])
        return answer

    def begin(self, text: str) -> None:
        """Start the worker, and note its end when it comes."""
        self.pid = msgspec.convert(_answered(self.ask("start", text)), int)
        self.ask("wait").add_done_callback(self._note)

    def _read(self) -> None:
        assert self._srun.stdout is not None
        with contextlib.suppress(EOFError, OSError), self._srun.stdout as answers:
            while True:
                number, value, wrong = receive(answers, tuple[int, object, str])
                answer = self._asked.pop(number)
                if wrong:
                    answer.set_exception(RunError(wrong))
                else:
                    answer.set_result(value)
        code = self._srun.wait()
        with self._lock:
            self._lost = f"its step of Slurm has ended (srun: exit code {code})"
            left, self._asked = list(self._asked.values()), {}
        for answer in left:
            answer.set_exception(RunError(self._lost))

    def _note(self, code: Future[object]) -> None:
        lost = code.exception()
        self._how = f"ended with exit code {code.result()}" if lost is None else f"is lost: {lost}"
        self._over.set()
        os.write(self._ended, b".")

    @property
    def place(self) -> str:
        return f"process {self.pid} on {self.address}"

    def ending(self) -> str:
        return self._how

    def is_alive(self) -> bool:
        return not self._over.is_set()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._to.close()                # the host ends at it, and its worker

    def join(self, timeout: float) -> None:
        self._over.wait(timeout)

    def forget(self) -> None:
        """The host is not asked any more: its step ends, if need be by Slurm."""
        self.kill()
        for end in (self._srun.terminate, self._srun.kill):         # told to, srun ends the step; killed, it cannot
            try:
                self._srun.wait(_END_S)
                break
            except subprocess.TimeoutExpired:
                end()
        if self.pid:
            self._over.wait(_END_S)
        if self._over.is_set() or not self.pid:         # else its end may still be written
            os.close(self.sentinel)
            os.close(self._ended)


class Steps(Hosted[SlurmStep]):
    """The launcher of workers in the allocation that this process is in. Raises NoCluster."""

    def transport(self) -> Tcp:
        """At the address of this process that the allocation's nodes reach."""
        if "SLURM_JOB_ID" not in os.environ:
            raise NoCluster("--on slurm is for a process in an allocation: expected $SLURM_JOB_ID, as sbatch and "
                            "salloc set it")
        self._nodes = _said("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
        about = _said("scontrol", "--oneliner", "show", "node", self._nodes[-1])
        address = re.search(r"\bNodeAddr=(\S+)", about)
        return Tcp.new(address_towards(address[1] if address else self._nodes[-1]))

    def start(self, every: Sequence[WorkerSettings]) -> list[SlurmStep]:
        control = every[0].control
        where = places(self._nodes, os.environ, len(every), int(self._cluster.cpus))
        self._workers = [SlurmStep(self._command(node, control)) for node in where]
        try:
            about = [step.ask("about") for step in self._workers]
            said = [msgspec.convert(_answered(one, _PLACED_S), tuple[str, str, str]) for one in about]
            for step, (address, *_) in zip(self._workers, said, strict=True):
                step.address = address
            require_alike(said)
            met = msgspec.convert(self._all("meet", control), list[tuple[str, int]])
            require_meeting([step.address for step in self._workers], met, control)
            for step, told in zip(self._workers, every, strict=True):
                step.begin(told.text())
        except RunError as e:
            raise NoCluster(f"the workers do not start in job {os.environ['SLURM_JOB_ID']} of Slurm: {e}") from None
        return self._workers

    def _command(self, node: str, control: str) -> list[str]:
        job = f"--immediate={_PLACED_S}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--exact", "--unbuffered"
        given = [f"--cpus-per-task={int(self._cluster.cpus)}",
                 f"--gpus-per-task={int(self._cluster.gpus)}" if self._cluster.gpus else "--gres=none"]
        if "SLURM_MEM_PER_CPU" not in os.environ:
            given.append("--mem=0")         # else the first step of a node has all of its memory
        # -P: no module of the current folder, where a stranger's numpy.py may lie, takes the place of an installed one
        return ["srun", *job, *given, sys.executable, "-P", "-m", "emul.workers.slurm", control]

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for step in workers:
            step.kill()
        for step in workers:
            step.forget()

    # --- what is asked of the hosts ----------------------------------------------------------------------------------

    def _all(self, method: str, *given: object) -> list[object]:
        return [_answered(one) for one in [step.ask(method, *given) for step in self._workers]]

    def _answer(self, worker: SlurmStep, method: str, *given: object) -> object:
        return _answered(worker.ask(method, *given))

    def _reach(self) -> bool:
        return True                         # each step answers for itself


def places(nodes: Sequence[str], job: Mapping[str, str], workers: int, cpus: int) -> list[str]:
    """The node of each worker: in turn, as far as the CPUs of the job's nodes go. Raises NoCluster.

    >>> places(["n1", "n2"], {"SLURM_JOB_CPUS_PER_NODE": "1,4"}, 4, 1)
    ['n1', 'n2', 'n2', 'n2']
    """
    free: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", job["SLURM_JOB_CPUS_PER_NODE"]):
        free += [int(count) // cpus] * int(times or 1)
    if sum(free) < workers:
        raise NoCluster(f"no room for {workers} workers of {cpus} CPUs: the job of Slurm has room for {sum(free)} on "
                        f"{len(nodes)} nodes")
    turns = [(turn, node) for node, room in zip(nodes, free, strict=True) for turn in range(room)]
    return [node for _, node in sorted(turns, key=lambda one: one[0])[:workers]]


def _answered(answer: Future[object], more_s: float = 0.0) -> object:
    """The answer of a host. Raises RunError, also if none comes."""
    try:
        return answer.result(_ANSWER_S + more_s)
    except TimeoutError:
        raise RunError(f"a host in a step of Slurm has not answered for {_ANSWER_S + more_s:.0f} s") from None


def _said(*command: str) -> str:
    """The text that a command of Slurm prints. Raises NoCluster."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ANSWER_S).stdout
    except (OSError, subprocess.SubprocessError) as e:
        said = getattr(e, "stderr", None) or e
        raise NoCluster(f"{' '.join(command)}: {str(said).strip()}") from None


# --- frames between a launcher and a host -----------------------------------------------------------------------------

def send(to: IO[bytes], message: object) -> None:
    """Write one message. Raises OSError."""
    frame = msgspec.msgpack.encode(message)
    to.write(_LENGTH.pack(len(frame)) + frame)
    to.flush()


def receive(source: IO[bytes], kind: type[T]) -> T:
    """Read one message. Raises EOFError where there is none any more."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    frame = source.read(_LENGTH.unpack(head)[0])
    return msgspec.msgpack.decode(frame, type=kind)


# --- the program of a step --------------------------------------------------------------------------------------------

def main(control: str) -> None:
    """Be a host, asked on stdin and answering on stdout, until stdin ends. control: the coordinator's address."""
    from emul.workers.host import ProcessHost  # here: it imports the reader of data sets

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)                           # the worker prints where it does not disturb
    host = ProcessHost(address_towards(control.removeprefix("tcp://").rpartition(":")[0]))
    lock = threading.Lock()

    def answer(number: int, method: str, given: list[object]) -> None:
        value, wrong = None, ""
        try:
            value = getattr(host, method)(*given)
        except Exception as e:
            wrong = f"its host cannot {method}: {type(e).__name__}: {e}"
        with lock:
            send(answers, [number, value, wrong])

    try:
        while True:
            asked = receive(sys.stdin.buffer, tuple[int, str, list[object]])
            threading.Thread(target=answer, args=asked, daemon=True).start()
    except EOFError:
        pass
    finally:
        host.end()
    os._exit(0)                             # a thread may wait for the worker


if __name__ == "__main__":
    main(sys.argv[1])
