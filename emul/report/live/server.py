"""The live page of a run: a server on loopback that only reads.

It answers GET below a path that nobody can guess, to requests that name it as 127.0.0.1 or localhost (so no page of
another origin reaches it by a name of its own), without any header that would let such a page read the answer.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from emul.base.errors import EmulError, InputError
from emul.report import write
from emul.report.live.following import Follower
from emul.report.live.page import POLICY, page, shown
from emul.report.live.state import ENDED, RUNNING, RunProgress

_BEAT_S = 10.0                      # without news, before a connection is tried
_WATCHERS = 32                      # pages that are fed at a time

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
           "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"}


class News:
    """The newest state as JSON, and who waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text, self._number = b"{}", 0
        self.status, self.closed = "", False
        self.readers = 0            # without any, only what ends a run is made ready

    def tell(self, state: RunProgress) -> None:
        """Taken from the follower's thread."""
        if not self.readers and state.status == RUNNING:
            return
        text = json.dumps(shown(state), allow_nan=False, default=str, separators=(",", ":")).encode()
        with self._changed:
            self._text, self._number, self.status = text, self._number + 1, state.status
            self._changed.notify_all()

    def join(self, readers: int) -> None:
        """So many more read."""
        with self._changed:
            self.readers += readers

    def close(self) -> None:
        """End all waits: no news will come any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def after(self, number: int, timeout_s: float) -> tuple[int, bytes]:
        """(number, JSON) of what came after `number`; the same number if nothing did in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._number != number or self.closed, timeout_s)
            return self._number, self._text


class Watching:
    """A run and the server that shows it. `url` is where; `close` ends it. Raises InputError: the port is taken."""

    def __init__(self, directory: Path, port: int = 0):
        self.directory, self.news = directory, News()
        self.token = secrets.token_urlsafe(16)
        self._watchers = threading.BoundedSemaphore(_WATCHERS)
        self._report, self._report_lock = b"", threading.Lock()
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        except OSError as error:
            raise InputError(f"port {port}: {error.strerror}; 0 takes one that is free") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/{self.token}/"
        self._follower = Follower(directory, self.news.tell)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Watching:
        self._follower.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nobody is answered any more."""
        self.news.close()
        self._follower.stop()
        self._server.shutdown()
        self._server.server_close()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which a request may call this server."""
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def feed(self, send: Callable[[bytes], None]) -> bool:
        """Send the state whenever it changes, until the run or the server ends. False: too many are fed already.
        Raises OSError once the other side has gone."""
        if not self._watchers.acquire(blocking=False):
            return False
        self.news.join(1)
        try:
            number = 0
            while not self.news.closed:
                newest, text = self.news.after(number, _BEAT_S)
                send(b": beat\n\n" if newest == number else b"data: " + text + b"\n\n")
                if newest != number and self.news.status == ENDED:
                    break
                number = newest
        finally:
            self.news.join(-1)
            self._watchers.release()
        return True

    def report(self) -> bytes:
        """The report of what the run has come to; made once if it has ended. Raises EmulError, OSError."""
        with self._report_lock:
            if self._report:
                return self._report
            with tempfile.TemporaryDirectory(prefix="emul-") as folder:
                found = write(self.directory, Path(folder) / "report.html").read_bytes()
            if self.news.status == ENDED:
                self._report = found
            return found


def _handler(watching: Watching) -> type[BaseHTTPRequestHandler]:
    """The handler of one server's requests."""
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version, protocol_version, timeout = "emul", "", "HTTP/1.1", 60

        def do_GET(self) -> None:
            refused = _refusal(watching, self.path, self.headers)
            if refused is not None:
                self._answer(refused, f"{refused.value} {refused.phrase}\n".encode(), "text/plain")
                return
            name = self.path.removeprefix(f"/{watching.token}/")
            if name == "events":
                self._feed()
            elif name == "report":
                self._report()
            else:
                self._answer(HTTPStatus.OK, page(watching.directory.resolve().name), "text/html", POLICY)

        def _report(self) -> None:
            try:
                self._answer(HTTPStatus.OK, watching.report(), "text/html")
            except (EmulError, OSError) as error:
                self._answer(HTTPStatus.CONFLICT, f"{error}\n".encode(), "text/plain")

        def _feed(self) -> None:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            for header, value in {**HEADERS, "Content-Type": "text/event-stream", "Connection": "close"}.items():
                self.send_header(header, value)
            self.end_headers()
            watching.feed(self._push)

        def _push(self, content: bytes) -> None:
            self.wfile.write(content)
            self.wfile.flush()

        def _answer(self, status: HTTPStatus, body: bytes, kind: str, policy: str = "") -> None:
            self.send_response(status)
            told = {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
            for header, value in (told | ({"Content-Security-Policy": policy} if policy else {})).items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:                 # the other side has gone
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing: the terminal is the user's."""

    return Handler


def _refusal(watching: Watching, path: str, headers: Any) -> HTTPStatus | None:
    """The status of a request that is refused; None: it is answered."""
    if headers.get_all("Host", []) not in ([host] for host in watching.hosts):
        return HTTPStatus.MISDIRECTED_REQUEST
    token, slash, name = path[1:].partition("/")
    known = slash and name in ("", "events", "report")
    if not known or not secrets.compare_digest(token.encode(), watching.token.encode()):
        return HTTPStatus.NOT_FOUND
    if name == "events" and headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return HTTPStatus.FORBIDDEN
    return None

