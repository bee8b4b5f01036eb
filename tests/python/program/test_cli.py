"""The native program: build, run, inspect and bench, its options, its messages, its exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import opwright
from small_models import circular_padding, convolution, expansion, model, two_inputs

X = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)


def reference(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


class Cli:
    """Runs the program in a folder of its own."""

    def __init__(self, program: Path, folder: Path):
        self.program, self.folder = program, folder

    def run(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.program, *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def ok(self, *arguments) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def fails(self, *arguments, match: str, status: int | None = None) -> None:
        """The program says why, in one message, and exits with a status that is no signal's."""
        done = self.run(*arguments)
        assert 0 < done.returncode < 128 and status in (None, done.returncode), done
        assert done.stdout == ""
        assert re.search(match, done.stderr, re.S), done.stderr

    def save(self, name: str, proto: onnx.ModelProto) -> None:
        onnx.save(proto, self.folder / name)


@pytest.fixture
def cli(program, tmp_path) -> Cli:
    return Cli(program, tmp_path)


@pytest.fixture(scope="module")
def built(program, tmp_path_factory) -> Cli:
    """A folder with the engines that several tests read, and an input."""
    cli = Cli(program, tmp_path_factory.mktemp("cli"))
    cli.save("conv.onnx", convolution())
    cli.save("dynamic.onnx", convolution("n"))
    cli.save("two.onnx", two_inputs())
    cli.ok("build", "conv.onnx", "-o", "conv.engine")
    cli.ok("build", "two.onnx", "-o", "two.engine", "--no-timing")
    ranges = "x:1x3x8x8,2x3x8x8,4x3x8x8"
    cli.ok("build", "dynamic.onnx", "-o", "dynamic.engine", "--shapes", ranges)
    np.save(cli.folder / "x.npy", X)
    return cli


OPTIONS = {
    "build": [
        "--output",
        "--shapes",
        "--plugins",
        "--embed-plugins",
        "--fp16",
        "--bf16",
        "--strongly-typed",
        "--device",
        "--timing-cache",
        "--timing-iterations",
        "--no-timing",
        "--max-memory",
        "--max-time",
        "--verbose",
        "--quiet",
        "--json",
    ],
    "run": [
        "--input",
        "--output",
        "--steps",
        "--feed",
        "--device",
        "--plugins",
        "--allow-host-code",
        "--allow-device-code",
        "--max-memory",
        "--max-time",
        "--json",
    ],
    "inspect": ["--json", "--sources", "--max-time"],
    "bench": [
        "--input",
        "--shapes",
        "--seconds",
        "--iterations",
        "--warmup",
        "--threads",
        "--profile",
        "--trace",
        "--device",
        "--json",
        "--plugins",
        "--allow-host-code",
        "--allow-device-code",
        "--max-memory",
        "--max-time",
    ],
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help_of_a_command(cli, command):
    text = cli.ok(command, "--help")
    for option in OPTIONS[command]:
        assert re.search(rf"(?<![\w-]){option}\b", text), option
    assert command in cli.ok("--help")


def test_version(cli):

    assert cli.ok("--version").strip() == opwright.__version__


@pytest.mark.parametrize(
    "arguments, match",
    [
        ([], "subcommand"),
        (["compile"], "compile"),
        (["build"], "model"),
        (["build", "m.onnx"], "output"),
        (["build", "m.onnx", "-o", "e", "--fp99"], "--fp99"),
        (["build", "m.onnx", "-o", "e", "--timing-iterations", "0"], "timing-iterations"),
        (["run"], "engine"),
        (["bench", "e", "--seconds", "-1"], "seconds"),
        (["bench", "e", "--threads", "many"], "threads"),
    ],
)
def test_wrong_command_line(cli, arguments, match):
    cli.fails(*arguments, match=match, status=2)


@pytest.mark.parametrize(
    "arguments, match",
    [
        (["buidl", "m.onnx"], "no command 'buidl'; did you mean 'build'"),
        (["build", "m.onnx", "--outptu", "e"], "no option '--outptu'; did you mean '--output'"),
        (["bench", "e", "--warm-up", "3"], "did you mean '--warmup'"),
        (["run", "e", "--quux"], r"no option '--quux'\n'opwright run --help'"),
        (["build", "m.onnx", "-o", "e", "--max-memory", "many"], "'many' is no number of bytes"),
        (["build", "m.onnx", "-o", "e", "--prefer-aot", "--prefer-jit"], "excludes"),
        (["completion", "tcsh"], "bash"),
    ],
)
def test_usage_errors_say_what_was_meant(cli, arguments, match):
    cli.fails(*arguments, match=match, status=2)


def test_the_folder_of_the_output_is_looked_at_first(cli):
    cli.fails("build", "none.onnx", "-o", "no/e", match="there is no folder 'no'", status=1)


def test_help_has_the_defaults(cli):
    assert re.search(r"--warmup \S+=5\b", cli.ok("bench", "--help"))
    assert re.search(r"--timing-iterations .*=4\b", cli.ok("build", "--help"))


def test_completion(cli):
    commands = ["build", "run", "inspect", "bench", "view", "serve", "shard", "trtexec"]
    texts = {shell: cli.ok("completion", shell) for shell in ("bash", "zsh", "fish", "man")}
    for shell, text in texts.items():
        (cli.folder / shell).write_text(text)
        for part in [*commands, "timing-cache", "saveEngine"]:
            assert part.replace("-", "\\-") in text if shell == "man" else part in text, (
                shell,
                part,
            )

    def complete(*words):
        script = (
            f"source ./bash; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            "_opwright; echo ${COMPREPLY[@]}"
        )
        done = subprocess.run(
            ["bash", "-c", script], cwd=cli.folder, capture_output=True, text=True
        )
        return done.stdout.split()

    assert complete("opwright", "b") == ["build", "bench"]
    assert complete("opwright", "bench", "--se") == ["--seconds"]
    assert complete("opwright", "build", "-v", "--timing-c") == ["--timing-cache"]
    assert complete("opwright", "trtexec", "--saveE") == ["--saveEngine="]
    assert complete("trtexec", "--exportT") == ["--exportTimes="]
    assert complete("opwright", "build", "m") == []
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell) is not None:
            subprocess.run([shell, "-n", cli.folder / shell], check=True)
    if shutil.which("groff") is not None:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tascii", cli.folder / "man"], capture_output=True, text=True
        )
        text = re.sub(".\x08", "", done.stdout)  # bold letters are printed twice
        assert done.returncode == 0 and done.stderr == "" and "EXIT STATUS" in text


def test_missing_files(cli):
    cli.fails("build", "none.onnx", "-o", "e", match=r"none\.onnx.*No such file")
    for command in ("run", "inspect", "bench"):
        cli.fails(command, "none.engine", match=r"none\.engine.*No such file")
    assert list(cli.folder.iterdir()) == []


def test_files_of_another_kind(cli):
    (cli.folder / "text").write_text("neither a model nor an engine\n" * 9)
    (cli.folder / "empty").touch()
    cli.save("m.onnx", convolution())
    for name in ("text", "empty"):
        cli.fails("build", name, "-o", "e", match="ONNX")
    for name in ("text", "empty", "m.onnx"):
        for command in ("run", "inspect", "bench"):
            cli.fails(command, name, match=re.escape(name))
    assert not (cli.folder / "e").exists()


def test_unknown_operators_are_all_listed(cli):
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Whirl", ["x"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    value = ("x", TensorProto.FLOAT, [2])
    cli.save("m.onnx", model(nodes, [value], [("y", TensorProto.FLOAT, [2])]))
    cli.fails("build", "m.onnx", "-o", "e", match="'first'.*'Frobnicate'.*'second'.*'Whirl'")
    cli.fails("build", "m.onnx", "-o", "e", match="2 problems")


def test_build_and_run_agree_with_onnx_runtime(built):
    built.ok("run", "conv.engine", "--input", "x=x.npy", "--output", "y=y.npy")
    expected = reference(convolution(), x=X)[0]
    np.testing.assert_allclose(np.load(built.folder / "y.npy"), expected, rtol=1e-4, atol=1e-5)
    # The names may be left out where there is one.
    built.ok("run", "conv.engine", "--input", "x.npy", "--output", "z.npy")
    np.testing.assert_array_equal(np.load(built.folder / "z.npy"), np.load(built.folder / "y.npy"))


def test_several_inputs_and_outputs(built):
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 2, 3)).astype(np.float32)
    np.save(built.folder / "a.npy", a)
    np.save(built.folder / "b.npy", b)
    both = ["--input", "b=b.npy", "--input", "a=a.npy"]
    built.ok("run", "two.engine", *both, "--output", "total=t.npy", "--output", "difference=d.npy")
    np.testing.assert_allclose(np.load(built.folder / "t.npy"), a + b)
    np.testing.assert_allclose(np.load(built.folder / "d.npy"), a - b)
    built.fails("run", "two.engine", "--input", "a=a.npy", match="'b' is missing")
    built.fails("run", "two.engine", "--input", "a.npy", match="2 inputs.*'a', 'b'")
    built.fails("run", "two.engine", *both, "--output", "t.npy", match="2 outputs")
    built.fails("run", "two.engine", *both, "--input", "c=a.npy", match="no input 'c'")
    built.fails("run", "two.engine", *both, "--output", "c=c.npy", match="no output 'c'")


def test_shapes_within_and_outside_of_the_range(built):
    for batch in (1, 3, 4):
        x = np.random.default_rng(batch).normal(size=(batch, 3, 8, 8)).astype(np.float32)
        np.save(built.folder / "batch.npy", x)
        built.ok("run", "dynamic.engine", "--input", "batch.npy", "--output", "y.npy")
        expected = reference(convolution("n"), x=x)[0]
        np.testing.assert_allclose(np.load(built.folder / "y.npy"), expected, rtol=1e-4, atol=1e-5)
    for shape in ((5, 3, 8, 8), (0, 3, 8, 8), (1, 3, 9, 8), (3, 8, 8)):
        np.save(built.folder / "wrong.npy", np.zeros(shape, np.float32))
        text = "x".join(map(str, shape))
        built.fails("run", "dynamic.engine", "--input", "wrong.npy", match=rf"(?=.*{text}).*'x'")


@pytest.mark.parametrize(
    "shapes, match",
    [
        (None, "'x'.*--shapes"),
        ("x", "INPUT:"),
        ("x:", "'x'"),
        (":1x3x8x8", "INPUT:"),
        ("x:1x3x8x", "no shape"),
        ("x:1x3x-8x8", "no shape"),
        ("x:axb", "no shape"),
        ("x:99999999999999999999x3x8x8", "no shape"),
        ("x:1x3x8x8,2x3x8x8", "2 shapes"),
        ("x:4x3x8x8,2x3x8x8,1x3x8x8", "'x'.*min"),
        ("x:1x3x8", "rank"),
        ("x:1x4x8x8", "'x'"),
        ("z:1x3x8x8", "'z'"),
        ("x:" + "x".join("1" * 20), "at most 8"),
    ],
)
def test_wrong_shapes(built, shapes, match):
    arguments = [] if shapes is None else ["--shapes", shapes]
    built.fails("build", "dynamic.onnx", "-o", "never.engine", *arguments, match=match)
    assert not (built.folder / "never.engine").exists()


def test_messages_while_building(cli):
    cli.save("m.onnx", convolution())
    done = cli.run("build", "m.onnx", "-o", "e")
    assert "tuning" in done.stderr and re.search(
        r"e: \d+ layers?, \d+\.\d KiB, built in", done.stdout
    )
    done = cli.run("build", "m.onnx", "-o", "e", "--quiet")
    assert done.stdout == done.stderr == ""
    done = cli.run("build", "m.onnx", "-o", "e", "--verbose", "--quiet")
    assert "conv" in done.stderr
    result = json.loads(cli.ok("build", "m.onnx", "-o", "e", "--json"))
    assert result["engine"] == "e" and result["layers"] >= 1 and result["seconds"] > 0
    assert result["bytes"] == (cli.folder / "e").stat().st_size


def test_timing_cache(cli):
    cli.save("m.onnx", convolution())
    cli.ok("build", "m.onnx", "-o", "e", "--timing-cache", "times")
    first = (cli.folder / "times").read_bytes()
    cli.ok("build", "m.onnx", "-o", "e", "--timing-cache", "times")
    assert (cli.folder / "times").read_bytes() == first
    (cli.folder / "times").write_bytes(first[:-1])
    cli.ok("build", "m.onnx", "-o", "e", "--timing-cache", "times")
    assert len((cli.folder / "times").read_bytes()) == len(first)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def save_with_weights_beside(folder):
    """m.onnx, whose weights lie in w.bin, and other names of both."""
    proto = convolution()
    onnx.save(
        proto, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    for name in ("m.onnx", "w.bin"):
        (folder / f"link-{name}").symlink_to(name)
        (folder / f"hard-{name}").hardlink_to(folder / name)


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("m.onnx", "m.onnx' is no timing cache"),
        ("link-m.onnx", "is no timing cache"),
        ("notes", "is no timing cache"),
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
    ],
)
def test_a_timing_cache_replaces_timing_caches_alone(cli, file, match):
    save_with_weights_beside(cli.folder)
    (cli.folder / "notes").write_text("precious")
    os.mkfifo(cli.folder / "pipe")
    (cli.folder / "zero").symlink_to("/dev/zero")
    before = contents(cli.folder)
    cli.fails("build", "m.onnx", "-o", "e", "--timing-cache", file, match=match)
    with pytest.raises(opwright.Error, match=match):
        opwright.build(cli.folder / "m.onnx", timing_cache=cli.folder / file)
    assert contents(cli.folder) == before


def test_an_output_replaces_none_of_what_it_is_made_of(cli, plugin_dir):
    save_with_weights_beside(cli.folder)
    shutil.copy(plugin_dir / "circ_pad_plugin.so", cli.folder / "plugin.so")
    engine = opwright.build(cli.folder / "m.onnx", timing=False)
    before = contents(cli.folder)
    for name in ("m.onnx", "w.bin"):
        for output in (name, f"link-{name}", f"hard-{name}", f"./{name}"):
            cli.fails("build", "m.onnx", "-o", output, match="a file of the model")
            with pytest.raises(opwright.Error, match="a file of the model"):
                engine.save(f"{cli.folder}/{output}")
    build = ("build", "m.onnx", "--plugins", "plugin.so", "--timing-cache", "times")
    cli.fails(*build, "-o", "plugin.so", match="a plugin library")
    cli.fails(*build, "-o", "times", match="the timing cache")
    assert contents(cli.folder) == before
    cli.ok("build", "m.onnx", "-o", "e")
    np.save(cli.folder / "x.npy", X)
    before = contents(cli.folder)
    cli.fails("run", "e", "--input", "x.npy", "--output", "e", match="it is the engine")
    cli.fails("view", "e", "-o", "./e", match="an engine that is looked at")
    os.mkfifo(cli.folder / "pipe")
    for arguments in (["--input", "pipe"], ["--input", "x.npy", "--output", "pipe"]):
        cli.fails("run", "e", *arguments, match="regular file|not a file")
    cli.fails("run", "e", "--plugins", "./pipe", match="not a regular file")
    assert contents(cli.folder) == before


NAMES = ["a=b", "a", "a=b=c", "x:1", "x,y", "=", "e="]


def test_names_may_have_separators(cli):
    proto = model(
        [helper.make_node("Mul", [name, f"k{i}"], [f"{name}/"]) for i, name in enumerate(NAMES)],
        [(name, TensorProto.FLOAT, ["n"]) for name in NAMES],
        [(f"{name}/", TensorProto.FLOAT, ["n"]) for name in NAMES],
        {f"k{i}": np.float32(i + 2) for i in range(len(NAMES))},
    )
    cli.save("m.onnx", proto)
    shapes = [w for name in NAMES for w in ("--shapes", f"{name}:1,3,4")]
    cli.ok("build", "m.onnx", "-o", "e", "--no-timing", *shapes)
    arguments = []
    for i, name in enumerate(NAMES):
        np.save(cli.folder / f"{i}=.npy", np.full(3, i + 1, np.float32))
        arguments += ["--input", f"{name}={i}=.npy", "--output", f"{name}/=out{i}.npy"]
    cli.ok("run", "e", *arguments, "--steps", "2", "--feed", "a=b/=a=b", "--feed", "a/=a=b=c")
    for i, name in enumerate(NAMES):
        first = np.full(3, (i + 1) * (i + 2), np.float32)
        source = {"a=b": first, "a=b=c": np.full(3, 2 * 3, np.float32)}
        second = source[name] * (i + 2) if name in source else first
        np.testing.assert_array_equal(np.load(cli.folder / f"out{i}.npy"), [first, second])
    shapes = [w for name in NAMES[1:] for w in ("--shapes", f"{name}:3")]
    cli.ok("bench", "e", "--iterations", "1", "--input", "a=b=0=.npy", *shapes)
    cli.fails("run", "e", "--input", "q=r=f.npy", match="no input 'q'; it has 'a=b', 'a'")


def test_lower_precision(built):
    built.ok("build", "conv.onnx", "-o", "half.engine", "--fp16", "--bf16")
    built.ok("run", "half.engine", "--input", "x.npy", "--output", "y.npy")
    expected = reference(convolution(), x=X)[0]
    np.testing.assert_allclose(np.load(built.folder / "y.npy"), expected, rtol=0.05, atol=0.05)


def test_inspect(built):
    text = built.ok("inspect", "conv.engine")
    for part in ("conv", "x", "y", "1 x 3 x 8 x 8", "1 x 4 x 8 x 8", "FP32"):
        assert part in text
    described = json.loads(built.ok("inspect", "conv.engine", "--json"))
    assert [binding["Name"] for binding in described["Bindings"]] == ["x", "y"]
    layer = next(layer for layer in described["Layers"] if "conv" in layer["Name"])
    assert layer["LayerType"] == "Convolution" and layer["TimeMs"] > 0


def test_bench(built):
    done = built.ok("bench", "conv.engine", "--iterations", "20", "--warmup", "1")
    for part in ("median", "p90", "p99", "throughput"):
        assert part in done
    figures = json.loads(
        built.ok(
            "bench", "conv.engine", "--seconds", "0.05", "--threads", "1", "--profile", "--json"
        )
    )
    assert 0 < figures["min_ms"] <= figures["median_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
    assert figures["runs"] > 0 and figures["runs_per_second"] > 0
    assert any("conv" in layer["name"] for layer in figures["layers"])
    assert all(layer["median_ms"] >= 0 for layer in figures["layers"])


def test_shapes_of_several_inputs(cli):
    ports = [(name, TensorProto.FLOAT, ["n", 3]) for name in ("left", "right", "y")]
    cli.save(
        "m.onnx", model([helper.make_node("Add", ["left", "right"], ["y"])], ports[:2], ports[2:])
    )
    build = ["build", "m.onnx", "-o", "e", "--no-timing", "--shapes"]
    cli.ok(*build, "left:1x3,2x3,4x3,right:1x3,2x3,4x3")
    cli.ok("bench", "e", "--iterations", "1", "--shapes", "left:3x3,right:3x3")
    cli.ok(*build, "left:2x3", "--shapes", "right:2x3")
    cli.fails(*build, "left:2x3,left:3x3", match="'left' twice", status=2)
    cli.fails(*build, "left:2x3,3x3", match="has 2 shapes; expected one, or three", status=2)
    cli.fails(
        *build, "left:2x3,rigth:2x3", match="no input 'rigth'.*did you mean 'right'", status=1
    )
    cli.fails("run", "e", "--input", "lfet=x.npy", match="no input 'lfet'.*did you mean 'left'")


def test_values_that_decide_shapes(cli):
    cli.save("m.onnx", expansion())
    build = ["build", "m.onnx", "-o", "e", "--no-timing"]
    cli.fails(*build, match="values of shape input 'size'.*--shapes size:MIN,OPT,MAX")
    cli.ok(*build, "--shapes", "size:1x1,2x3,4x4")
    np.save(cli.folder / "x.npy", np.full((1, 1), 5, np.float32))
    np.save(cli.folder / "size.npy", np.array([3, 2]))
    cli.ok("run", "e", "--input", "x=x.npy", "--input", "size=size.npy", "--output", "y.npy")
    np.testing.assert_array_equal(np.load(cli.folder / "y.npy"), np.full((3, 2), 5, np.float32))
    cli.ok("bench", "e", "--iterations", "1", "--shapes", "size:4x4")
    cli.fails(*build, "--shapes", "size:2x3x1", match="'size' has 2 elements, 3 values")


def test_bench_with_given_inputs_and_shapes(built):
    few = ["--iterations", "2", "--json"]
    built.ok("bench", "conv.engine", "--input", "x.npy", *few)
    built.ok("bench", "dynamic.engine", "--shapes", "x:3x3x8x8", *few)
    built.fails("bench", "dynamic.engine", "--shapes", "x:9x3x8x8", *few, match="9x3x8x8.*'x'")
    built.fails("bench", "dynamic.engine", "--shapes", "3x3x8x8", *few, match="--shapes")
    built.fails("bench", "dynamic.engine", "--shapes", "z:3x3x8x8", *few, match="'z'")
    built.fails("bench", "dynamic.engine", "--input", "z=x.npy", *few, match="'z'")


TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 1, 3, 2)], ids=str)
def test_arrays_of_every_type_and_rank(cli, dtype, shape):
    node = helper.make_node("Transpose", ["x"], ["y"])
    cli.save(
        "m.onnx",
        model([node], [("x", TYPES[dtype], shape)], [("y", TYPES[dtype], shape[::-1])]),
    )
    x = np.random.default_rng(4).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    np.save(cli.folder / "x.npy", x)
    cli.ok("build", "m.onnx", "-o", "e", "--no-timing")
    cli.ok("run", "e", "--input", "x.npy", "--output", "y.npy")
    y = np.load(cli.folder / "y.npy")
    assert y.dtype == x.dtype and y.shape == x.T.shape
    np.testing.assert_array_equal(y, x.T)


def test_arrays_that_cannot_be_taken(built):
    path = built.folder / "bad.npy"

    def refused(match: str) -> None:
        built.fails("run", "conv.engine", "--input", "bad.npy", match=rf"(?=.*bad\.npy).*{match}")

    for array in (X.astype(np.float64), X.astype(">f4"), X.astype(complex), X.astype("U4")):
        np.save(path, array)
        refused("type")
    np.save(path, np.asfortranarray(np.repeat(X, 2, axis=1)))
    refused("Fortran")
    whole = (built.folder / "x.npy").read_bytes()
    for length in (0, 1, 6, 9, 11, 40, 127, 128, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused("NPY|truncated")
    for content in (b"text\n" * 50, bytes(200), b"\x93NUMPY" + b"\xff" * 300):
        path.write_bytes(content)
        refused("NPY|truncated")
    for old, new in (
        (b"'shape'", b"'shady'"),
        (b"'descr'", b"'descs'"),
        (b"(1, 3, 8, 8)", b"(1,-3, 8, 8)"),
        (b"(1, 3, 8, 8), }", b"(" + b"9" * 13 + b")"),
    ):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        refused("")
    np.save(path, X.astype(np.int32))
    built.fails("run", "conv.engine", "--input", "bad.npy", match="'x' is FP32.*INT32")
    built.fails("run", "conv.engine", "--input", "none.npy", match=r"none\.npy.*No such file")
    built.fails("run", "conv.engine", "--input", "x.npy", "--output", "no/y.npy", match="no/y.npy")


def test_plugin_library(cli, plugin_dir):
    pads = [1, 2, 0, 3]
    cli.save("pad.onnx", circular_padding(pads))
    library = plugin_dir / "circ_pad_plugin.so"
    cli.fails("build", "pad.onnx", "-o", "e", match="'pad'.*'circ_pad_plugin'")
    cli.ok("build", "pad.onnx", "-o", "e", "--plugins", library)
    x = np.arange(40, dtype=np.float32).reshape(1, 2, 4, 5)
    np.save(cli.folder / "x.npy", x)
    cli.fails("run", "e", "--input", "x.npy", match="circ_pad_plugin.*plugin")
    cli.ok("run", "e", "--plugins", library, "--input", "x.npy", "--output", "y.npy")
    left, right, top, bottom = pads
    expected = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], mode="wrap")
    np.testing.assert_array_equal(np.load(cli.folder / "y.npy"), expected)
    cli.ok("bench", "e", "--plugins", library, "--iterations", "3")
    assert "circ_pad_plugin" in cli.ok("inspect", "e")  # needs no library: nothing runs


def test_library_that_is_none(cli, program):
    cli.save("pad.onnx", circular_padding([1, 1, 1, 1]))
    (cli.folder / "text.so").write_text("not a library\n")
    (cli.folder / "empty.so").touch()
    (cli.folder / "cut.so").write_bytes(program.read_bytes()[:3000])
    for name in ("text.so", "empty.so", "cut.so", "none.so"):
        cli.fails(
            "build", "pad.onnx", "-o", "e", "--plugins", name, match=rf"{name}.*cannot be opened"
        )
    libm = "libm.so.6"
    cli.fails(
        "build", "pad.onnx", "-o", "e", "--plugins", libm, match=f"{libm}.*not a plugin library"
    )


def test_damaged_engine(built):
    whole = (built.folder / "conv.engine").read_bytes()
    damaged = built.folder / "damaged.engine"
    for length in (0, 7, 63, 64, 500, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:length])
        for command in ("run", "inspect", "bench"):
            built.fails(command, "damaged.engine", match=r"damaged\.engine")
    for place in range(40, len(whole), len(whole) // 20):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        damaged.write_bytes(flipped)
        built.fails("run", "damaged.engine", "--input", "x.npy", match=r"damaged\.engine")


def test_weights_are_checked_later_on_request(built):
    arguments = ["--input", "x.npy", "--output", "y.npy", "--defer-weight-check"]
    built.ok("run", "conv.engine", *arguments)
    expected = reference(convolution(), x=X)[0]
    np.testing.assert_allclose(np.load(built.folder / "y.npy"), expected, rtol=1e-4, atol=1e-5)


def test_no_python_in_the_process(built):
    done = json.loads(built.ok("run", "conv.engine", "--input", "x.npy", "--json"))
    assert done["outputs"] == [{"name": "y", "type": "FP32", "shape": [1, 4, 8, 8]}]
    assert any("libopwright" in library for library in done["libraries"])
    assert not any("python" in Path(library).name for library in done["libraries"])


@pytest.fixture(scope="module")
def compiled(built) -> str:
    """An engine that holds a kernel compiled ahead of time, saved by Python: y = 3 x of [2, 3]."""
    from typing import Tuple

    import opwright.plugin as trtp
    from opwright import aot

    @trtp.register("cli_tests::triple")
    def triple(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("cli_tests::triple")
    def triple_aot(
        x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int
    ) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        source = (
            "#include <cstdint>\n"
            "void triple(const float* x, float* y, int64_t i, int64_t, int64_t)"
            " { y[i] = 3 * x[i]; }\n"
        )
        extra = trtp.SymIntExprs(0)
        code = aot.cpp(source, "triple", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=x.shape_expr.numel()), extra

    node = helper.make_node("triple", ["x"], ["y"], plugin_namespace="cli_tests")
    values = [(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    engine = opwright.build(model([node], values[:1], values[1:]), prefer_aot=True)
    engine.save(built.folder / "compiled.engine")
    np.save(built.folder / "six.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    return "compiled.engine"


def test_host_code_runs_only_with_permission(built, compiled):
    arguments = [compiled, "--input", "six.npy", "--output", "triple.npy"]
    built.fails("run", *arguments, match="code.*--allow-host-code")
    assert not (built.folder / "triple.npy").exists()
    built.fails("bench", compiled, "--iterations", "1", match="--allow-host-code")
    assert "triple" in built.ok("inspect", compiled)  # runs nothing
    done = json.loads(built.ok("run", *arguments, "--allow-host-code", "--json"))
    expected = 3 * np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.load(built.folder / "triple.npy"), expected)
    assert not any("python" in Path(library).name for library in done["libraries"])
