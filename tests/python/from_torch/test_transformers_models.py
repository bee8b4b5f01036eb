"""Models of transformers with random weights, as engines and by torch.compile, against PyTorch.

They run where transformers is installed (4.57 was tried), on the CPU. OPWRIGHT_TRANSFORMERS names those that are
wanted, where not all.
"""

from __future__ import annotations

import logging
import math
import os

import pytest

import opwright

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import transformers_models  # noqa: E402

MODELS = transformers_models.MODELS
NAMES = os.environ.get("OPWRIGHT_TRANSFORMERS", "").split() or list(MODELS)

#: What torch.export does not export, and why. torch.compile takes them all, but for `NOT_COMPILED`; what no layer
#: computes stays with PyTorch there.
NOT_BUILT = {
    "deepseek_v3": "data-dependent",  # experts are chosen by the data in Python
    "encodec": "data-dependent",
    "falcon_mamba": "already exists",  # PyTorch registers a parameter that is shared twice
    "gpt_oss": "data-dependent",
    "imagegpt": "not a known type",  # it cannot run without a cache, which is no tensor
    "led": "data-dependent",
    "llava": "data-dependent",
    "longformer": "data-dependent",
    "mixtral": "data-dependent",
    "prophetnet": "as_strided",  # PyTorch exports no writes to such views
    "qwen2_moe": "data-dependent",
    "tapas": "data is not allocated",
    "vits": "data-dependent",
}
NOT_COMPILED = {"prophetnet", "tapas"}  # PyTorch cannot, by any backend
#: In parts, the operators that stay with PyTorch.
PARTS = {
    "llava": "min_nodes",
    "big_bird": "min_nodes",
    "reformer": "randn",
    "vits": "randn_like",
}


pytestmark = pytest.mark.usefixtures("no_gradients")


def tensors(result):
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def model_of(name):
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().eval()
    for parameter in model.parameters():
        if parameter.numel() and parameter.abs().max() == 0:  # what would hide all before it
            torch.nn.init.normal_(parameter, std=0.05)
    return model, inputs


def check(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = a.double(), b.double()
        finite = torch.isfinite(b)
        assert torch.equal(torch.isfinite(a), finite)
        assert (a[finite] - b[finite]).norm() <= 1e-4 * b[finite].norm() + 1e-6


def expected(model, inputs):
    """By PyTorch's own tracing: some models do other things when they are traced."""
    return tensors(torch.compile(model, backend="eager")(**inputs))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_BUILT])
def test_models_that_build(name, monkeypatch):
    if name == "reformer":  # what it draws an engine draws otherwise
        monkeypatch.setattr(
            torch, "randn", lambda shape, **_: torch.arange(math.prod(shape)).sin().reshape(shape)
        )
    model, inputs = model_of(name)
    want = expected(model, inputs)
    torch._dynamo.reset()
    engine = opwright.build(model, kwargs=inputs, device="cpu", timing=False)
    given = {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    check(tensors(engine(**given)), want)


@pytest.mark.parametrize("name", [name for name in NAMES if name in NOT_BUILT])
def test_models_that_do_not_build_say_why(name):
    model, inputs = model_of(name)
    with pytest.raises(Exception, match=NOT_BUILT[name]):
        opwright.build(model, kwargs=inputs, device="cpu", timing=False)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_COMPILED])
def test_models_that_compile(name, caplog):
    model, inputs = model_of(name)
    want = expected(model, inputs)
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "opwright.torch"):
        compiled = torch.compile(model, backend="opwright", options={"timing": False})
        check(tensors(compiled(**inputs)), want)
    if name in PARTS:
        assert PARTS[name] in caplog.text
    else:
        assert "stays with PyTorch" not in caplog.text


# With extents that are not known, at two shapes


def another_shape(inputs):
    """A batch of three, and shorter sequences and narrower images."""

    def other(key, value):
        if not isinstance(value, torch.Tensor):
            return value
        if key == "pixel_values" and value.shape[-1] == 64:
            value = value[..., :48]
        elif key == "input_values" and value.shape[1] == 800:
            value = value[:, :700]
        elif value.dim() > 1 and value.shape[1] in (5, 9) and key != "past_values":
            value = value[:, : value.shape[1] - 2]
        return torch.cat([value, value[:1]]).contiguous()

    return {key: other(key, value) for key, value in inputs.items()}


DYNAMIC = """
bert deberta_v2 distilbert xlnet gpt2 llama gemma2 mistral bloom falcon opt t5 bart whisper vit convnext segformer detr
clip siglip wav2vec2 hubert patchtst mamba resnet upernet perceiver roformer
""".split()


@pytest.mark.parametrize("name", [name for name in DYNAMIC if name in NAMES])
def test_models_of_open_extents(name):
    model, inputs = model_of(name)
    compiled = torch.compile(model, backend="opwright", dynamic=True, options={"timing": False})
    for given in (inputs, another_shape(inputs)):
        check(tensors(compiled(**given)), tensors(model(**given)))


# Texts, a token after the other


@pytest.mark.parametrize(
    "name, cache",
    [
        ("llama", "static"),
        ("llama", None),
        ("gemma2", "static"),
        ("t5", None),
        ("whisper", "static"),
    ],
)
def test_texts_that_a_compiled_model_writes(name, cache, caplog):
    model, inputs = model_of(name)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    given = {key: inputs[key] for key in ("input_ids", "input_features") if key in inputs}
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if cache is not None:
        options["cache_implementation"] = cache
    want = model.generate(**given, **options)
    model.forward = torch.compile(model.forward, backend="opwright", options={"timing": False})
    with caplog.at_level(logging.INFO, "opwright.torch"):
        assert torch.equal(model.generate(**given, **options), want)
        caplog.clear()
        assert torch.equal(model.generate(**given, **options), want)
    assert "built again" not in caplog.text
