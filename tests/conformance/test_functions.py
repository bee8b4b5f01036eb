"""Decorator plugins, opwright.plugin.

The plugins compute with np.asarray over the tensors that impl receives; the references are computed another way.
Where TensorRT leaves several outcomes open, each of them passes. Those named beyond_ test what TensorRT refuses
and Opwright promises.
"""

import enum
import hashlib
import struct
import time
from typing import List, Tuple

import numpy as np
import numpy.typing as npt
import pytest

import opwright as trt
import opwright.plugin as trtp
from cases import (
    LOGGER,
    STRONGLY_TYPED,
    Boom,
    build,
    circular_pad,
    error_of,
    in_saved_engine,
    infer,
    load,
    mark,
    new_context,
    random,
    read,
    start,
)

SEEN = []  # a line for each call of impl, "FLOAT.LINEAR HALF.HWC 1": type and layout of each tensor, then the tactic


def note(tensors, tactic=0):
    SEEN.append(" ".join([*(f"{t.dtype.name}.{t.format.name}" for t in tensors), str(tactic)]))


def network_with(op, shapes, dtype=trt.float32, flags=0, profile=None, aliased=False):
    """A network of one decorator plugin: op(tensors) on inputs x0, x1 ..., its outputs are y0, y1 ..."""
    builder, network, config = start(flags)
    inputs = [network.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    layer = network.add_plugin(op(*inputs))
    assert layer is not None, "add_plugin returned None"
    for i in range(layer.num_outputs):
        mark(network, layer.get_output(i), f"y{i}")
    if profile:
        limits = builder.create_optimization_profile()
        for i in range(len(shapes)):
            limits.set_shape(f"x{i}", *profile)
        config.add_optimization_profile(limits)
    if aliased:
        config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    return builder, network, config


def engine_with(op, shapes, *arguments, **options):
    return load(build(*network_with(op, shapes, *arguments, **options)))


def define_add(with_autotune=False, name="add"):
    @trtp.register(f"acceptance::{name}")
    def describe(x: trtp.TensorDesc, value: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(f"acceptance::{name}")
    def run(x: trtp.Tensor, value: int, outputs: Tuple[trtp.Tensor], stream: int) -> None:
        assert stream == 0, f"the stream on the CPU is {stream}"
        note([x, *outputs])
        np.asarray(outputs[0])[...] = np.asarray(x) + np.asarray(x).dtype.type(value)

    if with_autotune:

        @trtp.autotune(f"acceptance::{name}")
        def tune(
            x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
        ) -> List[trtp.AutoTuneCombination]:
            return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16")]

    return getattr(trt.plugin.op.acceptance, name)


def define_add_in_place():
    @trtp.register("acceptance::add_")
    def describe(x: trtp.TensorDesc, value: int) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.autotune("acceptance::add_")
    def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
        return [
            trtp.AutoTuneCombination("FP32, FP32", "LINEAR*HWC"),
            trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR"),
        ]

    @trtp.impl("acceptance::add_")
    def run(x, value: int, outputs, stream) -> None:
        assert x.data_ptr == outputs[0].data_ptr, (
            "an aliased output has another address than its input"
        )
        assert outputs[0].get_aliased() is not None and outputs[0].is_aliased
        inside = np.asarray(x)
        assert inside.flags.writeable, "an input that an output is aliased to is read-only"
        inside += inside.dtype.type(value)

    return trt.plugin.op.acceptance.add_


def define_non_zero(count_type=None):
    @trtp.register("acceptance::non_zero")
    def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        upper = x.shape_expr[0] * x.shape_expr[1]
        count = trtp.size_tensor(upper // 2, upper)
        if count_type is not None:
            count.dtype = count_type
        return trtp.from_shape_expr((count.expr(), 2), dtype=trt.int32), count

    @trtp.impl("acceptance::non_zero")
    def run(x, outputs, stream) -> None:
        note([x, *outputs])
        found = np.argwhere(np.asarray(x))
        np.asarray(outputs[0].aliased(found.shape))[...] = found
        np.asarray(outputs[1])[...] = len(found)

    return trt.plugin.op.acceptance.non_zero


def define_circ_pad(autotune=True):
    @trtp.register("acceptance::circ_pad")
    def describe(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
        out = x.like()
        for i in range(np.size(pads) // 2):
            out.shape_expr[x.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
        return out

    @trtp.impl("acceptance::circ_pad")
    def run(
        x: trtp.Tensor,
        pads: npt.NDArray[np.int32],
        outputs: Tuple[trtp.Tensor],
        stream: int,
        tactic: int,
    ) -> None:
        note([x, *outputs], tactic)
        widths = [(0, 0)] * x.ndim
        for i in range(len(pads) // 2):
            widths[x.ndim - 1 - i] = (int(pads[2 * i]), int(pads[2 * i + 1]))
        np.asarray(outputs[0])[...] = np.pad(np.asarray(x), widths, mode="wrap")
        time.sleep(0.03 if tactic == 1 else 0)

    if autotune:

        @trtp.autotune("acceptance::circ_pad")
        def tune(
            x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
        ) -> List[trtp.AutoTuneCombination]:
            combination = trtp.AutoTuneCombination()
            combination.pos([0, 1], "FP32|FP16")
            combination.tactics([1, 2])
            return [combination]

    return trt.plugin.op.acceptance.circ_pad


PADS = np.array([2, 1, 1, 3], np.int32)


# ---- cases: computing ----


def test_add_without_autotune():
    op = define_add()
    x = random((2, 3, 8, 9))
    for flags in (0, STRONGLY_TYPED):
        y = infer(
            new_context(engine_with(lambda t: op(t, value=3), [x.shape], flags=flags)), {"x0": x}
        )["y0"]
        np.testing.assert_array_equal(y, x + 3)
    assert set(SEEN) == {"FLOAT.LINEAR FLOAT.LINEAR 0"}, f"{set(SEEN)}"


def test_add_fp16():
    op = define_add()
    x = random((2, 3, 8, 9), np.float16)
    engine = engine_with(lambda t: op(t, value=3), [x.shape], trt.float16, flags=STRONGLY_TYPED)
    np.testing.assert_array_equal(infer(new_context(engine), {"x0": x})["y0"], x + np.float16(3))
    assert set(SEEN) == {"HALF.LINEAR HALF.LINEAR 0"}, f"{set(SEEN)}"


def test_add_with_autotune():
    op = define_add(with_autotune=True)
    x = random((2, 3, 8, 9))
    engine = engine_with(lambda t: op(t, value=3), [x.shape])
    np.testing.assert_allclose(infer(new_context(engine), {"x0": x})["y0"], x + 3, atol=1e-2)
    assert set(SEEN) <= {"FLOAT.LINEAR FLOAT.LINEAR 0", "HALF.LINEAR HALF.LINEAR 0"}, f"{set(SEEN)}"
    SEEN.clear()
    engine = engine_with(lambda t: op(t, value=3), [x.shape], flags=STRONGLY_TYPED)
    SEEN.clear()
    np.testing.assert_array_equal(infer(new_context(engine), {"x0": x})["y0"], x + 3)
    assert SEEN == ["FLOAT.LINEAR FLOAT.LINEAR 0"], f"a strongly typed network ran {SEEN}"


def test_add_in_place_chain():
    op = define_add_in_place()
    builder, network, config = start()
    tensor = network.add_input("x", trt.float32, (2, 3, 8, 9))
    for value in (2, 4):
        tensor = network.add_plugin(op(tensor, value=value)).get_output(0)
    mark(network, tensor, "y")
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    context = new_context(load(build(builder, network, config)))
    x = random((2, 3, 8, 9))
    before = x.copy()
    assert context.set_tensor_address("x", x.ctypes.data) and context.set_tensor_address(
        "y", x.ctypes.data
    )
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(x, before + 6, atol=1e-2)
    # with addresses of their own the output is the same; the input may or may not have been changed
    x = before.copy()
    np.testing.assert_allclose(infer(context, {"x": x})["y"], before + 6, atol=1e-2)


def check_non_zero(op):
    engine = engine_with(op, [(-1, -1)], profile=[(1, 1), (16, 16), (64, 48)])
    context, generator = new_context(engine), np.random.default_rng(0)
    for shape, share in [((16, 16), 0.5), ((64, 48), 1.0), ((5, 7), 0.0), ((33, 3), 0.1)]:
        x = np.where(generator.random(shape) < share, generator.random(shape) + 1, 0).astype(
            np.float32
        )
        want = np.transpose(np.nonzero(x))
        outputs = infer(context, {"x0": x}, {"y0": (x.size, 2)})
        count = int(outputs["y1"])
        assert outputs["y1"].shape == () and count == len(want), (
            f"{shape}: {count}, expected {len(want)}"
        )
        np.testing.assert_array_equal(outputs["y0"][:count], want)


def test_non_zero():
    check_non_zero(define_non_zero())
    assert set(SEEN) == {"FLOAT.LINEAR INT32.LINEAR INT32.LINEAR 0"}, f"{set(SEEN)}"


def test_non_zero_int64_count():
    check_non_zero(define_non_zero(trt.int64))
    assert set(SEEN) == {"FLOAT.LINEAR INT32.LINEAR INT64.LINEAR 0"}, f"{set(SEEN)}"


def test_non_zero_extent_is_the_upper_bound():
    @trtp.register("acceptance::evens")
    def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.SizeTensorDesc]:
        count = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        assert count.is_size_tensor and count.expr().is_size_tensor and not x.is_size_tensor
        return trtp.from_shape_expr((count.expr(),), dtype=trt.float32), count

    extents = []

    @trtp.impl("acceptance::evens")
    def run(x, outputs, stream) -> None:
        extents.append(
            (tuple(outputs[0].shape), outputs[0].is_data_dependent, outputs[1].is_data_dependent)
        )
        even = np.asarray(x)[::2]
        np.asarray(outputs[0])[: len(even)] = even
        np.asarray(outputs[1])[...] = len(even)

    x = random((7,))
    outputs = infer(
        new_context(engine_with(trt.plugin.op.acceptance.evens, [(7,)])), {"x0": x}, {"y0": (7,)}
    )
    assert int(outputs["y1"]) == 4
    np.testing.assert_array_equal(outputs["y0"][:4], x[::2])
    assert extents[-1] == ((7,), True, False), (
        f"shape, is_data_dependent of both outputs: {extents[-1]}"
    )


def test_two_outputs_and_a_built_in_layer():
    @trtp.register("acceptance::both")
    def describe(x: trtp.TensorDesc, y: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        second = y.like()
        second.dtype = trt.float16
        return x.like(), second

    @trtp.impl("acceptance::both")
    def run(x, y, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x) - np.asarray(y)
        np.asarray(outputs[1])[...] = np.asarray(x) + np.asarray(y)

    builder, network, config = start(STRONGLY_TYPED)
    x, y = (network.add_input(name, trt.float32, (4, 5)) for name in "xy")
    negative = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    layer = network.add_plugin(trt.plugin.op.acceptance.both(x, negative))
    mark(network, network.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0), "a")
    mark(network, layer.get_output(1), "b")
    one, two = random((4, 5)), random((4, 5), seed=1)
    outputs = infer(new_context(load(build(builder, network, config))), {"x": one, "y": two})
    np.testing.assert_array_equal(outputs["a"], -(one + two))
    np.testing.assert_array_equal(outputs["b"], (one - two).astype(np.float16))


def test_circ_pad_network():
    op = define_circ_pad()
    x = random((2, 3, 8, 9))
    engine = engine_with(lambda t: op(t, pads=PADS), [x.shape])
    np.testing.assert_allclose(
        infer(new_context(engine), {"x0": x})["y0"], circular_pad(x, PADS), atol=1e-2
    )


def test_circ_pad_dynamic_shapes():
    op = define_circ_pad()
    limits = [(1, 3, 4, 4), (4, 3, 16, 16), (8, 3, 32, 24)]
    engine = engine_with(
        lambda t: op(t, pads=PADS), [(-1, 3, -1, -1)], flags=STRONGLY_TYPED, profile=limits
    )
    context = new_context(engine)
    for seed, shape in enumerate([*limits, (2, 3, 5, 7), limits[2]]):
        x = random(shape, seed=seed)
        np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], circular_pad(x, PADS))


def circ_pad_model(dtype="FLOAT", **attributes):
    from onnx import TensorProto, helper

    kind = getattr(TensorProto, dtype)
    node = helper.make_node("circ_pad", ["x"], ["y"], pads=PADS.tolist(), **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 3, 8, 9])],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = min(model.ir_version, 8)
    return model.SerializeToString()


def parse(network, model):
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse(model):
        raise RuntimeError(" ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))


def test_circ_pad_onnx():
    define_circ_pad()
    for dtype, kind in [("FLOAT", np.float32), ("FLOAT16", np.float16)]:
        for attributes in ({}, {"plugin_version": "1"}):
            builder, network, config = start(STRONGLY_TYPED)
            parse(network, circ_pad_model(dtype, plugin_namespace="acceptance", **attributes))
            x = random((2, 3, 8, 9), kind)
            y = infer(new_context(load(build(builder, network, config))), {"x": x})["y"]
            assert y.dtype == kind
            np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_circ_pad_onnx_wrong_namespace_or_version():
    define_circ_pad()
    for attributes in (
        {"plugin_namespace": "nowhere"},
        {"plugin_namespace": "acceptance", "plugin_version": "9"},
    ):
        _, network, _ = start()
        error = error_of(parse, network, circ_pad_model(**attributes))
        assert error and "circ_pad" in error, f"{attributes}: {error!r}"


def test_tactics():
    op = define_circ_pad()
    x = random((2, 3, 8, 9))
    engine = engine_with(lambda t: op(t, pads=PADS), [x.shape], flags=STRONGLY_TYPED)
    both = {"FLOAT.LINEAR FLOAT.LINEAR 1", "FLOAT.LINEAR FLOAT.LINEAR 2"}
    assert both <= set(SEEN) <= both | {line.replace("FLOAT", "HALF") for line in both}, (
        f"{set(SEEN)}"
    )
    SEEN.clear()
    np.testing.assert_array_equal(
        infer(new_context(engine), {"x0": x})["y0"], circular_pad(x, PADS)
    )
    assert SEEN == ["FLOAT.LINEAR FLOAT.LINEAR 2"], (
        f"tactic 2 is the fast one, the engine ran {SEEN}"
    )


# ---- cases: the grammar of combinations ----


def tuned(combinations, shapes=((2, 3, 8, 9),), dtypes=(trt.float32,)):
    """Builds an element-wise plugin with these combinations, checks its result, returns what the build ran."""
    count, name = len(shapes), f"tuned{len(QDP_NAMES)}"
    QDP_NAMES.append(name)

    def sum_of(tensors):
        return sum(np.asarray(t).astype(np.float32) for t in tensors)

    if count == 1:

        @trtp.register(f"acceptance::{name}")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl(f"acceptance::{name}")
        def run(x, outputs, stream, tactic) -> None:
            note([x, *outputs], tactic)
            np.asarray(outputs[0])[...] = sum_of([x])

        @trtp.autotune(f"acceptance::{name}")
        def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
            return combinations()

    else:

        @trtp.register(f"acceptance::{name}")
        def describe(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
            return y.like()

        @trtp.impl(f"acceptance::{name}")
        def run(x, y, outputs, stream, tactic) -> None:
            note([x, y, *outputs], tactic)
            np.asarray(outputs[0])[...] = sum_of([x, y])

        @trtp.autotune(f"acceptance::{name}")
        def tune(x, y, outputs) -> List[trtp.AutoTuneCombination]:
            return combinations()

    builder, network, config = start(STRONGLY_TYPED)
    inputs = [network.add_input(f"x{i}", dtypes[i], shapes[i]) for i in range(count)]
    layer = network.add_plugin(getattr(trt.plugin.op.acceptance, name)(*inputs))
    mark(network, layer.get_output(0), "y")
    SEEN.clear()
    engine = load(build(builder, network, config))
    seen = set(SEEN)
    data = {f"x{i}": random(shapes[i], trt.nptype(dtypes[i]), i) for i in range(count)}
    y = infer(new_context(engine), data)["y"]
    np.testing.assert_allclose(
        y.astype(np.float32), sum(d.astype(np.float32) for d in data.values()), atol=2e-2
    )
    return seen


QDP_NAMES = []
F, H = "FLOAT.LINEAR", "HALF.LINEAR"  # "FLOAT.HWC" is spelled out where it comes up


def check_tuned(seen, own, others=()):
    """What was run must be all combinations of the network's own types and all or none of those of other types.

    TensorRT before 11 also ran the other types; a strongly typed network, in TensorRT 11 every network, drops them.
    """
    own, others = set(own), set(others)
    assert seen in (own, own | others), (
        f"ran {sorted(seen)}, expected {sorted(own)}, with or without {sorted(others)}"
    )


def test_grammar_types_that_move_together():
    def combinations():
        return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [1, 2])]

    check_tuned(tuned(combinations), [f"{F} {F} 1", f"{F} {F} 2"], [f"{H} {H} 1", f"{H} {H} 2"])
    fp16 = tuned(combinations, dtypes=[trt.float16])
    check_tuned(fp16, [f"{H} {H} 1", f"{H} {H} 2"], [f"{F} {F} 1", f"{F} {F} 2"])


def test_grammar_types_free_of_each_other():
    def combinations():
        return [trtp.AutoTuneCombination("FP32*FP16, FP32|FP16, FP32|FP16", "LINEAR", [1, 2])]

    every = {f"{a} {b} {b} {tactic}" for a in (F, H) for b in (F, H) for tactic in (1, 2)}
    for first, second in [(F, F), (F, H), (H, F), (H, H)]:
        dtypes = [trt.float32 if t == F else trt.float16 for t in (first, second)]
        own = {f"{first} {second} {second} {tactic}" for tactic in (1, 2)}
        check_tuned(tuned(combinations, [(4, 5)] * 2, dtypes), own, every - own)


def test_grammar_layouts_that_move_together():
    def combinations():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR|HWC, LINEAR|HWC")]

    check_tuned(tuned(combinations), [f"{F} {F} 0", "FLOAT.HWC FLOAT.HWC 0"])


def test_grammar_layouts_free_of_each_other():
    def combinations():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR*HWC, LINEAR*HWC")]

    check_tuned(
        tuned(combinations), [f"{a} {b} 0" for a in (F, "FLOAT.HWC") for b in (F, "FLOAT.HWC")]
    )


def test_grammar_one_layout_stands_for_all():
    def combinations():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR*HWC", [5])]

    check_tuned(
        tuned(combinations), [f"{a} {b} 5" for a in (F, "FLOAT.HWC") for b in (F, "FLOAT.HWC")]
    )


def test_grammar_layouts_both_ways():
    def combinations():
        return [trtp.AutoTuneCombination("FP32, FP32, FP32", "LINEAR|HWC, LINEAR|HWC, LINEAR*HWC")]

    layouts = (F, "FLOAT.HWC")
    seen = tuned(combinations, [(2, 3, 8, 9)] * 2, [trt.float32] * 2)
    check_tuned(seen, [f"{a} {a} {b} 0" for a in layouts for b in layouts])


def test_grammar_pos():
    def combinations():
        combination = trtp.AutoTuneCombination()
        combination.pos([1, 2], "FP32|FP16", "LINEAR")
        combination.pos([0], "FP32*FP16")
        combination.tactics([1, 2])
        return [combination]

    every = {f"{a} {b} {b} {tactic}" for a in (F, H) for b in (F, H) for tactic in (1, 2)}
    own = {f"{H} {F} {F} {tactic}" for tactic in (1, 2)}
    check_tuned(tuned(combinations, [(4, 5)] * 2, [trt.float16, trt.float32]), own, every - own)


def test_grammar_pos_with_layouts():
    def combinations():
        combination = trtp.AutoTuneCombination()
        combination.pos([0, 1], "FP32", "LINEAR|HWC")
        combination.tactics([3])
        return [combination]

    check_tuned(tuned(combinations), [f"{F} {F} 3", "FLOAT.HWC FLOAT.HWC 3"])


def test_grammar_duplicates_merge_their_tactics():
    def combinations():
        return [
            trtp.AutoTuneCombination("FP32, FP32", "LINEAR|HWC, LINEAR|HWC", [1]),
            trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [2, 3]),
            trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [3, 4]),
        ]

    check_tuned(
        tuned(combinations),
        [*(f"{F} {F} {tactic}" for tactic in (1, 2, 3, 4)), "FLOAT.HWC FLOAT.HWC 1"],
    )


def test_grammar_impossible_combinations_are_dropped():
    def combinations():
        # no combination with INT32 can be: the network's tensors are floating-point, and HWC is for FP32 alone
        return [
            trtp.AutoTuneCombination("FP32|INT32, FP32|INT32", "LINEAR", [1, 2]),
            trtp.AutoTuneCombination("FP32*FP16, FP32*FP16", "HWC", [1]),
        ]

    seen = tuned(combinations)
    assert {f"{F} {F} 1", f"{F} {F} 2", "FLOAT.HWC FLOAT.HWC 1"} <= seen, f"{sorted(seen)}"
    assert not any("INT32" in line for line in seen), f"{sorted(seen)}"


def test_tuning_runs_every_combination_often_enough():
    inputs = []

    @trtp.register("acceptance::neg")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::neg")
    def run(x, outputs, stream, tactic) -> None:
        note([x, *outputs], tactic)
        inputs.append(np.array(x))
        np.asarray(outputs[0])[...] = -np.asarray(x)

    @trtp.autotune("acceptance::neg")
    def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR|HWC", [1, 2, 3])]

    builder, network, config = network_with(
        trt.plugin.op.acceptance.neg, [(2, 3, 8, 9)], flags=STRONGLY_TYPED
    )
    config.avg_timing_iterations = 4
    build(builder, network, config)
    counts = {line: SEEN.count(line) for line in SEEN}
    assert len(counts) == 6, f"{counts}"
    assert min(counts.values()) >= 5, f"4 timed runs and a warm-up were due: {counts}"
    assert all(x.shape == (2, 3, 8, 9) for x in inputs)
    assert all(np.isfinite(x).all() and np.ptp(x) > 0 for x in inputs), (
        "the inputs of the timed runs are not random"
    )


def test_grammar_errors():
    def both_separators():
        return [trtp.AutoTuneCombination("FP32|FP16*BF16, FP32", "LINEAR")]

    def different_lengths():
        return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16|BF16", "LINEAR")]

    def layouts_of_different_lengths():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR|HWC, LINEAR|HWC|CHW32")]

    def unknown_type():
        return [trtp.AutoTuneCombination("FP99, FP99", "LINEAR")]

    def unknown_layout():
        return [trtp.AutoTuneCombination("FP32, FP32", "DIAGONAL")]

    def too_few_entries():
        return [trtp.AutoTuneCombination("FP32", "LINEAR")]

    def layouts_for_some():
        return [trtp.AutoTuneCombination("FP32, FP32, FP32", "LINEAR, LINEAR")]

    def position_twice():
        combination = trtp.AutoTuneCombination()
        combination.pos([0, 1], "FP32")
        combination.pos([1], "FP16")
        return [combination]

    def tactic_zero():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [0, 1])]

    def tactic_negative():
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [-1])]

    def not_a_combination():
        return ["FP32, FP32"]

    wrong = [
        both_separators,
        different_lengths,
        layouts_of_different_lengths,
        unknown_type,
        unknown_layout,
    ]
    wrong += [
        too_few_entries,
        layouts_for_some,
        position_twice,
        tactic_zero,
        tactic_negative,
        not_a_combination,
    ]
    accepted = [action.__name__ for action in wrong if error_of(tuned, action) is None]
    assert not accepted, f"accepted: {', '.join(accepted)}"
    check_tuned(
        tuned(lambda: [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]),
        [f"{F} {F} 1", f"{F} {F} 2"],
    )


# ---- cases: descriptors and expressions ----


def value_of(expression):
    """A constant expression's value; TensorRT's `constant_value` is a method."""
    value = expression.constant_value
    return value() if callable(value) else value


EXPRESSIONS = """a + b; a + 1; 1 + a; a - b; a - 2; 10 - a; a * b; a * 3; 3 * a; a // b; a // 2; 100 // a; a == 7;
    7 == a; a == b; a < b; b < a; a < 8; 5 < a; cdiv(a, b); cdiv(a, 2); cdiv(15, a); max(a, b); max(a, 9); max(9, b);
    min(a, b); min(a, 9); min(3, b); 2 * (a - b) + 100 // (b + 1)"""
EXPRESSIONS = [text.strip() for text in EXPRESSIONS.split(";")]


def test_expressions_on_constants():
    """Every operation with an expression on either side, against Python's own integers."""
    results, fake = {}, []

    @trtp.register("acceptance::look")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        assert len(x.shape_expr) == 2 and len(list(x.shape_expr)) == 2
        a, b = x.shape_expr[0], x.shape_expr[1]
        fake.append(a.is_fake)
        if not a.is_fake:
            names = {"a": a, "b": b, "cdiv": trtp.cdiv, "max": trtp.max, "min": trtp.min}
            for text in EXPRESSIONS:
                expression = eval(text, names)
                assert expression.is_constant, f"{text} of constants is not constant"
                results[text] = value_of(expression)
            results["numel"] = value_of(x.shape_expr.numel())
            results["bool"] = [bool(a == 7), bool(a == 6)]
        return x.like()

    @trtp.impl("acceptance::look")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x)

    engine_with(trt.plugin.op.acceptance.look, [(7, 4)])
    assert results.pop("bool", None) == [True, False] and results.pop("numel", None) == 28
    names = {"a": 7, "b": 4, "cdiv": lambda p, q: -(-p // q)}
    wrong = {
        text: results.get(text)
        for text in EXPRESSIONS
        if results.get(text) != int(eval(text, names))
    }
    assert not wrong, f"for a = 7, b = 4: {wrong}"


def test_expressions_at_run_time():
    @trtp.register("acceptance::shapes")
    def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        a, b = x.shape_expr[0], x.shape_expr[1]
        first = (trtp.cdiv(a, 3), trtp.max(a, b) - trtp.min(a, b) + 1, 2 * a + b // 2)
        second = trtp.ShapeExprs.from_tuple(
            (trtp.min(a * b, 40), (a < b) + 1, (a == b) * 2 + 1, 20 - b)
        )
        return trtp.from_shape_expr(first, dtype=trt.float32), trtp.from_shape_expr(
            second, dtype=trt.int32
        )

    @trtp.impl("acceptance::shapes")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = 1.5
        np.asarray(outputs[1])[...] = 7

    engine = engine_with(
        trt.plugin.op.acceptance.shapes, [(-1, -1)], profile=[(1, 1), (5, 5), (12, 12)]
    )
    context = new_context(engine)
    for a, b in [(5, 5), (1, 12), (12, 1), (7, 4), (4, 7)]:
        outputs = infer(context, {"x0": random((a, b))})
        first = (-(-a // 3), max(a, b) - min(a, b) + 1, 2 * a + b // 2)
        second = (min(a * b, 40), (a < b) + 1, (a == b) * 2 + 1, 20 - b)
        assert (outputs["y0"].shape, outputs["y1"].shape) == (first, second), f"for {a}, {b}"
        assert (outputs["y0"] == 1.5).all() and (outputs["y1"] == 7).all()


def test_expressions_that_are_not_constant():
    results = {}

    @trtp.register("acceptance::unknown")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        a = x.shape_expr[0]
        if not a.is_fake:
            results["constant"] = a.is_constant
            results["value"] = error_of(value_of, a)
            results["bool"] = error_of(bool, a == 4)
        return x.like()

    @trtp.impl("acceptance::unknown")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x)

    engine_with(trt.plugin.op.acceptance.unknown, [(-1, 4)], profile=[(1, 4), (2, 4), (3, 4)])
    assert results["constant"] is False
    assert results["value"], "constant_value of an expression that is not constant gave no error"
    assert results["bool"], "bool() of a comparison that is not constant gave no error"


def test_descriptors():
    seen = {}

    @trtp.register("acceptance::inspect")
    def describe(x: trtp.TensorDesc, y: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        assert (x.ndim, x.dtype, x.has_shape_expr) == (4, trt.float32, True)
        assert not x.is_aliased and x.get_aliased() is None and not x.is_size_tensor
        for name, value in [("dtype", trt.float16), ("shape_expr", y.shape_expr)]:
            assert error_of(setattr, x, name, value), (
                f"{name} of a descriptor that was handed in can be set"
            )
        first, second = x.like(), y.aliased()
        first.dtype = trt.float16
        first.shape_expr[1] = 5
        assert (first.dtype, x.dtype) == (trt.float16, trt.float32), "like() changed its origin"
        assert second.is_aliased and second.get_aliased() is y
        return first, second

    @trtp.autotune("acceptance::inspect")
    def tune(x, y, outputs) -> List[trtp.AutoTuneCombination]:
        seen["x"] = (
            x.has_shape,
            x.is_dynamic,
            *(tuple(s) for s in (x.shape.min, x.shape.opt, x.shape.max)),
        )
        seen["y"] = (
            y.has_shape,
            y.is_dynamic,
            tuple(y.shape),
            y.shape.numel(),
            y.numel(),
            y.shape[1],
            len(y.shape),
        )
        seen["outputs"] = (len(outputs), outputs[0].shape.is_dynamic, tuple(outputs[0].shape.max))
        seen["x shape"] = tuple(x.shape)
        return [trtp.AutoTuneCombination("FP32, FP32, FP16, FP32", "LINEAR", [1, 2])]

    @trtp.impl("acceptance::inspect")
    def run(x, y, outputs, stream, tactic) -> None:
        np.asarray(outputs[0])[...] = 2

    builder, network, config = start(STRONGLY_TYPED)
    x, y = (
        network.add_input("x", trt.float32, (-1, 3, 8, -1)),
        network.add_input("y", trt.float32, (2, 6)),
    )
    layer = network.add_plugin(trt.plugin.op.acceptance.inspect(x, y))
    mark(network, layer.get_output(0), "first")
    mark(network, layer.get_output(1), "second")
    limits = builder.create_optimization_profile()
    limits.set_shape("x", (1, 3, 8, 2), (2, 3, 8, 4), (3, 3, 8, 6))
    config.add_optimization_profile(limits)
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    data = {"x": random((3, 3, 8, 2)), "y": random((2, 6))}
    outputs = infer(new_context(load(build(builder, network, config))), data)
    assert outputs["first"].shape == (3, 5, 8, 2) and outputs["first"].dtype == np.float16
    np.testing.assert_array_equal(outputs["second"], random((2, 6)))
    assert seen["x"] == (True, True, (1, 3, 8, 2), (2, 3, 8, 4), (3, 3, 8, 6)), f"{seen['x']}"
    assert seen["x shape"] == (-1, 3, 8, -1), f"{seen['x shape']}"
    assert seen["y"] == (True, False, (2, 6), 12, 12, 6, 2), f"{seen['y']}"
    assert seen["outputs"] == (2, True, (3, 5, 8, 6)), f"{seen['outputs']}"


def test_shape_objects():
    shape = trtp.Shape((2, 3, 4))
    assert len(shape) == 3 and tuple(shape) == (2, 3, 4) and shape[1] == 3 and shape.numel() == 24
    shape[0] += 5
    assert tuple(shape) == (7, 3, 4) and shape.numel() == 84 and not shape.is_dynamic
    assert trtp.Shape((-1, 3)).is_dynamic and error_of(trtp.Shape((-1, 3)).numel)


def test_tensors():
    seen = []

    @trtp.register("acceptance::tensors")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::tensors")
    def run(x, outputs, stream) -> None:
        y = outputs[0]
        for t in (x, y):
            assert (t.ndim, t.dtype, tuple(t.shape), t.numel()) == (3, trt.float32, (2, 3, 4), 24)
            assert tuple(t.strides) == (12, 4, 1), (
                f"strides {tuple(t.strides)}, they count elements"
            )
            assert t.format == trt.TensorFormat.LINEAR and not t.is_data_dependent
            assert isinstance(t.data_ptr, int) and t.data_ptr, f"data_ptr {t.data_ptr!r}"
            assert np.asarray(t).ctypes.data == t.data_ptr, "np.asarray made a copy"
            assert np.asarray(t).shape == (2, 3, 4) and np.asarray(t).dtype == np.float32
        assert not np.asarray(x).flags.writeable, "an input can be written to"
        assert np.asarray(y).flags.writeable
        assert np.from_dlpack(y).ctypes.data == y.data_ptr, "np.from_dlpack made a copy"
        flat = y.aliased((24,))
        assert flat.data_ptr == y.data_ptr and tuple(flat.shape) == (24,)
        assert tuple(y.aliased().shape) == (2, 3, 4)
        assert not x.is_aliased and not y.is_aliased and x.get_aliased() is None
        np.asarray(flat)[...] = np.asarray(x).ravel() * 2
        seen.append(len(outputs))

    x = random((2, 3, 4))
    y = infer(new_context(engine_with(trt.plugin.op.acceptance.tensors, [x.shape])), {"x0": x})[
        "y0"
    ]
    np.testing.assert_array_equal(y, x * 2)
    assert seen[-1] == 1


# ---- cases: attributes and saved engines ----

ATTRIBUTES = {
    "an_int": -(2**63),
    "another_int": 2**63 - 1,
    "a_float": 5e-324,
    "another_float": -0.0,
    "a_third": float("inf"),
    "yes": True,
    "no": False,
    "text": "naïve, 日本, 🙂 and 'quotes'",
    "data": bytes(range(256)) + b"\0",
    "one_byte": b"\x07",
    "i8": np.array([-128, 0, 127], np.int8),
    "i16": np.array([-32768, 0, 32767], np.int16),
    "i32": np.array([-(2**31), 0, 2**31 - 1], np.int32),
    "i64": np.array([-(2**63), 0, 2**63 - 1], np.int64),
    "f16": np.array([0.1, -0.0, np.inf, np.nan, 6e-8], np.float16),
    "f32": np.array([0.1, -0.0, np.inf, np.nan, 1e-45], np.float32),
    "f64": np.array([0.1, -0.0, -np.inf, np.nan, 5e-324], np.float64),
    "flags": np.array([True, False, True, True], np.bool_),
    "one": np.array([42], np.int32),
}


def digest(values):
    """32 bytes over the exact types and bits of the attributes, as eight int32."""
    sums = hashlib.sha256()
    for name, value in sorted(values.items()):
        kind = type(value).__name__
        if isinstance(value, np.ndarray):
            kind, bits = f"array {value.dtype.str} {value.shape}", value.tobytes()
        elif isinstance(value, float):
            bits = struct.pack("<d", value)
        else:
            bits = value.encode() if isinstance(value, str) else repr(value).encode()
        sums.update(f"{name} {kind} {len(bits)} ".encode() + bits)
    return np.frombuffer(sums.digest(), np.int32)


def define_attributes():
    @trtp.register("acceptance::attributes")
    def describe(
        x: trtp.TensorDesc,
        an_int: int,
        another_int: int,
        a_float: float,
        another_float: float,
        a_third: float,
        yes: bool,
        no: bool,
        text: str,
        data: bytes,
        one_byte: bytes,
        i8: npt.NDArray[np.int8],
        i16: npt.NDArray[np.int16],
        i32: npt.NDArray[np.int32],
        i64: npt.NDArray[np.int64],
        f16: npt.NDArray[np.float16],
        f32: npt.NDArray[np.float32],
        f64: npt.NDArray[np.float64],
        flags: npt.NDArray[np.bool_],
        one: npt.NDArray[np.int32],
    ) -> trtp.TensorDesc:
        return trtp.from_shape_expr((8,), dtype=trt.int32)

    @trtp.impl("acceptance::attributes")
    def run(
        x, an_int, another_int, a_float, another_float, a_third, yes, no, text, data, one_byte,
        i8, i16, i32, i64, f16, f32, f64, flags, one, outputs, stream,
    ) -> None:  # fmt: skip
        values = {name: value for name, value in locals().items() if name in ATTRIBUTES}
        np.asarray(outputs[0])[...] = digest(values)

    return trt.plugin.op.acceptance.attributes


def check_digest(engine):
    x = np.zeros((3,), np.float32)
    np.testing.assert_array_equal(infer(new_context(engine), {"x0": x})["y0"], digest(ATTRIBUTES))


def run_attributes(path):
    define_attributes()
    check_digest(load(read(path)))


def test_attributes_round_trip():
    op = define_attributes()
    check_digest(engine_with(lambda t: op(t, **ATTRIBUTES), [(3,)]))
    in_saved_engine(build(*network_with(lambda t: op(t, **ATTRIBUTES), [(3,)])), run_attributes)


def define_empty_attributes():
    @trtp.register("acceptance::empty")
    def describe(
        x: trtp.TensorDesc, text: str, data: bytes, numbers: npt.NDArray[np.int32]
    ) -> trtp.TensorDesc:
        return trtp.from_shape_expr((3,), dtype=trt.int32)

    @trtp.impl("acceptance::empty")
    def run(x, text, data, numbers, outputs, stream) -> None:
        assert (type(text), type(data), numbers.dtype) == (str, bytes, np.int32)
        np.asarray(outputs[0])[...] = [len(text) + 1, len(data) + 2, len(numbers) + 3]

    return trt.plugin.op.acceptance.empty


def run_empty_attributes(path):
    define_empty_attributes()
    outputs = infer(new_context(load(read(path))), {"x0": np.zeros((3,), np.float32)})
    np.testing.assert_array_equal(outputs["y0"], [1, 2, 3])


def test_attributes_that_are_empty():
    op = define_empty_attributes()
    nothing = {"text": "", "data": b"", "numbers": np.array([], np.int32)}
    in_saved_engine(build(*network_with(lambda t: op(t, **nothing), [(3,)])), run_empty_attributes)


SECRET = hashlib.shake_256(b"secret").digest(5000)


def test_attributes_in_impl_are_a_subset_in_any_order():
    @trtp.register("acceptance::subset")
    def describe(
        x: trtp.TensorDesc, rows: int, secret: bytes, scale: float, shift: int
    ) -> trtp.TensorDesc:
        return trtp.from_shape_expr((rows, x.shape_expr[0]), dtype=trt.float32)

    @trtp.impl("acceptance::subset")
    def run(x, shift, scale, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x) * np.float32(scale) + np.float32(shift)

    op = trt.plugin.op.acceptance.subset
    plan = build(*network_with(lambda t: op(t, rows=4, secret=SECRET, scale=0.5, shift=-3), [(5,)]))
    x = random((5,))
    y = infer(new_context(load(plan)), {"x0": x})["y0"]
    np.testing.assert_allclose(y, np.tile(x * 0.5 - 3, (4, 1)), rtol=1e-6)
    assert SECRET not in bytes(plan), "an attribute that impl does not take is stored in the engine"


def test_attributes_of_two_instances():
    op = define_add()
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (4, 5))
    for value, name in [(1, "a"), (1000, "b")]:
        mark(network, network.add_plugin(op(x, value=value)).get_output(0), name)
    data = random((4, 5))
    outputs = infer(new_context(load(build(builder, network, config))), {"x": data})
    np.testing.assert_array_equal(outputs["a"], data + 1)
    np.testing.assert_array_equal(outputs["b"], data + 1000)


def test_attributes_from_onnx():
    from onnx import TensorProto, helper

    received = {}

    @trtp.register("acceptance::from_onnx")
    def describe(
        x: trtp.TensorDesc,
        count: int,
        ratio: float,
        on: bool,
        text: str,
        i64: npt.NDArray[np.int64],
        f32: npt.NDArray[np.float32],
    ) -> trtp.TensorDesc:
        received.update(count=count, ratio=ratio, on=on, text=text, i64=i64, f32=f32)
        return x.like()

    @trtp.impl("acceptance::from_onnx")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x)

    values = {
        "count": 7,
        "ratio": 0.25,
        "on": 1,
        "text": "some text",
        "i64": [1, -2, 2**40],
        "f32": [0.5, -1.5],
    }
    node = helper.make_node("from_onnx", ["x"], ["y"], plugin_namespace="acceptance", **values)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 5]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", infos[:1], infos[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = min(model.ir_version, 8)
    builder, network, config = start()
    parse(network, model.SerializeToString())
    build(builder, network, config)
    assert (received["count"], received["ratio"], received["text"]) == (7, 0.25, "some text"), (
        f"{received}"
    )
    assert received["on"] is True and (type(received["count"]), type(received["ratio"])) == (
        int,
        float,
    )
    assert received["i64"].dtype == np.int64 and received["i64"].tolist() == [1, -2, 2**40]
    assert received["f32"].dtype == np.float32 and received["f32"].tolist() == [0.5, -1.5]


def run_circ_pad(path):
    define_circ_pad(autotune=False)
    context = new_context(load(read(path)))
    for seed, shape in enumerate([(1, 3, 4, 4), (8, 3, 32, 24), (2, 3, 5, 7)]):
        x = random(shape, seed=seed)
        np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], circular_pad(x, PADS))
    assert set(SEEN) == {"FLOAT.LINEAR FLOAT.LINEAR 2"}, f"{set(SEEN)}"


def test_saved_engine_needs_register_and_impl_only():
    op = define_circ_pad()
    limits = [(1, 3, 4, 4), (4, 3, 16, 16), (8, 3, 32, 24)]
    network = network_with(
        lambda t: op(t, pads=PADS), [(-1, 3, -1, -1)], profile=limits, flags=STRONGLY_TYPED
    )
    in_saved_engine(build(*network), run_circ_pad)


TUNED = [
    ("FP32, FP32", "HWC"),
    ("FP16, FP16", "LINEAR"),
    ("FP32, FP16", "LINEAR"),
    ("BF16, FP32", "LINEAR"),
    ("INT8, FP32", "LINEAR"),
]


def define_copy(types=None, layout=None, of=None):
    """With a type `of` what autotune gives is for networks of that type; for others it is BF16."""

    @trtp.register("acceptance::copy")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::copy")
    def run(x, outputs, stream, tactic) -> None:
        note([x, *outputs], tactic)
        real = np.asarray(x).astype(np.float32) * (x.scale if x.dtype == trt.int8 else 1)
        np.asarray(outputs[0])[...] = real

    if types:

        @trtp.autotune("acceptance::copy")
        def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
            is_other = of and x.dtype != of
            return [trtp.AutoTuneCombination("BF16, BF16" if is_other else types, layout, [7])]

    return trt.plugin.op.acceptance.copy


def run_copy(path):
    define_copy()
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(read(path))), {"x0": x})["y0"]
    np.testing.assert_allclose(y, x, atol=0.02)
    print(SEEN[-1])


@pytest.mark.parametrize("types, layout", TUNED)
def test_saved_engine_runs_as_it_was_tuned(types, layout):
    """Types and layouts, too, are taken as they are where no autotune is there to be asked."""
    builder, network, config = network_with(define_copy(types, layout), [(2, 3, 8, 9)])
    for flag in (trt.BuilderFlag.FP16, trt.BuilderFlag.BF16, trt.BuilderFlag.INT8):
        config.set_flag(flag)
    network.get_input(0).set_dynamic_range(-4, 4)
    said = in_saved_engine(build(builder, network, config), run_copy)
    assert said.strip() == SEEN[-1] and said.strip().endswith(" 7"), f"{said}, built with {SEEN}"


def run_half_of_float(path):
    define_copy("FP16, FP16", "LINEAR", trt.float32)
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(read(path))), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x.astype(np.float16))


def test_autotune_may_look_at_the_networks_types():
    """Where an engine is loaded its functions are asked in the same way."""
    op = define_copy("FP16, FP16", "LINEAR", trt.float32)
    builder, network, config = network_with(op, [(2, 3, 8, 9)])
    config.set_flag(trt.BuilderFlag.FP16)
    in_saved_engine(build(builder, network, config), run_half_of_float)


def load_without_definitions(path):
    class Log(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)
            self.text = ""

        def log(self, severity, message):
            self.text += message

    log = Log()
    try:
        engine = trt.Runtime(log).deserialize_cuda_engine(read(path))
    except Exception as problem:
        engine, log.text = None, str(problem)
    print("loaded" if engine else f"refused: {log.text}")


def test_saved_engine_without_definitions_is_refused():
    op = define_circ_pad()
    said = in_saved_engine(
        build(*network_with(lambda t: op(t, pads=PADS), [(2, 3, 8, 9)])), load_without_definitions
    )
    assert "refused" in said, "an engine loaded without the definition of its plugin"
    assert "circ_pad" in said and "acceptance" in said, (
        f"the message does not name the plugin: {said}"
    )


# ---- cases: registering ----


def test_registered_at_once_or_lazily():
    registry = trt.get_plugin_registry()
    define_add(name="eager")
    assert registry.get_creator("eager", "1", "acceptance") is not None

    @trtp.register("acceptance::lazy", lazy_register=True)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::lazy")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = -np.asarray(x)

    assert registry.get_creator("lazy", "1", "acceptance") is None, (
        "lazy_register=True registered the creator at once"
    )
    x = random((4, 5))
    y = infer(new_context(engine_with(trtp.op.acceptance.lazy, [(4, 5)])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, -x)
    assert registry.get_creator("lazy", "1", "acceptance") is not None


def test_registered_again():
    def define(value):
        """Like a notebook cell that is run again: the same source location."""

        @trtp.register("acceptance::again")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl("acceptance::again")
        def run(x, outputs, stream) -> None:
            np.asarray(outputs[0])[...] = np.asarray(x) + value

    def define_elsewhere():
        @trtp.register("acceptance::again")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    x = random((4, 5))
    for value in (1, 2, 3):
        define(value)
        y = infer(new_context(engine_with(trt.plugin.op.acceptance.again, [(4, 5)])), {"x0": x})[
            "y0"
        ]
        np.testing.assert_array_equal(y, x + np.float32(value))
    assert error_of(define_elsewhere), "a second definition of an ID, somewhere else, was accepted"
    y = infer(new_context(engine_with(trt.plugin.op.acceptance.again, [(4, 5)])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x + 3)


def test_names_in_op():
    define_add()
    assert trt.plugin.op is trtp.op and hasattr(trtp.op.acceptance, "add")
    assert not hasattr(trtp.op.acceptance, "subtract") and not hasattr(trtp.op, "elsewhere")


def test_register_errors():
    def no_hint_on_a_tensor():
        @trtp.register("bad::no_hint_on_a_tensor")
        def f(x) -> trtp.TensorDesc:
            return x.like()

    def no_hint_on_an_attribute():
        @trtp.register("bad::no_hint_on_an_attribute")
        def f(x: trtp.TensorDesc, a) -> trtp.TensorDesc:
            return x.like()

    def no_return_hint():
        @trtp.register("bad::no_return_hint")
        def f(x: trtp.TensorDesc):
            return x.like()

    def attribute_before_the_tensors():
        @trtp.register("bad::attribute_before_the_tensors")
        def f(a: int, x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    def attribute_between_tensors():
        @trtp.register("bad::attribute_between_tensors")
        def f(x: trtp.TensorDesc, a: int, y: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    def dict_attribute():
        @trtp.register("bad::dict_attribute")
        def f(x: trtp.TensorDesc, a: dict) -> trtp.TensorDesc:
            return x.like()

    def complex_attribute():
        @trtp.register("bad::complex_attribute")
        def f(x: trtp.TensorDesc, a: complex) -> trtp.TensorDesc:
            return x.like()

    def complex_array():
        @trtp.register("bad::complex_array")
        def f(x: trtp.TensorDesc, a: npt.NDArray[np.complex64]) -> trtp.TensorDesc:
            return x.like()

    def array_without_dtype():
        @trtp.register("bad::array_without_dtype")
        def f(x: trtp.TensorDesc, a: np.ndarray) -> trtp.TensorDesc:
            return x.like()

    def returns_an_int():
        @trtp.register("bad::returns_an_int")
        def f(x: trtp.TensorDesc) -> int:
            return 1

    def returns_a_tuple_of_int():
        @trtp.register("bad::returns_a_tuple_of_int")
        def f(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, int]:
            return x.like(), 1

    def id_without_namespace():
        @trtp.register("no_namespace")
        def f(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    def id_with_three_parts():
        @trtp.register("bad::three::parts")
        def f(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    def dot_in_namespace():
        @trtp.register("bad.dot::name")
        def f(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    def dot_in_name():
        @trtp.register("bad::dot.name")
        def f(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    wrong = [
        no_hint_on_a_tensor,
        no_hint_on_an_attribute,
        no_return_hint,
        attribute_before_the_tensors,
    ]
    wrong += [
        attribute_between_tensors,
        dict_attribute,
        complex_attribute,
        complex_array,
        array_without_dtype,
    ]
    wrong += [
        returns_an_int,
        returns_a_tuple_of_int,
        id_without_namespace,
        id_with_three_parts,
        dot_in_namespace,
    ]
    wrong += [dot_in_name]
    check_refused(wrong)


def check_refused(wrong):
    """Each function must raise, with a message; afterwards a correct plugin works."""
    accepted, silent = [], []
    for action in wrong:
        try:
            action()
        except Exception as problem:
            silent += [] if str(problem) else [action.__name__]
        else:
            accepted.append(action.__name__)
    assert not accepted, f"accepted: {', '.join(accepted)}"
    assert not silent, f"refused without a word: {', '.join(silent)}"
    op, x = define_add(name="fine"), random((4, 5))
    y = infer(new_context(engine_with(lambda t: op(t, value=2), [(4, 5)])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x + 2)


def define_described(name):
    @trtp.register(f"acceptance::{name}")
    def describe(x: trtp.TensorDesc, value: int, ratio: float) -> trtp.TensorDesc:
        return x.like()

    return f"acceptance::{name}"


def test_impl_errors():
    target = define_described("target")

    def of_an_unregistered_plugin():
        @trtp.impl("acceptance::never_registered")
        def f(x, outputs, stream):
            pass

    def unknown_attribute():
        @trtp.impl(target)
        def f(x, volume, outputs, stream):
            pass

    def no_outputs():
        @trtp.impl(target)
        def f(x, stream):
            pass

    def no_stream():
        @trtp.impl(target)
        def f(x, outputs):
            pass

    def no_tensor():
        @trtp.impl(target)
        def f(value, outputs, stream):
            pass

    def other_type_of_attribute():
        @trtp.impl(target)
        def f(x, value: float, outputs, stream):
            pass

    def descriptor_for_a_tensor():
        @trtp.impl(target)
        def f(x: trtp.TensorDesc, outputs, stream):
            pass

    def outputs_not_a_tuple():
        @trtp.impl(target)
        def f(x, outputs: trtp.Tensor, stream):
            pass

    def stream_not_an_int():
        @trtp.impl(target)
        def f(x, outputs, stream: str):
            pass

    def tactic_not_an_int():
        @trtp.impl(target)
        def f(x, outputs, stream, tactic: str):
            pass

    def returns_something():
        @trtp.impl(target)
        def f(x, outputs, stream) -> int:
            pass

    wrong = [
        of_an_unregistered_plugin,
        unknown_attribute,
        no_outputs,
        no_stream,
        no_tensor,
        other_type_of_attribute,
    ]
    wrong += [
        descriptor_for_a_tensor,
        outputs_not_a_tuple,
        stream_not_an_int,
        tactic_not_an_int,
        returns_something,
    ]
    check_refused(wrong)


def test_autotune_errors():
    target = define_described("target")

    def of_an_unregistered_plugin():
        @trtp.autotune("acceptance::never_registered")
        def f(x, outputs):
            return []

    def unknown_attribute():
        @trtp.autotune(target)
        def f(x, volume, outputs):
            return []

    def no_outputs():
        @trtp.autotune(target)
        def f(x):
            return []

    def no_tensor():
        @trtp.autotune(target)
        def f(value, outputs):
            return []

    def other_type_of_attribute():
        @trtp.autotune(target)
        def f(x, value: float, outputs):
            return []

    def tensor_for_a_descriptor():
        @trtp.autotune(target)
        def f(x: trtp.Tensor, outputs):
            return []

    def returns_ints():
        @trtp.autotune(target)
        def f(x, outputs) -> List[int]:
            return []

    wrong = [
        of_an_unregistered_plugin,
        unknown_attribute,
        no_outputs,
        no_tensor,
        other_type_of_attribute,
    ]
    check_refused([*wrong, tensor_for_a_descriptor, returns_ints])


def test_aot_impl_errors():
    target = define_described("target")

    def of_an_unregistered_plugin():
        @trtp.aot_impl("acceptance::never_registered")
        def f(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int) -> AOT_RESULT:
            pass

    def unknown_attribute():
        @trtp.aot_impl(target)
        def f(
            x: trtp.TensorDesc, volume: int, outputs: Tuple[trtp.TensorDesc], tactic: int
        ) -> AOT_RESULT:
            pass

    def no_outputs():
        @trtp.aot_impl(target)
        def f(x: trtp.TensorDesc, tactic: int) -> AOT_RESULT:
            pass

    def no_tactic():
        @trtp.aot_impl(target)
        def f(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]) -> AOT_RESULT:
            pass

    def other_type_of_attribute():
        @trtp.aot_impl(target)
        def f(
            x: trtp.TensorDesc, value: str, outputs: Tuple[trtp.TensorDesc], tactic: int
        ) -> AOT_RESULT:
            pass

    check_refused(
        [
            of_an_unregistered_plugin,
            unknown_attribute,
            no_outputs,
            no_tactic,
            other_type_of_attribute,
        ]
    )


AOT_RESULT = Tuple[str | bytes, str | bytes, trtp.KernelLaunchParams, trtp.SymExprs]


def test_call_errors_name_the_plugin():
    @trtp.register("acceptance::picky")
    def describe(
        x: trtp.TensorDesc, value: int, text: str, numbers: npt.NDArray[np.int32]
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::picky")
    def run(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x)

    builder, network, config = start()
    x = network.add_input("x", trt.float32, (4, 5))
    op, good = (
        trt.plugin.op.acceptance.picky,
        {"value": 1, "text": "t", "numbers": np.array([1], np.int32)},
    )
    calls = {
        "a missing attribute": ([x], {"value": 1, "text": "t"}),
        "an unknown attribute": ([x], {**good, "volume": 11}),
        "text for an int": ([x], {**good, "value": "1"}),
        "an int for text": ([x], {**good, "text": 1}),
        "None for an int": ([x], {**good, "value": None}),
        "another dtype": ([x], {**good, "numbers": np.array([1.5], np.float64)}),
        "text for an array": ([x], {**good, "numbers": "1"}),
        "no tensor": ([], good),
        "two tensors": ([x, x], good),
        "an array for a tensor": ([np.zeros((4, 5), np.float32)], good),
        "None for a tensor": ([None], good),
    }
    for what, (tensors, attributes) in calls.items():
        error = error_of(lambda t=tensors, a=attributes: network.add_plugin(op(*t, **a)))
        assert error, f"{what} was accepted"
        assert "picky" in error, f"the error for {what} does not name the plugin: {error!r}"
    mark(network, network.add_plugin(op(x, **good)).get_output(0), "y")
    data = random((4, 5))
    np.testing.assert_array_equal(
        infer(new_context(load(build(builder, network, config))), {"x": data})["y"], data
    )


# ---- cases: errors in the user's functions ----


def test_errors_in_functions():
    broken = {"where": None}

    def maybe(where):
        if broken["where"] == where:
            raise Boom(f"raised on purpose in {where}")

    @trtp.register("acceptance::fragile")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        maybe("register with placeholders" if x.shape_expr[0].is_fake else "register with shapes")
        return x.like()

    @trtp.autotune("acceptance::fragile")
    def tune(x, outputs) -> List[trtp.AutoTuneCombination]:
        maybe("autotune")
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.impl("acceptance::fragile")
    def run(x, outputs, stream, tactic) -> None:
        maybe("impl")
        np.asarray(outputs[0])[...] = -np.asarray(x)

    x = random((4, 5))

    def whole_way():
        engine = engine_with(trt.plugin.op.acceptance.fragile, [(4, 5)])
        np.testing.assert_array_equal(infer(new_context(engine), {"x0": x})["y0"], -x)

    for where in ("register with shapes", "autotune", "impl"):
        for _ in range(2):
            broken["where"] = where
            assert error_of(whole_way), f"an error in {where} went unnoticed"
            broken["where"] = None
            whole_way()
    context = new_context(engine_with(trt.plugin.op.acceptance.fragile, [(4, 5)]))
    for _ in range(3):
        broken["where"] = "impl"
        assert error_of(infer, context, {"x0": x}), "an error in impl at run time went unnoticed"
        broken["where"] = None
        np.testing.assert_array_equal(infer(context, {"x0": x})["y0"], -x)


def test_wrong_results_of_register():
    def one(name, result):
        @trtp.register(f"acceptance::{name}")
        def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return result(x)

        return implemented(name)

    def two(name, result):
        @trtp.register(f"acceptance::{name}")
        def describe(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
            return result(x)

        return implemented(name)

    def implemented(name):
        @trtp.impl(f"acceptance::{name}")
        def run(x, outputs, stream) -> None:
            pass

        return getattr(trt.plugin.op.acceptance, name)

    def size(x):
        return trtp.size_tensor(x.shape_expr[0], x.shape_expr[0])

    wrong = {
        "nothing": one("nothing", lambda x: None),
        "a number": one("number", lambda x: 7),
        "two descriptors for one": one("two_for_one", lambda x: (x.like(), x.like())),
        "one descriptor for two": two("one_for_two", lambda x: x.like()),
        "an extent whose size tensor is no output": one(
            "stray", lambda x: trtp.from_shape_expr((size(x).expr(),), dtype=trt.float32)
        ),
    }
    for what, op in wrong.items():
        assert error_of(engine_with, op, [(4, 5)]), f"{what} was accepted"


# ---- cases: what goes beyond TensorRT ----


def test_beyond_attributes_by_position():
    op, x = define_add(), random((4, 5))
    y = infer(new_context(engine_with(lambda t: op(t, 6), [(4, 5)])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, x + 6)


def test_beyond_pos_takes_an_int():
    def combinations():
        combination = trtp.AutoTuneCombination()
        combination.pos(0, "FP32")
        combination.pos(1, "FP32")
        combination.tactics([1, 2])
        return [combination]

    check_tuned(tuned(combinations), [f"{F} {F} 1", f"{F} {F} 2"])


def test_beyond_default_values():
    @trtp.register("acceptance::defaults")
    def describe(x: trtp.TensorDesc, value: int = 5, ratio: float = 0.5) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::defaults")
    def run(x, value, ratio, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = np.asarray(x) * np.float32(ratio) + np.float32(value)

    op, x = trt.plugin.op.acceptance.defaults, random((4, 5))
    for attributes, want in [
        ({}, x * 0.5 + 5),
        ({"value": 1}, x * 0.5 + 1),
        ({"ratio": 2.0, "value": 0}, x * 2),
    ]:
        engine = engine_with(lambda t, a=attributes: op(t, **a), [(4, 5)])
        np.testing.assert_allclose(infer(new_context(engine), {"x0": x})["y0"], want, rtol=1e-6)


class Mode(enum.IntEnum):
    UP = 1
    DOWN = 2


def define_rich():
    @trtp.register("acceptance::rich")
    def describe(
        x: trtp.TensorDesc,
        sizes: List[int],
        names: Tuple[str, ...],
        grid: npt.NDArray[np.float32],
        mode: Mode,
    ) -> trtp.TensorDesc:
        return trtp.from_shape_expr((5,), dtype=trt.float32)

    @trtp.impl("acceptance::rich")
    def run(x, sizes, names, grid, mode, outputs, stream) -> None:
        assert (list(sizes), tuple(names), mode) == ([3, -1, 2**40], ("a", "", "ü"), Mode.DOWN)
        assert (type(sizes), type(names), type(mode)) == (list, tuple, Mode)
        assert grid.shape == (2, 2) and grid.dtype == np.float32
        np.asarray(outputs[0])[...] = [len(sizes), *grid.ravel()]

    return trt.plugin.op.acceptance.rich


def run_rich(path):
    define_rich()
    outputs = infer(new_context(load(read(path))), {"x0": np.zeros((3,), np.float32)})
    np.testing.assert_array_equal(outputs["y0"], [3, 1, 2, 3, 4])


def test_beyond_lists_tuples_matrices_enums():
    op = define_rich()
    grid = np.array([[1, 2], [3, 4]], np.float32)
    rich = {"sizes": [3, -1, 2**40], "names": ("a", "", "ü"), "grid": grid, "mode": Mode.DOWN}
    in_saved_engine(build(*network_with(lambda t: op(t, **rich), [(3,)])), run_rich)


def test_beyond_impl_for_a_device():
    @trtp.register("acceptance::devices")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("acceptance::devices", device="cuda")
    def run_on_cuda(x, outputs, stream) -> None:
        raise AssertionError("the implementation for CUDA ran on the CPU")

    @trtp.impl("acceptance::devices", device="cpu")
    def run_on_cpu(x, outputs, stream) -> None:
        np.asarray(outputs[0])[...] = -np.asarray(x)

    x = random((4, 5))
    y = infer(new_context(engine_with(trt.plugin.op.acceptance.devices, [(4, 5)])), {"x0": x})["y0"]
    np.testing.assert_array_equal(y, -x)
