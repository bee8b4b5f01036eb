"""Collects the sources that an engine carries, from the definitions of its plugins."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import inspect
import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import _core
from .._tensorrt.names import PACKAGES as TENSORRT
from ..plugin._decorators import plugins
from . import source_trial as _source_trial

#: The name of the code object that lists the plugins that the sources define.
DEFINITIONS = "definitions.json"
_PACKAGE = __name__.partition(".")[0]
#: (kind, name, version, namespace) of a plugin that an engine needs.
Requirement = tuple[str, str, str, str]


def text(requirement: Requirement) -> str:
    """A plugin's name for messages."""
    _, name, version, namespace = requirement
    return f"plugin '{name}' (version {version}, namespace '{namespace}')"


def _fail(requirement: Requirement, reason: str) -> NoReturn:
    raise _core.Error(f"the source of {text(requirement)} cannot be put into the engine: {reason}")


def _installed_folders() -> list[Path]:
    """The folders of the standard library and installed packages."""
    folders = [sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return [Path(folder).resolve() for folder in folders]


def _is_for_scripts(node: ast.AST) -> bool:
    """Whether the node is ``if __name__ == "__main__"``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "'__main__' == __name__",
    )


def _imports(source: str, name: str, is_package: bool) -> Iterator[str]:
    """Module names that the import statements of a module may mean, including those in
    functions."""
    package = name if is_package else name.rpartition(".")[0]
    module = ast.parse(source)
    module.body = [node for node in module.body if not _is_for_scripts(node)]
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level > 0:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package)
                except ImportError:  # beyond the top package: the import fails if it ever runs
                    continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


class _Collector:
    """Gathers modules and, with each, the user's own files that it imports."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # path in the engine -> source
        self._seen: set[str] = set()
        self._taken: set[str] = set()  # top-level names that are embedded, wherever their files lie
        self._installed = _installed_folders()

    def add_root(self, module_name: str, requirement: Requirement) -> str:
        """Takes a module that defines a plugin; returns its name in the engine."""
        name = self._add_main(requirement) if module_name == "__main__" else module_name
        if name == module_name:
            self._taken.add(name.partition(".")[0])
            self._add(name)
        if not any(path in self.files for path in self._paths(name)):
            _fail(
                requirement,
                f"the module '{module_name}' that defines it has no source file; put the "
                "definition into a .py file and import it from there",
            )
        return name

    def _add_main(self, requirement: Requirement) -> str:
        """Takes the running script, under a name by which it can be imported."""
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if file is None or not os.path.isfile(file):
            _fail(
                requirement,
                "it is defined in a notebook or an interactive session; put the definition into a "
                ".py file and import it from there",
            )
        if spec is not None:  # python -m package.module
            self._taken.add(spec.name.partition(".")[0])
            self._add(spec.name)
            return spec.name
        stem = Path(file).stem
        name = stem if stem.isidentifier() else "main_script"
        self._keep(name, False, importlib.util.decode_source(Path(file).read_bytes()))
        return name

    @staticmethod
    def _paths(name: str) -> tuple[str, str]:
        base = name.replace(".", "/")
        return f"{base}.py", f"{base}/__init__.py"

    def _keep(self, name: str, is_package: bool, source: str) -> None:
        self._seen.add(name)
        self.files[self._paths(name)[is_package]] = source
        for imported in _imports(source, name, is_package):
            self._add(imported)

    def _add(self, name: str) -> bool:
        """Takes a module with its parent packages; False if the module is not the user's."""
        if name in self._seen:
            return any(path in self.files for path in self._paths(name))
        parent = name.rpartition(".")[0]
        if parent and not self._add(parent):
            return False
        self._seen.add(name)
        spec = self._find(name)
        if spec is None or not self._is_own(name, spec):
            return False
        is_package = spec.submodule_search_locations is not None
        source = ""  # a folder without __init__.py is a package too
        if spec.origin is not None:
            found = getattr(spec.loader, "get_source", lambda _: None)(spec.name)
            if found is None:
                return False
            source = found
        self._keep(name, is_package, source)
        return True

    def _find(self, name: str) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module. Imports nothing."""
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None:
            return spec
        parent = name.rpartition(".")[0]
        if not parent:
            try:
                return importlib.util.find_spec(name)
            except (ImportError, ValueError):
                return None
        package = self._find(parent)
        locations = package.submodule_search_locations if package is not None else None
        return importlib.machinery.PathFinder.find_spec(name, locations) if locations else None

    def _is_own(self, name: str, spec: importlib.machinery.ModuleSpec) -> bool:
        top = name.partition(".")[0]
        if top in self._taken:
            return True
        locations = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        if top == _PACKAGE or top in TENSORRT or not locations:
            return False
        if spec.origin is not None and not spec.origin.endswith(".py"):
            return False
        path = Path(locations[0]).resolve()
        if {"site-packages", "dist-packages"} & set(path.parts):
            return False
        return not any(path.is_relative_to(folder) for folder in self._installed)


def _functions_modules(requirement: Requirement) -> list[str] | None:
    """The modules that define a function plugin; None if C++ defines it."""
    _, name, _, namespace = requirement
    plugin = plugins.get(f"{namespace}::{name}")
    if plugin is None:
        return None
    modules: list[str] = []
    for function in plugin.sources.values():
        code: Any = getattr(function, "__code__", None)
        if code is not None and not os.path.isfile(code.co_filename):
            _fail(
                requirement,
                f"its function {function.__name__} is defined in a notebook, an interactive session "
                f"or by exec ({code.co_filename}); put the definition into a .py file and import "
                "it from there",
            )
        if function.__module__ not in modules:
            modules.append(function.__module__)
    return modules


def _creator_class(requirement: Requirement) -> type | None:
    """The class of a plugin's creator, which can be found and called again; None if C++ implements
    it."""
    creator = _core.get_plugin_registry().get_creator(*requirement[1:])
    if creator is None:
        _fail(
            requirement,
            "no creator is registered for it; register one with "
            "get_plugin_registry().register_creator",
        )
    cls = type(creator)
    if cls.__module__.partition(".")[0] == _PACKAGE:
        return None
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not cls:
        _fail(
            requirement,
            f"its creator's class {cls.__qualname__} is not found under that name in the module "
            f"'{cls.__module__}'; define it at the top level of a module",
        )
    if _needs_arguments(cls):
        _fail(
            requirement,
            f"its creator's class {cls.__qualname__} cannot be called without arguments, as "
            "loading the engine does; give the parameters of __init__ default values",
        )
    return cls


def _needs_arguments(cls: Callable[..., Any]) -> bool:
    try:
        inspect.signature(cls).bind()
    except TypeError:
        return True
    except ValueError:  # a class whose signature cannot be read
        pass
    return False


def collect(requirements: Sequence[Requirement]) -> list[tuple[str, bytes]]:
    """The sources of the plugins that Python implements, each with its path.

    They are the modules that define the plugins, the user's own files that these import (not the
    standard library or installed packages), and a list of the definitions. Empty if C++ implements
    all plugins.

    :raises Error: naming a plugin whose source cannot be found, or that loading the engine could
        not run, and what to do about it.
    """
    collector = _Collector()
    definitions: list[dict[str, Any]] = []
    for requirement in requirements:
        creator = None
        if requirement[0] == "FunctionPlugin":
            modules = _functions_modules(requirement)
        else:
            cls = _creator_class(requirement)
            modules = [cls.__module__] if cls is not None else None
            creator = cls.__qualname__ if cls is not None else None
        if modules is None:
            continue
        names = [collector.add_root(module, requirement) for module in modules]
        definitions.append({"plugin": requirement, "modules": names, "creator": creator})
    if not definitions:
        return []
    files = [(path, source.encode()) for path, source in sorted(collector.files.items())]
    files.append((DEFINITIONS, json.dumps(definitions, indent=1).encode()))
    problem = _source_trial.why_not(files, [each["plugin"] for each in definitions])
    if problem is not None:
        tried = ", ".join(text(each["plugin"]) for each in definitions)
        raise _core.Error(
            f"the engine could not be loaded with the sources of {tried}: they were run in a "
            f"process of their own, as loading does, and {problem}. A file that defines a plugin is "
            "run as a whole; what only the script is to do, as building engines and reading "
            'sys.argv, belongs under `if __name__ == "__main__":` or into another file'
        )
    return files
