"""What all tests share: worker pools that live as long as the session, a small scenario in a folder of its own, and the
flag that rewrites golden logs."""

from __future__ import annotations

import contextlib
import gc
import importlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from small_scenario import SMALL
from threadpoolctl import threadpool_limits
from written_run import HEADER, LATENCIES, ROWS

from emul.base.rows import Row
from emul.learning import names
from emul.workers.pool import Workers

# Four processes run tests on two cores: threads of theirs would wait for each other in loops, which took half of the
# CPU time of some tests. What a test starts in a process of its own has the threads that it has for users.
torch.set_num_threads(1)
threadpool_limits(1)

# the same examples on every machine, however slow it is; a hunt for others is `settings(derandomize=False)`
settings.register_profile("emul", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("emul")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-rewrite", action="store_true",
                     help="write tests/golden and tests/scenario/frozen anew instead of comparing")


class Pools(Sequence[Workers]):
    """Pools of so many worker processes, each started when a test takes it: most take one, and a process is 0.2 s."""

    def __init__(self, sizes: Sequence[int], stack: contextlib.ExitStack):
        self._sizes, self._stack, self._started = sizes, stack, dict[int, Workers]()

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self._of(n) for n in self._sizes[at]]
        return self._of(self._sizes[at])

    def _of(self, n: int) -> Workers:
        if n not in self._started:
            self._started[n] = self._stack.enter_context(Workers(n))
        return self._started[n]


@pytest.fixture(autouse=True)
def path_of_modules() -> Iterator[None]:
    """A run with a plug-in puts its folder on the path of modules for good; the next test must not find them."""
    path, added = list(sys.path), set(names._added)
    yield
    sys.path[:] = path
    names._added.clear()
    names._added.update(added)


@pytest.fixture(scope="session")
def pools() -> Iterator[Sequence[Workers]]:
    """Pools of 1, 2 and 4 worker processes. A test that breaks one must not take it from here."""
    with contextlib.ExitStack() as stack:
        yield Pools((1, 2, 4), stack)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`small.yaml` in a folder of its own, which is the current one, and from which plug-ins are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])       # a plug-in adds the folder
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker of xdist imports files of its own first. On a clean checkout all of them would rewrite the assertions
    of the same file at the same time, and then of the next one."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    files = sorted(file for folder in session.config.args for file in Path(folder).rglob("test_*.py"))
    for path in files[int(worker["workerid"].removeprefix("gw"))::worker["workercount"]]:
        torch.default_generator.manual_seed(0)
        sys.path.insert(0, str(path.parent))
        with contextlib.suppress(Exception, pytest.skip.Exception):     # collecting it says so
            importlib.import_module(path.stem)
        sys.path.remove(str(path.parent))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Modules that a file makes for `parametrize` have the same weights in every run of the suite."""
    if isinstance(collector, pytest.Module):
        torch.default_generator.manual_seed(0)


def pytest_runtest_setup() -> None:
    """What a test draws of torch is the same in every run of the suite, and whatever ran before it. `torch.manual_seed`
    would also keep three tracebacks, for devices that are not there: 0.6 ms a test."""
    torch.default_generator.manual_seed(0)


def pytest_configure() -> None:
    """Where SIGINT is ignored, as of what a shell has put into the background, commands that tests start ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Every run begins with a full collection (`emul.workers.collections`); what tests and pytest keep to the end is
    put out of its sight. A test that leaves SIGINT ignored is wrong: all commands that later tests start ignore it."""
    yield
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN, item.nodeid
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """A process that ends would look through all that its tests have left, several times."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that meet the machine may be run again, and what runs a Flower app is skipped where there is no Flower.

    A test of Ray, of namespaces, of a browser or of signals fails at times for what the machine does meanwhile. Such a
    failure once threw away days of work. Nothing else is run again: a test that fails at times has found a fault there.
    """
    items.sort(key=lambda item: "/workers/" not in item.nodeid)     # they wait for processes: while others compute
    for item in items:
        if item.get_closest_marker("machine"):
            item.add_marker(pytest.mark.flaky(reruns=2))
    try:
        from emul.schemes.flower import apps
    except ModuleNotFoundError:                 # the core alone: see test_core_alone.py
        return
    if apps.installed():
        return
    for item in items:
        given = getattr(item, "callspec", None)
        if "tests/flower/" in item.nodeid or (given is not None and "flower" in given.params.values()):
            item.add_marker(pytest.mark.skip(reason=apps.MISSING))


@pytest.fixture
def rows() -> list[Row]:
    return list(ROWS)


@pytest.fixture
def header() -> dict[str, Any]:
    return dict(HEADER)


@pytest.fixture
def latencies() -> dict[tuple[int, int], int]:
    return dict(LATENCIES)
