"""Writes the package `tensorrt` with its distribution's metadata, for programs to find."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from .._cache import cache_folder, open_private

#: Content of INSTALLER in our distributions.
INSTALLER = "opwright"

#: How `tensorrt/__init__.py` begins.
MARK = '"""TensorRT\'s names, answered by Opwright: python -m opwright tensorrt --help."""\n'
_TENSORRT = (
    MARK
    + """

import sys

try:
    from opwright._tensorrt.names import fill
except ImportError as error:
    raise ImportError(
        "this `tensorrt` stands for Opwright, which cannot be imported here; install opwright, or take "
        f"the package out: pip uninstall tensorrt ({error})"
    ) from error
fill(sys.modules[__name__], "@VERSION@")
del sys, fill
"""
)

BINDINGS = '''"""`tensorrt` under the name that its bindings have in NVIDIA's wheels."""

import sys

import tensorrt

sys.modules[__name__] = tensorrt
'''

_METADATA = """Metadata-Version: 2.1
Name: @NAME@
Version: @VERSION@
Summary: @SUMMARY@
Requires-Dist: opwright
"""

_WHEEL = """Wheel-Version: 1.0
Generator: opwright
Root-Is-Purelib: true
Tag: py3-none-any
"""


def dist_info(version: str) -> str:
    """The name of the folder with the metadata."""
    return f"tensorrt-{version}.dist-info"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def distribution(
    name: str, version: str, summary: str, modules: dict[str, str]
) -> dict[str, bytes]:
    """The contents of all files of a distribution by path, with RECORD last.

    :param modules: the texts of its Python files by path.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    texts = {
        **modules,
        f"{info}/METADATA": _METADATA.replace("@NAME@", name).replace("@SUMMARY@", summary),
        f"{info}/WHEEL": _WHEEL,
        f"{info}/INSTALLER": INSTALLER + "\n",
        f"{info}/top_level.txt": "".join(f"{Path(path).parts[0]}\n" for path in modules),
    }
    files = {path: text.replace("@VERSION@", version).encode() for path, text in texts.items()}
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    return files


def contents(version: str) -> dict[str, bytes]:
    """The contents of all files of the package by path, with RECORD last."""
    modules = {"tensorrt/__init__.py": _TENSORRT, "tensorrt_bindings/__init__.py": BINDINGS}
    return distribution("tensorrt", version, "TensorRT's names, answered by Opwright", modules)


def write(folder: Path, version: str) -> None:
    """Writes the package into an existing folder."""
    write_files(folder, contents(version))


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files with their folders into an existing folder."""
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)


def is_complete(folder: Path, version: str) -> bool:
    """Whether the folder holds exactly the package that `write` writes."""
    try:
        return all((folder / path).read_bytes() == data for path, data in contents(version).items())
    except OSError:
        return False


def private_folder(version: str) -> Path:
    """A folder for PYTHONPATH that contains only the package.

    It lies in the cache, or in a new temporary folder if the cache is not writable or other users
    can write in it.
    """
    digest = hashlib.sha256(b"\0".join(contents(version).values())).hexdigest()[:16]
    try:
        cache = cache_folder()
        descriptor = open_private(cache, make=True)
        if descriptor is None:
            raise OSError
        os.close(descriptor)
        folder = cache / f"tensorrt-{version}-{digest}"
        if (descriptor := open_private(folder)) is not None:
            os.close(descriptor)
            if is_complete(folder, version):
                return folder
        made = Path(tempfile.mkdtemp(prefix=".tensorrt-", dir=cache))
    except (OSError, RuntimeError):  # not writable, or a user without a home
        made = folder = Path(tempfile.mkdtemp(prefix="opwright-tensorrt-"))
    write(made, version)
    if made != folder:
        try:
            if os.path.lexists(folder):  # damaged
                os.replace(folder, made / "damaged")
            os.rename(made, folder)
        except OSError:
            pass  # another process was first
        shutil.rmtree(made, ignore_errors=True)
    return folder
