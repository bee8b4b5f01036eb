"""The system's C++ compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ._code import CompileError


@lru_cache(maxsize=8)
def _find(preferred: str | None) -> tuple[tuple[str, ...], str]:
    candidates = [preferred] if preferred else ["c++", "g++", "clang++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            version = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, check=False
            )
            return tuple(command), version.stdout.partition("\n")[0]
    looked_for = f"$CXX is '{preferred}'" if preferred else "looked for c++, g++ and clang++"
    raise CompileError(
        f"no C++ compiler was found ({looked_for}): install one (apt-get install g++), or name one "
        "with the environment variable CXX"
    )


def find() -> tuple[tuple[str, ...], str]:
    """The compiler's command and its version text. Raises CompileError if there is none."""
    return _find(os.environ.get("CXX") or None)


def run(arguments: Sequence[str], folder: Path, what: str) -> None:
    """Runs the compiler in a folder. Raises CompileError with its messages."""
    command = [*find()[0], *arguments]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CompileError(f"{what} does not compile ({shlex.join(command)}):\n{done.stderr}")
