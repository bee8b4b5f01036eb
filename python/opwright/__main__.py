"""The command line of the Python package: ``python -m opwright --cmake-dir``.

What needs no Python is the native program's: ``opwright --help``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def cmake_dir() -> Path:
    """The folder for ``find_package(Opwright)``: pass it as ``-DOpwright_DIR=...``."""
    return Path(__file__).resolve().parent / "lib" / "cmake" / "Opwright"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m opwright", description=__doc__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder of the CMake package and exit",
    )
    options = parser.parse_args(arguments)
    if options.cmake_dir:
        print(cmake_dir())
        return 0
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
