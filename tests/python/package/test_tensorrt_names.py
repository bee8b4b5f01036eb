"""The names of TensorRT 11.4: those of NVIDIA's binding, and what those answer that stand for what is not here."""

import enum
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opwright as trt
from paths import ROOT

LOGGER = trt.Logger(trt.Logger.ERROR)

DUMP = """
import importlib.machinery, importlib.util, json, sys
loader = importlib.machinery.ExtensionFileLoader("tensorrt", sys.argv[1])
spec = importlib.util.spec_from_file_location("tensorrt", sys.argv[1], loader=loader)
module = importlib.util.module_from_spec(spec)
loader.exec_module(module)
members = {n: dir(v) if isinstance(v, type) else None for n, v in vars(module).items()}
values = {n: {k: int(e) for k, e in vars(module)[n].__members__.items()}
          for n, m in members.items() if m and "__members__" in m}
print(json.dumps([members, values]))
"""
#: How objects are copied, shown and compared: Python's own business, or pybind11's.
PROTOCOL = {
    "__contains__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__setitem__",
}


@pytest.fixture(scope="module")
def binding() -> tuple[dict, dict]:
    """The members of the classes of NVIDIA's compiled binding, which is loaded over our libraries of TensorRT's
    names, and the values of its enumerations."""
    installed = importlib.util.find_spec("tensorrt_bindings")
    folders = [ROOT / "build" / "tensorrt-bindings" / "tensorrt_bindings"]
    if installed is not None and installed.origin:
        folders.append(Path(installed.origin).parent)
    library = next((f / "tensorrt.so" for f in folders if (f / "tensorrt.so").exists()), None)
    if library is None:
        pytest.skip("no tensorrt-cu13-bindings: make setup, with PyPI in reach")
    ours = Path(trt.__file__).parent / "tensorrt" / "lib"
    done = subprocess.run(
        [sys.executable, "-c", DUMP, library],
        env=os.environ | {"LD_LIBRARY_PATH": str(ours)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_each_class_has_the_members_of_the_binding(binding):
    missing = []
    for name, members in binding[0].items():
        if name.startswith("_"):
            continue
        if not hasattr(trt, name):
            missing.append(name)
            continue
        ours = getattr(trt, name)
        known = set(dir(ours))
        if isinstance(ours, type) and issubclass(ours, enum.Enum):
            known |= {"name", "value"}  # which members have
        for member in members or ():
            if member not in known and (member[0] != "_" or member in PROTOCOL):
                missing.append(f"{name}.{member}")
    assert missing == []


#: Those of TensorRT 10, which had more members.
OLDER_VALUES = {"BuilderFlag", "NetworkDefinitionCreationFlag", "TacticSource"}


def test_each_enumeration_has_the_values_of_the_binding(binding):
    for name, values in binding[1].items():
        if name in OLDER_VALUES:
            continue
        ours = getattr(trt, name)
        assert {each: getattr(ours, each).value for each in values} == values, name


@pytest.fixture
def network():
    return trt.Builder(LOGGER).create_network()


def test_classes_that_no_layer_has(network):
    layer = network.add_identity(network.add_input("x", trt.float32, (2,)))
    assert not isinstance(layer, trt.IAttentionInputLayer)


def test_a_reduction_to_nothing_cannot_be_built(network):
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_reduce(x, trt.ReduceOperation.NONE, 1, False)
    with pytest.raises(trt.Error, match="op"):
        print(layer.get_output(0).shape)


def test_a_config_has_no_options_of_a_compiler():
    config = trt.Builder(LOGGER).create_builder_config()
    assert json.loads(config.all_build_routes)["tuner_options"] == []
    config.build_route = ""
    with pytest.raises(trt.Error, match="expected an empty text"):
        config.build_route = "-conv_use_long_w=off"
    assert config.build_route == "" and config.remote_auto_tuning_config is None
    with pytest.raises(trt.Error, match="engines for safety"):
        config.remote_auto_tuning_config = "ssh://there"


def test_what_is_kept_without_effect():
    builder, runtime = trt.Builder(LOGGER), trt.Runtime(LOGGER)
    profile = builder.create_optimization_profile()
    assert profile.profile_stream == 0
    profile.profile_stream = 7
    assert profile.profile_stream == 7
    strategy = trt.DLAWorkspaceAllocationStrategy
    assert runtime.dla_workspace_allocation_strategy == strategy.DEFAULT
    runtime.dla_workspace_allocation_strategy = strategy.SHARED_STATIC
    assert runtime.dla_workspace_allocation_strategy == strategy.SHARED_STATIC


def test_a_refitter_has_nothing_to_release():
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2,))
    weights = network.add_constant((2,), np.float32([1, 2]))
    added = network.add_elementwise(x, weights.get_output(0), trt.ElementWiseOperation.SUM)
    network.mark_output(added.get_output(0))
    config = builder.create_builder_config()
    config.timing = False
    config.default_device_type = trt.DeviceType.CPU
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, LOGGER)
    assert refitter.release_refit_resources() is True
    assert refitter.set_named_weights(refitter.get_all_weights()[0], np.float32([3, 4]))
    assert refitter.release_refit_resources() and refitter.refit_cuda_engine()
    given, result = np.float32([1, 1]), np.zeros(2, np.float32)
    engine.create_execution_context().execute_v2([given.ctypes.data, result.ctypes.data])
    np.testing.assert_array_equal(result, [4, 5])


@pytest.mark.parametrize("base", [trt.IProfiler, trt.IDebugListener])
def test_a_listener_has_to_define_its_method(base):
    class Own(base):
        pass

    arguments = {trt.IProfiler: ("layer", 1.0)}.get(base, (0, None, None, None, "x", 0))
    method = {trt.IProfiler: "report_layer_time"}.get(base, "process_debug_tensor")
    with pytest.raises(NotImplementedError, match=f"class Own must define {method}"):
        getattr(Own(), method)(*arguments)


def test_alpha_and_beta_of_integers(network):
    fill = network.add_fill((3,), trt.FillOperation.LINSPACE, trt.int64)
    assert fill.is_alpha_beta_int64()
    fill.to_type = trt.float32
    assert not fill.is_alpha_beta_int64()


def test_a_field_collection_is_a_sequence_that_changes():
    fields = trt.PluginFieldCollection(
        [trt.PluginField(name, np.int32([i])) for i, name in enumerate("abc")]
    )
    names = lambda: [field.name for field in fields]  # noqa: E731
    fields.insert(-1, trt.PluginField("x", np.int32([9])))
    fields.insert(4, trt.PluginField("end", np.int32([8])))
    assert names() == ["a", "b", "x", "c", "end"]
    assert fields.pop().name == "end" and fields.pop(2).data[0] == 9 and fields.pop(-3).name == "a"
    assert names() == ["b", "c"]
    for index in (2, -3):
        with pytest.raises(IndexError):
            fields.pop(index)
    with pytest.raises(IndexError):
        fields.insert(3, trt.PluginField("far", np.int32([1])))
    fields.clear()
    assert len(fields) == 0
    with pytest.raises(IndexError):
        fields.pop()


def test_what_plugins_say_before_it_is_set():
    for base in (trt.IPluginV2, trt.IPluginV2Ext, trt.IPluginV2DynamicExt, trt.IPluginV3OneBuild):
        assert type("Own", (base,), {})().num_outputs == -1
    for base in (trt.IPluginCreator, trt.IPluginCreatorV3One, trt.IPluginCreatorV3Quick):
        assert type("Own", (base,), {})().name is None


def test_lists_and_texts_under_their_names():
    assert trt.NodeIndices([3, 1]) == [3, 1] and trt.FallbackString("a") == "a"
