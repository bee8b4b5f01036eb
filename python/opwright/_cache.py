"""Where things are kept between programs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$OPWRIGHT_CACHE_DIR``, or `opwright` in the user's folder for caches. It may not be there yet."""
    if "OPWRIGHT_CACHE_DIR" in os.environ:
        return Path(os.environ["OPWRIGHT_CACHE_DIR"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opwright"
