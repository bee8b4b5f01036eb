#include <unordered_map>
#include <utility>

#include "compile/passes.h"
#include "operators/matrix.h"
#include "operators/movement.h"

namespace opwright {

GraphValue* exchange_last_axes(Graph& graph, GraphNode* before, GraphValue* constant,
                               const PassContext& context) {
  const auto rank = static_cast<int64_t>(constant->info.dims.size());
  TransposeParams params;
  for (int64_t i = 0; i < rank; ++i) params.permutation.push_back(i);
  std::swap(params.permutation[rank - 2], params.permutation[rank - 1]);
  TensorInfo info;
  info.dtype = constant->info.dtype, info.dims = constant->info.dims;
  std::swap(info.dims[rank - 2], info.dims[rank - 1]);
  GraphNode* const node =
      graph.insert_before(before, std::make_shared<Transpose>(params), {constant}, std::move(info),
                          constant->name + " turned");
  GraphValue* const result = node->outputs[0];
  return fold(graph, node, context) ? result : constant;
}

void turn_matrices(Graph& graph, const PassContext& context) {
  if (context.device.is_host() || !context.config.flags.has(BuilderFlag::kTF32)) return;
  std::unordered_map<GraphValue*, GraphValue*> turned;
  for (GraphNode* node : graph.nodes()) {
    const auto* const product = node->as<MatrixMultiply>();
    if (product == nullptr || product->params().op1 != MatrixOperation::kNONE) continue;
    GraphValue* const matrix = node->inputs[1];
    if (!matrix->is_constant() || matrix->info.dtype != DataType::kFLOAT) continue;
    const auto [found, is_new] = turned.try_emplace(matrix, matrix);
    if (is_new) found->second = exchange_last_axes(graph, node, matrix, context);
    if (found->second == matrix) continue;
    MatrixMultiplyParams params = product->params();
    params.op1 = MatrixOperation::kTRANSPOSE;
    std::vector<GraphValue*> inputs = node->inputs;
    inputs[1] = found->second;
    graph.replace(node, std::make_shared<MatrixMultiply>(params), std::move(inputs));
  }
  graph.remove_dead();
}

}  // namespace opwright
