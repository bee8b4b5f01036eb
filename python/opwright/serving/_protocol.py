"""KServe's v2 protocol: requests and responses of inference, as JSON and in binary form.

https://github.com/kserve/open-inference-protocol and Triton's extension for binary data: the body
begins with JSON, whose length a header tells. Behind it lie the tensors' bytes in order, little
endian. Everything in a request is checked before it is used.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._signature import BadRequestError, Signature, TensorSpec

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
_MAX_DIMENSIONS = 8
_MAX_TEXT = 100  # the most characters of a request that an error quotes

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class InferRequest:
    """A request whose inputs fit the signature."""

    inputs: Arrays
    outputs: dict[str, bool]
    """The requested outputs in order, and whether each is returned in binary form."""
    id: str | None = None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{what} is {_shown(value)}; expected an object")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequestError(f"{what} is {_shown(value)}; expected an array")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise BadRequestError(f"{what} is {_shown(value)}; expected true or false")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompresses a body by its Content-Encoding: gzip, deflate or identity.

    :raises BadRequestError: for another encoding, a damaged body, or more than `limit` bytes.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadRequestError(
            f"Content-Encoding is {_shown(encoding)}; expected gzip, deflate or identity"
        )
    inflate = zlib.decompressobj(wbits=47)  # 32 + 15: gzip or zlib by their first bytes
    try:
        data = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequestError(f"the {encoding} body is damaged: {error}") from None
    if len(data) > limit:
        raise BadRequestError(f"the body has more than {limit} bytes when it is unpacked")
    if not inflate.eof or inflate.unused_data:
        raise BadRequestError(f"the {encoding} body is cut off or has bytes behind its end")
    return data


def parse_json(body: bytes | memoryview) -> dict[str, Any]:
    """The JSON object of a body. An empty body is an empty object.

    :raises BadRequestError: the body is not a JSON object.
    """
    if not body:
        return {}
    try:
        return _object(json.loads(bytes(body)), "the body")
    except RecursionError:
        raise BadRequestError("the JSON is nested too deeply") from None
    except ValueError as error:  # includes errors of Unicode and of numbers with too many digits
        raise BadRequestError(f"the body is no JSON: {str(error)[:200]}") from None


def decode_request(body: bytes, json_length: str | None, signature: Signature) -> InferRequest:
    """The request in a body.

    :param json_length: the value of JSON_LENGTH_HEADER; None without such a header.
    :raises BadRequestError: for a request that the protocol or the signature does not allow.
    """
    view = memoryview(body)
    header, binary = view, view[:0]
    if json_length is not None:
        if not (json_length.isascii() and json_length.isdigit() and len(json_length) < 19):
            raise BadRequestError(
                f"{JSON_LENGTH_HEADER} is {_shown(json_length)}; expected a number of bytes"
            )
        length = int(json_length)
        if length > len(view):
            raise BadRequestError(
                f"{JSON_LENGTH_HEADER} is {length}, but the body has {len(view)} bytes"
            )
        header, binary = view[:length], view[length:]
    request = parse_json(header)
    parameters = _object(request.get("parameters", {}), "'parameters'")
    identity = request.get("id")
    if identity is not None and not isinstance(identity, str):
        raise BadRequestError(f"'id' is {_shown(identity)}; expected a string")
    inputs = _decode_inputs(_list(request.get("inputs"), "'inputs'"), binary, signature)
    signature.check(inputs)
    binary_output = _flag(parameters.get("binary_data_output", False), "'binary_data_output'")
    return InferRequest(
        inputs, _decode_outputs(request.get("outputs"), binary_output, signature), identity
    )


def _decode_inputs(entries: Sequence[Any], binary: memoryview, signature: Signature) -> Arrays:
    arrays: Arrays = {}
    offset = 0
    for entry in entries:
        entry = _object(entry, "an input")
        spec = signature.input(entry.get("name"))
        what = f"input '{spec.name}'"
        if spec.name in arrays:
            raise BadRequestError(f"{what} is there twice")
        if entry.get("datatype") != spec.datatype:
            raise BadRequestError(
                f"{what}: 'datatype' is {_shown(entry.get('datatype'))}; expected '{spec.datatype}'"
            )
        shape = _shape(entry.get("shape"), what)
        parameters = _object(entry.get("parameters", {}), f"{what}: 'parameters'")
        _refuse_shared_memory(parameters, what)
        size = parameters.get("binary_data_size")
        if size is None:
            arrays[spec.name] = _from_json(entry.get("data"), spec, shape, what)
            continue
        if "data" in entry:
            raise BadRequestError(f"{what} has both 'data' and 'binary_data_size'; give one")
        expected = math.prod(shape) * spec.numpy_type.itemsize
        if not _is_count(size) or size != expected:
            raise BadRequestError(
                f"{what}: 'binary_data_size' is {_shown(size)}; {list(shape)} of {spec.datatype} "
                f"has {expected} bytes"
            )
        if size > len(binary) - offset:
            raise BadRequestError(
                f"{what} needs {size} bytes of binary data; {len(binary) - offset} are left"
            )
        data = np.frombuffer(binary[offset : offset + size], spec.numpy_type)
        if spec.datatype == "BOOL" and size and data.view(np.uint8).max() > 1:
            raise BadRequestError(f"{what} has a byte that is neither 0 nor 1")
        arrays[spec.name] = data.reshape(shape)
        offset += size
    if offset != len(binary):
        raise BadRequestError(
            f"{len(binary) - offset} bytes of binary data belong to no input; each needs a "
            "'binary_data_size'"
        )
    return arrays


def _shape(value: object, what: str) -> tuple[int, ...]:
    extents = _list(value, f"{what}: 'shape'")
    if len(extents) > _MAX_DIMENSIONS or not all(map(_is_count, extents)):
        raise BadRequestError(
            f"{what}: 'shape' is {_shown(extents)}; expected at most {_MAX_DIMENSIONS} numbers, "
            "0 or more"
        )
    return tuple(extents)


def _refuse_shared_memory(parameters: Mapping[str, Any], what: str) -> None:
    if any(name.startswith("shared_memory") for name in parameters):
        raise BadRequestError(
            f"{what} is to be in shared memory, which this server does not have; send the data"
        )


def _flat(data: object, count: int, what: str) -> list[Any]:
    """The elements of nested arrays in order. Nesting is limited to the rank of shapes."""
    level = _list(data, f"{what}: 'data'")
    for _ in range(_MAX_DIMENSIONS):
        if not any(isinstance(each, list) for each in level):
            break
        if not all(isinstance(each, list) for each in level):
            raise BadRequestError(f"{what}: 'data' has arrays and elements side by side")
        level = [element for each in level for element in each]
    if len(level) != count:
        raise BadRequestError(f"{what}: 'data' has {len(level)} elements; the shape has {count}")
    return level


def _from_json(
    data: object, spec: TensorSpec, shape: tuple[int, ...], what: str
) -> np.ndarray[Any, Any]:
    elements = _flat(data, math.prod(shape), what)
    dtype = spec.numpy_type
    # Types are checked first, since NumPy would convert the elements to a common type of its
    # choice.
    kinds: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}}
    allowed = kinds.get(dtype.kind, {int, float})
    if not allowed.issuperset(map(type, elements)):
        wrong = next(each for each in elements if type(each) not in allowed)
        raise BadRequestError(f"{what}: {_shown(wrong)} in 'data' is no {spec.datatype}")
    try:
        if dtype.kind in "iu":
            numbers = np.array(elements, np.int64)
            limits = np.iinfo(dtype)
            if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
                raise OverflowError
            return numbers.astype(dtype).reshape(shape)
        if dtype.kind == "b":
            return np.array(elements, dtype).reshape(shape)
        with np.errstate(over="ignore"):
            return np.array(elements, np.float64).astype(dtype).reshape(shape)
    except OverflowError:
        raise BadRequestError(
            f"{what}: 'data' has a number too large for {spec.datatype}"
        ) from None


def _decode_outputs(value: object, binary_output: bool, signature: Signature) -> dict[str, bool]:
    entries = [] if value is None else _list(value, "'outputs'")
    if not entries:
        return {spec.name: binary_output for spec in signature.outputs}
    outputs: dict[str, bool] = {}
    for entry in entries:
        entry = _object(entry, "an output")
        name = signature.output(entry.get("name")).name
        what = f"output '{name}'"
        if name in outputs:
            raise BadRequestError(f"{what} is there twice")
        parameters = _object(entry.get("parameters", {}), f"{what}: 'parameters'")
        _refuse_shared_memory(parameters, what)
        if parameters.get("classification"):
            raise BadRequestError(
                f"{what}: this server does not classify; ask for the tensor, without "
                "'classification'"
            )
        outputs[name] = _flag(
            parameters.get("binary_data", binary_output), f"{what}: 'binary_data'"
        )
    return outputs


def encode_response(
    model: str,
    request: InferRequest,
    results: Mapping[str, np.ndarray[Any, Any]],
    signature: Signature,
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if binary tensors follow.

    :raises BadRequestError: for values that JSON has no numbers for.
    """
    outputs = []
    pieces: list[Any] = []
    for name, is_binary in request.outputs.items():
        array = np.ascontiguousarray(results[name])
        spec = signature.output(name)
        entry: dict[str, Any] = {"name": name, "datatype": spec.datatype}
        entry["shape"] = list(array.shape)
        if is_binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            pieces.append(array.reshape(-1).view(np.uint8).data)
        else:
            if spec.datatype.startswith(("FP", "BF")):
                array = array.astype(np.float64)
                if not np.isfinite(array).all():
                    raise BadRequestError(
                        f"output '{name}' has infinities or NaN, which JSON does not have; ask for "
                        "it with 'binary_data': true"
                    )
            entry["data"] = array.reshape(-1).tolist()
        outputs.append(entry)
    response = {"model_name": model, "model_version": "1", "outputs": outputs}
    if request.id is not None:
        response["id"] = request.id
    header = json.dumps(response, separators=(",", ":")).encode()
    if not pieces:
        return header, None
    return b"".join([header, *pieces]), len(header)
