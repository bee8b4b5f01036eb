"""Lint: the width of pages, clang-format 14, clang on CUDA headers, ruff, mypy, clang-tidy on changed C++ files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "dev"
# A file takes up to ten seconds: the limit keeps lint under a minute.
TIDY_AT_MOST = 6
MAX_COLUMNS = 120


def git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def run(name: str, command: list[str]) -> bool:
    print(f"-- lint: {name}", flush=True)
    return subprocess.run(command, cwd=ROOT).returncode == 0


def write_commands(folder: Path) -> set[str]:
    """Writes the build's compile_commands.json with an entry for each file of a unity build.
    Returns the files."""
    commands = []
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        file = entry["file"]
        is_unity = Path(file).parent.name == "Unity"
        files = re.findall(r'#include "(.+)"', Path(file).read_text()) if is_unity else [file]
        commands += [
            entry | {"file": one, "command": entry["command"].replace(file, one)} for one in files
        ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(commands, indent=1))
    return {command["file"] for command in commands}


def wraps_prose() -> bool:
    """Whether no line of a page's prose has more than MAX_COLUMNS; tables and code may."""
    print("-- lint: pages", flush=True)
    good = True
    pages = [*git("ls-files", "*.md")]
    for page in (page for page in pages if not page.startswith("docs/reference/")):
        is_code = False
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
            is_fence = line.lstrip().startswith("```")
            is_code ^= is_fence
            is_prose = not (is_code or is_fence or line.lstrip().startswith("|"))
            if is_prose and len(line) > MAX_COLUMNS:
                print(f"{page}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
                good = False
    return good


def checks_device_headers() -> bool:
    """Checks the CUDA headers with clang."""
    folder = ROOT / "src" / "backend" / "gpu" / "device"
    headers = sorted(set(folder.glob("*.cuh")) - {folder / "prelude.cuh"})
    options = "-x cuda --cuda-gpu-arch=sm_86 --cuda-device-only -nocudainc -nocudalib -std=c++17 -fsyntax-only -Werror"
    quiet = ["-Wno-unknown-cuda-version", "-Wno-pragma-once-outside-header"]
    names = ["-include", "tools/device_names.cuh", "-include", str(folder / "prelude.cuh")]
    return run(
        f"clang, {len(headers)} CUDA headers",
        ["clang-14", *options.split(), *quiet, *names, *map(str, headers)],
    )


def main() -> int:
    good = wraps_prose()
    present = git("ls-files", "--cached", "--others", "--exclude-standard", "*.cpp", "*.h", "*.cuh")
    sources = [path for path in present if (ROOT / path).exists()]
    if shutil.which("clang-format-14") is None:
        print("-- lint: clang-format-14 is not installed, C++ formatting not checked")
    elif sources:
        good &= run("clang-format", ["clang-format-14", "--dry-run", "-Werror", *sources])
    if shutil.which("clang-14"):
        good &= checks_device_headers()
    good &= run("ruff", [sys.executable, "-m", "ruff", "check", "--quiet", "."])
    good &= run("mypy", [sys.executable, "-m", "mypy", "--no-error-summary"])
    changed = git("diff", "--name-only", "--diff-filter=AM", "HEAD", "--", "src/*.cpp", "cli/*.cpp")
    if changed and shutil.which("clang-tidy-14"):
        folder = ROOT / "build" / "lint"
        built = write_commands(folder)  # a build lacks the files for other processors
        changed = [path for path in changed if str(ROOT / path) in built]
        if len(changed) > TIDY_AT_MOST:
            print(f"-- lint: {len(changed)} changed files, clang-tidy on the first {TIDY_AT_MOST}")
        tidy = ["clang-tidy-14", "--quiet", "-p", str(folder), "--warnings-as-errors=*"]
        tidy.append(
            "--extra-arg=-Wno-unknown-warning-option"
        )  # the build's commands have GCC's options
        if changed:
            good &= run("clang-tidy", [*tidy, *changed[:TIDY_AT_MOST]])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
