"""Folders of CUDA's libraries in Python packages."""

from __future__ import annotations

import os

from .aot._nvrtc import package_folders


def publish_library_folders() -> None:
    """Adds the library folders of the NVIDIA packages beside this Python to the environment
    variable OPWRIGHT_CUDA_PATH, which the backend reads. The user's own folders stay in front."""
    folders = os.environ.get("OPWRIGHT_CUDA_PATH", "").split(":")
    for package in package_folders():
        folder = str(package / "lib")
        if folder not in folders and os.path.isdir(folder):
            folders.append(folder)
    os.environ["OPWRIGHT_CUDA_PATH"] = ":".join(folder for folder in folders if folder)
