// IDimensionExpr, DimsExprs, IExprBuilder: shapes as V3 plugins describe them.

#include "dims_exprs.h"

#include "base/error.h"
#include "plugin/abi/expr_builder.h"
#include "plugin_callbacks.h"

namespace opwright::python {
namespace {

DimensionExpr extent_from(nb::handle value, std::string_view what) {
  require(nb::isinstance<DimensionExpr>(value), what,
          ": an extent must be an IDimensionExpr (make constants with expr_builder.constant(n)); ",
          shown(value), " came");
  return nb::cast<DimensionExpr&>(value);
}

}  // namespace

ExprScope scope_of(IExprBuilder& builder) { return dynamic_cast<ExprBuilder&>(builder).is_alive(); }

const IDimensionExpr& DimensionExpr::get() const {
  require(expr != nullptr, "this extent of a DimsExprs was never set");
  require(*scope, "an IDimensionExpr cannot be used after the call that it was made in");
  return *expr;
}

IExprBuilder& ExprBuilderRef::get() const {
  require(*scope, "an IExprBuilder cannot be used after the call that it was given to");
  return *builder;
}

DimExprs to_dim_exprs(const DimsExprs& dims, const ExprScope& scope) {
  DimExprs made;
  for (int32_t i = 0; i < dims.nbDims; ++i) made.extents.push_back({dims.d[i], scope});
  return made;
}

DimsExprs from_dim_exprs(nb::handle dims, std::string_view what) {
  DimExprs source;
  if (nb::isinstance<DimExprs>(dims)) {
    source = nb::cast<DimExprs&>(dims);
  } else {
    require(nb::isinstance<nb::list>(dims) || nb::isinstance<nb::tuple>(dims), what,
            ": expected DimsExprs; ", shown(dims), " came");
    for (nb::handle extent : nb::iter(dims)) source.extents.push_back(extent_from(extent, what));
  }
  require(source.extents.size() <= Dims::MAX_DIMS, what, " has ", source.extents.size(),
          " extents, more than ", Dims::MAX_DIMS);
  DimsExprs made{};
  made.nbDims = static_cast<int32_t>(source.extents.size());
  for (size_t i = 0; i < source.extents.size(); ++i) made.d[i] = &source.extents[i].get();
  return made;
}

void bind_dims_exprs(nb::module_& m) {
  nb::enum_<DimensionOperation>(m, "DimensionOperation", nb::is_arithmetic(),
                                "How two expressions are combined.")
      .value("SUM", DimensionOperation::kSUM)
      .value("PROD", DimensionOperation::kPROD)
      .value("MAX", DimensionOperation::kMAX)
      .value("MIN", DimensionOperation::kMIN)
      .value("SUB", DimensionOperation::kSUB)
      .value("EQUAL", DimensionOperation::kEQUAL)
      .value("LESS", DimensionOperation::kLESS)
      .value("FLOOR_DIV", DimensionOperation::kFLOOR_DIV)
      .value("CEIL_DIV", DimensionOperation::kCEIL_DIV);
  nb::class_<DimensionExpr>(m, "IDimensionExpr",
                            "An integer expression over the extents of a plugin's inputs.")
      .def("is_constant", [](const DimensionExpr& self) { return self.get().isConstant(); })
      .def("get_constant_value",
           [](const DimensionExpr& self) { return self.get().getConstantValue(); })
      .def("is_size_tensor", [](const DimensionExpr& self) { return self.get().isSizeTensor(); });
  nb::class_<DimExprs>(m, "DimsExprs", "The extents of a tensor as expressions, a sequence.")
      .def(
          "__init__",
          [](DimExprs* self, size_t length) {
            require(length <= Dims::MAX_DIMS, "DimsExprs(", length, "): a tensor has at most ",
                    Dims::MAX_DIMS, " axes");
            new (self) DimExprs{std::vector<DimensionExpr>(length)};
          },
          nb::arg("length") = 0)
      .def("__init__", [](DimExprs* self, const DimExprs& other) { new (self) DimExprs(other); })
      .def("__init__",
           [](DimExprs* self, nb::list extents) {
             DimExprs made;
             for (nb::handle extent : extents)
               made.extents.push_back(extent_from(extent, "DimsExprs"));
             new (self) DimExprs(std::move(made));
           })
      .def("__len__", [](const DimExprs& self) { return self.extents.size(); })
      .def("__getitem__",
           [](const DimExprs& self, nb::ssize_t index) {
             return self.extents[index_in(index, self.extents.size())];
           })
      .def("__setitem__",
           [](DimExprs& self, nb::ssize_t index, nb::handle value) {
             self.extents[index_in(index, self.extents.size())] = extent_from(value, "DimsExprs");
           })
      .def("__iter__", [](const DimExprs& self) {
        nb::list all;
        for (const DimensionExpr& extent : self.extents) all.append(extent);
        return nb::iter(all);
      });
  nb::class_<ExprBuilderRef>(m, "IExprBuilder",
                             "Makes expressions; usable within the call that it is given to only.")
      .def(
          "constant",
          [](const ExprBuilderRef& self, nb::handle value) {
            return DimensionExpr{self.get().constant(integer(value, "a constant")), self.scope};
          },
          nb::arg("value"))
      .def(
          "operation",
          [](const ExprBuilderRef& self, DimensionOperation op, const DimensionExpr& first,
             const DimensionExpr& second) {
            return DimensionExpr{self.get().operation(op, first.get(), second.get()), self.scope};
          },
          nb::arg("op"), nb::arg("first"), nb::arg("second"))
      .def(
          "declare_size_tensor",
          [](const ExprBuilderRef& self, int32_t output, const DimensionExpr& opt,
             const DimensionExpr& upper) {
            return DimensionExpr{self.get().declareSizeTensor(output, opt.get(), upper.get()),
                                 self.scope};
          },
          nb::arg("output_index"), nb::arg("opt"), nb::arg("upper"),
          "The value of output `output_index`, a scalar that the plugin writes, as an expression.");
}

}  // namespace opwright::python
