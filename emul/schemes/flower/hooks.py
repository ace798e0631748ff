"""Replacements of Flower's own code where an app runs in emul; elsewhere all of it does what it did before.

Flower's older API has a thread for each client that waits for one reply: their order, and so virtual time, would depend
on the machine. Here all instructions of a round go out at once. It also lets a thread look every few seconds for who is
there; here the app looks when it wants to know. And what a server app evaluates is noted for the observer.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.app.message_type import MessageType
from flwr.server import server as legacy
from flwr.server.client_manager import ClientManager
from flwr.server.compat import app as legacy_app
from flwr.server.compat import app_utils
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.history import History
from flwr.server.workflow import default_workflows
from flwr.serverapp.strategy import Strategy

from emul.schemes.flower.current import Notes, running
from emul.schemes.flower.encoding import recorddict_compat as compat
from emul.schemes.flower.grid import EmulGrid


@cache
def install() -> None:
    """Replace what is to be replaced, once a process."""
    legacy.fit_clients = _batched(legacy.fit_clients, MessageType.TRAIN, compat.fitins_to_recorddict,
                                  lambda content: compat.recorddict_to_fitres(content, keep_input=False))
    legacy.evaluate_clients = _batched(legacy.evaluate_clients, MessageType.EVALUATE, compat.evaluateins_to_recorddict,
                                       compat.recorddict_to_evaluateres)
    for module in (legacy_app, default_workflows):
        module.start_update_client_manager_thread = _without_thread(module.start_update_client_manager_thread)
    default_workflows.default_centralized_evaluation_workflow = _noting_workflow(
        default_workflows.default_centralized_evaluation_workflow)
    Strategy.start = _noting_start(Strategy.start)
    legacy.Server.fit = _noting_fit(legacy.Server.fit)
    History.add_loss_centralized = _noting(History.add_loss_centralized, lambda loss: {"loss": loss})
    History.add_metrics_centralized = _noting(History.add_metrics_centralized, lambda metrics: metrics)


# --- the older API ------------------------------------------------------------------------------------------------

def _batched(original: Callable[..., Any], kind: str, packed: Callable[..., Any], unpacked: Callable[..., object],
             ) -> Callable[..., Any]:
    """`fit_clients` or `evaluate_clients`, which send all instructions of a round at once."""
    @wraps(original)
    def clients(client_instructions: Sequence[tuple[Any, Any]], max_workers: int | None, timeout: float | None,
                group_id: int) -> Any:
        proxies = [proxy for proxy, _ in client_instructions]
        if not all(type(p) is GridClientProxy and isinstance(p.grid, EmulGrid) for p in proxies):
            return original(client_instructions, max_workers, timeout, group_id)
        messages = [Message(packed(ins, True), proxy.node_id, kind, ttl=timeout, group_id=str(group_id))
                    for proxy, ins in client_instructions]
        return _settled(messages, proxies, unpacked)
    return clients


def _settled(messages: Sequence[Message], proxies: Sequence[GridClientProxy], unpacked: Callable[..., Any]) -> Any:
    """(results, failures) of a batch, in the order in which replies come."""
    if not proxies:
        return [], []
    proxy_of = {proxy.node_id: proxy for proxy in proxies}
    results: list[object] = []
    failures: list[object] = []
    for reply in proxies[0].grid.send_and_receive(messages):
        proxy = proxy_of.pop(reply.metadata.src_node_id)
        if reply.has_error():
            failures.append(ValueError(f"Message contains an Error (reason: {reply.error.reason})."))
            continue
        answer = proxy, unpacked(reply.content)
        (results if answer[1].status.code == legacy.Code.OK else failures).append(answer)
    failures += [ValueError("Expected one Message but got: 0") for _ in proxy_of]
    return results, failures


def _without_thread(original: Callable[..., object]) -> Callable[..., Any]:
    """`start_update_client_manager_thread`: the manager looks who is there when it is asked, and at no other time."""
    @wraps(original)
    def start(grid: Any, client_manager: ClientManager) -> Any:
        if not isinstance(grid, EmulGrid):
            return original(grid, client_manager)
        stopped, done = threading.Event(), threading.Event()
        stopped.set()
        app_utils._update_client_manager(grid, client_manager, stopped, done)      # without its loop, which is stopped
        client_manager.wait_for = _waiting(client_manager)
        nobody = threading.Thread(target=lambda: None)
        nobody.start()
        return nobody, stopped, done
    return start


def _waiting(manager: ClientManager) -> Callable[..., bool]:
    """`wait_for` in virtual time."""
    def wait_for(num_clients: int, timeout: int = 86400) -> bool:
        until = time.time() + timeout
        while manager.num_available() < num_clients:
            if time.time() >= until:
                return False
            time.sleep(1)
        return True
    return wait_for


# --- for the observer ---------------------------------------------------------------------------------------------

def _noting_start(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @wraps(original)
    def start(*args: object, **kwargs: object) -> Any:
        notes = _notes()
        if notes is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        evaluate = bound.arguments.get("evaluate_fn")
        if evaluate is not None:
            def noted(server_round: int, arrays: ArrayRecord) -> Any:
                found = evaluate(server_round, arrays)
                if server_round:                # before the first round there is none to note it for
                    notes.evaluated(found)
                    notes.model = arrays
                return found
            bound.arguments["evaluate_fn"] = noted
        result = original(*bound.args, **bound.kwargs)
        if len(result.arrays):
            notes.model = result.arrays
        return result
    return start


def _noting_workflow(original: Callable[..., None]) -> Callable[..., None]:
    """Between training and evaluation of a round by a workflow of the older API."""
    @wraps(original)
    def evaluate(grid: object, context: Any) -> None:
        notes = _notes()
        if notes is not None:
            notes.model = context.state.array_records[default_workflows.MAIN_PARAMS_RECORD]
        original(grid, context)
    return evaluate


def _noting_fit(original: Callable[..., object]) -> Callable[..., Any]:
    @wraps(original)
    def fit(self: legacy.Server, *args: object, **kwargs: object) -> Any:
        found = original(self, *args, **kwargs)
        notes = _notes()
        if notes is not None and self.parameters.tensors:
            notes.model = compat.parameters_to_arrayrecord(self.parameters, keep_input=True)
        return found
    return fit


def _noting(original: Callable[..., None], metrics: Callable[[Any], Any]) -> Callable[..., None]:
    @wraps(original)
    def add(self: History, server_round: int, *args: object, **kwargs: object) -> None:
        original(self, server_round, *args, **kwargs)
        notes = _notes()
        if notes is not None and server_round:
            notes.evaluated(metrics([*args, *kwargs.values()][0]))
    return add


def _notes() -> Notes | None:
    app = running()
    return None if app is None else app.notes
