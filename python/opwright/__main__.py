"""The command line of the Python package: ``python -m opwright check my_ops.py``.

What needs no Python is the native program's: ``opwright --help``.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path


def cmake_dir() -> Path:
    """The folder for ``find_package(Opwright)``: pass it as ``-DOpwright_DIR=...``."""
    return Path(__file__).resolve().parent / "lib" / "cmake" / "Opwright"


def check(file: str, only: str | None, as_json: bool) -> int:
    """Checks the plugins of a file and prints what was found.

    Returns 0 where all is well, 1 where a check failed, 2 where nothing could be checked.
    """
    from ._check_report import to_json
    from .testing import NothingToCheckError, check_file

    try:
        reports = check_file(file, only)
    except NothingToCheckError as error:
        print(f"python -m opwright check: {error}", file=sys.stderr)
        return 2
    except Exception:  # of the user's file: any
        traceback.print_exc()
        return 2
    print(to_json(reports) if as_json else "\n\n".join(map(str, reports)))
    return 0 if all(report.ok for report in reports) else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m opwright", description=__doc__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder of the CMake package and exit",
    )
    commands = parser.add_subparsers(dest="command")
    checks = commands.add_parser("check", help="check the plugins that a Python file defines")
    checks.add_argument("file", help="a Python file with opwright.plugin.register and impl")
    checks.add_argument("--only", metavar="NAMESPACE::NAME", help="check this plugin alone")
    checks.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.cmake_dir:
        print(cmake_dir())
        return 0
    if options.command == "check":
        return check(options.file, options.only, options.json)
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
