"""Requests that hypothesis makes up: the parser takes them or says why not, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette")

from opwright.serving._protocol import (  # noqa: E402
    decode_request,
    decompress,
    encode_response,
)
from opwright.serving._signature import BadRequestError, Signature, TensorSpec  # noqa: E402

SIGNATURE = Signature(
    (TensorSpec("x", "FP32", "float32", (-1, 2)), TensorSpec("k", "INT8", "int8", (-1,))),
    (TensorSpec("y", "FP16", "float16", (-1, 2)),),
    ({"x": ((1, 2), (4, 2)), "k": ((1,), (4,))},),
)
TYPES = {"FP32": "float32", "INT8": "int8"}

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


def rarely(strategy):
    """Mostly the strategy, at times anything."""
    return st.one_of(strategy, strategy, strategy, strategy, anything)


@st.composite
def tensors(draw):
    entry = {
        "name": draw(rarely(st.sampled_from(["x", "k"]))),
        "datatype": draw(rarely(st.sampled_from(["FP32", "INT8", "FP16", "BYTES"]))),
        "shape": draw(rarely(st.lists(st.integers(-1, 5), max_size=3))),
    }
    if draw(st.booleans()):
        entry["data"] = draw(rarely(st.lists(rarely(st.integers(-200, 200)), max_size=8)))
    if draw(st.booleans()):
        entry["parameters"] = draw(
            rarely(st.fixed_dictionaries({"binary_data_size": rarely(st.integers(-1, 40))}))
        )
    return entry


requests = rarely(
    st.fixed_dictionaries(
        {"inputs": rarely(st.lists(rarely(tensors()), max_size=3))},
        optional={
            "id": anything,
            "parameters": rarely(
                st.fixed_dictionaries({"binary_data_output": rarely(st.booleans())})
            ),
            "outputs": rarely(
                st.lists(rarely(st.fixed_dictionaries({"name": st.just("y")})), max_size=2)
            ),
        },
    )
)


def check(body, length):
    """A request that is taken fits the signature, whatever else was sent."""
    try:
        request = decode_request(body, length, SIGNATURE)
    except BadRequestError as error:
        assert str(error) and len(str(error)) < 2000
        return
    assert set(request.inputs) == {"x", "k"}
    for spec in SIGNATURE.inputs:
        assert request.inputs[spec.name].dtype == TYPES[spec.datatype]
    assert SIGNATURE.fits({name: array.shape for name, array in request.inputs.items()})
    assert list(request.outputs) == ["y"]


@settings(max_examples=400, deadline=None)
@given(request=requests, data=st.binary(max_size=40), shift=st.none() | st.integers(-5, 5))
def test_requests_with_tensors_of_all_sorts(request, data, shift):
    header = json.dumps(request).encode()
    check(header + data, None if shift is None else str(len(header) + shift))


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200), length=st.none() | st.text(max_size=20))
def test_any_bytes(body, length):
    check(body, length)


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=100), encoding=st.sampled_from(["gzip", "deflate", "br", ""]))
def test_any_packed_bytes(body, encoding):
    try:
        assert len(decompress(body, encoding, 1000)) <= 1000
    except BadRequestError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(
    x=st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=8
    ).filter(lambda x: len(x) % 2 == 0),
    as_binary=st.booleans(),
)
def test_good_requests_arrive_as_they_were_sent(x, as_binary):
    array = np.array(x, np.float32).reshape(-1, 2)
    rows = len(array)
    entries = [
        {"name": "x", "datatype": "FP32", "shape": [rows, 2]},
        {"name": "k", "datatype": "INT8", "shape": [rows], "data": [-128] * rows},
    ]
    data = b""
    if as_binary:
        data = array.tobytes()
        entries[0]["parameters"] = {"binary_data_size": len(data)}
    else:
        entries[0]["data"] = array.tolist()
    header = json.dumps({"inputs": entries}).encode()
    request = decode_request(header + data, str(len(header)), SIGNATURE)
    assert np.array_equal(request.inputs["x"], array)
    assert request.inputs["k"].tolist() == [-128] * rows
    y = np.ones((rows, 2), np.float16)
    body, length = encode_response("net", request, {"y": y}, SIGNATURE)
    assert length is None
    assert json.loads(body)["outputs"] == [
        {"name": "y", "datatype": "FP16", "shape": [rows, 2], "data": [1.0] * (2 * rows)}
    ]
