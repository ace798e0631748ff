"""What apps could do differently each time: generators without a seed, hashes of text, clocks, threads, globals."""

from __future__ import annotations

import concurrent.futures
import datetime as real
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_app import CLIENT, SERVER, scenario, write_app

from emul.schemes.flower import apps, clock, randomness
from emul.schemes.flower.clock import DATETIME, EPOCH_S
from emul.schemes.flower.current import AppClock, Entropy, Running, run_as, running
from emul.testing import run_text
from emul.workers.pool import Workers


def probing(tmp_path: Path, probe: str, head: str = "") -> str:
    """A scenario whose clients add what `probe` gives to the model, and whose server draws it, too."""
    client = CLIENT.replace("random.random(), np.random.rand()", f"float({probe}), np.random.rand()")
    body = (f"first = float({probe})\n"
            "FedAvg().start(grid, ArrayRecord([np.full(4, first)]), timeout=60, num_rounds=2)")
    folder = write_app(tmp_path / "app", body, server=f"{head}\n{SERVER}", client=f"{head}\n{client}")
    return scenario({"app": str(folder)})


def outcome(text: str, pool: Any = None) -> tuple[str, str]:
    summary = run_text(text, pool=pool).summary
    return summary["digest"], summary["digest_model"]


# --- in runs --------------------------------------------------------------------------------------------------------

PROBES = {
    "generators": ("np.random.default_rng().random() + np.random.RandomState().rand() + random.Random().random()"
                   " + np.random.SeedSequence().entropy % 97", ""),
    "clocks": ("datetime.now().timestamp() + datetime.utcnow().timestamp() + date.today().toordinal()"
               " + time.process_time() + time.thread_time() + time.mktime(time.localtime())",
               "from datetime import date, datetime"),
    "threads": ("ThreadPoolExecutor(1).submit(time.time).result() + in_thread(time.perf_counter)"
                " + in_thread(lambda: np.random.default_rng().random())",
                "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
                "def in_thread(what):\n    found = []\n"
                "    one = threading.Thread(target=lambda: found.append(what()))\n"
                "    one.start()\n    one.join()\n    return found[0]"),
    "import": ("tiny.START", "import tiny"),
}
MODULE = """
import random, time
import numpy as np
import torch
START = (np.random.rand() + random.random() + torch.rand(1).item() + np.random.default_rng().random() + time.time()
         + time.perf_counter())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES)
def test_a_run_is_repeated_whatever_its_app_draws_or_asks_for(name: str, tmp_path: Path, pools: list[Workers]) -> None:
    """Probes of M10, of five lines. All differed from run to run."""
    text = probing(tmp_path, *PROBES[name])
    (tmp_path / "app" / "tiny" / "__init__.py").write_text(MODULE)
    assert len({outcome(text, pool) for pool in (None, *pools[:2], pools[0])}) == 1


HASHED = "hash('label') % 1000 + [*{str(n) for n in range(50)}].index('7')"


def test_hashes_and_orders_of_sets_are_those_of_a_seed_of_hashes_that_is_zero(
        tmp_path: Path, pools: list[Workers]) -> None:
    """Workers of one fork server agree in any case, so what they find is compared with another process."""
    said = subprocess.run([sys.executable, "-c", f"print({HASHED})"], capture_output=True, text=True, check=True,
                          env={"PYTHONHASHSEED": "0"}, timeout=60)
    hashed, plain = probing(tmp_path / "a", HASHED), probing(tmp_path / "b", said.stdout.strip())
    assert outcome(hashed, pools[1]) == outcome(plain, pools[1])


COUNTING = """
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
import numpy as np
app, count, seen, rng, size = ClientApp(), 0, [], np.random.default_rng(), 4

@app.train()
def train(message, context):
    global count
    count += 1
    seen.append(context.node_id)
    content = RecordDict({"arrays": ArrayRecord([rng.random(size)]), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)
"""


def test_globals_that_clients_change_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They cannot be mended: the clients of one worker share them."""
    body = "FedAvg(fraction_evaluate=0).start(grid, ArrayRecord([np.zeros(4)]), timeout=60, num_rounds=3)"
    run_text(scenario({"app": str(write_app(tmp_path, body, client=COUNTING))}))
    told = [record.args for record in caplog.records if record.name == apps.__name__ and record.args]
    assert told == [("tiny.client_app.count",), ("tiny.client_app.rng",), ("tiny.client_app.seen",)]


def test_an_app_whose_clients_change_no_globals_is_not_told_of_any(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_text(scenario({"app": str(write_app(tmp_path))}))
    assert not [record for record in caplog.records if record.name == apps.__name__ and record.args]


@pytest.mark.parametrize(("seed", "warned"), [("0", False), ("1", True), ("random", True)])
def test_a_process_that_hashes_by_a_seed_of_its_own_is_told_so(seed: str, warned: bool) -> None:
    code = "from emul.schemes.flower import apps\napps.warn_of_hashes()\napps.warn_of_hashes()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120,
                          env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)})
    assert said.stderr.count("Start it with PYTHONHASHSEED=0") == warned


# --- one by one -----------------------------------------------------------------------------------------------------

def no_sleep(seconds: float) -> None:
    raise AssertionError(f"time.sleep({seconds}): no time can pass here")


def at(seconds: float, *names: str) -> Running:
    clock.install()
    randomness.install()
    return Running(2, AppClock(round(seconds * 1e9), no_sleep), entropy=Entropy(7, *names))


def drawn() -> list[float]:
    return [np.random.default_rng().random(), np.random.Generator(np.random.MT19937()).random(),
            float(np.random.RandomState().rand()), random.Random().random()]


def test_generators_without_a_seed_have_one_of_the_node() -> None:
    with run_as(at(1, "client1")):
        one, more = drawn(), drawn()
    with run_as(at(1, "client1")):
        assert [drawn(), drawn()] == [one, more]
        assert len({*one, *more}) == 8
    with run_as(at(1, "client2")):
        assert not {*drawn()} & {*one}


def test_nobody_elses_generators_are_seeded() -> None:
    with run_as(at(1)):
        seeded = drawn()
        assert np.random.default_rng(5).random() == np.random.default_rng(5).random()
        assert random.Random(5).random() == random.Random(5).random()
    assert not {*drawn()} & {*seeded, *drawn()}


def test_names_of_temporary_files_take_no_seed_of_an_app() -> None:
    """They have one generator a process: who asked first would have other streams than the others."""
    with run_as(at(1)):
        expected = random.Random().random()
    with run_as(at(1)):
        next(tempfile._RandomNameSequence())                # type: ignore[attr-defined]
        assert random.Random().random() == expected


def test_all_of_time_and_datetime_is_virtual_for_an_app() -> None:
    start = real.datetime.fromtimestamp(EPOCH_S + 90.5)
    with run_as(at(90.5)):
        assert (time.process_time(), time.thread_time_ns(), time.clock_gettime(time.CLOCK_MONOTONIC)) == (
            90.5, 90_500_000_000, 90.5)
        assert (time.clock_gettime(time.CLOCK_REALTIME), time.clock_gettime_ns(time.CLOCK_REALTIME)) == (
            EPOCH_S + 90.5, EPOCH_S * 10**9 + 90_500_000_000)
        assert time.strftime("%H:%M:%S", time.gmtime()) == "00:01:30"
        assert time.localtime() == time.localtime(EPOCH_S + 90.5)
        assert time.ctime() == time.asctime() == time.ctime(EPOCH_S + 90.5)
        assert time.strftime("%X") == time.strftime("%X", time.localtime())
        assert time.gmtime(0).tm_year == 1970
        assert DATETIME.datetime.now() == DATETIME.datetime.today() == start
        assert DATETIME.datetime.now(real.UTC).timestamp() == EPOCH_S + 90.5
        assert DATETIME.datetime.utcnow() == real.datetime(2026, 1, 1, 0, 1, 30, 500_000)
        assert DATETIME.date.today() == start.date()
    assert abs(DATETIME.datetime.now().timestamp() - time.time()) < 60
    assert time.process_time() != 90.5


def test_what_stands_in_for_datetime_is_it_in_all_else() -> None:
    made = DATETIME.datetime(2026, 5, 4, 3)
    assert type(made) is real.datetime
    assert pickle.loads(pickle.dumps(made)) == made
    assert isinstance(real.datetime(2026, 5, 4), DATETIME.datetime)
    assert isinstance(made, DATETIME.date)
    assert not isinstance(real.date(2026, 5, 4), DATETIME.datetime)
    assert issubclass(real.datetime, DATETIME.datetime)
    assert DATETIME.datetime.fromisoformat("2026-05-04T03:00") == made
    assert DATETIME.timedelta is real.timedelta

    class Own(DATETIME.datetime):                           # type: ignore[misc, name-defined]
        pass

    assert isinstance(Own(2026, 5, 4), Own)
    assert not isinstance(made, Own)
    with run_as(at(1)):
        assert type(Own.now()) is Own


def test_threads_of_an_app_are_the_apps_and_sleep_for_real() -> None:
    found: list[Any] = []

    def seen() -> None:
        time.sleep(0.001)
        found.append((running(), time.time(), np.random.default_rng().random()))

    app = at(5)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()                           # its thread is there before the app
        with run_as(app):
            threads = [threading.Thread(target=seen), threading.Thread(target=seen)]
            for thread in threads:
                thread.start()
                thread.join()
            pool.submit(seen).result()
        pool.submit(seen).result()
    assert [one[:2] for one in found[:3]] == [(app, EPOCH_S + 5)] * 3
    assert found[3][0] is None
    assert app.clock.now_ns == 5_000_000_000


def test_modules_of_an_app_have_virtual_time_however_they_import_it(tmp_path: Path) -> None:
    client = CLIENT.replace("TRAIN", "import datetime as d\n    from datetime import datetime\n"
                                     "    assert (d.datetime.now(d.timezone.utc).year, datetime.now().year // 10) == "
                                     "(2026, 202), 'TIME'\n    assert abs(d.datetime.now().timestamp() - "
                                     "1767225600) < 90, d.datetime.now()\n    pass")
    ran = run_text(scenario({"app": str(write_app(tmp_path, client=client))}))
    assert [row["client_errors"] for row in ran.rounds] == [0, 0, 0]
