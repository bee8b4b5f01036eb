"""Reads weights by ranges and writes the models of the ranks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .. import _core
from ._split import Cut, Part, Result

#: Weights of fewer bytes stay in the model's file.
INLINE = 1024
ALIGNMENT = 4096
Array = np.ndarray[Any, Any]


class Weights:
    """The initializers of a model. Those in other files are mapped, not read."""

    def __init__(self, graph: onnx.GraphProto, folder: Path | None):
        self.tensors = {each.name: each for each in graph.initializer}
        self._folder = folder

    def array(self, name: str) -> Array:
        """The elements; those of types below a byte are unpacked."""
        tensor = self.tensors[name]
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        if self._folder is None:
            raise _core.Error(
                f"shard: the weight '{name}' is in another file, and a ModelProto does not say where; give "
                "the model's path"
            )
        entries = {each.key: each.value for each in tensor.external_data}
        path = (self._folder / entries["location"]).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise _core.Error(
                f"shard: the weight '{name}' is at '{entries['location']}', outside of the model's folder"
            )
        if _is_packed(tensor):
            return numpy_helper.to_array(tensor, str(self._folder))
        dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        offset = int(entries.get("offset", 0))
        need = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not path.is_file() or path.stat().st_size < need:
            raise _core.Error(
                f"shard: '{path}' ends before the weight '{name}', which needs {need} bytes of it"
            )
        if 0 in shape:
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, "r", offset, shape)

    def part(self, part: Part, rank: int, ranks: int) -> Array:
        """A rank's part, or the whole weight."""
        array = self.array(part.source)
        return array if part.cut is None else part_of(array, part.cut, rank, ranks)


def part_of(array: Array, cut: Cut, rank: int, ranks: int) -> Array:
    """A rank's part of an array. Copies only parts of several blocks."""
    begin, pieces = 0, []
    for block in cut.blocks:
        size = block // ranks
        place = slice(begin + rank * size, begin + (rank + 1) * size)
        pieces.append(array[(slice(None),) * cut.axis + (place,)])
        begin += block
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, cut.axis)


def _is_packed(tensor: TensorProto) -> bool:
    names = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")
    return tensor.data_type in {getattr(TensorProto, n, -1) for n in names}


class DataFile:
    """A file of weights that grows."""

    def __init__(self, path: Path):
        self.path, self.size = path, 0
        self._file = open(path, "wb")
        self._hash = hashlib.sha256()

    def append(self, tensor: TensorProto, data: memoryview) -> None:
        """Appends the tensor's bytes and says in the tensor where they are."""
        self._write(memoryview(bytes(-self.size % ALIGNMENT)))
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", self.path.name),
            ("offset", self.size),
            ("length", data.nbytes),
        ):
            tensor.external_data.add(key=key, value=str(value))
        self._write(data)

    def _write(self, data: memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += data.nbytes

    def close(self) -> list[dict[str, Any]]:
        """The file's name, size and digest. An empty file goes."""
        self._file.close()
        if not self.size:
            self.path.unlink()
            return []
        return [{"file": self.path.name, "bytes": self.size, "sha256": self._hash.hexdigest()}]


def digest(path: Path) -> str:
    """The SHA-256 digest of a file."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def write_models(
    model: onnx.ModelProto, folder: Path | None, result: Result, ranks: int, target: Path
) -> list[dict[str, Any]]:
    """Writes `rankN.onnx` and `rankN.data`, and `whole.data` with weights that all ranks have.

    :param folder: where the model's external data are.
    :returns: the files with their sizes and digests; the models come first.
    """
    weights = Weights(model.graph, folder)
    whole = DataFile(target / "whole.data")
    shared = {
        name: _tensor(weights, name, part, 0, ranks, whole)
        for name, part in result.parts.items()
        if part.cut is None
    }
    models, data = [], whole.close()
    for rank in range(ranks):
        file = DataFile(target / f"rank{rank}.data")
        new = onnx.ModelProto()
        new.CopyFrom(_without_graph(model))
        graph = new.graph
        graph.name = model.graph.name
        graph.input.extend(each for each in model.graph.input if each.name in result.inputs)
        graph.output.extend(_outputs(model, result, ranks))
        graph.node.extend(result.nodes)
        for name, part in result.parts.items():
            cut = part.cut is not None
            graph.initializer.append(
                _tensor(weights, name, part, rank, ranks, file) if cut else shared[name]
            )
        graph.initializer.extend(make(rank) for make in result.constants.values())
        path = target / f"rank{rank}.onnx"
        path.write_bytes(new.SerializeToString())
        models.append({"file": path.name, "bytes": path.stat().st_size, "sha256": digest(path)})
        data += file.close()
    return [*models, *data]


def _without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    kept = onnx.ModelProto(ir_version=model.ir_version, producer_name="opwright")
    kept.opset_import.extend(model.opset_import)
    kept.metadata_props.extend(model.metadata_props)
    return kept


def _outputs(model: onnx.ModelProto, result: Result, ranks: int) -> list[onnx.ValueInfoProto]:
    outputs = []
    for given in model.graph.output:
        output = onnx.ValueInfoProto()
        output.CopyFrom(given)
        axis = result.outputs[given.name]
        if axis is not None and output.type.tensor_type.HasField("shape"):
            dim = output.type.tensor_type.shape.dim[axis]
            if dim.HasField("dim_value"):
                dim.dim_value //= ranks
        outputs.append(output)
    return outputs


def _tensor(
    weights: Weights, name: str, part: Part, rank: int, ranks: int, file: DataFile
) -> TensorProto:
    source = weights.tensors[part.source]
    tensor = TensorProto(name=name, data_type=source.data_type)
    if source.data_type == TensorProto.STRING:
        tensor.CopyFrom(source)
        tensor.name = name
        return tensor
    array = weights.part(part, rank, ranks)
    tensor.dims.extend(array.shape)
    if _is_packed(source):
        data = memoryview(numpy_helper.from_array(array).raw_data)
    else:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    if data.nbytes < INLINE:
        tensor.raw_data = bytes(data)
    else:
        file.append(tensor, data)
    return tensor
