#include "onnx/recurrent_body.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "compile/expansion.h"
#include "control/body.h"
#include "control/regions.h"
#include "network/constant.h"

namespace opwright::onnx {
namespace {

constexpr int kMostCellNodes = 256;

/// What tensors of a body that are the same in all iterations are in the network around it.
class TensorsOutside {
 public:
  TensorsOutside(NodeImporter& node, const BodyNetwork& body,
                 const std::unordered_set<const Layer*>& repeated)
      : network_(node.network()),
        body_(*body.network),
        copies_(
            network_, [](const Tensor&) -> Tensor* { return nullptr; }, "/" + node.name()) {
    for (size_t i = 0; i < body.captured.size(); ++i)
      if (const Tensor* input = body_.find_tensor(capture_input(static_cast<int>(i))))
        copies_.set(*input, body.captured[i]), inputs_.insert(input);
    for (const Layer* layer : body_.topological_order())
      if (!repeated.contains(layer)) layers_.insert(layer), order_.push_back(layer);
    find_constants();
  }

  /// Extents in a body have symbols of its own.
  bool may_leave(const Tensor& tensor) const {
    for (const Layer* layer : layers_behind({&tensor}, layers_)) {
      if (done_.contains(layer)) continue;
      if (const auto* values = dynamic_cast<const Values*>(layer->op().get()))
        if (!is_constant(values->params().values)) return false;
      for (const Tensor* input : layer->inputs())
        if (input != nullptr && input->producer() == nullptr && !inputs_.contains(input))
          return false;
    }
    return tensor.producer() != nullptr || inputs_.contains(&tensor);
  }

  Tensor* operator()(const Tensor& tensor) {
    const std::unordered_set<const Layer*> needed = layers_behind({&tensor}, layers_);
    for (const Layer* layer : order_) {
      if (!needed.contains(layer) || !done_.insert(layer).second) continue;
      const int before = network_.num_layers();
      copies_.add(std::array{layer});
      network_.weight_names().copy(body_.weight_names(), *layer, *network_.layer(before));
    }
    return copies_(tensor);
  }

 private:
  /// Constants of the network around it keep their place, by which an engine can be refitted.
  void find_constants() {
    std::unordered_map<const void*, std::vector<const Layer*>> inside;
    for (const Layer* layer : order_)
      if (const auto* constant = dynamic_cast<const Constant*>(layer->op().get()))
        if (constant->params().data) inside[constant->params().data.data()].push_back(layer);
    for (int i = 0; i < network_.num_layers() && !inside.empty(); ++i) {
      const Layer& layer = *network_.layer(i);
      const auto* constant = dynamic_cast<const Constant*>(layer.op().get());
      if (constant == nullptr) continue;
      const auto found = inside.find(constant->params().data.data());
      if (found == inside.end()) continue;
      for (const Layer* same : found->second) {
        const auto& params = static_cast<const Constant&>(*same->op()).params();
        if (params.dtype != constant->params().dtype || params.shape != constant->params().shape)
          continue;
        copies_.set(*same->output(0), layer.output(0));
        done_.insert(same);
      }
    }
  }

  Network& network_;
  const Network& body_;
  LayerCopies copies_;
  std::unordered_set<const Tensor*> inputs_;
  std::unordered_set<const Layer*> layers_, done_;
  std::vector<const Layer*> order_;
};

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
  TensorsOutside outside(node, body, loop.layers);
  loop.elements = std::move(tensors.elements);
  if (loop.elements.empty())
    // What picks by the iteration's number is what iterates.
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
