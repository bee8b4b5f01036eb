"""Attention as PyTorch exports it becomes one step that reads heads where they lie: against PyTorch in FP32."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import emulated_gpu
import opwright as trt

torch = pytest.importorskip("torch")

import attention_models as models  # noqa: E402 - needs torch

F = torch.nn.functional


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("name", models.MODELS)
def test_exports_become_one_step_without_transposes(name, dynamic):
    if dynamic and name.startswith("Multihead"):
        pytest.skip("the exporter makes the first extent of the keys constant")
    torch.manual_seed(1)
    module = models.MODELS[name]().eval()
    with torch.no_grad():
        engine = models.built(module, dynamic, device="cpu")
        assert len(models.steps(engine, "FusedAttention")) == 1
        # Masks of open extents are computed, by slices among others.
        for kind in ("Transpose", "Softmax") + (() if dynamic else ("Gather", "Slice")):
            assert not models.steps(engine, kind), kind
        for batch, length in [(2, 24), (1, 1), (1, 50), (2, 64)] if dynamic else [(2, 24)]:
            arguments = models.arguments_of(module, batch, length)
            want = module(*arguments).numpy()
            got = engine(**{n: a.numpy() for n, a in zip(module.inputs, arguments)})
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())


def test_weights_that_are_an_output_stay():
    class Both(torch.nn.Module):
        inputs = ("x",)

        def forward(self, x):
            weights = (x @ x.transpose(-1, -2)).softmax(-1)
            return weights @ x, weights

    x = torch.randn(1, 2, 5, 8)
    engine = trt.build(models.exported(Both(), [x], ["x"], False), timing=False, device="cpu")
    assert not models.steps(engine, "FusedAttention")
    want = Both()(x)
    for got, expected in zip(engine(x=x.numpy()).values(), want):
        np.testing.assert_allclose(got, expected.numpy(), atol=1e-5)


CAUSAL = trt.CausalMaskKind


def attention_engine(
    shapes, causal=CAUSAL.NONE, mask=None, lengths=False, dtype=trt.float32, profile=None, **options
):
    """An attention of the API; `shapes` are those of query, key and value, `mask` is a type and a shape, `profile` has
    the ranges of open extents."""
    builder = trt.Builder(trt.Logger())
    network = builder.create_network()
    inputs = [network.add_input(name, dtype, shape) for name, shape in zip("qkv", shapes)]
    layer = network.add_attention(*inputs, trt.AttentionNormalizationOp.SOFTMAX, False)
    layer.causal_kind = causal
    if mask is not None:
        layer.mask = network.add_input("mask", *mask)
    if lengths:
        layer.key_value_lengths = network.add_input("lengths", trt.int32, (shapes[0][0],))
    output = layer.get_output(0)
    output.name = "y"
    network.mark_output(output)
    return trt.build(network, timing=False, shapes=profile, **options)


@pytest.mark.parametrize("causal", [CAUSAL.NONE, CAUSAL.UPPER_LEFT, CAUSAL.LOWER_RIGHT], ids=str)
@pytest.mark.parametrize("shared", [4, 2, 1])
@pytest.mark.parametrize("lengths", [(13, 13), (1, 200), (70, 140)], ids=str)
def test_the_layer_is_one_step(lengths, shared, causal):
    queries, keys = lengths
    shapes = [(2, 4, queries, 16), (2, shared, keys, 16), (2, shared, keys, 16)]
    engine = attention_engine(shapes, causal, device="cpu")
    assert len(models.steps(engine, "FusedAttention")) == 1 and not models.steps(engine, "Softmax")
    torch.manual_seed(queries + shared)
    q, k, v = (torch.randn(shape) for shape in shapes)
    shift = keys - queries if causal == CAUSAL.LOWER_RIGHT else 0
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if causal != CAUSAL.NONE:
        allowed = allowed.tril(shift)
    want = F.scaled_dot_product_attention(q, k, v, allowed, scale=1.0, enable_gqa=True)
    got = engine(q=q.numpy(), k=k.numpy(), v=v.numpy())
    np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=2e-5)


def test_a_large_causal_mask_is_no_tensor():
    length = 1100  # squared, more than a MiB
    shapes = [(1, 2, length, 16)] * 3
    engine = attention_engine(shapes, CAUSAL.UPPER_LEFT, device="cpu")
    assert [layer["LayerType"] for layer in engine.layers] == ["FusedAttention"]
    torch.manual_seed(1)
    q, k, v = (torch.randn(shape) for shape in shapes)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    got = engine(q=q.numpy(), k=k.numpy(), v=v.numpy())
    np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["allowed", "added"])
def test_queries_that_may_meet_nothing_give_zero(kind):
    shapes = [(2, 3, 9, 8)] * 3
    is_bool = kind == "allowed"
    engine = attention_engine(
        shapes, mask=(trt.bool if is_bool else trt.float32, (2, 1, 9, 9)), device="cpu"
    )
    assert len(models.steps(engine, "FusedAttention")) == 1
    torch.manual_seed(3)
    q, k, v = (torch.randn(shape) for shape in shapes)
    allowed = torch.rand(2, 1, 9, 9) < 0.5
    allowed[1, 0, 4] = False
    mask = allowed if is_bool else torch.where(allowed, 0.5, -torch.inf)
    want = F.scaled_dot_product_attention(q, k, v, mask, scale=1.0).nan_to_num(0.0)
    got = engine(q=q.numpy(), k=k.numpy(), v=v.numpy(), mask=mask.numpy())
    np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=2e-5)
    assert (got[1, :, 4] == 0).all()


def test_projections_that_are_one_product_already_stay_so():
    class Packed(torch.nn.Module):
        inputs = ("x",)

        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(32, 96)

        def forward(self, x):
            parts = self.project(x).reshape(2, 10, 3, 4, 8).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(parts[0], parts[1], parts[2])

    torch.manual_seed(1)
    module, x = Packed().eval(), torch.randn(2, 10, 32)
    with torch.no_grad():
        engine = trt.build(models.exported(module, [x], ["x"], False), timing=False, device="cpu")
        (product,) = models.steps(engine, "MatrixMultiply")
        assert product["Outputs"][0]["Dimensions"][-1] == 96
        assert models.steps(engine, "FusedAttention")
        np.testing.assert_allclose(engine(x=x.numpy()), module(x).numpy(), atol=1e-5)


EXTENTS = {"k": [1, 6, 9], "v": [1, 6, 9], "mask": [1, 6, 12]}


def masked_model(dtype: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["": 24]> net (float[1, 2, 5, 8] q, float[1, 2, n, 8] k, '
        f"float[1, 2, n, 8] v, {dtype}[5, m] mask) => (float y) {{ y = Attention(q, k, v, mask) }}"
    )
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
@pytest.mark.parametrize("dtype", ["float", "bool"])
def test_a_mask_may_end_before_the_keys_and_not_go_on(dtype, device):
    """As in the standard's reference; ONNX Runtime refuses either."""
    made = masked_model(dtype)
    shapes = {
        name: [(5, n) if name == "mask" else (1, 2, n, 8) for n in extents]
        for name, extents in EXTENTS.items()
    }
    engine = trt.build(made, shapes=shapes, device=device, timing=False)
    rng = np.random.default_rng(0)
    for keys, given in ((6, 6), (6, 4), (9, 9), (9, 1), (6, 8), (1, 5)):
        feeds = {"q": rng.normal(size=(1, 2, 5, 8)), "k": rng.normal(size=(1, 2, keys, 8))}
        feeds["v"] = rng.normal(size=(1, 2, keys, 8))
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        mask = rng.normal(size=(5, given)).astype(np.float32)
        feeds["mask"] = mask > -0.5 if dtype == "bool" else mask
        if given > keys:
            with pytest.raises(ValueError):
                ReferenceEvaluator(made).run(None, feeds)
            with pytest.raises(trt.Error):
                engine(**feeds)
            continue
        (want,) = ReferenceEvaluator(made).run(None, feeds)
        np.testing.assert_allclose(np.asarray(engine(**feeds)), want, atol=1e-5)


def test_a_mask_of_more_elements_than_keys_is_refused_by_name():
    made = masked_model("bool")
    with pytest.raises(trt.Error, match="rows of the mask have 8 elements, but there are 6 keys"):
        trt.build(made, shapes={"k": (1, 2, 6, 8), "v": (1, 2, 6, 8), "mask": (5, 8)}, device="cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
def test_a_mask_of_the_layer_has_as_many_elements_as_keys(device):
    shapes = [(2, 3, 9, 8), (2, 3, -1, 8), (2, 3, -1, 8)]
    profile = {
        name: [(2, 3, n, 8) if name != "mask" else (2, 1, 9, n) for n in (2, 6, 9)]
        for name in ("k", "v", "mask")
    }
    engine = attention_engine(shapes, mask=(trt.bool, (2, 1, 9, -1)), device=device, profile=profile)
    torch.manual_seed(4)
    for keys, given in ((6, 6), (6, 8), (8, 6)):
        q, k, v = (torch.randn(2, 3, n, 8) for n in (9, keys, keys))
        mask = torch.rand(2, 1, 9, given) < 0.7
        feeds = {"q": q.numpy(), "k": k.numpy(), "v": v.numpy(), "mask": mask.numpy()}
        if given != keys:
            with pytest.raises(trt.Error):
                engine(**feeds)
            continue
        want = F.scaled_dot_product_attention(q, k, v, mask, scale=1.0).nan_to_num(0.0)
        np.testing.assert_allclose(np.asarray(engine(**feeds)), want.numpy(), atol=2e-5)
