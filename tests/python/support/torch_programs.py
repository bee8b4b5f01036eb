"""Modules of packages that build on PyTorch, with random weights and with as few and small layers
as possible."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Program = Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]
#: Functions that make a module and its arguments, by "package: description".
PROGRAMS: dict[str, Program] = {}


def program(name: str) -> Callable[[Program], Program]:
    def decorate(make: Program) -> Program:
        PROGRAMS[name] = make
        return make

    return decorate


def package_of(name: str) -> str:
    return name.partition(":")[0]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _pixels(name: str, path: str, side: int = 64, **options: Any) -> None:
    """Registers an image model. `path` names its class, or the function that makes it."""
    module, _, attribute = path.rpartition(".")

    @program(f"{module.partition('.')[0]}: {name}")
    def make() -> Any:
        return getattr(importlib.import_module(module), attribute)(**options), (
            normal(2, 3, side, side),
        )


# segmentation_models_pytorch

for _name, _encoder in {
    "Unet": "resnet18",
    "UnetPlusPlus": "resnet18",
    "MAnet": "mobilenet_v2",
    "Linknet": "efficientnet-b0",
    "FPN": "mit_b0",
    "PSPNet": "densenet121",
    "PAN": "resnet18",
    "DeepLabV3": "resnet18",
    "DeepLabV3Plus": "timm-mobilenetv3_small_100",
    "UPerNet": "resnet18",
    "Segformer": "mit_b0",
    "DPT": "tu-vit_tiny_patch16_224",
}.items():
    _more = {"dynamic_img_size": True} if _name == "DPT" else {}
    _pixels(
        _name,
        f"segmentation_models_pytorch.{_name}",
        128 if _name == "PAN" else 64,
        encoder_name=_encoder,
        encoder_weights=None,
        classes=3,
        **_more,
    )

# torchvision: models that timm lacks

for _name in "raft_small".split():

    @program(f"torchvision: {_name}")
    def _flow(name: str = _name) -> Any:
        from torchvision.models import optical_flow

        model = getattr(optical_flow, name)(weights=None)

        class Last(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
                return self.model(first, second, num_flow_updates=2)[-1]

        return Last(), (normal(1, 3, 128, 128), normal(1, 3, 128, 128).flip(3))


for _name in "r3d_18 mc3_18 r2plus1d_18 s3d mvit_v2_s swin3d_t".split():

    @program(f"torchvision: {_name}")
    def _video(name: str = _name) -> Any:
        from torchvision.models import video

        side = {"mvit_v2_s": 224, "s3d": 224}.get(name, 64)
        frames = 16 if name.startswith(("mvit", "s3d")) else 8
        return getattr(video, name)(weights=None), (normal(1, 3, frames, side, side),)


for _name in "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large".split():

    @program(f"torchvision: {_name}")
    def _segmentation(name: str = _name) -> Any:
        from torchvision.models import segmentation

        model = getattr(segmentation, name)(weights=None, weights_backbone=None)
        return model, (normal(2, 3, 64, 64),)


# open_clip


def _clip(name: str, vision: dict[str, Any], text: dict[str, Any], kind: str = "CLIP") -> None:
    @program(f"open_clip: {name}")
    def make() -> Any:
        from open_clip import model

        made = getattr(model, kind)(32, vision_cfg=vision, text_cfg=text, output_dict=True)
        tokens = torch.randint(1, 99, (3, 16), generator=torch.Generator().manual_seed(0))
        tokens[:, -1] = 99
        return made, (normal(2, 3, 64, 64), tokens)


_TEXT = {"context_length": 16, "vocab_size": 100, "width": 32, "heads": 4, "layers": 2}
_VISION = {"image_size": 64, "layers": 2, "width": 64, "head_width": 16, "patch_size": 16}
_clip("ViT", _VISION, _TEXT)
_clip("ResNet", {**_VISION, "layers": [1, 1, 1, 1], "width": 16, "head_width": 16}, _TEXT)
_clip("timm", {"image_size": 64, "timm_model_name": "resnet18", "timm_pool": "avg"}, _TEXT)

# sentence_transformers


@program("sentence_transformers: a Transformer, its pooling, a dense layer")
def _sentences() -> Any:
    from sentence_transformers import models
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    bert = BertModel(BertConfig(vocab_size=99, intermediate_size=40, **small))
    pooling = models.Pooling(32, pooling_mode="mean")
    dense, unit = models.Dense(32, 16), models.Normalize()

    class Sentences(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert, self.rest = bert, torch.nn.ModuleList([pooling, dense, unit])

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
            features = {"token_embeddings": states, "attention_mask": attention_mask}
            for module in self.rest:
                features = module(features)
            return features["sentence_embedding"]

    ids = torch.randint(1, 99, (2, 9), generator=torch.Generator().manual_seed(0))
    return Sentences(), (ids, torch.tensor([[1] * 9, [1] * 6 + [0] * 3]))


# torchaudio


def _audio(name: str, make: Program) -> None:
    program(f"torchaudio: {name}")(make)


def _models() -> Any:
    return importlib.import_module("torchaudio.models")


def _transforms() -> Any:
    return importlib.import_module("torchaudio.transforms")


_LENGTHS = torch.tensor([30, 20])
_audio("Conformer", lambda: (_models().Conformer(16, 4, 32, 2, 7), (normal(2, 30, 16), _LENGTHS)))
_audio(
    "ConvTasNet",
    lambda: (
        _models().ConvTasNet(
            enc_kernel_size=16, enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32
        ),
        (normal(2, 1, 800),),
    ),
)
_audio("DeepSpeech", lambda: (_models().DeepSpeech(20, n_hidden=32), (normal(2, 1, 30, 20),)))
_audio(
    "Wav2Letter",
    lambda: (_models().Wav2Letter(num_features=20, input_type="mfcc"), (normal(2, 20, 60),)),
)
_audio(
    "HDemucs",
    lambda: (
        _models().HDemucs(["a", "b"], channels=8, nfft=256, depth=4),
        (normal(1, 2, 8192),),
    ),
)
_audio(
    "Emformer",
    lambda: (
        _models().Emformer(32, 4, 40, 2, 8, right_context_length=2),
        (normal(2, 34, 32), _LENGTHS),
    ),
)
_audio(
    "SquimObjective",
    lambda: (_models().squim_objective_base(), (normal(1, 8000),)),
)
_audio(
    "MelSpectrogram",
    lambda: (_transforms().MelSpectrogram(n_fft=256, n_mels=20), (normal(2, 4000),)),
)
_audio(
    "MFCC",
    lambda: (
        _transforms().MFCC(n_mfcc=13, melkwargs={"n_fft": 256, "n_mels": 20}),
        (normal(2, 4000),),
    ),
)
_audio("Resample", lambda: (_transforms().Resample(16000, 8000), (normal(2, 4000),)))
_audio(
    "GriffinLim",
    lambda: (
        _transforms().GriffinLim(n_fft=256, n_iter=3, rand_init=False),
        (normal(1, 129, 20).abs(),),
    ),
)
_audio(
    "TimeStretch",
    lambda: (
        _transforms().TimeStretch(n_freq=129, fixed_rate=1.2),
        (torch.randn(1, 129, 20, dtype=torch.cfloat),),
    ),
)


# diffusers


def _diffusion(name: str, arguments: Callable[[], tuple[Any, ...]], **options: Any) -> None:
    @program(f"diffusers: {name}")
    def make() -> Any:
        made = getattr(importlib.import_module("diffusers"), name)(**options)

        class Sample(torch.nn.Module):
            """The model with its first result as a tuple."""

            def __init__(self) -> None:
                super().__init__()
                self.model = made

            def forward(self, *args: Any) -> torch.Tensor:
                return self.model(*args, return_dict=False)[0]

        return Sample(), arguments()


_STEP = torch.tensor([7.0])
_DOWN, _UP = ["DownBlock2D", "CrossAttnDownBlock2D"], ["CrossAttnUpBlock2D", "UpBlock2D"]
_BLOCKS = {
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
}
_diffusion(
    "UNet2DConditionModel",
    lambda: (normal(2, 4, 16, 16), _STEP, normal(2, 5, 24)),
    down_block_types=_DOWN,
    up_block_types=_UP,
    cross_attention_dim=24,
    attention_head_dim=8,
    sample_size=16,
    **_BLOCKS,
)
_diffusion(
    "UNet2DModel",
    lambda: (normal(2, 3, 16, 16), _STEP),
    down_block_types=["DownBlock2D", "AttnDownBlock2D"],
    up_block_types=["AttnUpBlock2D", "UpBlock2D"],
    attention_head_dim=8,
    sample_size=16,
    **_BLOCKS,
)
_diffusion(
    "AutoencoderKL",
    lambda: (normal(2, 3, 16, 16),),
    down_block_types=["DownEncoderBlock2D"] * 2,
    up_block_types=["UpDecoderBlock2D"] * 2,
    latent_channels=4,
    **_BLOCKS,
)
_diffusion(
    "VQModel",
    lambda: (normal(2, 3, 16, 16),),
    down_block_types=["DownEncoderBlock2D"] * 2,
    up_block_types=["UpDecoderBlock2D"] * 2,
    num_vq_embeddings=32,
    **_BLOCKS,
)
_diffusion(
    "AutoencoderTiny",
    lambda: (normal(2, 3, 32, 32),),
    encoder_block_out_channels=(8, 8, 8, 8),
    decoder_block_out_channels=(8, 8, 8, 8),
)
_diffusion(
    "AutoencoderOobleck",
    lambda: (normal(1, 2, 512),),
    encoder_hidden_size=8,
    downsampling_ratios=[2, 4],
    channel_multiples=[1, 2],
    decoder_channels=8,
    decoder_input_channels=4,
)
_diffusion(
    "DiTTransformer2DModel",
    lambda: (normal(2, 4, 8, 8), torch.tensor([3, 5]), torch.tensor([1, 2])),
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    out_channels=8,
    num_layers=2,
    sample_size=8,
    num_embeds_ada_norm=10,
)
_diffusion(
    "SD3Transformer2DModel",
    lambda: (normal(1, 4, 8, 8), normal(1, 5, 16), normal(1, 16), torch.tensor([3.0])),
    sample_size=8,
    in_channels=4,
    num_layers=2,
    attention_head_dim=8,
    num_attention_heads=2,
    joint_attention_dim=16,
    caption_projection_dim=16,
    pooled_projection_dim=16,
    out_channels=4,
)


@program("diffusers: FluxTransformer2DModel")
def _flux() -> Any:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
    )

    class Flux(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, x: Any, text: Any, pooled: Any, step: Any, places: Any, words: Any
        ) -> Any:
            return self.model(
                x, text, pooled, step, img_ids=places, txt_ids=words, return_dict=False
            )[0]

    places = torch.cartesian_prod(torch.arange(1.0), torch.arange(4.0), torch.arange(4.0))
    inputs = (normal(1, 16, 4), normal(1, 5, 16), normal(1, 16), torch.tensor([0.5]))
    return Flux(), (*inputs, places, torch.zeros(5, 3))


@program("diffusers: StableAudioDiTModel")
def _stable_audio() -> Any:
    from diffusers import StableAudioDiTModel

    model = StableAudioDiTModel(
        sample_size=16,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        num_key_value_attention_heads=1,
        out_channels=4,
        cross_attention_dim=8,
        time_proj_dim=8,
        global_states_input_dim=8,
        cross_attention_input_dim=8,
    )

    class Audio(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any, step: Any, text: Any, whole: Any) -> Any:
            return self.model(x, step, text, whole, return_dict=False)[0]

    return Audio(), (normal(1, 4, 16), torch.tensor([0.5]), normal(1, 5, 8), normal(1, 1, 8))


# Vocoders and codecs of sound


@program("vocos: the backbone and the inverse transform")
def _vocos() -> Any:
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    backbone = VocosBackbone(input_channels=20, dim=32, intermediate_dim=64, num_layers=2)
    return torch.nn.Sequential(backbone, ISTFTHead(32, 64, 16, padding="same")), (
        normal(2, 20, 30),
    )


@program("encodec: encoder and decoder")
def _encodec() -> Any:
    from encodec.modules import SEANetDecoder, SEANetEncoder

    small = {"n_filters": 4, "ratios": [4, 2], "dimension": 16}
    return torch.nn.Sequential(SEANetEncoder(**small), SEANetDecoder(**small)), (normal(1, 1, 800),)


@program("speechbrain: HifiGAN")
def _hifigan() -> Any:
    from speechbrain.lobes.models.HifiGAN import HifiganGenerator

    model = HifiganGenerator(
        20, 1, "1", [[1, 3, 5], [1, 3, 5]], [3, 5], [8, 4], 16, [4, 2], inference_padding=0
    )
    return model, (normal(1, 20, 12),)


@program("speechbrain: ECAPA_TDNN")
def _ecapa() -> Any:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    model = ECAPA_TDNN(20, lin_neurons=16, channels=[16] * 5, attention_channels=8, se_channels=8)
    return model, (normal(2, 40, 20),)


# ultralytics


def _yolo(name: str) -> None:
    @program(f"ultralytics: {name}")
    def make() -> Any:
        from ultralytics.nn import tasks
        from ultralytics.nn.tasks import yaml_model_load

        kind = "ClassificationModel" if name.endswith("-cls") else "DetectionModel"
        model = getattr(tasks, kind)(yaml_model_load(f"{name}.yaml"), ch=3, verbose=False)
        return model, (normal(1, 3, 128, 128),)


for _name in "yolov8n yolo11n yolo12n yolov8n-cls".split():
    _yolo(_name)
