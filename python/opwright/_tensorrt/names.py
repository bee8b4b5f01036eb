"""The names of the package `tensorrt`, provided by Opwright.

The modules that `_tensorrt_package` writes call `fill`. Submodules are Opwright's own modules under
another name: ``tensorrt.plugin is opwright.plugin``, and so are the modules below.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import opwright as _opwright
from opwright._core import _TENSORRT_VERSION, Error

#: The environment variable with the version to report, unless a command's option names one.
VARIABLE = "OPWRIGHT_TENSORRT_VERSION"
#: The modules that are written. Some programs import the second, which has NVIDIA's bindings.
PACKAGES = ("tensorrt", "tensorrt_bindings")
SUBMODULES = ("plugin", "aot")


def default_version() -> str:
    """The level of the API, the same as `opwright.NV_TENSORRT_VERSION` in C++."""
    number = _TENSORRT_VERSION
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def chosen_version(asked: str | None = None) -> str:
    """The version to report: the requested one, or else $OPWRIGHT_TENSORRT_VERSION, or else the
    API's own.

    :param asked: ``10.13``, ``11.0.0``...; missing numbers are 0.
    :returns: at least three numbers with dots between.
    :raises opwright.Error: the requested text is not a version of TensorRT 10 or 11.
    """
    source = "the version asked for"
    if asked is None:
        asked, source = os.environ.get(VARIABLE, ""), VARIABLE
        if not asked:
            return default_version()
    if not re.fullmatch(r"1[01](\.\d{1,4}){0,3}", asked):
        raise Error(
            f"tensorrt: {source} is '{asked}', expected 10 or 11 and up to three more numbers, such as 10.13"
        )
    numbers = [str(int(part)) for part in asked.split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))])


class _Loader(importlib.abc.Loader):
    """Registers an Opwright module under a second name."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system afterwards returns the entry in sys.modules, and does not change that
        # module's own spec.
        sys.modules[module.__name__] = importlib.import_module(self.target)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``tensorrt.plugin._lib`` and the like: the module of Opwright with that name."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package not in PACKAGES or name.partition(".")[0] != "plugin":
            return None
        found = importlib.util.find_spec(f"opwright.{name}")
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname,
            _Loader(found.name),
            origin=found.origin,
            is_package=found.submodule_search_locations is not None,
        )
        spec.has_location = found.has_location
        return spec


def fill_names(module: ModuleType, version: str) -> None:
    """Gives a module the names of `tensorrt`, with that version."""
    for name, value in vars(_opwright).items():
        if name[:1] != "_" and (name in SUBMODULES or not isinstance(value, ModuleType)):
            vars(module)[name] = value
    vars(module)["__version__"] = version
    # In NVIDIA's package the bindings themselves are a submodule.
    vars(module)["tensorrt"] = module


def fill(module: ModuleType, version: str) -> None:
    """Gives the module `tensorrt` its names and its submodules.

    :param module: `tensorrt` while it is imported.
    :param version: its ``__version__``.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    fill_names(module, version)
    sys.modules["tensorrt.tensorrt"] = sys.modules["tensorrt_bindings.tensorrt"] = module
    sys.modules["tensorrt.plugin"] = sys.modules["tensorrt_bindings.plugin"] = _opwright.plugin


@lru_cache(maxsize=1)
def _in_memory() -> ModuleType:
    module = ModuleType("tensorrt")
    fill_names(module, chosen_version())
    return module


def import_module(name: str, from_list: bool) -> ModuleType:
    """The result of importing `tensorrt`, or a module in it, in plugin sources that an engine
    carries.

    It is always Opwright. If `tensorrt` in this process is another package, it is a module that
    only these sources see.

    :param name: ``tensorrt``, ``tensorrt.plugin``...
    :param from_list: as in ``__import__``: whether the last module of the name is wanted, or the
        first.
    """
    imported = sys.modules.get("tensorrt")
    is_ours = getattr(imported, "plugin", None) is _opwright.plugin
    top = imported if imported is not None and is_ours else _in_memory()
    rest = name.partition(".")[2]
    if rest in ("", "tensorrt"):
        return top
    module = importlib.import_module(f"opwright.{rest}")
    return module if from_list else top
