"""from_torch: operators of PyTorch as plugins, against PyTorch's own results."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from typing import List, Tuple

import onnx.parser
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, network

torch = pytest.importorskip("torch")

TYPES = {
    torch.float32: trt.float32,
    torch.float16: trt.float16,
    torch.bfloat16: trt.bfloat16,
    torch.int32: trt.int32,
    torch.int64: trt.int64,
    torch.int8: trt.int8,
    torch.bool: trt.bool,
}
_numbers = itertools.count()


def define(function, fake=None, mutates_args=(), schema=None):
    """The name of a new custom operator with this function."""
    name = f"testtorch::{function.__name__}{next(_numbers)}"
    options = {} if schema is None else {"schema": schema}
    made = torch.library.custom_op(name, function, mutates_args=mutates_args, **options)
    if fake is not None:
        made.register_fake(fake)
    return name


def eager(name: str, *arguments):
    """What PyTorch itself makes of clones of the arguments."""
    namespace, _, name = name.partition("::")
    operator = getattr(getattr(torch.ops, namespace), name.partition(".")[0])
    if "." in name:
        operator = getattr(operator, name.partition(".")[2])
    return operator(*(a.clone() if isinstance(a, torch.Tensor) else a for a in arguments))


def engine_of(op, tensors, shapes=None, extents=None, **attributes) -> trt.Engine:
    """An engine of one plugin with network inputs like the tensors, of these extents."""
    net = network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    extents = extents or [tuple(t.shape) for t in tensors]
    inputs = [
        net.add_input(f"x{i}", TYPES[t.dtype], d) for i, (t, d) in enumerate(zip(tensors, extents))
    ]
    layer = net.add_plugin(op(*inputs, **attributes))
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    return build(net, *outputs, shapes=shapes)


def check(got, *expected) -> None:
    got = list(got.values()) if isinstance(got, dict) else [got]
    assert len(got) == len(expected)
    for value, wanted in zip(got, expected):
        assert value.dtype == wanted.dtype
        assert torch.equal(value, wanted)


def random(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(shape, generator=generator).to(dtype)


def pad(x: torch.Tensor, pads: List[int], gain: float = 2.0) -> torch.Tensor:
    return torch.nn.functional.pad(x, pads, mode="circular") * gain


def fake_pad(x, pads, gain=2.0):
    left, right, top, bottom = pads
    *outer, height, width = x.shape
    return x.new_empty(*outer, height + top + bottom, width + left + right)


PAD = define(pad, fake_pad)
PADS = [1, 2, 3, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dynamic_shapes_in_every_floating_type(dtype):
    op = trtp.from_torch(PAD)
    x = random(2, 3, 6, 5, dtype=dtype)
    shapes = {"x0": ((1, 3, 4, 4), (2, 3, 6, 5), (4, 3, 9, 9))}
    engine = engine_of(op, [x], shapes, [(-1, 3, -1, -1)], pads=PADS, gain=0.5)
    for shape in [(2, 3, 6, 5), (1, 3, 4, 4), (4, 3, 9, 8)]:
        x = random(*shape, dtype=dtype)
        check(engine(x), eager(PAD, x, PADS, 0.5))


def test_the_schemas_default_values_are_those_of_the_attributes():
    x = random(1, 1, 4, 4)
    op = trtp.from_torch(PAD)
    check(engine_of(op, [x], pads=PADS)(x), eager(PAD, x, PADS, 2.0))
    with pytest.raises(TypeError, match="attribute 'pads' is missing"):
        engine_of(op, [x])


def test_an_argument_may_be_fixed():
    x = random(1, 1, 4, 4)
    op = trtp.from_torch(PAD, gain=3.0)
    check(engine_of(op, [x], pads=PADS)(x), eager(PAD, x, PADS, 3.0))
    with pytest.raises(TypeError, match="has no attribute 'gain'"):
        engine_of(op, [x], pads=PADS, gain=1.0)
    with pytest.raises(TypeError, match="no argument 'gian'; its arguments are: x, pads, gain"):
        trtp.from_torch(PAD, gian=3.0)


def test_every_kind_of_attribute():
    seen = []

    def note(
        x: torch.Tensor, i: int, f: float, s: str, b: bool, fs: List[float], bs: List[bool]
    ) -> torch.Tensor:
        seen.append((i, f, s, b, fs, bs))
        return x * f

    op = trtp.from_torch(define(note, lambda x, *_: torch.empty_like(x)))
    x = random(3)
    given = {"i": -(2**40), "f": 0.1, "s": "é", "b": True, "fs": [0.1, 2.0], "bs": [True, False]}
    check(engine_of(op, [x], **given)(x), x * 0.1)
    assert seen[-1] == tuple(given.values())
    assert [type(v) for v in seen[-1]] == [int, float, str, bool, list, list]


def test_several_outputs_of_several_types():
    def split(x: torch.Tensor, y: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x[::2] + y, x > y, x.flatten().sum(dtype=torch.float32).to(torch.int64)

    def fake(x, y):
        rows = (x.shape[0] + 1) // 2
        boolean, scalar = x.new_empty(x.shape, dtype=torch.bool), x.new_empty((), dtype=torch.int64)
        return x.new_empty(rows, x.shape[1]), boolean, scalar

    name = define(split, fake)
    x, y = random(5, 4), random(4)
    shapes = {"x0": ((1, 4), (5, 4), (9, 4))}
    engine = engine_of(trtp.from_torch(name), [x, y], shapes, [(-1, 4), (4,)])
    check(engine(x, y), *eager(name, x, y))


def pick(rows):
    """A fake function whose result has that many rows."""
    return lambda x, y: x.new_empty(rows(x.shape[0], y.shape[0]), 2)


@pytest.mark.parametrize(
    "rows",
    [
        lambda n, m: n + 2 * m - 1,
        lambda n, m: n * m // 3,
        lambda n, m: n % 4 + 1,
        lambda n, m: -(-n // 4),
        lambda n, m: torch.sym_max(n, m),
        lambda n, m: torch.sym_min(n, m + 3),
        lambda n, m: torch.sym_max(n // 2, 5) * m,
        lambda n, m: n * n,
    ],
    ids=["linear", "product", "mod", "ceil", "max", "min", "nested", "square"],
)
def test_extents_are_expressions_of_the_inputs_extents(rows):
    def ones(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.new_ones(rows(x.shape[0], y.shape[0]), 2)

    op = trtp.from_torch(define(ones, pick(rows)))
    shapes = {"x0": ((1, 2), (7, 2), (50, 2)), "x1": ((1, 2), (7, 2), (50, 2))}
    engine = engine_of(op, [random(7, 2), random(7, 2)], shapes, [(-1, 2), (-1, 2)])
    for n, m in [(7, 3), (1, 4), (50, 50), (12, 1)]:
        assert engine(random(n, 2), random(m, 2)).shape == (rows(n, m), 2)


def test_rounded_quotients():
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(math.ceil(x.shape[0] / 2), math.floor(x.shape[0] / 3), x.shape[0] // 4)

    name = define(halves, lambda x: x.new_empty(
        math.ceil(x.shape[0] / 2), math.floor(x.shape[0] / 3), x.shape[0] // 4
    ))  # fmt: skip
    engine = engine_of(trtp.from_torch(name), [random(9)], {"x0": ((4,), (9,), (30,))}, [(-1,)])
    for n in (4, 9, 23, 30):
        assert engine(random(n)).shape == (math.ceil(n / 2), n // 3, n // 4)


def test_inputs_of_unrelated_dynamic_extents_may_have_to_be_equal():
    x, y = random(5, 3), random(5, 3) + 1
    shapes = {name: ((1, 3), (5, 3), (8, 3)) for name in ("x0", "x1")}
    op = trtp.from_torch("aten::atan2")
    engine = engine_of(op, [x, y], shapes, [(-1, 3), (-1, 3)])
    check(engine(x, y), torch.atan2(x, y))
    with pytest.raises(RuntimeError, match="size of tensor a"):
        engine(x, random(4, 3))
    check(engine(x, y), torch.atan2(x, y))


def test_operators_that_write_to_their_arguments():
    def add_(x: torch.Tensor, y: torch.Tensor, alpha: float) -> None:
        x.add_(y, alpha=alpha)

    name = define(add_, mutates_args={"x"})
    x, y = random(4, 3), random(3)
    expected = x + 0.5 * y
    engine = engine_of(trtp.from_torch(name), [x.clone(), y], alpha=0.5)
    check(engine(x.clone(), y), expected)


def test_what_is_returned_comes_before_what_is_written_to():
    def scale_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2)
        return x + y

    name = define(scale_, lambda x, y: torch.empty_like(x), mutates_args={"y"})
    x, y = random(6), random(6) + 1
    net = network()
    inputs = [net.add_input(n, trt.float32, (6,)) for n in "xy"]
    # Not the network's own input, which is not to be written to.
    other = net.add_plugin(trtp.from_torch("aten::neg")(inputs[1])).get_output(0)
    layer = net.add_plugin(trtp.from_torch(name)(inputs[0], other))
    engine = build(net, layer.get_output(0), layer.get_output(1))
    check(engine(x, y), x - 2 * y, -2 * y)


def test_pytorchs_own_operators():
    image, weight = random(1, 2, 9, 8), random(4, 2, 3, 3)
    convolution = trtp.from_torch("aten::convolution", bias=None)
    options = {
        "stride": [2, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
        "output_padding": [0, 0], "groups": 1,
    }  # fmt: skip
    shapes = {"x0": ((1, 2, 5, 5), (1, 2, 9, 8), (1, 2, 20, 20))}
    dims = [(1, 2, -1, -1), (4, 2, 3, 3)]
    engine = engine_of(convolution, [image, weight], shapes, dims, **options)
    for size in [(9, 8), (20, 17)]:
        image = random(1, 2, *size)
        check(engine(image, weight), torch.conv2d(image, weight, None, (2, 1), 1))

    x = random(4, 6)
    check(engine_of(trtp.from_torch("aten::roll"), [x], shifts=[1, -2], dims=[0, 1])(x),
          torch.roll(x, (1, -2), (0, 1)))  # fmt: skip
    # The keyword dtype keeps its default; the view that it returns is copied.
    check(engine_of(trtp.from_torch("aten::cumsum"), [x], dim=1)(x), torch.cumsum(x, 1))
    check(engine_of(trtp.from_torch("aten::t"), [x])(x), x.t())
    check(engine_of(trtp.from_torch("aten::sort"), [x], dim=1)(x), *torch.sort(x, 1))
    add_ = trtp.from_torch("aten::add_.Tensor", alpha=2)
    check(engine_of(add_, [x.clone(), x])(x.clone(), x), 3 * x)


def test_operators_of_a_library():
    with torch.library._scoped_library("testlibrary", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: 2 * x, "CPU")
        torch.library.register_fake("testlibrary::double", torch.empty_like, lib=library)
        x = random(3, 3)
        check(engine_of(trtp.from_torch("testlibrary::double"), [x])(x), 2 * x)


def test_zero_sized_tensors_and_scalars():
    op = trtp.from_torch("aten::neg")
    engine = engine_of(op, [random(3, 2)], {"x0": ((0, 2), (3, 2), (4, 2))}, [(-1, 2)])
    assert engine(random(0, 2)).shape == (0, 2)
    x = torch.tensor(2.5)
    check(engine_of(op, [x])(x), -x)


# ONNX ------------------------------------------------------------------------------------------


def test_an_onnx_node_finds_it_by_domain_and_by_namespace_attribute():
    trtp.from_torch(PAD)
    name = PAD.partition("::")[2]
    x = random(2, 1, 5, 6)
    for node in (
        f"testtorch.{name} <pads: ints = [1, 2, 3, 0], gain: float = 0.5> (x)",
        f'other.{name} <plugin_namespace = "testtorch", pads: ints = [1, 2, 3, 0], '
        "gain: float = 0.5> (x)",
    ):
        model = onnx.parser.parse_model(f"""
            <ir_version: 9, opset_import: ["" : 19, "testtorch" : 1, "other" : 1]>
            net (float[n, 1, h, w] x) => (float[n, 1, a, b] y) {{ y = {node} }}
        """)
        shapes = {"x": ((1, 1, 4, 4), (2, 1, 5, 6), (3, 1, 9, 9))}
        check(trt.build(model, shapes=shapes)(x), eager(PAD, x, PADS, 0.5))


def test_an_exported_model_runs(tmp_path):
    from torch.onnx.symbolic_helper import parse_args

    trtp.from_torch(PAD)

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(getattr(torch.ops.testtorch, PAD.partition("::")[2])(x, PADS, 0.5))

    @parse_args("v", "is", "f")
    def symbolic(graph, x, pads, gain):
        return graph.op(PAD, x, pads_i=pads, gain_f=gain)

    x = random(2, 1, 5, 6)
    path = tmp_path / "model.onnx"
    torch.onnx.register_custom_op_symbolic(PAD, symbolic, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Model(), (x,), str(path), dynamo=False, opset_version=17,
            custom_opsets={"testtorch": 1}, input_names=["x"], dynamic_axes={"x": [0, 2, 3]},
        )  # fmt: skip
    shapes = {"x": ((1, 1, 4, 4), (2, 1, 5, 6), (3, 1, 9, 9))}
    check(trt.build(path, shapes=shapes)(x), Model()(x))


def test_a_saved_engine_finds_it(tmp_path):
    x = random(1, 1, 4, 4)
    engine_of(trtp.from_torch(PAD), [x], pads=PADS).save(tmp_path / "pad.engine")
    check(trt.load(tmp_path / "pad.engine")(x), eager(PAD, x, PADS, 2.0))


def test_an_engine_that_carries_sources_takes_the_module_that_defines_it(tmp_path, monkeypatch):
    from opwright._plugins.sources import collect

    source = "import opwright.plugin as trtp\n\ntrtp.from_torch('aten::asinh')\n"
    (tmp_path / "operators_of_torch.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("operators_of_torch")
    files = dict(collect([("FunctionPlugin", "asinh", "1", "aten")]))
    assert files.pop("operators_of_torch.py") == source.encode()
    assert list(files) == ["definitions.json"]


# What is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator, message",
    [
        ("nowhere::at_all", "no operator 'nowhere::at_all'; expected 'namespace::name'"),
        ("aten::no_such_operator", "no operator 'aten::no_such_operator'"),
        ("aten", "no operator 'aten'"),
        ("aten::bitwise_and_", "no '.*and_'; its overloads are: .*'aten::bitwise_and_.Tensor'"),
        ("aten::neg.there", "no 'aten::neg.there'; its overloads are: 'aten::neg.default'"),
    ],
)
def test_operators_that_are_not_there(operator, message):
    with pytest.raises(ValueError, match=message):
        trtp.from_torch(operator)


def test_arguments_that_a_plugin_cannot_have():
    def pile(xs: List[torch.Tensor], ys: List[torch.Tensor]) -> torch.Tensor:
        return torch.stack(xs + ys)

    def choose(x: torch.Tensor, k: int | None, type: torch.dtype) -> torch.Tensor:
        return x.clone()

    with pytest.raises(NotImplementedError, match="argument 'ys' is of type List.Tensor"):
        trtp.from_torch(define(pile))
    name = define(choose, lambda x, k, type: torch.empty_like(x))
    with pytest.raises(NotImplementedError, match=r"'k' is of type Optional.*k=\.\.\."):
        trtp.from_torch(name)
    x = random(3)
    check(engine_of(trtp.from_torch(name, k=None, type=torch.int8), [x])(x), x)


def test_results_that_a_plugin_cannot_have():
    with pytest.raises(NotImplementedError, match="returns a List.Tensor.; expected tensors"):
        trtp.from_torch("aten::unbind.int")
    with pytest.raises(NotImplementedError, match="returns a number"):
        trtp.from_torch("aten::_local_scalar_dense")
    with pytest.raises(NotImplementedError, match="output 0 is of type torch.float64, which"):
        engine_of(trtp.from_torch("aten::cumsum", dtype=torch.float64), [random(3)], dim=0)


def test_shapes_that_depend_on_data_are_refused():
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    def fake(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    for op in (trtp.from_torch(define(positive, fake)), trtp.from_torch("aten::nonzero")):
        with pytest.raises(NotImplementedError, match="depends on data.*size tensor"):
            engine_of(op, [random(3)])


def test_extents_beyond_the_engines_expressions_are_refused():
    shapes = {"x0": ((1,), (3,), (4,))}
    for rows, message in [
        (lambda n: int(n * 1.5), r"numbers, as int\(\) does: output 0 .*\(360\).*\(540\)"),
        (lambda n: math.floor(n * 1.5), "the extent FloorToInt.* is not made of"),
    ]:
        name = define(pad, lambda x, pads, gain=2.0, rows=rows: x.new_empty(rows(x.shape[0])))
        with pytest.raises(NotImplementedError, match=message):
            engine_of(trtp.from_torch(name), [random(3)], shapes, [(-1,)], pads=PADS)


def test_an_operator_without_a_fake_function():
    with pytest.raises(RuntimeError, match="'testtorch::pad[0-9]+' for <TensorDesc.*fake"):
        engine_of(trtp.from_torch(define(pad)), [random(1, 1, 4, 4)], pads=PADS)


def test_a_fake_function_that_disagrees_with_the_operator():
    wrong = define(pad, lambda x, pads, gain=2.0: torch.empty_like(x))
    x = random(1, 1, 4, 4)
    with pytest.raises(RuntimeError, match=r"made torch.float32 \(1, 1, 7, 7\) for output 0"):
        engine_of(trtp.from_torch(wrong), [x], pads=PADS)(x)


def test_errors_of_the_operator_arrive():
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("no luck today")

    x = random(3)
    with pytest.raises(ArithmeticError, match="no luck today"):
        engine_of(trtp.from_torch(define(fail, torch.empty_like)), [x])(x)


def test_an_id_that_is_taken_is_not_replaced():
    @trtp.register("aten::tanh")
    def tanh(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    with pytest.raises(ValueError, match="'aten::tanh' is registered already"):
        trtp.from_torch("aten::tanh")
