"""``opwright.shard`` and the manifest that it writes."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _api, _core
from ._plan import Rule, rules_of

if TYPE_CHECKING:
    import onnx

MANIFEST = "shards.json"
_CPU = _core.DeviceType.CPU
_FORMAT, _VERSION = "opwright shards", 1


@dataclass(frozen=True)
class Port:
    """An input or output of the whole model."""

    name: str
    axis: int | None
    """The axis along which each rank has its own part; None: all ranks have the whole tensor."""


@dataclass(frozen=True)
class Shards:
    """A model that was cut for ranks: one ONNX file per rank, their engines once they are built,
    and a manifest in JSON."""

    folder: Path
    """The folder of all files."""
    ranks: int
    """How many ranks there are."""
    plan: tuple[Rule, ...]
    """The rules that matched something."""
    inputs: tuple[Port, ...]
    """The inputs, in the model's order."""
    outputs: tuple[Port, ...]
    """The outputs, in the model's order."""
    models: tuple[str, ...]
    """The name of each rank's ONNX file."""
    engines: tuple[str, ...] = ()
    """The name of each rank's engine file; empty until ``build``."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The size and the SHA-256 digest of each file."""
    collectives: Mapping[str, int] = field(default_factory=dict)
    """How many collective nodes of each operation a rank has."""
    device: str = "cpu"
    """Where the engines run: ``"cpu"``, or ``"cuda"``, a GPU for each rank."""
    _is_own: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether this process built the engines."""

    @property
    def manifest(self) -> Path:
        """The path of the manifest."""
        return self.folder / MANIFEST

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Shards:
        """Reads a manifest.

        :param path: its path, or that of its folder.
        :raises Error: it is no manifest, or not one of this version.
        """
        file = Path(path)
        file = file / MANIFEST if file.is_dir() else file
        try:
            given = json.loads(file.read_text())
        except OSError as error:
            raise _core.Error(
                f"'{file}': {error.strerror}; opwright.shard writes manifests"
            ) from None
        except ValueError as error:
            raise _core.Error(f"'{file}' is no manifest of shards: {error}") from None
        if not isinstance(given, dict) or given.get("format") != _FORMAT:
            raise _core.Error(f"'{file}' is no manifest of shards, as opwright.shard writes them")
        if given.get("version") != _VERSION:
            raise _core.Error(
                f"'{file}' is a manifest of version {given.get('version')}; this is version {_VERSION}: "
                "cut the model again"
            )
        try:
            ports = {
                key: tuple(Port(each["name"], each["axis"]) for each in given[key])
                for key in ("inputs", "outputs")
            }
            plan = tuple(
                Rule(
                    each["pattern"],
                    each["action"],
                    each["axis"],
                    each["blocks"] if isinstance(each["blocks"], int) else tuple(each["blocks"]),
                )
                for each in given["plan"]
            )
            found = cls(
                file.parent,
                given["ranks"],
                plan,
                models=tuple(given["models"]),
                engines=tuple(given["engines"]),
                files=given["files"],
                collectives=given["collectives"],
                device=given.get("device", "cpu"),
                **ports,
            )
            for name in (*found.models, *found.engines):
                if Path(name).name != name or name not in found.files:
                    raise ValueError(f"'{name}' is no file of the manifest")
        except (KeyError, TypeError, ValueError) as error:
            raise _core.Error(f"'{file}' is no whole manifest of shards: {error!r}") from None
        return found

    def save(self) -> None:
        """Writes the manifest."""
        given = {
            "format": _FORMAT,
            "version": _VERSION,
            "ranks": self.ranks,
            "plan": [dataclasses.asdict(rule) for rule in self.plan],
            "inputs": [dataclasses.asdict(port) for port in self.inputs],
            "outputs": [dataclasses.asdict(port) for port in self.outputs],
            "models": self.models,
            "engines": self.engines,
            "files": self.files,
            "collectives": self.collectives,
            "device": self.device,
        }
        new = self.manifest.with_suffix(".tmp")
        new.write_text(json.dumps(given, indent=2) + "\n")
        new.replace(self.manifest)

    def check(self, names: Sequence[str]) -> None:
        """Compares files with the manifest's digests.

        :param names: the files' names.
        :raises Error: naming a file that is missing or another one.
        """
        from ._write import digest

        for name in names:
            path, known = self.folder / name, self.files[name]
            if not path.is_file():
                raise _core.Error(
                    f"'{path}', a file of '{self.manifest}', is missing; cut the model again"
                )
            if path.stat().st_size != known["bytes"] or digest(path) != known["sha256"]:
                raise _core.Error(
                    f"'{path}' is not the file that '{self.manifest}' describes; cut the model again, or "
                    "build its engines again"
                )

    def build(
        self, *, shapes: Mapping[str, Any] | None = None, progress: Any = False, **options: Any
    ) -> Shards:
        """Builds the engine of each rank beside its model, one after the other.

        Kernels that rank 0 has timed are not timed again.

        :param shapes: as for ``opwright.build``, in terms of the whole model.
        :param progress: as for ``opwright.build``.
        :param options: further arguments of ``opwright.build``, such as ``fp16=True``. ``device``
            is by default a usable GPU if there is one for each rank, else the CPU. All GPUs are of
            the kind of the one that builds.
        :returns: the shards with their engines. The manifest has them, too.
        :raises Error: as ``opwright.build``.
        """
        shapes = dict(shapes or {})
        for port in self.inputs:
            if port.axis is not None and port.name in shapes:
                low, opt, high = (
                    [each // self.ranks if i == port.axis else each for i, each in enumerate(end)]
                    for end in _api.range_of(shapes[port.name])
                )
                shapes[port.name] = (low, opt, high)
        options["device"] = _device_for(options.get("device"), self.ranks)
        engines, files = [], dict(self.files)
        with tempfile.TemporaryDirectory() as scratch:
            options.setdefault("timing_cache", Path(scratch) / "times")
            for model in self.models:
                data = (Path(model).with_suffix(".data").name, "whole.data")
                self.check([model, *(each for each in data if each in self.files)])
                engine = _api.build(
                    self.folder / model, shapes=shapes, progress=progress, **options
                )
                path = (self.folder / model).with_suffix(".engine")
                engine.save(path)
                engines.append(path.name)
                files[path.name] = _described(path)
        device = "cpu" if _core._parse_device(options["device"]).type == _CPU else "cuda"
        built = dataclasses.replace(self, engines=tuple(engines), files=files, device=device)
        object.__setattr__(built, "_is_own", True)
        built.save()
        return built


def _device_for(device: Any, ranks: int) -> Any:
    """The device that builds the engines of so many ranks; None: the best that there is."""
    if device is not None:
        return device
    if "OPWRIGHT_DEVICE" in os.environ:
        return os.environ["OPWRIGHT_DEVICE"]
    return "cuda" if _core._gpu_count() >= ranks else "cpu"


def _described(path: Path) -> dict[str, Any]:
    from ._write import digest

    return {"bytes": path.stat().st_size, "sha256": digest(path)}


def shard(
    model: Any,
    args: Any = None,
    *,
    ranks: int,
    plan: str | Iterable[Rule | tuple[str, str]] = "auto",
    folder: str | os.PathLike[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Shards:
    """Cut a model for ranks that compute it together: tensor parallelism.

    Writes a model per rank, ``rankN.onnx``, with collective nodes. All ranks take the same inputs
    and give the same outputs as the model, but for those that a rule splits. Weights are cut, and
    weights that all ranks need whole are in one file. Weights in files beside the model are never
    read as a whole.

    A rule is a pattern for names and an action. The first rule that matches counts. Patterns are
    globs on the names of weights and of the nodes that use them.

    - ``columns``: the output features are cut; those of a table of words are gathered after the
      lookup. ``heads``: the same for attention, where whole heads stay together.
    - ``rows``: the input features are cut; an all-reduce sums the products. A bias is added once.
    - ``vocabulary``: words are cut. Each rank looks up its own words in a table, and an all-reduce
      follows. An all-gather follows the last product.
    - ``experts``: the first axis of a weight that has all experts.
    - ``split``: this axis of a weight, an input or an output.
    - ``gather``: a computed tensor that is made whole.
    - ``replicate``: nothing.

    Each cut is followed through the operators behind it. Biases, numbers of heads and shapes follow
    from it.

    :param model: the path of an ONNX file, an ``onnx.ModelProto``, a ``torch.nn.Module`` or a
        ``torch.export.ExportedProgram``, which ``torch.onnx`` exports.
    :param args: for a module: a tuple of example arguments.
    :param ranks: how many processes there will be, 2 or more.
    :param plan: a list of rules ``(pattern, action)`` or ``Rule``; ``"llama"``, ``"gpt2"``; or
        ``"auto"``, which recognizes these by the names.
    :param folder: where the files are written; by default ``model.2ranks`` beside ``model.onnx``.
    :param kwargs: for a module: example keyword arguments.
    :param dynamic_shapes: for a module: the open extents, as for ``torch.export.export``.
    :raises Error: naming the rule that matches nothing, the axis that the ranks do not divide, or
        the node that a cut cannot pass, and how to mend it.
    """
    if not isinstance(ranks, int) or ranks < 2:
        raise ValueError(f"shard: ranks is {ranks!r}; expected an integer of 2 or more")
    try:
        import onnx.inliner
    except ModuleNotFoundError:
        raise _core.Error("opwright.shard needs the module 'onnx': pip install onnx") from None
    from ._graph import split_graph
    from ._write import write_models

    is_path = isinstance(model, (str, os.PathLike))
    if not is_path and folder is None:
        raise TypeError("shard: folder says where the files are written; only a path has a default")
    source = Path(model).parent if is_path else None
    target = Path(folder) if folder is not None else Path(model).with_suffix(f".{ranks}ranks")
    graph = _read(model, args, kwargs, dynamic_shapes)
    if graph.functions:
        graph = onnx.inliner.inline_local_functions(graph)
    names = [*(n.name for n in graph.graph.initializer), *(n.name for n in graph.graph.node)]
    rules, strict = rules_of(plan, names)
    result = split_graph(graph, ranks, rules, strict)
    target.mkdir(parents=True, exist_ok=True)
    files = write_models(graph, source, result, ranks, target)
    shards = Shards(
        target,
        ranks,
        tuple(rule for rule in rules if rule in result.rules),
        tuple(Port(name, axis) for name, axis in result.inputs.items()),
        tuple(Port(name, axis) for name, axis in result.outputs.items()),
        tuple(f"rank{rank}.onnx" for rank in range(ranks)),
        files={each.pop("file"): each for each in files},
        collectives=result.collectives,
    )
    shards.save()
    return shards


def _read(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> onnx.ModelProto:
    """A copy of the model, without the elements of weights in other files."""
    import onnx

    if _api._is_torch(model):
        return _exported(model, args, kwargs, dynamic_shapes)
    if args is not None or kwargs is not None or dynamic_shapes is not None:
        raise TypeError("shard: args, kwargs and dynamic_shapes are for modules of PyTorch")
    if isinstance(model, (str, os.PathLike)):
        try:
            return onnx.load(os.fspath(model), load_external_data=False)
        except OSError as error:
            raise _core.Error(f"shard: '{os.fspath(model)}': {error.strerror}") from None
        except Exception as error:  # of protobuf
            raise _core.Error(f"shard: '{os.fspath(model)}' is no ONNX model: {error}") from None
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    raise TypeError(
        "shard: the model is the path of an ONNX file, an onnx.ModelProto or a module of PyTorch; "
        f"{type(model).__name__} was given"
    )


def _exported(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> onnx.ModelProto:
    """The module as ONNX, with the names of its weights."""
    import torch

    if isinstance(args, torch.Tensor):
        args = (args,)
    try:
        program = torch.onnx.export(
            model,
            tuple(args or ()),
            kwargs=dict(kwargs or {}),
            dynamic_shapes=dynamic_shapes,
            dynamo=True,
            optimize=False,  # what is folded loses its name
            opset_version=23,  # the first one that has attention
            verbose=False,
        )
    except ModuleNotFoundError as error:
        raise _core.Error(
            f"shard: torch.onnx needs the module '{error.name}': pip install onnxscript"
        ) from None
    assert program is not None
    return program.model_proto
