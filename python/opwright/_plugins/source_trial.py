"""Runs the sources of plugins once, as the loader of an engine does, before an engine carries them.

The trial needs a process of its own: in the building process the plugins already exist, and so do
the side effects of importing their files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from .. import _core

_SECONDS = 300
_MARK = "opwright: the sources were run: "
#: Whether this process is such a trial.
is_running = False
_passed: set[bytes] = set()

Files = Sequence[tuple[str, bytes]]


def why_not(files: Files, requirements: Sequence[tuple[str, str, str, str]]) -> str | None:
    """The error of running the sources; None if there is none, or if it cannot be found out."""
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
    """Main function of the trial. It reads files and plugins from stdin, and prints an error as the
    last line."""
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
