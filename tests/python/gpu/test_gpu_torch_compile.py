"""Modules of PyTorch as engines for a GPU: torch.compile, opwright.build, kernels of Triton."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import opwright as trt

pytestmark = pytest.mark.usefixtures("on_gpu")

TRITON = """
    import torch
    import triton
    import triton.language as tl
    from torch.library import triton_op, wrap_triton

    @triton.jit
    def axpy_kernel(x, y, out, n, alpha, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(out + i, tl.load(x + i, mask=mask) + alpha * tl.load(y + i, mask=mask), mask=mask)

    @triton_op("gpucompile::axpy", mutates_args={})
    def axpy(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
        out = torch.empty_like(x)
        n = out.numel()
        wrap_triton(axpy_kernel)[(triton.cdiv(n, 256),)](x, y, out, n, alpha, BLOCK=256)
        return out

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.relu(axpy(self.linear(x), x, 0.5)) + 1
"""


@pytest.fixture
def net(torch, triton, tmp_path, monkeypatch):
    (tmp_path / "net_of_triton.py").write_text(textwrap.dedent(TRITON))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("net_of_triton", None)
    torch.manual_seed(0)
    return importlib.import_module("net_of_triton").Net().cuda().eval()


@pytest.mark.nvidia
def test_a_module_with_a_kernel_of_triton_is_one_file(net, torch, tmp_path):
    x = torch.randn(5, 8, device="cuda")
    batch = torch.export.Dim("batch", min=1, max=4096)
    engine = trt.build(net, (x,), dynamic_shapes=({0: batch},), device="cuda")
    engine.save(tmp_path / "net.engine")
    for n in (1, 5, 4096):
        x = torch.randn(n, 8, device="cuda")
        with torch.no_grad():
            torch.testing.assert_close(engine(x), net(x), rtol=1e-3, atol=1e-3)
    np.save(tmp_path / "x.npy", x.cpu().numpy())
    # Another process, which has neither PyTorch nor the operator.
    script = (
        "import numpy as np, sys, opwright;"
        "y = opwright.load('net.engine', allow_device_code=True)(np.load('x.npy'));"
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules; np.save('y.npy', y)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    with torch.no_grad():
        want = net(x).cpu().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-3, atol=1e-3)


@pytest.mark.nvidia
def test_compiled_modules_on_a_stream_of_the_callers(net, torch):
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="opwright")
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for n in (4, 9, 300):
            x = torch.randn(n, 8, device="cuda")
            got = compiled(x)
            assert got.device == x.device
            torch.testing.assert_close(got, net(x), rtol=1e-3, atol=1e-3)


@pytest.mark.nvidia
@pytest.mark.parametrize("name", ["ResNet", "Encoder", "UNet"])
def test_architectures(torch, name):
    import torch_models

    torch._dynamo.reset()
    torch.manual_seed(0)
    model = getattr(torch_models, name)().cuda().eval()
    if name == "Encoder":
        args = (torch.randint(0, 50, (2, 6)).cuda(), torch.tensor([3, 6]).cuda())
    else:
        args = (torch.randn(2, 3 if name == "ResNet" else 1, 32, 32, device="cuda"),)
    with torch.inference_mode():
        want = model(*args)
        got = torch.compile(model, backend="opwright")(*args)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)
    engine = trt.build(model, args, device="cuda")
    torch.testing.assert_close(engine(*args), want, rtol=2e-2, atol=2e-3)


def cached_attention(torch):
    """Attention over a cache that it writes to, as an argument."""

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 3, 16, 8))

        def forward(self, x, places, values):
            self.keys.index_copy_(2, places, x * 2)
            values.index_copy_(2, places, x + 1)
            return torch.softmax(x @ self.keys.mT, -1) @ values

    return Attention().cuda().eval()


@pytest.mark.nvidia
def test_caches_are_updated_in_place(torch):
    torch._dynamo.reset()
    module, reference = cached_attention(torch), cached_attention(torch)
    compiled, address = torch.compile(module, backend="opwright"), module.keys.data_ptr()
    with torch.inference_mode():
        caches = [torch.zeros(2, 3, 16, 8, device="cuda") for _ in range(2)]
        expected = [each.clone() for each in caches]
        for turn, places in enumerate(([3, 4], [5, 0], [1, 2], [15, 7])):
            which = turn % 2  # its address differs from the last call's
            x = torch.randn(2, 3, 2, 8, device="cuda")
            places = torch.tensor(places, device="cuda")
            got = compiled(x, places, caches[which])
            want = reference(x, places, expected[which])
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(module.keys, reference.keys, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(caches, expected, rtol=1e-5, atol=1e-5)
            assert module.keys.data_ptr() == address
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            compiled(x, places, caches[0])
        assert not [each for each in profile.key_averages() if each.key == "aten::copy_"]


@pytest.mark.nvidia
def test_caches_in_a_graph_of_the_callers(torch):
    torch._dynamo.reset()
    module, reference = cached_attention(torch), cached_attention(torch)
    compiled = torch.compile(module, backend="opwright")
    with torch.inference_mode():
        values, expected = (torch.zeros(2, 3, 16, 8, device="cuda") for _ in range(2))
        x, places = torch.randn(2, 3, 2, 8, device="cuda"), torch.tensor([0, 1], device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(x, places, values)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            got = compiled(x, places, values)
        reference(x, places, expected)
        for first in (4, 9, 14):
            x.copy_(torch.randn_like(x))
            places.copy_(torch.tensor([first, first + 1], device="cuda"))
            graph.replay()
            torch.cuda.synchronize()
            want = reference(x, places, expected)
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.nvidia
def test_complex_numbers_and_transforms(torch):
    torch._dynamo.reset()
    turns = torch.polar(torch.ones(12, device="cuda"), torch.arange(12.0, device="cuda"))
    window = torch.hann_window(64, device="cuda")

    class Sound(torch.nn.Module):
        def forward(self, x):
            bins = torch.stft(x, 64, 16, window=window, return_complex=True)
            x = torch.istft(bins * (1 + 2j), 64, 16, window=window)
            pairs = torch.view_as_complex(x[:, :24].reshape(-1, 12, 2)) * turns
            return bins.abs(), bins.angle().cos(), x, torch.view_as_real(pairs)

    module, x = Sound().eval(), torch.randn(3, 2048, device="cuda")
    with torch.inference_mode():
        want = module(x)
        got = torch.compile(module, backend="opwright")(x)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-2)
