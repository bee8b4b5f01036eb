#include "onnx/importer.h"

#include <numeric>

#include "base/half.h"
#include "network/shape_inputs.h"
#include "operators/movement.h"

namespace opwright::onnx {

Tensor* NodeImporter::optional_input(int index) const {
  if (index >= num_inputs() || node_.inputs[index].empty()) return nullptr;
  auto found = tensors_.find(node_.inputs[index]);
  if (found == tensors_.end())
    error("input '", node_.inputs[index],
          "' is made by no node before this one, and is no input or initializer");
  return found->second;
}

Tensor* NodeImporter::input(int index) const {
  Tensor* tensor = optional_input(index);
  if (tensor == nullptr) error("input ", index, " is missing");
  return tensor;
}

void NodeImporter::set_output(int index, Tensor* tensor) {
  if (has_output(index)) tensors_[node_.outputs[index]] = tensor;
}

const AttributeProto* NodeImporter::attribute(std::string_view name,
                                              AttributeProto::Type type) const {
  const AttributeProto* found = node_.attribute(name);
  if (found != nullptr && found->type != type)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_ATTR, "attribute '", name, "' has type ",
             static_cast<int>(found->type), "; expected ", static_cast<int>(type));
  return found;
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

std::vector<Expr> NodeImporter::values(Tensor* tensor, std::string_view what) const {
  if (tensor->rank() > 1)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_SHAPE, what, " ('", tensor->name(),
             "') must be a scalar or a vector, but has rank ", tensor->rank());
  make_shape_inputs(*tensor);
  const auto& values = tensor->info().values;
  if (!values)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, what, " ('", tensor->name(),
             "') must be a constant or computed from shapes, but depends on data");
  return *values;
}

Ints NodeImporter::constant_ints(Tensor* tensor, std::string_view what) const {
  const TensorInfo& info = tensor->info();
  if (info.constant && !is_floating(info.dtype)) {
    Ints ints(numel(info.dims).constant());
    convert(info.constant.data(), info.dtype, ints.data(), DataType::kINT64,
            static_cast<int64_t>(ints.size()));
    return ints;
  }
  Ints ints;
  for (const Expr& value : values(tensor, what)) {
    if (!value.is_constant())
      error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, what, " ('", tensor->name(),
               "') must be constant, but depends on input shapes");
    ints.push_back(value.constant());
  }
  return ints;
}

Floats NodeImporter::constant_floats(Tensor* tensor, std::string_view what) const {
  const TensorInfo& info = tensor->info();
  if (!info.constant)
    error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, what, " ('", tensor->name(),
             "') must be constant");
  std::vector<float> single(numel(info.dims).constant());
  convert(info.constant.data(), info.dtype, single.data(), DataType::kFLOAT,
          static_cast<int64_t>(single.size()));
  return Floats(single.begin(), single.end());
}

Expr NodeImporter::single_value(Tensor* tensor, std::string_view what) const {
  return single(values(tensor, what), what);
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
  for (int64_t& a : axes) a = axis(a, rank);
  return axes;
}

std::optional<Ints> NodeImporter::axes_of(int rank, int64_t since, int input_index) const {
  if (opset_ >= since) {
    Tensor* given = optional_input(input_index);
    if (given == nullptr) return std::nullopt;
    return axes(constant_ints(given, "axes"), rank);
  }
  const AttributeProto* given = attribute("axes", AttributeProto::Type::kInts);
  if (given == nullptr) return std::nullopt;
  return axes(given->ints, rank);
}

std::string NodeImporter::next_name() {
  const int index = layers_++;
  return index == 0 ? name_ : str(name_, "/", index);
}

/// A number that belongs to how a node is written in layers, not one of the model's weights.
Tensor* NodeImporter::fixed(Tensor* constant) {
  network_.weight_names().fix(*constant->producer());
  return constant;
}

Tensor* NodeImporter::scalar(double value, DataType dtype) {
  Blob data = Blob::make(bytes_of(dtype, 1), [&](void* out) {
    if (is_floating(dtype)) {
      const float single = static_cast<float>(value);
      convert(&single, DataType::kFLOAT, out, dtype, 1);
    } else {
      if (!(value >= -0x1p63 && value < 0x1p63))
        error(value, " does not fit ", opwright::name(dtype));
      const int64_t integer = static_cast<int64_t>(value);
      convert(&integer, DataType::kINT64, out, dtype, 1);
    }
  });
  return fixed(network_.add_constant(dtype, Shape(), std::move(data)));
}

Tensor* NodeImporter::elementwise(ElementWiseOperation op, Tensor* a, Tensor* b) {
  return add<ElementWise>({op}, {a, b});
}
Tensor* NodeImporter::elementwise(ElementWiseOperation op, Tensor* a, double b) {
  return elementwise(op, a, scalar(b, a->dtype()));
}
Tensor* NodeImporter::unary(UnaryOperation op, Tensor* x) { return add<Unary>({op}, {x}); }
Tensor* NodeImporter::activation(ActivationType type, Tensor* x, float alpha, float beta) {
  return add<Activation>({type, alpha, beta}, {x});
}
Tensor* NodeImporter::cast(Tensor* x, DataType to) {
  return x->dtype() == to ? x : add<Cast>({to}, {x});
}

Tensor* NodeImporter::reduce(ReduceOperation op, Tensor* x, const Ints& axes, bool keep_dims) {
  int64_t mask = 0;
  for (int64_t a : axes) mask |= int64_t{1} << a;
  return add<Reduce>({op, mask, keep_dims}, {x});
}

Tensor* NodeImporter::reshape(Tensor* x, std::span<const Expr> dims) {
  ShuffleParams params;
  params.has_reshape = true;
  params.zero_is_placeholder = false;
  if (is_constant(dims)) {
    for (const Expr& d : dims) params.reshape_dims.push_back(d.constant());
    return add<Shuffle>(params, {x});
  }
  Tensor* shape = network_.add_values({dims.begin(), dims.end()});
  return add<Shuffle>(params, {x, shape});
}

Tensor* NodeImporter::transpose(Tensor* x, Ints permutation) {
  ShuffleParams params;
  params.first_transpose = std::move(permutation);
  return add<Shuffle>(params, {x});
}

Tensor* NodeImporter::squeeze(Tensor* x, const Ints& axes) {
  SymShape dims;
  for (int i = 0; i < x->rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      dims.push_back(x->dims()[i]);
    else if (x->dims()[i].is_constant() && x->dims()[i].constant() != 1)
      error("axis ", i, " has extent ", x->dims()[i].constant(),
            "; only an axis of extent 1 can be removed");
  }
  return reshape(x, dims);
}

Tensor* NodeImporter::unsqueeze(Tensor* x, const Ints& axes) {
  const int rank = x->rank() + static_cast<int>(axes.size());
  SymShape dims;
  auto next = x->dims().begin();
  for (int i = 0; i < rank; ++i) {
    const bool inserted = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!inserted && next == x->dims().end()) error("the axes to insert are not distinct");
    dims.push_back(inserted ? Expr(1) : *next++);
  }
  return reshape(x, dims);
}

Tensor* NodeImporter::expand(Tensor* x, std::span<const Expr> dims) {
  const int rank = static_cast<int>(dims.size());
  if (x->rank() < rank) {
    Ints leading(rank - x->rank());
    std::iota(leading.begin(), leading.end(), 0);
    x = unsqueeze(x, leading);
  }
  if (std::equal(dims.begin(), dims.end(), x->dims().begin(), x->dims().end())) return x;
  SliceParams params;
  params.start.assign(rank, 0);
  params.stride.assign(rank, 1);
  std::vector<Expr> strides;
  for (int i = 0; i < rank; ++i) {
    // A stride of 0 repeats an axis of extent 1; where the extent is not known, min(extent - 1, 1)
    // decides at run time.
    const Expr& extent = x->dims()[i];
    strides.push_back(extent == dims[i] ? Expr(1) : min(extent - 1, 1));
  }
  if (is_constant(dims) && is_constant(strides)) {
    for (int i = 0; i < rank; ++i) {
      params.size.push_back(dims[i].constant());
      params.stride[i] = strides[i].constant();
    }
    return add<Slice>(params, {x});
  }
  Tensor* start = network_.add_values(std::vector<Expr>(rank, 0));
  Tensor* size = network_.add_values({dims.begin(), dims.end()});
  return add<Slice>(params, {x, start, size, network_.add_values(std::move(strides))});
}

const NodeTable& node_table() {
  static const NodeTable table = [] {
    NodeTable table;
    add_convolution(table);
    add_elementwise(table);
    add_activations(table);
    add_matrix(table);
    add_reductions(table);
    add_normalizations(table);
    add_shapes(table);
    add_movement(table);
    add_sources(table);
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

}  // namespace opwright::onnx
