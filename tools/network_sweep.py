"""Builds other people's networks, runs them, and compares each with PyTorch: a table by name.

    python3 tools/network_sweep.py --device cuda --types fp16 bf16 --timing --jobs 6 --out out/networks
    python3 tools/network_sweep.py --networks torchvision/densenet121 transformers/llama --device cpu

Networks have random weights. They are those of torchvision (classification, segmentation,
detection's backbones, video, optical flow), timm and transformers, if installed. Each is built in a
process of its own, so that a crash, a hang or the loss of the GPU affects only this network.
Processes share one timing cache. `--seconds` ends the sweep, which then names the remaining
networks.

An error is |ours - reference| / |reference| in norms. The reference is the network in FP64 with
weights and inputs rounded to the type. PyTorch's own error in the type stands beside ours. A
network is right if our error is at most twice PyTorch's, or below the type's resolution. The exit
status is 1 if a network is wrong or ends its process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Errors below these need no comparison with PyTorch's error: they are a few roundings of the type.
RESOLVED = {"fp32": 1e-4, "fp16": 4e-3, "bf16": 3e-2}

TORCHVISION = {
    "classification": """convnext_tiny swin_t efficientnet_b0 regnet_y_400mf densenet121 alexnet convnext_small
        efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet1_0 mobilenet_v2 mobilenet_v3_large
        mobilenet_v3_small regnet_x_800mf resnet18 resnet50 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_5
        squeezenet1_0 squeezenet1_1 swin_v2_t vgg11_bn vit_b_16 wide_resnet50_2 densenet169 efficientnet_b1""".split(),
    "segmentation": "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large".split(),
    "detection": "retinanet_resnet50_fpn ssdlite320_mobilenet_v3_large fcos_resnet50_fpn".split(),
    "video": "r3d_18 mc3_18 r2plus1d_18 s3d mvit_v1_b swin3d_t".split(),
    "optical_flow": ["raft_small"],
}
SIDES = {"inception_v3": 299, "maxvit_t": 224, "vit_b_16": 224, "swin_v2_t": 256}


def torchvision_network(kind: str, name: str) -> tuple[Any, tuple[Any, ...]]:
    import torch
    import torchvision

    def image(*shape: int) -> torch.Tensor:
        return torch.randn(*shape)

    models = torchvision.models
    if kind == "detection":
        whole = getattr(models.detection, name)(weights=None, weights_backbone=None)
        return whole.backbone, (image(1, 3, 320, 320),)
    module = {"segmentation": models.segmentation, "video": models.video}.get(kind, models)
    if kind == "optical_flow":
        flow = models.optical_flow.raft_small(weights=None)
        return flow, (image(1, 3, 128, 128), image(1, 3, 128, 128))
    more = {"weights_backbone": None} if kind == "segmentation" else {}
    if name in ("googlenet", "inception_v3"):
        more = {"init_weights": True, "aux_logits": False}
    made = getattr(module, name)(weights=None, **more)
    if kind == "video":
        side = 224 if name.startswith(("mvit", "swin")) else 112
        return made, (image(1, 3, 16, side, side),)
    side = 160 if kind == "segmentation" else SIDES.get(name, 128 if "swin" not in name else 224)
    return made, (image(1, 3, side, side),)


def timm_network(name: str) -> tuple[Any, tuple[Any, ...]]:
    import timm
    import torch

    made = timm.create_model(name, pretrained=False, num_classes=100)
    return made, (torch.randn(1, *made.default_cfg["input_size"]),)


def transformers_network(name: str) -> tuple[Any, dict[str, Any]]:
    sys.path.insert(0, str(ROOT / "tests" / "python" / "support"))
    import transformers_models

    make, inputs = transformers_models.MODELS[name]
    return make(), inputs


def all_networks() -> list[str]:
    """The names of all networks of the installed packages."""
    import importlib.util as find
    import re

    names = []
    if find.find_spec("torchvision"):
        names += [f"torchvision/{kind}/{name}" for kind, of in TORCHVISION.items() for name in of]
    if find.find_spec("transformers"):
        text = (ROOT / "tests/python/support/transformers_models.py").read_text().partition("MODELS")[2]
        names += [f"transformers/{name}" for name in re.findall(r'^    "(\w+)": \(', text, re.M)]
    if find.find_spec("timm"):
        text = (ROOT / "tests/python/from_torch/test_timm_models.py").read_text()
        listed = text.partition('NAMES = """')[2].partition('"""')[0].split()
        names += [f"timm/{name}" for name in listed]
    return names


# ---- One network, in a process of its own.


def prepared(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The network in evaluation mode, and its positional and named inputs. Normalizations have the
    statistics of their inputs, so that numbers neither grow nor vanish over many layers."""
    import torch

    torch.manual_seed(0)
    package, *rest = name.split("/")
    inputs: Any
    if package == "torchvision":
        module, inputs = torchvision_network(*rest)
    elif package == "timm":
        module, inputs = timm_network(*rest)
    else:
        module, inputs = transformers_network(*rest)
    for parameter in module.parameters():
        if parameter.numel() and parameter.abs().max() == 0:  # zeros would hide all layers before
            torch.nn.init.normal_(parameter, std=0.05)
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if norms:
        module.eval()
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        more = (
            [torch.cat([x, torch.randn(3, *x.shape[1:])]) for x in inputs]
            if isinstance(inputs, tuple)
            else []
        )
        with torch.no_grad():
            module(*more) if more else module(**inputs)
    named = inputs if isinstance(inputs, dict) else {}
    return module.eval(), () if named else inputs, named


def leaves_of(result: Any) -> list[Any]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(result)
    if hasattr(result, "to_tuple"):
        leaves = torch.utils._pytree.tree_leaves(result.to_tuple())
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def distance(got: Any, want: Any) -> float:
    """The largest relative error of the outputs, in norms; infinite if only one of two is
    finite."""
    import torch

    worst = 0.0
    for a, b in zip(got, want, strict=True):
        a, b = a.double().cpu(), b.double().cpu()
        if a.shape != b.shape:
            return float("inf")
        both = torch.isfinite(b)
        if not torch.equal(torch.isfinite(a), both):
            return float("inf")
        if both.any():
            error = (a[both] - b[both]).norm() / (b[both].norm() + 1e-12)
            worst = max(worst, float(error))
    return worst


def turned(tree: Any, to: Any) -> Any:
    import torch

    return torch.utils._pytree.tree_map(
        lambda x: x.to(to) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, tree
    )


def exact_leaves(module: Any, args: Any, kwargs: Any) -> list[Any]:
    """The outputs in FP64, or in FP32 if PyTorch supports an operator in no wider type."""
    import torch

    try:
        return leaves_of(
            module.double()(*turned(args, torch.float64), **turned(kwargs, torch.float64))
        )
    except RuntimeError:
        return leaves_of(
            module.float()(*turned(args, torch.float32), **turned(kwargs, torch.float32))
        )


def one(
    name: str, type_name: str, device: str, timing: bool, options: dict[str, Any]
) -> dict[str, Any]:
    import torch

    import opwright

    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[type_name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module, args, kwargs = prepared(name)

    def placed(tree: Any) -> Any:
        return torch.utils._pytree.tree_map(
            lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, tree
        )

    module = module.to(device).to(kind)
    args, kwargs = placed(turned(args, kind)), placed(turned(kwargs, kind))
    with torch.no_grad():
        theirs = leaves_of(module(*args, **kwargs))
        exact = exact_leaves(module, args, kwargs)
        module = module.to(kind)
        started = time.monotonic()
        engine = opwright.build(
            module, args, kwargs=kwargs or None, device=device, timing=timing, **options
        )
        seconds = time.monotonic() - started
        # Arguments that are not tensors are part of the engine.
        given = {key: x for key, x in kwargs.items() if isinstance(x, torch.Tensor)}
        ours, again = (leaves_of(engine(*args, **given)) for _ in range(2))
    error, their_error = distance(ours, exact), distance(theirs, exact)
    is_same = all(
        torch.equal(a.cpu(), b.cpu()) or not torch.isfinite(a).all() for a, b in zip(ours, again)
    )
    right = error <= max(2 * their_error, RESOLVED[type_name])
    return {
        "verdict": "right" if right else "wrong", "error": error, "theirs": their_error, "seconds": seconds,
        "note": "" if is_same else "two runs differ",
    }  # fmt: skip


# ---- All networks.


def run_one(name: str, type_name: str, arguments: argparse.Namespace, end: float) -> dict[str, Any]:
    left = end - time.monotonic()
    row = {"name": name, "type": type_name, "device": arguments.device}
    if left < 20:
        return {**row, "verdict": "left out", "note": "no time was left"}
    command = [
        sys.executable,
        __file__,
        "--one",
        name,
        "--types",
        type_name,
        "--device",
        arguments.device,
    ]
    command += ["--timing"] * arguments.timing + ["--verify"] * arguments.verify
    command += ["--timing-cache", arguments.timing_cache] if arguments.timing_cache else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=min(left, arguments.limit)
        )
    except subprocess.TimeoutExpired:
        return {**row, "verdict": "no end", "note": f"within {min(left, arguments.limit):.0f} s"}
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            return {**row, **json.loads(line[1:])}
    return {**row, "verdict": "crashed", "note": f"status {done.returncode}: {done.stderr[-600:]}"}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| network | type | device | verdict | error | PyTorch's | build s | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        number = [f"{row[k]:.1e}" if k in row else "" for k in ("error", "theirs")]
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        note = " ".join(row.get("note", "").split()).replace("|", "/")[:240]
        cells = [row["name"], row["type"], row["device"], row["verdict"], *number, seconds, note]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def sweep(arguments: argparse.Namespace) -> int:
    end = time.monotonic() + arguments.seconds
    names = arguments.networks or all_networks()
    work = [(name, kind) for kind in arguments.types for name in names]
    rows: list[dict[str, Any]] = []
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda job: run_one(*job, arguments, end), work):
            rows.append(row)
            print(f"{len(rows)}/{len(work)}", *(row.get(k, "") for k in ("name", "type", "verdict", "error", "theirs")),
                  " ".join(row.get("note", "").split())[:160], flush=True)  # fmt: skip
            (out / "networks.md").write_text(table(rows))
    verdicts = [row["verdict"] for row in rows]
    print(", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))
    return int(any(v in ("wrong", "crashed", "no end") for v in verdicts))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare other people's networks with PyTorch.")
    parser.add_argument("--networks", nargs="*", help="names; all that are installed otherwise")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--types", nargs="*", default=["fp32"], choices=list(RESOLVED))
    parser.add_argument("--timing", action="store_true", help="time all tactics, as builds do")
    parser.add_argument("--verify", action="store_true", help="compare all tactics, too")
    parser.add_argument("--timing-cache", help="one file for all builds")
    parser.add_argument("--jobs", type=int, default=1, help="builds beside each other")
    parser.add_argument("--limit", type=float, default=300, help="seconds of one network")
    parser.add_argument("--seconds", type=float, default=3600, help="seconds of all")
    parser.add_argument("--out", default="out/networks", help="the folder that gets networks.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="print the names")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(all_networks()))
        return 0
    if not arguments.one:
        return sweep(arguments)
    options = {"timing_cache": arguments.timing_cache} if arguments.timing_cache else {}
    options |= {"verify": True} if arguments.verify else {}
    try:
        made = one(arguments.one, arguments.types[0], arguments.device, arguments.timing, options)
    except Exception as error:
        import opwright

        text = f"{type(error).__name__}: {error}"
        # A network that the export refuses, or that PyTorch cannot run in the type, is not a
        # finding.
        ours = isinstance(error, opwright.Error)
        made = {"verdict": "refused" if ours else "not exported", "note": text}
    print("@" + json.dumps(made), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
