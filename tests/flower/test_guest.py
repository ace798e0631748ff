"""The thread of an app runs only while its host waits for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from emul.base.clock import cpu_ns
from emul.base.errors import RoleError, RunError
from emul.schemes.flower.guest import Dismissed, Ended, Guest, Request


@dataclass
class Number(Request):
    n: int


def test_requests_and_answers_take_turns() -> None:
    heard: list[int] = []

    def app() -> None:
        heard.extend(guest.ask(Number(n)) for n in range(1000))

    guest = Guest(app, stuck_s=30)
    request = guest.resume()
    while isinstance(request, Number):
        assert len(heard) in (0, request.n)         # the list grows when it is complete
        request = guest.resume(request.n * 2)
    assert heard == [2 * n for n in range(1000)]
    assert request == Ended(None)


def test_what_an_app_raises_comes_to_its_host() -> None:
    def app() -> None:
        raise ZeroDivisionError("a bug")

    ended = Guest(app, stuck_s=30).resume()
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, ZeroDivisionError)


def test_an_app_that_is_dismissed_cleans_up_and_its_thread_ends() -> None:
    """However often it catches what it is told by, as long as it lets it go in the end."""
    seen: list[str] = []

    def app() -> None:
        try:
            try:
                guest.ask(Number(0))
            except Exception:
                seen.append("caught by what catches errors")
        finally:
            with pytest.raises(Dismissed):
                guest.ask(Number(1))
            seen.append("cleaned up")

    before = threading.active_count()
    guest = Guest(app, stuck_s=30)
    guest.resume()
    assert threading.active_count() == before + 1
    guest.dismiss()
    assert seen == ["cleaned up"]
    assert threading.active_count() == before
    guest.dismiss()


def test_who_was_never_started_is_dismissed_without_a_thread() -> None:
    guest = Guest(lambda: None, stuck_s=30)
    guest.dismiss()
    assert not guest.in_its_thread


def test_cpu_time_of_an_app_counts_as_its_hosts() -> None:
    def app() -> None:
        sum(i * i for i in range(2_000_000))

    before = cpu_ns()
    Guest(app, stuck_s=60).resume()
    assert cpu_ns() - before > 20_000_000


def test_an_app_that_does_not_come_back_is_named_by_the_line_where_it_is() -> None:
    lock = threading.Lock()
    lock.acquire()

    def hanging() -> None:
        lock.acquire()

    with pytest.raises(RunError, match=r"(?s)not come back for 0.1 s; it is at\n.*, in hanging\n    lock.acquire\(\)"):
        Guest(hanging, stuck_s=0.1).resume()
    lock.release()


def test_only_the_apps_own_thread_may_ask() -> None:
    with pytest.raises(RoleError, match=r"^the Grid was asked from a second thread of the server app"):
        Guest(lambda: None, stuck_s=30).ask(Number(0))
