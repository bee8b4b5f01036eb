"""The package on processors without AVX-512 and without AVX2, and the program on Arm, which QEMU emulates.

Run with OPWRIGHT_QEMU=1, where qemu-x86_64 is (Debian's package qemu-user). Nehalem has SSE4.2 at most,
Haswell AVX2 and no AVX-512; for Arm `tools/aarch64.py build` goes before. Results are compared with ONNX
Runtime's.
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import opwright
from paths import ROOT

QEMU = shutil.which("qemu-x86_64")
pytestmark = [
    pytest.mark.skipif(not os.environ.get("OPWRIGHT_QEMU"), reason="OPWRIGHT_QEMU is not set"),
    pytest.mark.skipif(QEMU is None, reason="there is no qemu-x86_64"),
]
PROCESSORS = ["Nehalem", "Haswell"]
BUILD = ROOT / "build"
AARCH64_PROGRAM = BUILD / "aarch64" / "cli" / "opwright"
needs_aarch64 = pytest.mark.skipif(
    not AARCH64_PROGRAM.exists(), reason="tools/aarch64.py build has not built it"
)
# Kinds of kernels: oneDNN's and ours, several types, and what is made of vectors' tails.
MODELS = {
    "convolution": (
        "float[1, 5, 9, 11] x, float[7, 5, 3, 3] w",
        "float[1, 7, 7, 9] y",
        "c = Conv(x, w) y = Relu(c)",
    ),
    "depthwise": (
        "float[1, 6, 9, 9] x, float[6, 1, 3, 3] w",
        "float[1, 6, 7, 7] y",
        "y = Conv<group: int = 6>(x, w)",
    ),
    "product": ("float[3, 17] x, float[17, 13] w", "float[3, 13] y", "y = MatMul(x, w)"),
    "softmax": ("float[3, 37] x", "float[3, 37] y", "y = Softmax(x)"),
    "pointwise": (
        "float[3, 37] x",
        "float[3, 37] y",
        "a = Exp(x) b = Erf(a) c = Tanh(b) d = Sigmoid(c) y = Mul(d, x)",
    ),
    "halves": (
        "float[3, 37] x",
        "float[3, 37] y",
        "a = Cast<to: int = 10>(x) b = Mul(a, a) y = Cast<to: int = 1>(b)",
    ),
    "whole": (
        "float[5, 19] x",
        "int64[5, 19] y",
        "a = Cast<to: int = 7>(x) b = Mul(a, a) y = Add(a, b)",
    ),
    "sums": ("float[4, 33] x", "float[4, 1] y", "y = ReduceMean<axes: ints = [1]>(x)"),
    "normalization": (
        "float[4, 33] x, float[33] w",
        "float[4, 33] y",
        "y = LayerNormalization(x, w)",
    ),
    "quantized": (
        "float[4, 32] x",
        "float[4, 32] y",
        "s = Constant<value_float: float = 0.05>() z = Constant<value: tensor = int8 {3}>() "
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
    ),
    "resized": (
        "float[1, 3, 5, 7] x",
        "float[1, 3, 10, 14] y",
        "r = Constant<value: tensor = float[0] {}>() "
        "f = Constant<value: tensor = float[4] {1.0, 1.0, 2.0, 2.0}>() "
        'y = Resize<mode: string = "linear">(x, r, f)',
    ),
    "recurrent": (
        "float[5, 2, 7] x, float[1, 76, 7] w, float[1, 76, 19] r",
        "float[5, 1, 2, 19] y",
        "y = LSTM<hidden_size: int = 19>(x, w, r)",
    ),
    "attention": (
        "float[1, 2, 9, 24] q, float[1, 2, 24, 37] k, float[1, 2, 37, 24] v",
        "float[1, 2, 9, 24] y",
        "s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v)",
    ),
    "pooled": (
        "float[1, 3, 9, 9] x",
        "float[1, 3, 4, 4] y",
        "y = MaxPool<kernel_shape: ints = [3, 3], strides: ints = [2, 2]>(x)",
    ),
}


def emulated(processor: str, *command, **settings) -> subprocess.CompletedProcess:
    # NumPy's OpenBLAS takes the emulated Nehalem for more than it is.
    environment = os.environ | {"OPENBLAS_CORETYPE": processor}
    return subprocess.run(
        [QEMU, "-cpu", processor, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        **settings,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Each model with its inputs and what ONNX Runtime makes of them, and an engine tuned here."""
    folder = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(5)
    for name, (inputs, output, body) in MODELS.items():
        model = onnx.parser.parse_model(
            f'<ir_version: 9, opset_import: ["" : 17]> net ({inputs}) => ({output}) {{ {body} }}'
        )
        onnx.save(model, folder / f"{name}.onnx")
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        given = {
            each.name: (random.normal(size=each.shape) * 2).astype(np.float32)
            for each in session.get_inputs()
        }
        for key, array in given.items():
            np.save(folder / f"{name}.{key}.npy", array)
        np.save(folder / f"{name}.expected.npy", session.run(None, given)[0])
        opwright.build(model, device="cpu").save(folder / f"{name}.here.engine")
    return folder


def options(folder, name):
    """What `opwright run` gets, and writes to out.npy."""
    keys = [path.name.split(".")[1] for path in folder.glob(f"{name}.?.npy")]
    inputs = [part for key in keys for part in ("--input", f"{key}={name}.{key}.npy")]
    return [*inputs, "--output", "y=out.npy"]


def compare(folder, name):
    expected = np.load(folder / f"{name}.expected.npy")
    tolerance = 2e-3 if name == "halves" else 2e-5
    np.testing.assert_allclose(
        np.load(folder / "out.npy"), expected, rtol=tolerance, atol=tolerance
    )


def check_run(processor, program, folder, name, engine):
    done = emulated(processor, program, "run", engine, *options(folder, name), cwd=folder)
    assert done.returncode == 0, done.stderr
    compare(folder, name)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", MODELS)
def test_the_program_builds_and_runs(processor, program, folder, name):
    build = [program, "build", f"{name}.onnx", "-o", "there.engine", "--device", "cpu"]
    done = emulated(processor, *build, "--timing-iterations", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    check_run(processor, program, folder, name, "there.engine")


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", MODELS)
def test_an_engine_from_a_newer_processor_runs(processor, program, folder, name):
    """What was tuned with all instructions of this processor picks its kernels where it runs."""
    check_run(processor, program, folder, name, f"{name}.here.engine")


@pytest.mark.parametrize("processor", PROCESSORS)
def test_python_builds_and_calls(processor, folder):
    code = (
        "import numpy as np, opwright\n"
        "engine = opwright.build('convolution.onnx', device='cpu')\n"
        "y = engine(np.load('convolution.x.npy'), np.load('convolution.w.npy'))\n"
        "expected = np.load('convolution.expected.npy')\n"
        "np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)\n"
    )
    done = emulated(processor, sys.executable, "-c", code, cwd=folder)
    assert done.returncode == 0, done.stderr


def on_aarch64(folder, *arguments) -> subprocess.CompletedProcess:
    command = ["qemu-aarch64", "-L", BUILD / "aarch64-root", AARCH64_PROGRAM, *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, cwd=folder
    )


@needs_aarch64
@pytest.mark.parametrize("name", MODELS)
def test_the_program_builds_and_runs_on_aarch64(folder, name):
    build = ["build", f"{name}.onnx", "-o", "arm.engine", "--device", "cpu"]
    run = ["run", "arm.engine", *options(folder, name)]
    for command in [[*build, "--timing-iterations", 1], run]:
        done = on_aarch64(folder, *command)
        assert done.returncode == 0, done.stderr
    compare(folder, name)


@needs_aarch64
def test_aarch64_refuses_an_engine_of_x86_64(folder):
    done = on_aarch64(folder, "run", "product.here.engine", *options(folder, "product"))
    assert done.returncode == 1
    assert "was built for x86-64, this device is aarch64; build it again here" in done.stderr


def test_the_emulation_lacks_what_it_should(tmp_path):
    """Else the tests above would show nothing: an AVX2 instruction ends a program there."""
    source = tmp_path / "a.c"
    source.write_text(
        "#include <immintrin.h>\n"
        "int main(int n, char** v) { volatile __m256i a = _mm256_set1_epi32(n);\n"
        "  a = _mm256_add_epi32(a, a); return 0; }\n"
    )
    subprocess.run(["cc", "-mavx2", "-O1", source, "-o", tmp_path / "a"], check=True)
    assert emulated("Nehalem", tmp_path / "a").returncode != 0
    assert emulated("Haswell", tmp_path / "a").returncode == 0
