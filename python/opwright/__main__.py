"""The command line of the Python package: ``python -m opwright check my_ops.py``, and more.

``build``, ``run``, ``bench`` and others are those of the native program, with the same options.
Here their operators may be in Python: ``python -m opwright build model.onnx -o model.engine
--plugins my_ops.py``.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testing import Report


def cmake_dir() -> Path:
    """The folder for ``find_package(Opwright)``: pass it as ``-DOpwright_DIR=...``."""
    return Path(__file__).resolve().parent / "lib" / "cmake" / "Opwright"


def tensorrt_prefix() -> Path:
    """The folder with `include` and `lib` as in an installation of TensorRT, for other projects'
    build files.

    :raises opwright.Error: this installation has none.
    """
    from . import Error

    prefix = Path(__file__).resolve().parent / "tensorrt"
    if not ((prefix / "include").is_dir() and (prefix / "lib").is_dir()):
        raise Error(
            f"there is no folder {prefix} with headers and libraries in this installation; a wheel of opwright "
            "has it"
        )
    return prefix


def _say(message: object) -> None:
    print(f"python -m opwright check: {message}", file=sys.stderr)


def _check_file(file: str, options: argparse.Namespace) -> list[Report] | None:
    """The reports of a file. Prints a message and returns None if nothing could be checked."""
    from ._plugins.files import own_frames
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
        print(own_frames(error, file), file=sys.stderr)
    except SystemExit as error:
        _say(f"'{file}' ended the program (status {error.code}) before anything was checked")
    except Exception as error:  # the user's file may raise anything
        _say(f"'{file}' raised {type(error).__name__} before anything was checked")
        print(own_frames(error, file), file=sys.stderr)
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return None


def check(options: argparse.Namespace) -> int:
    """Checks the plugins of files and prints the results.

    Returns 0 if all is well, 1 if a check failed, 2 if something could not be checked.
    """
    from . import Error
    from ._check.report import to_json
    from .testing import usable_device

    try:
        usable_device(options.device)
    except Error as error:
        _say(error)
        return 2
    faulthandler.enable()  # if a plugin crashes, its line is all that can be printed
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
    if any(report.failed for report in reports):
        return status or 1
    return 2 if any(report.needs_example for report in reports) else status


def tensorrt(options: argparse.Namespace) -> int:
    """Installs the package `tensorrt` or libraries for NVIDIA's one in the environment, removes
    them, or prints which are installed.

    Returns 0 if that was done or Opwright's is installed, else 1.
    """
    from ._tensorrt import install as _tensorrt_install
    from ._tensorrt import provide as _tensorrt_provide
    from ._tensorrt.names import chosen_version

    if options.action == "install":
        print(_tensorrt_install.install(chosen_version(options.api)))
        return 0
    if options.action == "provide":
        folder = options.folder
        print(_tensorrt_provide.provide_in(folder) if folder else _tensorrt_provide.provide())
        return 0
    if options.action == "remove":
        print(_tensorrt_provide.remove() or _tensorrt_install.remove())
        return 0
    if provided := _tensorrt_provide.status():
        print(provided)
        return 0
    text, is_ours = _tensorrt_install.status()
    print(text)
    return 0 if is_ours else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from . import __version__, _core, _program, _serve

    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["run"] and any(each.partition("=")[0] == "--ranks" for each in given):
        from .sharding._program import run_ranks

        return run_ranks(given[1:])
    if given and given[0] in _program.COMMANDS:
        return _program.run_command(given)
    from .sharding import _program as _sharding

    parser = argparse.ArgumentParser(prog="python -m opwright", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--cmake-dir",
        action="store_true",
        help="print the folder of the CMake package and exit",
    )
    parser.add_argument(
        "--tensorrt-prefix",
        action="store_true",
        help="print the folder with TensorRT's headers and libraries for compilers and exit",
    )
    commands = parser.add_subparsers(dest="command")
    for name, does in _program.COMMANDS.items():
        commands.add_parser(name, help=does)  # only for the list of commands
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
    package = commands.add_parser(
        "tensorrt", help="a package `tensorrt` in this environment that is Opwright"
    )
    actions = package.add_subparsers(dest="action", required=True)
    install = actions.add_parser("install", help="put it into the environment")
    install.add_argument(
        "--api",
        metavar="VERSION",
        help="the version that it reports: 10 or 11 and up to three more numbers, such as 10.13; default: "
        "$OPWRIGHT_TENSORRT_VERSION, or the level of the API",
    )
    provide = actions.add_parser(
        "provide", help="put Opwright's libraries where NVIDIA's binding of TensorRT looks for them"
    )
    provide.add_argument(
        "--folder",
        metavar="FOLDER",
        type=lambda text: Path(text).absolute(),
        help="make links with TensorRT's names there, for LD_LIBRARY_PATH, and change nothing else",
    )
    actions.add_parser("remove", help="take it out again")
    actions.add_parser("status", help="print which `tensorrt` is there; 0 if it is Opwright")
    serving = commands.add_parser(
        "serve", help="serve engines over HTTP, in the KServe v2 protocol"
    )
    _serve.add_arguments(serving)
    sharding = commands.add_parser("shard", help="cut an ONNX model for several ranks")
    _sharding.add_shard_arguments(sharding)
    if given and not given[0].startswith("-") and given[0] not in commands.choices:
        meant = _core._did_you_mean(given[0], list(commands.choices))
        parser.error(f"no command '{given[0]}'{meant}")
    options = parser.parse_args(given)
    if options.cmake_dir:
        print(cmake_dir())
        return 0
    if options.command == "check":
        return check(options)
    if options.command == "serve":
        return _serve.serve(options)
    if options.command == "shard":
        return _sharding.run_shard(options)
    from . import Error

    try:
        if options.tensorrt_prefix:
            print(tensorrt_prefix())
            return 0
        if options.command == "tensorrt":
            return tensorrt(options)
    except Error as error:
        print(f"python -m opwright: {error}", file=sys.stderr)
        return 1
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
