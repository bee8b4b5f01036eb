"""ShuffleNet's concatenation, channel shuffle and split are as few steps as it has results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import opwright

pytestmark = pytest.mark.usefixtures("on_gpu")

TYPES = {np.float16: "float16", np.float32: "float", np.int8: "int8"}


def run(tail: str, outputs: str, groups: int, extents: tuple[int, ...], dtype, spatial=(5, 8)):
    """The kinds of an engine's steps, its results, and the inputs. `tail` makes `outputs` from the
    shuffled channels `s`."""
    kind, channels = TYPES[dtype], sum(extents)
    shape = ",".join(map(str, spatial))
    arguments = ", ".join(f"{kind}[n, {c}, {shape}] x{i}" for i, c in enumerate(extents))
    names = ", ".join(f"x{i}" for i in range(len(extents)))
    joined = f"j = Concat<axis=1>({names})" if len(extents) > 1 else "j = Identity(x0)"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({arguments}) => ({", ".join(f"{kind}[n, {name}_c, h, w] {name}" for name in outputs.split())}) {{
            {joined}
            apart = Constant<value_ints=[0, {groups}, {channels // groups}, {shape}]>()
            p = Reshape(j, apart)
            t = Transpose<perm=[0, 2, 1, 3, 4]>(p)
            whole = Constant<value_ints=[0, {channels}, {shape}]>()
            s = Reshape(t, whole)
            {tail}
        }}""")
    shapes = {f"x{i}": tuple((n, c, *spatial) for n in (1, 2, 3)) for i, c in enumerate(extents)}
    engine = opwright.build(model, device="cuda", timing=False, shapes=shapes)
    rng = np.random.default_rng(0)
    feeds = {
        f"x{i}": (10 * rng.standard_normal((2, c, *spatial))).astype(dtype)
        for i, c in enumerate(extents)
    }
    got = engine(**feeds)
    kinds = [each["LayerType"] for each in engine.layers]
    joined = np.concatenate(list(feeds.values()), 1)
    shuffled = joined.reshape(2, groups, -1, *spatial).swapaxes(1, 2).reshape(joined.shape)
    return kinds, [got[name] for name in outputs.split()], shuffled


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "extents, groups", [((12, 12), 2), ((3, 8, 1, 6), 3), ((24,), 4), ((1, 5), 1)]
)
def test_halves_of_a_shuffle(extents, groups, dtype):
    tail = "y, z = Split<axis=1, num_outputs=2>(s)"
    kinds, got, shuffled = run(tail, "y z", groups, extents, dtype)
    if groups > 1:
        assert kinds.count("ShuffledConcatenation") == len(kinds) == 2, kinds
    half = sum(extents) // 2
    np.testing.assert_array_equal(got[0], shuffled[:, :half])
    np.testing.assert_array_equal(got[1], shuffled[:, half:])


def test_a_shuffle_that_others_read_is_one_step():
    tail = "y = Relu(s)\nz = Slice(s, two, eight, one)"
    tail = (
        "".join(
            f"{name} = Constant<value_ints=[{n}]>()\n"
            for name, n in (("two", 2), ("eight", 8), ("one", 1))
        )
        + tail
    )
    kinds, got, shuffled = run(tail, "y z", 2, (6, 6), np.float32)
    assert kinds.count("ShuffledConcatenation") == 1 and "Concatenation" not in kinds, kinds
    np.testing.assert_array_equal(got[0], np.maximum(shuffled, 0))
    np.testing.assert_array_equal(got[1], shuffled[:, 2:8])


def test_slices_with_steps_or_of_pixels_stay():
    constants = {"zero": 0, "three": 3, "twelve": 12, "one": 1, "two": 2}
    text = "".join(f"{name} = Constant<value_ints=[{n}]>()\n" for name, n in constants.items())
    tail = text + "y = Slice(s, zero, twelve, one, two)\nz = Slice(s, zero, three, two)"
    kinds, got, shuffled = run(tail, "y z", 2, (6, 6), np.float32)
    assert "Slice" in kinds, kinds
    np.testing.assert_array_equal(got[0], shuffled[:, 0:12:2])
    np.testing.assert_array_equal(got[1], shuffled[:, :, 0:3])
