"""Extents that data decides, in models that compute them: against ONNX Runtime, for every extent within the bound."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import opwright

# How many elements of a mask hold, as a scalar and as a vector.
COUNT = """
    held = Cast<to = 7>(mask)
    first_axis = Constant<value_ints = [0]>()
    count = ReduceSum<keepdims = 0>(held, first_axis)
    counts = ReduceSum<keepdims = 1>(held, first_axis)
"""
IMAGE = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def parsed(text: str) -> bytes:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    return model.SerializeToString()


def compare(data: bytes, engine, **inputs: np.ndarray) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    results = engine(**inputs)
    results = list(results.values()) if isinstance(results, dict) else [results]
    for result, expected in zip(results, wanted, strict=True):
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


NODES = {
    "Range": """
        start = Constant<value_int = 0>()  step = Constant<value_int = 1>()
        y = Range(start, count, step)""",
    "Range by a negative step": """
        start = Constant<value_int = 9>()  step = Constant<value_int = -2>()
        y = Range(start, count, step)""",
    "Range of floats": """
        limit = Cast<to = 1>(count)
        start = Constant<value_float = 0.5>()  step = Constant<value_float = 0.75>()
        y = Range(start, limit, step)""",
    "Range of INT32 from a computed start": """
        start = Cast<to = 6>(count)  step = Constant<value = int32 {3}>()
        limit = Constant<value = int32 {20}>()
        y = Range(start, limit, step)""",
    "Slice up to": """
        begin = Constant<value_ints = [0]>()  axis = Constant<value_ints = [1]>()
        y = Slice(x, begin, counts, axis)""",
    "Slice from, by steps of two": """
        end = Constant<value_ints = [9223372036854775807]>()
        axis = Constant<value_ints = [1]>()  step = Constant<value_ints = [2]>()
        y = Slice(x, counts, end, axis, step)""",
    "Slice backwards": """
        end = Constant<value_ints = [-9223372036854775807]>()
        axis = Constant<value_ints = [1]>()  step = Constant<value_ints = [-1]>()
        y = Slice(x, counts, end, axis, step)""",
    "Slice from the end": """
        start = Neg(counts)  end = Constant<value_ints = [100]>()
        axis = Constant<value_ints = [1]>()
        y = Slice(x, start, end, axis)""",
    "Slice of both axes": """
        one = Constant<value_ints = [1]>()  zero = Constant<value_ints = [0]>()
        starts = Concat<axis = 0>(one, zero)
        end = Constant<value_ints = [-1]>()
        ends = Concat<axis = 0>(end, counts)
        y = Slice(x, starts, ends)""",
    "Expand": """
        begin = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
        column = Slice(x, begin, one, one)
        rows = Constant<value_ints = [6]>()
        shape = Concat<axis = 0>(rows, counts)
        y = Expand(column, shape)""",
    "Tile": """
        two = Constant<value_ints = [2]>()
        repeats = Concat<axis = 0>(two, counts)
        y = Tile(x, repeats)""",
    "TopK": "y, indices = TopK(x, counts)",
    "ConstantOfShape": """
        three = Constant<value_ints = [3]>()
        shape = Concat<axis = 0>(counts, three)
        y = ConstantOfShape(shape)""",
    "Pad": """
        zeros = Constant<value_ints = [0, 0, 0]>()
        pads = Concat<axis = 0>(zeros, counts)
        y = Pad(x, pads)""",
    "Split": """
        all = Constant<value_ints = [8]>()
        rest = Sub(all, counts)
        parts = Concat<axis = 0>(counts, rest)
        y, z = Split<axis = 1>(x, parts)""",
    "Reshape": """
        begin = Constant<value_ints = [0]>()  axis = Constant<value_ints = [1]>()
        part = Slice(x, begin, counts, axis)
        six = Constant<value_ints = [6]>()
        shape = Concat<axis = 0>(counts, six)
        y = Reshape(part, shape)""",
    "OneHot": """
        one = Constant<value_int = 1>()  depth = Add(count, one)
        off_on = Constant<value_floats = [0.0, 1.0]>()
        y = OneHot(held, depth, off_on)""",
    "Resize by sizes": """
        one = Constant<value_ints = [1]>()  five = Constant<value_ints = [5]>()
        more = Add(counts, one)
        sizes = Concat<axis = 0>(more, five)
        y = Resize<mode = "linear">(x, , , sizes)""",
    "Resize by scales": """
        one = Constant<value_ints = [1]>()
        more = Add(counts, one)  factor = Cast<to = 1>(more)
        same = Constant<value_floats = [1.0]>()
        scales = Concat<axis = 0>(same, factor)
        y = Resize<mode = "nearest">(x, , scales)""",
    "Range, what follows from it, and the same number again": """
        start = Constant<value_int = 0>()  step = Constant<value_int = 1>()
        places = Range(start, count, step)
        columns = Gather<axis = 1>(x, places)
        turned = Transpose(columns)
        y = MatMul(columns, turned)
        z = MatMul(turned, x)
        six = Constant<value_ints = [6]>()
        shape = Concat<axis = 0>(six, counts)
        one = Constant<value = float {1.0}>()
        ones = Expand(one, shape)
        w = Add(columns, ones)""",
}
OUTPUTS = {
    "TopK": ("y", "indices"),
    "Split": ("y", "z"),
    "Range, what follows from it, and the same number again": ("y", "z", "w"),
}


@pytest.mark.parametrize("name", NODES)
def test_a_computed_extent(name):
    outputs = OUTPUTS.get(name, ("y",))
    header = ", ".join(f"float {each}" for each in outputs)
    text = f"net (bool[8] mask, float[6, 8] x) => ({header}) {{ {COUNT} {NODES[name]} }}"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    for output in model.graph.output:
        output.ClearField("type")
    data = onnx.shape_inference.infer_shapes(model).SerializeToString()
    engine = opwright.build(data, device="cpu", timing=False)
    for held in (0, 8, 3, 1, 7, 5):
        compare(data, engine, mask=np.arange(8) < held, x=IMAGE)


# --- Bounds


def lengths_model(arithmetic: str) -> bytes:
    return parsed(f"""
        net (float[4] x) => (int64[n] y) {{
            axis = Constant<value_ints = [0]>()
            {arithmetic}
            start = Constant<value_int = 0>()  step = Constant<value_int = 1>()
            y = Range(start, limit, step)
        }}""")


@pytest.mark.parametrize(
    "arithmetic",
    [
        # What a text-to-speech model computes: durations of its tokens.
        """chances = Sigmoid(x)  half = Constant<value_float = 0.5>()
           long = Div(chances, half)  rounded = Round(long)
           one = Constant<value_float = 1.0>()  most = Constant<value_float = 50.0>()
           lengths = Clip(rounded, one, most)
           whole = Cast<to = 7>(lengths)  sums = CumSum(whole, axis0)
           last = Constant<value_int = -1>()  limit = Gather(sums, last)""",
        """least = ReduceMax<keepdims = 0>(x, axis)  most = Constant<value_float = 30.0>()
           few = Min(least, most)  limit = Cast<to = 7>(few)""",
        "y0, places = TopK(x, axis1)  scalar = Squeeze(places, axis)  limit = Identity(scalar)",
        "one = Constant<value_float = 1.0>()  more = Greater(x, one)  c = Cast<to = 7>(more)"
        "  three = Constant<value_int = 3>()  m = Mul(c, three)  limit = ReduceMax<keepdims = 0>(m, axis)",
    ],
)
def test_bounds_follow_from_how_extents_are_computed(arithmetic):
    arithmetic = arithmetic.replace("axis0", "zero").replace("axis1", "one_i")
    constants = "zero = Constant<value_int = 0>()  one_i = Constant<value_ints = [1]>() "
    data = lengths_model(constants + arithmetic)
    engine = opwright.build(data, device="cpu", timing=False)
    for x in ([0, 0, 0, 0], [9, -9, 2, 3], [-3, 9, 1, 20], [0.5, 3, 0.1, 1]):
        compare(data, engine, x=np.float32(x))


def test_a_bound_that_is_given():
    data = lengths_model("sum = ReduceSum<keepdims = 0>(x, axis)  limit = Cast<to = 7>(sum)")
    with pytest.raises(
        opwright.Error,
        match=r"'Range_\d+' \(Range\): limit \('limit'\) depends on data, and no upper bound .*"
        r"bounds=.*known where these inputs of the model are: 'x'",
    ):
        opwright.build(data, device="cpu", timing=False)
    engine = opwright.build(data, bounds={"limit": 40}, device="cpu", timing=False)
    for total in (40, 0, 17):
        compare(data, engine, x=np.float32([total, 0, 0, 0]))
    with pytest.raises(opwright.Error, match="Range.*41.*40"):
        engine(np.float32([41, 0, 0, 0]))
    compare(data, engine, x=np.float32([1, 2, 3, 4]))
    with pytest.raises(opwright.Error, match="'limit' must not be negative, but is -1"):
        opwright.build(data, bounds={"limit": -1})


def test_inputs_that_do_not_decide_alone_stay_inputs():
    """An integer input of a computation with data has no range of values in a profile."""
    data = parsed("""
        net (int64[3] lengths, float[4] x) => (int64[n] y) {
            axis = Constant<value_ints = [0]>()
            found = NonZero(x)  flat = Squeeze(found, axis)
            both = Concat<axis = 0>(lengths, flat)
            most = Constant<value_int = 50>()
            largest = ReduceMax<keepdims = 0>(both, axis)
            limit = Min(largest, most)
            start = Constant<value_int = 0>()  step = Constant<value_int = 1>()
            y = Range(start, limit, step)
        }""")
    engine = opwright.build(data, device="cpu", timing=False)
    compare(data, engine, lengths=np.array([3, 11, 2]), x=np.float32([0, 1, 1, 0]))
    compare(data, engine, lengths=np.array([0, 1, 2]), x=np.float32([0, 1, 1, 3]))


# --- What consumes such extents

CONSUMERS = {
    "product by weights": "y = MatMul(k, w)",
    "product of rows and columns": "t = Transpose(k)  y = MatMul(k, t)",
    "product over them": "t = Transpose(k)  y = MatMul(t, k)",
    "Gemm": "y = Gemm<transB = 1>(k, w)",
    "attention": """
        t = Transpose(k)  scores = MatMul(k, t)  weights = Softmax(scores)
        y = MatMul(weights, k)""",
    "sum over them": "axis = Constant<value_ints = [0]>()  y = ReduceSum(k, axis)",
    "mean of each": "axis = Constant<value_ints = [1]>()  y = ReduceMean(k, axis)",
    "convolution": """
        axis = Constant<value_ints = [0]>()  t = Transpose(k)  image = Unsqueeze(t, axis)
        y = Conv<pads = [1, 1]>(image, c)""",
    "transposed convolution": """
        axis = Constant<value_ints = [0]>()  t = Transpose(k)  image = Unsqueeze(t, axis)
        y = ConvTranspose<strides = [2]>(image, c)""",
    "pooling": """
        axis = Constant<value_ints = [0]>()  t = Transpose(k)  image = Unsqueeze(t, axis)
        y = MaxPool<kernel_shape = [3], pads = [1, 1]>(image)""",
    "normalization": """
        axis = Constant<value_ints = [0]>()  t = Transpose(k)  image = Unsqueeze(t, axis)
        scale = Constant<value_floats = [1.0]>()  wide = Expand(scale, sixteen)
        sixteen_ones = Identity(wide)
        y = InstanceNormalization(image, sixteen_ones, sixteen_ones)""",
    "LSTM": """
        axis = Constant<value_ints = [1]>()  steps = Unsqueeze(k, axis)
        y = LSTM<hidden_size = 16>(steps, gates, gates)""",
}


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("name", CONSUMERS)
def test_whatever_the_data_decide_runs(name, timing):
    """Of 40 rows those that are chosen, from one to all, whatever the engine was planned for."""
    body = CONSUMERS[name].replace(
        "wide = Expand", "sixteen = Constant<value_ints = [16]>()  wide = Expand"
    )
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.standard_normal((16, 16)).astype(np.float32),
        "c": rng.standard_normal((16, 16, 3)).astype(np.float32),
        "gates": rng.standard_normal((1, 64, 16)).astype(np.float32) / 4,
    }
    text = f"""net (float[40, 16] x, bool[40] chosen) => (float y) {{
        k = Compress<axis = 0>(x, chosen)
        {body} }}"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    model.graph.output[0].ClearField("type")
    for weight, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    data = onnx.shape_inference.infer_shapes(model).SerializeToString()
    engine = opwright.build(data, device="cpu", timing=timing)
    x = rng.standard_normal((40, 16)).astype(np.float32)
    for count in (20, 40, 1, 13, 33, 2):
        compare(data, engine, x=x, chosen=rng.permutation(40) < count)


# --- Axes that data decides

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
CUBE = np.random.default_rng(9).uniform(0.5, 2, (3, 4, 5)).astype(np.float32)


def reduction_by(
    operator: str, attributes: str, axes: str, shape: str = "3, 4, 5", kind: str = "float"
) -> bytes:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        net ({kind}[{shape}] x, int64[{axes}] axes) => ({kind} y) {{ y = {operator}<{attributes}>(x, axes) }}""")
    model.graph.output[0].ClearField("type")
    return model.SerializeToString()


@pytest.mark.parametrize("keepdims", [1, 0])
@pytest.mark.parametrize("operator", REDUCTIONS)
def test_reductions_along_axes_of_an_input(operator, keepdims):
    for count, choices in ((1, ([0], [1], [2], [-1], [-3])), (2, ([0, 1], [2, 0], [-1, 1]))):
        data = reduction_by(operator, f"keepdims = {keepdims}", str(count))
        engine = opwright.build(data, device="cpu", timing=False)
        for axes in choices:
            compare(data, engine, x=CUBE, axes=np.array(axes))
        with pytest.raises(opwright.Error):
            engine(x=CUBE, axes=np.full(count, 3))


@pytest.mark.parametrize("noop", [0, 1])
def test_reductions_along_any_number_of_axes(noop):
    data = reduction_by("ReduceSum", f"noop_with_empty_axes = {noop}", "n", "b, 4, 5")
    shapes = {"x": ((1, 4, 5), (3, 4, 5), (6, 4, 5)), "axes": ((0,), (1,), (3,))}
    engine = opwright.build(data, shapes=shapes, device="cpu", timing=False)
    for x in (CUBE, CUBE[:1], np.concatenate([CUBE, CUBE])):
        for axes in ([], [1], [0, 2], [0, 1, 2], [-1]):
            compare(data, engine, x=x, axes=np.array(axes, np.int64))


@pytest.mark.parametrize("kind", ["int32", "int64", "float16"])
def test_other_types_along_axes_of_an_input(kind):
    data = reduction_by("ReduceMax", "keepdims = 1", "1", kind=kind)
    engine = opwright.build(data, device="cpu", timing=False)
    x = (CUBE * 100).astype("float16" if kind == "float16" else kind)
    for axis in range(3):
        compare(data, engine, x=x, axes=np.array([axis]))


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_means_of_integers_along_axes_of_an_input(kind):
    """Sums beyond 32 bits that are divided once, towards 0."""
    data = reduction_by("ReduceMean", "keepdims = 1", "2", shape="a, 9, 17", kind=kind)
    shapes = {"x": ((0, 9, 17), (2, 9, 17), (2, 9, 17))}
    engine = opwright.build(data, shapes=shapes, device="cpu", timing=False)
    rng = np.random.default_rng(0)
    for limit in (1000, 2**31 - 1):
        x = rng.integers(-limit, limit, (2, 9, 17), dtype=kind)
        for axes in ([1, -3], [0, 2], [2, 1], [-1, 2]):
            total = x.sum(tuple({axis % 3 for axis in axes}), keepdims=True, dtype=np.int64)
            count = x.size // total.size
            want = np.sign(total) * (np.abs(total) // count)
            np.testing.assert_array_equal(engine(x=x, axes=np.array(axes)), want)
            compare(data, engine, x=x, axes=np.array(axes))
    assert not engine(x=np.zeros((0, 9, 17), kind), axes=np.array([0, 1])).any()


@pytest.mark.parametrize("axes", ["by data", "constant"])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceLogSumExp"])
def test_reductions_in_16_bits_are_rounded_once(operator, axes):
    """The standard's function of ReduceLogSumExp computes in FP64 and casts in the end."""
    data = reduction_by(operator, "keepdims = 0", "2", shape="6, 90, 17", kind="float16")
    if axes == "constant":
        model = onnx.load_from_string(data)
        del model.graph.input[1]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 2]), "axes"))
        data = model.SerializeToString()
    engine = opwright.build(data, device="cpu", timing=False)
    x = np.random.default_rng(3).uniform(0.5, 12, (6, 90, 17)).astype(np.float16)
    got = engine(x=x, axes=np.array([0, 2])) if axes == "by data" else engine(x=x)
    wide = x.astype(np.float64)
    exact = {
        "ReduceMean": lambda: wide.mean((0, 2)),
        "ReduceSum": lambda: wide.sum((0, 2)),
        "ReduceLogSumExp": lambda: np.log(np.exp(wide).sum((0, 2))),
    }[operator]()
    ulp = np.spacing(exact.astype(np.float16)).astype(np.float64)
    assert (np.abs(got.astype(np.float64) - exact) <= 0.501 * ulp).all()


@pytest.mark.parametrize("keepdims", [1, 0])
def test_reductions_of_nothing(keepdims):
    data = reduction_by("ReduceSum", f"keepdims = {keepdims}", "1", "a, b, c")
    shapes = {"x": ((0, 0, 0), (2, 3, 4), (4, 4, 4))}
    engine = opwright.build(data, shapes=shapes, device="cpu", timing=False)
    for shape in ((2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0), (4, 1, 4)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        for axis in range(3):
            want = x.sum(axis, keepdims=bool(keepdims))
            got = engine(x=x, axes=np.array([axis]))
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_axes_leave_broadcasts():
    """Beside a tensor of the extents that were reduced or not."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        net (float[7, 3] x, int64[1] axes) => (float y) {
            s = ReduceLogSumExp(x, axes)  m = Sum(s, x, x)  y = Div(m, s)
        }""")
    model.graph.output[0].ClearField("type")
    data = model.SerializeToString()
    x = np.random.default_rng(1).uniform(1, 2, (7, 3)).astype(np.float32)
    for timing in (False, True):
        engine = opwright.build(data, device="cpu", timing=timing)
        for axis in (0, 1, -1, -2):
            compare(data, engine, x=x, axes=np.array([axis]))


def test_axes_that_are_computed():
    """From constants they are known; from elements they are found in each run."""
    known = parsed("""
        net (float[3, 4, 5] x) => (float[3, 1, 5] y) {
            one = Constant<value_ints = [1]>()  two = Add(one, one)  axes = Sub(two, one)
            y = ReduceMean(x, axes)
        }""")
    engine = opwright.build(known, device="cpu", timing=False)
    compare(known, engine, x=CUBE)
    by_data = parsed("""
        net (float[3, 4, 5] x, float[3] chances) => (float[a, b, c] y) {
            only = Constant<value = int64 {0}>()
            axis = ArgMax<axis = 0, keepdims = 1>(chances)
            y = ReduceSum(x, axis)
        }""")
    engine = opwright.build(by_data, device="cpu", timing=False)
    for axis in (2, 0, 1):
        compare(by_data, engine, x=CUBE, chances=np.eye(3, dtype=np.float32)[axis])


def test_a_rank_that_axes_would_decide():
    data = reduction_by("ReduceSum", "keepdims = 0", "n")
    with pytest.raises(
        opwright.Error,
        match=r"\(ReduceSum\): there are .* axes, which decide the rank .* give axes a fixed extent, or set keepdims",
    ):
        opwright.build(data, shapes={"axes": ((0,), (1,), (3,))}, device="cpu", timing=False)
