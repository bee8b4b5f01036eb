#include "onnx/recurrent_body.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "control/tensors_outside.h"

namespace opwright::onnx {
namespace {

constexpr int kMostCellNodes = 256;

/// The layers that depend on one of the tensors.
std::unordered_set<const Layer*> layers_after(const Network& body,
                                              std::vector<const Tensor*> tensors) {
  std::unordered_set<const Tensor*> changing(tensors.begin(), tensors.end());
  std::unordered_set<const Layer*> layers;
  for (const Layer* layer : body.topological_order()) {
    if (std::ranges::none_of(layer->inputs(),
                             [&](const Tensor* input) { return changing.contains(input); }))
      continue;
    layers.insert(layer);
    changing.insert(layer->outputs().begin(), layer->outputs().end());
  }
  return layers;
}

/// Whether a tensor of the body is the iteration's number, or a view of it.
bool is_iteration(const Tensor* tensor, const Tensor* iteration) {
  while (tensor != nullptr && tensor != iteration) {
    const Layer* const layer = tensor->producer();
    if (layer == nullptr) return false;
    const std::string_view kind = layer->op()->kind();
    if (kind != Shuffle::kKind && kind != Cast::kKind && kind != Identity::kKind) return false;
    tensor = layer->input(0);
  }
  return tensor != nullptr && numel(tensor->dims()) == Expr(1);
}

}  // namespace

bool may_be_cell(const GraphProto& body) {
  static const std::unordered_set<std::string_view> kKinds = {
      "Add",     "Cast",        "Concat",   "Constant",  "Elu",       "Gather",    "Gemm",
      "Greater", "HardSigmoid", "Identity", "LeakyRelu", "Less",      "MatMul",    "Mul",
      "Neg",     "Relu",        "Reshape",  "Sigmoid",   "Slice",     "Softplus",  "Softsign",
      "Split",   "Squeeze",     "Sub",      "Tanh",      "Transpose", "Unsqueeze", "Where"};
  bool multiplies = false;
  for (const NodeProto& node : body.nodes) {
    if (!kKinds.contains(node.op_type) || !node.domain.empty()) return false;
    multiplies = multiplies || node.op_type == "MatMul" || node.op_type == "Gemm";
  }
  return multiplies && body.nodes.size() <= kMostCellNodes;
}

std::optional<RecurrentCellLayers> recognize_body(NodeImporter& node, const BodyNetwork& body,
                                                  BodyTensors tensors, Tensor* limit,
                                                  std::span<Tensor* const> first,
                                                  std::span<Tensor* const> next,
                                                  std::span<Tensor* const> stacked) {
  RepeatedLayers loop;
  loop.states.assign(tensors.states.begin(), tensors.states.end());
  loop.next.assign(next.begin(), next.end());
  loop.first.assign(first.begin(), first.end());
  loop.stacked.assign(stacked.begin(), stacked.end());
  loop.lengths.resize(stacked.size());
  loop.iteration = tensors.iteration;
  loop.limit = limit;
  if (limit == nullptr) return std::nullopt;
  if (const TensorInfo& info = limit->info(); info.values)
    loop.count = (*info.values)[0];
  else if (const std::optional<int64_t> known = node.known_int(limit))
    loop.count = Expr(std::max<int64_t>(0, *known));
  std::vector<const Tensor*> changing(loop.states);
  changing.push_back(loop.iteration);
  loop.layers = layers_after(*body.network, changing);
  TensorsOutside outside(node.network(), *body.network, body.captured, loop.layers,
                         "/" + node.name());
  loop.elements = std::move(tensors.elements);
  if (loop.elements.empty())
    // A gather by the iteration's number iterates over its input.
    for (const Layer* layer : loop.layers) {
      const auto* gather = dynamic_cast<const Gather*>(layer->op().get());
      if (gather == nullptr || gather->params().mode != GatherMode::kDEFAULT ||
          !is_iteration(layer->input(1), loop.iteration))
        continue;
      const Tensor& whole = *layer->input(0);
      if ((whole.producer() != nullptr && loop.layers.contains(whole.producer())) ||
          !outside.may_leave(whole))
        continue;
      const int64_t axis = gather->params().axis;
      loop.elements.push_back({layer->output(0), outside(whole),
                               static_cast<int>(axis < 0 ? axis + whole.rank() : axis), false});
    }
  loop.outside = [&](const Tensor& tensor) { return outside(tensor); };
  loop.may_leave = [&](const Tensor& tensor) { return outside.may_leave(tensor); };
  return recognize_recurrence(loop, node);
}

}  // namespace opwright::onnx
