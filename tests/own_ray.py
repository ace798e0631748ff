"""A place for the Ray clusters of a test alone, which nobody else on the machine finds, and which finds nobody."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def own_ray() -> Iterator[None]:
    """Within, Ray has a directory of its own, and $RAY_ADDRESS says to begin a cluster where none is named.

    A cluster of `ray.cluster_utils` notes its address in Ray's directory, for every `ray.init()` of the machine that
    names none. Another pytest process once took it so while the cluster was being taken down, and asked it for minutes.
    """
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")      # short: names of sockets below it have at most 107 bytes
    try:
        with mock.patch.dict(os.environ, RAY_TMPDIR=place, RAY_ADDRESS="local"):
            yield
    finally:
        shutil.rmtree(place, ignore_errors=True)
