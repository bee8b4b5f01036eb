// Constants, fills, ranges, and nodes that do nothing in inference.

#include "operators/source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/half.h"
#include "onnx/importer.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/rationals.h"

namespace opwright::onnx {
namespace {

template <class T>
Tensor* constant_of(NodeImporter& node, DataType dtype, const Shape& shape,
                    const std::vector<T>& values) {
  return node.network().add_constant(
      dtype, shape, Blob::copy(values.data(), values.size() * sizeof(T)), node.next_name());
}

void constant(NodeImporter& node) {
  for (const AttributeProto& a : node.node().attributes) {
    const int64_t ints = static_cast<int64_t>(a.ints.size()),
                  floats = static_cast<int64_t>(a.floats.size());
    Tensor* made = nullptr;
    if (a.name == "value")
      made = node.network().add_constant(a.t.dtype, a.t.shape, a.t.data, node.next_name());
    else if (a.name == "value_int")
      made = constant_of<int64_t>(node, DataType::kINT64, Shape(), {a.i});
    else if (a.name == "value_float")
      made = constant_of<float>(node, DataType::kFLOAT, Shape(), {a.f});
    else if (a.name == "value_ints")
      made = constant_of(node, DataType::kINT64, Shape{ints}, a.ints);
    else if (a.name == "value_floats")
      made = constant_of(node, DataType::kFLOAT, Shape{floats}, a.floats);
    if (made == nullptr) continue;
    return node.set_output(0, made);
  }
  node.error("has none of the attributes value, value_int, value_ints, value_float, value_floats");
}

void constant_of_shape(NodeImporter& node) {
  FillParams params;
  if (const AttributeProto* value = node.attribute("value", AttributeProto::Type::kTensor)) {
    if (value->t.shape.numel() != 1)
      node.error("attribute 'value' has ", value->t.shape.numel(), " elements; expected 1");
    params.to_type = value->t.dtype;
    if (is_floating(params.to_type)) {
      float single = 0;
      convert(value->t.data.data(), params.to_type, &single, DataType::kFLOAT, 1);
      params.alpha = single;
    } else {
      int64_t integer = 0;
      convert(value->t.data.data(), params.to_type, &integer, DataType::kINT64, 1);
      params.alpha = static_cast<double>(integer);
    }
  }
  const std::vector<Expr> dims = node.extents(node.input(0), "the shape");
  node.set_output(0, node.fill(params, dims));
}

/// The number of elements of a Range of floating type.
Expr range_length(NodeImporter& node, Tensor* start, Tensor* limit, Tensor* delta) {
  const bool is_constant = [&] {
    const RationalsPtr last = rationals_of(limit->info());
    return !node.known_elements(limit).empty() || (last != nullptr && last->front().is_constant());
  }();
  if (is_constant) {
    const double first = node.constant_float(start, "start");
    const double count = std::ceil((node.constant_float(limit, "limit") - first) /
                                   node.constant_float(delta, "delta"));
    if (!(count < 0x1p62)) node.error("makes ", count, " elements");
    return static_cast<int64_t>(std::max(count, 0.0));
  }
  const Rational distance =
      node.single_rational(limit, "limit") - node.single_rational(start, "start");
  return max(ceil(*divide(distance, node.single_rational(delta, "delta"), false)), 0);
}

/// start + i * delta, with a number of elements that data decides.
Tensor* computed_range(NodeImporter& node, Tensor* start, Tensor* limit, Tensor* delta) {
  const DataType type = start->dtype();
  const std::pair<Tensor*, const char*> given[] = {
      {limit, "limit"}, {start, "start"}, {delta, "delta"}};
  // If all operands are known, the step depends on shapes.
  const auto* const found = std::ranges::find_if_not(
      given, [&](const auto& operand) { return node.is_known(operand.first); });
  const auto [by_data, what] = found != std::end(given) ? *found : given[2];
  for (Tensor** each : {&start, &limit, &delta})
    if ((*each)->rank() > 0) *each = node.reshape(*each, {});
  Tensor* count = nullptr;
  if (is_floating(type)) {
    Tensor* distance = node.elementwise(ElementWiseOperation::kSUB, limit, start);
    distance = node.elementwise(ElementWiseOperation::kDIV, distance, delta);
    count = node.cast(node.unary(UnaryOperation::kCEIL, distance), DataType::kINT64);
  } else {
    // The ceiling of a quotient is the negated floor of the negated quotient.
    const auto wide = [&](Tensor* tensor) { return node.cast(tensor, DataType::kINT64); };
    Tensor* distance = node.elementwise(ElementWiseOperation::kSUB, wide(start), wide(limit));
    distance = node.elementwise(ElementWiseOperation::kFLOOR_DIV, distance, wide(delta));
    count = node.unary(UnaryOperation::kNEG, distance);
  }
  count = node.elementwise(ElementWiseOperation::kMAX, count, 0.0);
  Tensor* ramp = node.count_up(node.extent(count, what, {}, by_data), type);
  ramp = node.elementwise(ElementWiseOperation::kPROD, ramp, delta);
  return node.elementwise(ElementWiseOperation::kSUM, ramp, start);
}

void range(NodeImporter& node) {
  Tensor *start = node.input(0), *limit = node.input(1), *delta = node.input(2);
  const auto is_constant = [&](Tensor* tensor) {
    return !node.known_elements(tensor).empty() || node.known_int(tensor).has_value();
  };
  const bool is_known = is_floating(start->dtype())
                            ? node.is_known(start) && node.is_known(limit) && node.is_known(delta)
                            : node.is_known(start) && node.is_known(limit) && is_constant(delta);
  if (!is_known) return node.set_output(0, computed_range(node, start, limit, delta));
  FillParams params;
  params.to_type = start->dtype();
  if (is_floating(start->dtype())) {
    const double first = node.constant_float(start, "start");
    const double step = node.constant_float(delta, "delta");
    if (step == 0) node.error("delta is 0");
    params.alpha = first, params.beta = step;
    const SymShape dims = {range_length(node, start, limit, delta)};
    node.set_output(0, node.fill(params, dims));
    return;
  }
  const Expr first = node.single_value(start, "start"), last = node.single_value(limit, "limit");
  const int64_t step = node.constant_int(delta, "delta");
  if (step == 0) node.error("delta is 0");
  const Expr count =
      step > 0 ? ceil_div(last - first, step) : ceil_div(first - last, Expr(0) - step);
  const bool is_extent =
      count.op() == ExprOp::kSymbol &&
      node.network().symbols()[count.symbol_id()].kind == Symbol::Kind::kInputExtent;
  const SymShape dims = {is_extent ? count : max(count, 0)};
  params.beta = static_cast<double>(step);
  if (first.is_constant()) {
    params.alpha = static_cast<double>(first.constant());
    node.set_output(0, node.fill(params, dims));
    return;
  }
  Tensor* ramp = node.fill(params, dims);
  node.set_output(0, node.elementwise(ElementWiseOperation::kSUM, ramp, start));
}

void random(NodeImporter& node, FillOperation operation, bool like) {
  FillParams params;
  params.operation = operation;
  const bool uniform = operation == FillOperation::kRANDOM_UNIFORM;
  params.alpha = uniform ? node.get_float("low", 0) : node.get_float("mean", 0);
  params.beta = uniform ? node.get_float("high", 1) : node.get_float("scale", 1);
  const float seed = node.get_float("seed", 0);
  if (!(std::abs(seed) < 0x1p63f)) node.error("seed is ", seed);
  params.seed = static_cast<int64_t>(seed);
  const int64_t otherwise = like ? 0 : static_cast<int64_t>(ElementType::kFloat);
  const int64_t dtype = node.get_int("dtype", otherwise);
  params.to_type = dtype == 0 ? node.input(0)->dtype() : node.element_type("dtype", dtype);
  SymShape dims;
  if (like)
    dims = node.input(0)->dims();
  else
    for (int64_t extent : node.get_ints("shape")) dims.emplace_back(extent);
  node.set_output(0, node.fill(params, dims));
}

/// Inference drops nothing.
void dropout(NodeImporter& node) {
  if (Tensor* training = node.optional_input(2)) {
    if (node.opset() >= 12 && node.constant_int(training, "training_mode") != 0)
      node.error("training_mode=1 is not supported");
  }
  Tensor* x = node.input(0);
  node.set_output(0, x);
  if (!node.has_output(1)) return;
  FillParams params;
  // Before opset 10 the mask has the type of x.
  params.to_type = node.opset() < 10 ? x->dtype() : DataType::kBOOL;
  params.alpha = 1;
  node.set_output(1, node.fill(params, x->dims()));
}

/// Adds a layer, so that programs find the tensor by its name. Constants stay constants, for nodes
/// that need one.
void identity(NodeImporter& node) {
  if (const Value& given = node.value(0); given.tensor() == nullptr)
    return node.set_output(0, given);
  Tensor* x = node.input(0);
  node.set_output(0, x->info().constant.empty() ? node.add<Identity>({}, {x}) : x);
}

}  // namespace

void add_sources(NodeTable& table) {
  table["Constant"] = constant;
  table["ConstantOfShape"] = constant_of_shape;
  table["Range"] = range;
  table["RandomUniform"] = [](NodeImporter& n) {
    random(n, FillOperation::kRANDOM_UNIFORM, false);
  };
  table["RandomUniformLike"] = [](NodeImporter& n) {
    random(n, FillOperation::kRANDOM_UNIFORM, true);
  };
  table["RandomNormal"] = [](NodeImporter& n) { random(n, FillOperation::kRANDOM_NORMAL, false); };
  table["RandomNormalLike"] = [](NodeImporter& n) {
    random(n, FillOperation::kRANDOM_NORMAL, true);
  };
  table["Identity"] = identity;
  table["Dropout"] = dropout;
}

}  // namespace opwright::onnx
