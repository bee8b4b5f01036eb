// ShapeExpr, SymInt32 and their kin, lists of them, KernelLaunchParams.

#include "symbolic.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// The expression behind a value that has one.
std::optional<Expr> find_expr(nb::handle value) {
  if (nb::isinstance<ShapeExpr>(value)) return nb::cast<ShapeExpr&>(value).expr;
  if (nb::isinstance<SymIntExpr>(value)) return nb::cast<SymIntExpr&>(value).value.value;
  if (PyFloat_Check(value.ptr()) || !PyIndex_Check(value.ptr())) return std::nullopt;
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return Expr(nb::cast<int64_t>(index));
}

int64_t constant_value(const Expr& expr) {
  require(expr.is_constant(), "the expression ", expr.str(),
          " is not constant: its value is known at run time only");
  return expr.constant();
}

bool truth(const Expr& expr) {
  require(expr.is_constant(), "the truth of ", expr.str(),
          " is not known yet, because it depends on shapes that are known at run time only; use "
          "max, min or cdiv, or give the network constant shapes");
  return expr.constant() != 0;
}

Expr less(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kLess, a, b); }
Expr equal(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); }
Expr negate(const Expr& a) { return Expr(1) - a; }

/// Binds Python's arithmetic on a class. `get` reads an object's expression, and `make` makes an
/// object of one.
template <class T, class Class, class Get, class Make>
void bind_arithmetic(Class& c, const char* class_name, Get get, Make make) {
  using Function = Expr (*)(const Expr&, const Expr&);
  auto binary = [&](const char* name, Function f) {
    const std::string signature =
        str("def ", name, "(self, other: ", kExtent, ", /) -> ", class_name);
    c.def(
        name,
        [get, make, f](const T& self, nb::handle other) -> nb::object {
          const std::optional<Expr> b = find_expr(other);
          if (!b) return nb::borrow(Py_NotImplemented);
          return make(self, f(get(self), *b));
        },
        nb::sig(signature.c_str()), nb::is_operator());
  };
  binary("__add__", [](const Expr& a, const Expr& b) { return a + b; });
  binary("__radd__", [](const Expr& a, const Expr& b) { return b + a; });
  binary("__sub__", [](const Expr& a, const Expr& b) { return a - b; });
  binary("__rsub__", [](const Expr& a, const Expr& b) { return b - a; });
  binary("__mul__", [](const Expr& a, const Expr& b) { return a * b; });
  binary("__rmul__", [](const Expr& a, const Expr& b) { return b * a; });
  binary("__floordiv__", [](const Expr& a, const Expr& b) { return floor_div(a, b); });
  binary("__rfloordiv__", [](const Expr& a, const Expr& b) { return floor_div(b, a); });
  binary("__eq__", equal);
  binary("__ne__", [](const Expr& a, const Expr& b) { return negate(equal(a, b)); });
  binary("__lt__", less);
  binary("__gt__", [](const Expr& a, const Expr& b) { return less(b, a); });
  binary("__le__", [](const Expr& a, const Expr& b) { return negate(less(b, a)); });
  binary("__ge__", [](const Expr& a, const Expr& b) { return negate(less(a, b)); });
  c.def("__hash__", [get](const T& self) { return get(self).hash(); })
      .def("__bool__", [get](const T& self) { return truth(get(self)); })
      .def("__int__", [get](const T& self) { return constant_value(get(self)); })
      .def_prop_ro(
          "is_constant", [get](const T& self) { return get(self).is_constant(); },
          "Whether the value is known now, because it depends on no dynamic extent.")
      .def(
          "constant_value", [get](const T& self) { return constant_value(get(self)); },
          "The value, for one that is constant.\n\n:raises Error: if it is not constant.")
      .def("__repr__", [get](const T& self) { return get(self).str(); });
}

template <ArgumentType kType>
void bind_sym_int(nb::module_& m, const char* name, const char* doc) {
  using T = SymInt<kType>;
  nb::class_<T, SymIntExpr>(m, name, doc)
      .def(
          "__init__",
          [name](T* self, nb::handle value) {
            new (self) T;
            self->value = {kType, to_expr(value, name), 0};
          },
          nb::arg("value") = 0,
          nb::sig(str("def __init__(self, value: ", kExtent, " = 0) -> None").c_str()));
}

template <ArgumentType kType>
void bind_sym_float(nb::module_& m, const char* name, const char* doc) {
  using T = SymFloat<kType>;
  nb::class_<T, SymExpr>(m, name, doc)
      .def(
          "__init__",
          [name](T* self, nb::handle value) {
            KernelArgument argument{kType, 0, 0};
            if (nb::isinstance<ShapeExpr>(value) || nb::isinstance<SymIntExpr>(value)) {
              argument.value = to_expr(value, name);
            } else {
              argument.constant = PyFloat_AsDouble(value.ptr());
              if (PyErr_Occurred() != nullptr) throw nb::python_error();
            }
            new (self) T;
            self->value = std::move(argument);
          },
          nb::arg("value") = 0,
          nb::sig(str("def __init__(self, value: float | ", kExtent, " = 0) -> None").c_str()))
      .def("__repr__", [](const T& self) {
        const KernelArgument& argument = self.value;
        return argument.value == Expr(0) ? str(argument.constant) : argument.value.str();
      });
}

void bind_sym_pointer(nb::module_& m) {
  nb::class_<SymPointer, SymExpr>(
      m, "SymPointer",
      "The address of an INT64 that holds an extent: for an extent that a size tensor tells, which "
      "a device may know before the host does.")
      .def(
          "__init__",
          [](SymPointer* self, nb::handle value) {
            KernelArgument argument{ArgumentType::kPOINTER, to_expr(value, "SymPointer"), 0};
            new (self) SymPointer;
            self->value = std::move(argument);
          },
          nb::arg("value"),
          nb::sig(str("def __init__(self, value: ", kExtent, ") -> None").c_str()))
      .def("__repr__", [](const SymPointer& self) { return "&" + self.value.value.str(); });
}

template <class T, class Base>
T with(const Base& value) {
  T made;
  made.value = value;
  return made;
}

nb::object to_python(const KernelArgument& argument) {
  switch (argument.type) {
    case ArgumentType::kINT8:
      return nb::cast(with<SymInt<ArgumentType::kINT8>>(argument));
    case ArgumentType::kINT16:
      return nb::cast(with<SymInt<ArgumentType::kINT16>>(argument));
    case ArgumentType::kINT32:
      return nb::cast(with<SymInt<ArgumentType::kINT32>>(argument));
    case ArgumentType::kINT64:
      return nb::cast(with<SymInt<ArgumentType::kINT64>>(argument));
    case ArgumentType::kFLOAT32:
      return nb::cast(with<SymFloat<ArgumentType::kFLOAT32>>(argument));
    case ArgumentType::kFLOAT64:
      return nb::cast(with<SymFloat<ArgumentType::kFLOAT64>>(argument));
    case ArgumentType::kPOINTER:
      return nb::cast(with<SymPointer>(argument));
  }
  return nb::none();
}

/// A kernel argument: a symbol unchanged, a plain int or extent as a 32-bit integer.
KernelArgument to_argument(nb::handle value) {
  if (nb::isinstance<SymExpr>(value)) return nb::cast<SymExpr&>(value).value;
  const std::optional<Expr> expr = find_expr(value);
  require(expr.has_value(), "an extra argument of a kernel must be a SymInt32, another symbol, a ",
          "ShapeExpr or an int; a ", class_name(value), " came");
  return {ArgumentType::kINT32, *expr, 0};
}

/// Binds the lists of a launch's arguments.
void bind_argument_lists(nb::module_& m) {
  auto check_set = [](const std::optional<KernelArgument>& argument, size_t index) {
    require(argument.has_value(), "entry ", index, " of the extra arguments was never set");
    return to_python(*argument);
  };
  nb::class_<SymExprs>(
      m, "SymExprs",
      "The extra arguments of a compiled kernel, in the order of its parameters: iterate, index, "
      "assign, len. An int or a ShapeExpr stands for a SymInt32.")
      .def(
          "__init__",
          [](SymExprs* self, size_t length) {
            new (self) SymExprs;
            self->arguments.resize(length);
          },
          nb::arg("length"), "`length` arguments, each of which must be set before use.")
      .def("__len__", [](const SymExprs& self) { return self.arguments.size(); })
      .def(
          "__getitem__",
          [check_set](const SymExprs& self, nb::ssize_t i) {
            const size_t index = index_in(i, self.arguments.size());
            return check_set(self.arguments[index], index);
          },
          nb::sig("def __getitem__(self, index: int, /) -> SymExpr"))
      .def(
          "__setitem__",
          [](SymExprs& self, nb::ssize_t index, nb::handle value) {
            self.arguments[index_in(index, self.arguments.size())] = to_argument(value);
          },
          nb::sig("def __setitem__(self, index: int, value: int | ShapeExpr | SymExpr, /) -> None"))
      .def(
          "__iter__",
          [check_set](const SymExprs& self) {
            nb::list all;
            for (size_t i = 0; i < self.arguments.size(); ++i)
              all.append(check_set(self.arguments[i], i));
            return nb::iter(all);
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[SymExpr]"))
      .def_static(
          "from_tuple",
          [](nb::iterable values) {
            SymIntExprs made;
            for (nb::handle value : values) made.arguments.emplace_back(to_argument(value));
            return made;
          },
          nb::arg("sym_exprs"),
          nb::sig(
              "def from_tuple(sym_exprs: collections.abc.Iterable[int | ShapeExpr | SymExpr]) -> "
              "SymIntExprs"),
          "From symbols, ints and ShapeExpr.");
  nb::class_<SymIntExprs, SymExprs>(m, "SymIntExprs",
                                    "SymExprs that are made with a length and filled by index, or "
                                    "by from_tuple.")
      .def(
          "__init__",
          [](SymIntExprs* self, size_t length) {
            new (self) SymIntExprs;
            self->arguments.resize(length);
          },
          nb::arg("length"), "`length` arguments, each of which must be set before use.");
}

void bind_lists(nb::module_& m) {
  nb::class_<ShapeExprs>(
      m, "ShapeExprs",
      "The extents of a tensor as expressions: iterate, index, assign, len. Assigned are ints and "
      "expressions. The extents of a descriptor that a function is handed are read-only.")
      .def(
          "__init__",
          [](ShapeExprs* self, size_t length) {
            require(length <= Dims::MAX_DIMS, "a tensor has at most ", Dims::MAX_DIMS,
                    " axes; ShapeExprs(", length, ") was asked for");
            new (self) ShapeExprs{std::vector<ShapeExpr>(length), false};
          },
          nb::arg("length"), "`length` extents of 0, at most 8.")
      .def_static(
          "from_tuple",
          [](nb::handle extents) {
            return std::make_shared<ShapeExprs>(
                ShapeExprs{to_extents(extents, "ShapeExprs.from_tuple"), false});
          },
          nb::arg("shape_exprs"),
          nb::sig(str("def from_tuple(shape_exprs: collections.abc.Iterable[", kExtent,
                      "]) -> ShapeExprs")
                      .c_str()),
          "From ints and expressions, at most 8.")
      .def("__len__", [](const ShapeExprs& self) { return self.extents.size(); })
      .def("__getitem__",
           [](const ShapeExprs& self, nb::ssize_t index) {
             return self.extents[index_in(index, self.extents.size())];
           })
      .def(
          "__getitem__",
          [](const ShapeExprs& self, nb::slice slice) {
            nb::list all;
            for (const ShapeExpr& extent : self.extents) all.append(extent);
            return nb::steal(PyObject_GetItem(all.ptr(), slice.ptr()));
          },
          nb::sig("def __getitem__(self, index: slice, /) -> list[ShapeExpr]"))
      .def(
          "__setitem__",
          [](ShapeExprs& self, nb::ssize_t index, nb::handle value) {
            require(!self.read_only,
                    "this is the shape of a descriptor that was handed to the function, which is "
                    "read-only; change the shape of a copy: out = inp.like()");
            self.extents[index_in(index, self.extents.size())] =
                to_shape_expr(value, "an extent of a shape");
          },
          nb::sig(
              str("def __setitem__(self, index: int, value: ", kExtent, ", /) -> None").c_str()))
      .def(
          "__iter__",
          [](const ShapeExprs& self) {
            nb::list all;
            for (const ShapeExpr& extent : self.extents) all.append(extent);
            return nb::iter(all);
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[ShapeExpr]"))
      .def(
          "numel",
          [](const ShapeExprs& self) { return ShapeExpr{opwright::numel(exprs(self.extents))}; },
          "The number of elements: the product of the extents.")
      .def("__repr__",
           [](const ShapeExprs& self) { return opwright::str(exprs(self.extents), {}); });

  bind_argument_lists(m);
}

void bind_launch_params(nb::module_& m) {
  auto c = nb::class_<LaunchParams>(
      m, "KernelLaunchParams",
      "How a compiled kernel is launched: blocks of the grid, threads of a block, bytes of shared "
      "memory; ints, or expressions that are evaluated when shapes change. On the CPU a cell of "
      "the "
      "grid is a task, and block and shared memory do not count.");
  c.def(
      "__init__",
      [](LaunchParams* self, nb::handle gx, nb::handle gy, nb::handle gz, nb::handle bx,
         nb::handle by, nb::handle bz, nb::handle shared) {
        new (self)
            LaunchParams{{to_expr(gx, "grid_x"), to_expr(gy, "grid_y"), to_expr(gz, "grid_z")},
                         {to_expr(bx, "block_x"), to_expr(by, "block_y"), to_expr(bz, "block_z")},
                         to_expr(shared, "shared_mem")};
      },
      nb::arg("grid_x") = 1, nb::arg("grid_y") = 1, nb::arg("grid_z") = 1, nb::arg("block_x") = 1,
      nb::arg("block_y") = 1, nb::arg("block_z") = 1, nb::arg("shared_mem") = 0,
      nb::sig(str("def __init__(self, grid_x: ", kExtent, " = 1, grid_y: ", kExtent,
                  " = 1, grid_z: ", kExtent, " = 1, block_x: ", kExtent, " = 1, block_y: ", kExtent,
                  " = 1, block_z: ", kExtent, " = 1, shared_mem: ", kExtent, " = 0) -> None")
                  .c_str()));
  auto property = [&c](const char* name, auto get, const char* doc) {
    const std::string setter = str("def ", name, "(self, value: ", kExtent, ", /) -> None");
    c.def_prop_rw(
        name,
        [get](const LaunchParams& self) { return ShapeExpr{get(const_cast<LaunchParams&>(self))}; },
        [get, name](LaunchParams& self, nb::handle value) { get(self) = to_expr(value, name); },
        nb::for_setter(nb::sig(setter.c_str())), doc);
  };
  const char* grid = "Blocks of the grid along this axis; on the CPU, tasks.";
  property(
      "grid_x", [](LaunchParams& p) -> Expr& { return p.grid[0]; }, grid);
  property(
      "grid_y", [](LaunchParams& p) -> Expr& { return p.grid[1]; }, grid);
  property(
      "grid_z", [](LaunchParams& p) -> Expr& { return p.grid[2]; }, grid);
  const char* block = "Threads of a block along this axis, on a GPU.";
  property(
      "block_x", [](LaunchParams& p) -> Expr& { return p.block[0]; }, block);
  property(
      "block_y", [](LaunchParams& p) -> Expr& { return p.block[1]; }, block);
  property(
      "block_z", [](LaunchParams& p) -> Expr& { return p.block[2]; }, block);
  property(
      "shared_mem", [](LaunchParams& p) -> Expr& { return p.shared_memory; },
      "Bytes of shared memory of a block, on a GPU.");
}

/// Binds cdiv, max or min. Two symbols of one kind give that kind; other operands give a ShapeExpr.
template <class F>
void bind_function(nb::module_& m, const char* name, F f, const char* doc) {
  const std::string signature =
      str("def ", name, "(first: ", kExtent, ", second: ", kExtent, ") -> ShapeExpr | SymIntExpr");
  m.def(
      name,
      [name, f](nb::handle a, nb::handle b) -> nb::object {
        const Expr result = f(to_expr(a, name), to_expr(b, name));
        const nb::handle symbol = nb::isinstance<SymIntExpr>(a) ? a : b;
        if (!nb::isinstance<SymIntExpr>(symbol)) return nb::cast(ShapeExpr{result});
        return to_python({nb::cast<SymIntExpr&>(symbol).value.type, result, 0});
      },
      nb::arg("first"), nb::arg("second"), nb::sig(signature.c_str()), doc);
}

// In the order of ExprOp.
constexpr std::array<std::string_view, 13> kOpNames = {
    "constant", "symbol", "sum",       "product",  "max",    "min",      "sub",
    "equal",    "less",   "floor_div", "ceil_div", "select", "broadcast"};

/// The operation's name and its operands: a number, an open extent's number, or expressions.
nb::tuple expression_parts(nb::handle value) {
  const Expr expr = to_expr(value, "expression_parts");
  nb::list parts;
  parts.append(kOpNames.at(static_cast<size_t>(expr.op())));
  if (expr.is_constant()) parts.append(expr.constant());
  if (expr.op() == ExprOp::kSymbol) parts.append(expr.symbol_id() - kFirstOpenExtent);
  for (int i = 0; i < expr.arity(); ++i) parts.append(ShapeExpr{expr.operand(i)});
  return nb::tuple(parts);
}

/// The inverse of expression_parts, of all but constants and symbols.
ShapeExpr make_expression(std::string_view name, const std::vector<nb::object>& operands) {
  const auto found = std::ranges::find(kOpNames, name);
  const auto op = static_cast<ExprOp>(found - kOpNames.begin());
  require(found != kOpNames.end() && op != ExprOp::kConstant && op != ExprOp::kSymbol, "'", name,
          "' is no operation of expressions");
  std::vector<Expr> given;
  for (const nb::object& operand : operands) given.push_back(to_expr(operand, "an operand"));
  if (op == ExprOp::kSelect) {
    require(given.size() == 3, "'", name, "' has 3 operands; ", given.size(), " came");
    return {Expr::select(given[0], given[1], given[2])};
  }
  const bool takes_more = op == ExprOp::kSum || op == ExprOp::kProd || op == ExprOp::kMax ||
                          op == ExprOp::kMin || op == ExprOp::kBroadcast;
  require(given.size() == 2 || (takes_more && given.size() > 2), "'", name, "' of ", given.size(),
          " operands");
  Expr result = given[0];
  for (size_t i = 1; i < given.size(); ++i) result = Expr::make(op, result, given[i]);
  return {result};
}

void bind_expressions(nb::module_& m) {
  m.def(
      "open_extent",
      [](int number) {
        require(number >= 0 && number < kNumOpenExtents, "there is no open extent ", number);
        return ShapeExpr{Expr::symbol(kFirstOpenExtent + number)};
      },
      nb::arg("number"), "An extent that belongs to no network: the same for the same number.");
  m.def("expression_parts", &expression_parts, nb::arg("value"),
        nb::sig("def expression_parts(value: int | ShapeExpr | SymIntExpr) -> tuple"),
        "The name of an expression's operation, then its operands. Those of \"constant\" and "
        "\"symbol\" are an int: the value, and the number of an open extent, which is out of its "
        "range for the symbol of a network.");
  m.def("make_expression", &make_expression, nb::arg("operation"), nb::arg("operands"),
        nb::sig("def make_expression(operation: str, operands: "
                "collections.abc.Sequence[int | ShapeExpr | SymIntExpr]) -> ShapeExpr"),
        "The expression that `expression_parts` has taken apart; not for constants and symbols.");
}

}  // namespace

Expr to_expr(nb::handle value, std::string_view what) { return to_shape_expr(value, what).expr; }

ShapeExpr to_shape_expr(nb::handle value, std::string_view what) {
  if (nb::isinstance<ShapeExpr>(value)) return nb::cast<ShapeExpr&>(value);
  std::optional<Expr> expr = find_expr(value);
  require(expr.has_value(), what, " must be an int or a symbolic expression; a ", class_name(value),
          " came");
  return {std::move(*expr), false};
}

std::vector<ShapeExpr> to_extents(nb::handle sequence, std::string_view what) {
  if (nb::isinstance<ShapeExprs>(sequence)) return nb::cast<ShapeExprs&>(sequence).extents;
  require(nb::hasattr(sequence, "__iter__"), what,
          " must be a tuple of ints and shape expressions; a ", class_name(sequence), " came");
  std::vector<ShapeExpr> extents;
  for (nb::handle extent : nb::iter(sequence)) extents.push_back(to_shape_expr(extent, what));
  require(extents.size() <= Dims::MAX_DIMS, what, ": a tensor has at most ", Dims::MAX_DIMS,
          " axes, not ", extents.size());
  return extents;
}

SymShape exprs(const std::vector<ShapeExpr>& extents) {
  SymShape shape;
  shape.reserve(extents.size());
  for (const ShapeExpr& extent : extents) shape.push_back(extent.expr);
  return shape;
}

bool has_open_extent(const Expr& expr) {
  if (expr.op() == ExprOp::kSymbol)
    return expr.symbol_id() >= kFirstOpenExtent &&
           expr.symbol_id() < kFirstOpenExtent + kNumOpenExtents;
  for (int i = 0; i < expr.arity(); ++i)
    if (has_open_extent(expr.operand(i))) return true;
  return false;
}

Expr replace_symbols(const Expr& expr, const std::map<int, Expr>& replacements) {
  if (replacements.empty()) return expr;
  switch (expr.op()) {
    case ExprOp::kConstant:
      return expr;
    case ExprOp::kSymbol: {
      const auto found = replacements.find(expr.symbol_id());
      return found != replacements.end() ? found->second : expr;
    }
    case ExprOp::kSelect:
      return Expr::select(replace_symbols(expr.operand(0), replacements),
                          replace_symbols(expr.operand(1), replacements),
                          replace_symbols(expr.operand(2), replacements));
    default: {
      Expr result = replace_symbols(expr.operand(0), replacements);
      for (int i = 1; i < expr.arity(); ++i)
        result = Expr::make(expr.op(), result, replace_symbols(expr.operand(i), replacements));
      return result;
    }
  }
}

void bind_symbolic(nb::module_& m) {
  auto shape_expr = nb::class_<ShapeExpr>(
      m, "ShapeExpr",
      "An extent: an integer expression over the inputs' extents. It has + - "
      "* // and comparisons, with ints and symbols on both sides; a "
      "comparison is 0 or 1. `bool()` and `int()` of one that is not constant "
      "raise Error.");
  shape_expr.def(
      "__init__",
      [](ShapeExpr* self, nb::handle value) {
        new (self) ShapeExpr(to_shape_expr(value, "ShapeExpr"));
      },
      nb::arg("value"), nb::sig(str("def __init__(self, value: ", kExtent, ") -> None").c_str()));
  bind_arithmetic<ShapeExpr>(
      shape_expr, "ShapeExpr", [](const ShapeExpr& self) -> const Expr& { return self.expr; },
      [](const ShapeExpr&, const Expr& expr) { return nb::cast(ShapeExpr{expr}); });
  shape_expr
      .def_prop_ro(
          "is_fake", [](const ShapeExpr&) { return false; },
          "Whether this is a placeholder: never, as types and shapes are inferred at once.")
      .def_ro("is_size_tensor", &ShapeExpr::is_size_tensor,
              "Whether this is the extent that a size tensor tells, from `SizeTensorDesc.expr()`.");

  // Whether a value is a size tensor follows from its class and its expression.
  nb::class_<SymExpr>(m, "SymExpr", "An argument of a compiled kernel.");
  auto sym_int = nb::class_<SymIntExpr, SymExpr>(
      m, "SymIntExpr",
      "An integer argument: an expression over the inputs' extents, evaluated when shapes change. "
      "It has the arithmetic of ShapeExpr and keeps its own width.");
  bind_arithmetic<SymIntExpr>(
      sym_int, "typing_extensions.Self",
      [](const SymIntExpr& self) -> const Expr& { return self.value.value; },
      [](const SymIntExpr& self, const Expr& expr) {
        return to_python({self.value.type, expr, 0});
      });
  bind_sym_int<ArgumentType::kINT8>(m, "SymInt8", "An 8-bit integer argument, int8_t in C++.");
  bind_sym_int<ArgumentType::kINT16>(m, "SymInt16", "A 16-bit integer argument, int16_t in C++.");
  bind_sym_int<ArgumentType::kINT32>(m, "SymInt32", "A 32-bit integer argument, int32_t in C++.");
  bind_sym_int<ArgumentType::kINT64>(m, "SymInt64", "A 64-bit integer argument, int64_t in C++.");
  bind_sym_float<ArgumentType::kFLOAT32>(
      m, "SymFloat32",
      "An argument of single precision, float in C++: a number, or an extent as one.");
  bind_sym_float<ArgumentType::kFLOAT64>(
      m, "SymFloat64",
      "An argument of double precision, double in C++: a number, or an extent as one.");
  bind_sym_pointer(m);
  bind_lists(m);
  bind_launch_params(m);
  bind_function(
      m, "cdiv", [](const Expr& a, const Expr& b) { return ceil_div(a, b); },
      "The quotient of two extents, rounded up. Symbols of one kind give that kind.");
  bind_function(
      m, "max", [](const Expr& a, const Expr& b) { return max(a, b); },
      "The larger of two extents. Symbols of one kind give that kind.");
  bind_function(
      m, "min", [](const Expr& a, const Expr& b) { return min(a, b); },
      "The smaller of two extents. Symbols of one kind give that kind.");
  bind_expressions(m);
}

}  // namespace opwright::python
