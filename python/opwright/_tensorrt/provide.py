"""Puts Opwright's libraries in the place of TensorRT's, for what was compiled for TensorRT."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .. import __version__
from .._core import Error
from . import package
from .install import _exchange, _site_packages, _staging

#: The major versions whose binary interface Opwright has.
MAJORS = (10, 11)
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
_NAME = "opwright-tensorrt-libs"

#: What NVIDIA's binding imports first.
_LIBS = '''"""Opwright's libraries under TensorRT's names: python -m opwright tensorrt provide."""

import ctypes

from opwright._tensorrt.provide import library_file, libraries

# The dynamic linker finds a loaded library by its name.
for major, name in libraries():
    ctypes.CDLL(str(library_file(major, name)))
'''

#: NVIDIA's distribution with the binding has it under another name than programs import.
_TENSORRT = '''"""NVIDIA's binding `tensorrt_bindings` under the name `tensorrt`."""

import importlib.util
import sys

_spec = importlib.util.find_spec("tensorrt_bindings")
if _spec is None:
    raise ImportError("`tensorrt` needs NVIDIA's binding: pip install --no-deps tensorrt-cu13-bindings")
sys.modules["tensorrt_bindings"] = sys.modules[__name__]
__file__ = _spec.origin
__path__ = list(_spec.submodule_search_locations)
exec(_spec.loader.get_code("tensorrt_bindings"))
'''


def libraries() -> list[tuple[int, str]]:
    """The libraries' major versions and names, as in `libnvinfer.so.11`."""
    return [(major, name) for major in MAJORS for name in LIBRARIES]


def library_file(major: int, name: str) -> Path:
    """Where Opwright has its library for a library of TensorRT's."""
    return Path(__file__).resolve().parents[1] / "lib" / f"libopwright_{name}_{major}.so"


def _has_module(name: str) -> bool:
    """Whether the environment has this package, from somebody else."""
    file = _site_packages() / name / "__init__.py"
    return file.exists() and file.read_text() not in (_LIBS, _TENSORRT)


def _installed() -> list[Path]:
    """What `provide` put into the environment."""
    site = _site_packages()
    found = list(site.glob(f"{_NAME.replace('-', '_')}-*.dist-info"))
    for name, text in (("tensorrt_libs", _LIBS), ("tensorrt", _TENSORRT)):
        file = site / name / "__init__.py"
        if file.exists() and file.read_text() == text:
            found.append(site / name)
    return found


def provide() -> str:
    """Lets NVIDIA's binding in this environment find Opwright's libraries.

    :returns: what was done, in words.
    :raises opwright.Error: NVIDIA's libraries are installed, or the environment cannot be written.
    """
    site = _site_packages()
    if _has_module("tensorrt_libs"):
        raise Error(
            f"tensorrt: TensorRT's own libraries are installed, in {site / 'tensorrt_libs'}; uninstall them "
            "first: pip uninstall tensorrt-cu13-libs"
        )
    modules = {"tensorrt_libs/__init__.py": _LIBS}
    if not _has_module("tensorrt"):
        modules["tensorrt/__init__.py"] = _TENSORRT
    summary = "Opwright's libraries for NVIDIA's binding of TensorRT"
    with _staging(site) as staging:
        new = staging / "new"
        new.mkdir()
        package.write_files(new, package.distribution(_NAME, __version__, summary, modules))
        _exchange(_installed(), sorted(new.iterdir()), staging, site)
    return f"tensorrt_libs is Opwright now, in {site}: NVIDIA's binding runs on it"


def provide_in(folder: Path) -> str:
    """Makes links with TensorRT's names in a folder, for `LD_LIBRARY_PATH`.

    :returns: what was done, in words.
    :raises opwright.Error: the folder has such files of somebody else, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        links = {f"lib{name}.so.{major}": library_file(major, name) for major, name in libraries()}
        # The libraries look for the others beside themselves.
        own = library_file(*libraries()[0]).parent
        links |= {file.name: file for file in sorted(own.glob("lib*.so*"))}
        for name, target in links.items():
            link = folder / name
            if os.path.lexists(link) and not link.is_symlink():
                raise Error(f"tensorrt: {link} is there and is not a link; use another folder")
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    except OSError as error:
        raise Error(f"tensorrt: {folder} cannot be changed ({error.strerror})") from error
    return f"{folder} has TensorRT's libraries by Opwright; use it as LD_LIBRARY_PATH={folder}"


def remove() -> str | None:
    """Takes out what `provide` put into the environment.

    :returns: what was done, in words; None if there was nothing.
    :raises opwright.Error: the environment cannot be written.
    """
    site = _site_packages()
    if not _installed():
        return None
    with _staging(site) as staging:
        _exchange(_installed(), [], staging, site)
    shutil.rmtree(site / "tensorrt_libs" / "__pycache__", ignore_errors=True)
    return f"tensorrt_libs is removed from {site}"


def status() -> str | None:
    """A description; None where `provide` put nothing into the environment."""
    return f"tensorrt_libs is Opwright, in {_site_packages()}" if _installed() else None
