"""IPluginV3 implemented by Python classes, creators, registry, C++ plugin libraries."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
PADS = [2, 1, 0, 3]


# Registry and fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, type, expected",
    [
        (np.array([1, 2], np.int32), None, np.array([1, 2], np.int32)),
        (np.array([1, 2], np.int64), trt.PluginFieldType.INT32, np.array([1, 2], np.int32)),
        (np.array([1.5], np.float16), None, np.array([1.5], np.float16)),
        ([1, 2], trt.PluginFieldType.INT8, np.array([1, 2], np.int8)),
        (3, trt.PluginFieldType.INT64, np.array([3])),
        ("text", None, np.frombuffer(b"text", np.int8)),
        (b"text", trt.PluginFieldType.CHAR, np.frombuffer(b"text", np.int8)),
        (b"\1\2", None, np.array([1, 2], np.int8)),
        (np.array([1.5], np.float16).tobytes(), None, np.array([0, 62], np.int8)),
        (np.array([]), trt.PluginFieldType.INT32, np.array([], np.int32)),
    ],
)
def test_field_data(data, type, expected):
    field = trt.PluginField("name", data, type)
    assert field.name == "name" and field.size == len(expected)
    assert field.data.dtype == expected.dtype
    np.testing.assert_array_equal(field.data, expected)


def test_field_data_that_does_not_fit():
    with pytest.raises(trt.Error, match="PluginField 'f' must be INT32, but is FLOAT64"):
        trt.PluginField("f", np.array([1.5]), trt.PluginFieldType.INT32)
    with pytest.raises(trt.Error, match="must be INT32 .*, but is 1099511627776"):
        trt.PluginField("f", np.array([2**40]), trt.PluginFieldType.INT32)
    with pytest.raises(trt.Error, match="no whole number of elements"):
        trt.PluginField("f", b"123", trt.PluginFieldType.INT32)


def test_field_collections_are_sequences():
    fields = trt.PluginFieldCollection([trt.PluginField("a", 1.0), trt.PluginField("b", "x")])
    assert len(fields) == 2 and [f.name for f in fields] == ["a", "b"] and fields[-1].name == "b"
    with pytest.raises(IndexError):
        fields[2]
    with pytest.raises(trt.Error, match="list of PluginField"):
        trt.PluginFieldCollection([1])
    fields.append(trt.PluginField("c"))
    fields.extend([trt.PluginField("d"), trt.PluginField("e")])
    fields.extend(trt.PluginFieldCollection([trt.PluginField("f")]))
    fields[0] = fields[-1]
    del fields[-2]
    assert [f.name for f in fields] == ["f", "b", "c", "d", "f"]
    with pytest.raises(IndexError):
        del fields[5]
    with pytest.raises(trt.Error, match="extend: expected .* list of PluginField"):
        fields.extend(3)
    assert trt.PluginField("d", trt.Dims((1, 2)), trt.PluginFieldType.DIMS).data == [(1, 2)]


# C++ libraries ---------------------------------------------------------------------------------


def test_what_is_no_library(tmp_path):
    registry = trt.get_plugin_registry()
    (tmp_path / "text.so").write_text("not a library")
    for path in (tmp_path / "text.so", tmp_path / "missing.so"):
        with pytest.raises(trt.Error, match=path.name):
            registry.load_library(path)


@pytest.mark.parametrize(
    ("name", "kind", "major"),
    [
        ("IPluginV3", "PLUGIN", 1),
        ("IPluginV3OneCore", "PLUGIN_V3ONE_CORE", 1),
        ("IPluginV3OneBuild", "PLUGIN_V3ONE_BUILD", 1),
        ("IPluginV3OneBuildV2", "PLUGIN_V3ONE_BUILD", 2),
        ("IPluginV3OneRuntime", "PLUGIN_V3ONE_RUNTIME", 1),
        ("IPluginV3QuickCore", "PLUGIN_V3QUICK_CORE", 1),
        ("IPluginV3QuickBuild", "PLUGIN_V3QUICK_BUILD", 1),
        ("IPluginV3QuickAOTBuild", "PLUGIN_V3QUICKAOT_BUILD", 1),
        ("IPluginV3QuickRuntime", "PLUGIN_V3QUICK_RUNTIME", 1),
        ("IPluginCreator", "PLUGIN CREATOR_V1", 1),
        ("IPluginCreatorV3One", "PLUGIN CREATOR_V3ONE", 1),
        ("IPluginCreatorV3Quick", "PLUGIN CREATOR_V3QUICK", 1),
        ("IPluginResource", "IPluginResource", 1),
        ("IErrorRecorder", "IErrorRecorder", 1),
    ],
)
def test_classes_say_which_interface_they_implement(name, kind, major):
    instance = getattr(trt, name)()
    assert instance.interface_info == trt.InterfaceInfo(kind, major, 0)
    assert instance.api_language == trt.APILanguage.PYTHON


def test_plugins_of_libraries_are_in_cpp(plugin_dir):
    registry = trt.get_plugin_registry()
    library = registry.load_library(plugin_dir / "identity_plugin.so")
    creator = registry.get_creator("identity_plugin", "1", "")
    assert creator.api_language == trt.APILanguage.CPP
    assert creator.interface_info.kind == "PLUGIN CREATOR_V3ONE"
    fields = trt.PluginFieldCollection([])
    plugin = creator.create_plugin("x", fields, trt.TensorRTPhase.BUILD)
    assert plugin.api_language == trt.APILanguage.CPP
    runtime = plugin.get_capability_interface(trt.PluginCapabilityType.RUNTIME)
    assert runtime.api_language == trt.APILanguage.CPP
    registry.deregister_library(library)
