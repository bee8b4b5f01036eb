"""Kernels that are compiled in one place, saved, and taken into engines in another: Code.save, aot.load
and aot.open_extents."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from opwright.aot import _arrays, _saved
from opwright.plugin import SymFloat32, SymInt32, SymInt64
from plugin_testing import new_id

F32, F16 = trt.float32, trt.float16

# y = x * factor + bias[column]; a cell makes a row.
SOURCE = """
#include <cstdint>
template <class T>
void affine(const T* x, const T* bias, std::int64_t columns, float factor, T* y,
            std::int64_t row, std::int64_t, std::int64_t) {
  for (std::int64_t i = 0; i < columns; ++i) y[row * columns + i] = x[row * columns + i] * factor + bias[i];
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def ports(*extents, dtype=F32):
    x = (dtype, list(extents))
    return {"inputs": [x, (dtype, [extents[-1]])], "outputs": [x]}


def affine(**tensors):
    """The kernel, which the maker of C++ compiles, with extents that it would not need."""
    rows, columns = tensors["inputs"][0][1]

    @_saved.portable
    def make(*, inputs, outputs, extra):
        dtypes = {"inputs": [i[0] for i in inputs], "outputs": [o[0] for o in outputs]}
        symbols = [SymInt64(columns), SymFloat32(0)]
        code = aot.cpp(SOURCE, "affine", **dtypes, extra=symbols)
        layout = _arrays.Layout(2, extra, 1)
        layout.tensor(0)
        layout.tensor(1)
        layout.integer(columns, 64)
        layout.extra(0)
        layout.tensor(2)
        grid = {"grid_x": rows * columns // trtp.max(columns, 1)}
        made = (layout.parameters, layout.added, layout.order)
        return aot.Code(
            code, code.name, code.target, made[0], added=made[1], order=made[2], launch=grid
        )

    return make(**tensors, extra=[SymFloat32(0)])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "affine.kernel"
    affine(**ports(*aot.open_extents("rows", "columns"))).save(path)
    return path


def engine_of(load, shape=(-1, -1)):
    plugin_id = new_id("saved")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, bias: trtp.TensorDesc, factor: float) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def kernel(x, bias, factor, outputs, tactic):
        code = load(x, bias, [SymFloat32(factor)], outputs)
        return code.name, code, code.launch(), [SymFloat32(factor)]

    network = trt.Builder(trt.Logger()).create_network()
    tensors = [network.add_input("x", F32, shape), network.add_input("bias", F32, shape[1:])]
    namespace, name = plugin_id.split("::")
    call = getattr(getattr(trtp.op, namespace), name)
    network.mark_output(network.add_plugin(call(*tensors, factor=0.5)).get_output(0))
    shapes = {"x": ((1, 1), (4, 6), (64, 64)), "bias": ((1,), (6,), (64,))}
    return trt.build(network, shapes=shapes if -1 in shape else None, device="cpu")


def load_rows(path):
    """The columns are those of x, which the kernel says of the bias, too."""

    def load(x, bias, extra, outputs):
        columns = x.shape_expr[1]
        inputs = [x, (bias.dtype, [columns])]
        return aot.load(path, inputs=inputs, extra=extra, outputs=outputs)

    return load


def test_a_saved_kernel_is_that_of_an_engine(saved, tmp_path):
    engine = engine_of(load_rows(saved))
    engine.save(tmp_path / "affine.engine")
    stored = trt.load(tmp_path / "affine.engine", allow_host_code=True)
    rng = np.random.default_rng(0)
    for shape in [(4, 6), (1, 1), (7, 33)]:
        x, bias = (rng.standard_normal(s, np.float32) for s in (shape, shape[1:]))
        for each in (engine, stored):
            np.testing.assert_allclose(
                each(x=x, bias=bias), x * np.float32(0.5) + bias, rtol=1e-5, atol=1e-6
            )


def test_makers_that_take_types_alone_save_too(tmp_path):
    (columns,) = aot.open_extents("columns")
    extra = [SymInt64(columns), SymFloat32(0)]
    path = tmp_path / "affine.kernel"
    aot.cpp(SOURCE, "affine", inputs=[F32, F32], extra=extra, outputs=[F32]).save(path)

    plugin_id = new_id("typed")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, bias: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def kernel(x, bias, outputs, tactic):
        rows, columns = x.shape_expr
        extra = trtp.SymExprs.from_tuple([SymInt64(columns), SymFloat32(3)])
        code = aot.load(path, inputs=[x, bias], extra=extra, outputs=outputs)
        return code.name, code, code.launch(grid_x=rows), extra

    network = trt.Builder(trt.Logger()).create_network()
    tensors = [network.add_input("x", F32, (5, 7)), network.add_input("bias", F32, (7,))]
    call = getattr(trtp.op, plugin_id.split("::")[0]).typed
    network.mark_output(network.add_plugin(call(*tensors)).get_output(0))
    engine = trt.build(network, device="cpu")
    x, bias = np.arange(35, dtype=np.float32).reshape(5, 7), np.ones(7, np.float32)
    np.testing.assert_allclose(engine(x=x, bias=bias), 3 * x + bias, rtol=1e-6)


def test_another_process_names_the_extents_anew(saved):
    script = (
        "from opwright import aot; import opwright as trt, sys; from opwright.plugin import SymFloat32\n"
        "other, n, m = aot.open_extents('other', 'n', 'm'); x = (trt.float32, [n, m])\n"
        "c = aot.load(sys.argv[1], inputs=[x, (trt.float32, [m])], extra=[SymFloat32(0)], outputs=[x])\n"
        "assert [str(s) for s in c.added] == [str(m)], c.added\n"
        "assert str(c.launch().grid_x) == str(n * m // __import__('opwright').plugin.max(m, 1))\n"
        "c.save(sys.argv[1] + '2')"
    )
    subprocess.run([sys.executable, "-c", script, str(saved)], check=True)
    # What was loaded is saved as well.
    again = aot.load(f"{saved}2", extra=[SymFloat32(0)], **ports(4, 6))
    assert bytes(again) == bytes(aot.load(saved, extra=[SymFloat32(0)], **ports(4, 6)))
    assert again.launch().grid_x.constant_value() == 4
    assert [int(symbol) for symbol in again.added] == [6]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": [(F32, [4, 6])]}, "was compiled for 2 inputs, but 1 come"),
        ({"inputs": [(F16, [4, 6]), (F32, [6])]}, "input 0 of DataType.FLOAT; DataType.HALF came"),
        ({"inputs": [(F32, [4, 6, 1]), (F32, [6])]}, "input 0 of 2 axes; it has 3"),
        (
            {"inputs": [(F32, [4, 6]), (F32, [7])]},
            "'columns', axis 1 of input 0, as axis 0 of input 1",
        ),
        ({"inputs": [(F32, [4, 6]), None]}, "with input 1 present; it is absent"),
        ({"outputs": [(F32, [4, 7])]}, "as axis 1 of output 0, which is 6 here; 7 came"),
        ({"outputs": []}, "was compiled for 1 outputs, but 0 come"),
        ({"extra": []}, r"for the extra arguments \(SymFloat32\); \(\) came"),
        ({"extra": [SymInt32(0)]}, r"\(SymFloat32\); \(SymInt32\) came"),
    ],
)
def test_what_it_was_not_compiled_for_is_told(saved, change, words):
    with pytest.raises(aot.CompileError, match=words):
        aot.load(saved, **{**ports(4, 6), "extra": [SymFloat32(0)], **change})


def test_a_type_is_no_tensor_of_known_extents(saved):
    with pytest.raises(TypeError, match="input 0 must be a tensor's descriptor, or a pair"):
        aot.load(saved, inputs=[F32, F32], outputs=[F32], extra=[SymFloat32(0)])


def test_extents_that_were_numbers_stay(tmp_path):
    affine(**ports(4, 6)).save(tmp_path / "k")
    assert aot.load(tmp_path / "k", extra=[SymFloat32(0)], **ports(4, 6))
    with pytest.raises(aot.CompileError, match="the extent 4 of axis 0 of input 0; 5 came"):
        aot.load(tmp_path / "k", extra=[SymFloat32(0)], **ports(5, 6))
    with pytest.raises(trt.Error, match="the extent 4 of axis 0 of input 0; .* came"):
        engine_of(load_rows(tmp_path / "k"))
    engine = engine_of(load_rows(tmp_path / "k"), (4, 6))
    x, bias = np.ones((4, 6), np.float32), np.arange(6, dtype=np.float32)
    np.testing.assert_allclose(engine(x=x, bias=bias), 0.5 + np.tile(bias, (4, 1)))


def test_an_integer_that_was_a_number_stays(tmp_path):
    # A compiler may have used what divides it.
    types = {"inputs": [F32, F32], "outputs": [F32]}
    extra = [SymInt64(16), SymFloat32(1)]
    aot.cpp(SOURCE, "affine", extra=extra, **types).save(tmp_path / "k")
    assert aot.load(tmp_path / "k", extra=[SymInt64(16), SymFloat32(2)], **types)
    with pytest.raises(aot.CompileError, match="the extra argument 0 of 16; 17 came"):
        aot.load(tmp_path / "k", extra=[SymInt64(17), SymFloat32(1)], **types)


def test_extents_that_are_not_known_to_be_equal_are_refused(saved):
    def load(x, bias, extra, outputs):
        return aot.load(saved, inputs=[x, bias], extra=extra, outputs=outputs)

    with pytest.raises(trt.Error, match=r"not known to be the same. Where it is, give a pair"):
        engine_of(load)


def test_open_extents_are_of_no_network():
    with pytest.raises(trt.Error, match=r"for extents of opwright.aot.open_extents\(\), which no"):
        engine_of(lambda x, bias, extra, outputs: affine(**ports(*aot.open_extents("r", "c"))))


def test_what_cannot_be_saved(tmp_path):
    rows, columns, other = aot.open_extents("rows", "columns", "other")
    code = affine(**ports(rows, columns * 2))
    with pytest.raises(aot.CompileError, match="needs the extent 'columns', which no input has"):
        code.save(tmp_path / "k")
    code = affine(inputs=[(F32, [rows, columns]), (F32, [columns])], outputs=[(F32, [rows, other])])
    with pytest.raises(aot.CompileError, match="needs the extent 'other', which no input has"):
        code.save(tmp_path / "k")
    with pytest.raises(aot.CompileError, match="what the kernel 'k' takes is not known"):
        aot.Code(b"", "k", "sm_90", kind="ptx").save(tmp_path / "k")
    with pytest.raises(TypeError, match="names are strings; 3 came"):
        aot.open_extents(3)

    def save(x, bias, extra, outputs):
        affine(**ports(*x.shape_expr)).save(tmp_path / "k")

    with pytest.raises(
        trt.Error, match="was compiled for the extents of a network; compile it with"
    ):
        engine_of(save)
    assert not (tmp_path / "k").exists()


def rewrite(path, change):
    """Changes what the file says, with a digest that fits."""
    data = path.read_bytes()
    magic, rest = data[: len(_saved._MAGIC)], data[len(_saved._MAGIC) + 65 :]
    header, _, code = rest.partition(b"\n")
    facts = json.loads(header)
    change(facts)
    header = json.dumps(facts).replace('"deep"', DEEP).encode()
    rest = header + b"\n" + code
    digest = hashlib.sha256(rest).hexdigest().encode()
    path.write_bytes(magic + digest + b"\n" + rest)


DEEP = '["sum", ' * 5000 + "1" + ", 1]" * 5000


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("name"),
        lambda facts: facts.update(name=[]),
        lambda facts: facts.update(kind="exe"),
        lambda facts: facts.update(kind="cubin"),
        lambda facts: facts.update(target=None),
        lambda facts: facts.update(inputs=[["FLOAT"], ["FLOAT", None]]),
        lambda facts: facts.update(inputs=[["FLOAT", 3], ["FLOAT", None]]),
        lambda facts: facts.update(inputs=[["FLOTE", None], ["FLOAT", None]]),
        lambda facts: facts.update(inputs=[["FLOAT", [[], "x"]], ["FLOAT", None]]),
        lambda facts: facts.update(inputs=[["FLOAT", [["extent", []], 1]], ["FLOAT", None]]),
        lambda facts: facts.update(inputs={}),
        lambda facts: facts.update(extra=[["SymFloat32"]]),
        lambda facts: facts.update(extra=[[["SymFloat32"], 0]]),
        lambda facts: facts.update(added=[["SymFloat32", 0]]),
        lambda facts: facts.update(added=[["SymInt32", ["extent", "none"]]]),
        lambda facts: facts.update(added=[["SymInt32", ["extent", ["rows"]]]]),
        lambda facts: facts.update(added=[["SymInt32", ["floor_div", 1, 0]]]),
        lambda facts: facts.update(added=[["SymInt32", ["sum", 1]]]),
        lambda facts: facts.update(added=[["SymInt32", ["sub", 1, 2, 3]]]),
        lambda facts: facts.update(added=[["SymInt32", ["constant", 1]]]),
        lambda facts: facts.update(added=[["SymInt32", 1.5]]),
        lambda facts: facts.update(added=[["SymInt64", 1 << 70]]),
        lambda facts: facts.update(added=[["SymInt64", ["product", 1 << 62, 1 << 62]]]),
        lambda facts: facts.update(order=[0, 1, 2, 3, 5]),
        lambda facts: facts.update(order=[0, 1, 2, 3, -1]),
        lambda facts: facts.update(order=[0, 1, 2, 3, True]),
        lambda facts: facts.update(scratch=["4"]),
        lambda facts: facts.update(launch={"grid_w": 1}),
        lambda facts: facts.update(launch={"grid_x": None}),
        lambda facts: facts.update(launch=[]),
        lambda facts: facts.update(launch={"grid_x": "deep"}),
    ],
)
def test_what_a_file_says_is_not_believed(saved, change):
    rewrite(saved, change)
    with pytest.raises(trt.Error):
        aot.load(saved, extra=[SymFloat32(0)], **ports(4, 6)).launch()


def test_a_damaged_file_is_told(saved, tmp_path):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    for length in [0, 5, 18, 50, 83, 90, len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(aot.CompileError, match="is no kernel that Code.save wrote"):
            aot.load(saved, extra=[SymFloat32(0)], **ports(4, 6))
    for at in rng.integers(0, len(whole), 200):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.integers(8)
        saved.write_bytes(damaged)
        try:
            aot.load(saved, extra=[SymFloat32(0)], **ports(4, 6))
        except aot.CompileError as error:
            assert "is no kernel that Code.save wrote" in str(error)
        else:
            assert at == len(_saved._MAGIC) + 64  # the end of a line
    with pytest.raises(aot.CompileError, match="cannot be read: .*No such file"):
        aot.load(tmp_path / "missing", inputs=[], outputs=[])
