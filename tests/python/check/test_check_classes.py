"""opwright.testing and python -m opwright check with plugin classes: each broken one is found by its
check, and by no other."""

from __future__ import annotations

import contextlib
import ctypes
import re
import time

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
import v2_plugins
from opwright import aot, testing
from quick_layer import LINEAR, define
from v3_plugins import Creator, Twice, as_array

X = np.random.default_rng(0).standard_normal((4, 5), np.float32)
FLOAT = trt.float32


class Scale(Twice):
    """y = k x, with k as its field."""

    plugin_name = "Scale"

    def __init__(self, k=2.0):
        self.k = k

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([trt.PluginField("k", np.array([self.k], np.float32))])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        self.compute(x, y)

    def compute(self, x, y):
        np.multiply(x, np.asarray(self.k, x.dtype), out=y)


class ScaleCreator(Creator):
    def __init__(self, plugin_class):
        super().__init__(plugin_class.plugin_name, plugin_class)
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("k", np.array([]), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, field_collection, phase):
        fields = {field.name: field.data for field in field_collection}
        return self.make(float(fields["k"][0])) if "k" in fields else self.make()


@contextlib.contextmanager
def registered(creator):
    registry = trt.get_plugin_registry()
    assert registry.register_creator(creator, "")
    try:
        yield creator
    finally:
        registry.deregister_creator(creator)


def check(creator, *inputs, **options) -> testing.Report:
    """The table, whether a check failed or not."""
    with registered(creator):
        try:
            return testing.check(creator, list(inputs) or [X], **options)
        except testing.CheckError as error:
            return error.report


def failures(plugin_class, *inputs, **options) -> list[testing.Row]:
    report = check(ScaleCreator(plugin_class), *inputs, **options)
    return [row for row in report.rows if row.result == "FAIL"]


def results(report: testing.Report) -> dict[str, str]:
    return {row.check: row.result for row in report.rows}


def floats(address: int, first: int, count: int) -> np.ndarray:
    """FP32 elements counted from an address, wherever they are."""
    memory = (ctypes.c_float * count).from_address(address + 4 * first)
    return np.frombuffer(memory, np.float32)


# Correct plugins -------------------------------------------------------------------------------


def test_a_correct_class_passes_every_check():
    report = check(ScaleCreator(Scale), k=3.0)
    assert report.ok and set(results(report).values()) == {"ok"}
    detail = next(row.detail for row in report.rows if row.check == "combinations")
    assert detail == "3: FLOAT, FLOAT | HALF, HALF | BF16, BF16"


class Row(Scale):
    """y = x - mean of each row, with the means in the workspace, as two tactics."""

    plugin_name = "Row"

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == LINEAR and desc.type == FLOAT

    def get_valid_tactics(self):
        return [3, 5]

    def get_workspace_size(self, inputs, outputs):
        return 4 * inputs[0].max[0]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        means = floats(workspace, 0, len(x))
        means[:] = x.mean(1) if self.tactic == 3 else x.sum(1) / x.shape[1]
        np.subtract(x, means[:, None], out=y)


def test_workspace_and_tactics():
    report = check(ScaleCreator(Row))
    assert report.ok and set(results(report).values()) == {"ok"}
    detail = next(row.detail for row in report.rows if row.check == "combinations")
    assert detail == "2: FLOAT, FLOAT, tactic 3 | FLOAT, FLOAT, tactic 5"


class Positives(Scale, trt.IPluginV3OneBuildV2):
    """The positive elements, their number, and the second input with 1 added in place."""

    plugin_name = "Positives"
    num_outputs = 3

    def get_output_data_types(self, input_types):
        return [input_types[0], trt.int32, input_types[1]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        most = inputs[0][0]
        count = expr_builder.declare_size_tensor(1, most, most)
        return [trt.DimsExprs([count]), trt.DimsExprs(0), inputs[1]]

    def get_aliased_input(self, output_index):
        return 1 if output_index == 2 else -1

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == LINEAR and desc.type == (trt.int32 if pos == 3 else FLOAT)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        found = x[x > 0]
        as_array(outputs[0], output_desc[0])[: len(found)] = found
        as_array(outputs[1], output_desc[1])[()] = len(found)
        as_array(outputs[2], output_desc[2])[...] += 1


def test_sizes_that_depend_on_data_and_outputs_in_place():
    x = X.reshape(-1)
    for values in (x, np.abs(x) + 1, -np.abs(x), x[:0]):
        assert check(ScaleCreator(Positives), values, X).failed == []


class Repeat(Scale):
    """As many copies as a shape input says."""

    plugin_name = "Repeat"

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        dims = trt.DimsExprs(inputs[0])
        times = shape_inputs[0][0]
        dims[0] = expr_builder.operation(trt.DimensionOperation.PROD, dims[0], times)
        return [dims]

    def compute(self, x, y):
        y[...] = np.tile(x, (len(y) // len(x), 1))


def test_shape_inputs():
    assert failures(Repeat, X, shape_inputs=[np.int32(3)]) == []


def test_what_is_not_a_number_and_signs_of_zero_are_compared_by_their_bits():
    class Sign(Scale):
        def compute(self, x, y):
            with np.errstate(invalid="ignore"):
                np.sqrt(x, out=y)

    assert failures(Sign, np.array([-0.0, -1, np.nan, np.inf, 4], np.float32)) == []


def test_inputs_without_elements_and_without_axes():
    for x in (np.zeros((0, 5), np.float32), np.zeros((3, 0), np.float32), np.float32(2)):
        assert failures(Scale, x) == []


@pytest.mark.parametrize(
    "inputs, attributes, says",
    [
        ([X], {"q": 1}, "the plugin has no field 'q'; its field_names are: k"),
        ([X], {"k": "two"}, "attribute 'k' cannot be 'two'"),
        ([None], {}, "a class has no inputs that may be absent"),
        ([X.astype(np.complex64)], {}, "no tensor of a network has the type complex64"),
    ],
)
def test_an_example_that_does_not_fit(inputs, attributes, says):
    (row,) = failures(Scale, *inputs, **attributes)
    assert row.check == "example" and says in row.detail


def test_a_creator_that_refuses():
    creator = ScaleCreator(Scale)
    creator.make = lambda *given: None
    (row,) = check(creator, k=2.0).failures
    assert row.check == "example" and "create_plugin refused the fields that came: k" in row.detail
    assert "(ScaleCreator.create_plugin)" in row.where


def test_names_and_versions():
    with registered(ScaleCreator(Scale)), pytest.raises(ValueError, match="no plugin 'Skale' is"):
        testing.check("Skale", [X])
    second = ScaleCreator(Scale)
    second.plugin_version = "2"
    with registered(ScaleCreator(Scale)), registered(second):
        with pytest.raises(ValueError, match="can be Scale version 1, Scale version 2; pass the"):
            testing.check("Scale", [X])


# Broken plugins --------------------------------------------------------------------------------


class RaisesForHalf(Scale):
    def compute(self, x, y):
        if x.dtype == np.float16:
            raise ArithmeticError("no luck")
        super().compute(x, y)


class WritesBehind(Scale):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        ctypes.memset(outputs[0] + 20 * np.dtype(trt.nptype(input_desc[0].type)).itemsize, 1, 4)


class WritesBehindTheWorkspace(Row):
    def get_workspace_size(self, inputs, outputs):
        return super().get_workspace_size(inputs, outputs) - 4


class WritesToItsInput(Scale):
    def compute(self, x, y):
        super().compute(x, y)
        x[1, 2] = 0


class ForgetsARow(Scale):
    def compute(self, x, y):
        super().compute(x[:-1], y[:-1])


class Accumulates(Scale):
    def compute(self, x, y):
        y += x


class ReadsTheWorkspace(Row):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.subtract(x, floats(workspace, 0, len(x))[:, None], out=y)


class IsRandom(Scale):
    def compute(self, x, y):
        y[...] = np.random.default_rng().random(x.shape)


class DiffersByTactic(Row):
    def set_tactic(self, tactic):
        self.tactic = 3
        self.k = tactic

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.multiply(x, self.k, out=y)

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])


class CloneForgets(Scale):
    def clone(self):
        return type(self)()


class CloneLosesState(Scale):
    """What is lost is derived from the field and not stored."""

    def __init__(self, k=2.0):
        super().__init__(k)
        self.table = np.float32(k)

    def clone(self):
        copied = super().clone()
        copied.table = np.float32(0)
        return copied

    def compute(self, x, y):
        np.multiply(x, np.asarray(self.table, x.dtype), out=y)


class CloneIsIncomplete(Scale):
    def clone(self):
        return type(self).__new__(type(self))


class CloneIsItself(Scale):
    def clone(self):
        return self


class CountsInAField(Scale):
    def compute(self, x, y):
        super().compute(x, y)
        self.k += 0.0 if self.k > 1e6 else 1e-3


class StoresSomethingElse(Scale):
    def get_fields_to_serialize(self):
        field = trt.PluginField("k", np.array([1.0], np.float32))
        return trt.PluginFieldCollection([field])


class ForgetsShapes(Scale):
    def on_shape_change(self, inputs, outputs):
        self.__dict__.setdefault("rows", inputs[0].dims[0])

    def compute(self, x, y):
        np.multiply(x, self.k if len(x) == self.rows else 5, out=y)


class LongerIfDynamic(Scale):
    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        dims = trt.DimsExprs(inputs[0])
        if not dims[0].is_constant():
            one = expr_builder.constant(1)
            dims[0] = expr_builder.operation(trt.DimensionOperation.SUM, dims[0], one)
        return [dims]

    def compute(self, x, y):
        y[...] = 0
        y[: len(x)] = x


class SharesMemory(Scale):
    scratch = np.zeros(64, np.float32)

    def compute(self, x, y):
        self.scratch[: x.size] = x.reshape(-1)
        time.sleep(0.001)
        y[...] = self.scratch[: x.size].reshape(x.shape)


@pytest.mark.parametrize(
    "check_name, plugin_class, method, says",
    [
        ("runs", RaisesForHalf, "compute", "HALF, HALF.*ArithmeticError: no luck"),
        ("bounds", WritesBehind, "enqueue", "output 0: 4 bytes behind its end, from byte 80 of 80"),
        ("bounds", WritesBehindTheWorkspace, "enqueue", "the workspace: 4 bytes behind its end"),
        ("inputs", WritesToItsInput, "enqueue", "it changed input 0; write to the outputs only"),
        ("determinism", IsRandom, "enqueue", "run again, output 0 differs in 20 of 20 elements"),
        ("written", ForgetsARow, "enqueue", r"by get_output_shapes, is not written in 5 of 20"),
        ("uninitialized", Accumulates, "enqueue", "output 0 depends on what its memory held"),
        ("uninitialized", ReadsTheWorkspace, "enqueue", "depend on what the workspace held"),
        ("combinations", DiffersByTactic, "enqueue", "tactic 5 against FLOAT, FLOAT, tactic 3"),
        ("clone", CloneForgets, "clone", "of a clone, compared with the plugin itself, field 'k'"),
        ("clone", CloneLosesState, "clone", "of a clone, compared with the plugin itself, output"),
        ("clone", CloneIsIncomplete, "clone", "the plugin runs, but its clone does not: Attribute"),
        ("clone", CloneIsItself, "clone", "clone returned the plugin itself"),
        ("fields", CountsInAField, "enqueue", "field 'k' to be stored is not what it was after"),
        ("reload", StoresSomethingElse, "get_fields_to_serialize", "output 0 differs in 20 of 20"),
        ("profile", ForgetsShapes, "enqueue", r"at \[1, 5\], against an engine of this shape"),
        ("shapes", LongerIfDynamic, "get_output_shapes", r"says \[5, 5\] for output 0, but \[4,"),
        ("threads", SharesMemory, "enqueue", "two contexts in two threads.*differs"),
    ],
)
def test_a_broken_class(check_name, plugin_class, method, says):
    (row,) = failures(plugin_class, k=3.0)
    assert row.check == check_name
    assert re.search(says, row.detail), row.detail
    assert re.search(rf"test_check_classes.py:\d+ \((\w+\.)?{method}\)$", row.where), row.where


# The other families ----------------------------------------------------------------------------


class ScaleV2(v2_plugins.Twice):
    """y = k x, with k as what is stored."""

    def __init__(self, k=2.0):
        super().__init__()
        self.k = k

    def serialize(self):
        return np.float32(self.k).tobytes()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.multiply(x, np.asarray(self.k, x.dtype), out=y)


class ForgetsARowV2(ScaleV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        y[:-1] = x[:-1]


class StoresSomethingElseV2(ScaleV2):
    def serialize(self):
        return np.float32(1.0).tobytes()


class CloneForgetsV2(ScaleV2):
    def clone(self):
        return type(self)()


class ScaleCreatorV2(v2_plugins.Creator):
    def __init__(self, plugin_class):
        super().__init__(plugin_class.__name__, plugin_class)
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("k", np.array([]), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, field_collection):
        return self.make(*(float(field.data[0]) for field in field_collection))

    def deserialize_plugin(self, name, data):
        return self.make(float(np.frombuffer(data, np.float32)[0]))


@pytest.mark.parametrize(
    "plugin_class, failed",
    [
        (ScaleV2, []),
        (ForgetsARowV2, ["written"]),
        (StoresSomethingElseV2, ["reload"]),
        (CloneForgetsV2, ["clone"]),
    ],
)
def test_plugins_of_v2(plugin_class, failed):
    assert check(ScaleCreatorV2(plugin_class), k=3.0).failed == failed


def quick(name, **parts):
    """A plugin of the Quick family, y = k x, that is called; `compile` makes a kernel of it too."""

    def shapes(expr_builder, inputs, k: float):
        return [inputs[0]]

    plugin = define(name)(shapes)
    plugin.run = lambda x, y, tactic, k: np.multiply(x, np.asarray(k, x.dtype), out=y)
    plugin.__dict__.update(parts)
    return plugin.creator


def kernel_of(factor):
    def compile_rows(e, extents, in_out, tactic, k):
        source = (
            "void rows(const float* x, int32_t n, float* y, int64_t r, int64_t, int64_t) {"
            f"for (int32_t i = 0; i < n; ++i) y[r * n + i] = {factor * k}f * x[r * n + i]; }}"
        )
        extra = [trtp.SymInt32(0)]
        code = aot.cpp(source, "rows", inputs=[FLOAT], outputs=[FLOAT], extra=extra)
        return code, [extents[0][0]], [extents[0][1]]

    return compile_rows


def test_plugins_of_the_quick_family():
    hwc = trt.TensorFormat.HWC
    both = [[(FLOAT, LINEAR), (FLOAT, LINEAR)], [(FLOAT, hwc), (FLOAT, LINEAR)]]
    creator = quick("checked0", combinations=both, tactics=lambda dtype: [4, 2])
    report = testing.check(creator, [np.ones((2, 3, 4, 5), np.float32)], k=2.5)
    assert {c for c, r in results(report).items() if r != "ok"} == {"aot"}
    detail = next(row.detail for row in report.rows if row.check == "combinations")
    assert detail.startswith("4: FLOAT, FLOAT, tactic 4 | ")


def test_a_kernel_of_the_quick_family_is_compared_with_what_is_called():
    report = testing.check(quick("checked1", compile=kernel_of(1)), [X], k=2.5)
    assert results(report)["aot"] == "ok"
    with pytest.raises(testing.CheckError) as raised:
        testing.check(quick("checked2", compile=kernel_of(2)), [X], k=2.5)
    assert raised.value.report.failed == ["aot"]
    (row,) = raised.value.report.failures
    assert "differs in 20 of 20 elements" in row.detail and "AotPlugin.get_kernel" in row.where


def test_a_kernel_of_the_quick_family_alone():
    report = testing.check(quick("checked3", run=None, compile=kernel_of(1)), [X], k=2.5)
    assert {c for c, r in results(report).items() if r != "ok"} == {
        "aot", "clone", "combinations", "fields",
    }  # fmt: skip


# C++ libraries ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(plugin_dir):
    """The library stays as long as anything may refer to it."""
    path = plugin_dir / "checked_plugin.so"
    trt.get_plugin_registry().load_library(path)
    return path


@pytest.mark.parametrize(
    "name, check_name, method, says",
    [
        ("good", None, None, None),
        ("forgets", "clone", "clone", "of a clone, compared with the plugin itself"),
        ("behind", "bounds", "enqueue", "output 0: 4 bytes behind its end"),
        ("shares", "threads", "enqueue", "two contexts in two threads"),
        ("stores", "reload", "get_fields_to_serialize", "output 0 differs in 20 of 20 elements"),
    ],
)
def test_plugins_of_a_library(library, name, check_name, method, says):
    try:
        report = testing.check(f"checked::{name}", [X], k=3.0)
        assert check_name is None and "FLOAT, FLOAT" in str(report)
    except testing.CheckError as error:
        (row,) = error.report.failures
        assert row.check == check_name and says in row.detail
        assert row.where == f"a C++ library ({method} of checked::{name})"


def test_a_library_in_a_file(library, tmp_path):
    with pytest.raises(testing.NothingToCheckError, match="registers no plugin"):
        testing.check_file(library)  # it is loaded already
