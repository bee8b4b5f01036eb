"""Files of users that register plugins."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from .classes import IPluginCreatorInterface


class NotPythonError(ValueError):
    """The file is not a Python file."""


def run(file: Path) -> list[IPluginCreatorInterface]:
    """Runs a Python file as a module of its name. The file's imports find modules beside it.

    :returns: the creators in its variables. It may register them only when it runs as a program.
    :raises NotPythonError: it is not a Python file. Exceptions of the file itself pass.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise NotPythonError(f"'{file}' is neither a Python file nor a library")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    held = dict.fromkeys(v for v in vars(module).values() if isinstance(v, IPluginCreatorInterface))
    return list(held)


def own_frames(error: BaseException, file: str) -> str:
    """The traceback from the file's own first frame on, without the frames that ran it."""
    entries = list(traceback.extract_tb(error.__traceback__))
    own = [i for i, entry in enumerate(entries) if Path(entry.filename).name == Path(file).name]
    if own or isinstance(error, SyntaxError):
        entries = entries[own[0] :] if own else []
    lines = traceback.format_list(entries)
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()
