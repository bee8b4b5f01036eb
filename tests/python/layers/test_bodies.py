"""What the bodies of loops and branches have like other layers: weights that an engine is refitted
with, and memory that counts."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model

import opwright as trt
from nets import CPU, Net, loaded
from onnx_graphs import HEAD, as_list, assert_close, reference_session

LOGGER = trt.Logger(trt.Logger.ERROR)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def weights(seed, **shapes):
    rng = np.random.default_rng(seed)
    return [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def model_of(text, seed, outside, inside=None):
    """Initializers of the graph, and of the bodies that have their names."""
    model = parse_model(HEAD + text)
    model.graph.initializer.extend(weights(seed, **outside))
    for attribute in model.graph.node[-1].attribute:
        for name, shape in (inside or {}).get(attribute.name, {}).items():
            attribute.g.initializer.extend(weights(seed + len(name), **{name: shape}))
    return model


def refittable(model, shapes=None):
    """What `build` gives, with the flag."""
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = CPU
    config.set_flag(trt.BuilderFlag.REFIT)
    network = builder.create_network()
    parser = trt.OnnxParser(network, LOGGER)
    assert parser.parse(model.SerializeToString())
    for name, span in (shapes or {}).items():
        profile = builder.create_optimization_profile()
        profile.set_shape(name, *span)
        config.add_optimization_profile(profile)
    return loaded(builder.build_serialized_network(network, config))


def check_refit(text, outside, inputs, inside=None, names=(), **options):
    first, other = (model_of(text, seed, outside, inside) for seed in (0, 7))
    engine = refittable(first, **options)
    refitter = trt.Refitter(engine.engine, LOGGER)
    assert set(names) <= set(refitter.get_all_weights())
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    for model in (first, other, first):
        assert parser.refit_from_bytes(model.SerializeToString())
        assert refitter.refit_cuda_engine()
        session = reference_session(model)
        for given in inputs:
            wanted = session.run(None, given)
            for a, b in zip(as_list(engine(**given)), wanted, strict=True):
                assert_close(a, np.asarray(b))
    return engine


LOOP = """
    net (int64 m, float[3, 4] x) => (float[3, 4] y) {
        y = Loop (m, , x) <
            body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {
                on = Identity (go)
                p = MatMul (s, w)
                q = Add (p, c)
                t = Tanh (q)
            }
        >
    }"""


def trips(*counts):
    return [{"m": np.array(m, np.int64), "x": X} for m in counts]


def test_weights_of_the_graph_that_a_loop_reads():
    check_refit(LOOP, {"w": (4, 4), "c": (4,)}, trips(0, 1, 5), names=["w", "c"])


def test_weights_of_the_body():
    check_refit(LOOP, {}, trips(1, 4), {"body": {"w": (4, 4), "c": (4,)}}, names=["w", "c"])


def test_weights_that_are_read_inside_and_outside():
    text = LOOP.replace("y = Loop", "z = MatMul (x, w)\n        y = Loop").replace(", x)", ", z)")
    check_refit(text, {"w": (4, 4), "c": (4,)}, trips(0, 3), names=["w", "c"])


BRANCHES = """
    net (bool c, float[n, 4] x) => (float[k, 4] y) {
        y = If (c) <
            then_branch = a () => (float[p, 4] r) {
                r = MatMul (x, w)
            },
            else_branch = b () => (float[q, 4] t) {
                u = Concat <axis = 0> (x, x)
                v = MatMul (u, w)
                t = Add (v, e)
            }
        >
    }"""


def test_weights_of_branches():
    inputs = [{"c": np.array(c), "x": X} for c in (True, False)]
    check_refit(
        BRANCHES,
        {"w": (4, 4)},
        inputs,
        {"else_branch": {"e": (4,)}},
        names=["w", "e"],
        shapes={"x": ((1, 4), (3, 4), (5, 4))},
    )


def test_a_convolution_in_a_body():
    text = """
        net (int64 m, float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[1, 3, 8, 8] s)
                    => (bool on, float[1, 3, 8, 8] t) {
                    on = Identity (go)
                    p = Conv <pads = [1, 1, 1, 1]> (s, w, c)
                    t = Tanh (p)
                }
            >
        }"""
    x = np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)
    inputs = [{"m": np.array(3, np.int64), "x": x}]
    check_refit(text, {"w": (3, 3, 3, 3), "c": (3,)}, inputs, names=["w", "c"])


def test_a_loop_in_a_loop():
    text = """
        net (int64 m, float[3, 4] x) => (float[3, 4] y) {
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {
                    on = Identity (go)
                    t = Loop (m, , s) <
                        body = d (int64 j, bool ga, float[3, 4] e) => (bool oa, float[3, 4] f) {
                            oa = Identity (ga)
                            p = MatMul (e, w)
                            f = Tanh (p)
                        }
                    >
                }
            >
        }"""
    check_refit(text, {"w": (4, 4)}, trips(1, 3), names=["w"])


TWICE = """
    net (int64 m, float[1, 4] x, bool c) => (float[1, 4] y, float[1, 4] t) {
        t = MatMul (x, w)
        y = If (c) <
            then_branch = a () => (float[1, 4] v) { v = MatMul (x, w) },
            else_branch = b () => (float[1, 4] u) { k = MatMul (x, w) u = Tanh (k) }
        >
    }"""


def test_weights_of_bodies_that_share_their_name():
    """The graph, both branches and an input's name: each has weights of its own."""

    def made(seed):
        model = parse_model(HEAD + TWICE)
        names = {"then_branch": "w", "else_branch": "m"}
        for attribute in model.graph.node[-1].attribute:
            name = names[attribute.name]
            for node in attribute.g.node:
                node.input[:] = [name if i == "w" else i for i in node.input]
            attribute.g.initializer.extend(weights(seed + len(attribute.name), **{name: (4, 4)}))
        model.graph.initializer.extend(weights(seed, w=(4, 4)))
        return model

    def results(model, c, x):
        outer = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        then, other = (
            numpy_helper.to_array(attribute.g.initializer[0])
            for attribute in sorted(model.graph.node[-1].attribute, key=lambda a: a.name)[::-1]
        )
        return [x @ then if c else np.tanh(x @ other), x @ outer["w"]]

    first, other = made(0), made(9)
    engine = refittable(first)
    refitter = trt.Refitter(engine.engine, LOGGER)
    assert {"w", "y/then_branch/w", "y/else_branch/m"} <= set(refitter.get_all_weights())
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    x = np.random.default_rng(2).standard_normal((1, 4)).astype(np.float32)
    for model in (first, other, first):
        assert parser.refit_from_bytes(model.SerializeToString())
        assert refitter.refit_cuda_engine()
        for c in (True, False):
            given = {"m": np.array(1), "x": x, "c": np.array(c)}
            given = {name: given[name] for name in engine.inputs}
            for a, b in zip(as_list(engine(**given)), results(model, c, x), strict=True):
                assert_close(a, b)


def test_constants_of_functions_are_refitted():
    def made(value):
        return parse_model(f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
            net (float[2] x) => (float[2] y) {{ z = own.scaled (x) y = own.scaled (z) }}
            <domain: "own", opset_import: ["" : 21]>
            scaled (a) => (b) {{ c = Constant <value = float[2] {{{value}, 3}}> () b = Mul (a, c) }}
        """)

    engine = refittable(made(2))
    refitter = trt.Refitter(engine.engine, LOGGER)
    assert refitter.get_all_weights() == ["own::scaled/c"]
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    assert parser.refit_from_bytes(made(5).SerializeToString())
    assert refitter.refit_cuda_engine()
    np.testing.assert_array_equal(engine(np.ones(2, np.float32)), [25, 9])


def limited(model, bytes_of_workspace):
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = CPU
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, bytes_of_workspace)
    network = builder.create_network()
    assert trt.OnnxParser(network, LOGGER).parse(model.SerializeToString())
    return builder, network, config


def test_the_workspace_of_bodies_is_bounded():
    wide = """
        net (int64 m, float[1, 65536] x) => (float[1, 65536] y) {
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[1, 65536] s) => (bool on, float[1, 65536] t) {
                    on = Identity (go)
                    p = CumSum (s, axis)
                    t = Tanh (p)
                }
            >
        }"""
    model = parse_model(HEAD + wide)
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
    builder, network, config = limited(model, 1 << 16)
    with pytest.raises(trt.Error, match=r"\(Loop\) needs a workspace of .*WORKSPACE"):
        builder.build_serialized_network(network, config)
    builder, network, config = limited(model, 1 << 24)
    assert len(bytes(builder.build_serialized_network(network, config))) > 0
    with pytest.raises(trt.Error, match=r"\(Loop\).*its body and its states.*build_memory"):
        trt.build(model, limits=trt.Limits(build_memory=1 << 19), timing=False)


def test_body_weights_that_the_model_lacks_are_named():
    model = model_of(LOOP, 0, {"w": (4, 4)}, {"body": {"c": (4,)}})
    other = model_of(LOOP, 1, {"w": (4, 4)}, {"body": {"c": (4,)}})
    refitter = trt.Refitter(refittable(model).engine, LOGGER)
    parser = trt.OnnxParserRefitter(refitter, LOGGER)
    other.graph.node[-1].attribute[0].g.initializer[0].name = "another"
    assert not parser.refit_from_bytes(other.SerializeToString())
    assert "'c'" in parser.get_error(0).desc()


def test_a_loop_of_the_api():
    """while x < 100: x = x * factor"""
    net = Net()
    x = net.input("x", trt.float32, (1, 1))
    loop = net.network.add_loop()
    state = loop.add_recurrence(x)
    flat = net.network.add_shuffle(state.get_output(0))
    flat.reshape_dims = ()
    goes_on = net.binary(flat.get_output(0), net.constant(100.0), "LESS")
    loop.add_trip_limit(goes_on, trt.TripLimit.WHILE)
    factor = net.constant([[2.0]])
    factor.name = "factor"
    state.set_input(1, net.binary(state.get_output(0), factor, "PROD"))
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    run = net.build([last.get_output(0)], flags=[trt.BuilderFlag.REFIT])
    x = np.ones((1, 1), np.float32)
    assert run(x=x)[0] == 128
    refitter = trt.Refitter(run.engine.engine, LOGGER)
    refitter.set_named_weights("factor", np.array([[3]], np.float32))
    assert refitter.refit_cuda_engine()
    assert run(x=x)[0] == 243


def test_refitted_engines_are_stored(tmp_path):
    first, other = (model_of(LOOP, seed, {"w": (4, 4), "c": (4,)}) for seed in (0, 7))
    engine = refittable(first)
    refitter = trt.Refitter(engine.engine, LOGGER)
    assert trt.OnnxParserRefitter(refitter, LOGGER).refit_from_bytes(other.SerializeToString())
    assert refitter.refit_cuda_engine()
    engine.save(tmp_path / "loop.engine")
    again = trt.load(tmp_path / "loop.engine")
    (given,) = trips(4)
    assert_close(as_list(again(**given))[0], reference_session(other).run(None, given)[0])


LARGE = """
    net (int64 m, float[1, 4] x) => (float[1, 4] y) {
        y = Loop (m, , x) <
            body = b (int64 i, bool go, float[1, 4] s) => (bool on, float[1, 4] t) {
                on = Identity (go)
                p = Add (s, w)
                q = CumSum (p, axis)
                t = ReduceMean <keepdims = 1> (q, axes)
            }
        >
    }"""


def large_model():
    """Whose body has tensors of 4 MB beside a state of 16 bytes."""
    model = model_of(LARGE, 0, {"w": (1 << 18, 4)})
    for name, value in {"axis": np.array(0, np.int64), "axes": np.array([0], np.int64)}.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def test_the_memory_of_a_body_counts():
    engine = trt.build(large_model().SerializeToString(), timing=False, device=CPU)
    assert engine.engine.device_memory_size_v2 >= 8 << 20
    given = {"m": np.array(2, np.int64), "x": np.ones((1, 4), np.float32)}
    wanted = reference_session(large_model()).run(None, given)[0]
    np.testing.assert_allclose(as_list(engine(**given))[0], wanted, rtol=1e-3)


def test_a_body_runs_in_the_memory_that_its_context_is_given():
    engine = trt.build(large_model().SerializeToString(), timing=False, device=CPU)
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = engine.engine.create_execution_context(strategy)
    size = engine.engine.device_memory_size_v2
    results = []
    for _ in range(2):  # other memory for the second run
        memory = np.empty(size + 64, np.uint8)
        context.set_device_memory(-(-memory.ctypes.data // 64) * 64, size)
        m, x, y = np.array(2, np.int64), np.ones((1, 4), np.float32), np.empty((1, 4), np.float32)
        for name, array in {"m": m, "x": x, "y": y}.items():
            context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0)
        results.append(y)
    np.testing.assert_array_equal(*results)
    wanted = reference_session(large_model()).run(None, {"m": m, "x": x})[0]
    np.testing.assert_allclose(results[0], wanted, rtol=1e-3)


def test_the_memory_of_branches_counts():
    model = model_of(BRANCHES, 0, {"w": (4, 4), "e": (4,)})
    shapes = {"x": ((1, 4), (3, 4), (1 << 17, 4))}
    engine = trt.build(model.SerializeToString(), timing=False, device=CPU, shapes=shapes)
    # The rows twice: 2^18 of 16 bytes.
    assert engine.engine.device_memory_size_v2 >= 4 << 20


def test_the_limit_of_memory_holds_for_bodies():
    model = large_model().SerializeToString()
    data = trt.build(model, timing=False, device=CPU).engine.serialize()
    with pytest.raises(trt.Error, match=r"limit of 6\.0 MiB \(memory\)"):
        loaded(data, limits=trt.Limits(memory=6 << 20))(
            m=np.array(2, np.int64), x=np.ones((1, 4), np.float32)
        )


class Messages(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.seen = []

    def log(self, severity, message):
        self.seen.append(message)


def test_the_logger_of_a_build_hears_of_bodies():
    model = parse_model(f"""{HEAD}
        net (int64 m, float[4, 8] x) => (float[4, 8] y) {{
            y = Loop (m, , x) <body = outer (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] t) {{
                on = Identity (go)
                u = Softmax (s)
                t = Loop (m, , u) <body = inner (int64 j, bool f, float[4, 8] v) => (bool h, float[4, 8] w) {{
                    h = Identity (f)
                    w = Softmax <axis = 0> (v)
                }}>
            }}>
        }}""")
    logger = Messages()
    trt.build(model, device="cpu", timing=False, logger=logger)
    told = [
        message for message in logger.seen if "(Softmax)" in message and "candidates" in message
    ]
    assert len(told) == 2, logger.seen
    assert sum(message.startswith("Compiled ") for message in logger.seen) == 1
