"""The rules of function plugins, a row each: what is accepted, and what is refused with which
words. What functions compute, and attributes' values, have tests of their own."""

from __future__ import annotations

import enum
import functools
import inspect
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, one_plugin, op_of
from test_plugin_attributes import onnx_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Desc = trtp.TensorDesc


class Mode(enum.Enum):
    A = 1


class Flags(enum.Flag):
    A = 1


class Empty(enum.Enum):
    pass


def copy(plugin_id: str = "", lazy: bool = False) -> str:
    """Registers y = x."""
    plugin_id = plugin_id or new_id("copy")

    @trtp.register(plugin_id, lazy_register=lazy)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    return plugin_id


# Names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    "register impl aot_impl autotune op TensorDesc SizeTensorDesc Tensor Shape ShapeExpr ShapeExprs "
    "SizeTensorShapeExpr SymIntExpr SymInt8 SymInt16 SymInt32 SymExprs SymIntExprs "
    "KernelLaunchParams AutoTuneCombination size_tensor from_shape_expr cdiv max min "
    "SymInt64 SymFloat32 SymFloat64 ShapeInput from_torch SignatureError".split(),
)
def test_names(name):
    assert name in trtp.__all__ and hasattr(trtp, name) and getattr(trt.plugin, name)


def test_parameters_by_name():
    launch = trtp.KernelLaunchParams(
        grid_x=2, grid_y=3, grid_z=4, block_x=5, block_y=6, block_z=7, shared_mem=8
    )
    names = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem"]
    assert [getattr(launch, n).constant_value() for n in names] == list(range(2, 9))
    default = trtp.KernelLaunchParams()
    assert [getattr(default, n).constant_value() for n in names] == [1] * 6 + [0]
    trtp.AutoTuneCombination()
    trtp.AutoTuneCombination(io_types="FP32, FP16", layouts="LINEAR", tactics=[1, 2])
    trtp.size_tensor(opt=1, upper_bound=2)
    trtp.from_shape_expr(shape_expr=(1, 2), dtype=trt.float32)
    parameters = list(inspect.signature(trtp.register).parameters)
    assert parameters == ["plugin_id", "lazy_register", "repeatable"]


# Ids and registration --------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "a", "a:b", "a::b::c", "a.b::c", "a::b.c", "a b::c", "a::b\n"])
def test_bad_ids(bad):
    for decorator in (trtp.register, trtp.impl, trtp.autotune, trtp.aot_impl):
        with pytest.raises(ValueError, match="is not a plugin id; expected 'namespace::name'"):
            decorator(bad)


def test_lazy_registration_waits_for_the_first_use():
    eager, lazy = copy(), copy(lazy=True)
    x = X[0]
    np.testing.assert_array_equal(trt.build(onnx_model(eager), timing=False)(x), x)
    with pytest.raises(trt.Error, match="copy"):
        trt.build(onnx_model(lazy), timing=False)
    op_of(lazy)(network().add_input("x", trt.float32, (3,)))
    np.testing.assert_array_equal(trt.build(onnx_model(lazy), timing=False)(x), x)
    copy(lazy, lazy=True)  # what was found stays so
    np.testing.assert_array_equal(trt.build(onnx_model(lazy), timing=False)(x), x)


def test_the_registry_finds_plugins_of_functions():
    plugin_id, lazy = new_id("found"), copy(lazy=True)
    namespace, name = plugin_id.split("::")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, k: int, f: float = 0.5) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, f, k, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.asarray(x) * f + k)

    registry = trt.get_plugin_registry()
    creator = registry.get_creator(name, "1", namespace)
    identity = (creator.name, creator.plugin_version, creator.plugin_namespace)
    assert identity == (name, "1", namespace)
    assert [f.name for f in creator.field_names] == ["k", "f"]
    assert registry.get_creator(name, "2", namespace) is None
    assert registry.get_creator(name, "1", "elsewhere") is None
    assert registry.get_creator("copy", "1", lazy.split("::")[0]) is None
    fields = trt.PluginFieldCollection([trt.PluginField("k", np.array([3], np.int32))])
    plugin = creator.create_plugin(name, namespace, fields, trt.TensorRTPhase.BUILD)
    net = network()
    layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
    np.testing.assert_array_equal(build(net, layer.get_output(0), timing=False)(X), X / 2 + 3)
    with pytest.raises(trt.Error, match=f"'{plugin_id}' needs attribute 'k', which is missing"):
        creator.create_plugin(name, namespace, trt.PluginFieldCollection(), trt.TensorRTPhase.BUILD)


def test_registering_again_with_another_signature_drops_the_other_functions():
    plugin_id = new_id("changed")

    def define(hint):
        def desc(x, k):
            return x.like()

        desc.__annotations__ = {"x": trtp.TensorDesc, "k": hint, "return": trtp.TensorDesc}
        trtp.register(plugin_id)(desc)

    define(int)
    trtp.impl(plugin_id)(lambda x, k, outputs, stream: None)
    define(int)
    one_plugin(plugin_id, X, k=1)
    define(float)
    with pytest.raises(trt.Error, match="neither an impl nor an aot_impl function"):
        one_plugin(plugin_id, X, k=1.0)


def test_another_function_may_not_take_an_id():
    plugin_id = copy()

    def elsewhere(x: trtp.TensorDesc) -> trtp.TensorDesc: ...

    with pytest.raises(ValueError, match="registered already, by copy.<locals>.desc in .*rules.py"):
        trtp.register(plugin_id)(elsewhere)


# Signatures of register ------------------------------------------------------------------------


def r_plain(x: Desc) -> Desc: ...
def r_two(x: Desc, y: Desc) -> Tuple[Desc, Desc]: ...
def r_builtin_tuple(x: Desc) -> tuple[Desc, trtp.SizeTensorDesc]: ...
def r_attributes(x: Desc, i: int, f: float, s: str, t: bool, b: bytes) -> Desc: ...
def r_arrays(x: Desc, a: npt.NDArray[np.float16], b: npt.NDArray[np.bool_]) -> Desc: ...
def r_lists(
    x: Desc, a: List[int], b: list[str], c: Tuple[float, ...], d: tuple[bool, bool]
) -> Desc: ...  # fmt: skip
def r_enum(x: Desc, m: Mode) -> Desc: ...
def r_default(x: Desc, i: int, k: int = 3) -> Desc: ...
def r_keyword(x: Desc, *, k: int = 3, f: float) -> Desc: ...
def r_optional(x: Desc, y: Desc | None = None, *, k: int) -> Desc: ...
def r_union(x: Desc, y: Desc | None = None) -> Desc: ...
def r_variadic(x: Desc, *xs: Desc, k: int) -> Desc: ...
def r_only_variadic(*xs: Desc) -> Desc: ...
def r_shape_input(n: trtp.ShapeInput, x: Desc) -> Desc: ...
def r_positional(x: Desc, /, k: int) -> Desc: ...


@pytest.mark.parametrize(
    "function, tensors, attributes, outputs",
    [
        (r_plain, "x", "", 1),
        (r_two, "x y", "", 2),
        (r_builtin_tuple, "x", "", 2),
        (r_attributes, "x", "i f s t b", 1),
        (r_arrays, "x", "a b", 1),
        (r_lists, "x", "a b c d", 1),
        (r_enum, "x", "m", 1),
        (r_default, "x", "i k", 1),
        (r_keyword, "x", "k f", 1),
        (r_optional, "x y", "k", 1),
        (r_union, "x y", "", 1),
        (r_variadic, "x xs", "k", 1),
        (r_only_variadic, "xs", "", 1),
        (r_shape_input, "n x", "", 1),
        (r_positional, "x", "k", 1),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_signatures_that_register_accepts(function, tensors, attributes, outputs):
    plugin_id = new_id("signature")
    trtp.register(plugin_id)(function)
    signature = trtp._decorators.plugins[plugin_id].signature
    assert list(signature.tensors) == tensors.split()
    assert [a.name for a in signature.attributes] == attributes.split()
    assert signature.num_outputs == outputs


def b_no_hint(x: Desc, k) -> Desc: ...
def b_any(x: Desc, k: Any) -> Desc: ...
def b_keywords(x: Desc, **options: int) -> Desc: ...
def b_more(x: Desc, *more: int) -> Desc: ...
def b_keyword_tensor(x: Desc, *, y: Desc) -> Desc: ...
def b_size_tensor(x: trtp.SizeTensorDesc) -> Desc: ...
def b_optional_size(x: Desc, y: trtp.SizeTensorDesc | None = None) -> Desc: ...
def b_shape_inputs(x: Desc, *n: trtp.ShapeInput) -> Desc: ...
def b_optional_given(x: Desc, y: Desc | None) -> Desc: ...
def b_optional_other(x: Desc, y: Desc | None = 3) -> Desc: ...  # type: ignore[assignment]
def b_tensor_hint(x: trtp.Tensor) -> Desc: ...
def b_attribute_first(k: int, x: Desc) -> Desc: ...
def b_no_tensor() -> Desc: ...
def b_list(x: Desc, k: list) -> Desc: ...
def b_typing_tuple(x: Desc, k: Tuple) -> Desc: ...
def b_mixed(x: Desc, k: Tuple[int, float]) -> Desc: ...
def b_list_of_bytes(x: Desc, k: List[bytes]) -> Desc: ...
def b_nested(x: Desc, k: List[List[int]]) -> Desc: ...
def b_flag(x: Desc, k: Flags) -> Desc: ...
def b_empty(x: Desc, k: Empty) -> Desc: ...
def b_optional_int(x: Desc, k: int | None) -> Desc: ...
def b_array(x: Desc, k: np.ndarray) -> Desc: ...
def b_complex(x: Desc, k: npt.NDArray[np.complex64]) -> Desc: ...
def b_dict(x: Desc, k: dict) -> Desc: ...
def b_outputs(x: Desc, outputs: int) -> Desc: ...
def b_stream(x: Desc, stream: int) -> Desc: ...
def b_tactic(x: Desc, tactic: int) -> Desc: ...
def b_aot(x: Desc, aot: bool) -> Desc: ...
def b_namespace(x: Desc, plugin_namespace: str) -> Desc: ...
def b_no_return(x: Desc): ...
def b_none(x: Desc) -> None: ...
def b_returns_list(x: Desc) -> List[Desc]: ...
def b_any_number(x: Desc) -> Tuple[Desc, ...]: ...
def b_no_outputs(x: Desc) -> Tuple[()]: ...
def b_returns_tensor(x: Desc) -> trtp.Tensor: ...
def b_unknown(x: Desc, k: Nowhere) -> Desc: ...  # type: ignore # noqa: F821


@pytest.mark.parametrize(
    "function, message",
    [
        (b_no_hint, "parameter 'k' has no type hint"),
        (b_any, "attribute 'k' has the type .*Any; expected int, float, str"),
        (b_keywords, "any number of attributes; each needs a parameter"),
        (b_more, "'more' takes a variable number; only tensors may|takes a variable number"),
        (b_keyword_tensor, "tensor 'y' is keyword-only"),
        (b_size_tensor, "SizeTensorDesc, which describes outputs; expected TensorDesc"),
        (b_optional_size, "SizeTensorDesc, which describes outputs"),
        (b_shape_inputs, r"'\*n' cannot be shape inputs; name each"),
        (b_optional_given, "the default value of optional tensor 'y' must be None"),
        (b_optional_other, "the default value of optional tensor 'y' must be None"),
        (b_tensor_hint, "attribute 'x' has the type Tensor"),
        (b_attribute_first, "tensor 'x' follows attribute 'k'; tensors come first"),
        (b_no_tensor, "a plugin needs at least one input"),
        (b_list, r"has the type list; say what it holds, as in List\[int\]; expected"),
        (b_typing_tuple, "has the type Tuple; say what it holds"),
        (b_mixed, r"has the type Tuple\[int, float\]; the elements of a tuple have one type"),
        (b_list_of_bytes, r"has the type List\[bytes\]; expected"),
        (b_nested, r"has the type List\[List\[int\]\]; expected"),
        (b_flag, "has the type Flags; members of a Flag are combined: register an int"),
        (b_empty, "has the type Empty; this enum has no members"),
        (b_optional_int, r"has the type (Optional\[int\]|int . None); expected"),
        (b_array, "has the type ndarray; expected"),
        (b_complex, "complex64"),
        (b_dict, "has the type dict; expected"),
        (b_outputs, "cannot be named 'outputs', which is a parameter of impl"),
        (b_stream, "cannot be named 'stream'"),
        (b_tactic, "cannot be named 'tactic'"),
        (b_aot, "cannot be named 'aot', which chooses the plugin in ONNX"),
        (b_namespace, "cannot be named 'plugin_namespace'"),
        (b_no_return, "the return type is not annotated"),
        (b_none, "the return type decides the number of outputs"),
        (b_returns_list, "the return type decides the number of outputs"),
        (b_any_number, "the return type decides the number of outputs"),
        (b_no_outputs, "the return type decides the number of outputs"),
        (b_returns_tensor, "the return type decides the number of outputs"),
        (b_unknown, "a type hint cannot be resolved.*Nowhere"),
        (Mode, "register decorates a function, not EnumMeta|EnumType"),
        (7, "register decorates a function, not int"),
        (functools.partial(r_plain), "hint"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_signatures_that_register_refuses(function, message):
    with pytest.raises(trtp.SignatureError, match=message) as caught:
        trtp.register(plugin_id := new_id("signature"))(function)
    assert plugin_id in str(caught.value)


def test_signature_errors_quote_the_signature_as_written_and_its_place():
    with pytest.raises(trtp.SignatureError) as caught:
        trtp.register(new_id("signature"))(b_mixed)
    line = inspect.getsourcelines(b_mixed)[1]
    assert f"`b_mixed(x: Desc, k: Tuple[int, float]) -> Desc` at {__file__}:{line}: " in str(
        caught.value
    )


# Signatures of the other functions -------------------------------------------------------------


def registered(x: Desc, y: Desc, i: int, m: Mode, axes: List[int]) -> Tuple[Desc, Desc]:
    return x.like(), y.like()


def extended(
    x: Desc, n: trtp.ShapeInput, y: Desc | None = None, *xs: Desc, i: int, f: float = 2.0
) -> Desc:
    return x.like()


def g_names(a, b, outputs, stream): ...
def g_subset(x, y, axes, i, outputs, stream): ...
def g_tactic(x, y, outputs, stream, tactic): ...
def g_keyword(x, y, *, i, outputs, stream, tactic): ...
def g_half(x, y, m, outputs, *, stream): ...
def g_hints(
    x: trtp.Tensor,
    y: Any,
    m: Mode,
    axes: list[int],
    outputs: Tuple[trtp.Tensor, trtp.Tensor],
    stream: int,
    tactic: int,
) -> None: ...
def g_outputs(x, y, outputs: Sequence[trtp.Tensor], stream) -> Any: ...
def g_bare(x, y, outputs: tuple, stream): ...


GOOD_IMPLS: list[tuple[Callable, Callable]] = [
    (registered, f)
    for f in (g_names, g_subset, g_tactic, g_keyword, g_half, g_hints, g_outputs, g_bare)
]


def e_all(x, n, y, *xs, f, i, outputs, stream): ...
def e_hints(
    x: trtp.Tensor,
    n: trtp.Tensor,
    y: trtp.Tensor | None,
    *xs: trtp.Tensor,
    i: int,
    outputs: Tuple[trtp.Tensor],
    stream: int,
): ...
def e_default(x, n, y=None, *xs, outputs, stream): ...


@pytest.mark.parametrize(
    "base, function",
    [*GOOD_IMPLS, (extended, e_all), (extended, e_hints), (extended, e_default)],
    ids=lambda f: f.__name__,
)
def test_signatures_that_impl_accepts(base, function):
    plugin_id = new_id("signature")
    trtp.register(plugin_id)(base)
    assert trtp.impl(plugin_id)(function) is function


def i_few(x, outputs, stream): ...
def i_swapped(x, i, y, outputs, stream): ...
def i_unknown(x, y, z, outputs, stream): ...
def i_no_stream(x, y, outputs): ...
def i_order(x, y, stream, outputs): ...
def i_tactic_first(x, y, tactic, outputs, stream): ...
def i_more(x, y, *rest, outputs, stream): ...
def i_options(x, y, outputs, stream, **options): ...
def i_default(x, y, i=3, outputs=(), stream=0): ...
def i_keyword_tensor(x, *, y, outputs, stream): ...
def i_desc(x: trtp.TensorDesc, y, outputs, stream): ...
def i_type(x, y, axes: List[float], outputs, stream): ...
def i_mode(x, y, m: Flags, outputs, stream): ...
def i_unknown_type(x, y, axes: dict, outputs, stream): ...
def i_outputs(x, y, outputs: List[trtp.TensorDesc], stream): ...
def i_one_output(x, y, outputs: trtp.Tensor, stream): ...
def i_stream(x, y, outputs, stream: float): ...
def i_tactic(x, y, outputs, stream, tactic: str): ...
def i_returns(x, y, outputs, stream) -> np.ndarray: ...
def i_nowhere(x, y, outputs: Nowhere, stream): ...  # type: ignore # noqa: F821
def v_one(x, n, y, xs, *, outputs, stream): ...
def v_no_list(x, n, y, outputs, stream): ...
def v_early(x, *xs, n, y, outputs, stream): ...
def v_attribute(x, n, y, i, *xs, outputs, stream): ...
def v_shape(x, n: trtp.ShapeInput, y, *xs, outputs, stream): ...
def v_other_default(x, n, y=3, *xs, outputs, stream): ...


@pytest.mark.parametrize(
    "base, function, message",
    [
        (registered, i_few, "it must begin with 2 tensors; expected .x, y, attributes..., outputs"),
        (registered, i_swapped, "it must begin with 2 tensors"),
        (registered, i_unknown, r"'z' is not an attribute .*i: int, m: Mode, axes: List\[int\]"),
        (registered, i_no_stream, "it must end with outputs, stream"),
        (registered, i_order, "it must end with outputs, stream"),
        (registered, i_tactic_first, "'tactic' is not an attribute"),
        (registered, i_more, "'rest' is not an attribute|takes a variable number"),
        (registered, i_options, "any number of attributes|must end with outputs"),
        (registered, i_default, "'i' has a default value"),
        (registered, i_keyword_tensor, "tensor 'y' is keyword-only"),
        (registered, i_desc, "'x' is a tensor: annotate it as Tensor"),
        (registered, i_type, r"annotated as List\[float\], but registered as `axes: List\[int\]`"),
        (registered, i_mode, "annotated as Flags, but registered as `m: Mode`"),
        (registered, i_unknown_type, r"annotated as dict, but registered as `axes: List\[int\]`"),
        (registered, i_outputs, r"'outputs' is a tuple: annotate it as Tuple\[Tensor\]"),
        (registered, i_one_output, "'outputs' is a tuple"),
        (registered, i_stream, "'stream' is an int"),
        (registered, i_tactic, "'tactic' is an int"),
        (registered, i_returns, "must return None"),
        (registered, i_nowhere, "cannot be resolved.*Nowhere"),
        (extended, v_one, r"'xs' stands for the registered '\*xs'; write `\*xs`"),
        (extended, v_no_list, r"it must begin with 4 tensors; expected \(x, n, y, \*xs, attrib"),
        (extended, v_early, "takes a variable number|is keyword-only|begin with 4 tensors"),
        (extended, v_attribute, "begin with 4 tensors"),
        (extended, v_shape, "'n' is a tensor: annotate it as Tensor"),
        (extended, v_other_default, "'y' has a default value"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_signatures_that_impl_refuses(base, function, message):
    plugin_id = new_id("signature")
    trtp.register(plugin_id)(base)
    with pytest.raises(trtp.SignatureError, match=message) as caught:
        trtp.impl(plugin_id)(function)
    assert f"impl function `{function.__name__}(" in str(caught.value)


def test_impl_devices():
    plugin_id = copy()
    for device in ("gpu", "CPU", 0):
        with pytest.raises(ValueError, match="expected 'cpu', 'cuda' or None"):
            trtp.impl(plugin_id, device=device)

    @trtp.impl(plugin_id, device="cpu")
    def on_the_cpu(x, outputs, stream):
        np.asarray(outputs[0])[...] = 1

    @trtp.impl(plugin_id, device="cuda")
    def on_a_gpu(x, outputs, stream):
        raise AssertionError("not this one")

    net, layer = one_plugin(plugin_id, X)
    np.testing.assert_array_equal(build(net, layer.get_output(0), timing=False)(X), X * 0 + 1)


def t_names(a, b, m, outputs): ...
def t_hints(x: Desc, y: Desc, i: int, outputs: Tuple[Desc, Desc]) -> List[trtp.AutoTuneCombination]: ...  # type: ignore  # fmt: skip # noqa: E501
def t_bare(x, y, *, i, outputs) -> list: ...  # type: ignore
def bt_stream(x, y, outputs, stream): ...
def bt_tensor(x: trtp.Tensor, y, outputs): ...
def bt_outputs(x, y, outputs: Tuple[trtp.Tensor]): ...
def bt_returns(x, y, outputs) -> int: ...  # type: ignore
def bt_list(x, y, outputs) -> List[str]: ...  # type: ignore
def bt_unknown(x, y, q, outputs): ...


@pytest.mark.parametrize(
    "function, message",
    [
        (t_names, None),
        (t_hints, None),
        (t_bare, None),
        (bt_stream, "it must end with outputs; expected"),
        (bt_tensor, "'x' is a tensor: annotate it as TensorDesc"),
        (bt_outputs, r"annotate it as Tuple\[TensorDesc\]"),
        (bt_returns, "must return a list of AutoTuneCombination"),
        (bt_list, "must return a list of AutoTuneCombination"),
        (bt_unknown, "'q' is not an attribute"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_signatures_of_autotune(function, message):
    plugin_id = new_id("signature")
    trtp.register(plugin_id)(registered)
    check_signature(trtp.autotune(plugin_id), "autotune", function, message)


def a_names(a, b, i, outputs, tactic): ...
def a_hints(
    x: Desc,
    y: Desc,
    axes: List[int],
    outputs: Tuple[Desc, Desc],
    tactic: int,
) -> Tuple[str | bytes, str | bytes, trtp.KernelLaunchParams, trtp.SymExprs]: ...  # type: ignore # noqa: E501
def ba_no_tactic(x, y, outputs): ...
def ba_stream(x, y, outputs, stream, tactic): ...
def ba_tactic(x, y, outputs, tactic: str): ...
def ba_returns(x, y, outputs, tactic) -> bytes: ...  # type: ignore
def ba_three(x, y, outputs, tactic) -> Tuple[str, bytes, trtp.KernelLaunchParams]: ...  # type: ignore


@pytest.mark.parametrize(
    "function, message",
    [
        (a_names, None),
        (a_hints, None),
        (ba_no_tactic, "it must end with outputs, tactic"),
        (ba_stream, "it must end with outputs, tactic"),
        (ba_tactic, "'tactic' is an int"),
        (ba_returns, r"must return \(kernel name, code, KernelLaunchParams, SymIntExprs\)"),
        (ba_three, "must return .kernel name"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_signatures_of_aot_impl(function, message):
    plugin_id = new_id("signature")
    trtp.register(plugin_id)(registered)
    check_signature(trtp.aot_impl(plugin_id), "aot_impl", function, message)


def check_signature(decorator, kind: str, function, message: str | None) -> None:
    if message is None:
        assert decorator(function) is function
        return
    with pytest.raises(trtp.SignatureError, match=message) as caught:
        decorator(function)
    assert f"{kind} function `{function.__name__}(" in str(caught.value)


# Use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda op, x: op(), r"takes 2 network tensors \(x, y\) first; nothing came"),
        (lambda op, x: op(x), r"takes 2 network tensors \(x, y\) first; ITensor came"),
        (lambda op, x: op(x, X), "ITensor, ndarray came"),
        (lambda op, x: op(x, None), "ITensor, NoneType came"),
        (lambda op, x: op(x, y=X), "ITensor, y: ndarray came"),
        (lambda op, x: op(y=x), "y: ITensor came"),
        (lambda op, x: op([x, x]), "list came"),
        (lambda op, x: op(x, x), r"attribute 'i' is missing; .*i: int, m: Mode, axes: List\[int\]"),
        (lambda op, x: op(x, x, 1, Mode.A), "attribute 'axes' is missing"),
        (lambda op, x: op(x, x, 1, Mode.A, [1], 3), "6 positional arguments came"),
        (lambda op, x: op(x, x, x, Mode.A, [1]), "attribute `i: int` cannot be <"),
        (lambda op, x: op(x, x, 1, Mode.A, [1], i=2), "attribute 'i' was given twice"),
        (lambda op, x: op(x, x, 1, Mode.A, [1], x=x), "tensor 'x' was given twice"),
        (lambda op, x: op(x, x, 1, Mode.A, [1], z=2), "has no attribute 'z'; .*i: int, m: Mode"),
        (lambda op, x: op(x, x, 1, "B", [1]), "attribute `m: Mode` cannot be 'B'"),
    ],
)
def test_use_that_is_refused(call, message):
    plugin_id = new_id("use")
    trtp.register(plugin_id)(registered)
    x = network().add_input("x", trt.float32, (2,))
    with pytest.raises(TypeError, match=message) as caught:
        call(op_of(plugin_id), x)
    assert plugin_id in str(caught.value)


def test_use_that_is_accepted():
    plugin_id = new_id("use")
    seen = []

    @trtp.register(plugin_id)
    def desc(x: Desc, y: Desc, i: int, f: float = 0.5, *, s: str = "s") -> Desc:
        seen.append((i, f, s))
        return x.like()

    trtp.impl(plugin_id)(lambda x, y, outputs, stream: None)
    net = network()
    x = net.add_input("x", trt.float32, (2,))
    op = op_of(plugin_id)
    calls = [op(x, x, 1), op(x, x, 1, 2), op(x, x, f=3, i=1), op(x, i=1, y=x), op(y=x, x=x, i=2)]
    calls.append(op(x, x, 1, 2.5, s="t"))
    for call in calls:
        assert repr(call) == f"<plugin call of '{plugin_id}'>"
        net.add_plugin(call)
    assert seen[:: len(seen) // len(calls)] == [
        (1, 0.5, "s"),
        (1, 2.0, "s"),
        (1, 3.0, "s"),
        (1, 0.5, "s"),
        (2, 0.5, "s"),
        (1, 2.5, "t"),
    ]
    with pytest.raises(TypeError, match="5 positional arguments came, of which at most 4 are"):
        op(x, x, 1, 2.5, "t")


def test_keyword_only_parameters_reach_every_function():
    plugin_id = new_id("keywords")
    seen: dict[str, Any] = {}

    @trtp.register(plugin_id)
    def desc(x: Desc, *, k: int, f: float = 0.5) -> Desc:
        seen["register"] = (k, f)
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, *, f, k, outputs):
        seen["autotune"] = (k, f)
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [4])]

    @trtp.impl(plugin_id)
    def run(x, f, *, k, outputs, stream, tactic):
        seen["impl"] = (k, f)
        assert (stream, tactic) == (0, 4)
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    @trtp.aot_impl(plugin_id)
    def compile(x, *, k, f, outputs, tactic):
        seen["aot_impl"] = (k, f)
        source = """void f(const float* x, int32_t n, float* y, int64_t, int64_t, int64_t) {
            for (int i = 0; i < n; ++i) y[i] = x[i]; }"""
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(x.shape_expr.numel())])
        code = aot.cpp(source, "f", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    for compiled in (False, True):
        net, layer = one_plugin(plugin_id, X, aot=compiled, k=7)
        engine = build(net, layer.get_output(0), timing=False)
        np.testing.assert_array_equal(engine(X), X)
    assert seen == dict.fromkeys(("register", "autotune", "impl", "aot_impl"), (7, 0.5))


@pytest.mark.parametrize(
    "made, count, message",
    [
        (lambda x: x.like(), 1, None),
        (lambda x: (x.like(),), 1, None),
        (lambda x: [x.like(), x.like()], 2, None),
        (lambda x: (x.like(), x.like()), 1, "returned 2 outputs; its signature `desc.* says 1"),
        (lambda x: (), 1, "returned 0 outputs"),
        (lambda x: (x.like(), x.shape_expr), 2, "returned ShapeExprs for output 1; expected a Te"),
        (lambda x: (x.like(), x), 2, "returned the input 0 itself as output 1"),
    ],
)
def test_what_register_may_return(made, count, message):
    plugin_id = new_id("returns")

    def desc(x):
        return made(x)

    desc.__annotations__ = {"x": Desc, "return": Tuple[(Desc,) * count]}
    trtp.register(plugin_id)(desc)
    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    if message is None:
        assert one_plugin(plugin_id, X)[1].num_outputs == count
        return
    with pytest.raises(trt.Error, match=message) as caught:
        one_plugin(plugin_id, X)
    assert plugin_id in str(caught.value)


# Expressions -----------------------------------------------------------------------------------


def described(shape, body):
    """The shape of an output that body(descriptor of such an input) gives."""
    plugin_id = new_id("describe")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return body(x)

    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    net = network()
    return net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, shape))).get_output(0)


def test_the_truth_of_what_is_not_known_is_an_error_that_says_so():
    def body(x):
        a, b = x.shape_expr
        for unknown in (a == b, a < 3, 3 < a, a != 3, b >= a, trtp.max(a, b) == 1):
            assert not unknown.is_constant
            with pytest.raises(
                trt.Error, match="the truth of .* is not known yet, .*max, min or cd"
            ):
                if unknown:
                    pass
            with pytest.raises(trt.Error, match="not constant"):
                unknown.constant_value()
        assert (a == a).is_constant and bool(a == a)
        return x.like()

    assert tuple(described((-1, -1), body).shape) == (-1, -1)


NAMES = {"cdiv": trtp.cdiv, "max": trtp.max, "min": trtp.min}
BUILTINS = {"cdiv": lambda a, b: -(-a // b), "max": max, "min": min}
leaves = st.sampled_from("ab") | st.integers(-9, 9).map(str)
expressions = st.recursive(
    leaves,
    lambda e: st.one_of(
        st.builds("({} {} {})".format, e, st.sampled_from(["+", "-", "*", "<", "=="]), e),
        st.builds("({} // max({}, 1))".format, e, e),
        st.builds("cdiv({}, max({}, 2))".format, e, e),
        st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), e, e),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_expressions_of_dynamic_extents_are_those_of_python(expression):
    clipped = f"min(max({expression}, 1), 40)"
    plugin_id = new_id("expression")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        a, b = x.shape_expr
        return trtp.from_shape_expr((eval(clipped, {**NAMES, "a": a, "b": b}),), trt.float32)

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = 1

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (-1, -1))))
    shapes = {"x": ((1, 1), (4, 3), (8, 8))}
    engine = build(net, layer.get_output(0), shapes=shapes, timing=False)
    for a, b in [(1, 1), (4, 3), (8, 8), (1, 8), (8, 1), (5, 7)]:
        expected = int(eval(clipped, {**BUILTINS, "a": a, "b": b}))
        assert engine(np.zeros((a, b), np.float32)).shape == (expected,), clipped


@pytest.mark.parametrize("kind", [trtp.SymInt8, trtp.SymInt16, trtp.SymInt32, trtp.SymInt64])
def test_symbols_have_the_operators_of_expressions(kind):
    a = kind(7)
    for made, expected in [
        (a + 2, 9),
        (2 + a, 9),
        (a - 2, 5),
        (2 - a, -5),
        (a * 3, 21),
        (3 * a, 21),
        (a // 2, 3),
        (30 // a, 4),
        (-30 // a, -5),
        (a + trtp.ShapeExpr(1), 8),
        (a == 7, 1),
        (7 == a, 1),
        (a < 7, 0),
        (6 < a, 1),
        (trtp.cdiv(a, 2), 4),
        (trtp.cdiv(15, a), 3),
        (trtp.max(a, 9), 9),
        (trtp.min(3, a), 3),
    ]:
        assert isinstance(made, kind) and made.is_constant and made.constant_value() == expected
    assert isinstance(trtp.ShapeExpr(1) + a, trtp.ShapeExpr)
    for other in (1.5, "1", None):
        with pytest.raises(TypeError):
            a + other
        with pytest.raises(TypeError):
            other // a


def test_division_by_zero_is_an_error():
    for bad in (
        lambda: trtp.ShapeExpr(3) // 0,
        lambda: trtp.cdiv(trtp.ShapeExpr(3), 0),
        lambda: trtp.SymInt32(3) // trtp.SymInt32(0),
    ):
        with pytest.raises(trt.Error, match="zero"):
            bad()


def test_lists_of_expressions():
    shape = trtp.ShapeExprs(3)
    for i in range(3):
        shape[i] = i + 2
    shape[-1] = trtp.ShapeExpr(9)
    assert [e.constant_value() for e in shape] == [2, 3, 9] and len(shape) == 3
    assert shape.numel().constant_value() == 54 and shape[-3].constant_value() == 2
    same = trtp.ShapeExprs.from_tuple((2, trtp.ShapeExpr(3), 9))
    assert [e.constant_value() for e in same] == [2, 3, 9]
    arguments = trtp.SymIntExprs(2)
    arguments[0], arguments[-1] = trtp.SymInt32(4), trtp.ShapeExpr(5)
    assert [a.constant_value() for a in arguments] == [4, 5] and len(arguments) == 2
    assert isinstance(trtp.SymIntExprs.from_tuple((1, 2)), trtp.SymIntExprs)
    assert len(trtp.SymIntExprs(0)) == 0 and len(trtp.SymExprs.from_tuple([])) == 0
    for bad in (lambda: shape[3], lambda: arguments[2], lambda: shape.__setitem__(-4, 1)):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(trt.Error, match="at most 8 axes"):
        trtp.ShapeExprs(9)
    with pytest.raises((TypeError, trt.Error)):
        trtp.SymIntExprs(-1)


# Descriptors -----------------------------------------------------------------------------------


def test_descriptors_in_autotune_and_aot_impl():
    """Types, formats and the range of shapes are known there, and nothing can be set."""
    plugin_id = new_id("descriptors")
    seen = []

    def look(x, outputs):
        assert isinstance(outputs, tuple)
        for desc, extents in ((x, (-1, 3)), (outputs[0], (-1, 6))):
            shape = desc.shape
            assert tuple(shape) == extents and shape[0] == -1 and shape[-1] == extents[1]
            assert len(shape) == 2 and shape[0:1] == (-1,) and shape.is_dynamic
            assert (shape.min[0], shape.opt[0], shape.max[0]) == (1, 2, 5)
            assert shape.max == (5, extents[1]) and repr(shape) == f"Shape{extents}"
            with pytest.raises(trt.Error, match="numel.. of a dynamic shape"):
                shape.numel()
            with pytest.raises(trt.Error, match="number of elements is not known"):
                desc.numel()
            with pytest.raises(IndexError):
                shape[2]
            assert desc.has_shape and desc.has_shape_expr and desc.is_dynamic and desc.ndim == 2
            assert desc.dtype == trt.float32 and desc.format == trt.TensorFormat.LINEAR
            for name, value in [
                ("dtype", trt.float16),
                ("format", trt.TensorFormat.LINEAR),
                ("scale", 2.0),
                ("shape_expr", (1, 2)),
            ]:
                with pytest.raises(trt.Error, match=f"read-only, so its {name} cannot be set"):
                    setattr(desc, name, value)
            with pytest.raises(AttributeError):
                desc.shape = (1,)
            made = desc.like()
            made.dtype, made.scale, made.shape_expr = trt.float16, 2.0, (1, 2)
            assert made.dtype == trt.float16 and made.scale == 2 and made.ndim == 2
        assert not x.is_aliased and x.get_aliased() is None
        seen.append(True)

    @trtp.register(plugin_id)
    def desc(x: Desc) -> Desc:
        out = x.like()
        out.shape_expr[1] *= 2
        return out

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        look(x, outputs)
        return [trtp.AutoTuneCombination("FP32, FP32")]

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        look(x, outputs)
        source = "void f(const float*, float*, int64_t, int64_t, int64_t) {}"
        code = aot.cpp(source, "f", inputs=[x], outputs=outputs)
        return code.name.encode(), code, trtp.KernelLaunchParams(), trtp.SymIntExprs(0)

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (-1, 3))))
    build(net, layer.get_output(0), shapes={"x": ((1, 3), (2, 3), (5, 3))}, timing=False)
    assert len(seen) >= 2


def test_static_shapes_are_known_in_autotune():
    plugin_id = new_id("descriptors")
    seen = []

    @trtp.register(plugin_id)
    def desc(x: Desc) -> Desc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        shape = x.shape
        assert shape == (2, 3) and shape.numel() == 6 == x.numel() and not shape.is_dynamic
        assert shape.min == shape.opt == shape.max == (2, 3) and not x.is_dynamic
        seen.append(hash(shape))
        return [trtp.AutoTuneCombination("FP32, FP32")]

    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    net, layer = one_plugin(plugin_id, X)
    build(net, layer.get_output(0), timing=False)
    assert seen


def test_a_size_tensor_is_a_scalar_of_int32_or_on_request_int64():
    def define(change):
        plugin_id = new_id("size")

        @trtp.register(plugin_id)
        def desc(x: Desc) -> Tuple[Desc, Desc]:
            size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
            change(size)
            return trtp.from_shape_expr((size.expr(),), trt.float32), size

        trtp.impl(plugin_id)(lambda x, outputs, stream: None)
        return one_plugin(plugin_id, X)[1]

    sizes = []
    layer = define(sizes.append)
    assert layer.get_output(1).dtype == trt.int32 and len(layer.get_output(1).shape) == 0
    assert sizes[0].index == 1 and sizes[0].is_size_tensor and sizes[0].ndim == 0
    assert define(lambda size: setattr(size, "dtype", trt.int64)).get_output(1).dtype == trt.int64
    with pytest.raises(trt.Error, match="size tensor 1 has the type .*; expected INT32 or INT64"):
        define(lambda size: setattr(size, "dtype", trt.float32))
