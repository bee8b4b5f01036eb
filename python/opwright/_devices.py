"""Where CUDA's libraries of Python packages lie."""

from __future__ import annotations

import os

from .aot._nvrtc import package_folders


def publish_library_folders() -> None:
    """Tells the backend, by the environment variable OPWRIGHT_CUDA_PATH, where the NVIDIA packages
    beside this Python have their libraries. What the user has set there stays in front."""
    folders = os.environ.get("OPWRIGHT_CUDA_PATH", "").split(":")
    for package in package_folders():
        folder = str(package / "lib")
        if folder not in folders and os.path.isdir(folder):
            folders.append(folder)
    os.environ["OPWRIGHT_CUDA_PATH"] = ":".join(folder for folder in folders if folder)
