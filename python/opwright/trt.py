"""Opwright under the name `tensorrt`, for programs that import `tensorrt`.

::

    python -m opwright.trt [options] script.py [arguments]
    python -m opwright.trt [options] -m module [arguments]
    python -m opwright.trt [options] program [arguments]

runs a script or a module as Python itself would, or a program such as ``polygraphy``, with ``import
tensorrt`` and its distribution's metadata answered by Opwright, in that process and in all
processes that it starts. `install()` does the same within a program. ``__version__`` is the level
of the API.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys

import opwright as _opwright
from opwright._tensorrt.names import VARIABLE, chosen_version, default_version
from opwright._tensorrt.package import private_folder

globals().update({name: value for name, value in vars(_opwright).items() if name[:2] != "__"})

__version__ = default_version()

_USAGE = """\
usage: python -m opwright.trt [options] (script.py | -m module | -c code | program) [arguments]

Runs a program whose `import tensorrt` Opwright answers, also in the processes that it starts.

  --api VERSION  the version that tensorrt.__version__ and the package's metadata say: 10 or 11 and up
                 to three more numbers, such as 10.13. Default: $OPWRIGHT_TENSORRT_VERSION, or {}
  --allow-device-code  engines that other processes built may run their code for a GPU; for programs that
                 load only files that you trust. The same as OPWRIGHT_ALLOW_DEVICE_CODE=1
  --allow-host-code  the same for code that runs on the host, too; OPWRIGHT_ALLOW_HOST_CODE=1
  --allow-links  models may have external data behind links out of their folders; OPWRIGHT_ALLOW_LINKS=1"""

#: Environment variables that permit code and links, by option.
_PERMISSIONS = {
    "--allow-device-code": "OPWRIGHT_ALLOW_DEVICE_CODE",
    "--allow-host-code": "OPWRIGHT_ALLOW_HOST_CODE",
    "--allow-links": "OPWRIGHT_ALLOW_LINKS",
}


def install(version: str | None = None) -> None:
    """Makes ``import tensorrt`` and ``import tensorrt.plugin`` give Opwright in this process.

    Processes of `multiprocessing` find it, too; others that the program starts do not.

    :param version: the version in ``tensorrt.__version__`` and the metadata of its distribution,
        such as ``"10.13"``. Default: the environment's ``OPWRIGHT_TENSORRT_VERSION``, or the level
        of the API.
    :raises ImportError: if TensorRT itself, or Opwright with another version, is already imported.
    :raises opwright.Error: the version is not one of TensorRT 10 or 11.
    """
    chosen = chosen_version(version)
    imported = sys.modules.get("tensorrt")
    if imported is not None:
        if getattr(imported, "plugin", None) is not _opwright.plugin:
            what = "TensorRT is"
        elif version is not None and imported.__version__ != chosen:
            what = f"tensorrt {imported.__version__} is"
        else:
            return
        raise ImportError(
            f"opwright.trt.install(): {what} imported already; call it before anything imports tensorrt"
        )
    sys.path.insert(0, str(private_folder(chosen)))
    importlib.import_module("tensorrt")


def _environment(version: str) -> dict[str, str]:
    """The environment of a process that finds Opwright as that version of `tensorrt`."""
    folder = str(private_folder(version))
    before = os.environ.get("PYTHONPATH", "")
    others = [path for path in before.split(os.pathsep) if before and path != folder]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([folder, *others]),
        VARIABLE: version,
    }


def _interpreter() -> list[str]:
    """This interpreter with its options."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    del options[-1 if options[-1].startswith("-m") else -2 :]
    return [sys.executable, *options]


def _main(arguments: list[str]) -> None:
    version = None
    permissions = {}
    while arguments and arguments[0].startswith("--"):
        option, _, value = arguments.pop(0).partition("=")
        if option == "--help":
            arguments = ["-h"]
        elif option == "--api" and (value or arguments):
            version = value or arguments.pop(0)
        elif option in _PERMISSIONS and not value:
            permissions[_PERMISSIONS[option]] = "1"
        else:
            sys.exit(f"python -m opwright.trt: {option}\n{_USAGE.format(default_version())}")
    if not arguments or arguments[0] == "-h":
        usage = _USAGE.format(default_version())
        sys.exit(usage if not arguments else print(usage))
    if arguments[0] in ("-m", "-c") and len(arguments) < 2:
        what = "name of a module" if arguments[0] == "-m" else "code"
        sys.exit(f"python -m opwright.trt {arguments[0]}: expected the {what}")
    if sys.flags.ignore_environment:
        sys.exit(
            "python -m opwright.trt: programs find tensorrt by PYTHONPATH; leave -E and -I out"
        )
    try:
        environment = _environment(chosen_version(version)) | permissions
    except _opwright.Error as error:
        sys.exit(f"python -m opwright.trt: {error}")
    program = None
    if arguments[0][0] != "-" and not os.path.exists(arguments[0]):
        program = shutil.which(arguments[0])
    # The program replaces this process, so signals, the exit status and __main__ are its own.
    if program:
        os.execve(program, arguments, environment)
    os.execve(sys.executable, [*_interpreter(), *arguments], environment)


if __name__ == "__main__":
    # This file runs as __main__, but programs must get the module opwright.trt.
    from opwright.trt import _main as _run

    _run(sys.argv[1:])
