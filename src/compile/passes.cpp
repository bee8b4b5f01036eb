#include "compile/passes.h"

#include "base/error.h"
#include "compile/ports.h"
#include "operators/infer.h"

namespace opwright {
namespace {

struct FitContext final : InferContext {
  Expr declare_size_tensor(int, const Expr&, const Expr& upper_bound) override {
    return upper_bound;
  }
  bool is_non_negative(int) const override { return true; }
};

bool may_agree(const SymShape& a, const SymShape& b) {
  bool agree = a.size() == b.size();
  for (size_t i = 0; agree && i < a.size(); ++i) agree = !conflict(a[i], b[i]);
  return agree;
}

}  // namespace

bool fits(const Operator& op, std::string_view layer, const std::vector<GraphValue*>& inputs,
          const std::vector<GraphValue*>& outputs) {
  std::vector<const TensorInfo*> infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_known = inputs[i] != nullptr && !op.is_fed_back(static_cast<int>(i));
    infos.push_back(is_known ? &inputs[i]->info : nullptr);
  }
  FitContext context;
  context.inputs = infos;
  context.layer = layer;
  try {
    const std::vector<OutputInfo> inferred = op.infer(context);
    bool agree = inferred.size() == outputs.size();
    for (size_t i = 0; agree && i < outputs.size(); ++i)
      agree = may_agree(inferred[i].dims, outputs[i]->info.dims);
    return agree;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Candidate> PassContext::candidates(const Operator& op, const GraphNode& like,
                                               const std::vector<GraphValue*>& inputs) const {
  GraphNode node;
  node.inputs = inputs;
  node.outputs = like.outputs;
  const NodePorts ports = network_ports(node, ranges);
  CandidateQuery query;
  query.layer = like.name;
  query.inputs = ports.inputs;
  query.outputs = ports.outputs;
  query.device = &device;
  query.strongly_typed = true;
  return device.candidates(op, query);
}

bool PassContext::can_run(const Operator& op, const GraphNode& like,
                          const std::vector<GraphValue*>& inputs) const {
  return fits(op, like.name, inputs, like.outputs) && !candidates(op, like, inputs).empty();
}

void run_passes(Graph& graph, const PassContext& context) {
  const auto check_time = [&] {
    if (context.budget != nullptr)
      context.budget->check_time("optimizing ", graph.size(), " layers");
  };
  agree_extents(graph, context);
  fold_shapes(graph);
  graph.remove_dead();
  pick_rows(graph, context);
  move_quantization(graph, context);
  graph.remove_dead();
  quantize_products(graph, context);
  graph.remove_dead();
  lower(graph);
  simplify(graph);
  graph.remove_dead();
  check_time();
  fold_constants(graph, context);
  merge_equal(graph);
  simplify(graph);
  graph.remove_dead();
  check_time();

  fold_padding(graph, context);
  recognize_normalization(graph, context);
  recognize_rotary_embedding(graph, context);
  skip_reshapes(graph, context);
  graph.remove_dead();
  if (context.fuses_attention) recognize_attention(graph, context);
  graph.remove_dead();
  recognize_channel_shuffles(graph, context);
  graph.remove_dead();
  split_channel_shuffles(graph, context);
  separate_pixels(graph);
  graph.remove_dead();
  check_time();
  fold_scales(graph, context);
  graph.remove_dead();
  separate_spread(graph, context);
  graph.remove_dead();
  fuse_epilogues(graph, context, false);
  graph.remove_dead();
  swap_attention_axes(graph);
  graph.remove_dead();
  merge_projections(graph, context);
  graph.remove_dead();
  check_time();
  split_normalizations(graph, context);
  tabulate_bytes(graph, context);
  graph.remove_dead();
  fuse_pointwise(graph);
  graph.remove_dead();
  recognize_activations(graph);
  fuse_epilogues(graph, context, true);
  graph.remove_dead();
  recognize_squeeze_excitation(graph, context);
  graph.remove_dead();
  drop_roundings(graph);
  lay_columns(graph, context);
  turn_matrices(graph, context);
}

}  // namespace opwright
