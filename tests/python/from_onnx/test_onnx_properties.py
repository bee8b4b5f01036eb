"""Random parameters of the operators that have many, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import opwright
from onnx_graphs import FLOAT, INT64, as_list, assert_close, model, reference_session

bounded = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def normal(shape, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def check(made, runs: list[dict[str, np.ndarray]], tolerance: float = 1e-4) -> None:
    """One engine, built with timing off, gives what ONNX Runtime gives in every run.

    Extents that the model leaves open range over those of the runs.
    """
    reference = reference_session(made)
    wanted = [reference.run(None, run) for run in runs]
    dynamic = [
        value.name
        for value in made.graph.input
        if any(dim.dim_param for dim in value.type.tensor_type.shape.dim)
    ]
    shapes = {}
    for name in dynamic:
        extents = np.array([run[name].shape for run in runs])
        opt = tuple(int(e) for e in extents[0])
        shapes[name] = (tuple(extents.min(0).tolist()), opt, tuple(extents.max(0).tolist()))
    engine = opwright.build(made, shapes=shapes, timing=False)
    for run, want in zip(runs, wanted):
        for ours, theirs in zip(as_list(engine(**run)), want):
            assert_close(ours, theirs, tolerance)


def one_node(op: str, inputs: list[str], constants=None, opset: int = 18, dynamic=(), **attributes):
    """A model of one node whose first inputs are FP32; dynamic: ranks of those with open extents."""
    constants = constants or {}
    free = [name for name in inputs if name and name not in constants]
    specs = {name: (FLOAT, shape) for name, shape in zip(free, dynamic)}
    node = helper.make_node(op, inputs, ["y"], **attributes)
    return model([node], specs, ["y"], constants, opset)


def open_shape(name: str, shape) -> list[str]:
    return [f"{name}{i}" for i in range(len(shape))]


@st.composite
def windows(draw, spatial: int, transposed: bool = False):
    kernel = draw(st.lists(st.integers(1, 4), min_size=spatial, max_size=spatial))
    strides = draw(st.lists(st.integers(1, 3), min_size=spatial, max_size=spatial))
    dilations = draw(st.lists(st.integers(1, 2), min_size=spatial, max_size=spatial))
    if draw(st.booleans()):
        pads = draw(st.lists(st.integers(0, 2), min_size=2 * spatial, max_size=2 * spatial))
        return kernel, {"strides": strides, "dilations": dilations, "pads": pads}
    choices = ["VALID"] if transposed else ["VALID", "SAME_UPPER", "SAME_LOWER"]
    auto = draw(st.sampled_from(choices))
    if auto != "VALID":
        dilations = [1] * spatial
        # ONNX Runtime refuses strides beyond the window here.
        strides = [min(s, k) for s, k in zip(strides, kernel)]
    return kernel, {"strides": strides, "dilations": dilations, "auto_pad": auto}


@st.composite
def runs_of(draw, spatial: int, channels: int):
    """Two shapes [N, C, spatial axes...]."""
    extents = st.lists(st.integers(7, 13), min_size=spatial, max_size=spatial)
    return [(draw(st.integers(1, 3)), channels, *draw(extents)) for _ in range(2)]


@bounded
@given(st.data())
def test_convolution(data):
    spatial = data.draw(st.integers(1, 3), "spatial axes")
    groups = data.draw(st.sampled_from([1, 1, 2, 4]), "groups")
    channels = groups * data.draw(st.sampled_from([1, 3, 8]), "channels of a group")
    outputs = groups * data.draw(st.sampled_from([1, 2, 8]), "outputs of a group")
    kernel, attributes = data.draw(windows(spatial))
    shapes = data.draw(runs_of(spatial, channels))
    weights = {"w": normal((outputs, channels // groups, *kernel))}
    if data.draw(st.booleans(), "bias"):
        weights["b"] = normal((outputs,), 1)
    free = [["n", channels, *(f"e{i}" for i in range(spatial))]]
    made = one_node("Conv", ["x", *weights], weights, dynamic=free, group=groups, **attributes)
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_transposed_convolution(data):
    spatial = data.draw(st.integers(1, 2), "spatial axes")
    groups = data.draw(st.sampled_from([1, 1, 2]), "groups")
    channels = groups * data.draw(st.sampled_from([1, 3, 8]), "channels of a group")
    outputs = data.draw(st.sampled_from([1, 2, 8]), "outputs of a group")
    kernel, attributes = data.draw(windows(spatial, transposed=True))
    if data.draw(st.booleans(), "output padding"):
        attributes["output_padding"] = [s - 1 for s in attributes["strides"]]
    shapes = data.draw(runs_of(spatial, channels))
    weights = {"w": normal((channels, outputs, *kernel))}
    if data.draw(st.booleans(), "bias"):
        weights["b"] = normal((outputs * groups,), 1)
    free = [["n", channels, *(f"e{i}" for i in range(spatial))]]
    made = one_node(
        "ConvTranspose", ["x", *weights], weights, dynamic=free, group=groups, **attributes
    )
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_pooling(data):
    spatial = data.draw(st.integers(1, 3), "spatial axes")
    op = data.draw(st.sampled_from(["MaxPool", "AveragePool"]), "operator")
    channels = data.draw(st.sampled_from([1, 3, 8]), "channels")
    kernel, attributes = data.draw(windows(spatial))
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1), "count_include_pad")
        attributes["dilations"] = [1] * spatial
    if "pads" in attributes:
        # ONNX Runtime refuses padding as wide as the window.
        low = [min(p, k - 1) for p, k in zip(attributes["pads"], kernel * 2)]
        attributes["pads"] = low
        attributes["ceil_mode"] = data.draw(st.integers(0, 1), "ceil_mode")
    shapes = data.draw(runs_of(spatial, channels))
    free = [["n", channels, *(f"e{i}" for i in range(spatial))]]
    made = one_node(op, ["x"], dynamic=free, opset=19, kernel_shape=kernel, **attributes)
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_slice(data):
    rank = data.draw(st.integers(1, 4), "rank")
    shapes = [
        tuple(data.draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank)))
        for _ in range(3)
    ]
    axes = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    count = len(axes)
    ends_of = st.one_of(st.integers(-8, 8), st.sampled_from([2**31 - 1, -(2**63), 2**63 - 1]))
    steps = [data.draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in axes]
    ends = data.draw(st.lists(ends_of, min_size=count, max_size=count))
    # The largest integer says "to the end" forwards, the smallest backwards; ONNX Runtime takes the
    # largest for both.
    ends = [-e if step < 0 and e > 8 else e for e, step in zip(ends, steps)]
    constants = {
        "starts": data.draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count)),
        "ends": ends,
        "axes": [a - rank if data.draw(st.booleans()) else a for a in axes],
        "steps": steps,
    }
    constants = {name: np.array(value, np.int64) for name, value in constants.items()}
    made = one_node("Slice", ["x", *constants], constants, dynamic=[open_shape("e", shapes[0])])
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_pad(data):
    rank = data.draw(st.integers(1, 4), "rank")
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]), "mode")
    shapes = [
        tuple(data.draw(st.lists(st.integers(3, 6), min_size=rank, max_size=rank)))
        for _ in range(2)
    ]
    # Beyond extent - 1 neither engine has a rule for reflection and wrapping in common.
    low = -1 if mode == "constant" else 0
    pads = data.draw(st.lists(st.integers(low, 2), min_size=2 * rank, max_size=2 * rank))
    constants = {"pads": np.array(pads, np.int64)}
    if mode == "constant":
        constants["value"] = np.array(data.draw(st.sampled_from([0.0, 1.5])), np.float32)
    made = one_node(
        "Pad",
        ["x", *constants],
        constants,
        opset=19,
        dynamic=[open_shape("e", shapes[0])],
        mode=mode,
    )
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_resize(data):
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]), "mode")
    shapes = [(2, 3, *(data.draw(st.integers(2, 9)) for _ in range(2))) for _ in range(2)]
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": data.draw(
            st.sampled_from(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
        ),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = data.draw(
            st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        )
    if mode == "cubic":
        attributes["cubic_coeff_a"] = data.draw(st.sampled_from([-0.5, -0.75]))
        attributes["exclude_outside"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans(), "sizes"):
        sizes = [2, 3, *(data.draw(st.integers(2, 17)) for _ in range(2))]
        inputs, constants = ["x", "", "", "sizes"], {"sizes": np.array(sizes, np.int64)}
    else:
        factors = st.sampled_from([0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
        scales = [1.0, 1.0, data.draw(factors), data.draw(factors)]
        inputs, constants = ["x", "", "scales"], {"scales": np.array(scales, np.float32)}
    made = one_node("Resize", inputs, constants, dynamic=[["n", 3, "h", "w"]], **attributes)
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_reshape(data):
    a, b, c = (data.draw(st.integers(1, 4)) for _ in range(3))
    shapes = [(data.draw(st.integers(1, 5)), a, b * c) for _ in range(3)]
    target = data.draw(
        st.sampled_from(
            [[-1], [0, -1], [-1, b * c], [0, 0, b, c], [-1, a, 1, b * c], [a, -1], [0, a, c, -1]]
        )
    )
    constants = {"shape": np.array(target, np.int64)}
    made = one_node("Reshape", ["x", "shape"], constants, dynamic=[["n", a, b * c]])
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_broadcasting(data):
    op = data.draw(st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Less"]), "operator")
    rank = data.draw(st.integers(1, 5), "rank")
    ranks = [rank, data.draw(st.integers(0, rank))]
    if data.draw(st.booleans(), "swap"):
        ranks.reverse()
    is_one = [[data.draw(st.booleans()) for _ in range(rank)] for _ in range(2)]
    runs = []
    for seed in range(3):
        full = [data.draw(st.integers(1, 6)) for _ in range(rank)]
        run = {}
        for name, ones, own in zip("ab", is_one, ranks):
            shape = [1 if one else extent for one, extent in zip(ones, full)]
            run[name] = normal(tuple(shape[rank - own :]), seed)
        runs.append(run)
    # Axes that are 1 in every run stay closed, so that both engines know them.
    free = [
        [1 if one else f"e{i}" for i, one in enumerate(ones)][rank - own :]
        for ones, own in zip(is_one, ranks)
    ]
    check(one_node(op, ["a", "b"], dynamic=free), runs)


@bounded
@given(st.data())
def test_broadcasting_decided_at_run_time(data):
    op = data.draw(st.sampled_from(["Add", "Mul", "Max"]), "operator")
    runs = []
    for seed in range(4):
        full = [data.draw(st.integers(1, 5)) for _ in range(3)]
        shapes = [[1 if data.draw(st.booleans()) else e for e in full] for _ in range(2)]
        runs.append({name: normal(tuple(s), seed) for name, s in zip("ab", shapes)})
    check(one_node(op, ["a", "b"], dynamic=[["a0", "a1", "a2"], ["b0", "b1", "b2"]]), runs)


@bounded
@given(st.data())
def test_reduction(data):
    names = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
    op = data.draw(st.sampled_from(names), "operator")
    rank = data.draw(st.integers(1, 5), "rank")
    shapes = [tuple(data.draw(st.integers(1, 6)) for _ in range(rank)) for _ in range(2)]
    axes = data.draw(st.lists(st.integers(0, rank - 1), max_size=rank, unique=True))
    constants = {"axes": np.array(axes, np.int64)} if axes else {}
    made = one_node(
        f"Reduce{op}",
        ["x", *constants],
        constants,
        dynamic=[open_shape("e", shapes[0])],
        keepdims=data.draw(st.integers(0, 1)),
    )
    check(made, [{"x": normal(shape)} for shape in shapes])


@bounded
@given(st.data())
def test_matrix_product(data):
    """Vectors, matrices and stacks that broadcast, the second one constant or not."""
    n, k, m = (data.draw(st.integers(1, 9)) for _ in range(3))
    stack = data.draw(st.lists(st.integers(1, 3), max_size=2))
    ones = [[data.draw(st.booleans()) for _ in stack] for _ in range(2)]
    left, right = ([1 if one else e for one, e in zip(o, stack)] for o in ones)
    a = [k] if data.draw(st.integers(0, 4)) == 0 else [*left, n, k]
    b = [k] if data.draw(st.integers(0, 4)) == 0 else [*right, k, m]
    constants = {"b": normal(tuple(b), 1)} if data.draw(st.booleans(), "constant") else {}
    shapes = [a, a]
    if len(a) > 1:
        shapes = [a, [*a[:-2], data.draw(st.integers(1, 9)), k]]
    free_a = [*a[:-2], "n", k] if len(a) > 1 else a
    made = one_node("MatMul", ["a", "b"], constants, dynamic=[free_a, b])
    runs = [{"a": normal(tuple(shape))} for shape in shapes]
    if not constants:
        for seed, run in enumerate(runs):
            run["b"] = normal(tuple(b), seed)
    check(made, runs)


@bounded
@given(st.data())
def test_gather(data):
    op = data.draw(st.sampled_from(["Gather", "GatherElements", "GatherND"]), "operator")
    rank = data.draw(st.integers(1, 4), "rank")
    lowest = data.draw(st.integers(2, 5))
    axis = data.draw(st.integers(0, rank - 1))
    own = data.draw(st.integers(0 if op == "Gather" else 1, 3), "rank of the indices")
    depth = data.draw(st.integers(1, rank), "indices of an element")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    runs = []
    for _ in range(2):
        shape = tuple(int(e) for e in rng.integers(lowest, 7, rank))
        if op == "GatherElements":
            indices_shape = tuple(int(rng.integers(1, e + 1)) for e in shape)
        elif op == "GatherND":
            indices_shape = (*(int(e) for e in rng.integers(1, 4, own - 1)), depth)
        else:
            indices_shape = tuple(int(e) for e in rng.integers(1, 5, own))
        indices = rng.integers(-lowest, lowest, indices_shape)
        runs.append({"x": normal(shape), "i": np.asarray(indices, np.int64)})
    attributes = {} if op == "GatherND" else {"axis": axis}
    free = open_shape("i", runs[0]["i"].shape)
    if op == "GatherND":
        free[-1] = depth
    made = model(
        [helper.make_node(op, ["x", "i"], ["y"], **attributes)],
        {"x": (FLOAT, open_shape("e", runs[0]["x"].shape)), "i": (INT64, free)},
        ["y"],
    )
    check(made, runs)
