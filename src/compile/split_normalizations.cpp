#include "compile/passes.h"
#include "compile/program.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// With fewer elements, one kernel is as fast as two.
constexpr int64_t kManyElements = int64_t{1} << 19;
/// With fewer pixels, or with more groups, a block for each group reads it fast.
constexpr int64_t kManyPixels = 1024, kManyGroups = 4096;

bool is_worth(const NormalizationParams& params, const Shape& x) {
  if (x.rank() < 3 || x[0] < 1 || x[1] < 1) return false;
  return x.numel() >= kManyElements && x.numel() / (x[0] * x[1]) >= kManyPixels &&
         x[0] * params.groups_of(x[1]) <= kManyGroups;
}

/// Whether a scale or bias has an element for each channel of `x`, whose axis 1 has them.
bool is_per_channel(const GraphValue* factor, const SymShape& x) {
  if (factor == nullptr) return true;
  const SymShape& dims = factor->info.dims;
  // The axis of the batch may lack.
  const size_t rank = x.size();
  return (dims.size() == rank || dims.size() + 1 == rank) && dims[dims.size() + 1 - rank] == x[1] &&
         numel(dims) == x[1];
}

void split(Graph& graph, const PassContext& context, GraphNode* node) {
  const NormalizationParams& params = node->as<Normalization>()->params();
  GraphValue *const x = node->inputs[0], *const scale = node->input(1),
                    *const bias = node->input(2);
  const SymShape& dims = x->info.dims;
  if (context.device.is_host() || node->precision || node->outputs[0]->stored_type ||
      !is_worth(params, context.ranges.opt(dims)) || !is_per_channel(scale, dims) ||
      !is_per_channel(bias, dims))
    return;
  const auto op = std::make_shared<GroupStatistics>(params);
  const std::vector<GraphValue*> inputs = {x, scale};
  GraphValue mean, factor;
  mean.info.dtype = factor.info.dtype = DataType::kFLOAT;
  mean.info.dims = SymShape(dims.size(), Expr(1));
  mean.info.dims[0] = dims[0], mean.info.dims[1] = dims[1];
  factor.info.dims = mean.info.dims;
  GraphNode like;
  like.name = node->name, like.outputs = {&mean, &factor};
  if (!context.can_run(*op, like, inputs)) return;
  GraphNode* const statistics =
      graph.insert_before(node, op, inputs, mean.info, node->name + " statistics");
  graph.add_output(statistics, factor.info, node->name + " factor");

  using Op = ElementWiseOperation;
  constexpr DataType kFloat = DataType::kFLOAT;
  ProgramWriter writer;
  std::vector<GraphValue*> operands = {x, statistics->outputs[0], statistics->outputs[1]};
  int y = writer.binary(Op::kSUB, writer.input(0, x->info.dtype), writer.input(1, kFloat));
  y = writer.binary(Op::kPROD, y, writer.input(2, kFloat));
  if (bias != nullptr) {
    y = writer.binary(Op::kSUM, y, writer.input(3, bias->info.dtype));
    operands.push_back(bias);
  }
  const int results[] = {y};
  std::vector<int> used;
  PointwiseParams program = writer.finish(results, &used);
  graph.replace(node, std::make_shared<Pointwise>(std::move(program)), std::move(operands));
}

}  // namespace

void split_normalizations(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    const auto* op = node->as<Normalization>();
    if (op != nullptr && !op->params().rms) split(graph, context, node);
  }
}

}  // namespace opwright
