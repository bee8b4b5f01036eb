"""Networks of many kinds, with random weights, for the benchmarks on a GPU: images, volumes, sequences, points, graphs
and text. Classes here are written for the benchmarks. The others come from torchvision and transformers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Case(NamedTuple):
    """A network and its inputs. `types`: the types it is measured in; "tf32" is FP32 whose products may round to TF32.
    `goal`: the time wanted, as a factor of the faster peer's."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    types: tuple[str, ...] = ("fp16",)
    way: str = "torch"
    goal: float = 0.95


def calm(model: nn.Module) -> nn.Module:
    """Scales residual blocks down, since with random weights each would double its input."""
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            if name.endswith(("bn3", "conv.3")):
                module.weight.data.fill_(0.3)
    return model


class Output(nn.Module):
    """The main output of a network with several outputs."""

    def __init__(self, model: nn.Module, key: str):
        super().__init__()
        self.model, self.key = model, key

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*inputs)[self.key]


# ---- Networks of torchvision


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        model = getattr(torchvision.models, name)(weights=None, **options)
        for head in ("heads", "head"):
            for parameter in getattr(model, head, nn.Identity()).parameters():
                if parameter.dim() == 2:  # a head of zeros would hide all layers before
                    nn.init.normal_(parameter, std=0.02)
        return calm(model)

    return make


def segmentation(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        model = getattr(torchvision.models.segmentation, name)
        return Output(calm(model(weights=None, weights_backbone=None)), "out")

    return make


def detector(name: str) -> Callable[[], nn.Module]:
    """A detector's backbone and pyramid of features. The finest level is the result."""

    def make() -> nn.Module:
        import torchvision

        model = getattr(torchvision.models.detection, name)
        return Output(calm(model(weights=None, weights_backbone=None).backbone), "0")

    return make


def video(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return calm(getattr(torchvision.models.video, name)(weights=None))

    return make


# ---- Networks of transformers


def transformer(
    name: str, key: str = "last_hidden_state", **options: Any
) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        model = getattr(transformers, f"{name}Model")
        options.setdefault("attn_implementation", "sdpa")
        config = getattr(transformers, f"{name}Config")(**options)
        config.use_cache = False
        return Output(model(config), key)

    return make


class WhisperEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.WhisperConfig(
            d_model=768, encoder_layers=12, encoder_attention_heads=12, encoder_ffn_dim=3072
        )
        self.encoder = transformers.WhisperModel(config).encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x).last_hidden_state


class TextEncoder(nn.Module):
    """T5's encoder."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        self.encoder = transformers.T5EncoderModel(
            transformers.T5Config(d_model=768, num_layers=12, num_heads=12)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=ids).last_hidden_state


LLAMA = {
    "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 4,
}  # fmt: skip


# ---- Networks of generation


class Block(nn.Module):
    """GroupNorm, SiLU and a convolution, twice, around which the input is added; with the embedding of a time added
    between both, where there is one."""

    def __init__(self, channels: int, maps: int, time: int = 0):
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, channels), nn.GroupNorm(8, maps)
        self.a, self.b = (
            nn.Conv2d(channels, maps, 3, padding=1),
            nn.Conv2d(maps, maps, 3, padding=1),
        )
        self.time = nn.Linear(time, maps) if time else None
        self.skip = nn.Conv2d(channels, maps, 1) if channels != maps else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        y = self.a(F.silu(self.first(x)))
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.b(F.silu(self.second(y)))


class Attention2d(nn.Module):
    """Self-attention over the pixels of an image."""

    def __init__(self, channels: int, heads: int = 4):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        q, k, v = (
            self.qkv(self.norm(x))
            .reshape(n, 3, self.heads, c // self.heads, h * w)
            .transpose(-1, -2)
            .unbind(1)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(n, c, h, w))


class UNet(nn.Module):
    """A U-Net of residual blocks and transposed convolutions."""

    def __init__(
        self,
        width: int = 32,
        levels: int = 4,
        time: int = 0,
        has_attention: bool = False,
        maps: int = 3,
    ):
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.embed = (
            nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time)) if time else None
        )
        self.first = nn.Conv2d(3 if not time else maps, width, 3, padding=1)
        self.down = nn.ModuleList(Block(c, c, time) for c in widths)
        self.less = nn.ModuleList(nn.Conv2d(c, 2 * c, 3, stride=2, padding=1) for c in widths[:-1])
        self.middle = Attention2d(widths[-1]) if has_attention else nn.Identity()
        self.more = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in widths[:-1])
        self.up = nn.ModuleList(Block(2 * c, c, time) for c in widths[:-1])
        self.last = nn.Conv2d(width, maps, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        time = self.embed(time) if self.embed is not None and time is not None else None
        x, kept = self.first(x), []
        for level, block in enumerate(self.down):
            x = block(x, time)
            if level < len(self.less):
                kept.append(x)
                x = self.less[level](x)
        x = self.middle(x)
        for level in reversed(range(len(self.more))):
            x = self.up[level](torch.cat([self.more[level](x), kept[level]], 1), time)
        return self.last(x)


class ImageDecoder(nn.Module):
    """The decoder of a variational autoencoder: residual blocks, attention, and upsampling to the nearest."""

    def __init__(self, widths: tuple[int, ...] = (256, 256, 128, 64)):
        super().__init__()
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.middle = nn.Sequential(
            Block(widths[0], widths[0]),
            Attention2d(widths[0], heads=1),
            Block(widths[0], widths[0]),
        )
        self.levels = nn.ModuleList(
            nn.Sequential(Block(a, b), nn.Upsample(scale_factor=2), nn.Conv2d(b, b, 3, padding=1))
            for a, b in zip(widths, widths[1:])
        )
        self.norm, self.last = nn.GroupNorm(8, widths[-1]), nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.middle(self.first(x))
        for level in self.levels:
            x = level(x)
        return self.last(F.silu(self.norm(x)))


class Vocoder(nn.Module):
    """A waveform from a spectrogram, in the manner of HiFi-GAN (Kong and others, 2020)."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.more, self.blocks = nn.ModuleList(), nn.ModuleList()
        for scale in (8, 8, 2, 2):
            self.more.append(
                nn.ConvTranspose1d(width, width // 2, 2 * scale, scale, padding=scale // 2)
            )
            width //= 2
            self.blocks.append(
                nn.ModuleList(
                    nn.Conv1d(
                        width, width, kernel, padding=kernel // 2 * dilation, dilation=dilation
                    )
                    for kernel in (3, 7)
                    for dilation in (1, 3)
                )
            )
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for more, convolutions in zip(self.more, self.blocks):
            x = more(F.leaky_relu(x, 0.1))
            for convolution in convolutions:
                x = x + convolution(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x)))


class Separator(nn.Module):
    """Temporal convolutions that separate sounds, in the manner of Conv-TasNet (Luo and Mesgarani, 2019)."""

    def __init__(self, width: int = 128, inner: int = 256, repeats: int = 2, dilations: int = 8):
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, width, 16, 8), nn.ConvTranspose1d(width, 1, 16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner),
                nn.Conv1d(inner, inner, 3, padding=1 << d, dilation=1 << d, groups=inner),
                nn.PReLU(), nn.GroupNorm(1, inner), nn.Conv1d(inner, width, 1),
            )
            for _ in range(repeats) for d in range(dilations)
        )  # fmt: skip
        self.mask = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoded = F.relu(self.encode(x))
        y = encoded
        for block in self.blocks:
            y = y + block(y)
        return self.decode(encoded * torch.sigmoid(self.mask(y)))


# ---- Points, graphs and volumes


class PointNet(nn.Module):
    """Features of points and of all of them together (Qi and others, 2017)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 1024)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
                for a, b in zip(widths, widths[1:])
            )
        )
        self.head = nn.Sequential(nn.Conv1d(2048, 256, 1), nn.ReLU(), nn.Conv1d(256, 13, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.layers(x)
        whole = features.amax(2, keepdim=True).expand_as(features)
        return self.head(torch.cat([features, whole], 1))


class GraphNetwork(nn.Module):
    """Layers that add up what the edges bring to each node."""

    def __init__(self, width: int = 128, layers: int = 4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms):
            brought = torch.zeros_like(x).index_add(0, target, layer(x)[source])
            x = norm(x + F.relu(brought) * 0.25)
        return x


class UNet3d(nn.Module):
    """A U-Net of volumes, with instance normalization."""

    def __init__(self, width: int = 32, levels: int = 4):
        super().__init__()
        widths = [width << level for level in range(levels)]

        def twice(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01),
                nn.Conv3d(b, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01),
            )  # fmt: skip

        self.down = nn.ModuleList(twice(a, b) for a, b in zip([1, *widths], widths))
        self.more = nn.ModuleList(nn.ConvTranspose3d(2 * c, c, 2, stride=2) for c in widths[:-1])
        self.up = nn.ModuleList(twice(2 * c, c) for c in widths[:-1])
        self.last = nn.Conv3d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool3d(x, 2))
            kept.append(x)
        x = kept.pop()
        for level in reversed(range(len(self.more))):
            x = self.up[level](torch.cat([self.more[level](x), kept[level]], 1))
        return self.last(x)


# ---- Inputs


def images(count: int, side: int = 224) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(count, 3, side, side),)


def normal(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


def tokens(count: int, length: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randint(0, 30000, (count, length)),)


def noise(count: int, side: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(count, 4, side, side), torch.randn(count, 128)


def graph(nodes: int, edges: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(nodes, 128), *(torch.randint(0, nodes, (edges,)) for _ in range(2))


HALVES = ("fp16", "bf16")
CASES = [
    Case("ResNet-50, batch 1", vision("resnet50"), images(1), way="onnx", goal=0.62),
    Case("ResNet-50, batch 32", vision("resnet50"), images(32), way="onnx", goal=0.79),
    Case("BERT-base, 1 x 128", transformer("Bert"), tokens(1, 128), way="onnx", goal=0.56),
    Case("BERT-base, 32 x 128", transformer("Bert"), tokens(32, 128), way="onnx", goal=0.68),
    Case("ViT-B/16, batch 1", vision("vit_b_16"), images(1), way="onnx", goal=0.65),
    Case("ViT-B/16, batch 32", vision("vit_b_16"), images(32), way="onnx", goal=0.75),
    Case("DeepLabV3-MobileNet, 1 x 320", segmentation("deeplabv3_mobilenet_v3_large"), images(1, 320), way="onnx",
         goal=0.68),
    Case("MobileNetV2, batch 1", vision("mobilenet_v2"), images(1), way="onnx"),
    Case("GoogLeNet, batch 1", vision("googlenet", aux_logits=False, init_weights=False), images(1), way="onnx"),
    Case("Inception v3, batch 1", vision("inception_v3", aux_logits=False, init_weights=False), images(1, 299),
         way="onnx"),
    Case("SqueezeNet 1.1, batch 1", vision("squeezenet1_1"), images(1), way="onnx"),
    # Images
    Case("ResNet-50, batch 8", vision("resnet50"), images(8), ("bf16", "tf32", "fp32")),
    Case("ResNeXt-50, batch 16", vision("resnext50_32x4d"), images(16)),
    Case("RegNet-Y 800MF, batch 1", vision("regnet_y_800mf"), images(1)),
    Case("EfficientNet-B0, batch 1", vision("efficientnet_b0"), images(1)),
    Case("EfficientNet-B0, batch 32", vision("efficientnet_b0"), images(32)),
    Case("DenseNet-121, batch 1", vision("densenet121"), images(1)),
    Case("DenseNet-121, batch 8", vision("densenet121"), images(8)),
    Case("ConvNeXt-T, batch 1", vision("convnext_tiny"), images(1)),
    Case("ConvNeXt-T, batch 32", vision("convnext_tiny"), images(32)),
    Case("Swin-T, batch 1", vision("swin_t"), images(1)),
    Case("Swin-T, batch 8", vision("swin_t"), images(8), HALVES),
    Case("MaxViT-T, batch 1", vision("maxvit_t"), images(1)),
    Case("MobileNetV3-L, batch 8", vision("mobilenet_v3_large"), images(8)),
    Case("ShuffleNetV2, batch 1", vision("shufflenet_v2_x1_0"), images(1)),
    Case("VGG-16, batch 8", vision("vgg16_bn"), images(8)),
    # Detection and segmentation
    Case("RetinaNet's backbone, 1 x 640", detector("retinanet_resnet50_fpn"), images(1, 640)),
    Case("SSDlite's backbone, 8 x 320", detector("ssdlite320_mobilenet_v3_large"), images(8, 320)),
    Case("FCN-ResNet-50, 1 x 520", segmentation("fcn_resnet50"), images(1, 520)),
    Case("LR-ASPP, 8 x 320", segmentation("lraspp_mobilenet_v3_large"), images(8, 320)),
    # Generation
    Case("U-Net, 1 x 256", UNet, images(1, 256)),
    Case("U-Net, 4 x 512", UNet, images(4, 512)),
    Case("Diffusion's U-Net, 2 x 64", functools.partial(UNet, 128, 4, 128, True, 4), functools.partial(noise, 2, 64)),
    Case("Image decoder, 1 x 64", ImageDecoder, normal(1, 4, 64, 64)),
    # Sound
    Case("Whisper-small's encoder, batch 1", WhisperEncoder, normal(1, 80, 3000)),
    Case("wav2vec 2.0, 1 x 5 s", transformer("Wav2Vec2"), normal(1, 80000)),
    Case("Vocoder, 1 x 256", Vocoder, normal(1, 80, 256)),
    Case("Separator, 1 x 2 s", Separator, normal(1, 1, 32000)),
    # Text
    Case("GPT-2, 1 x 256", transformer("GPT2"), tokens(1, 256)),
    Case("GPT-2, 8 x 512", transformer("GPT2"), tokens(8, 512)),
    Case("Llama, 8 layers of 1024, 1 x 512", transformer("Llama", **LLAMA), tokens(1, 512), HALVES),
    Case("T5's encoder, 1 x 128", TextEncoder, tokens(1, 128), ("bf16",)),
    Case("DistilBERT, 8 x 128", transformer("DistilBert"), tokens(8, 128), ("fp16", "tf32")),
    # Points, graphs, volumes, video
    Case("PointNet, 8 x 2048", PointNet, normal(8, 3, 2048)),
    Case("Graph network, 4096 nodes, 32768 edges", GraphNetwork, functools.partial(graph, 4096, 32768)),
    Case("U-Net of volumes, 1 x 64", UNet3d, normal(1, 1, 64, 64, 64)),
    Case("R3D-18, 1 x 16 x 112", video("r3d_18"), normal(1, 3, 16, 112, 112)),
]  # fmt: skip
