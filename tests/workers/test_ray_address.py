"""Which cluster is meant, and an address where none answers: without a cluster, and mostly without Ray."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emul.base.extras import MissingExtra
from emul.study.engines import on_ray
from emul.workers import ray_address
from emul.workers.cluster import Cluster
from emul.workers.pool import Workers
from emul.workers.ray_actors import Actors
from emul.workers.ray_address import Meant, NoCluster, meant

SETTINGS = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100])      # as a server of HTTP/2 greets


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of someone who answers one connection so; None: not at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.settimeout(30)
                connection.recv(100)
                if answer is not None:
                    connection.sendall(answer)
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(100)            # until the other end hangs up
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_who_answers_as_ray_would_is_let_be() -> None:
    with listening(SETTINGS) as address:
        Meant(address, "$RAY_ADDRESS").require_answer()


@pytest.mark.parametrize(("answer", "said"), [
    (b"-ERR unknown command 'PRI'\r\n", "what listens there is not Ray"),       # Redis, whose port Ray has
    (None, "nothing comes back within 0.2 s"),
])
def test_who_answers_otherwise_is_not_ray(answer: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_address, "_ANSWER_S", 0.2 if answer is None else 20)
    with listening(answer) as address, pytest.raises(NoCluster) as caught:
        Meant(address, "$RAY_ADDRESS").require_answer()
    assert str(caught.value) == (f"no Ray cluster answers at {address}, which $RAY_ADDRESS names: {said}; "
                                 "begin it, or unset RAY_ADDRESS")


def test_a_port_is_a_number() -> None:
    with pytest.raises(NoCluster, match=r'names: expected HOST:PORT, with a number, but "head" is none; begin it, or'):
        Meant("head", "$RAY_ADDRESS").require_answer()


# --- with Ray installed -----------------------------------------------------------------------------------------------

class Nothing:
    """In place of Ray's look at the processes of this machine."""

    def __call__(self) -> frozenset[str]:
        return frozenset()

    def cache_clear(self) -> None: ...


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No cluster is named, and none is found on this machine; where Ray would note one."""
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", Nothing())
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray" / "ray_current_cluster"


def test_a_cluster_is_named_by_the_command_then_the_environment_then_what_ran_last(
        alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meant(None) is None
    with pytest.raises(NoCluster, match=r"^no Ray cluster runs on this machine, and \$RAY_ADDRESS names none"):
        meant("auto")
    alone.write_text("10.0.0.1:6379")
    assert meant(None) == meant("auto") == Meant("10.0.0.1:6379", str(alone))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert meant(None) == meant("auto") == Meant("10.0.0.2:6379", "$RAY_ADDRESS")
    assert meant("ray://10.0.0.3:10001") == Meant("ray://10.0.0.3:10001", "--on")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert meant(None) is meant("auto") is None


@pytest.mark.parametrize("by", ["$RAY_ADDRESS", "file", "--on"])
def test_an_address_of_nobody_ends_a_sweep_and_a_pool_at_once(by: str, alone: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    address = nobody() if by != "--on" else f"ray://{nobody()}"
    if by == "file":
        alone.write_text(address)
        by, mend = str(alone), "it has ended: `ray start --head` begins another, RAY_ADDRESS=HOST:PORT names one " \
            "elsewhere, and RAY_ADDRESS=local is for one of this process alone"
    elif by == "--on":
        mend = "`ray start --head --ray-client-server-port=10001` begins what is asked there"
    else:
        monkeypatch.setenv("RAY_ADDRESS", address)
        mend = "begin it, or unset RAY_ADDRESS"
    said = f"no Ray cluster answers at {address}, which {by} names: Connection refused; {mend}"
    with pytest.raises(NoCluster) as caught:
        Workers(2, launcher=Actors(Cluster(2, address if by == "--on" else "auto")))
    assert str(caught.value) == said
    if by != "--on":
        with pytest.raises(NoCluster) as caught:
            on_ray([], lambda event: None)
        assert str(caught.value) == said


def test_without_rays_client_its_address_says_what_to_install(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    said = r"^ray://... needs Ray's client, which is not installed: pip install 'emul\[ray\]'$"
    with pytest.raises(MissingExtra, match=said):
        Actors(Cluster(2, f"ray://{nobody()}")).transport()


def test_what_ray_says_of_a_cluster_that_it_cannot_join_is_one_line(alone: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str, **options: object) -> None:
        assert address == found
        text = 'Last connection error: Traceback:\n  File "node.py", line 742, in init\n    Gcs(\nRpcError: 404\n'
        raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError(text)

    monkeypatch.setattr("ray.init", init)
    with listening(SETTINGS) as found:
        monkeypatch.setenv("RAY_ADDRESS", found)
        with pytest.raises(NoCluster) as caught:
            on_ray([], lambda event: None)
    assert str(caught.value) == (f"cannot join the Ray cluster at {found}, which $RAY_ADDRESS names: RpcError: 404; is "
                                 f"this machine part of it? `ray start --address={found}`")


NOT_STARTED = "Starting Ray client server failed. See ray_client_server_23000.err for detailed logs."
PASSED_ON = f'Initialization failure from server:\nTraceback:\n  File "proxier.py"\nRuntimeError: {NOT_STARTED}'


@pytest.mark.parametrize("failing", [1, 3])
@pytest.mark.parametrize("error", [RuntimeError(NOT_STARTED), ConnectionAbortedError(PASSED_ON)])
def test_a_client_whose_process_has_not_started_is_tried_again(error: Exception, failing: int, alone: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def init(address: str, **options: object) -> None:
        tried.append(address)
        if len(tried) <= failing:
            raise error

    monkeypatch.setattr("ray.init", init)
    with listening(SETTINGS) as found:
        if failing == 3:
            with pytest.raises(NoCluster, match=r"--on names: (RuntimeError: )?Starting Ray client server failed. See"):
                ray_address.join(f"ray://{found}")
        else:
            ray_address.join(f"ray://{found}")
    assert tried == [f"ray://{found}"] * min(failing + 1, 3)
