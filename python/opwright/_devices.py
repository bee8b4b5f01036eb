"""Devices as the short API names them, and where CUDA's libraries of Python packages lie."""

from __future__ import annotations

import os
import re
from typing import Any

from ._core import DeviceType
from .aot._nvrtc import package_folders


def parse(device: Any) -> tuple[DeviceType, int]:
    """Type and number of a device; -1 where it has none.

    :param device: a `DeviceType`, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
    """
    if isinstance(device, DeviceType):
        return device, -1
    match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", str(device))
    if match is None or (match[1] == "cpu" and match[2] not in (None, "0")):
        raise ValueError(
            f"device={device!r}; expected 'cpu', 'cuda', 'cuda:1' or a DeviceType (CPU, GPU)"
        )
    if match[1] == "cpu":
        return DeviceType.CPU, -1
    return DeviceType.GPU, -1 if match[2] is None else int(match[2])


def publish_library_folders() -> None:
    """Tells the backend, by the environment variable OPWRIGHT_CUDA_PATH, where the NVIDIA packages
    beside this Python have their libraries. What the user has set there stays in front."""
    folders = os.environ.get("OPWRIGHT_CUDA_PATH", "").split(":")
    for package in package_folders():
        folder = str(package / "lib")
        if folder not in folders and os.path.isdir(folder):
            folders.append(folder)
    os.environ["OPWRIGHT_CUDA_PATH"] = ":".join(folder for folder in folders if folder)
