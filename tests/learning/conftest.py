from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pretend import Pretend, counts, missing

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Decoded arrays of the tests go to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("EMUL_DATA", raising=False)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = SHARED / "data"
    if not (folder / "mnist").is_dir():
        pytest.skip("needs ../shared/data with the MNIST files, which is not beside this checkout")
    return folder


@pytest.fixture
def pretend() -> Iterator[Pretend]:
    """A device that computes in the CPU's memory and has the ways of a GPU; `pretend.counts` counts from 0."""
    if why := missing():
        pytest.skip(why)
    counts.clear()
    with torch.autograd.set_multithreading_enabled(False):      # a thread of autograd's would let go of tensors later
        yield Pretend()
    counts.room = None
