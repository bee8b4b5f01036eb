"""Runs the sources of plugins that engines carry.

The modules are the engine's own. They are called ``opwright_embedded.DIGEST.NAME``, so they neither
hide modules of the same name nor are hidden by them, and engines with the same sources share them.
Import statements in them find the engine's modules first. Imported modules stay, as with any
import.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .. import _core
from .._tensorrt import names as _tensorrt_names
from ..plugin import _decorators
from .sources import DEFINITIONS, Requirement, text

_PREFIX = "opwright_embedded"


def _package(name: str) -> ModuleType:
    """An empty package that only holds other modules."""
    module = ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    return module


class Bundle(importlib.abc.InspectLoader):
    """The modules of an engine, or of several that carry the same sources."""

    def __init__(self, digest: str, files: Mapping[str, str]):
        self._prefix = f"{_PREFIX}.{digest}."
        self._folder = f"<engine {digest[:8]}>"
        self._files: dict[str, tuple[str, str]] = {}  # module -> path, source
        for path, source in files.items():
            name = path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
            self._files[name] = (path, source)
        self._tops = {name.partition(".")[0] for name in self._files}
        self._roots: set[str] = set()
        self._builtins = {**vars(builtins), "__import__": self._import}
        self._plugins: dict[str, _decorators.Plugin] = {}
        _package(self._prefix[:-1])

    # Methods for the import system

    def find_spec(self, fullname: str) -> importlib.machinery.ModuleSpec | None:
        """The spec of one of the modules."""
        if self._name(fullname) not in self._files:
            return None
        path, _ = self._files[self._name(fullname)]
        spec = importlib.util.spec_from_loader(fullname, self, origin=f"{self._folder}/{path}")
        if spec is not None:
            spec.has_location = True  # gives the module a __file__
        return spec

    def is_package(self, fullname: str) -> bool:
        return self._files[self._name(fullname)][0].endswith("/__init__.py")

    def get_source(self, fullname: str) -> str:
        return self._files[self._name(fullname)][1]

    def get_code(self, fullname: str) -> CodeType:
        path, source = self._files[self._name(fullname)]
        return compile(source, f"{self._folder}/{path}", "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        existing = self._same_in_process(self._name(module.__name__))
        if existing is not None:
            sys.modules[module.__name__] = existing
            return
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)

    def _name(self, fullname: str) -> str:
        return fullname.removeprefix(self._prefix)

    def _same_in_process(self, name: str) -> ModuleType | None:
        """The process's module of that name if it has the same source, so that its import has no
        effect twice. Modules that define plugins are run anyway, since their plugins are
        missing."""
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if name in self._roots or file is None or not file.endswith(".py"):
            return None
        try:
            source = importlib.util.decode_source(Path(file).read_bytes())
        except (OSError, UnicodeError, SyntaxError):
            return None
        return module if source == self._files[name][1] else None

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """``__import__`` of the modules."""
        top = name.partition(".")[0]
        if level == 0 and top in _tensorrt_names.PACKAGES and top not in self._tops:
            return _tensorrt_names.import_module(name, bool(fromlist))
        if level != 0 or top not in self._tops:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(self._prefix + name, globals, locals, fromlist or (), 0)
        return module if fromlist else sys.modules[self._prefix + top]

    # Methods for loading an engine

    def run(self, definitions: Sequence[Mapping[str, Any]]) -> None:
        """Imports the modules that define plugins."""
        token = _decorators.current.set(self._plugins)
        try:
            for definition in definitions:
                self._roots.update(definition["modules"])
                for name in definition["modules"]:
                    self._run(name, definition["plugin"])
            for plugin in self._plugins.values():
                plugin.make_findable()
        finally:
            _decorators.current.reset(token)

    def register_creator(self, definition: Mapping[str, Any]) -> None:
        """Registers a plugin's creator if importing its module did not."""
        requirement = definition["plugin"]
        creator: Any = sys.modules[self._prefix + definition["modules"][0]]
        try:
            for part in definition["creator"].split("."):
                creator = getattr(creator, part)
            _core.get_plugin_registry().register_creator(creator(), requirement[3])
        except Exception as error:
            raise _core.Error(
                f"{text(requirement)}: the engine's source {self._place(error)} did not make its "
                f"creator {definition['creator']}: {type(error).__name__}: {error}"
            ) from error

    def _run(self, name: str, requirement: Requirement) -> None:
        try:
            importlib.import_module(self._prefix + name)
        except Exception as error:
            raise _core.Error(
                f"{text(requirement)}: the engine's source {self._place(error)} failed: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _place(self, error: BaseException) -> str:
        """The place in the sources where an error occurred."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename.startswith(self._folder):
                return f"{frame.filename}, line {frame.lineno},"
        return self._folder


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of all bundles."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        bundle = _bundles.get(rest.partition(".")[0]) if first == _PREFIX else None
        return bundle.find_spec(fullname) if bundle is not None else None


_bundles: dict[str, Bundle] = {}
_package(_PREFIX)
sys.meta_path.append(_Finder())


def open_sources(
    sources: Sequence[tuple[str, bytes]], missing: Sequence[Requirement]
) -> tuple[str, Bundle, list[dict[str, Any]]]:
    """The digest and the bundle of an engine's sources, and the definitions of the missing plugins
    that it can define. Runs nothing."""
    try:
        files = {path: data.decode() for path, data in sources}
        wanted = [
            {
                "plugin": tuple(map(str, entry["plugin"])),
                "modules": list(map(str, entry["modules"])),
                "creator": entry["creator"] and str(entry["creator"]),
            }
            for entry in json.loads(files.pop(DEFINITIONS))
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _core.Error(
            f"the engine's Python sources cannot be read: {DEFINITIONS} or a source is damaged "
            f"({type(error).__name__}: {error})"
        ) from error
    digest = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:32]
    if digest not in _bundles:
        _bundles[digest] = Bundle(digest, files)
    return digest, _bundles[digest], [d for d in wanted if d["plugin"] in set(missing)]
