"""Runs the sources of plugins once as loading an engine does, before an engine carries them.

That takes a process of its own: in the one that builds, the plugins are there already, and so is
what their files did when they were imported.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from . import _core

_SECONDS = 300
_MARK = "opwright: the sources were run: "
#: Whether this process is one of them.
is_running = False
_passed: set[bytes] = set()

Files = Sequence[tuple[str, bytes]]


def why_not(files: Files, requirements: Sequence[tuple[str, str, str, str]]) -> str | None:
    """What goes wrong where the sources are run; None where nothing does, or nobody can tell."""
    if is_running or not sys.executable:
        return None
    encoded = [(name, base64.b64encode(data).decode()) for name, data in files]
    task = json.dumps([encoded, requirements, sys.path]).encode()
    digest = hashlib.sha256(task).digest()
    if digest in _passed:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import _main; _main()"],
            input=task,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        return f"it was not done after {_SECONDS} seconds"
    except OSError:
        return None
    _, has_begun, rest = done.stdout.decode(errors="replace").rpartition(_MARK + "begin")
    if not has_begun:
        return None
    _, has_ended, result = rest.rpartition(_MARK)
    if not has_ended:
        return f"the process ended with status {done.returncode}"
    problem: str | None = json.loads(result)
    if problem is None:
        _passed.add(digest)
    return problem


def _main() -> None:
    """The process: files and plugins come on stdin, and what goes wrong is the last line."""
    global is_running
    is_running = True
    encoded, requirements, sys.path[:] = json.loads(sys.stdin.buffer.read())
    files = [(name, base64.b64decode(data)) for name, data in encoded]
    print(_MARK + "begin", flush=True)
    problem = None
    try:
        missing = _core._run_sources(files, [tuple(each) for each in requirements])
        if missing:
            names = ", ".join(f"'{each[1]}'" for each in missing)
            problem = f"it does not define {names}"
    except BaseException as error:
        problem = (
            str(error) if isinstance(error, _core.Error) else f"{type(error).__name__}: {error}"
        )
    print("\n" + _MARK + json.dumps(problem), flush=True)
    os._exit(0)
