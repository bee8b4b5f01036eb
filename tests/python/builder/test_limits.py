"""What files and models may make the process spend, through every interface."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

import emulated_gpu
import opwright

ESCAPES = "y\x1b]0;title\x07\x9b2J\u202eend"


def model(nodes, inputs, outputs, tensors=()) -> onnx.ModelProto:
    """Of FP32, with shapes by name and initializers."""
    value = lambda item: helper.make_tensor_value_info(item[0], TensorProto.FLOAT, item[1])  # noqa: E731
    graph = helper.make_graph(
        nodes, "small", [*map(value, inputs.items())], [*map(value, outputs.items())], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _doubling(count: int) -> onnx.ModelProto:
    """A constant of 4 KiB, doubled by so many concatenations."""
    nodes = [
        helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0, name=f"double_{i}")
        for i in range(count)
    ]
    nodes.append(helper.make_node("Add", ["x", f"c{count}"], ["y"]))
    size = 1024 << count
    constant = helper.make_tensor("c0", TensorProto.FLOAT, [1024], np.ones(1024, np.float32))
    return model(nodes, {"x": [1]}, {"y": [size]}, [constant])


def _negation(*shape: int) -> onnx.ModelProto:
    return model([helper.make_node("Neg", ["x"], ["y"], name="negate")], {"x": shape}, {"y": shape})


def test_limits_are_a_value():
    assert opwright.Limits() == opwright.Limits(memory=0)
    assert repr(opwright.Limits()) == "Limits()"
    limits = opwright.Limits(
        memory=1, steps=2, expressions=3, run_seconds=0.5, build_memory=4, build_seconds=60
    )
    assert (limits.memory, limits.steps, limits.expressions) == (1, 2, 3)
    assert (limits.run_seconds, limits.build_memory, limits.build_seconds) == (0.5, 4, 60)
    assert eval(repr(limits), {"Limits": opwright.Limits}) == limits
    assert limits != opwright.Limits()
    limits.memory = 1 << 40
    assert limits.memory == 1 << 40


@pytest.mark.parametrize(
    "wrong", [{"steps": -1}, {"run_seconds": -0.5}, {"build_seconds": float("nan")}]
)
def test_limits_below_zero_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(opwright.Error, match=f"{name} is"):
        opwright.Limits(**wrong)
    limits = opwright.Limits()
    with pytest.raises(opwright.Error, match=f"{name} is"):
        setattr(limits, name, wrong[name])
    assert limits == opwright.Limits()
    for arguments in ({"memory": -1}, {"memory": 1 << 64}, {"memory": "2G"}):
        with pytest.raises((TypeError, OverflowError, RuntimeError)):
            opwright.Limits(**arguments)


def test_runtimes_and_configs_have_limits():
    logger = opwright.Logger()
    runtime = opwright.Runtime(logger)
    config = opwright.Builder(logger).create_builder_config()
    for owner in (runtime, config):
        assert owner.limits == opwright.Limits()
        owner.limits = opwright.Limits(memory=1 << 30)
        owner.limits.steps = 5
        assert owner.limits == opwright.Limits(memory=1 << 30, steps=5)
    config.reset()
    assert config.limits == opwright.Limits()


def test_build_memory():
    proto = _negation(1 << 20)
    match = r"'negate'.*needs 8\.0 MiB.*limit of 1\.0 MiB \(build_memory\)"
    with pytest.raises(opwright.Error, match=match):
        opwright.build(proto, device="cpu", limits=opwright.Limits(build_memory=1 << 20))
    limits = opwright.Limits(build_memory=64 << 20)
    engine = opwright.build(proto, device="cpu", limits=limits)
    x = np.ones(1 << 20, np.float32)
    np.testing.assert_array_equal(engine(x), -x)


def test_build_seconds_and_steps():
    proto = _negation(4)
    with pytest.raises(opwright.Error, match=r"1e-09 seconds, before .*\(build_seconds\)"):
        opwright.build(proto, device="cpu", limits=opwright.Limits(build_seconds=1e-9))
    two = model(
        [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Exp", ["t"], ["y"])],
        {"x": [4]},
        {"y": [4]},
    )
    with pytest.raises(opwright.Error, match=r"2 layers, .* limit of 1 \(steps\)"):
        opwright.build(two, device="cpu", limits=opwright.Limits(steps=1))


def test_reading_a_model_has_a_limit_of_its_own():
    """Where a program parses: no config is known then."""
    logger = opwright.Logger(opwright.Logger.INTERNAL_ERROR)
    proto = _negation(4).SerializeToString()
    parser = opwright.OnnxParser(opwright.Builder(logger).create_network(), logger)
    assert parser.time_limit == float("inf")
    parser.time_limit = 1e-9
    assert not parser.parse(proto)
    assert "build_seconds" in parser.get_error(0).desc()
    for wrong in (0, -1, float("nan")):
        with pytest.raises(opwright.Error, match="time limit is .* expected a positive number"):
            parser.time_limit = wrong
    network = opwright.Builder(logger).create_network()
    parser = opwright.OnnxParser(network, logger)
    parser.time_limit = 60
    assert parser.parse(proto) and network.num_layers == 1


HEAD = """<ir_version: 9, opset_import: ["" : 19]>
    net (int64 m, float[4, 8] x) => (float[4, 8] y) """
LAYERS = "p = Softmax (a)  q = Exp (p)  a2 = Softmax <axis = 0> (q)"
EMPTY = "a2 = Identity (a)"
INNER = f"""y2 = Loop <body = inner (int64 j, bool f, float[4, 8] a) => (bool g2, float[4, 8] a2) {{
    g2 = Identity (f)  {LAYERS} }}> (m, , b)"""


def _loop(layers: str, given: str = "a", made: str = "a2") -> onnx.ModelProto:
    """As many iterations as an input says."""
    return parse_model(f"""{HEAD} {{
        y = Loop <body = body (int64 i, bool g, float[4, 8] {given}) => (bool h, float[4, 8] {made}) {{
            h = Identity (g)  {layers} }}> (m, , x) }}""")


BODIES = {
    "layers": _loop(LAYERS),
    "nothing": _loop(EMPTY),
    "loop": _loop(INNER, "b", "y2"),
    "branch": parse_model(f"""{HEAD} {{
        s = ReduceSum <keepdims = 0> (x)  zero = Constant <value_float = 0.0> ()
        c = Less (zero, s)
        z = If (c) <
            then_branch = t () => (float[n, 8] z1) {{ {INNER.replace("b)", "x)")}  z1 = Relu (y2) }},
            else_branch = e () => (float[k, 8] z2) {{ z2 = Concat <axis = 0> (x, x) }}>
        first = Constant <value_ints = [0]> ()  last = Constant <value_ints = [4]> ()
        y = Slice (z, first, last, first) }}"""),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
@pytest.mark.parametrize("kind", BODIES)
def test_a_run_ends_within_its_bodies(kind, device, tmp_path):
    """Not when all of the iterations are done, which takes many times as long."""
    opwright.build(BODIES[kind], device=device, timing=False).save(tmp_path / "loop.engine")
    # The emulated GPU, which needs minutes for all of it, is slow on a busy machine.
    seconds, at_most = (0.05, 5) if device == "cpu" else (0.5, 60)
    limits = opwright.Limits(run_seconds=seconds)
    engine = opwright.load(tmp_path / "loop.engine", limits=limits)
    x = np.ones((4, 8), np.float32)
    begin = time.monotonic()
    with pytest.raises(opwright.Error, match=rf"limit of {seconds} s \(run_seconds\)"):
        engine(m=np.array(1 << (12 if kind == "loop" else 24)), x=x)
    assert time.monotonic() - begin < at_most
    wanted = opwright.load(tmp_path / "loop.engine")(m=np.array(2), x=x)
    np.testing.assert_array_equal(engine(m=np.array(2), x=x), wanted)


@pytest.mark.parametrize("kind", ["layers", "loop", "branch"])
def test_steps_and_expressions_count_in_bodies(kind, tmp_path):
    """The largest number that is refused and the smallest that is not lie side by side, and the
    message says how many there are in all."""
    path = tmp_path / "loop.engine"
    opwright.build(BODIES[kind], device="cpu", timing=False).save(path)
    for name in ("steps", "expressions"):
        with pytest.raises(opwright.Error, match=rf"limit of 1 \({name}\)") as refused:
            opwright.load(path, limits=opwright.Limits(**{name: 1}))
        count = int(re.search(r"it has (\d+)", str(refused.value))[1])
        while True:
            with pytest.raises(opwright.Error, match=rf"limit of {count - 1} \({name}\)"):
                opwright.load(path, limits=opwright.Limits(**{name: count - 1}))
            try:
                opwright.load(path, limits=opwright.Limits(**{name: count}))
                break
            except opwright.Error as error:
                count = int(re.search(r"it has (\d+)", str(error))[1])
        if name == "steps":
            assert count >= {"layers": 4, "loop": 5, "branch": 7}[kind]


@emulated_gpu.required
def test_weights_of_bodies_count_together(tmp_path):
    """Two of 256 KiB. Each is within the limit."""
    body = """<body = body (int64 i, bool g, float[256] a) => (bool h, float[256] a2) {
        h = Identity (g)  a2 = MatMul (a, w) }>"""
    proto = parse_model(f"""<ir_version: 9, opset_import: ["" : 19]>
        net (int64 m, float[256] x) => (float[256] y, float[256] z) {{
            y = Loop (m, , x) {body}  z = Loop (m, , x) {body} }}""")
    for seed, node in enumerate(proto.graph.node):
        weights = np.random.default_rng(seed).random((256, 256), np.float32)
        node.attribute[0].g.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "loops.engine"
    opwright.build(proto, device="cuda", timing=False).save(path)
    with pytest.raises(opwright.Error, match=r"'Loop_1' .*512\.0 KiB, .* 400\.0 KiB \(memory\)"):
        opwright.load(path, allow_device_code=True, limits=opwright.Limits(memory=400 << 10))
    opwright.load(path, allow_device_code=True, limits=opwright.Limits(memory=600 << 10))


def test_layers_of_bodies_count_in_a_build():
    layers = " ".join(f"t{i + 1} = Softmax <axis = {i % 2}> (t{i})" for i in range(40))
    proto = _loop(layers, "t0", "t40")
    with pytest.raises(opwright.Error, match=r"4\d layers, .* limit of 40 \(steps\)"):
        opwright.build(proto, device="cpu", limits=opwright.Limits(steps=40))
    with pytest.raises(opwright.Error, match=r"\(build_memory\)"):
        opwright.build(proto, device="cpu", limits=opwright.Limits(build_memory=16))


def test_constants_that_grow_without_end():
    """60 small nodes stand for 2^72 bytes; the error names the one that is too large."""
    limits = opwright.Limits(build_memory=256 << 20)
    start = time.monotonic()
    with pytest.raises(opwright.Error, match=r"double_\d+|Concat"):
        opwright.build(_doubling(45), device="cpu", limits=limits)
    assert time.monotonic() - start < 60


def test_a_fill_of_gigabytes_names_its_node():
    proto = model(
        [
            helper.make_node("ConstantOfShape", ["shape"], ["c"], name="huge"),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ],
        {"x": [1]},
        {"y": [1 << 33]},
        [helper.make_tensor("shape", TensorProto.INT64, [1], [1 << 33])],
    )
    limits = opwright.Limits(build_memory=1 << 30)
    with pytest.raises(opwright.Error, match=r"(huge|Add|y).*limit of 1\.0 GiB \(build_memory\)"):
        opwright.build(proto, device="cpu", limits=limits)


# External data.


def _external(folder: Path, location: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4], np.zeros(4, np.float32))
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, {"y": [4]}, [tensor])
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_stays_in_the_models_folder(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    np.arange(4, dtype=np.float32).tofile(outside / "w.bin")
    folder = tmp_path / "model"
    path = _external(folder, "w.bin")
    links = {
        "file": lambda: (folder / "w.bin").symlink_to(outside / "w.bin"),
        "relative": lambda: (folder / "w.bin").symlink_to("../outside/w.bin"),
        "dangling": lambda: (folder / "w.bin").symlink_to("/nowhere/at/all"),
    }
    for make in links.values():
        make()
        with pytest.raises(opwright.Error, match="'w'.*leads out of the folder"):
            opwright.build(path, device="cpu")
        (folder / "w.bin").unlink()
    (folder / "sub").symlink_to(outside)
    with pytest.raises(opwright.Error, match="'w'.*leads out of the folder"):
        opwright.build(_external(folder, "sub/w.bin"), device="cpu")
    for location in ("../outside/w.bin", str(outside / "w.bin"), "sub/../../outside/w.bin", ""):
        with pytest.raises(opwright.Error, match="'w'"):
            opwright.build(_external(folder, location), device="cpu")
    # The file itself, and one in a folder below.
    (folder / "below").mkdir()
    for name in ("w.bin", "below/w.bin"):
        np.arange(4, dtype=np.float32).tofile(folder / name)
        engine = opwright.build(_external(folder, name), device="cpu", timing=False)
        np.testing.assert_array_equal(engine(np.ones(4, np.float32)), [1, 2, 3, 4])


def _store(tmp_path: Path) -> tuple[Path, Path]:
    """A model as the cache of Hugging Face has it, and the folder of its files."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    snapshot = tmp_path / "snapshots" / "1"
    path = _external(snapshot, "model.onnx_data")
    path.rename(blobs / "a")
    path.symlink_to("../../blobs/a")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/b")
    return path, blobs


def test_external_data_behind_a_link_needs_permission(tmp_path):
    path, blobs = _store(tmp_path)
    np.arange(4, dtype=np.float32).tofile(blobs / "b")
    ways = r"allow_links=True.*links_allowed.*setLinksAllowed.*--allow-links.*OPWRIGHT_ALLOW_LINKS"
    with pytest.raises(opwright.Error, match=f"'w'.*leads out of the folder.*{ways}"):
        opwright.build(path, device="cpu")
    engine = opwright.build(path, device="cpu", timing=False, allow_links=True)
    np.testing.assert_array_equal(engine(np.ones(4, np.float32)), [1, 2, 3, 4])
    # What the name says stays refused, and so is what is no file.
    (path.parent / "sub").symlink_to(blobs)
    for location in ("../../blobs/b", str(blobs / "b"), "sub/../../../blobs/b"):
        with pytest.raises(opwright.Error, match="'w'.*beside the model"):
            opwright.build(_external(tmp_path / "snapshots" / "2", location), allow_links=True)
    (blobs / "b").unlink()
    os.mkfifo(blobs / "b")
    with pytest.raises(opwright.Error, match="'w'.*not a regular file"):
        opwright.build(path, device="cpu", allow_links=True)
    (path.parent / "model.onnx_data").unlink()
    (path.parent / "model.onnx_data").symlink_to("/dev/zero")
    with pytest.raises(opwright.Error, match="'w'.*not a regular file"):
        opwright.build(path, device="cpu", allow_links=True)


def test_links_of_a_parser_and_a_refitter(tmp_path):
    path, blobs = _store(tmp_path)
    np.arange(4, dtype=np.float32).tofile(blobs / "b")
    logger = opwright.Logger(opwright.Logger.INTERNAL_ERROR)
    builder = opwright.Builder(logger)
    network = builder.create_network()
    parser = opwright.OnnxParser(network, logger)
    assert not parser.links_allowed and not parser.parse_from_file(path)
    parser.links_allowed = True
    network = builder.create_network()
    parser = opwright.OnnxParser(network, logger)
    parser.links_allowed = True
    assert parser.links_allowed and parser.load_model_proto(path.read_bytes(), path)
    assert parser.parse_model_proto()
    config = builder.create_builder_config()
    config.default_device_type = opwright.DeviceType.CPU
    config.set_flag(opwright.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    refitter = opwright.Refitter(engine, logger)
    model = opwright.OnnxParserRefitter(refitter, logger)
    assert not model.links_allowed and not model.refit_from_file(path)
    model.links_allowed = True
    (blobs / "b").unlink()  # the engine may have it mapped
    np.full(4, 2, np.float32).tofile(blobs / "b")
    assert model.refit_from_file(path) and refitter.refit_cuda_engine()
    np.testing.assert_array_equal(opwright.Engine(engine)(np.ones(4, np.float32)), [3, 3, 3, 3])


def test_the_program_follows_links_where_it_is_told(tmp_path, program):
    path, blobs = _store(tmp_path)
    np.arange(4, dtype=np.float32).tofile(blobs / "b")
    command = [
        program,
        "build",
        path,
        "-o",
        tmp_path / "m.engine",
        "--device",
        "cpu",
        "--no-timing",
    ]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "--allow-links" in refused.stderr
    subprocess.run([*command, "--allow-links"], check=True, capture_output=True)
    assert (tmp_path / "m.engine").exists()


def test_external_data_in_a_pipe_is_not_waited_for(tmp_path):
    path = _external(tmp_path, "w.bin")
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(opwright.Error, match="'w'.*not a regular file"):
        opwright.build(path, device="cpu")


def test_an_engine_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "net.engine")
    with pytest.raises(opwright.Error, match="not a regular file"):
        opwright.load(tmp_path / "net.engine")
    with pytest.raises(opwright.Error, match="not a regular file"):
        opwright.build(tmp_path / "net.engine")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_code_that_is_no_regular_file_is_not_waited_for(tmp_path, kind):
    path = tmp_path / "code"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    proto = model([helper.make_node("Neg", ["x"], ["y"])], {"x": [4]}, {"y": [4]})
    view = opwright.build(proto, device="cpu", timing=False).view()
    for act in (
        lambda: opwright.aot.load(path, inputs=[], outputs=[]),
        lambda: opwright.aot.object(path, "f"),
        lambda: opwright.aot.cpp(path, "f", inputs=[], outputs=[]),
        lambda: opwright.get_plugin_registry().load_library(str(path)),
        lambda: view.save(path),
    ):
        with pytest.raises(opwright.Error, match="not a (regular )?file"):
            act()


# Formats whose memory is larger than their arrays.


def _formatted(input_format: opwright.TensorFormat, output_format: opwright.TensorFormat):
    builder = opwright.Builder(opwright.Logger(opwright.Logger.ERROR))
    network = builder.create_network(0)
    config = builder.create_builder_config()
    config.default_device_type = opwright.DeviceType.CPU
    config.timing = False
    x = network.add_input("x", opwright.float32, (1, 1, 4, 4))
    y = network.add_unary(x, opwright.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    x.allowed_formats = 1 << int(input_format)
    y.allowed_formats = 1 << int(output_format)
    return opwright.Engine(builder.build_engine_with_config(network, config))


def test_calls_refuse_formats_that_arrays_do_not_have():
    linear, blocks = opwright.TensorFormat.LINEAR, opwright.TensorFormat.CHW32
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    with pytest.raises(opwright.Error, match="input 'x' has the format CHW32.*2048 bytes"):
        _formatted(blocks, linear)(x)
    with pytest.raises(opwright.Error, match="output 'y' has the format CHW32"):
        _formatted(linear, blocks)(x)
    np.testing.assert_array_equal(_formatted(linear, linear)(x), -x)


# The program.


def _run(program, folder, *arguments, timeout=120) -> subprocess.CompletedProcess:
    return subprocess.run(
        [program, *map(str, arguments)], cwd=folder, capture_output=True, timeout=timeout
    )


@pytest.fixture
def folder(program, tmp_path) -> Path:
    onnx.save(_negation(1 << 20), tmp_path / "neg.onnx")
    opwright.build(_negation(1 << 20), device="cpu", timing=False).save(tmp_path / "neg.engine")
    np.save(tmp_path / "x.npy", np.ones(1 << 20, np.float32))
    return tmp_path


def test_memory_of_a_build_by_the_program(program, folder):
    build = ["build", "neg.onnx", "-o", "new.engine", "--device", "cpu", "-q"]
    done = _run(program, folder, *build, "--max-memory", "1M")
    assert done.returncode == 1
    assert b"'negate'" in done.stderr and b"limit of 1.0 MiB (build_memory)" in done.stderr
    assert not (folder / "new.engine").exists()
    assert _run(program, folder, *build, "--max-memory", "64M").returncode == 0


@pytest.mark.parametrize("text", ["", "2X", "-1", "0", "1.5G", "G", "99999999999999999999", "2 G"])
def test_sizes_that_are_none(program, folder, text):
    done = _run(program, folder, "run", "neg.engine", f"--max-memory={text}")
    assert done.returncode == 2 or (text == "" and done.returncode != 0)
    assert b"max-memory" in done.stderr


def test_time_of_a_build_by_the_program(program, folder):
    done = _run(
        program, folder, "build", "neg.onnx", "-o", "e", "--device", "cpu", "--max-time", "0.0001"
    )
    assert done.returncode == 1
    assert b"(build_seconds)" in done.stderr and b"--max-time" in done.stderr


def test_time_of_a_bench_ends_it(program, folder):
    start = time.monotonic()
    done = _run(program, folder, "bench", "neg.engine", "--seconds", "60", "--max-time", "0.5")
    assert time.monotonic() - start < 20
    assert done.returncode == 124
    text = done.stderr.decode()
    assert re.fullmatch(
        r"opwright: error: not done after 0\.5 seconds \(--max-time\) while running 'neg.engine'"
        r"(, in layer 'negate' \(\w+\))?\n",
        text,
    ), text


def test_time_that_is_enough(program, folder):
    arguments = ["run", "neg.engine", "--input", "x.npy", "--output", "y.npy"]
    assert _run(program, folder, *arguments, "--max-time", "100").returncode == 0
    np.testing.assert_array_equal(np.load(folder / "y.npy"), -np.ones(1 << 20, np.float32))
    assert _run(program, folder, "inspect", "neg.engine", "--max-time", "100").returncode == 0


# NPY files, as NumPy writes and reads them.


def _npy(descr: str, shape: str, version: int, rng: np.random.Generator) -> bytes:
    """A header with the same items as NumPy's in another order and spacing."""
    items = [f"'descr': {descr!r}", "'fortran_order': False", f"'shape': {shape}"]
    rng.shuffle(items)
    space = lambda: " \t"[rng.integers(2)] * rng.integers(4)  # noqa: E731
    text = "{" + space() + (space() + "," + space()).join(items) + space()
    text += ["", ", "][rng.integers(2)] + "}" + space() + "\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


def test_npy_files_are_read_as_numpy_reads_them(program, tmp_path):
    rng = np.random.default_rng(3)
    opwright.build(
        model([helper.make_node("Neg", ["x"], ["y"])], {"x": ["n", "m"]}, {"y": ["n", "m"]}),
        shapes={"x": ((0, 0), (2, 2), (9, 9))},
        device="cpu",
        timing=False,
    ).save(tmp_path / "neg.engine")
    for round_ in range(24):
        shape = tuple(int(n) for n in rng.integers(0, 10, 2))
        version = 1 + round_ % 3
        data = rng.normal(size=shape).astype(np.float32)
        text = [str(shape), f"( {shape[0]} ,{shape[1]},)"][round_ % 2]
        path = tmp_path / "x.npy"
        path.write_bytes(_npy("<f4", text, version, rng) + data.tobytes())
        np.testing.assert_array_equal(np.load(path), data)
        done = _run(program, tmp_path, "run", "neg.engine", "--input", "x.npy", "--output", "y.npy")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), -data)


def test_long_npy_headers_end_in_a_message(program, folder):
    for filler in (b" ", b"(", b"'", b"1, "):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + filler * 20000
        (folder / "x.npy").write_bytes(
            b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
        )
        done = _run(program, folder, "run", "neg.engine", "--input", "x.npy")
        assert done.returncode == 1 and b"x.npy" in done.stderr


# Names that would steer a terminal.


def test_names_do_not_reach_a_terminal_as_they_are(program, tmp_path):
    proto = model(
        [helper.make_node("Neg", ["x"], [ESCAPES], name="node\x1b[31m")],
        {"x": [2]},
        {ESCAPES: [2]},
    )
    engine = opwright.build(proto, device="cpu", timing=False)
    engine.save(tmp_path / "e.engine")
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    shown = [engine.inspect().encode()]
    for arguments in (
        ["inspect", "e.engine"],
        ["inspect", "e.engine", "--json"],
        ["run", "e.engine", "--input", "x.npy"],
        ["run", "e.engine"],
        ["run", "e.engine", "--input", "x\x1b[2J.npy"],
        ["bench", "e.engine", "--iterations", "1", "--profile"],
        ["bench", "e.engine", "--iterations", "1", "--profile", "--json"],
    ):
        done = _run(program, tmp_path, *arguments)
        shown += [done.stdout, done.stderr]
    everything = b"\n".join(shown)
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", everything)
    assert not re.search("[\x80-\x9f\u202a-\u202e]", everything.decode())
    assert rb"\x1b]0;title\x07\u009b2J\u202eend" in everything
    with pytest.raises(opwright.Error) as caught:
        engine(np.ones(3, np.float32), **{ESCAPES: 1})
    assert "\x1b" not in str(caught.value)
