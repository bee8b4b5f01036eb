// TensorDesc, SizeTensorDesc, Shape: descriptions of tensors in the functions of a plugin.

#include "tensor_desc.h"

#include <atomic>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

void check_writable(const TensorDesc& self, const char* what) {
  require(!self.read_only, "this descriptor was handed to the function and is read-only, so its ",
          what, " cannot be set; make one with like(), aliased() or from_shape_expr()");
}

const ShapeExprs& shape_of(const TensorDesc& self) {
  require(self.shape_expr != nullptr, "this descriptor has no shape expressions");
  return *self.shape_expr;
}

int ndim(const TensorDesc& self) {
  if (self.shape_expr != nullptr) return static_cast<int>(self.shape_expr->extents.size());
  require(self.shape != nullptr, "this descriptor has no shape");
  return self.shape->extents.rank();
}

/// A writable descriptor with the same type and shape.
TensorDesc like(const TensorDesc& self) {
  TensorDesc made;
  made.dtype = self.dtype;
  made.format = self.format;
  made.scale = self.scale;
  made.shape_expr = std::make_shared<ShapeExprs>(ShapeExprs{shape_of(self).extents, false});
  return made;
}

int new_placeholder() {
  static std::atomic<int> next{kFirstPlaceholder};
  return next++;
}

ShapeRange to_shape_range(nb::handle given) {
  if (given.is_none()) return {};
  if (nb::isinstance<ShapeRange>(given)) {
    ShapeRange copy = nb::cast<const ShapeRange&>(given);
    copy.read_only = false;
    return copy;
  }
  if (nb::isinstance<DynamicPluginTensorDesc>(given)) {
    const auto& desc = nb::cast<const DynamicPluginTensorDesc&>(given);
    return {Shape(desc.desc.dims), Shape(desc.min), Shape(desc.opt), Shape(desc.max)};
  }
  const Shape shape = nb::isinstance<PluginTensorDesc>(given)
                          ? Shape(nb::cast<const PluginTensorDesc&>(given).dims)
                          : to_shape(given);
  return {shape, shape, shape, shape};
}

void set_extent(ShapeRange& self, nb::handle index, nb::handle extent) {
  require(!self.read_only,
          "this is the shape of a descriptor that was handed to the function, which is read-only; "
          "change a copy: Shape(desc.shape)");
  nb::ssize_t at = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (at == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (at < 0) at += self.extents.rank();
  if (at < 0 || at >= self.extents.rank()) throw nb::index_error("Shape: no such axis");
  const auto value = nb::cast<int64_t>(nb::int_(nb::borrow(extent)));
  for (Shape* shape : {&self.extents, &self.min, &self.opt, &self.max})
    (*shape)[static_cast<int>(at)] = value;
}

/// One end of the range as a tuple.
nb::tuple range_of(const ShapeRange& self, const Shape& extents) {
  require(std::all_of(extents.begin(), extents.end(), [](int64_t extent) { return extent >= 0; }),
          "this Shape ", self.extents.str(),
          " was made only of extents, so the range of those that are -1 is not known");
  return to_tuple(extents);
}

void bind_shape(nb::module_& m) {
  nb::class_<ShapeRange>(m, "Shape",
                         "The extents of a tensor, -1 where they are dynamic, and their range: "
                         "iterate, index, assign, len, compare with a tuple. In autotune and "
                         "aot_impl.")
      .def(
          "__init__",
          [](ShapeRange* self, nb::handle extents) {
            new (self) ShapeRange(to_shape_range(extents));
          },
          nb::arg("shape").none() = nb::none(),
          nb::sig("def __init__(self, shape: collections.abc.Sequence[int] | Shape | "
                  "opwright._core.PluginTensorDesc | opwright._core.DynamicPluginTensorDesc | None "
                  "= None) -> None"))
      .def("__len__", [](const ShapeRange& self) { return self.extents.rank(); })
      .def(
          "__getitem__",
          [](const ShapeRange& self, nb::handle index) {
            return nb::steal(PyObject_GetItem(to_tuple(self.extents).ptr(), index.ptr()));
          },
          nb::sig("def __getitem__(self, index: int, /) -> int"))
      .def("__setitem__", &set_extent,
           nb::sig("def __setitem__(self, index: int, extent: int, /) -> None"))
      .def(
          "__iter__", [](const ShapeRange& self) { return nb::iter(to_tuple(self.extents)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def("__eq__",
           [](const ShapeRange& self, nb::handle other) {
             if (!nb::hasattr(other, "__len__")) return false;
             return nb::tuple(to_tuple(self.extents)).equal(nb::tuple(nb::borrow(other)));
           })
      .def("__hash__", [](const ShapeRange& self) { return nb::hash(to_tuple(self.extents)); })
      .def(
          "numel",
          [](const ShapeRange& self) {
            require(!self.is_dynamic(),
                    "numel() of a dynamic shape is not known; use shape.opt, shape.max or "
                    "shape_expr.numel()");
            return self.extents.numel();
          },
          "The number of elements.\n\n:raises Error: if the shape is dynamic.")
      .def_prop_ro("is_dynamic", &ShapeRange::is_dynamic,
                   "Whether an extent is known at run time only.")
      .def_prop_ro(
          "min", [](const ShapeRange& self) { return range_of(self, self.min); },
          nb::sig("def min(self) -> tuple[int, ...]"), "The smallest extents of the profile.")
      .def_prop_ro(
          "opt", [](const ShapeRange& self) { return range_of(self, self.opt); },
          nb::sig("def opt(self) -> tuple[int, ...]"), "The extents that the engine is tuned for.")
      .def_prop_ro(
          "max", [](const ShapeRange& self) { return range_of(self, self.max); },
          nb::sig("def max(self) -> tuple[int, ...]"), "The largest extents of the profile.")
      .def("__repr__", [](const ShapeRange& self) {
        return nb::str("Shape{}").format(to_tuple(self.extents));
      });
}

/// Binds shapes, and the methods that make descriptors like another one.
void bind_desc_shapes(nb::class_<TensorDesc>& c) {
  c.def_prop_rw(
       "shape_expr",
       [](const TensorDesc& self) {
         shape_of(self);
         return self.shape_expr;
       },
       [](TensorDesc& self, nb::handle extents) {
         check_writable(self, "shape_expr");
         self.shape_expr =
             std::make_shared<ShapeExprs>(ShapeExprs{to_extents(extents, "shape_expr"), false});
       },
       nb::for_setter(nb::sig(opwright::str("def shape_expr(self, value: collections.abc.Iterable[",
                                            kExtent, "], /) -> None")
                                  .c_str())),
       "The extents as expressions, also where they are not known yet; set from ints and "
       "expressions.")
      .def_prop_ro(
          "shape",
          [](const TensorDesc& self) {
            require(self.shape != nullptr,
                    "the shape is not known here: only in autotune and aot_impl; use shape_expr");
            return self.shape;
          },
          "The extents with their range.\n\n:raises Error: in register, where only shape_expr is "
          "known.")
      .def_prop_ro("ndim", &ndim, "The number of axes.")
      .def(
          "numel",
          [](const TensorDesc& self) {
            require(self.shape != nullptr && !self.shape->is_dynamic(),
                    "the number of elements is not known here; use shape_expr.numel()");
            return self.shape->extents.numel();
          },
          "The number of elements.\n\n:raises Error: if the shape is not known or dynamic; then "
          "shape_expr.numel() is the number as an expression.")
      .def("like", &like, "A writable descriptor with the same type and shape.")
      .def(
          "aliased",
          [](nb::object self) {
            const auto& desc = nb::cast<TensorDesc&>(self);
            require(desc.input >= 0,
                    "aliased() makes an output that shares an input's memory, so it is called on "
                    "an input's descriptor");
            TensorDesc made = like(desc);
            made.aliased = std::move(self);
            return made;
          },
          "The descriptor of an output that shares this input's memory, of its type and "
          "shape.\n\n:raises Error: if this is not an input's descriptor.");
}

/// Binds the methods that tell the kinds of descriptors apart.
void bind_desc_kinds(nb::class_<TensorDesc>& c) {
  c.def(
       "get_aliased",
       [](const TensorDesc& self) { return self.aliased.is_valid() ? self.aliased : nb::none(); },
       nb::sig("def get_aliased(self) -> TensorDesc | None"),
       "The input whose memory this output shares; None for others.")
      .def_prop_ro(
          "is_aliased", [](const TensorDesc& self) { return self.aliased.is_valid(); },
          "Whether this output shares an input's memory.")
      .def_prop_ro(
          "is_size_tensor", [](nb::handle self) { return nb::isinstance<SizeTensorDesc>(self); },
          "Whether this is a SizeTensorDesc.")
      .def_prop_ro(
          "has_shape", [](const TensorDesc& self) { return self.shape != nullptr; },
          "Whether `shape` is known: in autotune and aot_impl.")
      .def_prop_ro(
          "has_shape_expr", [](const TensorDesc& self) { return self.shape_expr != nullptr; },
          "Whether `shape_expr` is known.")
      .def_prop_ro(
          "is_dynamic",
          [](const TensorDesc& self) {
            return self.shape != nullptr ? self.shape->is_dynamic()
                                         : !is_constant(exprs(shape_of(self).extents));
          },
          "Whether an extent is known at run time only.")
      .def("__repr__", [](const TensorDesc& self) {
        std::string text = opwright::str("<TensorDesc ", name(self.dtype), " ");
        if (self.shape_expr != nullptr) text += opwright::str(exprs(self.shape_expr->extents), {});
        return text + ">";
      });
}

void bind_desc(nb::module_& m) {
  auto c = nb::class_<TensorDesc>(m, "TensorDesc",
                                  "What is known of a plugin's input or said of its output. Those "
                                  "that a function is handed are read-only; setting a property of "
                                  "one raises Error.");
  c.def(
       "__init__",
       [](TensorDesc* self, nb::handle shape_expr, std::optional<DataType> dtype,
          std::optional<TensorFormat> format, std::optional<float> scale) {
         TensorDesc made;
         if (!shape_expr.is_none())
           made.shape_expr = std::make_shared<ShapeExprs>(
               ShapeExprs{to_extents(shape_expr, "TensorDesc"), false});
         made.dtype = dtype.value_or(made.dtype);
         made.format = format.value_or(made.format);
         made.scale = scale.value_or(made.scale);
         new (self) TensorDesc(std::move(made));
       },
       nb::arg("shape_expr").none() = nb::none(), nb::arg("dtype").none() = nb::none(),
       nb::arg("format").none() = nb::none(), nb::arg("scale").none() = nb::none(),
       nb::sig(opwright::str("def __init__(self, shape_expr: collections.abc.Iterable[", kExtent,
                             "] | None = None, dtype: opwright._core.DataType | None = None, "
                             "format: opwright._core.TensorFormat | None = None, scale: float | "
                             "None = None) -> None")
                   .c_str()),
       "Of an output: FLOAT, LINEAR and a scale of 1 where nothing else is said.")
      .def_prop_rw(
          "dtype", [](const TensorDesc& self) { return self.dtype; },
          [](TensorDesc& self, DataType dtype) {
            check_writable(self, "dtype");
            self.dtype = dtype;
          },
          "The type of the elements.")
      .def_prop_rw(
          "format", [](const TensorDesc& self) { return self.format; },
          [](TensorDesc& self, TensorFormat format) {
            check_writable(self, "format");
            self.format = format;
          },
          "How the elements lie in memory; in autotune and aot_impl that of the candidate.")
      .def_prop_rw(
          "scale", [](const TensorDesc& self) { return self.scale; },
          [](TensorDesc& self, float scale) {
            check_writable(self, "scale");
            self.scale = scale;
          },
          "The quantization scale of INT8 elements.");
  bind_desc_shapes(c);
  bind_desc_kinds(c);
}

SizeTensorDesc make_size_tensor(nb::handle opt, nb::handle upper_bound) {
  SizeTensorDesc made;
  made.dtype = DataType::kINT32;
  made.shape_expr = std::make_shared<ShapeExprs>();
  made.opt = to_shape_expr(opt, "opt of a size tensor");
  made.upper_bound = to_shape_expr(upper_bound, "upper_bound of a size tensor");
  made.placeholder = new_placeholder();
  return made;
}

void bind_size_tensor(nb::module_& m) {
  nb::class_<SizeTensorDesc, TensorDesc>(
      m, "SizeTensorDesc",
      "The descriptor of a scalar output, INT32 or INT64, into which the plugin writes an extent "
      "that depends on data. `size_tensor` makes it.")
      .def(
          "__init__",
          [](SizeTensorDesc* self, nb::handle opt, nb::handle upper_bound) {
            new (self) SizeTensorDesc(make_size_tensor(opt, upper_bound));
          },
          nb::arg("opt"), nb::arg("upper_bound"),
          nb::sig(opwright::str("def __init__(self, opt: ", kExtent, ", upper_bound: ", kExtent,
                                ") -> None")
                      .c_str()),
          "The same as `size_tensor`.")
      .def_ro("opt", &SizeTensorDesc::opt, "The extent that the engine is tuned for.")
      .def_ro("upper_bound", &SizeTensorDesc::upper_bound, "The largest extent.")
      .def_ro("index", &SizeTensorDesc::index, "Which output it is; -1 before that is known.")
      .def(
          "expr",
          [](const SizeTensorDesc& self) {
            return ShapeExpr{Expr::symbol(self.placeholder), true};
          },
          "The extent as an expression, for the shapes of the plugin's other outputs.");
  m.def(
      "size_tensor", &make_size_tensor, nb::arg("opt"), nb::arg("upper_bound"),
      nb::sig(opwright::str("def size_tensor(opt: ", kExtent, ", upper_bound: ", kExtent,
                            ") -> SizeTensorDesc")
                  .c_str()),
      "A scalar output (INT32; set dtype for INT64) that tells an extent which depends on data: at "
      "most `upper_bound`; the engine is tuned for `opt`. It must be among the outputs.");
}

const std::vector<ShapeExpr>& elements_of(const ShapeInput& self) {
  if (ndim(self) == 0) throw nb::type_error("this shape input is a scalar: its value is n.expr()");
  return self.values;
}

void bind_shape_input(nb::module_& m) {
  nb::class_<ShapeInput, TensorDesc>(
      m, "ShapeInput",
      "The descriptor of an input, INT32 or INT64, of rank 0 or 1, whose values shapes may depend "
      "on: a vector is indexed and iterated like a tuple of ShapeExpr, expr() is a scalar's value. "
      "As the type hint of an input of `register` it asks for such an input, which is a Tensor "
      "on the host in `impl`.")
      .def(
          "__init__",
          [](ShapeInput*, nb::args, nb::kwargs) {
            throw nb::type_error("a ShapeInput describes an input; functions are handed it");
          },
          "An error: functions are handed them.")
      .def("__len__", [](const ShapeInput& self) { return elements_of(self).size(); })
      .def(
          "__getitem__",
          [](const ShapeInput& self, nb::handle index) {
            return nb::steal(PyObject_GetItem(nb::cast(elements_of(self)).ptr(), index.ptr()));
          },
          nb::sig("def __getitem__(self, index: int, /) -> ShapeExpr"))
      .def(
          "__iter__", [](const ShapeInput& self) { return nb::iter(nb::cast(elements_of(self))); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[ShapeExpr]"))
      .def(
          "expr",
          [](const ShapeInput& self) {
            require(ndim(self) == 0, "expr() is the value of a scalar, but this shape input has ",
                    self.values.size(), " elements: use n[i]");
            return self.values.at(0);
          },
          "The value of a scalar as an expression.")
      .def(
          "aliased",
          [](const ShapeInput&) {
            fail(
                "aliased(): a shape input is read while shapes are set, so no output can have its "
                "memory; make one with like()");
          },
          "An error: no output can share the memory of a shape input.")
      .def("__repr__", [](const ShapeInput& self) {
        return opwright::str("<ShapeInput ", name(self.dtype), " ", exprs(self.values), ">");
      });
}

}  // namespace

TensorDesc describe_input(DataType dtype, std::span<const Expr> dims, int input) {
  TensorDesc desc;
  desc.dtype = dtype;
  std::vector<ShapeExpr> extents;
  for (const Expr& extent : dims) extents.push_back({extent, false});
  desc.shape_expr = std::make_shared<ShapeExprs>(ShapeExprs{std::move(extents), true});
  desc.input = input;
  desc.read_only = true;
  return desc;
}

TensorDesc describe_port(const PortDesc& port, int input, std::span<const Expr> dims) {
  TensorDesc desc = describe_input(port.type.dtype, dims, input);
  desc.format = port.type.format;
  if (port.type.dtype == DataType::kINT8 && port.scale > 0) desc.scale = port.scale;
  Shape extents = port.opt;
  for (int i = 0; i < extents.rank(); ++i)
    if (port.min[i] != port.max[i]) extents[i] = -1;
  desc.shape =
      std::make_shared<ShapeRange>(ShapeRange{extents, port.min, port.opt, port.max, true});
  return desc;
}

ShapeInput describe_shape_input(TensorDesc desc, std::span<const Expr> values) {
  ShapeInput made{std::move(desc), {}};
  for (const Expr& value : values) made.values.push_back({value, false});
  return made;
}

int aliased_input(const TensorDesc& desc) {
  return desc.aliased.is_valid() ? nb::cast<TensorDesc&>(desc.aliased).input : -1;
}

void bind_tensor_desc(nb::module_& m) {
  bind_shape(m);
  bind_desc(m);
  bind_size_tensor(m);
  bind_shape_input(m);
  m.def(
      "from_shape_expr",
      [](nb::handle shape_expr, DataType dtype) {
        TensorDesc made;
        made.dtype = dtype;
        made.shape_expr = std::make_shared<ShapeExprs>(
            ShapeExprs{to_extents(shape_expr, "from_shape_expr"), false});
        return made;
      },
      nb::arg("shape_expr"), nb::arg("dtype"),
      nb::sig(opwright::str("def from_shape_expr(shape_expr: collections.abc.Iterable[", kExtent,
                            "], dtype: opwright._core.DataType) -> TensorDesc")
                  .c_str()),
      "A descriptor of an output with these extents, ints and expressions, and this type.");
}

}  // namespace opwright::python
