"""What opwright.torch makes of whole graphs: numbers between their parts, constants, state whose address stays."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import opwright

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

QUICK = {"timing": False}


@pytest.fixture(autouse=True)
def scalars_are_captured(no_gradients):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


def compiled(module, **options):
    return torch.compile(module, backend="opwright", options=QUICK, **options)


def check(got, want, tolerance=1e-5):
    got, want = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        if isinstance(b, torch.Tensor):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        else:
            assert a == b


def left_to_pytorch(x):
    """No layer computes it, so that a graph falls into parts around it."""
    return torch.special.i0(x)


class Reshaped(nn.Module):
    """Two extents that are lost in the shapes between the parts."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, x):
        batch, steps, size = x.shape
        y = left_to_pytorch(torch.relu(self.inner(x)).reshape(batch * steps, size) * 0.5)
        y = y.view(batch, steps // 2, 2 * size)
        y = torch.tanh(self.outer(y)) * steps + torch.arange(steps // 2).view(1, -1, 1)
        y = left_to_pytorch(y * 0.1).transpose(1, 2).reshape(batch, -1)
        return (y * 2 + 1).view(batch, 8, -1) / (batch * steps), batch * steps


class Windows(nn.Module):
    """An image that is padded to whole windows, computed on in windows, and brought back."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 1)

    def forward(self, x):
        h, w = x.shape[-2:]
        y = functional.pad(x, (0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        y = left_to_pytorch(torch.relu(self.first(y)))
        y = functional.interpolate(self.second(y), scale_factor=2.0, mode="bilinear")
        b, c, high, wide = y.shape
        y = y.view(b, c, high // 4, 4, wide // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        y = torch.softmax(left_to_pytorch(y), -1) * 2
        y = y.view(b, high // 4, wide // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4)
        return functional.interpolate(y.reshape(b, c, high, wide), size=(h, w), mode="nearest")


class Numbers(nn.Module):
    """Numbers of Python as arguments and as results."""

    def forward(self, x, n: int):
        y = left_to_pytorch(torch.relu(x + n) * x.shape[0] * 0.1)
        z = torch.cat([y, y.new_zeros(n, x.shape[1])])
        return torch.tanh(z) * n + 1, z.shape[0] + n


class Chosen(nn.Module):
    """An extent that the data decide."""

    def forward(self, x, places):
        n = places.max().item()
        torch._check(n >= 1)
        torch._check(n <= x.shape[0])
        y = left_to_pytorch(torch.relu(x) * 3 + 1)[:n] * 2
        return torch.tanh(y) + torch.arange(n).view(-1, 1)


class Quotients(nn.Module):
    """Numbers that are no integers."""

    def forward(self, x):
        y = left_to_pytorch(torch.relu(x) * (x.shape[0] / x.shape[1]) + 1)
        return torch.tanh(y * 3) * (x.shape[0] / x.shape[1]) + (1.0 / x.shape[0])


PARTS = {
    "reshaped": (Reshaped, lambda n: (torch.randn(n, 2 * n + 2, 8),), (0, 1)),
    "windows": (Windows, lambda n: (torch.randn(2, 3, 5 + n, 9 + 3 * n),), (2, 3)),
    "numbers": (Numbers, lambda n: (torch.randn(n, n + 3), n), (0, 1)),
    "chosen": (Chosen, lambda n: (torch.randn(n + 4, n + 1), torch.tensor([1, n])), (0, 1)),
    "quotients": (Quotients, lambda n: (torch.randn(n + 4, n + 2),), (0, 1)),
}


@pytest.mark.parametrize("name", PARTS)
def test_extents_between_parts(name, caplog):
    make_module, make, axes = PARTS[name]
    module = make_module().eval()
    all_dynamic = name in ("numbers", "chosen")
    with caplog.at_level(logging.INFO, "opwright.torch"):
        module_of_parts = compiled(module, dynamic=True if all_dynamic else None)
        for n in (3, 5, 9, 2):
            args = make(n)
            for axis in axes if not all_dynamic else ():
                torch._dynamo.mark_dynamic(args[0], axis)
            check(module_of_parts(*args), module(*args))
    assert "stays with PyTorch: i0" in caplog.text
    assert "of no tensor that is known here" not in caplog.text
    assert "SymFloat" not in caplog.text


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale, self.epsilon = nn.Linear(4, 4), 0.3, 1e-5

    def forward(self, x):
        y = self.linear(x) * self.scale
        return torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.epsilon) * y


def test_numbers_of_python_that_pytorch_traces_are_inputs(caplog):
    module, x = Kept().eval(), torch.randn(3, 4)
    with caplog.at_level(logging.INFO, "opwright.torch"):
        whole = compiled(module, dynamic=True)
        for scale in (0.3, 0.7):
            module.scale = scale
            check(whole(x), module(x))
    assert "1 engines, 0 operators stay with PyTorch" in caplog.text
    assert "stays with PyTorch" not in caplog.text


def test_slices_that_count_from_the_end():
    class Module(nn.Module):
        def forward(self, x, y):
            steps = x.shape[1]
            longer = torch.cat([x, y], 1)
            return x[:, :-1], longer[:, -steps:], longer[:, y.shape[1] - steps :], y[:, 1:-2]

    module = Module()
    batch, steps, more = (
        Dim("batch", max=8),
        Dim("steps", min=3, max=20),
        Dim("more", min=5, max=20),
    )
    shapes = ({0: batch, 1: steps}, {0: batch, 1: more})
    args = torch.randn(2, 5, 3), torch.randn(2, 7, 3)
    engine = opwright.build(module, args, dynamic_shapes=shapes, device="cpu", timing=False)
    for x, y in ((5, 7), (6, 9), (20, 20), (3, 17), (3, 5)):
        args = torch.randn(3, x, 3), torch.randn(3, y, 3)
        check(list(engine(*args).values()), module(*args))


class Constants(nn.Module):
    """FP64, and integers that an extent is computed of, which are the same in every run."""

    def __init__(self, exported):
        super().__init__()
        self.exported = exported

    def forward(self, x):
        width = np.sqrt(np.float64(x.shape[-1]))
        places = torch.arange(0, 12, 4)
        first, last = places[1], places[-1]
        numbers = torch.arange(4, 16, step=3, dtype=torch.float32)
        if self.exported:  # torch.compile does not trace it
            numbers = torch.arange(first, last * 2, step=3, dtype=torch.float32)
        least = torch.lcm(torch.tensor(4), torch.tensor(6))
        angles = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64).cos()
        return x / width + angles.float(), torch.relu(numbers * 2 - 9) + x.sum(), x * least


@pytest.mark.parametrize("way", ["build", "compile"])
def test_constants_that_no_layer_computes(way, caplog):
    module, x = Constants(way == "build"), torch.randn(4, 3)
    if way == "build":
        y = list(opwright.build(module, (x,), device="cpu", timing=False)(x).values())
    else:
        with caplog.at_level(logging.INFO, "opwright.torch"):
            y = compiled(module)(x)
        assert "1 engines, 0 operators stay with PyTorch" in caplog.text
    check(y, module(x))


STRIDES = {
    "overlapping rows": ((2, 16), (2, 3, 8), (16, 4, 1)),
    "single elements": ((3, 7), (5, 3, 2), (3, 1, 2)),
    "one element again and again": ((4, 4), (3, 5), (0, 0)),
    "from the middle": ((4, 6), (2, 3), (6, 1), 7),
    "a diagonal": ((5, 5), (5,), (6,)),
}


@pytest.mark.parametrize("name", STRIDES)
def test_views_by_strides(name):
    shape, *numbers = STRIDES[name]

    class Module(nn.Module):
        def forward(self, x):
            return torch.as_strided(x * 2, *numbers) + 1, torch.as_strided(x.mT * 3, *numbers)

    module, x = Module(), torch.randn(shape)
    engine = opwright.build(module, (x,), device="cpu", timing=False)
    check(list(engine(x).values()), module(x))


def test_views_by_strides_of_other_elements_stay_with_pytorch(caplog):
    class Module(nn.Module):
        def forward(self, x):
            y = (x * 2)[2:]
            return torch.as_strided(y, (2, 3), (3, 1), 0) + 1 + y.sum()

    module, x = Module(), torch.randn(4, 3)
    check(compiled(module)(x), module(x))


@pytest.mark.parametrize("padding", [0, 1])
def test_one_window_that_is_larger_than_all(padding):
    class Module(nn.Module):
        def forward(self, x):
            largest = functional.max_pool2d(x, 400, padding=padding, ceil_mode=True)
            return functional.avg_pool2d(x, 400, padding=padding, ceil_mode=True), largest

    module, x = Module(), torch.randn(2, 3, 7, 5)
    engine = opwright.build(module, (x,), device="cpu", timing=False)
    check(list(engine(x).values()), module(x))


def test_tensors_whose_address_stays_are_no_weights(caplog):
    """A cache that another graph fills, as transformers' cross attention has it."""

    class Cache:
        keys = torch.zeros(3, 4)

    cache = Cache()
    torch._dynamo.mark_static_address(cache.keys)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, cache):
            return torch.softmax(self.linear(x) @ cache.keys.mT, -1) @ cache.keys

    module, x = Module().eval(), torch.randn(2, 4)
    whole = compiled(module)
    with caplog.at_level(logging.INFO, "opwright.torch"):
        for _ in range(3):
            cache.keys.copy_(torch.randn(3, 4))
            check(whole(x, cache), module(x, cache))
    assert "built again" not in caplog.text


# State that is updated in its own memory


class Cached(nn.Module):
    def __init__(self, dense=True, reads_before=False):
        super().__init__()
        keys = torch.randn(2, 3, 16, 4)
        self.register_buffer("keys", keys if dense else keys.mT.contiguous().mT)
        self.reads_before = reads_before

    def forward(self, x, places):
        before = torch.tanh(self.keys).sum((1, 2)) if self.reads_before else 0
        self.keys.index_copy_(2, places, x * 2)
        return torch.softmax(x @ self.keys.mT, -1) @ self.keys, before


class Writer(nn.Module):
    """Its result is only the state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.randn(6, 4))

    def forward(self, x, places):
        self.keys.index_copy_(0, places, torch.relu(x * 2 - 1) + 1)


CACHES = {
    "dense": (Cached, {}),
    "strided": (Cached, {"dense": False}),
    "read before": (Cached, {"reads_before": True}),
    "alone": (Writer, {}),
}


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_that_a_compiled_module_writes_to(name):
    make, options = CACHES[name]
    module, reference = make(**options).eval(), make(**options).eval()
    reference.load_state_dict(module.state_dict())
    whole, address = compiled(module), module.keys.data_ptr()
    for places in ([3, 4], [5, 0], [1, 2]):
        x = torch.randn(2, 3, 2, 4) if make is Cached else torch.randn(2, 4)
        args = x, torch.tensor(places)
        check(whole(*args), reference(*args))
        check(module.keys, reference.keys)
        assert module.keys.data_ptr() == address
    with torch.profiler.profile() as profile:
        whole(*args)
    copies = sum(event.count for event in profile.key_averages() if event.key == "aten::copy_")
    assert copies == (0 if name in ("dense", "alone") else copies)


def test_a_cache_that_another_module_has_as_a_weight():
    module = Cached().eval()

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", module.keys)

        def forward(self, x):
            return torch.relu(x * 2) @ self.keys.mT + 1

    write, read, reader = compiled(module), compiled(Reader()), Reader()
    x = torch.randn(2, 3, 2, 4)
    for places in ([3, 4], [5, 0]):
        check(read(x), reader(x))
        write(x, torch.tensor(places))
        check(read(x), reader(x))


def test_a_built_engine_has_its_state_in_one_place():
    module = Cached().eval()
    reference = Cached().eval()
    reference.load_state_dict(module.state_dict())
    args = torch.randn(2, 3, 2, 4), torch.tensor([3, 4])
    program = torch.export.export(module, args)
    engine = opwright.build(program, device="cpu", timing=False)
    assert engine.engine.get_aliased_input_tensor("next_keys") == "keys"
    keys = module.keys.clone()
    for places in ([3, 4], [5, 0]):
        args = torch.randn(2, 3, 2, 4), torch.tensor(places)
        given = keys.clone()
        made = engine(x=args[0], places=args[1], keys=keys)
        assert torch.equal(keys, given)  # a call changes none of its arguments
        keys = made["next_keys"]
        check(made["output_0"] if "output_0" in made else made["output"], reference(*args)[0])
        check(keys, reference.keys)


# Operators that may raise


def test_an_operator_that_may_raise(monkeypatch, caplog):
    def solve(a, b):
        return torch.relu(torch.linalg.solve(a @ a.mT, b)) * 2 + 1

    whole = torch.compile(solve, backend="opwright", options=QUICK)
    a, b = torch.randn(4, 4), torch.randn(4, 2)
    check(whole(a, b), solve(a, b), 1e-3)
    assert "linalg_check_errors" in caplog.text

    def wrapped(*_args, **_options):
        raise AssertionError("PyTorch's operator that calls others is not called")

    monkeypatch.setattr(type(torch.ops.higher_order.with_effects), "__call__", wrapped)
    check(whole(a, b), solve(a, b), 1e-3)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        whole(torch.zeros(4, 4), b)
    check(whole(a, b), solve(a, b), 1e-3)


def test_tensors_that_require_gradients():
    """PyTorch's modes decide: within no_grad they are tensors like others."""
    module = nn.Linear(4, 3)
    x = torch.randn(2, 4, requires_grad=True)
    check(compiled(module)(x), module(x))
    engine = opwright.build(module, (x,), device="cpu", timing=False)
    check(engine(x), module(x))
    with torch.enable_grad(), pytest.raises(opwright.Error, match=r"requires gradients.*detach"):
        engine(x)


def test_an_output_of_a_parameters_name():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return {"y": x * self.scale, "scale": self.scale.exp()}

    module, x = Scaled(), torch.randn(3)
    made = opwright.build(module, (x,), device="cpu", timing=False)(x)
    check([made["y"], made["scale"]], list(module(x).values()))


# Random numbers


class Noise(nn.Module):
    def forward(self, x):
        noise = torch.randn_like(x), torch.randn(x.shape[0], 1000), torch.rand(x.shape[0], 1000)
        return *noise, torch.bernoulli(torch.sigmoid(x)), torch.randint(3, 9, (x.shape[0], 1000))


def test_a_built_engine_draws_random_numbers():
    batch = Dim("batch", min=1, max=64)
    x = torch.zeros(40, 1000)
    engine = opwright.build(Noise(), (x,), dynamic_shapes=({0: batch},), device="cpu", timing=False)
    for rows in (40, 64):
        values = [each.double() for each in engine(torch.zeros(rows, 1000)).values()]
        means, deviations = [0, 0, 0.5, 0.5, 5.5], [1, 1, 12**-0.5, 0.5, (35 / 12) ** 0.5]
        for value, mean, deviation in zip(values, means, deviations):
            assert value.shape == (rows, 1000)
            assert abs(value.mean() - mean) < 0.03 and abs(value.std() / deviation - 1) < 0.03
        assert set(values[3].unique().tolist()) == {0, 1}
        assert set(values[4].unique().tolist()) == set(range(3, 9))
        first, second = values[:2]
        assert abs((first * second).mean()) < 0.03, "each layer has numbers of its own"


def test_random_numbers_stay_with_pytorch_and_its_seed(caplog):
    whole = compiled(Noise())
    x = torch.zeros(4, 1000)
    results = []
    for module in (whole, Noise(), whole):
        torch.manual_seed(3)
        results.append(module(x))
    check(results[0], results[2])
    assert "randn_like" in caplog.text and "seed" in caplog.text
