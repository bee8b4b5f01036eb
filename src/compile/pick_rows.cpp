#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/scalar_quantization.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/quantization.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

/// Tables up to this size are computed during the build.
constexpr int64_t kSmallTable = int64_t{1} << 20;
/// A number that all rows share is repeated for each row, if the numbers are then at most this part
/// of the table.
constexpr int64_t kRepeatedPart = 8;

int64_t bytes_of_value(const GraphValue& value) {
  return bytes_of(value.info.dtype, constant_shape(value.info.dims).numel());
}

/// Lets a Gather read what a table is computed from, and computes only the picked rows. For tables
/// that take more than twice the bytes of their constants.
class RowPicker {
 public:
  RowPicker(Graph& graph, const PassContext& context, GraphNode* gather)
      : graph_(graph), context_(context), gather_(gather) {
    const GatherParams& params = gather->as<Gather>()->params();
    const auto rank = static_cast<int64_t>(table().info.dims.size());
    axis_ = params.axis < 0 ? params.axis + rank : params.axis;
  }

  /// Takes one operator of the table behind the gather. Returns the gathers before it.
  std::vector<GraphNode*> step() {
    GraphNode* const node = table().producer;
    if (node == nullptr || gather_->precision || node->precision || table().stored_type ||
        gather_->as<Gather>()->params().mode != GatherMode::kDEFAULT ||
        gather_->as<Gather>()->params().num_elementwise_dims != 0)
      return {};
    if (node->as<Dequantize>()) return step_dequantize(node);
    if (!is_constant(table().info.dims) || !is_narrow(table())) return {};
    if (node->as<Cast>()) return behind(*node, {full(node->inputs[0])});
    const auto* op = node->as<ElementWise>();
    if (op == nullptr) return {};
    const Op operation = op->params().op;
    if (operation != Op::kPROD && operation != Op::kSUM && operation != Op::kSUB) return {};
    std::vector<GraphValue*> inputs;
    for (GraphValue* input : node->inputs) inputs.push_back(operand(input, operation == Op::kPROD));
    return behind(*node, inputs);
  }

 private:
  const GraphValue& table() const { return *gather_->inputs[0]; }
  const Expr& rows() const { return table().info.dims[axis_]; }
  bool has_rows(const GraphValue& value) const {
    return value.info.dims.size() == table().info.dims.size() && value.info.dims[axis_] == rows();
  }

  /// Whether the value is computed from constants with less than half of the bytes.
  bool is_narrow(const GraphValue& value, int nodes = 6) const {
    const int64_t most = std::max(bytes_of_value(table()) / 2, kSmallTable) - 1;
    if (value.is_constant()) return bytes_of_value(value) <= most;
    const GraphNode* const node = value.producer;
    return node != nullptr && nodes > 0 && bytes_of_value(table()) > kSmallTable &&
           (node->as<Cast>() || node->as<ElementWise>() || node->as<Dequantize>()) &&
           std::ranges::all_of(node->inputs, [&](const GraphValue* input) {
             return input == nullptr ||
                    (is_constant(input->info.dims) && is_narrow(*input, nodes - 1));
           });
  }

  /// The picked rows of an operand that has the table's rows.
  GraphValue* full(GraphValue* value) {
    std::vector<GraphValue*> inputs = gather_->inputs;
    inputs[0] = value;
    TensorInfo info;
    info.dtype = value->info.dtype, info.dims = gather_->outputs[0]->info.dims;
    // Behind the picked axis an operand may have extents of 1.
    const size_t behind = value->info.dims.size() - static_cast<size_t>(axis_) - 1;
    for (size_t i = 1; i <= behind; ++i)
      info.dims[info.dims.size() - i] = value->info.dims[value->info.dims.size() - i];
    for (int64_t i = 0; i < axis_; ++i) info.dims[i] = value->info.dims[i];
    GraphNode* const picked = graph_.insert_before(gather_, gather_->op, inputs, std::move(info),
                                                   gather_->name + " of " + value->name);
    if (!context_.can_run(*picked->op, *picked, inputs)) return nullptr;
    gathers_.push_back(picked);
    return picked->outputs[0];
  }

  /// An operand of an element-wise operator, for the picked rows; null where it has none. Rows that
  /// are out of range are zeros, which a factor leaves so. Other operands need a row of zeros too.
  GraphValue* operand(GraphValue* value, bool is_factor) {
    if (has_rows(*value)) return full(value);
    if (!is_constant(value->info.dims) || bytes_of_value(*value) > kSmallTable ||
        !fold_behind_constants(graph_, value, context_))
      return nullptr;
    SymShape dims = table().info.dims;
    const size_t rank = dims.size(), own = value->info.dims.size();
    for (size_t i = 0; i < rank; ++i)
      dims[i] = i + own < rank ? Expr(1) : value->info.dims[i + own - rank];
    if (dims[axis_] != Expr(1)) return nullptr;
    if (!is_factor) return repeated(*value, dims);
    const auto picked = static_cast<int64_t>(gather_->inputs[1]->info.dims.size());
    SymShape wide(dims.begin(), dims.begin() + axis_);
    wide.insert(wide.end(), picked, Expr(1));
    wide.insert(wide.end(), dims.begin() + axis_ + 1, dims.end());
    return graph_.reshape_constant(*value, constant_shape(wide));
  }

  /// Picks from a row that is repeated.
  GraphValue* repeated(const GraphValue& value, SymShape dims) {
    const int64_t count = rows().constant();
    const auto row = static_cast<int64_t>(value.info.constant.size());
    if (axis_ != 0 || !value.is_fixed() || count * row > bytes_of_value(table()) / kRepeatedPart)
      return nullptr;
    const auto* const from = value.info.constant.data();
    const Blob all = Blob::make(static_cast<size_t>(count * row), [&](void* bytes) {
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(static_cast<char*>(bytes) + i * row, from, static_cast<size_t>(row));
    });
    dims[axis_] = rows();
    return full(
        graph_.add_constant(value.info.dtype, constant_shape(dims), all, value.name + " repeated"));
  }

  /// Lets the gather compute what `node` computes, of these operands. One of them may be null: then
  /// nothing changes.
  std::vector<GraphNode*> behind(const GraphNode& node, std::vector<GraphValue*> inputs) {
    if (gathers_.empty() || std::ranges::find(inputs, nullptr) != inputs.end()) return {};
    join(node, *gather_);
    graph_.replace(gather_, node.op, std::move(inputs));
    return gathers_;
  }

  std::vector<GraphNode*> step_dequantize(GraphNode* node) {
    GraphValue* const bytes = node->inputs[0];
    if (!bytes->is_constant() || !is_quantized(bytes->info.dtype)) return {};
    const auto scalar = scalar_quantization(*node);
    if (scalar && scalar->zero_point == 0) {
      std::vector<GraphValue*> inputs = node->inputs;
      inputs[0] = full(bytes);
      if (inputs[0] == nullptr) return {};
      join(*node, *gather_);
      graph_.replace(gather_, node->op, std::move(inputs));
      return {};
    }
    if (!is_narrow(table()) || table().info.dtype != DataType::kFLOAT ||
        !is_byte(bytes->info.dtype))
      return {};
    // Each operand has the rank of the table.
    std::vector<GraphValue*> operands = {bytes};
    bool has_blocks = false;
    for (size_t i = 1; i < node->inputs.size(); ++i) {
      GraphValue* const given = node->inputs[i];
      if (given == nullptr || !given->is_constant() ||
          (i == 1 && given->info.dtype != DataType::kFLOAT))
        return {};
      std::string problem;
      const SymShape dims = scale_shape(bytes->info.dims, given->info.dims,
                                        node->as<Dequantize>()->params().axis, problem);
      if (!problem.empty()) return {};
      for (size_t axis = 0; axis < dims.size(); ++axis)
        has_blocks = has_blocks || (dims[axis] != Expr(1) && dims[axis] != bytes->info.dims[axis]);
      operands.push_back(graph_.reshape_constant(*given, constant_shape(dims)));
    }
    if (has_blocks) {
      if (!std::ranges::all_of(operands, [&](const auto* value) { return has_rows(*value); }))
        return {};
      for (GraphValue*& value : operands) value = full(value);
      return behind(*node, std::move(operands));
    }
    const auto add = [&](OperatorPtr op, std::vector<GraphValue*> inputs) {
      TensorInfo info;
      info.dtype = DataType::kFLOAT, info.dims = inputs[0]->info.dims;
      return graph_
          .insert_before(node, std::move(op), std::move(inputs), std::move(info), node->name)
          ->outputs[0];
    };
    const auto real = [&](GraphValue* value) {
      return add(std::make_shared<Cast>(CastParams{DataType::kFLOAT}), {value});
    };
    const auto binary = [&](Op op, GraphValue* a, GraphValue* b) {
      return add(std::make_shared<ElementWise>(ElementWiseParams{op}), {a, b});
    };
    GraphValue* y = real(bytes);
    if (operands.size() > 2) {
      GraphValue* zero = operands[2];
      std::vector<float> numbers(constant_shape(zero->info.dims).numel());
      convert(zero->info.constant.data(), zero->info.dtype, numbers.data(), DataType::kFLOAT,
              static_cast<int64_t>(numbers.size()));
      zero = graph_.add_constant(DataType::kFLOAT, constant_shape(zero->info.dims),
                                 Blob::copy(numbers.data(), numbers.size() * sizeof(float)),
                                 zero->name);
      y = binary(Op::kSUB, y, zero);
    }
    graph_.set_input(gather_, 0, binary(Op::kPROD, y, operands[1]));
    return {gather_};
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* gather_;
  int64_t axis_ = 0;
  std::vector<GraphNode*> gathers_;  ///< those made by the step
};

}  // namespace

void pick_rows(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    if (!node->as<Gather>()) continue;
    std::vector<GraphNode*> left = {node};
    while (!left.empty()) {
      GraphNode* const gather = left.back();
      left.pop_back();
      const std::vector<GraphNode*> before = RowPicker(graph, context, gather).step();
      left.insert(left.end(), before.begin(), before.end());
    }
  }
}

}  // namespace opwright
