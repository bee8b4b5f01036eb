#include "network/weight_names.h"

#include <algorithm>

#include "base/error.h"
#include "network/constant.h"
#include "network/network.h"

namespace opwright {
namespace {

const Constant* constant_of(const Layer& layer) {
  return dynamic_cast<const Constant*>(layer.op().get());
}

}  // namespace

const std::string& WeightNames::name(const Layer& constant) const {
  const auto found = names_.find(&constant);
  return found == names_.end() ? constant.output(0)->name() : found->second;
}

bool has_refittable_weights(const Layer& layer) {
  const Constant* const constant = constant_of(layer);
  return constant != nullptr && constant->params().data.size() > 0 &&
         layer.output(0)->info().values == nullptr &&
         !layer.network().weight_names().is_fixed(layer);
}

std::vector<const Layer*> constants_named(const Network& network, std::string_view name) {
  std::vector<const Layer*> found;
  for (int i = 0; i < network.num_layers(); ++i) {
    const Layer& layer = *network.layer(i);
    if (has_refittable_weights(layer) && network.weight_names().name(layer) == name)
      found.push_back(&layer);
  }
  return found;
}

void set_weights_name(Network& network, std::span<const void* const> elements, std::string name) {
  require(!name.empty(), "set_weights_name: the name is empty");
  std::vector<const Layer*> named;
  for (int i = 0; i < network.num_layers(); ++i) {
    const Layer& layer = *network.layer(i);
    const Constant* const constant = constant_of(layer);
    if (constant == nullptr || constant->params().data.size() == 0) continue;
    const void* const data = constant->params().data.data();
    if (std::find(elements.begin(), elements.end(), data) != elements.end())
      named.push_back(&layer);
  }
  require(!named.empty(), "set_weights_name, '", name,
          "': no layer of the network has these weights; name them after a layer was given them, "
          "with the array that it was given");
  for (const Layer* other : constants_named(network, name)) {
    const Blob& data = constant_of(*other)->params().data;
    require(data == constant_of(*named.front())->params().data, "set_weights_name: '", name,
            "' is the name of other weights of the network already");
  }
  for (const Layer* layer : named) network.weight_names().set_name(*layer, name);
}

bool mark_weights_refittable(Network& network, const std::string& name, bool refittable) {
  if (constants_named(network, name).empty()) return false;
  if (refittable) {
    network.weight_names().mark(name);
  } else {
    network.weight_names().unmark(name);
  }
  return true;
}

bool are_weights_marked_refittable(const Network& network, const std::string& name) {
  return network.weight_names().is_marked(name) && !constants_named(network, name).empty();
}

}  // namespace opwright
