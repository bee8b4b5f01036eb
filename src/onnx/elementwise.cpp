// Arithmetic, comparison, logic, casts.

#include "operators/elementwise.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "base/types.h"
#include "onnx/importer.h"
#include "operators/bit_cast.h"

namespace opwright::onnx {
namespace {

/// An operator that is exactly one element-wise operation.
template <auto op>
void operation(NodeImporter& node) {
  using E = decltype(op);
  if constexpr (std::is_same_v<E, ElementWiseOperation>)
    node.set_output(0, node.elementwise(op, node.input(0), node.input(1)));
  else if constexpr (std::is_same_v<E, UnaryOperation>)
    node.set_output(0, node.unary(op, node.input(0)));
  else
    node.set_output(0, node.activation(op, node.input(0)));
}

template <auto op>
void add_operation(NodeTable& table) {
  constexpr std::string_view kName = facts_of(op)->onnx;
  if constexpr (!kName.empty()) table[kName] = operation<op>;
}
template <class E, size_t... i>
void add_operations(NodeTable& table, std::index_sequence<i...>) {
  (add_operation<static_cast<E>(i)>(table), ...);
}
template <class E>
void add_operations(NodeTable& table) {
  add_operations<E>(table, std::make_index_sequence<kEnumeration<E>.values.size()>());
}

/// Sum, Max, Min, Mean of any number of inputs.
template <ElementWiseOperation op>
Tensor* accumulate(NodeImporter& node) {
  Tensor* result = node.input(0);
  for (int i = 1; i < node.num_inputs(); ++i) result = node.elementwise(op, result, node.input(i));
  return result;
}

template <ElementWiseOperation op>
void variadic(NodeImporter& node) {
  node.set_output(0, accumulate<op>(node));
}

void mean(NodeImporter& node) {
  node.set_output(
      0, node.elementwise(ElementWiseOperation::kDIV, accumulate<ElementWiseOperation::kSUM>(node),
                          node.num_inputs()));
}

void pow(NodeImporter& node) {
  Tensor* base = node.input(0);
  node.set_output(0, node.elementwise(ElementWiseOperation::kPOW, base,
                                      node.cast(node.input(1), base->dtype())));
}

/// The remainder with the sign of a.
Tensor* remainder(NodeImporter& node, Tensor* a, Tensor* b) {
  if (is_floating(a->dtype())) return node.add<Remainder>({}, {a, b});
  Tensor* quotient = node.elementwise(ElementWiseOperation::kDIV, a, b);
  return node.elementwise(ElementWiseOperation::kSUB, a,
                          node.elementwise(ElementWiseOperation::kPROD, quotient, b));
}

/// The remainder with the sign of the divisor, as NumPy's, or, with fmod, of the dividend.
void mod(NodeImporter& node) {
  using Op = ElementWiseOperation;
  Tensor *a = node.input(0), *b = node.input(1);
  const bool fmod = node.get_int("fmod", 0) != 0;
  if (fmod) return node.set_output(0, remainder(node, a, b));
  if (!is_floating(a->dtype())) {
    Tensor* quotient = node.elementwise(Op::kFLOOR_DIV, a, b);
    return node.set_output(0,
                           node.elementwise(Op::kSUB, a, node.elementwise(Op::kPROD, quotient, b)));
  }
  Tensor* rest = remainder(node, a, b);
  const auto is_negative = [&](Tensor* x) { return node.elementwise(Op::kLESS, x, 0.0); };
  Tensor* has_other_sign = node.elementwise(Op::kXOR, is_negative(rest), is_negative(b));
  Tensor* moved = node.select(has_other_sign, node.elementwise(Op::kSUM, rest, b), rest);
  // A remainder of 0 also has the divisor's sign. An infinite divisor loses it.
  Tensor* zero =
      node.select(is_negative(b), node.scalar(-0.0, a->dtype()), node.scalar(0.0, a->dtype()));
  node.set_output(0, node.select(node.elementwise(Op::kEQUAL, rest, 0.0), zero, moved));
}

void where(NodeImporter& node) {
  node.set_output(0, node.select(node.input(0), node.input(1), node.input(2)));
}

/// With saturate=0, numbers that are too large for FP8 become NaN.
Tensor* converted(NodeImporter& node, Tensor* x, DataType to) {
  if (node.get_int("saturate", 1) == 0 && to == DataType::kFP8 && is_floating(x->dtype())) {
    constexpr double kMost = 464;  // half way between the largest number and the next one that FP8
                                   // would have
    Tensor* is_too_large = node.elementwise(ElementWiseOperation::kGREATER,
                                            node.unary(UnaryOperation::kABS, x), kMost);
    x = node.select(is_too_large, node.scalar(std::numeric_limits<double>::quiet_NaN(), x->dtype()),
                    x);
  }
  return node.cast(x, to);
}

void cast(NodeImporter& node) {
  const AttributeProto* to = node.attribute("to", AttributeProto::Type::kInt);
  if (to == nullptr) node.error("attribute 'to' is missing");
  const DataType type = node.element_type("to", to->i);
  node.set_output(0, converted(node, node.input(0), type));
}

void cast_like(NodeImporter& node) {
  node.set_output(0, converted(node, node.input(0), node.input(1)->dtype()));
}

void bit_cast(NodeImporter& node) {
  const AttributeProto* to = node.attribute("to", AttributeProto::Type::kInt);
  if (to == nullptr) node.error("attribute 'to' is missing");
  node.set_output(0, node.add<BitCast>({node.element_type("to", to->i)}, {node.input(0)}));
}

void is_inf(NodeImporter& node) {
  Tensor* x = node.input(0);
  const bool negative = node.get_int("detect_negative", 1) != 0;
  const bool positive = node.get_int("detect_positive", 1) != 0;
  Tensor* result = node.unary(UnaryOperation::kISINF, x);
  if (!negative)
    result = node.elementwise(ElementWiseOperation::kAND, result,
                              node.elementwise(ElementWiseOperation::kGREATER, x, 0.0));
  if (!positive)
    result = node.elementwise(ElementWiseOperation::kAND, result,
                              node.elementwise(ElementWiseOperation::kLESS, x, 0.0));
  node.set_output(0, result);
}

/// XOR with all bits set for integers, NOT for BOOL.
void bitwise_not(NodeImporter& node) {
  Tensor* x = node.input(0);
  if (x->dtype() == DataType::kBOOL) return operation<UnaryOperation::kNOT>(node);
  const double ones = x->dtype() == DataType::kUINT8 ? 255 : -1;
  node.set_output(0, node.elementwise(ElementWiseOperation::kXOR, x, ones));
}

/// Products and quotients by powers of 2. They become 0 beyond the type's bits; a quotient by 0 is
/// 0.
void bit_shift(NodeImporter& node) {
  Tensor *x = node.input(0), *y = node.input(1);
  const DataType type = x->dtype();
  const std::string direction = node.get_text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    node.error("direction is '", direction, "'; expected LEFT or RIGHT");
  if (!is_integer(type))
    node.error("input '", x->name(), "' is ", opwright::name(type), "; expected an integer");
  Tensor* factor = node.elementwise(ElementWiseOperation::kPOW, node.scalar(2, type), y);
  if (direction == "LEFT")
    return node.set_output(0, node.elementwise(ElementWiseOperation::kPROD, x, factor));
  if (type == DataType::kUINT8)
    return node.set_output(0, node.elementwise(ElementWiseOperation::kDIV, x, factor));
  // Only the sign remains when all other bits are gone.
  Tensor* is_gone = node.elementwise(
      ElementWiseOperation::kOR, node.elementwise(ElementWiseOperation::kLESS, y, 0.0),
      node.elementwise(ElementWiseOperation::kGREATER, y, static_cast<double>(bits(type) - 2)));
  Tensor* sign =
      node.elementwise(ElementWiseOperation::kMIN, node.unary(UnaryOperation::kSIGN, x), 0.0);
  Tensor* quotient = node.elementwise(ElementWiseOperation::kFLOOR_DIV, x, factor);
  node.set_output(0, node.add<Select>({}, {is_gone, sign, quotient}));
}

}  // namespace

void add_elementwise(NodeTable& table) {
  add_operations<ElementWiseOperation>(table);
  add_operations<UnaryOperation>(table);
  add_operations<ActivationType>(table);
  table["BitwiseAnd"] = operation<ElementWiseOperation::kAND>;
  table["BitwiseOr"] = operation<ElementWiseOperation::kOR>;
  table["BitwiseXor"] = operation<ElementWiseOperation::kXOR>;
  table["BitwiseNot"] = bitwise_not;
  table["BitShift"] = bit_shift;
  // These are no negations of Less and Greater, because a comparison with NaN is false.
  table["GreaterOrEqual"] = [](NodeImporter& node) {
    Tensor *a = node.input(0), *b = node.input(1);
    node.set_output(0, node.elementwise(ElementWiseOperation::kOR,
                                        node.elementwise(ElementWiseOperation::kGREATER, a, b),
                                        node.elementwise(ElementWiseOperation::kEQUAL, a, b)));
  };
  table["LessOrEqual"] = [](NodeImporter& node) {
    Tensor *a = node.input(0), *b = node.input(1);
    node.set_output(0, node.elementwise(ElementWiseOperation::kOR,
                                        node.elementwise(ElementWiseOperation::kLESS, a, b),
                                        node.elementwise(ElementWiseOperation::kEQUAL, a, b)));
  };
  table["Sum"] = variadic<ElementWiseOperation::kSUM>;
  table["Max"] = variadic<ElementWiseOperation::kMAX>;
  table["Min"] = variadic<ElementWiseOperation::kMIN>;
  table["Mean"] = mean;
  table["Pow"] = pow;
  table["Mod"] = mod;
  table["Where"] = where;
  table["Cast"] = cast;
  table["CastLike"] = cast_like;
  table["BitCast"] = bit_cast;
  table["IsInf"] = is_inf;
}

}  // namespace opwright::onnx
