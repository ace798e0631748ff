"""What all tests share: worker pools that live as long as the session, and the flag that rewrites golden logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import settings

from emul.workers.pool import Workers

# the same examples on every machine, however slow it is; a hunt for others is `settings(derandomize=False)`
settings.register_profile("emul", deadline=None, derandomize=True)
settings.load_profile("emul")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-rewrite", action="store_true", help="write tests/golden/*.log anew instead of comparing")


@pytest.fixture(scope="session")
def pools() -> Iterator[list[Workers]]:
    """Pools of 1, 2 and 4 worker processes. A test that breaks one must not take it from here."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Workers(n)) for n in (1, 2, 4)]
