"""What all tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels that an older emulated NVRTC compiled, in the user's cache, do not run on this one."""
    os.environ.setdefault("OPWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
