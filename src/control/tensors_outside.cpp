#include "control/tensors_outside.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "control/body.h"
#include "control/regions.h"
#include "network/constant.h"

namespace opwright {

TensorsOutside::TensorsOutside(Network& network, const Network& body,
                               std::span<Tensor* const> captured,
                               const std::unordered_set<const Layer*>& repeated, std::string suffix)
    : network_(network),
      body_(body),
      copies_(
          network_, [](const Tensor&) -> Tensor* { return nullptr; }, std::move(suffix)) {
  for (size_t i = 0; i < captured.size(); ++i)
    if (const Tensor* input = body_.find_tensor(capture_input(static_cast<int>(i))))
      copies_.set(*input, captured[i]), inputs_.insert(input);
  for (const Layer* layer : body_.topological_order())
    if (!repeated.contains(layer)) layers_.insert(layer), order_.push_back(layer);
  find_constants();
}

bool TensorsOutside::may_leave(const Tensor& tensor) const {
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

Tensor* TensorsOutside::operator()(const Tensor& tensor) {
  const std::unordered_set<const Layer*> needed = layers_behind({&tensor}, layers_);
  for (const Layer* layer : order_) {
    if (!needed.contains(layer) || !done_.insert(layer).second) continue;
    const int before = network_.num_layers();
    copies_.add(std::array{layer});
    network_.weight_names().copy(body_.weight_names(), *layer, *network_.layer(before));
  }
  return copies_(tensor);
}

/// Finds constants of the network around the body. They stay there, so that an engine can be
/// refitted with them.
void TensorsOutside::find_constants() {
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

}  // namespace opwright
