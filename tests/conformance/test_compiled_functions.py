"""Decorator plugins with kernels compiled ahead of time, trtp.aot_impl.

The kernels are C++ sources that the system's g++ makes into shared objects. A kernel is called for each cell of
the grid as `void name(void** args, int64_t x, int64_t y, int64_t z)`; args[i] points to argument i, in the order
inputs, extra arguments, outputs.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import List, Tuple

import numpy as np
import numpy.typing as npt

import opwright as trt
import opwright.plugin as trtp
from cases import (
    LOGGER,
    STRONGLY_TYPED,
    build,
    circular_pad,
    compiled,
    error_of,
    in_new_process,
    infer,
    mark,
    new_context,
    random,
    read,
    start,
)

RESULT = Tuple[str | bytes, str | bytes, trtp.KernelLaunchParams, trtp.SymExprs]

SCALE = """
extern "C" void scale(void** args, int64_t x, int64_t, int64_t) {
    float const* in = *static_cast<float const**>(args[0]);
    int32_t const count = *static_cast<int32_t*>(args[1]);
    int32_t const factor = *static_cast<int32_t*>(args[2]);
    float* out = *static_cast<float**>(args[3]);
    for (int64_t i = x * 64; i < count && i < x * 64 + 64; ++i) out[i] = factor * in[i];
}
"""

# One task pads one row: x is the row of the output, y the channel, z the image.
PAD = """
template <typename T>
void pad(void** args, int64_t x, int64_t y, int64_t z) {
    auto number = [&](int i) { return static_cast<int64_t>(*static_cast<int32_t*>(args[i])); };
    T const* in = *static_cast<T const**>(args[0]);
    int64_t const top = number(1), left = number(2), C = number(3), H = number(4), W = number(5);
    int64_t const outH = number(6), outW = number(7);
    T* out = *static_cast<T**>(args[8]);
    T const* from = in + ((z * C + y) * H + ((x - top) % H + H) % H) * W;
    T* to = out + ((z * C + y) * outH + x) * outW;
    for (int64_t i = 0; i < outW; ++i) to[i] = from[((i - left) % W + W) % W];
}
extern "C" void pad_fp32(void** args, int64_t x, int64_t y, int64_t z) { pad<uint32_t>(args, x, y, z); }
extern "C" void pad_fp16(void** args, int64_t x, int64_t y, int64_t z) { pad<uint16_t>(args, x, y, z); }
"""

PADS = np.array([2, 1, 1, 3], np.int32)


def define_scale():
    code = compiled(SCALE)

    @trtp.register("acceptance::scale")
    def describe(x: trtp.TensorDesc, factor: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("acceptance::scale")
    def kernel(
        x: trtp.TensorDesc, factor: int, outputs: Tuple[trtp.TensorDesc], tactic: int
    ) -> RESULT:
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams()
        launch.grid_x = trtp.cdiv(count, 64)
        extra = trtp.SymIntExprs(2)
        extra[0] = trtp.SymInt32(count)
        extra[1] = trtp.SymInt32(factor)
        return "scale", code, launch, extra

    return trt.plugin.op.acceptance.scale


def define_pad(seen=None):
    code = compiled(PAD)

    @trtp.register("acceptance::circ_pad")
    def describe(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
        out = x.like()
        for i in range(np.size(pads) // 2):
            out.shape_expr[x.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
        return out

    @trtp.autotune("acceptance::circ_pad")
    def tune(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]) -> List[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR")]

    @trtp.aot_impl("acceptance::circ_pad")
    def kernel(
        x: trtp.TensorDesc,
        pads: npt.NDArray[np.int32],
        outputs: Tuple[trtp.TensorDesc],
        tactic: int,
    ) -> RESULT:
        if seen is not None:
            seen.append((x.dtype, outputs[0].dtype, x.format, tuple(x.shape), x.is_dynamic, tactic))
        n, c, h, w = x.shape_expr
        out_h, out_w = outputs[0].shape_expr[2], outputs[0].shape_expr[3]
        launch = trtp.KernelLaunchParams(grid_x=out_h, grid_y=c, grid_z=n)
        numbers = (int(pads[2]), int(pads[0]), c, h, w, out_h, out_w)
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(number) for number in numbers])
        name = b"pad_fp32" if x.dtype == trt.float32 else b"pad_fp16"
        return name, code, launch, extra

    return trt.plugin.op.acceptance.circ_pad


def network_with(op, shapes, dtype=trt.float32, flags=STRONGLY_TYPED, profile=None, **aot):
    builder, network, config = start(flags)
    inputs = [network.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    layer = network.add_plugin(op(*inputs), **aot)
    assert layer is not None, "add_plugin returned None"
    for i in range(layer.num_outputs):
        mark(network, layer.get_output(i), f"y{i}")
    if profile:
        limits = builder.create_optimization_profile()
        for i in range(len(shapes)):
            limits.set_shape(f"x{i}", *profile)
        config.add_optimization_profile(limits)
    return builder, network, config


def engine_with(op, shapes, *arguments, **options):
    """An engine built in this process: it may run host code without further permission."""
    builder, network, config = network_with(op, shapes, *arguments, **options)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, "build_engine_with_config returned None"
    return engine


def test_scale():
    op = define_scale()
    x = random((3, 50))
    y = infer(new_context(engine_with(lambda t: op(t, factor=-3), [x.shape])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x * -3)


def test_scale_dynamic_shapes():
    op = define_scale()
    engine = engine_with(
        lambda t: op(t, factor=5), [(-1, -1)], profile=[(1, 1), (8, 64), (100, 200)]
    )
    context = new_context(engine)
    for seed, shape in enumerate([(1, 1), (100, 200), (1, 64), (5, 13), (64, 1), (1, 65)]):
        x = random(shape, seed=seed)
        np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], x * 5)


def test_circ_pad_fp32_and_fp16():
    op = define_pad()
    for dtype, kind in [(trt.float32, np.float32), (trt.float16, np.float16)]:
        x = random((2, 3, 8, 9), kind)
        y = infer(
            new_context(engine_with(lambda t: op(t, pads=PADS), [x.shape], dtype)), {"x0": x}
        )["y0"]
        assert y.dtype == kind
        np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_circ_pad_dynamic_shapes():
    seen = []
    op = define_pad(seen)
    limits = [(1, 1, 4, 4), (4, 3, 16, 16), (8, 5, 32, 24)]
    for dtype, kind in [(trt.float32, np.float32), (trt.float16, np.float16)]:
        seen.clear()
        context = new_context(
            engine_with(lambda t: op(t, pads=PADS), [(-1, -1, -1, -1)], dtype, profile=limits)
        )
        for seed, shape in enumerate([*limits, (2, 3, 5, 7), limits[2]]):
            x = random(shape, kind, seed)
            np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], circular_pad(x, PADS))
        own = (dtype, dtype, trt.TensorFormat.LINEAR, (-1, -1, -1, -1), True, 0)
        assert own in seen, f"aot_impl saw {seen}, expected {own}"


def test_shape_ranges_are_known():
    ranges = []
    code = compiled(SCALE)

    @trtp.register("acceptance::ranges")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("acceptance::ranges")
    def kernel(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> RESULT:
        ranges.append(
            (
                tuple(x.shape.min),
                tuple(x.shape.opt),
                tuple(x.shape.max),
                tuple(outputs[0].shape.max),
            )
        )
        count = x.shape_expr.numel()
        launch = trtp.KernelLaunchParams(trtp.cdiv(count, 64))
        return (
            "scale",
            code,
            launch,
            trtp.SymIntExprs.from_tuple([trtp.SymInt32(count), trtp.SymInt32(2)]),
        )

    limits = [(1, 7), (4, 7), (9, 7)]
    context = new_context(engine_with(trt.plugin.op.acceptance.ranges, [(-1, 7)], profile=limits))
    x = random((5, 7))
    np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], x * 2)
    assert set(ranges) == {(*limits, (9, 7))}, f"{ranges}"


def test_every_grid_cell_runs_once():
    code = compiled("""
extern "C" void probe(void** args, int64_t x, int64_t y, int64_t z) {
    static int32_t runs[4 * 5 * 7];
    int64_t const cell = (z * 5 + y) * 7 + x;
    int32_t* place = *static_cast<int32_t**>(args[1]);
    int32_t* count = *static_cast<int32_t**>(args[2]);
    place[cell] = static_cast<int32_t>(10000 * z + 100 * y + x);
    count[cell] = __atomic_add_fetch(&runs[cell], 1, __ATOMIC_RELAXED);
}
""")

    @trtp.register("acceptance::probe")
    def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        place, count = x.like(), x.like()
        place.dtype = count.dtype = trt.int32
        return place, count

    @trtp.aot_impl("acceptance::probe")
    def kernel(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> RESULT:
        z, y, x_ = x.shape_expr
        return "probe", code, trtp.KernelLaunchParams(x_, y, z), trtp.SymIntExprs(0)

    context = new_context(engine_with(trt.plugin.op.acceptance.probe, [(4, 5, 7)]))
    z, y, x = np.indices((4, 5, 7))
    for _ in range(3):
        outputs = infer(context, {"x0": random((4, 5, 7))})
        np.testing.assert_array_equal(outputs["y0"], 10000 * z + 100 * y + x)
        counts = set(outputs["y1"].ravel().tolist())
        assert len(counts) == 1, (
            f"the cells of one launch ran a different number of times: {counts}"
        )


def test_arguments_are_inputs_extras_outputs():
    code = compiled("""
extern "C" void mix(void** args, int64_t, int64_t, int64_t) {
    float const* a = *static_cast<float const**>(args[0]);
    float const* b = *static_cast<float const**>(args[1]);
    int32_t const n = *static_cast<int32_t*>(args[2]), low = *static_cast<int32_t*>(args[3]);
    float* sum = *static_cast<float**>(args[4]);
    int32_t* sign = *static_cast<int32_t**>(args[5]);
    for (int32_t i = 0; i < n; ++i) sum[i] = a[i] + 2 * b[i];
    for (int32_t i = 0; i < n; ++i) sign[i] = a[i] < b[i] ? low : n;
}
""")

    @trtp.register("acceptance::mix")
    def describe(a: trtp.TensorDesc, b: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        sign = a.like()
        sign.dtype = trt.int32
        return a.like(), sign

    @trtp.aot_impl("acceptance::mix")
    def kernel(
        a: trtp.TensorDesc, b: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int
    ) -> RESULT:
        extra = [trtp.SymInt32(a.shape_expr.numel()), trtp.SymInt32(-(2**31))]
        return "mix", code, trtp.KernelLaunchParams(), trtp.SymIntExprs.from_tuple(extra)

    a, b = random((5, 8)), random((5, 8), seed=1)
    engine = engine_with(trt.plugin.op.acceptance.mix, [a.shape, b.shape])
    outputs = infer(new_context(engine), {"x0": a, "x1": b})
    np.testing.assert_allclose(outputs["y0"], a + 2 * b, rtol=1e-6)
    np.testing.assert_array_equal(outputs["y1"], np.where(a < b, -(2**31), 40))


def test_tactics():
    """Their results differ as those of right tactics may, and say which one ran."""
    code = compiled("""
extern "C" void slow(void** args, int64_t, int64_t, int64_t) {
    usleep(30000);
    **static_cast<float**>(args[1]) = 1.0f;
}
extern "C" void fast(void** args, int64_t, int64_t, int64_t) { **static_cast<float**>(args[1]) = 1.0009765625f; }
""")
    asked = []

    @trtp.register("acceptance::race")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return trtp.from_shape_expr((1,), dtype=trt.float32)

    @trtp.autotune("acceptance::race")
    def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.aot_impl("acceptance::race")
    def kernel(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> RESULT:
        asked.append(tactic)
        return {1: "slow", 2: "fast"}[tactic], code, trtp.KernelLaunchParams(), trtp.SymIntExprs(0)

    outputs = infer(
        new_context(engine_with(trt.plugin.op.acceptance.race, [(4,)])), {"x0": random((4,))}
    )
    assert set(asked) == {1, 2}, f"aot_impl was asked for {asked}"
    assert outputs["y0"].tolist() == [1.0009765625], "the slow tactic was chosen"


def test_between_built_in_layers():
    op = define_scale()
    builder, network, config = start(STRONGLY_TYPED)
    x = network.add_input("x", trt.float32, (4, 5))
    negative = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    tensor = network.add_plugin(op(negative, factor=3)).get_output(0)
    tensor = network.add_plugin(op(tensor, factor=2)).get_output(0)
    mark(
        network, network.add_elementwise(tensor, x, trt.ElementWiseOperation.SUM).get_output(0), "y"
    )
    data = random((4, 5))
    y = infer(new_context(builder.build_engine_with_config(network, config)), {"x": data})["y"]
    np.testing.assert_allclose(y, -5 * data, rtol=1e-6)


# ---- cases: choosing between impl and aot_impl ----

ADD_ONE = """
extern "C" void add_one(void** args, int64_t x, int64_t, int64_t) {
    (*static_cast<float**>(args[1]))[x] = (*static_cast<float const**>(args[0]))[x] + 1;
}
"""
IMPL_RUNS = []  # x's shape in each run of impl


def define_choice(name, jit=True, aot=True):
    """Adds 1 in impl and in aot_impl."""
    code = compiled(ADD_ONE)

    @trtp.register(f"acceptance::{name}")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    if jit:

        @trtp.impl(f"acceptance::{name}")
        def run(x, outputs, stream) -> None:
            IMPL_RUNS.append(np.asarray(x).shape)
            np.asarray(outputs[0])[...] = np.asarray(x) + 1

    if aot:

        @trtp.aot_impl(f"acceptance::{name}")
        def kernel(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> RESULT:
            return (
                "add_one",
                code,
                trtp.KernelLaunchParams(x.shape_expr.numel()),
                trtp.SymIntExprs(0),
            )

    return getattr(trt.plugin.op.acceptance, name)


PREFER_AOT = 1 << int(trt.NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS)
PREFER_JIT = 1 << int(trt.NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS)


def implementation_of(engine, x_name, y_name, x):
    """What a run of the engine calls."""
    context = new_context(engine)
    IMPL_RUNS.clear()
    y = infer(context, {x_name: x})[y_name]
    np.testing.assert_allclose(y, x + 1, rtol=1e-6)
    return "impl" if IMPL_RUNS else "aot_impl"


def ran(op, flags=0, **aot):
    x = random((3, 4))
    return implementation_of(engine_with(op, [x.shape], flags=flags, **aot), "x0", "y0", x)


def test_choice_by_flag_and_by_argument():
    op = define_choice("both")
    assert ran(op, PREFER_AOT) == "aot_impl" and ran(op, PREFER_JIT) == "impl"
    assert ran(op, aot=True) == "aot_impl" and ran(op, aot=False) == "impl"
    assert ran(op, PREFER_JIT, aot=True) == "aot_impl"
    assert ran(op, PREFER_AOT, aot=False) == "impl"


def test_no_choice_is_an_error_that_names_both_ways():
    op = define_choice("both")
    error = error_of(ran, op)
    assert error, "a plugin with impl and aot_impl was built although nothing chooses"
    assert "AOT" in error and "JIT" in error and "both" in error, f"the message: {error}"


def test_only_one_implementation():
    jit, aot = define_choice("jit_only", aot=False), define_choice("aot_only", jit=False)
    assert ran(jit) == "impl" and ran(aot) == "aot_impl"
    assert ran(jit, PREFER_AOT) == "impl" and ran(aot, PREFER_JIT) == "aot_impl", (
        "a preference is not a demand"
    )
    assert error_of(lambda: ran(jit, aot=True)), "aot=True was accepted without aot_impl"
    assert error_of(lambda: ran(aot, aot=False)), "aot=False was accepted without impl"


def test_choice_in_onnx():
    from onnx import TensorProto, helper

    define_choice("both")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy"]
    for aot, expected in [(1, "aot_impl"), (0, "impl"), (True, "aot_impl"), (False, "impl")]:
        node = helper.make_node("both", ["x"], ["y"], plugin_namespace="acceptance", aot=aot)
        graph = helper.make_graph([node], "g", infos[:1], infos[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = min(model.ir_version, 8)
        builder, network, config = start(STRONGLY_TYPED)
        parser = trt.OnnxParser(network, LOGGER)
        assert parser.parse(model.SerializeToString()), [
            str(parser.get_error(i)) for i in range(parser.num_errors)
        ]
        engine = builder.build_engine_with_config(network, config)
        assert implementation_of(engine, "x", "y", random((3, 4))) == expected, f"aot={aot!r}"


# ---- cases: saved engines ----


def load_saved(path, allowed):
    """Loads and runs without any definition of the plugin."""
    runtime = trt.Runtime(LOGGER)
    if allowed == "yes":
        runtime.engine_host_code_allowed = True
    assert runtime.engine_host_code_allowed is (allowed == "yes"), (
        "host code is allowed from the start"
    )
    try:
        engine = runtime.deserialize_cuda_engine(read(path))
    except Exception:
        engine = None
    if engine is None:
        print("refused")
        return
    for shape in [(1, 1, 4, 4), (2, 3, 5, 7)]:
        x = random(shape)
        np.testing.assert_array_equal(
            infer(new_context(engine), {"x0": x})["y0"], circular_pad(x, PADS)
        )
    print("ran")


LIMITS = [(1, 1, 4, 4), (4, 3, 16, 16), (8, 5, 32, 24)]


def saved_pad(folder):
    op = define_pad()
    path = folder / "pad.engine"
    shape = (-1, -1, -1, -1)
    path.write_bytes(build(*network_with(lambda t: op(t, pads=PADS), [shape], profile=LIMITS)))
    return path


def test_saved_engine_in_a_new_python_process(folder):
    path = saved_pad(Path(folder))
    said = in_new_process(load_saved, path, "no")
    assert "refused" in said, "an engine with host code was loaded from a file without permission"
    said = in_new_process(load_saved, path, "yes")
    assert "ran" in said, "an engine with host code did not load although it was allowed to"


class Native:
    """Runs an engine with the native program and keeps what the dynamic loader says of it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, Path(folder)
        self.engine = saved_pad(self.folder)
        self.done = None
        """The last process."""

    def __call__(self, x, allow=True):
        """The output, or None where the program gives none."""
        source, target = self.folder / "x.npy", self.folder / "y.npy"
        np.save(source, x)
        target.unlink(missing_ok=True)
        command = [self.program, "run", self.engine]
        command += ["--input", f"x0={source}", "--output", f"y0={target}"]
        command += ["--allow-host-code"] if allow else []
        trace = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self.folder / "loader")}
        self.done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=os.environ | trace
        )
        return np.load(target) if self.done.returncode == 0 and target.exists() else None

    def loader_lines(self):
        texts = [file.read_text(errors="replace") for file in self.folder.glob("loader.*")]
        return "".join(texts).splitlines()


def test_native_program_is_native(program):
    assert read(program)[:4] == b"\x7fELF", f"{program} is not an ELF program"


def test_native_program_runs_a_saved_engine(program, folder):
    native = Native(program, folder)
    for seed, shape in enumerate([(1, 1, 4, 4), (2, 3, 5, 7), (8, 5, 32, 24)]):
        x = random(shape, seed=seed)
        y = native(x)
        assert y is not None, f"it ended with {native.done.returncode}: {native.done.stderr}"
        np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_native_program_refuses_without_permission(program, folder):
    native, x = Native(program, folder), random((2, 3, 5, 7))
    assert native(x) is not None, f"it does not run with permission: {native.done.stderr}"
    assert native(x, allow=False) is None, "it ran host code without --allow-host-code"
    code, said = native.done.returncode, (native.done.stdout + native.done.stderr).lower()
    assert code > 0, f"it ended with {code}"
    assert "host code" in said or "host-code" in said, f"the refusal does not say why: {said}"


def test_native_program_loads_no_python(program, folder):
    native = Native(program, folder)
    assert native(random((2, 3, 5, 7))) is not None, f"it does not run: {native.done.stderr}"
    lines = native.loader_lines()
    assert lines, "the dynamic loader said nothing"
    loaded = sorted({m for line in lines for m in re.findall(r"libpython[\w.]*", line)})
    assert not loaded, f"the program loaded {loaded}"
    started = {m for line in lines for m in re.findall(r"initialize program: (\S+)", line)}
    assert {Path(name).name for name in started} <= {Path(program).name}, f"it started {started}"


# ---- cases: errors ----


def test_wrong_results_of_aot_impl():
    good = compiled(ADD_ONE)
    launch, none = trtp.KernelLaunchParams, trtp.SymIntExprs
    results = {
        "code that is no shared object": lambda x: (
            "add_one",
            b"this is not code" * 10,
            launch(12),
            none(0),
        ),
        "a truncated shared object": lambda x: (
            "add_one",
            good[: len(good) // 3],
            launch(12),
            none(0),
        ),
        "empty code": lambda x: ("add_one", b"", launch(12), none(0)),
        "a name that is not in the code": lambda x: ("add_three", good, launch(12), none(0)),
        "three values": lambda x: ("add_one", good, launch(12)),
        "nothing": lambda x: None,
        "a number for the name": lambda x: (7, good, launch(12), none(0)),
        "a number for the code": lambda x: ("add_one", 7, launch(12), none(0)),
        "a tuple for the launch parameters": lambda x: ("add_one", good, (1, 1, 1), none(0)),
        "a list for the extra arguments": lambda x: ("add_one", good, launch(12), ["a"]),
    }

    def define(index, result):
        @trtp.register(f"acceptance::wrong{index}")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.aot_impl(f"acceptance::wrong{index}")
        def kernel(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> RESULT:
            return result(x)

        return getattr(trt.plugin.op.acceptance, f"wrong{index}")

    for index, (what, result) in enumerate(results.items()):
        assert error_of(ran, define(index, result)), f"{what} was accepted"
    assert ran(define_choice("fine", jit=False)) == "aot_impl"


def test_launch_parameters_and_extras_are_checked():
    params = trtp.KernelLaunchParams(grid_y=3, block_x=128, shared_mem=64)
    assert error_of(setattr, params, "grid_w", 1), (
        "KernelLaunchParams took a parameter that it does not have"
    )
    extras = trtp.SymIntExprs(2)
    assert len(extras) == 2 and error_of(extras.__setitem__, 2, trtp.SymInt32(1)), (
        "an index past the end was set"
    )
    assert error_of(extras.__setitem__, 0, "one"), "text was taken as an expression"
