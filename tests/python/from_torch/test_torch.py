"""opwright.build and torch.compile of PyTorch's modules, against PyTorch itself."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys

import numpy as np
import pytest

import opwright

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

import torch_models  # noqa: E402

BATCH = Dim("batch", min=1, max=8)
STEPS = Dim("steps", min=1, max=32)
QUICK = {"timing": False}


pytestmark = pytest.mark.usefixtures("fresh_torch")


def tensors(result) -> list:
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def check(got, want, tolerance=2e-5) -> None:
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def eager(module, *args, **kwargs):
    with torch.no_grad():
        return module(*args, **kwargs)


def build(module, args, **options):
    return opwright.build(module.eval(), args, device="cpu", timing=False, **options)


def compiled(module, **options):
    return torch.compile(module, backend="opwright", options=QUICK | options)


def model_of(name):
    """A module, a function that makes arguments for a batch, and which extents are open."""
    if name == "resnet":
        return torch_models.ResNet(), lambda n: (torch.randn(n, 3, 64, 48),), ({0: BATCH},)
    if name == "encoder":
        make = lambda n: (torch.randint(0, 50, (n, 4 + n)), torch.arange(n) + 2)  # noqa: E731
        return torch_models.Encoder(), make, ({0: BATCH, 1: STEPS}, {0: BATCH})
    if name == "recurrent":
        return torch_models.Recurrent(), lambda n: (torch.randn(n, 9, 6),), ({0: BATCH},)
    if name == "decoder":

        def make(n):
            past = (torch.randn(n, 4, 5 + n, 8) for _ in range(2))
            return (torch.randint(0, 50, (n, 1)), *past)

        past = {0: BATCH, 2: STEPS}
        return torch_models.Decoder(), make, ({0: BATCH}, past, past)
    side = Dim("side", min=4, max=16)
    shapes = ({0: BATCH, 2: 2 * side},)
    return torch_models.UNet(), lambda n: (torch.randn(n, 1, 8 + 2 * n, 12),), shapes


MODELS = ["resnet", "encoder", "recurrent", "decoder", "unet"]


@pytest.mark.parametrize("name", MODELS)
def test_a_module_of_constant_shapes(name):
    module, make, _ = model_of(name)
    engine = build(module, make(2))
    for seed in range(2):
        torch.manual_seed(seed)
        args = make(2)
        check(engine(*args), eager(module, *args))


@pytest.mark.parametrize("name", MODELS)
def test_a_module_of_dynamic_shapes(name, tmp_path):
    module, make, dynamic = model_of(name)
    engine = build(module, make(3), dynamic_shapes=dynamic)
    engine.save(tmp_path / "model.engine")
    loaded = opwright.load(tmp_path / "model.engine")
    for batch in (1, 2, 3, 8 if name != "unet" else 7):
        args = make(batch)
        check(engine(*args), eager(module, *args))
        check(loaded(*args), eager(module, *args))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "recurrent"])
def test_compiled_modules(name, caplog):
    module, make, _ = model_of(name)
    module = compiled(module.eval())
    with caplog.at_level(logging.INFO, "opwright.torch"), torch.no_grad():
        for batch in (2, 3, 8, 2, 5):
            args = make(batch)
            check(module(*args), eager(module._orig_mod, *args))
    assert "1 engines, 0 operators stay with PyTorch" in caplog.text
    assert "stays with PyTorch" not in caplog.text


def test_recurrent_layers_within_a_compiled_module():
    """torch.compile leaves them to PyTorch; what is around them are engines."""
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), torch_models.Recurrent()).eval()
    x = torch.randn(2, 5, 6)
    with torch.inference_mode():
        check(compiled(module)(x), module(x))


def test_results_lie_as_those_of_pytorch():
    class Views(nn.Module):
        def forward(self, x):
            y = functional.relu(x) * 2
            return y.transpose(1, 2), y.permute(3, 0, 1, 2)[1], y.contiguous()

    x = torch.randn(2, 3, 4, 5)
    channels_last = x.contiguous(memory_format=torch.channels_last)
    for argument in (x, channels_last, x.transpose(2, 3)):
        got, want = compiled(Views())(argument), Views()(argument)
        check(got, want)
        assert [y.stride() for y in got] == [y.stride() for y in want]


def test_what_stays_with_pytorch_is_said(caplog):
    def function(x):
        y = torch.sin(x) * 2 + x
        y = torch.linalg.inv(y @ y.t() + 9 * torch.eye(4))
        return torch.exp(y).sum() + torch.cos(y).mean()

    x = torch.randn(4, 4)
    check(compiled(function)(x), function(x))
    assert "stays with PyTorch: linalg_inv_ex" in caplog.text
    assert "test_torch.py" in caplog.text and "no layer computes it" in caplog.text
    with pytest.raises(opwright.Error, match="linalg_inv_ex.*test_torch.py.*no layer computes it"):

        class Module(nn.Module):
            def forward(self, x):
                return function(x)

        build(Module(), (x,))


def test_gradients_come_from_pytorch_with_a_warning(caplog):
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(3, 4)
    got = torch.autograd.grad(compiled(module)(x).sum(), list(module.parameters()))
    want = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    check(got, want)
    assert "gradients are wanted" in caplog.text and "inference_mode" in caplog.text


def test_training_after_inference_changes_results():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    fast = compiled(module)
    x = torch.randn(3, 4)
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    for _ in range(3):
        with torch.no_grad():
            check(fast(x), module(x))
        optimizer.zero_grad()
        fast(x).square().sum().backward()
        optimizer.step()
    module[0].weight.data = torch.randn(4, 4)
    with torch.no_grad():
        check(fast(x), module(x))
    module.load_state_dict({name: -p for name, p in module.state_dict().items()})
    with torch.no_grad():
        check(fast(x), module(x))


def test_a_module_in_training_mode_updates_its_statistics():
    module, other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    x = torch.randn(5, 4)
    with torch.no_grad():
        check(compiled(module)(x), other(x))
    check(list(module.buffers()), list(other.buffers()))
    with pytest.raises(opwright.Error, match=r"changes '\w+' when it runs .*call eval\(\)"):
        opwright.build(nn.BatchNorm1d(4), (x,), device="cpu")


def test_a_cache_that_the_module_keeps():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 3))

        def forward(self, x, place):
            self.cache[place] = x
            return self.cache * 2 + torch.exp(x)

    module, other = Cached(), Cached()
    fast = compiled(module)
    with torch.no_grad():
        for i in range(4):
            x = torch.randn(3)
            check(fast(x, torch.tensor([i])), other(x, torch.tensor([i])))
    check(module.cache, other.cache)


def test_arguments_that_are_numbers():
    def function(x, count, factor):
        return (x * factor)[:, :count].sum(0) + count

    fast = compiled(function)
    x = torch.randn(3, 40)
    with torch.no_grad():
        for count in (4, 5, 6, 30, 2):
            check(fast(x, count, 0.5), function(x, count, 0.5))


def test_weights_are_not_copied_for_the_network():
    import ctypes

    weight = torch.randn(64, 64)
    net = opwright.Builder(opwright.Logger()).create_network()
    layer = net.add_constant([64, 64], weight)
    shown = layer.weights
    assert shown.ctypes.data == weight.data_ptr()
    assert ctypes.c_float.from_address(weight.data_ptr()).value == shown[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32)).to(dtype).eval()
    x = torch.randn(5, 16, dtype=dtype)
    want = eager(module, x)
    check(build(module, (x,))(x), want, 3e-2)
    with torch.no_grad():
        check(compiled(module)(x), want, 3e-2)


def test_operators_of_the_user_become_plugins(tmp_path):
    @torch.library.custom_op("testcompile::squash", mutates_args=())
    def squash(x: torch.Tensor, limit: float = 2.0) -> torch.Tensor:
        return limit * torch.tanh(x / limit)

    squash.register_fake(lambda x, limit=2.0: torch.empty_like(x))

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.relu(squash(self.linear(x), 0.5)) + squash(x)

    module, x = Module().eval(), torch.randn(3, 4)
    engine = build(module, (x,), dynamic_shapes=({0: BATCH},))
    assert [layer["LayerType"] for layer in engine.layers].count("FunctionPlugin") == 2
    engine.save(tmp_path / "squash.engine")
    for batch in (1, 3, 8):
        x = torch.randn(batch, 4)
        check(engine(x), eager(module, x))
        check(opwright.load(tmp_path / "squash.engine")(x), eager(module, x))
    with torch.no_grad():
        check(compiled(module)(x), module(x))


def test_exported_programs_and_shapes_of_ones_own():
    module = nn.Conv1d(3, 4, 3, padding=1).eval()
    program = torch.export.export(
        module, (torch.randn(2, 3, 9),), dynamic_shapes=({2: Dim.DYNAMIC},)
    )
    with pytest.raises(opwright.Error, match="axis 2 of input 'input' has no largest extent"):
        opwright.build(program, device="cpu")
    shapes = {"input": ((2, 3, 2), (2, 3, 9), (2, 3, 50))}
    engine = opwright.build(program, shapes=shapes, device="cpu")
    for length in (2, 9, 50):
        x = torch.randn(2, 3, length)
        check(engine(x), eager(module, x))
    with pytest.raises(TypeError, match="has its arguments' types and shapes already"):
        opwright.build(program, (torch.randn(2, 3, 9),))
    with pytest.raises(TypeError, match="called with examples of its arguments"):
        opwright.build(module)


def test_outputs_have_the_names_of_a_dict():
    engine = build(torch_models.Recurrent(), (torch.randn(2, 3, 6),))
    assert engine.outputs == ["y", "h", "c", "g", "r"]
    assert engine.inputs == ["x"]
    x = np.zeros((2, 3, 6), np.float32)
    assert list(engine(x)) == engine.outputs


OPERATORS = {
    "indexing": lambda x: x[:, torch.tensor([2, 0, -1])] + x[1:, :3][:, [1, 2, 0]].sum(0),
    "two_indices": lambda x: x[torch.tensor([0, 2]), torch.tensor([1, -1])],
    "mask": lambda x: torch.where(x > 0, x, x.abs().log1p()).masked_fill(x < -1, 7.0),
    "scatter": lambda x: x.scatter(1, (x.argsort(1))[:, :2], 0.5),
    "gather": lambda x: torch.gather(x, 1, x.argmax(1, keepdim=True)),
    "topk": lambda x: x.topk(2, 1)[0] + x.sort(1, descending=True)[0][:, :2],
    "rounding": lambda x: x.floor() // 2 + x.remainder(0.7) + torch.fmod(x, 0.7) + x.trunc(),
    "integers": lambda x: (x * 9).to(torch.int32) // 4 % 3 + torch.arange(5, dtype=torch.int32),
    "roll_flip": lambda x: x.roll(2, 1).flip(0) + x.repeat(2, 2)[:3, 5:],
    "triangle": lambda x: torch.tril(x) + torch.triu(x, 1) * 2,
    "statistics": lambda x: x.var(1) + x.std(1, unbiased=False) + torch.logsumexp(x, 1) + x.amax(1),
    "pool": lambda x: (
        functional.avg_pool1d(x[None], 3, 2, 1) + functional.max_pool1d(x[None], 3, 2, 1)
    ),
    "softplus": lambda x: functional.softplus(30 * x) + functional.mish(x) + functional.hardtanh(x),
    "cumulative": lambda x: x.cumsum(1) + functional.log_softmax(x, 1) + x.softmax(0),
    "einsum": lambda x: (
        torch.einsum("ij,kj->ik", x, x) + x @ x.t() + torch.addmm(x[:, :3], x, x.t())
    ),
    "comparison": lambda x: ((x >= 0) & (x != 1)).float() + (x <= float("nan")).float(),
    "logic": lambda x: (x > 0).any(1) ^ (x > -9).all(1),
    "concatenate": lambda x: torch.stack(
        [torch.cat([x, x.unbind(0)[0][None]]), x[[0, 1, 2, 1]]], 1
    ),
    "split": lambda x: (
        x.split([1, 4], 1)[1] + x.chunk(2, 1)[0].sum() + functional.glu(x[:, :4])[:, :1]
    ),
    "index_put": lambda x: x.index_put((torch.tensor([0, 2]),), torch.tensor(5.0)),
    "norm": lambda x: functional.normalize(x, dim=1) + functional.rms_norm(x, (5,)),
    "powers": lambda x: x**2 + x.abs() ** 0.5 + 2**x + x.rsqrt().nan_to_num(0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    function = OPERATORS[name]

    class Module(nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.randn(3, 5)
    with torch.no_grad():
        check(compiled(Module())(x), function(x))
        check(build(Module(), (x,))(x), function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_remainders_are_exact(dtype):
    """Also of quotients that have no whole number beside them, such as 1 / 0.1, which PyTorch floors to 9."""

    class Remainders(nn.Module):
        def forward(self, a, b):
            rests = a.fmod(b), a.remainder(b), a.fmod(0.1), a.remainder(-0.7)
            # In narrow types PyTorch rounds between the steps of a floored quotient.
            return (*rests, a // b, a // 0.1) if dtype == torch.float32 else rests

    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.1, 7.0, torch.inf, -torch.inf, torch.nan])
    a = torch.cat([torch.randn(300) * 1e4, torch.arange(300) * 0.1, special.repeat_interleave(9)])
    b = torch.cat([torch.randn(300), torch.full((300,), 0.1), special.repeat(9)])
    a, b = a.to(dtype), b.to(dtype)
    want = Remainders()(a, b)
    results = build(Remainders(), (a, b))(a, b)
    for got, expected in zip(results.values(), want):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_models_of_transformers(name):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes["intermediate_size"] = 40
    tokens = {"input_ids": torch.randint(0, 99, (2, 7))}
    if name == "bert":
        model = transformers.BertModel(transformers.BertConfig(vocab_size=99, **sizes))
        tokens["attention_mask"] = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    elif name == "gpt2":
        config = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4)
        model, tokens["use_cache"] = transformers.GPT2LMHeadModel(config), False
    elif name == "llama":
        config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **sizes)
        model, tokens["use_cache"] = transformers.LlamaForCausalLM(config), False
    else:
        model = transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **sizes))
        tokens = {"pixel_values": torch.randn(2, 3, 32, 32)}
    model.eval()
    want = eager(model, **tokens)
    with torch.no_grad():
        check(compiled(model)(**tokens), want)
    engine = opwright.build(model, kwargs=tokens, device="cpu", timing=False)
    arrays = {key: value for key, value in tokens.items() if isinstance(value, torch.Tensor)}
    check(engine(**arrays), want)


def test_a_kernel_of_triton_is_compiled_without_a_gpu(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    from opwright._core._plugin import from_shape_expr

    from opwright.aot import CompileError
    from opwright.plugin._torch import _Operator
    from opwright.torch import _triton_ops

    (tmp_path / "kernels_of_torch.py").write_text("""
import torch, triton, triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def scale_kernel(x, out, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, alpha * tl.load(x + i, mask=i < n), mask=i < n)

@triton_op("testcompile::scale", mutates_args={})
def scale(x: torch.Tensor, alpha: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), alpha, BLOCK=64)
    return out

@triton_op("testcompile::scale_more", mutates_args={})
def scale_more(x: torch.Tensor, alpha: float) -> torch.Tensor:
    out = torch.empty_like(x)
    y = x * 2
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 64),)](y, out, x.numel(), alpha, BLOCK=64)
    return out
""")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("kernels_of_torch")
    desc = from_shape_expr([4, 80], opwright.float32)
    operators = torch.ops.testcompile
    assert _triton_ops.has_kernel(operators.scale.default)
    operator = _Operator(operators.scale.default, {})
    make = _triton_ops.compile_kernel
    name, code, launch, extra = make(operator, "scale", [desc], [0.5], [desc], "compute_80")
    assert (code.kind, len(extra)) == ("ptx", 2)
    assert launch.grid_x.constant_value() == 5
    operator = _Operator(operators.scale_more.default, {})
    with pytest.raises(CompileError, match="it computes aten.mul.Tensor beside its kernel"):
        make(operator, "scale_more", [desc], [0.5], [desc], "compute_80")


class _Calls:
    """The Python functions that are called within, as file and name."""

    def __init__(self):
        self.seen = set()

    def __enter__(self):
        sys.setprofile(self._note)
        return self.seen

    def __exit__(self, *_):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        if event == "call":
            self.seen.add((frame.f_code.co_filename, frame.f_code.co_name))


@pytest.mark.parametrize("results", [1, 2])
def test_a_graph_that_is_one_engine_is_called_without_another_graph(results):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)

        def forward(self, x, other):
            y = torch.relu(self.linear(x)) * other
            return y if results == 1 else (y, torch.tanh(y) + other)

    module = Module().eval()
    fast = compiled(module)
    x, other = torch.randn(4, 5), torch.randn(4, 3)
    with torch.inference_mode():
        check(fast(x, other), module(x, other))
        with _Calls() as calls:
            got = fast(x, other)
        check(got, module(x, other))
    assert any(file.endswith("_backend.py") for file, _ in calls)
    assert not any(file.endswith("graph_module.py") or "eval_with_key" in file for file, _ in calls)
    with torch.inference_mode():
        module.linear.weight.data = torch.randn(3, 5)
        check(fast(x, other), module(x, other))


def test_a_graph_of_several_engines_is_compiled_once():
    def function(x):
        between = torch.lgamma(torch.tanh(x.relu() * 2 + 1))
        return torch.sigmoid(between.relu() * 2 + 1)

    fast = compiled(function)
    x = torch.randn(4, 4)
    check(fast(x), function(x))
    with _Calls() as calls:
        got = fast(x)
    check(got, function(x))
    assert "_lazy_forward" not in {name for _, name in calls}


class Decoder(nn.Module):
    """Attention over keys and values that the module keeps in buffers, a token a call."""

    def __init__(self, persistent):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(2, 6, 8), persistent=persistent)
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64), persistent=persistent)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        self.keys.index_copy_(1, self.seen, self.key(x))
        self.values.index_copy_(1, self.seen, self.value(x))
        scores = self.query(x) @ self.keys.mT * self.scale
        hidden = torch.arange(6) > self.seen
        y = scores.masked_fill(hidden, -1e9).softmax(-1) @ self.values
        self.seen.add_(1)
        return {"y": y, "best": y.argmax(-1)}


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("exported", [True, False])
def test_buffers_that_a_module_changes_go_in_and_come_out(persistent, exported, tmp_path):
    module = Decoder(persistent).eval()
    steps = torch.randn(5, 2, 1, 8)
    if exported:
        program = torch.export.export(module, (steps[0],))
        engine = opwright.build(program, device="cpu", timing=False)
    else:
        engine = build(module, (steps[0],))
    kept = ["keys", "values", "seen"]
    assert set(engine.inputs) == {"x", *kept}
    assert engine.outputs[:2] == ["y", "best"]
    assert set(engine.outputs[2:]) == {f"next_{name}" for name in kept}
    engine.save(tmp_path / "decoder.engine")
    engine = opwright.load(tmp_path / "decoder.engine")
    state = {name: module.get_buffer(name).clone() for name in kept}
    for x in steps:
        made = engine(x=x, **state)
        want = eager(module, x)
        check([made["y"], made["best"]], [want["y"], want["best"]])
        state = {name: made[f"next_{name}"] for name in kept}
        check(list(state.values()), [module.get_buffer(name) for name in kept])


def test_arguments_that_a_module_changes_come_out():
    class Module(nn.Module):
        def forward(self, x, total):
            total.add_(x)
            return total * 2

    x, total = torch.randn(3), torch.randn(3)
    engine = build(Module(), (x, total.clone()))
    assert (engine.inputs, engine.outputs) == (["x", "total"], ["output", "next_total"])
    made = engine(x, total)
    check([made["output"], made["next_total"]], [(total + x) * 2, total + x])


def test_names_of_changed_buffers_that_are_taken_are_refused():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

    class Argument(Module):
        def forward(self, total):
            self.total.add_(total)
            return self.total * 2

    class Result(Module):
        def forward(self, x):
            self.total.add_(x)
            return {"next_total": self.total * 2, "y": x}

    for module, message in (
        (Argument(), "buffer 'total'.*argument of that name"),
        (Result(), "two outputs are called 'next_total'"),
    ):
        with pytest.raises(opwright.Error, match=message):
            build(module, (torch.randn(3),))


class _Store:
    """No module: the exporter does not know that its tensor is a buffer."""


class Stored(nn.Module):
    def __init__(self):
        super().__init__()
        self.store = _Store()
        self.store.total = torch.zeros(3)
        self.register_buffer("total", self.store.total, persistent=False)

    def forward(self, x):
        self.store.total.add_(x)
        return self.store.total * 2


def test_dynamic_shapes_that_only_strict_tracing_takes(monkeypatch):
    """As PyTorch 2.11 refuses heads of keys that are repeated where the length is open."""
    export = torch.export.export

    def refusing(*args, strict=False, **kwargs):
        if not strict:
            kind = torch._dynamo.exc.UserErrorType.CONSTRAINT_VIOLATION
            raise torch._dynamo.exc.UserError(kind, "Constraints violated (length)!")
        return export(*args, strict=True, **kwargs)

    monkeypatch.setattr(torch.export, "export", refusing)
    x = torch.randn(3, 4)
    shapes = ({0: torch.export.Dim("length", min=2, max=9)},)
    engine = opwright.build(torch.nn.Linear(4, 2), (x,), dynamic_shapes=shapes, device="cpu")
    assert engine(torch.randn(9, 4)).shape == (9, 2)
    monkeypatch.setattr(torch.export, "export", lambda *args, **kwargs: refusing(*args))
    with pytest.raises(torch._dynamo.exc.UserError, match="Constraints violated"):
        opwright.build(torch.nn.Linear(4, 2), (x,), dynamic_shapes=shapes, device="cpu")


def test_a_buffer_that_another_object_has_is_state():
    module, x, total = Stored().eval(), torch.randn(3), torch.randn(3)
    engine = build(module, (x,))
    assert engine.inputs == ["total", "x"]
    made = engine(x=x, total=total)
    check([made["output"], made["next_total"]], [(total + x) * 2, total + x])
    program = torch.export.export(module, (x,), strict=False)
    with pytest.raises(opwright.Error, match=r"buffer 'total' as a constant.*strict=True"):
        opwright.build(program, device="cpu", timing=False)


@pytest.mark.parametrize("exported", [True, False])
def test_a_static_cache_of_transformers(exported):
    transformers = pytest.importorskip("transformers")
    from transformers.integrations import executorch

    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=99,
    )
    config._attn_implementation = "sdpa"
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=16,
        cache_config={"batch_size": 1, "max_cache_len": 16},
    )
    module = executorch.TorchExportableModuleWithStaticCache(model).eval()
    first = {"input_ids": torch.tensor([[3]]), "cache_position": torch.tensor([0])}
    with torch.no_grad():
        if exported:
            program = executorch.convert_and_export_with_cache(model)
            engine = opwright.build(program, device="cpu", timing=False)
        else:
            engine = opwright.build(module, kwargs=first, device="cpu", timing=False)
    kept = [name for name in engine.inputs if name not in first]
    assert len(kept) == 4
    state = {name: torch.zeros_like(module.get_buffer(name)) for name in kept}
    for buffer in module.buffers():
        if buffer.dim() == 4:
            buffer.zero_()
    for position, token in enumerate([3, 17, 40, 5, 60]):
        step = {
            "input_ids": torch.tensor([[token]]),
            "cache_position": torch.tensor([position]),
        }
        made = engine(**step, **state)
        check(made["output"], eager(module, **step))
        state = {name: made[f"next_{name}"] for name in kept}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_elements_are_those_that_rounded_steps_lead_to(mode):
    # PyTorch's are beside the exact places of 30 to 58, 26 to 22, 54 to 38 and 62 to 14.
    pairs = [(14, 2), (30, 58), (26, 22), (54, 38), (62, 14), (5, 7), (16, 55), (6, 12), (9, 9)]

    class Resized(nn.Module):
        def forward(self, *images):
            made = [
                functional.interpolate(x, size=(to, 3), mode=mode)
                for x, (_, to) in zip(images, pairs)
            ]
            return (*made, functional.interpolate(images[5], scale_factor=0.6, mode=mode))

    images = tuple(torch.arange(4.0 * n).reshape(1, 1, n, 4) for n, _ in pairs)
    results = build(Resized(), images)(*images)
    for got, want in zip(results.values(), Resized()(*images), strict=True):
        assert torch.equal(torch.as_tensor(got), want)


@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_as_pytorch_rounds_them(mode, smoothed):
    sizes = [{"size": (14, 18)}, {"size": (5, 4)}, {"scale_factor": (1.7, 0.6)}]

    class Resized(nn.Module):
        def forward(self, *images):
            return tuple(
                functional.interpolate(x, mode=mode, antialias=smoothed, align_corners=align, **to)
                for x, (to, align) in zip(images, choices)
            )

    choices = [(to, align) for to in sizes for align in (False, True)]
    random = torch.Generator().manual_seed(0)
    images = tuple(
        torch.randint(0, 256, (1, 3, 7, 9), dtype=torch.uint8, generator=random) for _ in choices
    )
    results = build(Resized(), images)(*images)
    for got, want in zip(results.values(), Resized()(*images), strict=True):
        assert torch.equal(torch.as_tensor(np.asarray(got)), want)


def test_nan_is_the_least_the_greatest_and_below_no_threshold():
    class Extremes(nn.Module):
        def forward(self, x):
            return (
                torch.argmin(x, 1),
                torch.argmax(x, 1),
                *torch.min(x, 1),
                *torch.max(x, 1),
                functional.threshold(x, 1.0, 0.0),
                functional.threshold(x, -1.0, 7.0),
            )

    x = torch.tensor([[1, torch.nan, 3, torch.nan], [torch.nan, 1, 2, 3], [5, 5, -1, 1]])
    results = build(Extremes(), (x,))(x)
    for got, want in zip(results.values(), Extremes()(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())


class _Pair(nn.Module):
    def forward(self, a, b):
        return torch.relu(a), torch.tanh(b)


@pytest.mark.parametrize(
    ("other", "fits", "differs"),
    [
        (lambda d: d, (5, 5), (5, 1)),
        (lambda d: 2 * d, (3, 6), (3, 5)),
        (lambda d: d + 1, (3, 4), (3, 3)),
    ],
    ids=["same", "twice", "one more"],
)
def test_extents_that_the_program_relates(other, fits, differs):
    dim = Dim("extent", min=2, max=8)
    example = tuple(torch.randn(n, 4) for n in (2, other(2)))
    engine = build(_Pair(), example, dynamic_shapes=({0: dim}, {0: other(dim)}))
    a, b = (torch.randn(n, 4) for n in fits)
    for got, want in zip(engine(a, b).values(), _Pair()(a, b)):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(opwright.Error, match="input 'b'"):
        engine(*(torch.randn(n, 4) for n in differs))


def test_shapes_beyond_those_of_the_program():
    dim = Dim("extent", min=4, max=8)
    with pytest.raises(opwright.Error, match="axis 0 of input 'input' goes from 4 to 9"):
        build(
            nn.ReLU(),
            (torch.randn(4, 4),),
            dynamic_shapes=({0: dim},),
            shapes={"input": ((4, 4), (4, 4), (9, 4))},
        )
