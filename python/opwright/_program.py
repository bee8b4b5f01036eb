"""Runs the native program's commands in this process, so that Python may implement operators."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _core
from ._plugins.files import own_frames, run

#: Commands that are the same here and in the native program, with their descriptions.
COMMANDS = {
    "build": "build an engine file from an ONNX model",
    "run": "run an engine on arrays in NPY files",
    "inspect": "describe an engine",
    "bench": "measure an engine's latency and throughput",
    "view": "write a page of HTML that shows an engine",
    "trtexec": "build, load and time engines with the options of TensorRT's program",
    "completion": "print the completion of a shell, or the manual page",
}

_loaded: set[str] = set()


def _load(file: str) -> str:
    """Runs a file of plugins, once. Returns an error message, or an empty text."""
    path = Path(os.path.realpath(file))
    if str(path) in _loaded:
        return ""
    if not path.is_file():
        return f"'{file}': No such file"
    registry = _core.get_plugin_registry()
    try:
        held: list[Any] = run(path)  # creators of every kind of plugin
        for creator in held:
            known = {id(c) for c in registry.all_creators}
            if id(creator) not in known:
                registry.register_creator(creator, creator.plugin_namespace)
    except BaseException as error:  # the user's file may raise anything, SystemExit too
        return f"'{file}' raised {type(error).__name__}\n{own_frames(error, file)}"
    _loaded.add(str(path))
    return ""


def load_plugins(file: str) -> None:
    """Loads a Python file of plugins, or a plugin library.

    :raises Error: with what is wrong with it.
    """
    if not file.endswith(".py"):
        _core.get_plugin_registry().load_library(file)
    elif problem := _load(file):
        raise _core.Error(problem)


def run_command(arguments: Sequence[str]) -> int:
    """Runs a command line that begins with one of `COMMANDS`; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the process also while native code runs
    sys.stdout.flush()
    return _core._run_program(list(arguments), "python -m opwright", _load)
