"""The command line of the Python package: ``python -m opwright check my_ops.py``.

What needs no Python is the native program's: ``opwright --help``.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testing import Report


def cmake_dir() -> Path:
    """The folder for ``find_package(Opwright)``: pass it as ``-DOpwright_DIR=...``."""
    return Path(__file__).resolve().parent / "lib" / "cmake" / "Opwright"


def _say(message: object) -> None:
    print(f"python -m opwright check: {message}", file=sys.stderr)


def _own_frames(error: BaseException, file: str) -> str:
    """The traceback from the file's own first line on, without what ran it."""
    entries = list(traceback.extract_tb(error.__traceback__))
    own = [i for i, entry in enumerate(entries) if Path(entry.filename).name == Path(file).name]
    if own or isinstance(error, SyntaxError):
        entries = entries[own[0] :] if own else []
    lines = traceback.format_list(entries)
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def _check_file(file: str, options: argparse.Namespace) -> list[Report] | None:
    """The reports of a file; None, with a message, where nothing could be checked."""
    from .testing import NothingToCheckError, check_file

    is_terminal = sys.stderr.isatty()

    def tell(what: str) -> None:
        columns = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{what[:columns]}", end="", file=sys.stderr, flush=True)

    try:
        return check_file(
            file,
            options.only,
            libraries=options.plugins,
            device=options.device,
            progress=tell if is_terminal else None,
        )
    except NothingToCheckError as error:
        _say(error)
    except ModuleNotFoundError as error:
        _say(f"'{file}' needs the module '{error.name}', which is not installed")
        print(_own_frames(error, file), file=sys.stderr)
    except SystemExit as error:
        _say(f"'{file}' ended the program (status {error.code}) before anything was checked")
    except Exception as error:  # of the user's file: any
        _say(f"'{file}' raised {type(error).__name__} before anything was checked")
        print(_own_frames(error, file), file=sys.stderr)
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return None


def check(options: argparse.Namespace) -> int:
    """Checks the plugins of files and prints what was found.

    Returns 0 where all is well, 1 where a check failed, 2 where nothing could be checked.
    """
    from . import Error
    from ._check_report import to_json
    from .testing import usable_device

    try:
        usable_device(options.device)
    except Error as error:
        _say(error)
        return 2
    faulthandler.enable()  # where a plugin crashes, its line is all that can be said
    reports = []
    status = 0
    for file in options.files:
        found = _check_file(file, options)
        status = 2 if found is None else status
        reports += found or []
    if options.json:
        print(to_json(reports))
    elif reports:
        print("\n\n".join(report.table(options.verbose) for report in reports))
    return status or int(not all(report.ok for report in reports))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m opwright", description=__doc__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder of the CMake package and exit",
    )
    commands = parser.add_subparsers(dest="command")
    checks = commands.add_parser("check", help="check the plugins that files register")
    checks.add_argument(
        "files", metavar="FILE", nargs="+", help="a Python file or a C++ library with plugins"
    )
    checks.add_argument("--only", metavar="NAMESPACE::NAME", help="check this plugin alone")
    checks.add_argument(
        "--plugins", metavar="LIBRARY", nargs="+", default=[], help="C++ libraries to load first"
    )
    checks.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="what the plugins run on: the CPU (default), or the GPU",
    )
    checks.add_argument("-v", "--verbose", action="store_true", help="print each single failure")
    checks.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.cmake_dir:
        print(cmake_dir())
        return 0
    if options.command == "check":
        return check(options)
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
