"""opwright.testing with optional tensors, a variable number of them, shape inputs, keyword-only attributes."""

from __future__ import annotations

import ctypes
import textwrap

import numpy as np

import opwright.plugin as trtp
from opwright import testing
from plugin_testing import new_id

X = np.random.default_rng(0).standard_normal((4, 5), np.float32)
Y = np.random.default_rng(1).standard_normal((4, 5), np.float32)


def weighted_sum(impl) -> str:
    """Registers y = k (x + bias) + the sum of more, computed by `impl`."""
    plugin_id = new_id("checked")

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc,
        bias: trtp.TensorDesc | None = None,
        *more: trtp.TensorDesc,
        k: float,
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, bias, *more, outputs):
        return [trtp.AutoTuneCombination(", ".join(["FP32|FP16"] * (3 + len(more))))]

    trtp.impl(plugin_id)(impl)
    return plugin_id


def correct(x, bias, *more, k, outputs, stream):
    y = np.asarray(outputs[0])
    bias = np.zeros(1, y.dtype) if bias is None else np.asarray(bias)
    np.multiply(np.asarray(x) + bias, np.asarray(k, y.dtype), out=y)
    for each in more:
        y += np.asarray(each)


def failures(plugin_id: str, inputs, **attributes) -> list[testing.Row]:
    try:
        testing.check(plugin_id, inputs, **attributes)
    except testing.CheckError as error:
        return list(error.report.failures)
    return []


def test_tensors_that_are_there_or_not_and_any_number_of_them():
    plugin_id = weighted_sum(correct)
    for inputs in [X], [X, None], [X, Y], [X, None, Y, X], [X, Y, X, Y, X]:
        assert failures(plugin_id, inputs, k=2.0) == []


def test_a_fault_with_some_of_them_is_found_with_these():
    def is_random(x, bias, *more, k, outputs, stream):
        correct(x, bias, *more, k=k, outputs=outputs, stream=stream)
        if bias is not None and len(more) == 1:
            np.asarray(outputs[0])[0, 0] = np.random.default_rng().random()

    plugin_id = weighted_sum(is_random)
    for inputs in [X], [X, Y], [X, None, Y], [X, Y, X, Y]:
        assert failures(plugin_id, inputs, k=2.0) == []
    found = failures(plugin_id, [X, Y, X], k=2.0)
    assert {row.check for row in found} == {"determinism"}


def test_a_changed_input_has_its_name():
    def changes(x, bias, *more, k, outputs, stream):
        correct(x, bias, *more, k=k, outputs=outputs, stream=stream)
        ctypes.memset(more[1].data_ptr, 0, 4)

    (first, *_) = failures(weighted_sum(changes), [X, None, Y, X], k=2.0)
    assert first.check == "inputs" and "it changed more[1];" in first.detail


def test_examples_that_do_not_fit():
    plugin_id = weighted_sum(correct)
    for inputs, says in [
        ([None, X], "the plugin takes x, bias, *more"),
        ([X, Y, None], "the plugin takes x, bias, *more"),
        ([], "the plugin takes x, bias, *more"),
    ]:
        (row,) = failures(plugin_id, inputs, k=2.0)
        assert row.check == "example" and says in row.detail


def test_values_that_decide_shapes():
    plugin_id = new_id("checked")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, rows: trtp.ShapeInput) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] = rows.expr()
        return out

    @trtp.impl(plugin_id)
    def run(x, rows, outputs, stream):
        y = np.asarray(outputs[0])
        assert len(y) == np.asarray(rows)
        np.copyto(y, np.resize(np.asarray(x), y.shape))

    assert failures(plugin_id, [X, np.array(7, np.int64)]) == []


FILE = """
    from typing import Optional

    import numpy as np
    import opwright.plugin as trtp
    from opwright import testing

    @trtp.register("tensors::add")
    def desc(
        x: trtp.TensorDesc, y: Optional[trtp.TensorDesc] = None, *more: trtp.TensorDesc
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("tensors::add")
    def add(x, y, *more, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x))
        for each in ([] if y is None else [y, *more]):
            np.asarray(outputs[0])[...] += np.asarray(each)

    @trtp.register("tensors::raises")
    def raises_desc(x: trtp.TensorDesc, y: Optional[trtp.TensorDesc] = None) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("tensors::raises")
    def raises(x, y, outputs, stream):
        assert y is None, "no y"
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    @trtp.register("tensors::repeat")
    def repeat_desc(x: trtp.TensorDesc, rows: trtp.ShapeInput) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] = rows.expr()
        return out

    @trtp.impl("tensors::repeat")
    def repeat(x, rows, outputs, stream):
        y = np.asarray(outputs[0])
        y[...] = np.resize(np.asarray(x), y.shape) if len(y) != 4 else 0

    for rows in 2, 4:
        testing.example("tensors::repeat", [np.ones((3, 5), np.float32), np.array(rows)])
"""


def test_examples_that_are_made_have_them_and_have_them_not(tmp_path):
    file = tmp_path / "tensors.py"
    file.write_text(textwrap.dedent(FILE))
    add, raises, repeat = testing.check_file(file)
    assert add.ok and add.rows[0].detail.startswith("made here, 1 or 4 inputs, FP32 [5], [4, 5]")
    assert raises.ok and "refused with 2 inputs: AssertionError: no y" in raises.rows[0].detail
    # One engine for both examples: what an impl makes of other values is compared with theirs.
    assert repeat.ok and next(row for row in repeat.rows if row.check == "profile").result == "ok"
