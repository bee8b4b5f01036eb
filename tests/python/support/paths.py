"""Paths of the project's folders."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples"
SUPPORT = Path(__file__).resolve().parent  # modules that tests share


def environment(folder: str) -> dict[str, str]:
    """The environment of a process that imports tests of this folder."""
    folders = [str(SUPPORT.parent / folder), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
