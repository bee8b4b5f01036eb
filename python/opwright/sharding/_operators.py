"""How each operator passes on the states of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ._split import SUM, WHOLE, Cut, Dim, Shape, Splitter, State, attributes_of

Function = Callable[[Splitter, onnx.NodeProto], None]
MICROSOFT = "com.microsoft"
RULES: dict[tuple[str, str], Function] = {}
#: Operators that take sums over the ranks, since they are linear.
LINEAR = {"Add", "Sub", "Sum", "Neg", "Mul", "Div", "Identity", "Reshape", "Transpose"}
LINEAR |= {"Squeeze", "Unsqueeze", "Flatten", "ReduceSum"}

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
#: Operators that draw random numbers.
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
RANDOM |= {"Multinomial", "Bernoulli"}


def rule(*names: str, domain: str = "") -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for name in names:
            RULES[domain, name] = function
        return function

    return register


def shift(cut: Cut, axis: int) -> Cut:
    return Cut(axis, cut.blocks)


# Element by element


@rule("Add", "Sub", "Sum", "Neg", "Mul", "Div")
def linear(s: Splitter, node: onnx.NodeProto) -> None:
    """Sums over the ranks stay sums where all terms are, or a factor is whole."""
    sums = [s.state(name).is_sum for name in node.input]
    if node.op_type in ("Mul", "Div"):
        stays = sums == [True, False] or (node.op_type == "Mul" and sums == [False, True])
        stays = stays and (node.op_type == "Mul" or s.dtype(node.output[0]) in FLOATS)
    else:
        stays = all(sums)
    if stays and not any(s.cut(name) for name in node.input):
        s.emit(node, SUM)
    elif node.op_type in ("Add", "Sub") and sorted(sums) == [False, True]:
        add_to_sum(s, node, *(node.input if sums[0] else reversed(node.input)))
    else:
        elementwise(s, node)


def add_to_sum(s: Splitter, node: onnx.NodeProto, total: str, term: str) -> None:
    """Lets each rank add its share of a whole term, before the all-reduce. So the addition becomes a part of the
    product before it, and nothing stands between the all-reduce and what reads the result."""
    result = node.output[0]
    is_larger = (
        s.is_known(total) and s.is_known(result) and s.shape(node, total) != s.shape(node, result)
    )
    if s.state(term) != WHOLE or not can_share(s, total) or is_larger or s.is_shared(total):
        elementwise(s, node)
        return
    emit_sum(s, node, [share(s, name) if name == term else s.name(name) for name in node.input])


def emit_sum(s: Splitter, node: onnx.NodeProto, inputs: Sequence[str], **attributes: Any) -> None:
    """Adds a node with shares of a whole tensor. Where several read its result, the sum is made at once for all."""
    s.emit(node, SUM, inputs, **attributes)
    if s.is_shared(node.output[0]):
        s.whole(node, node.output[0])


def can_share(s: Splitter, name: str) -> bool:
    """Whether the ranks' shares of a tensor of that type add up to exactly the tensor."""
    return s.dtype(name) in FLOATS and s.ranks & (s.ranks - 1) == 0


def share(s: Splitter, name: str) -> str:
    """The whole tensor, divided by the number of ranks."""
    factor = helper.make_tensor("share", s.dtype(name), [], [1 / s.ranks])
    return s.add("Mul", [s.name(name), s.add("Constant", [], value=factor)])


ELEMENTWISE = """
    Abs Acos Acosh And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast Ceil Celu Clip Cos Cosh Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod
    Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu Where Xor Dropout
"""


@rule(*ELEMENTWISE.split())
@rule("QuickGelu", "FastGelu", "BiasGelu", "Gelu", domain=MICROSOFT)
def elementwise(s: Splitter, node: onnx.NodeProto) -> None:
    if node.op_type == "Identity" and s.state(node.input[0]).is_sum:
        s.emit(node, SUM)
        return
    names = [name for name in node.input if name]
    for name in names:
        if s.state(name).is_sum:
            s.whole(node, name)
    ranks = {name: len(s.shape(node, name)) for name in names}
    rank = max(ranks.values())
    cuts = {
        shift(cut, cut.axis + rank - ranks[name])
        for name in names
        if (cut := s.cut(name)) is not None
    }
    if len(cuts) > 1:
        raise conflict(s, node, names)
    if not cuts:
        s.emit(node, WHOLE)
        return
    (cut,) = cuts
    inputs = []
    for name in node.input:
        axis = cut.axis - rank + ranks[name] if name else -1
        is_broadcast = axis < 0 or s.shape(node, name)[axis] == 1
        inputs.append(
            (name and s.name(name)) if is_broadcast else s.part(node, name, shift(cut, axis))
        )
    s.emit(node, State(cut), inputs)


def conflict(s: Splitter, node: onnx.NodeProto, names: Sequence[str]) -> Exception:
    states = ", ".join(f"'{name}' is {s.state(name)}" for name in names if name)
    return s.error(
        node,
        f"its inputs do not go together: {states}; cut them alike, or leave one whole ('replicate')",
    )


@rule("CastLike")
def cast_like(s: Splitter, node: onnx.NodeProto) -> None:
    s.emit(node, s.state(node.input[0]))  # of the other input it takes only the type


# Products


@rule("MatMul")
def matmul(s: Splitter, node: onnx.NodeProto) -> None:
    product(s, node, *node.input[:2])


def product(s: Splitter, node: onnx.NodeProto, a: str, b: str) -> None:
    """MatMul, for two tensors of at least two axes."""
    rank_a, rank_b = len(s.shape(node, a)), len(s.shape(node, b))
    for name in (a, b):
        if s.state(name).is_sum:
            s.whole(node, name)
    cut_a, cut_b = s.cut(a), s.cut(b)
    if min(rank_a, rank_b) < 2:
        raise s.error(node, "a cut operand of a product must have at least two axes")
    rank = max(rank_a, rank_b)
    inner = {
        cut.blocks
        for cut, axis in ((cut_a, rank_a - 1), (cut_b, rank_b - 2))
        if cut and cut.axis == axis
    }
    if inner:
        blocks = next(iter(inner))
        if len(inner) > 1:
            raise conflict(s, node, (a, b))
        if cut_b is not None and cut_b.axis != rank_b - 2 and cut_a is not None:
            raise conflict(s, node, (a, b))
        s.emit(
            node,
            SUM,
            [s.part(node, a, Cut(rank_a - 1, blocks)), s.part(node, b, Cut(rank_b - 2, blocks))],
        )
        return
    # Along the rows of a, the columns of b, or an axis of a batch.
    found = {
        shift(cut, cut.axis + rank - own) for cut, own in ((cut_a, rank_a), (cut_b, rank_b)) if cut
    }
    if len(found) > 1:
        raise conflict(s, node, (a, b))
    (cut,) = found
    inputs = []
    for name, own, outer in ((a, rank_a, rank - 2), (b, rank_b, rank - 1)):
        axis = cut.axis - rank + own
        if cut.axis >= rank - 2:
            takes = cut.axis == outer
        else:
            takes = axis >= 0 and s.shape(node, name)[axis] != 1
        inputs.append(s.part(node, name, shift(cut, axis)) if takes else s.whole(node, name))
    s.emit(node, State(cut), inputs)


@rule("Gemm")
def gemm(s: Splitter, node: onnx.NodeProto) -> None:
    given = attributes_of(node)
    turned_a, turned_b = bool(given.get("transA")), bool(given.get("transB"))
    a, b, *rest = node.input
    bias = rest[0] if rest else ""
    for name in filter(None, node.input):
        if s.state(name).is_sum:
            s.whole(node, name)
    cut_a, cut_b = s.cut(a), s.cut(b)
    inner_a, inner_b = int(not turned_a), int(turned_b)
    a_in, b_in = (
        cut is not None and cut.axis == i for cut, i in ((cut_a, inner_a), (cut_b, inner_b))
    )
    if a_in or b_in:
        blocks = (cut_a if a_in else cut_b).blocks  # type: ignore[union-attr]
        inputs = [s.part(node, a, Cut(inner_a, blocks)), s.part(node, b, Cut(inner_b, blocks))]
        output = node.output[0]
        if not bias:
            s.emit(node, SUM, inputs)
            return
        if can_share(s, bias):
            beta = given.get("beta", 1.0) / s.ranks
            emit_sum(s, node, [*inputs, s.whole(node, bias)], beta=beta)
            return
        bare = s.add("Gemm", inputs, **{k: v for k, v in given.items() if k != "beta"})
        total = s.collective("all_reduce", bare, output, reduce_op="sum")
        term = s.whole(node, bias)
        if given.get("beta", 1.0) != 1.0:
            beta = helper.make_tensor("beta", s.dtype(bias), [], [given["beta"]])
            term = s.add("Mul", [term, s.add("Constant", [], value=beta)])
        s.add("Add", [total, term], s.define(output, WHOLE))
        return
    if cut_a is not None and cut_b is not None:
        raise conflict(s, node, (a, b))
    axis = 0 if cut_a is not None else 1
    cut = Cut(axis, (cut_a or cut_b).blocks)  # type: ignore[union-attr]
    inputs = [s.name(a), s.name(b)]
    if bias:
        shape = s.shape(node, bias)
        own = axis - 2 + len(shape)
        broadcast = own < 0 or shape[own] == 1
        inputs.append(s.whole(node, bias) if broadcast else s.part(node, bias, shift(cut, own)))
    s.emit(node, State(cut), inputs)


@rule("Conv")
def conv(s: Splitter, node: onnx.NodeProto) -> None:
    x, w, *rest = node.input
    if attributes_of(node).get("group", 1) != 1:
        raise s.error(
            node, "a convolution of groups is not cut; leave its weights whole ('replicate')"
        )
    cut_w = s.cut(w)
    if cut_w is None or cut_w.axis > 1:
        raise s.error(
            node,
            f"'{x}' is {s.state(x)}, and '{w}' is {s.state(w)}; cut the weight along axis 0 or 1",
        )
    bias = rest[0] if rest else ""
    if cut_w.axis == 0:
        inputs = [s.whole(node, x), s.name(w)]
        s.emit(node, State(shift(cut_w, 1)), inputs + ([s.part(node, bias, cut_w)] if bias else []))
        return
    inputs = [s.part(node, x, cut_w), s.name(w)]
    if not bias:
        s.emit(node, SUM, inputs)
        return
    if can_share(s, bias):
        s.whole(node, bias)
        emit_sum(s, node, [*inputs, share(s, bias)])
        return
    output = node.output[0]
    total = s.collective(
        "all_reduce", s.add("Conv", inputs, **attributes_of(node)), output, reduce_op="sum"
    )
    wide = s.add(
        "Reshape", [s.whole(node, bias), s.ints([1, -1, *[1] * (len(s.shape(node, w)) - 2)])]
    )
    s.add("Add", [total, wide], s.define(output, WHOLE))


@rule("MatMulNBits", domain=MICROSOFT)
def matmul_bits(s: Splitter, node: onnx.NodeProto) -> None:
    """Products with packed weights [N, K / block, bytes]; scales and zero points may be flat."""
    given = attributes_of(node)
    x, packed, *rest = node.input
    cut = s.cut(packed)
    if cut is None or cut.axis > 1 or len(cut.blocks) > 1:
        raise s.error(node, f"'{x}' is {s.state(x)}, and '{packed}' is {s.state(packed)}; cut the weight by 'columns' "
                            "or 'rows'")  # fmt: skip
    columns, inner = given["N"], given["K"]
    groups = s.extent(node, packed, 1)
    inputs = [
        s.whole(node, x)
        if cut.axis == 0
        else s.part(node, x, Cut(len(s.shape(node, x)) - 1, (inner,)))
    ]
    inputs.append(s.name(packed))
    for i, name in enumerate(rest):
        if not name or i > 1:
            if name:
                raise s.error(
                    node,
                    f"its input {i + 2} ('{name}') is not cut; leave the weights whole ('replicate')",
                )
            inputs.append("")
            continue
        extent = s.extent(node, name, 0)
        if cut.axis == 0:
            inputs.append(s.part(node, name, s.make_cut(node, name, 0)))
        elif len(s.shape(node, name)) > 1 and s.extent(node, name, 1) == groups:
            inputs.append(s.part(node, name, s.make_cut(node, name, 1)))
        else:
            raise s.error(node, f"'{name}' of {extent} elements in one axis is not cut by 'rows'; its blocks lie "
                                "packed; leave the weight whole ('replicate')")  # fmt: skip
    rank = len(s.shape(node, x))
    s.set_type(node.output[0], s.dtype(x), (*s.shape(node, x)[:-1], columns))
    if cut.axis == 0:
        s.emit(node, State(Cut(rank - 1, (columns,))), inputs, N=columns // s.ranks)
    else:
        s.emit(node, SUM, inputs, K=s.divided(node, "K", inner))


# Lookups


@rule("Gather")
def gather(s: Splitter, node: onnx.NodeProto) -> None:
    table, ids = node.input
    rank, wide = len(s.shape(node, table)), len(s.shape(node, ids))
    axis = attributes_of(node).get("axis", 0) % rank
    cut, cut_ids = s.cut(table), s.cut(ids)
    if cut is not None and cut_ids is not None:
        raise conflict(s, node, (table, ids))
    if cut_ids is not None:
        s.emit(
            node, State(shift(cut_ids, cut_ids.axis + axis)), [s.whole(node, table), s.name(ids)]
        )
        return
    assert cut is not None
    indices = s.whole(node, ids)
    if cut.axis != axis:
        moved = cut.axis if cut.axis < axis else cut.axis + wide - 1
        s.emit(node, State(shift(cut, moved)), [s.name(table), indices])
        if table in s.weights:  # features of a table, which the next operators need whole
            s.gather(node, node.output[0])
        return
    if len(cut.blocks) > 1:
        raise s.error(
            node,
            f"'{table}' is cut in blocks along the axis of the indices; leave it whole ('replicate')",
        )
    # A rank looks up the rows that it has. Rows of others are zeros, and the sum has all rows.
    dtype, size = helper.tensor_dtype_to_np_dtype(s.dtype(ids)), cut.extent // s.ranks
    scalar = lambda value: s.constant(np.array(value, dtype))  # noqa: E731
    counted = s.add("Where", [s.add("Less", [indices, scalar(0)]),
                              s.add("Add", [indices, scalar(cut.extent)]), indices])  # fmt: skip
    own = s.add("Sub", [counted, s.constant(lambda rank: np.array(rank * size, dtype))])
    has = s.add(
        "And", [s.add("GreaterOrEqual", [own, scalar(0)]), s.add("Less", [own, scalar(size)])]
    )
    rows = s.add("Gather", [s.name(table), s.add("Where", [has, own, scalar(0)])], axis=axis)
    for _ in range(rank - 1 - axis):
        has = s.add("Unsqueeze", [has, s.ints([-1])])
    zero = s.add("Constant", [], value=zero_of(s.dtype(table)))
    s.add("Where", [has, rows, zero], s.define(node.output[0], SUM))


def zero_of(dtype: int) -> TensorProto:
    size = helper.tensor_dtype_to_np_dtype(dtype).itemsize
    return TensorProto(data_type=dtype, dims=[], raw_data=bytes(size))


# Shapes


@rule("Shape")
def shape(s: Splitter, node: onnx.NodeProto) -> None:
    """The shape of the whole tensor: other nodes compute whole shapes from it."""
    cut = s.cut(node.input[0])
    assert cut is not None
    rank = len(s.shape(node, node.input[0]))
    axes = range(rank)[attributes_of(node).get("start", 0) : attributes_of(node).get("end", rank)]
    own = s.add("Shape", [s.name(node.input[0])])
    whole = s.add("Mul", [own, s.ints(s.ranks if i == cut.axis else 1 for i in range(rank))])
    s.add("Gather", [whole, s.ints(axes)], s.define(node.output[0], WHOLE), axis=0)


def overwritten(
    s: Splitter, node: onnx.NodeProto, name: str, axis: int, rank: int, extent: int
) -> str:
    """A whole shape with another extent at one place."""
    value = s.value(name)
    if value is not None:
        return s.ints(extent if i == axis else int(value[i]) for i in range(len(value)))
    others = s.add("Mul", [s.whole(node, name), s.ints(int(i != axis) for i in range(rank))])
    return s.add("Add", [others, s.ints(extent * (i == axis) for i in range(rank))])


@rule("Reshape", "Flatten")
def reshape(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    cut = s.cut(x)
    if cut is None:
        s.emit(node, s.state(x))
        return
    before, after = s.shape(node, x), s.shape(node, node.output[0])
    place = reshaped_axis(before, after, cut.axis)
    if place is None:
        raise s.error(
            node,
            f"'{x}' is {s.state(x)}, and the reshape from {list(before)} to {list(after)} mixes that "
            "axis with others; leave the weights before it whole ('replicate')",
        )
    axis, extent = place
    if len(cut.blocks) > 1:
        if extent != cut.extent:
            raise s.error(
                node, f"'{x}' is cut in {len(cut.blocks)} blocks; split them before the reshape"
            )
        new = shift(cut, axis)
    else:
        what = f"axis {axis} of its output, such as a number of heads,"
        s.divided(node, what, extent)
        new = Cut(axis, (extent,))
    if node.op_type == "Flatten":
        s.emit(node, State(new))
        return
    target = overwritten(s, node, node.input[1], axis, len(after), extent // s.ranks)
    s.emit(node, State(new), [s.name(x), target])


def reshaped_axis(before: Shape, after: Shape, axis: int) -> tuple[int, int] | None:
    """Where an axis is after a reshape whose parts along it stay together, and its extent there;
    None: nowhere."""
    for group_before, group_after in _groups(before, after):
        if axis not in group_before:
            continue
        wide = [i for i in group_after if after[i] != 1]
        if not wide or any(before[i] != 1 for i in group_before if i < axis):
            return None
        extent = after[wide[0]]
        if not isinstance(extent, int) and len(wide) == 1:
            known = [each for i in group_before if isinstance(each := before[i], int)]
            extent = math.prod(known) if len(known) == len(group_before) else None
        return (wide[0], extent) if isinstance(extent, int) else None
    return None


def _groups(before: Shape, after: Shape) -> list[tuple[range, range]]:
    """Neighbouring axes that become neighbouring axes of the same number of elements.

    Open extents are taken as equal in their order. A run would find out if they were not: the
    result's shape has the extent of the axis that is cut.
    """
    found: list[tuple[range, range]] = []
    k, m = len(before), len(after)
    while k > 0 and m > 0:  # from the right
        step = _group(before[:k][::-1], after[:m][::-1])
        if step is None:
            break
        found.append((range(k - step[0], k), range(m - step[1], m)))
        k, m = k - step[0], m - step[1]
    i, j = 0, 0
    while i < k and j < m:  # from the left
        is_open = not isinstance(before[i], int) and not isinstance(after[j], int)
        step = (1, 1) if is_open else _group(before[i:k], after[j:m])
        if step is None:
            break
        found.append((range(i, i + step[0]), range(j, j + step[1])))
        i, j = i + step[0], j + step[1]
    return [*found, (range(i, k), range(j, m))]


def _group(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[int, int] | None:
    """The fewest leading extents with equal products."""
    if before[0] == after[0] and before[0] is not None:
        return 1, 1
    sizes, counts = [1, 1], [0, 0]
    sides = (before, after)
    while sizes[0] != sizes[1] or 0 in counts:
        side = 0 if counts[0] == 0 or (counts[1] and sizes[0] < sizes[1]) else 1
        if counts[side] == len(sides[side]):
            return None
        extent = sides[side][counts[side]]
        if not isinstance(extent, int) or extent < 1:
            return None
        sizes[side] *= extent
        counts[side] += 1
    return counts[0], counts[1]


@rule("Transpose")
def transpose(s: Splitter, node: onnx.NodeProto) -> None:
    cut = s.cut(node.input[0])
    if cut is None:
        s.emit(node, s.state(node.input[0]))
        return
    rank = len(s.shape(node, node.input[0]))
    order = attributes_of(node).get("perm", list(range(rank))[::-1])
    s.emit(node, State(shift(cut, order.index(cut.axis))))


def elements_of(s: Splitter, node: onnx.NodeProto, place: int, what: str) -> list[int] | None:
    """The elements of a constant input; None: there is none.

    :param what: what the input gives, for the message.
    :raises Error: the input is not constant.
    """
    if len(node.input) <= place or not node.input[place]:
        return None
    value = s.value(node.input[place])
    if value is None:
        raise s.error(
            node,
            f"its {what} ('{node.input[place]}') are not constant, so that a cut cannot be followed",
        )
    elements: list[int] = value.tolist()
    return elements


def axes_of(s: Splitter, node: onnx.NodeProto) -> list[int] | None:
    """The attribute or the constant input `axes`; None: there is none."""
    axes = attributes_of(node).get("axes")
    return elements_of(s, node, 1, "axes") if axes is None else axes


@rule("Squeeze", "Unsqueeze")
def squeeze(s: Splitter, node: onnx.NodeProto) -> None:
    cut = s.cut(node.input[0])
    if cut is None:
        s.emit(node, s.state(node.input[0]))
        return
    shape, axes = s.shape(node, node.input[0]), axes_of(s, node)
    if node.op_type == "Unsqueeze":
        assert axes is not None
        rank = len(shape) + len(axes)
        new = [i % rank for i in axes]
        axis = [i for i in range(rank) if i not in new][cut.axis]
    else:
        gone = [i for i, extent in enumerate(shape) if extent == 1] if axes is None else axes
        axis = cut.axis - sum(i % len(shape) < cut.axis for i in gone)
    s.emit(node, State(shift(cut, axis)))


@rule("Expand")
def expand(s: Splitter, node: onnx.NodeProto) -> None:
    x, target = node.input
    cut = s.cut(x)
    if cut is None:
        raise s.error(node, f"'{target}' is {s.state(target)}")
    rank = len(s.shape(node, node.output[0]))
    given = s.shape(node, target)[0]
    if not isinstance(given, int):
        raise s.error(
            node, f"the length of '{target}' is unknown, so that a cut cannot be followed"
        )
    axis = cut.axis + rank - len(s.shape(node, x))
    place = axis - rank + given
    if place < 0:
        s.emit(node, State(shift(cut, axis)), [s.name(x), s.whole(node, target)])
        return
    # An extent of 1 keeps the input's.
    s.emit(
        node, State(shift(cut, axis)), [s.name(x), overwritten(s, node, target, place, given, 1)]
    )


@rule("Concat")
def concat(s: Splitter, node: onnx.NodeProto) -> None:
    rank = len(s.shape(node, node.input[0]))
    axis = attributes_of(node)["axis"] % rank
    cuts = {cut for name in node.input if (cut := s.cut(name)) is not None}
    if {cut.axis for cut in cuts} == {axis}:
        inputs: list[str] = []
        blocks: list[int] = []
        for name in node.input:
            cut = s.cut(name) or s.make_cut(node, name, axis)
            inputs.append(s.part(node, name, cut))
            blocks += cut.blocks
        s.emit(node, State(Cut(axis, tuple(blocks))), inputs)
        return
    if len(cuts) != 1:
        raise conflict(s, node, node.input)
    (cut,) = cuts
    s.emit(node, State(cut), [s.part(node, name, cut) for name in node.input])


@rule("Split")
def split(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    cut = s.cut(x)
    given = attributes_of(node)
    axis = given.get("axis", 0) % len(s.shape(node, x))
    assert cut is not None
    if cut.axis != axis:
        s.emit(node, State(cut))
        return
    sizes = given.get("split")
    if sizes is None:
        sizes = elements_of(s, node, 1, "sizes")
    if sizes is None:
        size = -(-cut.extent // len(node.output))
        sizes = [min(size, cut.extent - i * size) for i in range(len(node.output))]
    parts = split_blocks(cut, sizes)
    if parts is None:
        raise s.error(
            node,
            f"'{x}' is {s.state(x)} in blocks of {list(cut.blocks)}, and it is split into {list(sizes)}; "
            f"give the weight's rule these blocks: Rule(pattern, action, blocks={list(sizes)})",
        )
    states = [State(part) for part in parts]
    own = [size // s.ranks for size in sizes]
    if s.opset.get("", 13) < 13:
        s.emit(node, states, [s.name(x)], split=own)
    else:
        s.emit(node, states, [s.name(x), s.ints(own)], num_outputs=None)


def split_blocks(cut: Cut, sizes: Sequence[int]) -> list[Cut] | None:
    """The cuts of neighbouring parts of those sizes; None: a part ends within a block."""
    parts, left = [], list(cut.blocks)
    for size in sizes:
        blocks: list[int] = []
        while sum(blocks) < size and left:
            blocks.append(left.pop(0))
        if sum(blocks) != size:
            return None
        parts.append(Cut(cut.axis, tuple(blocks)))
    return parts


@rule("Slice")
def slice_(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    cut = s.cut(x)
    if cut is None:
        raise s.error(node, "its bounds are cut; expected only its data to be")
    rank, given = len(s.shape(node, x)), attributes_of(node)
    bounds: list[list[int] | None] = []
    for i, attribute in enumerate(("starts", "ends", "axes", "steps")):
        bound = given.get(attribute)
        if len(node.input) > i + 1 and node.input[i + 1]:
            value = s.value(node.input[i + 1])
            bound = None if value is None else value.tolist()
        bounds.append(bound)
    starts, ends, axes, steps = bounds
    axes = [axis % rank for axis in (axes if axes is not None else range(rank))]
    if cut.axis not in axes:
        s.emit(node, State(cut))
        return
    # A slice of whole blocks, such as the keys of queries, keys and values.
    if len(axes) == 1 and starts and ends and len(node.input) > 1 and (steps or [1]) == [1]:
        start, end, _ = slice(starts[0], ends[0]).indices(cut.extent)
        parts = split_blocks(cut, [start, max(end - start, 0)])
        if parts is not None and end > start:
            own = [s.name(x), s.ints([start // s.ranks]), s.ints([end // s.ranks]), s.ints(axes)]
            s.emit(node, State(parts[1]), own)
            return
    raise s.error(
        node,
        f"'{x}' is {s.state(x)}, the axis of the slice; leave the weights before it whole "
        "('replicate'), or, for parts side by side, give the weight's rule their extents as blocks",
    )


# Along an axis


@rule("Softmax", "LogSoftmax", "Hardmax", "CumSum", "ArgMax", "ArgMin", "TopK", "LpNormalization")
def along_axis(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    rank, cut, given = len(s.shape(node, x)), s.cut(x), attributes_of(node)
    if node.op_type == "CumSum":
        value = s.value(node.input[1])
        axis = None if value is None else int(value.item()) % rank
    else:
        axis = given.get("axis", 0 if node.op_type in ("ArgMax", "ArgMin") else -1) % rank
    # Before opset 13 these work along all axes from one on.
    flat = "softmax" in node.op_type.lower() and s.opset.get("", 13) < 13
    mixes = cut is None or axis is None or cut.axis == axis or (flat and cut.axis >= axis)
    if mixes:
        raise mixed(s, node, x)
    assert cut is not None and axis is not None
    drops = node.op_type in ("ArgMax", "ArgMin") and not given.get("keepdims", 1)
    s.emit(node, State(shift(cut, cut.axis - int(drops and axis < cut.axis))))


def mixed(s: Splitter, node: onnx.NodeProto, x: str) -> Exception:
    return s.error(
        node,
        f"'{x}' is {s.state(x)}, and this operator mixes that axis; leave the weights before it whole "
        f'(\'replicate\'), or make the tensor whole with a rule: ("{x}", "gather")',
    )


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def normalization(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    rank, cut = len(s.shape(node, x)), s.cut(x)
    axis = attributes_of(node).get("axis", -1) % rank
    if cut is None or cut.axis >= axis or any(s.cut(name) for name in node.input[1:]):
        raise mixed(s, node, x)
    s.set_type(node.output[0], s.dtype(x), s.shape(node, x))
    s.emit(node, State(cut))


@rule(
    *(f"Reduce{name}" for name in "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split())
)
def reduction(s: Splitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    rank, cut, given = len(s.shape(node, x)), s.cut(x), attributes_of(node)
    if cut is None:
        s.emit(node, s.state(x))
        return
    axes = [axis % rank for axis in axes_of(s, node) or []]
    if not axes and not given.get("noop_with_empty_axes"):
        axes = list(range(rank))
    if cut.axis in axes:
        if node.op_type != "ReduceSum":
            raise mixed(s, node, x)
        s.emit(node, SUM)
        return
    gone = 0 if given.get("keepdims", 1) else sum(axis < cut.axis for axis in axes)
    s.emit(node, State(shift(cut, cut.axis - gone)))


@rule("Trilu")
def trilu(s: Splitter, node: onnx.NodeProto) -> None:
    cut = s.cut(node.input[0])
    if cut is None or cut.axis >= len(s.shape(node, node.input[0])) - 2:
        raise mixed(s, node, node.input[0])
    s.emit(node, State(cut))


# Attention: whole heads on each rank


def heads(
    s: Splitter,
    node: onnx.NodeProto,
    *,
    parts: Sequence[int],
    caches: Sequence[int] = (),
    masks: Sequence[int] = (),
    sinks: Sequence[int] = (),
    bias: int | None = None,
    counts: Sequence[str],
) -> None:
    """An operator whose heads are independent.

    :param parts: inputs with heads: axis 1 of four, else the last one.
    :param caches: inputs with heads along axis 1.
    :param masks: inputs [..., heads or 1, queries, keys].
    :param sinks: inputs with an element for each head.
    :param bias: an input with the biases of queries, keys and values.
    :param counts: attributes that count heads.
    """
    given = attributes_of(node)
    for name in filter(None, node.input):
        if s.state(name).is_sum:
            s.whole(node, name)
    changed = {}
    for attribute in counts:
        if given.get(attribute, 0):
            changed[attribute] = s.divided(node, attribute, given[attribute])
    inputs = []
    first: Cut | None = None
    for i, name in enumerate(node.input):
        if not name:
            inputs.append("")
        elif i in parts or i in caches:
            rank = len(s.shape(node, name))
            axis = 1 if rank == 4 or i in caches else rank - 1
            held = s.cut(name)
            packed = i == 0 and len(node.input) > 1 and not node.input[1] and len(parts) > 1
            if held is None and packed:
                raise s.error(
                    node, f"queries, keys and values are packed in '{name}', which is whole"
                )
            cut = held if held is not None and held.axis == axis else s.make_cut(node, name, axis)
            if len(cut.blocks) != (3 if packed else 1):
                raise s.error(
                    node,
                    f"'{name}' is cut in {len(cut.blocks)} blocks; expected {3 if packed else 1}: "
                    "give the weight's rule the extents of queries, keys and values as blocks",
                )
            first = first or cut
            inputs.append(s.part(node, name, cut))
        elif i in masks:
            rank = len(s.shape(node, name))
            apart = rank < 3 or s.shape(node, name)[rank - 3] == 1
            inputs.append(
                s.whole(node, name)
                if apart
                else s.part(node, name, s.make_cut(node, name, rank - 3))
            )
        elif i in sinks:
            inputs.append(s.part(node, name, s.make_cut(node, name, 0)))
        elif i == bias:
            third = s.extent(node, name, 0) // 3
            inputs.append(s.part(node, name, s.make_cut(node, name, 0, (third,) * 3)))
        else:
            inputs.append(s.whole(node, name))
    assert first is not None
    x = s.shape(node, node.input[0])
    if len(first.blocks) == 3:
        s.set_type(node.output[0], s.dtype(node.input[0]), (*x[:-1], first.blocks[0]))
    else:
        s.set_type(node.output[0], s.dtype(node.input[0]), x)
    states = []
    for i, output in enumerate(node.output):
        if i == 0 and output:
            shape = s.shape(node, output)
            axis = 1 if len(shape) == 4 else len(shape) - 1
            states.append(State(s.make_cut(node, output, axis)))
        elif output:
            cache = node.input[caches[min(i, len(caches)) - 1]] if caches else ""
            if cache and s.is_known(cache):  # the caches' extents, but for the length
                known = s.shape(node, cache)
                s.set_type(output, s.dtype(cache), (*known[:2], None, *known[3:]))
            states.append(State(s.make_cut(node, output, 1)))
        else:
            states.append(WHOLE)
    s.emit(node, states, inputs, **changed)


def _heads(**options: Any) -> Function:
    return lambda s, node: heads(s, node, **options)


RULES["", "Attention"] = _heads(
    parts=(0, 1, 2), masks=(3,), caches=(4, 5), counts=("q_num_heads", "kv_num_heads")
)
RULES["", "RotaryEmbedding"] = _heads(parts=(0,), counts=("num_heads",))
RULES[MICROSOFT, "GroupQueryAttention"] = _heads(
    parts=(0, 1, 2), caches=(3, 4), masks=(10,), sinks=(11,), counts=("num_heads", "kv_num_heads")
)
RULES[MICROSOFT, "MultiHeadAttention"] = _heads(
    parts=(0, 1, 2), bias=3, masks=(5,), caches=(6, 7), counts=("num_heads",)
)


@rule("RotaryEmbedding", domain=MICROSOFT)
def rotary(s: Splitter, node: onnx.NodeProto) -> None:
    x, count = node.input[0], attributes_of(node).get("num_heads", 0)
    if len(s.shape(node, x)) == 3 and not count:  # the tables say how wide a head is
        head = 2 * s.extent(node, node.input[2], 1)
        s.divided(node, "the number of heads", s.extent(node, x, 2) // head)
    heads(s, node, parts=(0,), counts=("num_heads",))


@rule("SkipSimplifiedLayerNormalization", "SkipLayerNormalization", domain=MICROSOFT)
def skip(s: Splitter, node: onnx.NodeProto) -> None:
    raise mixed(s, node, next(name for name in node.input if s.cut(name)))


@rule("DequantizeLinear")
def dequantize(s: Splitter, node: onnx.NodeProto) -> None:
    x, *rest = node.input
    cut, given = s.cut(x), attributes_of(node)
    if cut is None:
        raise s.error(node, "its scales are cut; expected only its data to be")
    rank = len(s.shape(node, x))
    inputs = [s.name(x)]
    for name in rest:
        shape = s.shape(node, name) if name else ()
        if len(shape) == 1 and rank > 1 and given.get("axis", 1) % rank == cut.axis:
            inputs.append(s.part(node, name, shift(cut, 0)))
        elif len(shape) == rank and rank > 1:  # a scale for each block
            inputs.append(s.part(node, name, s.make_cut(node, name, cut.axis)))
        else:
            inputs.append(name and s.whole(node, name))
    s.emit(node, State(cut), inputs)


def like_input(s: Splitter, node: onnx.NodeProto) -> None:
    """Types of the outputs of operators that ONNX does not know, where they are their input's."""
    if not node.input or not s.is_known(node.input[0]):
        return
    if node.domain != MICROSOFT and node.op_type != "SimplifiedLayerNormalization":
        return
    dtype, shape = s.dtype(node.input[0]), s.shape(node, node.input[0])
    if node.op_type in ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"):
        s.set_type(node.output[0], dtype, shape)
        if len(node.output) > 3:
            s.set_type(node.output[3], dtype, shape)
    elif node.op_type in (
        "SimplifiedLayerNormalization",
        "RotaryEmbedding",
        "QuickGelu",
        "FastGelu",
        "BiasGelu",
        "Gelu",
    ):
        s.set_type(node.output[0], dtype, shape)
    elif node.op_type == "MatMulNBits":
        s.set_type(node.output[0], dtype, (*shape[:-1], attributes_of(node)["N"]))
    elif node.op_type in ("GroupQueryAttention", "MultiHeadAttention") and node.input[1]:
        s.set_type(node.output[0], dtype, shape)
