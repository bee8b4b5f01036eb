"""The package says its types: stubs of the native module, made by the build, with which mypy reads plugins."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opwright._core import _plugin

import opwright
from paths import ROOT

PACKAGE = Path(opwright.__file__).parent
STUBS = {opwright._core: "__init__.pyi", _plugin: "_plugin.pyi"}

# A plugin with all functions and hints.
TYPED = """
import enum
from typing import List, Optional, Tuple

import numpy as np
import numpy.typing as npt

import opwright as trt
import opwright.plugin as trtp
from opwright import aot, testing


class Mode(enum.Enum):
    ZERO = 0
    WRAP = 1


@trtp.register("example::widen")
def widen_desc(
    x: trtp.TensorDesc, pads: npt.NDArray[np.int32], mode: Mode = Mode.ZERO, axes: List[int] = [0]
) -> trtp.TensorDesc:
    out = x.like()
    out.shape_expr[-1] += 2
    out.shape_expr[0] = trtp.cdiv(out.shape_expr[0] * 3, 2) + 1
    return out


@trtp.autotune("example::widen")
def widen_autotune(
    x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    combination = trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [1, 2])
    other = trtp.AutoTuneCombination()
    other.pos([0, 1], "FP32")
    other.tactics([x.shape.opt[0], x.shape[0]])
    return [combination, other]


@trtp.impl("example::widen")
def widen(
    x: trtp.Tensor, pads: npt.NDArray[np.int32], outputs: Tuple[trtp.Tensor], stream: int, tactic: int
) -> None:
    y = np.asarray(outputs[0])
    y[:] = np.resize(np.asarray(x), (x.shape[0], sum(outputs[0].strides)))


@trtp.aot_impl("example::widen")
def widen_aot(
    x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    count = x.shape_expr.numel()
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(count) + 1, trtp.SymFloat32(0.5)])
    code = aot.cpp("", "widen", inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 4096)), extra


@trtp.register("example::join")
def join_desc(
    n: trtp.ShapeInput, b: Optional[trtp.TensorDesc] = None, *xs: trtp.TensorDesc, k: float = 1.0
) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    size = trtp.size_tensor(opt=n.expr() // 2, upper_bound=n.expr())
    size.dtype = trt.int64
    return trtp.from_shape_expr((size.expr(), *xs[0].shape_expr), xs[0].dtype), size


@trtp.impl("example::join")
def join(
    n: trtp.Tensor,
    b: Optional[trtp.Tensor],
    *xs: trtp.Tensor,
    k: float,
    outputs: Tuple[trtp.Tensor, trtp.Tensor],
    stream: int,
) -> None:
    np.asarray(outputs[0])[...] = k * sum(map(np.asarray, xs))


builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
network = builder.create_network()
a = network.add_input("a", trt.float32, (-1, 64))
layer = network.add_plugin(trtp.op.example.widen(a, pads=[1, 2]), aot=False)
network.mark_output(layer.get_output(0))
engine = trt.build(network, shapes={"a": ((1, 64), (32, 64), (256, 64))})
engine(np.zeros((32, 64), np.float32))
testing.check("example::widen", [np.ones((4, 64), np.float32)], pads=[1, 2])
"""

# The lines that end with "# wrong" are.
WRONG = """
from typing import List

import opwright.plugin as trtp


@trtp.register("example::wrong")
def wrong_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    x.shape_expr[0] = "n"  # wrong
    x.dtype = "FP32"  # wrong
    return x.lik()  # wrong


@trtp.autotune("example::wrong")
def wrong_autotune(
    x: trtp.TensorDesc, outputs: List[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(["FP32"])]  # wrong


@trtp.impl("example::wrong")
def wrong(x: trtp.Tensor, outputs: List[trtp.Tensor], stream: int) -> None:
    x.shape = (1, 2)  # wrong
    x.aliased(3)  # wrong
"""

# What calls of an engine return.
ENGINE = """
from typing import Any

import numpy as np
from typing_extensions import assert_type

import opwright


def f(engine: opwright.Engine, x: np.ndarray[Any, Any]) -> None:
    assert_type(engine(x), np.ndarray[Any, Any] | Any)
    assert_type(engine(x=x), np.ndarray[Any, Any] | Any)
    assert_type(engine({"x": x}), Any)
    assert_type(engine.submit(x).result(), np.ndarray[Any, Any] | Any)
    assert_type(engine.inputs["x"].shape, tuple[int, ...])
    assert_type(engine.inputs[0], str)
    with engine as e:
        assert_type(e, opwright.Engine)
"""
if importlib.util.find_spec("torch") is not None:
    ENGINE += """

import torch


def g(engine: opwright.Engine, t: torch.Tensor) -> None:
    assert_type(engine(t), torch.Tensor | Any)
"""


def readme_example() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return code


@pytest.fixture(scope="module")
def complaints(tmp_path_factory) -> dict[str, list[str]]:
    """What mypy says about each file in its strict mode: "line: message [code]"."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("types")
    files = {
        "typed.py": TYPED,
        "wrong.py": WRONG,
        "engine.py": ENGINE,
        "readme.py": readme_example(),
    }
    for name, code in files.items():
        (folder / name).write_text(code)
    # These plugins take nothing of PyTorch, whose modules are most of what mypy would read.
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    environment = dict(os.environ)
    if "site-packages" not in PACKAGE.parts:
        environment["MYPYPATH"] = str(PACKAGE.parent)
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--no-pretty"]
    options.append(f"--cache-dir={ROOT / '.mypy_cache'}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, list[str]] = {name: [] for name in files}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(":")
        found[name].append(rest)
    return found


@pytest.mark.parametrize("module", STUBS, ids=STUBS.get)
def test_stubs_have_every_public_name(module):
    assert (PACKAGE / "py.typed").is_file()
    tree = ast.parse((PACKAGE / "_core" / STUBS[module]).read_text())
    declared = {
        node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    declared |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    declared |= {n.targets[0].id for n in tree.body if isinstance(n, ast.Assign)}
    public = {name for name in vars(module) if not name.startswith("_")}
    assert public - declared == set()


def test_mypy_has_nothing_against_a_plugin_with_hints(complaints):
    assert complaints["typed.py"] == []


def test_mypy_knows_what_engines_return(complaints):
    assert complaints["engine.py"] == []


def test_mypy_finds_what_is_wrong(complaints):
    expected = {i for i, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(c.partition(":")[0]) for c in complaints["wrong.py"]} == expected


def test_mypy_misses_hints_alone_in_the_readme(complaints):
    # The strict mode wants hints in each function; the plugin's impl may go without.
    assert [c.rpartition("[")[2] for c in complaints["readme.py"]] == ["no-untyped-def]"]
