"""What all tests share."""

from __future__ import annotations

import gc
import os

import pytest


def pytest_collection_finish() -> None:
    """Modules and tests are no garbage. Together they are millions of objects, and walking these takes a second."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """What is alive at the end is freed in order: otherwise nanobind reports objects that leak."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels that an older emulated NVRTC compiled, in the user's cache, do not run on this one."""
    os.environ.setdefault("OPWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
