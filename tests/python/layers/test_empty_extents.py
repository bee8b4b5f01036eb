"""Layers of extents of 0, fixed and open, against onnx's reference and ONNX Runtime."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
import opwright as trt

RNG = np.random.default_rng(0)
MOST = 3


def w(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# The shape of x with n and k as 0 or 3, the nodes that read it, and their weights.
LAYERS = {
    "Relu":("n,k","y=Relu(x)",{}),
    "Add":("n,k","y=Add(x,x)",{}),
    "chain":("n,3,k","a=Exp(x) b=Mul(a,x) y=Tanh(b)",{}),
    "Softmax":("n,3,k","y=Softmax(x)",{}),
    "Softmax mid":("n,k,3","y=Softmax<axis=1>(x)",{}),
    "LogSoftmax":("n,k","y=LogSoftmax(x)",{}),
    "ReduceSum":("n,k","y=ReduceSum<keepdims=0>(x,a)",dict(a=np.int64([1]))),
    "ReduceSum0":("n,k","y=ReduceSum<keepdims=0>(x,a)",dict(a=np.int64([0]))),
    "ReduceSumAll":("n,k","y=ReduceSum<keepdims=0>(x)",{}),
    "ReduceProd":("n,k","y=ReduceProd<keepdims=1>(x,a)",dict(a=np.int64([1]))),
    "ReduceMean":("n,k","y=ReduceMean<keepdims=1>(x,a)",dict(a=np.int64([0]))),
    "ReduceL2":("n,k","y=ReduceL2<keepdims=1>(x,a)",dict(a=np.int64([1]))),
    "LayerNorm":("n,3,10","y=LayerNormalization(x,w)",dict(w=w(10))),
    "InstanceNorm":("n,3,5","y=InstanceNormalization(x,w,w)",dict(w=w(3))),
    "BatchNorm":("n,3,k","y=BatchNormalization(x,w,w,w,v)",dict(w=w(3),v=abs(w(3)))),
    "MatMul":("n,10","y=MatMul(x,w)",dict(w=w(10,6))),
    "MatMul rows":("n,k,10","y=MatMul(x,w)",dict(w=w(10,6))),
    "MatMul inner":("n,k","t=Transpose(x) y=MatMul(x,t)",{}),
    "MatMul inner2":("n,k","t=Transpose(x) y=MatMul(t,x)",{}),
    "MatMul stack inner":("n,3,k","t=Transpose<perm=[0,2,1]>(x) y=MatMul(x,t)",{}),
    "MatMul inner bias":("3,k","t=Transpose(x) m=MatMul(x,t) y=Add(m,b)",dict(b=w(3))),
    "Gemm":("3,k","y=Gemm<transB=1,beta=2.0>(x,x,b)",dict(b=w(3))),
    "MatMul relu add":("n,10","m=MatMul(x,w) a=Add(m,b) y=Relu(a)",dict(w=w(10,6),b=w(6))),
    "Conv":("n,3,8,8","y=Conv(x,w,b)",dict(w=w(6,3,3,3),b=w(6))),
    "Conv1":("n,3,8","y=Conv(x,w)",dict(w=w(6,3,3))),
    "ConvDW":("n,4,8,8","y=Conv<group=4,pads=[1,1,1,1]>(x,w)",dict(w=w(4,1,3,3))),
    "ConvTranspose":("n,3,8,8","y=ConvTranspose(x,w)",dict(w=w(3,6,3,3))),
    "MaxPool":("n,3,8,8","y=MaxPool<kernel_shape=[2,2]>(x)",{}),
    "AveragePool":("n,3,8,8","y=AveragePool<kernel_shape=[2,2]>(x)",{}),
    "GlobalAveragePool":("n,3,8,8","y=GlobalAveragePool(x)",{}),
    "Concat":("n,k","y=Concat<axis=0>(x,x)",{}),
    "Concat w":("n,10","y=Concat<axis=0>(x,w)",dict(w=w(2,10))),
    "Transpose":("n,3,k","y=Transpose<perm=[2,0,1]>(x)",{}),
    "Gather":("n,10","y=Gather<axis=1>(x,i)",dict(i=np.int64([1,3]))),
    "Gather none":("n,10","y=Gather<axis=1>(x,i)",dict(i=np.zeros((0,),np.int64))),
    "GatherElements":("4,10","y=GatherElements<axis=1>(x,i)",dict(i=np.zeros((4,0),np.int64))),
    "GatherND":("4,10","y=GatherND(x,i)",dict(i=np.zeros((0,1),np.int64))),
    "Slice":("n,10","y=Slice(x,s,s,a)",dict(s=np.int64([3]),a=np.int64([1]))),
    "Pad":("n,k","y=Pad(x,p)",dict(p=np.int64([1,0,0,2]))),
    "Tile":("n,k","y=Tile(x,p)",dict(p=np.int64([2,3]))),
    "Tile0":("n,4","y=Tile(x,p)",dict(p=np.int64([2,0]))),
    "Expand":("n,1","y=Expand(x,p)",dict(p=np.int64([1,0]))),
    "CumSum":("n,k","y=CumSum(x,a)",dict(a=np.int64(1))),
    "TopK":("n,5","y,i=TopK(x,a)",dict(a=np.int64([2]))),
    "TopK0":("n,5","y,i=TopK(x,a)",dict(a=np.int64([0]))),
    "ArgMax":("n,5","y=ArgMax<axis=1>(x)",{}),
    "NonZero":("n,k","y=NonZero(x)",{}),
    "Unique":("n,k","y=Unique(x)",{}),
    "Compress":("n,k","y=Compress<axis=1>(x,c)",dict(c=np.zeros((1,),bool))),
    "Where":("n,k","z=Constant<value=float {0}>() c=Less(x,z) y=Where(c,x,z)",{}),
    "Resize":("n,3,4","y=Resize<mode=\"linear\">(x,,s)",dict(s=np.float32([1,1,2]))),
    "Resize nearest":("n,3,4,4","y=Resize(x,,s)",dict(s=np.float32([1,1,2,2]))),
    "ScatterElements":("n,5","y=ScatterElements<axis=1>(x,i,u)",dict(i=np.zeros((0,2),np.int64),u=w(0,2))),
    "attention":("n,2,k,8","t=Transpose<perm=[0,1,3,2]>(x) s=MatMul(x,t) p=Softmax(s) y=MatMul(p,x)",{}),
    "LSTM":("4,n,3","y=LSTM<hidden_size=3>(x,w,r)",dict(w=w(1,12,3),r=w(1,12,3))),
    "LSTM len":("k,2,3","y,h=LSTM<hidden_size=3>(x,w,r)",dict(w=w(1,12,3),r=w(1,12,3))),
    "GRU":("4,n,3","y=GRU<hidden_size=3>(x,w,r)",dict(w=w(1,9,3),r=w(1,9,3))),
    "Quantize":("n,k","q=QuantizeLinear(x,s,z) y=DequantizeLinear(q,s,z)",dict(s=np.float32(.1),z=np.int8(0))),
    "Cast":("n,k","c=Cast<to=10>(x) y=Cast<to=1>(c)",{}),
    "Einsum":("n,k","y=Einsum<equation=\"ij,kj->ik\">(x,x)",{}),
    "Reshape":("n,6","y=Reshape<allowzero=1>(x,s)",dict(s=np.int64([0,3,2]))),
    "Flatten":("n,3,k","y=Flatten(x)",{}),
    "OneHot":("n","i=Cast<to=7>(x) y=OneHot(i,d,v)",dict(d=np.int64(4),v=w(2))),
    "DepthToSpace":("n,4,3,k","y=DepthToSpace<blocksize=2>(x)",{}),
    "MatMulInteger":("n,10","q=Cast<to=3>(x) y=MatMulInteger(q,w)",dict(w=np.ones((10,6),np.int8))),
    "Trilu":("n,k","y=Trilu(x)",{}),
    "Max":("n,k","y=Max(x,x,b)",dict(b=w(1))),
    "ReduceLogSumExp":("n,k","y=ReduceLogSumExp<keepdims=0>(x,a)",dict(a=np.int64([1]))),
    "PRelu":("n,3","y=PRelu(x,w)",dict(w=w(3))),
    "Sum then relu rows":("n,10","m=MatMul(x,w) y=ReduceSum<keepdims=0>(m,a)",dict(w=w(10,6),a=np.int64([0]))),
}  # fmt: skip
# What kernels sum nothing or begin at nothing in, and what is fused.
ON_GPU = [
    "chain", "Softmax", "ReduceSum0", "ReduceProd", "LayerNorm", "MatMul inner", "MatMul inner bias", "Conv", "Concat",
    "TopK0", "CumSum", "attention", "Where",
]  # fmt: skip
CASES = [
    *(pytest.param(name, "cpu", id=f"{name}-cpu") for name in LAYERS),
    *(pytest.param(name, "cuda", id=f"{name}-gpu", marks=emulated_gpu.required) for name in ON_GPU),
]


def model_of(name: str, extents: dict[str, int]) -> onnx.ModelProto:
    dims, nodes, weights = LAYERS[name]
    shape = ",".join(str(extents.get(each, each)) for each in dims.split(","))
    made = onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["": 23]> net (float[{shape}] x) => (float y) {{ {nodes} }}'
    )
    made.graph.initializer.extend(numpy_helper.from_array(v, key) for key, v in weights.items())
    made.graph.output[0].ClearField("type")
    return made


def expected(name: str, x: np.ndarray, extents: dict[str, int]) -> np.ndarray:
    made = model_of(name, extents)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of means of nothing
        try:
            return ReferenceEvaluator(made).run(None, {"x": x})[0]
        except Exception:  # its implementation takes no such extents
            pass
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = onnx.shape_inference.infer_shapes(made).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def cases_of(name: str) -> list[dict[str, int]]:
    """First each open extent is 0 by itself, then all are."""
    letters = [each for each in LAYERS[name][0].split(",") if each in "nk"]
    alone = [{each: 0 if each == empty else MOST for each in letters} for empty in letters]
    return [*alone, dict.fromkeys(letters, 0)][: 3 if len(letters) > 1 else 1]


def compare(engine, name: str, extents: dict[str, int]) -> None:
    shape = [extents[each] if each in extents else int(each) for each in LAYERS[name][0].split(",")]
    x = RNG.standard_normal(shape).astype(np.float32)
    got = engine(x=x)
    got = np.asarray(next(iter(got.values())) if isinstance(got, dict) else got)
    want = expected(name, x, extents)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "device"), CASES)
def test_open_extents_of_0(name, device):
    dims = LAYERS[name][0].split(",")
    most = tuple(MOST if each in "nk" else int(each) for each in dims)
    least = tuple(0 if each in "nk" else int(each) for each in dims)
    # The CPU's kernels are quick to make: all tactics, each compared with the build's own reference.
    how = {"verify": "strict", "all_tactics": True} if device == "cpu" else {"timing": False}
    shapes = {"x": (least, most, most)} if least != most else None
    engine = trt.build(model_of(name, {}), shapes=shapes, device=device, **how)
    for extents in cases_of(name) or [{}]:
        compare(engine, name, extents)


@pytest.mark.parametrize("name", LAYERS)
def test_fixed_extents_of_0(name):
    for extents in cases_of(name) or [{}]:
        compare(trt.build(model_of(name, extents), timing=False, device="cpu"), name, extents)
