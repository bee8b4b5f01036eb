"""Masks and rotary embeddings of decoders become parts of kernels, from PyTorch and from ONNX."""

from __future__ import annotations

import io

import numpy as np
import pytest

import opwright

torch = pytest.importorskip("torch")

import attention_models  # noqa: E402
import decoder_models as models  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_gradients")

TYPES = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
LENGTH = 12
CAUSAL = int(opwright.CausalMaskKind.UPPER_LEFT)


def made(dtype="float32", **options):
    torch.manual_seed(3)
    return models.Decoder(**options).eval().to(getattr(torch, dtype))


def given(dtype="float32", batch=2, length=LENGTH):
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(batch, length, models.WIDTH, generator=generator)
    return x.to(getattr(torch, dtype))


def flags(batch=2, length=LENGTH):
    """Keys at the end of the second sequence are padding."""
    return torch.arange(length)[None] < torch.tensor([[length], [length // 2 + 1]])[:batch]


def check(got, want, dtype):
    error = float((torch.as_tensor(got).double() - want).norm() / want.norm())
    assert error < 3 * TYPES[dtype], f"off by {error:.1e}"


def exact(module, *arguments):
    """In FP64, but for tables that the module rounds."""
    wide = [each.double() if each.is_floating_point() else each for each in arguments]
    return module.double()(*wide)


def kinds(engine):
    return [layer["LayerType"] for layer in attention_models.layers(engine)]


def attention_of(engine):
    (step,) = attention_models.steps(engine, "FusedAttention")
    return step


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("shared", [4, 2])
def test_rotary_attention_becomes_four_steps(device, dtype, shared):
    module = made(dtype, shared=shared)
    x = given(dtype)
    engine = opwright.build(module, (x,), device=device, timing=False)
    assert [k for k in kinds(engine) if k != "Reshape"] == [
        "MatrixMultiply",
        "RotaryEmbedding",
        "FusedAttention",
        "MatrixMultiply",
    ]
    assert attention_of(engine)["Attributes"]["causal_kind"] == CAUSAL
    check(engine(x), exact(module, x), dtype)


def test_one_head_of_keys():
    """Its projection stays apart from that of the queries."""
    module, x = made(shared=1), given()
    engine = opwright.build(module, (x,), device="cpu", timing=False)
    assert "RotaryEmbedding" in kinds(engine)
    assert attention_of(engine)["Attributes"]["causal_kind"] == CAUSAL
    check(engine(x), exact(module, x), "float32")


@pytest.mark.parametrize("name", list(models.MASKS))
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_causal_masks_are_parameters(name, is_open):
    module = made(mask=models.MASKS[name])
    x = given()
    extents = torch.export.Dim("length", min=2, max=40)
    shapes = ({1: extents},) if is_open else None
    engine = opwright.build(module, (x,), dynamic_shapes=shapes, device="cpu", timing=False)
    step = attention_of(engine)
    assert step["Attributes"]["causal_kind"] == CAUSAL and len(step["Inputs"]) == 3
    for length in (LENGTH, 2, 33) if is_open else (LENGTH,):
        x = given(length=length)
        check(engine(x), exact(made(mask=models.MASKS[name]), x), "float32")


@pytest.mark.parametrize("name", ["compared", "documents", "lower"])
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_data_stays_a_mask_of_keys(name, is_open):
    module = made(mask=models.MASKS[name])
    extents = torch.export.Dim("length", min=2, max=40)
    shapes = ({1: extents}, {1: extents}) if is_open else None
    arguments = given(), flags()
    engine = opwright.build(module, arguments, dynamic_shapes=shapes, device="cpu", timing=False)
    step = attention_of(engine)
    assert step["Attributes"]["causal_kind"] == CAUSAL and len(step["Inputs"]) == 4
    for length in (LENGTH, 33) if is_open else (LENGTH,):
        arguments = given(length=length), flags(length=length)
        check(engine(*arguments), exact(made(mask=models.MASKS[name]), *arguments), "float32")


def test_masks_that_add_the_lowest_number_to_data_stay():
    module = made(mask=models.added)
    arguments = given(), flags()
    engine = opwright.build(module, arguments, device="cpu", timing=False)
    assert attention_of(engine)["Attributes"]["causal_kind"] == 0
    check(engine(*arguments), exact(made(mask=models.added), *arguments), "float32")


def test_windows_stay_masks():
    module = made(mask=models.window)
    engine = opwright.build(module, (given(),), device="cpu", timing=False)
    step = attention_of(engine)
    assert step["Attributes"]["causal_kind"] == 0 and len(step["Inputs"]) == 4
    check(engine(given()), exact(made(mask=models.window), given()), "float32")


FORMS = {
    "halves": {},
    "before transposition": {"heads_axis": 2},
    "a part": {"turned": 8},
    "neighbours": {"interleaved": True},
    "neighbours of a part": {"interleaved": True, "turned": 8, "heads_axis": 2},
}


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_rotary_embeddings_are_recognized(form, is_open):
    options = {"mask": models.compared, "shared": 2, **FORMS[form]}
    extents = torch.export.Dim("length", min=2, max=40)
    shapes = ({1: extents},) if is_open else None
    module = made(**options)
    engine = opwright.build(module, (given(),), dynamic_shapes=shapes, device="cpu", timing=False)
    assert kinds(engine).count("RotaryEmbedding") == 1
    assert "Slice" not in kinds(engine) and "Concatenation" not in kinds(engine)
    for length in (LENGTH, 2, 33) if is_open else (LENGTH,):
        x = given(length=length)
        check(engine(x), exact(made(**options), x), "float32")


# torch.onnx.export writes wrong reshapes for the other forms.
@pytest.mark.parametrize("form", ["halves", "before transposition"])
@pytest.mark.parametrize("mask", ["compared"])
def test_models_of_onnx_are_recognized(form, mask):
    onnxruntime = pytest.importorskip("onnxruntime")
    module = made(mask=models.MASKS[mask], **FORMS[form])
    x = given()
    file = io.BytesIO()
    torch.onnx.export(
        module,
        (x,),
        file,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch", 1: "length"}},
        opset_version=17,
        dynamo=False,
    )
    spans = {"x": ((1, 1, models.WIDTH), (2, LENGTH, models.WIDTH), (2, 40, models.WIDTH))}
    engine = opwright.build(file.getvalue(), shapes=spans, device="cpu", timing=False)
    assert attention_of(engine)["Attributes"]["causal_kind"] == CAUSAL
    assert len(attention_of(engine)["Inputs"]) == 3
    # Projections of open lengths are not joined, so queries and keys may be turned apart.
    assert kinds(engine).count("RotaryEmbedding") in (1, 2)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for batch, length in ((2, LENGTH), (1, 1), (2, 33)):
        x = given(batch=batch, length=length).numpy()
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(engine(x=x), want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_decoders_of_transformers(name, attention, is_open):
    transformers = pytest.importorskip("transformers")
    if name.startswith("GPT2"):
        config = transformers.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4)
    else:
        config = transformers.LlamaConfig(
            vocab_size=99,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=40,
        )
    config._attn_implementation = attention
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits

    extents = torch.export.Dim("length", min=2, max=40)
    shapes = ({1: extents},) if is_open else None
    ids = torch.randint(3, 90, (2, LENGTH))
    engine = opwright.build(Logits(), (ids,), dynamic_shapes=shapes, device="cpu", timing=False)
    steps = attention_models.steps(engine, "FusedAttention")
    assert [(step["Attributes"]["causal_kind"], len(step["Inputs"])) for step in steps] == [
        (CAUSAL, 3)
    ] * 2
    assert "Slice" not in kinds(engine) and "Concatenation" not in kinds(engine)
    assert "Transpose" not in kinds(engine) or is_open  # the angles are computed in each run
    assert kinds(engine).count("RotaryEmbedding") == (0 if name.startswith("GPT2") else 2)
    for length in (LENGTH, 31) if is_open else (LENGTH,):
        ids = torch.randint(3, 90, (2, length))
        want = Logits()(ids)
        assert (engine(ids) - want).norm() < 1e-5 * want.norm()
