#include "onnx/importer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "network/shape_inputs.h"
#include "operators/movement.h"
#include "operators/rationals.h"
#include "operators/selection.h"

namespace opwright::onnx {

const Value* NodeImporter::optional_value(int index) const {
  if (index >= num_inputs() || node_.inputs[index].empty()) return nullptr;
  const Value* found = names_.find(node_.inputs[index]);
  if (found == nullptr)
    error_of_names("input '", node_.inputs[index],
                   "' is made by no node before this one, and is no input or initializer");
  return found->is_absent() ? nullptr : found;
}

const Value& NodeImporter::value(int index) const {
  const Value* found = optional_value(index);
  if (found == nullptr) error("input ", index, " is missing");
  return *found;
}

Tensor* NodeImporter::optional_input(int index) const {
  const Value* found = optional_value(index);
  if (found != nullptr && found->tensor() == nullptr)
    error("input '", node_.inputs[index], "' is ",
          found->is_sequence() ? "a sequence" : "an optional that holds nothing",
          "; expected a tensor");
  return found != nullptr ? found->tensor() : nullptr;
}

Tensor* NodeImporter::input(int index) const {
  Tensor* tensor = optional_input(index);
  if (tensor == nullptr) error("input ", index, " is missing");
  return tensor;
}

const Sequence& NodeImporter::sequence(int index) const {
  const Value& found = value(index);
  if (found.is_sequence() && found.sequence() == nullptr)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "the length of the sequence '",
             node_.inputs[index],
             "' is known when the engine runs; expected one that is known when the model is read: "
             "make the number of iterations of the loop that fills it constant");
  if (found.sequence() == nullptr)
    error("input '", node_.inputs[index], "' is ",
          found.tensor() != nullptr ? "a tensor" : "an optional that holds nothing",
          "; expected a sequence");
  return *found.sequence();
}

void NodeImporter::set_output(int index, Value value) {
  if (has_output(index)) names_.set(node_.outputs[index], std::move(value));
}

const GraphProto& NodeImporter::body(std::string_view name) const {
  const AttributeProto* found = attribute(name, AttributeProto::Type::kGraph);
  if (found == nullptr || found->g == nullptr) error("the graph '", name, "' is missing");
  return *found->g;
}

std::vector<Value> NodeImporter::add_body(const GraphProto& body, const std::string& part,
                                          std::span<const Value> inputs) {
  if (bodies_ == nullptr) error("graphs in attributes cannot be taken over here");
  return bodies_->add(body, part, inputs);
}

std::optional<std::vector<Value>> NodeImporter::try_add_body(const GraphProto& body,
                                                             const std::string& part,
                                                             std::string& problem) {
  if (bodies_ == nullptr) error("graphs in attributes cannot be taken over here");
  return bodies_->try_add(body, part, problem);
}

void NodeImporter::fail_bodies() {
  bodies_->report_failures();
  throw ReportedError();
}

BodyNetwork NodeImporter::add_body_network(const GraphProto& body, std::span<Tensor* const> states,
                                           const Bodies::Start& start,
                                           std::vector<Tensor*> captured) {
  if (bodies_ == nullptr) error("graphs in attributes cannot be taken over here");
  return bodies_->add_network(body, states, start, std::move(captured));
}

const AttributeProto* NodeImporter::attribute(std::string_view name,
                                              AttributeProto::Type type) const {
  const AttributeProto* found = node_.attribute(name);
  if (found != nullptr && found->type != type)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_ATTR, "attribute '", name, "' has type ",
             static_cast<int>(found->type), "; expected ", static_cast<int>(type));
  return found;
}

DataType NodeImporter::element_type(std::string_view attribute, int64_t number) const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return data_type(static_cast<int32_t>(std::clamp<int64_t>(number, 0, kMost)),
                   str("node '", name(), "' (", node_.op_type, "): attribute '", attribute, "'"));
}

int64_t NodeImporter::get_int(std::string_view name, int64_t otherwise) const {
  const AttributeProto* a = attribute(name, AttributeProto::Type::kInt);
  return a ? a->i : otherwise;
}
float NodeImporter::get_float(std::string_view name, float otherwise) const {
  const AttributeProto* a = attribute(name, AttributeProto::Type::kFloat);
  return a ? a->f : otherwise;
}
std::string NodeImporter::get_text(std::string_view name, std::string otherwise) const {
  const AttributeProto* a = attribute(name, AttributeProto::Type::kString);
  return a ? a->s : otherwise;
}
Ints NodeImporter::get_ints(std::string_view name, Ints otherwise) const {
  const AttributeProto* a = attribute(name, AttributeProto::Type::kInts);
  return a ? a->ints : otherwise;
}

namespace {

/// Tells how to give known values to inputs.
std::string input_advice(ShapeSource source, const std::string& input) {
  switch (source) {
    case ShapeSource::kPython:
      return str("Give their values as constants (constants={\"", input,
                 "\": array}) or, where shapes decide, fixed shapes (shapes={\"", input,
                 "\": shape})");
    case ShapeSource::kProgram:
      return str("Where shapes decide, give fixed ones (--shapes ", input,
                 ":AxB); opwright.build(constants=) in Python takes values");
    default:
      return "Give their values as constants (set_constant_input of the parser) or, where shapes "
             "decide, fixed shapes (set_input_shape)";
  }
}

std::string bound_advice(ShapeSource source, const std::string& tensor) {
  switch (source) {
    case ShapeSource::kPython:
      return str("bounds={\"", tensor, "\": largest}");
    case ShapeSource::kProgram:
      return "opwright.build(bounds=) in Python";
    default:
      return "set_upper_bound of the parser, in Python opwright.build(bounds=)";
  }
}

}  // namespace

ShapeSource NodeImporter::shape_source() const {
  return bodies_ != nullptr ? bodies_->shape_source() : ShapeSource::kProfile;
}

void NodeImporter::error_needs(onnxparser::ErrorCode kind, Tensor* tensor, std::string_view what,
                               std::string_view problem, const Tensor* named) const {
  std::vector<std::string> inputs;
  for (const Tensor* input : inputs_behind(*tensor)) inputs.push_back(input->name());
  std::string all;
  for (const std::string& input : inputs) all += str(all.empty() ? "" : ", ", "'", input, "'");
  const std::string how = inputs.empty()
                              ? ""
                              : str("; it is known where these inputs of the model are: ", all,
                                    ". ", input_advice(shape_source(), inputs.front()));
  throw NodeError(kind,
                  str("ONNX node '", name(), "' (", node_.op_type, "): ", what, " ('",
                      (named != nullptr ? named : tensor)->name(), "') ", problem, how),
                  std::move(inputs));
}

std::vector<Expr> NodeImporter::values(Tensor* tensor, std::string_view what) const {
  if (tensor->rank() > 1)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_SHAPE, what, " ('", tensor->name(),
             "') must be a scalar or a vector, but has rank ", tensor->rank());
  make_shape_inputs(*tensor);
  const auto& values = tensor->info().values;
  if (!values)
    error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, tensor, what,
                "must be a constant or computed from shapes, but depends on data");
  return *values;
}

bool NodeImporter::is_known(Tensor* tensor) {
  const auto has_elements = [&] {
    return tensor->info().values != nullptr || rationals_of(tensor->info()) != nullptr;
  };
  if (has_elements() || !known_elements(tensor).empty()) return true;
  const std::vector<Tensor*> inputs = make_shape_inputs(*tensor);
  if (has_elements()) return true;
  // Data decides the elements even with shape inputs.
  for (Tensor* input : inputs) input->network().make_shape_input(*input, false);
  return false;
}

namespace {

/// The origin of an element, through layers that only move it.
struct Element {
  Tensor* tensor;
  int64_t index;
};

Element source_of(Element element) {
  while (element.tensor->info().values == nullptr && element.tensor->producer() != nullptr) {
    const Layer& layer = *element.tensor->producer();
    const Operator* const op = layer.op().get();
    const auto* cast = dynamic_cast<const Cast*>(op);
    const bool keeps_integers = cast != nullptr && (layer.input(0)->dtype() == DataType::kINT32 ||
                                                    layer.input(0)->dtype() == DataType::kINT64);
    if (keeps_integers || dynamic_cast<const Identity*>(op) || dynamic_cast<const Squeeze*>(op) ||
        dynamic_cast<const Unsqueeze*>(op)) {
      element.tensor = layer.input(0);
    } else if (dynamic_cast<const Concatenation*>(op) && element.tensor->rank() == 1) {
      int part = 0;
      for (; part + 1 < layer.num_inputs(); ++part) {
        const Expr& extent = layer.input(part)->dims()[0];
        if (!extent.is_constant()) return element;
        if (element.index < extent.constant()) break;
        element.index -= extent.constant();
      }
      element.tensor = layer.input(part);
    } else {
      break;
    }
  }
  return element;
}

}  // namespace

std::optional<Expr> NodeImporter::known_element(Tensor* tensor, int64_t index) {
  const Element element = source_of({tensor, index});
  if (!is_known(element.tensor)) return std::nullopt;
  if (const auto& values = element.tensor->info().values)
    return (*values)[static_cast<size_t>(element.index)];
  return Expr(constant_ints(element.tensor, "an extent")[static_cast<size_t>(element.index)]);
}

std::optional<float> NodeImporter::known_number(Tensor* tensor, int64_t index) const {
  const Element element = source_of({tensor, index});
  const Blob elements = known_elements(element.tensor);
  if (elements.empty()) return std::nullopt;
  const auto count = static_cast<size_t>(numel(element.tensor->dims()).constant());
  std::vector<float> numbers(count);
  convert(elements.data(), element.tensor->dtype(), numbers.data(), DataType::kFLOAT,
          static_cast<int64_t>(count));
  return numbers.at(static_cast<size_t>(element.index));
}

Expr NodeImporter::data_extent(Tensor* tensor, int64_t index, std::string_view what,
                               const std::optional<Expr>& most, Tensor* origin) {
  if (const std::optional<Expr> known = known_element(tensor, index)) return *known;
  const Element element = source_of({tensor, index});
  // An element has one size tensor, so that all extents from it agree.
  for (const Layer* user : element.tensor->users()) {
    const auto* extent = dynamic_cast<const DataExtent*>(user->op().get());
    if (extent != nullptr && extent->params().element == element.index)
      return user->output(0)->info().values->front();
  }
  const GivenBounds none;
  const ElementBounds follows =
      bounds_of(*element.tensor, bodies_ != nullptr ? bodies_->upper_bounds() : none);
  std::optional<Expr> bound = most;
  if (follows.high) bound = bound ? min(*bound, *follows.high) : follows.high;
  if (!bound)
    error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, element.tensor, what,
                str("depends on data, and no upper bound follows from how it is computed: give one "
                    "for it (",
                    bound_advice(shape_source(), (origin ? origin : element.tensor)->name()), ")"),
                origin);
  return add<DataExtent>({element.index}, {element.tensor, scalar_of(*bound)})
      ->info()
      .values->front();
}

std::vector<Expr> NodeImporter::extents(Tensor* tensor, std::string_view what,
                                        std::span<const Expr> most) {
  if (tensor->rank() > 1 || !is_constant(tensor->dims()) || is_known(tensor))
    return values(tensor, what);
  std::vector<Expr> result;
  for (int64_t i = 0; i < numel(tensor->dims()).constant(); ++i) {
    const auto at = static_cast<size_t>(i);
    const std::optional<Expr> bound =
        at < most.size() ? std::optional<Expr>(most[at]) : std::nullopt;
    result.push_back(data_extent(tensor, i, what, bound, nullptr));
  }
  return result;
}

Expr NodeImporter::extent(Tensor* tensor, std::string_view what, const std::optional<Expr>& most,
                          Tensor* origin) {
  if (tensor->rank() > 1 || !(numel(tensor->dims()) == Expr(1)) || is_known(tensor))
    return single_value(tensor, what);
  return data_extent(tensor, 0, what, most, origin);
}

std::vector<Tensor*> NodeImporter::elements_of(Tensor* tensor, DataType dtype) {
  if (tensor->rank() > 1 || !is_constant(tensor->dims()))
    error("'", tensor->name(), "' must have rank 0 or 1 and a constant extent, but has shape ",
          tensor->dims());
  const int64_t count = numel(tensor->dims()).constant();
  tensor = cast(tensor, dtype);
  if (tensor->rank() == 0) return {tensor};
  std::vector<Tensor*> elements;
  for (int64_t i = 0; i < count; ++i) elements.push_back(squeeze(slice_at(tensor, 0, i), {0}));
  return elements;
}

Ints NodeImporter::constant_ints(Tensor* tensor, std::string_view what) const {
  const TensorInfo& info = tensor->info();
  const Blob elements =
      is_floating(info.dtype) || info.values ? info.constant : known_elements(tensor);
  if (elements && !is_floating(info.dtype)) {
    Ints ints(numel(info.dims).constant());
    convert(elements.data(), info.dtype, ints.data(), DataType::kINT64,
            static_cast<int64_t>(ints.size()));
    return ints;
  }
  Ints ints;
  for (const Expr& value : values(tensor, what)) {
    if (!value.is_constant())
      error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, tensor, what,
                  "must be constant, but depends on input shapes");
    ints.push_back(value.constant());
  }
  return ints;
}

std::vector<Rational> NodeImporter::rationals(Tensor* tensor, std::string_view what) const {
  if (const Blob elements = known_elements(tensor);
      !elements.empty() && is_floating(tensor->dtype())) {
    std::vector<Rational> numbers;
    for (const double number : constant_floats(tensor, what)) {
      const std::optional<Rational> exact = rational_of(static_cast<float>(number));
      if (!exact) error(what, " has the value ", number, "; expected a finite number");
      numbers.push_back(*exact);
    }
    return numbers;
  }
  make_shape_inputs(*tensor);
  const RationalsPtr numbers = rationals_of(tensor->info());
  if (numbers == nullptr)
    error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, tensor, what,
                "must be a constant or computed from shapes, but depends on data");
  return *numbers;
}

Floats NodeImporter::constant_floats(Tensor* tensor, std::string_view what) const {
  const TensorInfo& info = tensor->info();
  if (const Blob elements = known_elements(tensor); !elements.empty()) {
    std::vector<float> single(numel(info.dims).constant());
    convert(elements.data(), info.dtype, single.data(), DataType::kFLOAT,
            static_cast<int64_t>(single.size()));
    return Floats(single.begin(), single.end());
  }
  Floats floats;
  for (const Rational& number : rationals(tensor, what)) {
    if (!number.is_constant())
      error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, tensor, what,
                  "must be constant, but depends on input shapes");
    floats.push_back(number.constant());
  }
  return floats;
}

Rational NodeImporter::single_rational(Tensor* tensor, std::string_view what) const {
  return single(rationals(tensor, what), what);
}

Expr NodeImporter::single_value(Tensor* tensor, std::string_view what) const {
  return single(values(tensor, what), what);
}

Blob NodeImporter::known_elements(Tensor* tensor) const {
  if (tensor->info().constant || bodies_ == nullptr) return tensor->info().constant;
  return bodies_->known().of(*tensor).value_or(Blob());
}

std::optional<int64_t> NodeImporter::known_int(Tensor* tensor) const {
  const TensorInfo& info = tensor->info();
  if (is_floating(info.dtype) || !(numel(info.dims) == Expr(1))) return std::nullopt;
  if (info.values && info.values->size() == 1 && (*info.values)[0].is_constant())
    return (*info.values)[0].constant();
  const Blob elements = known_elements(tensor);
  if (elements.empty()) return std::nullopt;
  int64_t element = 0;
  convert(elements.data(), info.dtype, &element, DataType::kINT64, 1);
  return element;
}

std::optional<bool> NodeImporter::known_bool(Tensor* tensor) const {
  if (tensor->dtype() != DataType::kBOOL)
    error("the condition '", tensor->name(), "' is ", opwright::name(tensor->dtype()),
          "; expected BOOL");
  if (const SymShape& dims = tensor->dims(); is_constant(dims) && !(numel(dims) == Expr(1)))
    error("the condition '", tensor->name(), "' has shape ", dims, "; expected one element");
  const std::optional<int64_t> element = known_int(tensor);
  return element ? std::optional<bool>(*element != 0) : std::nullopt;
}

int64_t NodeImporter::constant_int(Tensor* tensor, std::string_view what) const {
  return single(constant_ints(tensor, what), what);
}

double NodeImporter::constant_float(Tensor* tensor, std::string_view what) const {
  return single(constant_floats(tensor, what), what);
}

void NodeImporter::require_rank(const Tensor* tensor, int low, int high) const {
  if (tensor->rank() < low || tensor->rank() > high)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_SHAPE, "input '", tensor->name(),
             "' has rank ", tensor->rank(), "; expected ",
             low == high ? str(low) : str(low, " to ", high));
}

int NodeImporter::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_ATTR, "axis ", axis,
             " is out of range for a tensor of rank ", rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Ints NodeImporter::axes(Ints axes, int rank) const {
  std::string given;
  for (const int64_t a : axes) given += str(given.empty() ? "" : ", ", a);
  std::vector<bool> is_named(static_cast<size_t>(std::max(rank, 0)));
  for (int64_t& a : axes) {
    a = axis(a, rank);
    if (is_named[static_cast<size_t>(a)])
      error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_ATTR, "axes are [", given,
               "], which name axis ", a, " twice; expected each axis once");
    is_named[static_cast<size_t>(a)] = true;
  }
  return axes;
}

Ints NodeImporter::axis_set(const Ints& axes, int rank) const {
  Ints set;
  for (const int64_t a : axes)
    if (const int64_t found = axis(a, rank); std::ranges::find(set, found) == set.end())
      set.push_back(found);
  return set;
}

std::optional<Ints> NodeImporter::axes_of(int rank, int64_t since, int input_index) const {
  if (opset_ >= since) {
    Tensor* given = optional_input(input_index);
    if (given == nullptr) return std::nullopt;
    return axis_set(constant_ints(given, "axes"), rank);
  }
  const AttributeProto* given = attribute("axes", AttributeProto::Type::kInts);
  if (given == nullptr) return std::nullopt;
  return axis_set(given->ints, rank);
}

namespace {

const NodeTable& standard_operators() {
  static const NodeTable table = [] {
    NodeTable table;
    add_convolution(table);
    add_elementwise(table);
    add_activations(table);
    add_attention(table);
    add_einsum(table);
    add_matrix(table);
    add_quantization(table);
    add_recurrence(table);
    add_reductions(table);
    add_ngrams(table);
    add_normalizations(table);
    add_resize(table);
    add_shapes(table);
    add_movement(table);
    add_sources(table);
    add_control_flow(table);
    add_sequences(table);
    add_losses(table);
    add_signal(table);
    add_indexing(table);
    add_sampling(table);
    add_selection(table);
    add_scatter(table);
    return table;
  }();
  return table;
}

const NodeTable& contrib_operators() {
  static const NodeTable table = [] {
    NodeTable table;
    add_contrib(table);
    add_contrib_quantization(table);
    return table;
  }();
  return table;
}

const NodeTable& tensorrt_operators() {
  static const NodeTable table = [] {
    NodeTable table;
    add_tensorrt(table);
    return table;
  }();
  return table;
}

/// The operators of a domain; null for a domain without any.
const NodeTable* operators_of(std::string_view domain) {
  if (domain.empty() || domain == "ai.onnx") return &standard_operators();
  if (domain == "trt") return &tensorrt_operators();
  return domain == "com.microsoft" ? &contrib_operators() : nullptr;
}

/// Operators that ONNX Runtime wrote into the default domain before it had its own, or that are the
/// same in both domains.
bool is_in_both_domains(std::string_view name) {
  return name == "SimplifiedLayerNormalization" || name == "LayerNormalization" ||
         name == "QuantizeLinear" || name == "DequantizeLinear" || name == "GridSample" ||
         name == "Trilu";
}

}  // namespace

NodeFunction find_operator(std::string_view domain, std::string_view name) {
  const bool is_tensorrt = domain.empty() && name == "DistCollective";  // tools name no domain
  const NodeTable* table = operators_of(is_tensorrt                ? "trt"
                                        : is_in_both_domains(name) ? ""
                                                                   : domain);
  if (table == nullptr) return nullptr;
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

std::vector<std::string> operator_names(std::string_view domain) {
  std::vector<std::string> names;
  if (const NodeTable* table = operators_of(domain))
    for (const auto& each : *table) names.emplace_back(each.first);
  return names;
}

}  // namespace opwright::onnx
