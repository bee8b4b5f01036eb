#include "compile/passes.h"

#include "compile/ports.h"

namespace opwright {

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
  return !candidates(op, like, inputs).empty();
}

void run_passes(Graph& graph, const PassContext& context) {
  const auto check_time = [&] {
    if (context.budget != nullptr)
      context.budget->check_time("optimizing ", graph.size(), " layers");
  };
  agree_extents(graph, context);
  fold_shapes(graph);
  graph.remove_dead();
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
  if (context.fuses_attention) recognize_attention(graph, context);
  graph.remove_dead();
  recognize_channel_shuffles(graph, context);
  separate_pixels(graph);
  graph.remove_dead();
  check_time();
  fold_scales(graph, context);
  graph.remove_dead();
  fuse_epilogues(graph, context, false);
  graph.remove_dead();
  swap_attention_axes(graph);
  graph.remove_dead();
  merge_projections(graph, context);
  graph.remove_dead();
  check_time();
  fuse_pointwise(graph);
  graph.remove_dead();
  recognize_activations(graph);
  fuse_epilogues(graph, context, true);
  graph.remove_dead();
  drop_roundings(graph);
}

}  // namespace opwright
