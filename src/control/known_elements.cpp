#include "control/known_elements.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "compile/compile.h"
#include "operators/builtin.h"
#include "operators/host_run.h"
#include "operators/source.h"
#include "runtime/context.h"

namespace opwright {
namespace {

// Limits of elements and layers. Conditions come from few numbers and short calculations.
constexpr int64_t kMaxElements = 4096;
constexpr size_t kMaxLayers = 256;

std::optional<Blob> given_elements(const TensorInfo& info) {
  if (info.constant) return info.constant;
  if (!info.values || !is_constant(*info.values) || bits(info.dtype) < 8) return std::nullopt;
  Ints elements;
  for (const Expr& element : *info.values) elements.push_back(element.constant());
  return dense_values(elements, info.dtype);
}

bool is_small(const TensorInfo& info) {
  return is_constant(info.dims) && bits(info.dtype) >= 8 &&
         constant_shape(info.dims).numel() <= kMaxElements;
}

bool can_run(const Layer& layer) {
  const auto* fill = dynamic_cast<const Fill*>(layer.op().get());
  const bool is_random = fill != nullptr && fill->params().operation != FillOperation::kLINSPACE;
  return is_builtin_operator(layer.op()->kind()) && layer.op()->is_pure() && !is_random &&
         std::ranges::all_of(layer.outputs(),
                             [](const Tensor* output) { return is_small(output->info()); });
}

Blob run(const Network& network) {
  BuilderConfig config(device_of(DeviceType::kCPU));
  config.timing = false;
  Context context(Engine::load(compile(network, config), {}));
  const Tensor& result = *network.outputs()[0];
  return Blob::make(
      static_cast<size_t>(bytes_of(result.dtype(), constant_shape(result.dims()).numel())),
      [&](void* memory) {
        context.set_output_address(0, memory);
        context.enqueue();
      });
}

}  // namespace

std::optional<Blob> KnownElements::of(const Tensor& tensor) {
  if (std::optional<Blob> given = given_elements(tensor.info())) return given;
  if (const auto found = known_.find(&tensor); found != known_.end()) return found->second;
  std::optional<Blob>& result = known_[&tensor];
  // The layers that make the tensor, each after those that it depends on.
  Network network;
  std::unordered_map<const Tensor*, Tensor*> copies;
  std::vector<const Tensor*> pending = {&tensor};
  while (!pending.empty()) {
    const Tensor& next = *pending.back();
    if (copies.contains(&next)) {
      pending.pop_back();
      continue;
    }
    const TensorInfo& info = next.info();
    const auto known = known_.find(&next);
    const std::optional<Blob> given =
        known != known_.end() && known->second ? known->second : given_elements(info);
    if (given) {
      copies[&next] = network.add_constant(info.dtype, constant_shape(info.dims), *given);
      pending.pop_back();
      continue;
    }
    const Layer* const layer = next.producer();
    if (layer == nullptr || info.values || !can_run(*layer) ||
        static_cast<size_t>(network.num_layers()) + pending.size() > kMaxLayers)
      return std::nullopt;
    const size_t before = pending.size();
    std::vector<Tensor*> inputs;
    for (const Tensor* input : layer->inputs()) {
      const auto made = input != nullptr ? copies.find(input) : copies.end();
      if (input != nullptr && made == copies.end()) pending.push_back(input);
      inputs.push_back(made != copies.end() ? made->second : nullptr);
    }
    if (pending.size() > before) continue;
    const Layer* const copy = network.add_layer(layer->op(), inputs);
    for (int i = 0; i < layer->num_outputs(); ++i) copies[layer->output(i)] = copy->output(i);
    pending.pop_back();
  }
  network.mark_output(*copies[&tensor]);
  try {
    result = run(network);
  } catch (const Error&) {
    // The layers report their error when they run.
  }
  return result;
}

}  // namespace opwright
