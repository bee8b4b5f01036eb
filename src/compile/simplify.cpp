#include <algorithm>
#include <optional>
#include <vector>

#include "compile/passes.h"
#include "compile/program.h"
#include "compile/strided_view.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

bool is_one(const Expr& extent) { return extent.is_constant() && extent.constant() == 1; }

/// Whether moving the axes keeps the order of elements: only axes of extent 1 change places.
bool keeps_order(const SymShape& dims, const Ints& permutation) {
  int64_t before = -1;
  for (int64_t axis : permutation) {
    if (is_one(dims[axis])) continue;
    if (axis < before) return false;
    before = axis;
  }
  return true;
}

/// Whether a plan can hold expressions in place of a tensor of this type.
bool is_computable(DataType type) {
  return type == DataType::kINT32 || type == DataType::kINT64 || type == DataType::kBOOL ||
         type == DataType::kFLOAT;
}

bool is_copy(const Pointwise& op) {
  const std::vector<PointwiseInstruction> program = decode(op.params());
  return program.size() == 1 && program[0].op == opcode(PointwiseOp::kInput);
}

/// Whether a slice whose shape is that of its input takes all of it. No mode matters then.
bool takes_all(const GraphNode& node, const SliceParams& params) {
  const std::optional<std::vector<Expr>> starts = integers_of(node, 1, params.start),
                                         strides = integers_of(node, 3, params.stride);
  const auto are = [](const auto& values, int64_t expected) {
    return values && std::all_of(values->begin(), values->end(),
                                 [&](const Expr& value) { return value == Expr(expected); });
  };
  return are(starts, 0) && are(strides, 1);
}

bool changes_nothing(const GraphNode& node) {
  if (node.inputs.empty() || node.inputs[0] == nullptr || node.outputs.size() != 1) return false;
  const TensorInfo &from = node.inputs[0]->info, &to = node.outputs[0]->info;
  if (from.dtype != to.dtype || from.dims != to.dims || node.outputs[0]->stored_type) return false;
  if (node.as<Identity>() || node.as<Reshape>()) return true;
  if (const auto* transpose = node.as<Transpose>())
    return std::is_sorted(transpose->params().permutation.begin(),
                          transpose->params().permutation.end());
  if (node.as<Concatenation>()) return node.inputs.size() == 1;
  if (const auto* slice = node.as<Slice>()) return takes_all(node, slice->params());
  if (const auto* pointwise = node.as<Pointwise>()) return is_copy(*pointwise);
  return false;
}

/// Whether the permutation exchanges the last two axes and nothing else.
bool swaps_last(const Ints& permutation) {
  const auto rank = static_cast<int64_t>(permutation.size());
  for (int64_t i = 0; i + 2 < rank; ++i)
    if (permutation[i] != i) return false;
  return rank >= 2 && permutation[rank - 1] == rank - 2;
}

/// Lets a matrix product read a transposed operand in its original order.
void absorb_transposes(Graph& graph, GraphNode* node) {
  MatrixMultiplyParams params = node->as<MatrixMultiply>()->params();
  std::vector<GraphValue*> inputs = node->inputs;
  bool changed = false;
  for (int i = 0; i < 2; ++i) {
    MatrixOperation& op = i == 0 ? params.op0 : params.op1;
    const GraphNode* before = inputs[i]->producer;
    const auto* transpose = before ? before->as<Transpose>() : nullptr;
    if (!transpose || op == MatrixOperation::kVECTOR ||
        !swaps_last(transpose->params().permutation))
      continue;
    op = op == MatrixOperation::kNONE ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
    inputs[i] = before->inputs[0];
    changed = true;
  }
  if (!changed) return;
  const auto op = std::make_shared<MatrixMultiply>(params);
  if (fits(*op, node->name, inputs, node->outputs)) graph.replace(node, op, std::move(inputs));
}

void simplify_node(Graph& graph, GraphNode* node) {
  if (node->as<MatrixMultiply>()) absorb_transposes(graph, node);
  GraphValue* input = node->input(0);
  if (const auto* transpose = node->as<Transpose>()) {
    if (keeps_order(input->info.dims, transpose->params().permutation)) {
      graph.replace(node, std::make_shared<Reshape>(), {input});
    } else if (GraphNode* before = input->producer; before && before->as<Transpose>()) {
      Ints both = transpose->params().permutation;
      for (int64_t& axis : both) axis = before->as<Transpose>()->params().permutation[axis];
      graph.replace(node, std::make_shared<Transpose>(TransposeParams{both}), {before->inputs[0]});
      return simplify_node(graph, node);
    }
  }
  if (node->as<Reshape>()) {
    GraphNode* before = node->inputs[0]->producer;
    if (before && before->as<Reshape>()) graph.replace(node, node->op, {before->inputs[0]});
  }
  if (changes_nothing(*node)) graph.replace_uses(node->outputs[0], node->inputs[0]);
}

}  // namespace

void simplify(Graph& graph) {
  for (GraphNode* node : graph.nodes()) simplify_node(graph, node);
}

void fold_shapes(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      GraphValue* value = node->outputs[i];
      if (value->info.values == nullptr && value->info.constant.empty()) continue;
      // A size that an operator decides while it runs has to be written by the operator.
      if (node->size_symbol(static_cast<int>(i)) >= 0) continue;
      if (!node->op->is_pure()) continue;
      if (value->info.constant.empty() && !is_computable(value->info.dtype)) continue;
      graph.detach(value);
    }
  }
}

}  // namespace opwright
