"""Opwright under the name `tensorrt`, for programs that import that.

``python -m opwright.trt script.py ...`` runs a program, ``python -m opwright.trt -m module ...`` a
module, as Python itself would, with ``import tensorrt`` answered by Opwright. `install()` does that
within a program. ``__version__`` is the level of the API.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import opwright as _opwright
from opwright._core import _TENSORRT_VERSION

globals().update({name: value for name, value in vars(_opwright).items() if name[:2] != "__"})

__version__ = ".".join(
    str(part)
    for part in (
        _TENSORRT_VERSION // 10000,
        _TENSORRT_VERSION // 100 % 100,
        _TENSORRT_VERSION % 100,
    )
)


def install() -> None:
    """From now on ``import tensorrt`` and ``import tensorrt.plugin`` give Opwright.

    :raises ImportError: where TensorRT itself is imported already.
    """
    module = sys.modules["opwright.trt"]
    if sys.modules.get("tensorrt", module) is not module:
        raise ImportError(
            "opwright.trt.install(): TensorRT is imported already; call it before anything imports "
            "tensorrt"
        )
    sys.modules["tensorrt"] = module
    sys.modules["tensorrt.plugin"] = _opwright.plugin


def _main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        usage = "usage: python -m opwright.trt (script.py | -m module) [arguments]"
        sys.exit(usage if not arguments else print(usage))
    install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit("python -m opwright.trt -m: expected the name of a module")
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    # This file is run under another name; the module is what programs are to get.
    from opwright.trt import _main as _run

    _run(sys.argv[1:])
