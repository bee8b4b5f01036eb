"""Timings of a plugin's functions do not count for other code."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
import paths
from opwright.plugin._fingerprint import fingerprint
from plugin_testing import build, new_id, one_plugin

X = np.arange(6, dtype=np.float32)

SOURCE = """
import enum

class Mode(enum.Enum):
    A = 1

SIZE = 4
TABLE = [1, 2]

def helper(x, power=2):
    return x**power

def make(factor):
    def run(x, outputs, stream, mode=Mode.A):
        '''Multiplies.'''
        scaled = [factor * helper(v) for v in x]
        return scaled, "text", SIZE, TABLE, {1, 2}, lambda: x in {"a", "b", "c"}
    return run

run = make(3)
"""


def of(source: str, file: str = "a.py") -> str:
    scope = {"__name__": "module"}
    exec(compile(source, file, "exec"), scope)
    return fingerprint(scope["run"])


@pytest.mark.parametrize(
    "old, new",
    [
        ("factor * helper", "factor + helper"),
        ('"text"', '"other"'),
        ("helper(v)", "abs(v)"),
        ("power=2", "power=3"),
        ("x**power", "x*power"),
        ("SIZE = 4", "SIZE = 5"),
        ("TABLE = [1, 2]", "TABLE = [1, 3]"),
        ("make(3)", "make(4)"),
        ("make(3)", "make(3.0)"),
        ("mode=Mode.A", "mode=None"),
        ('"a", "b"', '"a", "B"'),
        ("{1, 2}", "{1, 4}"),
    ],
)
def test_an_edit_changes_the_fingerprint(old, new):
    assert SOURCE.count(old) == 1
    assert of(SOURCE) != of(SOURCE.replace(old, new))


def test_where_the_code_lies_does_not_matter():
    assert of(SOURCE) == of("\n\n# moved\n" + SOURCE, "b.py")
    program = "from test_plugin_fingerprint import of, SOURCE\nprint(of(SOURCE), hash('a'))"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=paths.environment("plugins"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert {of(SOURCE)} == {output[0] for output in outputs}
    assert outputs[0][1] != outputs[1][1], "hashes of str differ between processes"


def test_what_is_no_function_of_python_has_one_too():
    class Kernel:
        """As Numba's and Triton's."""

        def __init__(self, function):
            self.py_func = function

        def __call__(self): ...

    def recursive(n):
        return loop, recursive(n - 1)

    loop: list = []
    loop.append(loop)
    assert fingerprint(recursive) == fingerprint(recursive)
    kernels = [Kernel(lambda x: x + 1), Kernel(lambda x: x + 2)]
    assert fingerprint(kernels[0]) != fingerprint(kernels[1])
    assert fingerprint(np.add) == fingerprint(np.subtract)


IMPL = """
def run(x, outputs, stream, tactic):
    calls.append(tactic)
    np.copyto(np.asarray(outputs[0]), np.asarray(x) + 0)
"""
AOT = """
SOURCE = "void f(const float* x, int32_t n, float* y, int64_t, int64_t, int64_t) {" \\
         " for (int i = 0; i < n; ++i) y[i] = x[i] + 0; }"

def run(x, outputs, tactic):
    calls.append(tactic)
    extra = trtp.SymIntExprs.from_tuple([x.shape_expr.numel()])
    code = aot.cpp(SOURCE, "f", inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(), extra
"""


@pytest.mark.parametrize("decorator, source", [(trtp.impl, IMPL), (trtp.aot_impl, AOT)])
def test_an_edit_makes_a_build_time_again(decorator, source, tmp_path):
    plugin_id = new_id("edited")
    cache = tmp_path / "timings"

    def define_and_build(text: str) -> tuple[int, int]:
        """How often the function was called, and the size of the cache then."""
        calls: list[int] = []

        @trtp.register(plugin_id)
        def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        trtp.autotune(plugin_id)(
            lambda x, outputs: [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]
        )
        scope = {"calls": calls, "np": np, "trtp": trtp, "aot": trt.aot, "__name__": "user"}
        exec(text, scope)
        decorator(plugin_id)(scope["run"])
        net, layer = one_plugin(plugin_id, X)
        build(net, layer.get_output(0), timing_cache=cache)
        return len(calls), cache.stat().st_size

    first = define_and_build(source)
    again = define_and_build(source)
    edited = define_and_build(source.replace("+ 0", "+ 0.0f" if "void" in source else "* 1"))
    assert first[0] > 0
    assert again[1] == first[1] and edited[1] > first[1]
    if decorator is trtp.impl:
        assert again[0] == 0 and edited[0] > 0
