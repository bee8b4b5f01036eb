"""Registries of the process, of builders and of runtimes; resources that plugins share."""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opwright as trt
from add_plugin import Add, Creator, Recorder, X, onnx_model, registered
from plugin_testing import build, network


class Log(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.errors = []

    def log(self, severity, msg):
        if severity <= trt.ILogger.ERROR:
            self.errors.append(msg)


def run_engine(engine) -> np.ndarray:
    context = engine.create_execution_context()
    y = np.empty_like(X)
    context.set_tensor_address(engine.get_tensor_name(0), X.ctypes.data)
    context.set_tensor_address(engine.get_tensor_name(1), y.ctypes.data)
    assert context.execute_async_v3(0)
    return y


# Names, versions, namespaces --------------------------------------------------------------------


def test_what_is_taken_is_refused_with_a_log_and_a_record():
    log, recorder = Log(), Recorder()
    registry = trt.Runtime(log).get_plugin_registry()
    registry.error_recorder = recorder
    first = Creator()
    assert registry.register_creator(first, "here")
    assert not registry.register_creator(Creator(), "here")
    assert not registry.register_creator(first, "here")
    expected = "'Add' (version 1, namespace 'here') is registered already"
    assert len(log.errors) == 2 and all(expected in message for message in log.errors)
    assert [code for code, _ in recorder.errors] == [trt.ErrorCodeTRT.INVALID_ARGUMENT] * 2
    # Another version or namespace is another plugin.
    second, third = Creator(version="2"), Creator()
    assert registry.register_creator(second, "here")
    assert registry.register_creator(third, "there")
    assert registry.get_creator("Add", "2", "here") is second
    assert registry.get_creator("Add", "1", plugin_namespace="there") is third
    assert registry.get_creator(type="Add", version="1", plugin_namespace="here") is first
    assert registry.get_creator("Add", "1") is None
    # Deregistered it makes room, and can come again.
    assert registry.deregister_creator(first)
    assert not registry.deregister_creator(first)
    assert registry.get_creator("Add", "1", "here") is None
    assert registry.register_creator(first, "here")


def test_nodes_choose_by_version_and_namespace():
    creators = [
        Creator("RegistryAdd", version, namespace, amount)
        for amount, (version, namespace) in enumerate(
            [("1", ""), ("2", ""), ("1", "n"), ("2", "n")]
        )
    ]
    with registered(*creators):
        for amount, creator in enumerate(creators):
            model = onnx_model(
                plugin_version=creator.plugin_version, plugin_namespace=creator.plugin_namespace
            )
            np.testing.assert_array_equal(trt.build(model)(X), X + amount)


def test_registries_keep_creators_alive():
    registry = trt.get_plugin_registry()
    creator = Creator("Kept")
    gone = weakref.ref(creator)
    assert registry.register_creator(creator, "")
    del creator
    gc.collect()
    found = registry.get_creator("Kept", "1", "")
    assert found is gone()
    assert registry.deregister_creator(found)
    del found
    gc.collect()
    assert gone() is None


def test_a_creator_may_be_in_several_registries():
    runtime = trt.Runtime(trt.Logger())
    local, everywhere = runtime.get_plugin_registry(), trt.get_plugin_registry()
    creator = Creator("Several")
    gone = weakref.ref(creator)
    assert local.register_creator(creator, "") and everywhere.register_creator(creator, "other")
    assert local.get_creator("Several", "1", "other") is creator
    assert local.get_creator("Several", "1", "") is creator
    assert everywhere.deregister_creator(creator)
    assert local.get_creator("Several", "1", "other") is None
    assert local.get_creator("Several", "1", "") is creator
    # The last one goes with its runtime.
    del local, runtime, creator
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "creator, error",
    [
        (object(), TypeError),
        (Creator(name=""), trt.Error),
        (Creator(name=None), trt.Error),
        (Creator(name=3), trt.Error),
    ],
    ids=["object", "empty name", "no name", "name of a wrong type"],
)
def test_what_cannot_be_registered(creator, error):
    registry = trt.Runtime(trt.Logger()).get_plugin_registry()
    recorder = registry.error_recorder = Recorder()
    with pytest.raises(error):
        registry.register_creator(creator, "")
    assert len(recorder.errors) == 1
    assert registry.all_creators == []


def test_what_a_creator_raises_when_it_is_told_its_namespace_arrives():
    class Refusing(trt.IPluginCreator):
        name, plugin_version = "Refusing", "1"
        field_names = trt.PluginFieldCollection([])

        @property
        def plugin_namespace(self):
            return ""

        @plugin_namespace.setter
        def plugin_namespace(self, value):
            raise KeyError(value)

    registry = trt.Runtime(trt.Logger()).get_plugin_registry()
    with pytest.raises(KeyError, match="here"):
        registry.register_creator(Refusing(), "here")
    assert registry.all_creators == [] and registry.get_creator("Refusing", "1", "here") is None
    assert registry.register_creator(Refusing(), ""), "the next call is none of its business"
    assert len(registry.all_creators) == 1


def test_what_a_creators_attribute_raises_arrives():
    class Broken(Creator):
        @property
        def name(self):
            raise ZeroDivisionError("no name")

        @name.setter
        def name(self, value):
            pass

    registry = trt.Runtime(trt.Logger()).get_plugin_registry()
    with pytest.raises((ZeroDivisionError, trt.Error), match="no name"):
        registry.register_creator(Broken(), "")


def test_many_threads_register():
    registry = trt.Runtime(trt.Logger()).get_plugin_registry()
    wrong = []

    def work(number):
        for i in range(50):
            creator = Creator(f"Thread{number}")
            if not registry.register_creator(creator, str(i % 3)):
                wrong.append("register")
            if registry.get_creator(f"Thread{number}", "1", str(i % 3)) is not creator:
                wrong.append("get")
            registry.all_creators_recursive  # noqa: B018
            if not registry.deregister_creator(creator):
                wrong.append("deregister")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and registry.all_creators == []


KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from(["", "n"]))
STEPS = st.tuples(st.sampled_from(["register", "deregister", "search"]), st.booleans(), KEYS)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_a_registry_behaves_as_dicts_do(steps):
    """A local registry and the process's against two dicts with the same rules."""
    local, parent = trt.Runtime(Log()).get_plugin_registry(), trt.get_plugin_registry()
    before = parent.all_creators
    models = {True: {}, False: {}}
    search = True
    try:
        for action, is_local, (name, version, namespace) in steps:
            registry, model = (local, models[True]) if is_local else (parent, models[False])
            key = (f"Model{name}", version, namespace)
            if action == "register":
                creator = Creator(key[0], version)
                # The process's registry logs to stderr, so what is taken is not asked of it.
                if is_local or key not in model:
                    assert registry.register_creator(creator, namespace) == (key not in model)
                model.setdefault(key, creator)
            elif action == "deregister":
                creator = model.pop(key, None)
                assert registry.deregister_creator(creator or Creator()) == (creator is not None)
            else:
                search = not search
                local.parent_search_enabled = search
                assert local.parent_search_enabled == search
            found = models[True].get(key) or (models[False].get(key) if search else None)
            assert local.get_creator(*key) is found
            assert parent.get_creator(*key) is models[False].get(key)
        assert local.all_creators == list(models[True].values())
        assert parent.all_creators == before + list(models[False].values())
        parents = before + list(models[False].values()) if search else []
        assert local.all_creators_recursive == list(models[True].values()) + parents
    finally:
        for creator in models[False].values():
            parent.deregister_creator(creator)


# Builders and runtimes --------------------------------------------------------------------------


def test_builders_and_runtimes_have_registries_of_their_own():
    builder, runtime = trt.Builder(trt.Logger()), trt.Runtime(trt.Logger())
    creator = Creator("RegistryAdd", amount=5)
    assert builder.get_plugin_registry().register_creator(creator, "")
    assert trt.get_plugin_registry().get_creator("RegistryAdd", "1", "") is None
    assert runtime.get_plugin_registry().get_creator("RegistryAdd", "1", "") is None

    # The ONNX parser of the builder's networks finds it, another builder's does not.
    other = trt.OnnxParser(trt.Builder(Log()).create_network(), Log())
    assert not other.parse(onnx_model())
    net = builder.create_network()
    assert trt.OnnxParser(net, trt.Logger()).parse(onnx_model())
    config = builder.create_builder_config()
    np.testing.assert_array_equal(run_engine(builder.build_engine_with_config(net, config)), X + 5)
    plan = builder.build_serialized_network(net, config)

    # A runtime needs it in its own registry.
    with pytest.raises(trt.Error, match="RegistryAdd"):
        runtime.deserialize_cuda_engine(plan)
    assert runtime.get_plugin_registry().register_creator(creator, "")
    engine = runtime.deserialize_cuda_engine(plan)
    del runtime, builder, net, config
    gc.collect()
    np.testing.assert_array_equal(run_engine(engine), X + 5)


def test_networks_outlive_their_builder():
    builder = trt.Builder(trt.Logger())
    builder.get_plugin_registry().register_creator(Creator("RegistryAdd", amount=2), "")
    net = builder.create_network()
    del builder
    gc.collect()
    parser = trt.OnnxParser(net, trt.Logger())
    assert parser.parse(onnx_model())
    np.testing.assert_array_equal(trt.build(net)(X), X + 2)


def test_parent_search():
    local = trt.Builder(trt.Logger()).get_plugin_registry()
    with registered(Creator("RegistryAdd", namespace="parent")):
        assert local.parent_search_enabled
        assert local.get_creator("RegistryAdd", "1", "parent") is not None
        local.parent_search_enabled = False
        assert local.get_creator("RegistryAdd", "1", "parent") is None
        assert local.all_creators_recursive == []


def test_entry_points():
    registry = trt.get_plugin_registry()
    assert trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD) is registry
    assert trt.get_builder_plugin_registry(trt.EngineCapability.SAFETY) is None
    before = registry.all_creators
    assert trt.init_libnvinfer_plugins(trt.Logger(), "")
    assert trt.init_libnvinfer_plugins(None, "mine")
    assert registry.all_creators == before, "what TensorRT has as plugins are layers here"
    assert registry.get_plugin_creator("none", "1", "") is None
    assert isinstance(registry.plugin_creator_list, list)
    with pytest.raises(trt.Error, match="load_runtime"):
        trt.Runtime(trt.Logger()).load_runtime("libother.so")


# Libraries --------------------------------------------------------------------------------------


COUNTER = "shared_counter_plugin"


def counter_network(registry):
    creator = registry.get_creator(COUNTER, "1", "")
    plugin = creator.create_plugin("", trt.PluginFieldCollection(), trt.TensorRTPhase.BUILD)
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    y = net.add_plugin_v3([x], [], plugin).get_output(0)
    net.mark_output(y)
    return net


def test_libraries_of_a_runtime(plugin_dir):
    path = plugin_dir / f"{COUNTER}.so"
    builder, runtime = trt.Builder(trt.Logger()), trt.Runtime(trt.Logger())
    registry = builder.get_plugin_registry()
    handle = registry.load_library(path)
    assert trt.get_plugin_registry().get_creator(COUNTER, "1", "") is None
    creator = registry.get_creator(COUNTER, "1", "")
    net = counter_network(registry)
    plan = builder.build_serialized_network(net, builder.create_builder_config())
    registry.deregister_library(handle)
    assert registry.get_creator(COUNTER, "1", "") is None
    # What is left of it works on.
    assert len(creator.field_names) == 0 and len(net) == 1
    with pytest.raises(trt.Error, match="deregisterLibrary"):
        registry.deregister_library(handle)
    with pytest.raises(trt.Error, match="missing.so"):
        registry.load_library("/nowhere/missing.so")

    with pytest.raises(trt.Error, match=COUNTER):
        runtime.deserialize_cuda_engine(plan)
    local = runtime.get_plugin_registry()
    handle = local.load_library(path)
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    y = np.empty_like(X)
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address(context.engine.get_tensor_name(1), y.ctypes.data)
    local.deregister_library(handle)
    del runtime, local, handle, creator, net, builder, registry
    gc.collect()
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y, X)
    del context
    gc.collect()


def test_python_reaches_a_cpp_resource_by_its_key(plugin_dir):
    registry = trt.get_plugin_registry()
    handle = registry.load_library(plugin_dir / f"{COUNTER}.so")
    try:
        engine = trt.build(counter_network(registry))
        engine(X)
        shared = registry.acquire_plugin_resource(f"{COUNTER}:counter", None)
        assert isinstance(shared, trt.IPluginResource)
        with pytest.raises(trt.Error, match=r"implemented in C\+\+"):
            shared.clone()
        assert registry.release_plugin_resource(f"{COUNTER}:counter") == 0
        del engine
        gc.collect()
        with pytest.raises(trt.Error, match="there is no plugin resource"):
            registry.acquire_plugin_resource(f"{COUNTER}:counter", None)
    finally:
        registry.deregister_library(handle)


# Resources --------------------------------------------------------------------------------------


class Table(trt.IPluginResource):
    """A table that plugins share; `log` notes what happens to it."""

    def __init__(self, log):
        super().__init__()
        self.log = log
        self.data = None

    def clone(self):
        made = Table(self.log)
        made.data = np.float32(10)
        self.log.append("clone")
        return made

    def release(self):
        self.data = None
        self.log.append("release")


class Sharing(Add):
    """Adds what is in a shared table, which it has from its context to its end."""

    log: list[str] = []
    seen: list[trt.IPluginResourceContext] = []
    table = None

    def attach_to_context(self, context):
        Sharing.seen.append(context)
        made = self.clone()
        made.table = trt.get_plugin_registry().acquire_plugin_resource("table", Table(Sharing.log))
        made.amount = made.table.data
        return made

    def clone(self):
        made = copy.copy(self)
        made.table = None
        return made

    def __del__(self):
        if self.table is not None:
            trt.get_plugin_registry().release_plugin_resource("table")


class SharingCreator(Creator):
    def create_plugin(self, name, fields, phase):
        return Sharing(self.name)


def test_instances_share_a_resource():
    Sharing.log.clear()
    with registered(SharingCreator("Sharing")):
        net = network()
        x = net.add_input("x", trt.float32, X.shape)
        y = net.add_plugin_v3([x], [], Sharing("Sharing")).get_output(0)
        z = net.add_plugin_v3([y], [], Sharing("Sharing")).get_output(0)
        engine = build(net, z, timing=False)
        Sharing.log.clear()
        np.testing.assert_array_equal(engine(X), X + 20)
        assert Sharing.log == ["clone"], "the second instance found the first one's"
        shared = trt.get_plugin_registry().acquire_plugin_resource("table", None)
        assert isinstance(shared, Table) and shared.data == 10
        assert trt.get_plugin_registry().release_plugin_resource("table") == 0
        del engine, net, y, z, x
        gc.collect()
        assert Sharing.log == ["clone", "release"] and shared.data is None


class BrokenResource(trt.IPluginResource):
    def __init__(self, clone=None, release=None):
        super().__init__()
        self._clone, self._release = clone, release

    def clone(self):
        return self._clone() if self._clone else self

    def release(self):
        return self._release() if self._release else None


def fail():
    raise KeyError("my own")


def test_resources_that_fail():
    registry = trt.Runtime(trt.Logger()).get_plugin_registry()
    recorder = registry.error_recorder = Recorder()
    with pytest.raises(TypeError, match="must be an IPluginResource"):
        registry.acquire_plugin_resource("key", 3)
    with pytest.raises((trt.Error, TypeError), match=r"clone\(\) .*resource"):
        registry.acquire_plugin_resource("key", BrokenResource(lambda: None))
    with pytest.raises((trt.Error, TypeError), match=r"clone\(\) .*resource"):
        registry.acquire_plugin_resource("key", BrokenResource(lambda: 3))
    with pytest.raises(KeyError, match="my own"):
        registry.acquire_plugin_resource("key", BrokenResource(fail))
    with pytest.raises(trt.Error, match="there is no plugin resource under the key 'key'"):
        registry.release_plugin_resource("key")
    with pytest.raises(trt.Error, match="there is no plugin resource under the key 'key' yet"):
        registry.acquire_plugin_resource("key", None)
    assert len(recorder.errors) == 6

    # A release that fails ends the resource all the same.
    registry.acquire_plugin_resource("key", BrokenResource(release=fail))
    registry.acquire_plugin_resource("key", None)
    assert registry.release_plugin_resource("key") == 0
    with pytest.raises(KeyError, match="my own"):
        registry.release_plugin_resource("key")
    with pytest.raises(trt.Error, match="there is no plugin resource"):
        registry.release_plugin_resource("key")
    registry.acquire_plugin_resource("key", BrokenResource(release=lambda: 4))
    assert registry.release_plugin_resource("key") == 4


def test_registries_do_not_share_resources():
    logs = [], []
    first = trt.Runtime(trt.Logger()).get_plugin_registry()
    second = trt.Runtime(trt.Logger()).get_plugin_registry()
    one = first.acquire_plugin_resource("key", Table(logs[0]))
    assert first.acquire_plugin_resource("key", Table(logs[0])) is one
    assert second.acquire_plugin_resource("key", Table(logs[1])) is not one
    assert logs == (["clone"], ["clone"])
    del second
    gc.collect()
    assert logs[1] == ["clone", "release"], "released with its registry"


def test_nothing_is_lost_over_many_cycles(plugin_dir):
    """References to all that registries are given, over 10,000 of them."""
    recorder, creator = Recorder(), Creator("Cycles")
    table = Table([])
    before = [sys.getrefcount(each) for each in (recorder, creator, table)]
    for i in range(10_000):
        registry = trt.Runtime(trt.Logger()).get_plugin_registry()
        registry.error_recorder = recorder
        registry.register_creator(creator, "")
        if i % 2:
            registry.deregister_creator(creator)
        registry.acquire_plugin_resource("key", table)
        if i % 3:
            registry.release_plugin_resource("key")
        with pytest.raises(trt.Error):
            registry.release_plugin_resource("none")
        if i % 1000 == 0:
            registry.load_library(plugin_dir / f"{COUNTER}.so")
            made = registry.get_creator(COUNTER, "1", "")
            made.create_plugin("", trt.PluginFieldCollection(), trt.TensorRTPhase.BUILD)
    assert len(recorder.errors) == 10_000
    assert table.log.count("clone") == 10_000
    del registry, made
    gc.collect()
    assert table.log.count("release") == 10_000
    assert [sys.getrefcount(each) for each in (recorder, creator, table)] == before


# Allocators -------------------------------------------------------------------------------------


class Allocator(trt.IGpuAllocator):
    def __init__(self):
        super().__init__()
        self.blocks = {}
        self.calls = []

    def allocate(self, size, alignment, flags):
        self.calls.append((size, alignment, flags))
        block = (ctypes.c_byte * (size + alignment))()
        address = -(-ctypes.addressof(block) // alignment) * alignment
        self.blocks[address] = block
        return address

    def deallocate(self, memory):
        return self.blocks.pop(memory, None) is not None


class Scratch(Add):
    """Takes memory of its context's allocator for a constant."""

    address = None
    allocators: list[trt.IGpuAllocator] = []

    def attach_to_context(self, context):
        made = self.clone()
        made.allocator = context.gpu_allocator
        Scratch.allocators.append(made.allocator)
        made.address = made.allocator.allocate(4, 128, 0)
        if not made.address:
            raise MemoryError("no scratch memory")
        assert made.address % 128 == 0
        ctypes.c_float.from_address(made.address).value = 7
        return made

    def enqueue(self, *args):
        self.amount = ctypes.c_float.from_address(self.address).value
        super().enqueue(*args)


class ScratchCreator(Creator):
    def create_plugin(self, name, fields, phase):
        return Scratch(self.name)


def test_memory_of_the_device():
    with registered(ScratchCreator("Scratch")):
        net = network()
        y = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Scratch("Scratch"))
        engine = build(net, y.get_output(0))
        np.testing.assert_array_equal(engine(X), X + 7)
        allocator = Scratch.allocators[-1]
        assert isinstance(allocator, trt.IGpuAllocator)
        assert allocator.allocate(16, 3, 0) == 0, "an alignment is a power of two"
        assert allocator.allocate(2**60, 64, 0) == 0
        assert not allocator.deallocate(64), "it did not give that"
        address = allocator.allocate_async(16, 64, 1 << int(trt.AllocatorFlag.RESIZABLE), 0)
        assert address and allocator.reallocate(address, 64, 32) == 0
        assert allocator.deallocate_async(address, 0) and not allocator.deallocate(address)
        del engine, net, y
        gc.collect()
        with pytest.raises(trt.Error, match="ended with its plugin"):
            allocator.allocate(16, 64, 0)
    Scratch.allocators.clear()


def test_allocators_of_builder_runtime_and_context():
    of_builder, of_runtime, of_context = Allocator(), Allocator(), Allocator()
    builder, runtime = trt.Builder(trt.Logger()), trt.Runtime(trt.Logger())
    assert builder.gpu_allocator is None and runtime.gpu_allocator is None
    with registered(ScratchCreator("Scratch")):
        net = builder.create_network()
        y = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Scratch("Scratch"))
        net.mark_output(y.get_output(0))
        builder.gpu_allocator = of_builder
        assert builder.gpu_allocator is of_builder
        plan = builder.build_serialized_network(net, builder.create_builder_config())
        assert set(of_builder.calls) == {(4, 128, 0)}
        runtime.gpu_allocator = of_runtime
        engine = runtime.deserialize_cuda_engine(plan)
        np.testing.assert_array_equal(run_engine(engine), X + 7)
        assert of_runtime.calls == [(4, 128, 0)]
        assert Scratch.allocators[-1] is of_runtime

        context = engine.create_execution_context()
        assert context.temporary_allocator is of_runtime
        context.temporary_allocator = of_context
        out = np.empty_like(X)
        context.set_tensor_address("x", X.ctypes.data)
        context.set_tensor_address(engine.get_tensor_name(1), out.ctypes.data)
        context.execute_async_v3(0)
        assert len(of_context.calls) == 1 and len(of_runtime.calls) == 1
        with pytest.raises(TypeError, match="expected an IGpuAllocator"):
            runtime.gpu_allocator = 3

        class Empty(trt.IGpuAllocator):
            def allocate(self, size, alignment, flags):
                return None

        context = engine.create_execution_context()
        context.temporary_allocator = Empty()
        context.set_tensor_address("x", X.ctypes.data)
        context.set_tensor_address(engine.get_tensor_name(1), out.ctypes.data)
        with pytest.raises((MemoryError, trt.Error), match="no scratch memory"):
            context.execute_async_v3(0)
    Scratch.allocators.clear()


def test_asynchronous_allocators():
    class Asynchronous(trt.IGpuAsyncAllocator):
        def allocate_async(self, size, alignment, flags, stream):
            return (size, alignment, flags, stream)

        def deallocate_async(self, memory, stream):
            return (memory, stream)

    made = Asynchronous()
    assert made.allocate(1, 2, 3) == (1, 2, 3, 0) and made.deallocate(5) == (5, 0)
