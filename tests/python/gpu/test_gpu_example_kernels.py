"""The vendors' example kernels in engines: those that tests/python/aot/test_example_kernels.py has compiled
and saved in $OPWRIGHT_EXAMPLE_KERNELS."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from example_kernels import CASES

import opwright.plugin as trtp
from gpu_engines import TYPES, build, new_id, op_of, strongly_typed
from opwright import aot

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

KERNELS = os.environ.get("OPWRIGHT_EXAMPLE_KERNELS")
# What an engine does not have: an output that is zero before, an operator without inputs.
NOT_RUN = {"stream_compaction_kernel", "simple_kernel", "vote_kernel"}


@pytest.mark.nvidia
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES if not c.refused])
def test_an_engine_with_the_kernel(case):
    file = Path(KERNELS or "") / f"{case.name}.kernel"
    if not KERNELS or not file.is_file():
        pytest.skip("set OPWRIGHT_EXAMPLE_KERNELS to a folder with saved kernels")
    if case.kernel in NOT_RUN:
        pytest.skip("it adds to an output, or has no input")
    fed, outputs = case.arrays()
    plugin_id = new_id("example")

    names = ", ".join(f"x{i}: trtp.TensorDesc" for i in range(len(fed)))
    results = ", ".join("trtp.TensorDesc" for _ in outputs)

    def describe(*inputs):
        return tuple(
            inputs[case.in_place[i]].aliased()
            if i in case.in_place
            else trtp.from_shape_expr(trtp.ShapeExprs.from_tuple(o.shape), dtype=TYPES[o.dtype])
            for i, o in enumerate(outputs)
        )

    given = ", ".join(f"x{i}" for i in range(len(fed)))
    scope = {"trtp": trtp, "describe": describe}
    exec(f"def desc({names}) -> tuple[{results}]:\n    return describe({given})\n", scope)
    trtp.register(plugin_id)(scope["desc"])

    def kernel(*inputs, results):
        tensors = case.tensors()
        for output, number in case.in_place.items():
            tensors["inputs"][number] = inputs[number]
            tensors["outputs"][output] = results[output]
        code = aot.load(file, **tensors)
        launch = code.launch(**dict(zip(("grid_x", "grid_y", "grid_z"), case.grid)))
        return code.name, code, launch, tensors["extra"]

    scope = {"kernel": kernel}
    exec(
        f"def impl({given}, outputs, tactic):\n    return kernel({given}, results=outputs)\n", scope
    )
    trtp.aot_impl(plugin_id, device="cuda")(scope["impl"])
    net = strongly_typed()
    tensors = [net.add_input(f"x{i}", TYPES[a.dtype], a.shape) for i, a in enumerate(fed)]
    layer = net.add_plugin(op_of(plugin_id)(*tensors))
    engine = build(net, *(layer.get_output(i) for i in range(len(outputs))))
    made = engine(*fed)
    made = list(made.values()) if isinstance(made, dict) else made
    made = [made] if isinstance(made, np.ndarray) else list(made)
    for y, expected in zip(made, outputs):
        scale = max(float(np.abs(expected.astype(np.float64)).max()), 1.0)
        np.testing.assert_allclose(
            y.astype(np.float64), expected, rtol=0, atol=case.tolerance * scale
        )
