#include "network/weight_names.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "network/constant.h"
#include "network/network.h"

namespace opwright {
namespace {

const Constant* constant_of(const Layer& layer) {
  return dynamic_cast<const Constant*>(layer.op().get());
}

/// Address of a constant's elements; null for other layers and for constants without elements.
const void* elements_of(const Layer& layer) {
  const Constant* const constant = constant_of(layer);
  return constant == nullptr || constant->params().data.size() == 0
             ? nullptr
             : constant->params().data.data();
}

template <class Map, class Key>
void erase_from(Map& map, const Key& key, const Layer& layer) {
  const auto found = map.find(key);
  if (found == map.end()) return;
  std::erase(found->second, &layer);
  if (found->second.empty()) map.erase(found);
}

template <class Map, class Key>
std::span<const Layer* const> layers_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  if (found == map.end()) return {};
  return found->second;
}

}  // namespace

void WeightNames::set_name(const Layer& constant, std::string name) {
  std::string& own = names_[&constant];
  if (!own.empty()) erase_from(by_name_, own, constant);
  by_name_[name].push_back(&constant);
  own = std::move(name);
}

std::span<const Layer* const> WeightNames::named(const std::string& name) const {
  return layers_in(by_name_, name);
}

void WeightNames::add_elements(const Layer& constant) {
  if (const void* const data = elements_of(constant)) by_elements_[data].push_back(&constant);
}

void WeightNames::forget_elements(const Layer& constant) {
  if (const void* const data = elements_of(constant)) erase_from(by_elements_, data, constant);
}

std::span<const Layer* const> WeightNames::of_elements(const void* data) const {
  return layers_in(by_elements_, data);
}

void WeightNames::forget(const Layer& constant) {
  forget_elements(constant);
  if (const auto found = names_.find(&constant); found != names_.end()) {
    erase_from(by_name_, found->second, constant);
    names_.erase(found);
  }
  fixed_.erase(&constant);
}

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

std::vector<const Layer*> constants_named(const Network& network, const std::string& name) {
  const WeightNames& names = network.weight_names();
  std::vector<const Layer*> found;
  for (const Layer* layer : names.named(name))
    if (has_refittable_weights(*layer)) found.push_back(layer);
  const Tensor* const tensor = network.find_tensor(name);
  const Layer* const own = tensor != nullptr ? tensor->producer() : nullptr;
  if (own != nullptr && !names.has_name(*own) && has_refittable_weights(*own)) found.push_back(own);
  return found;
}

void set_weights_name(Network& network, std::span<const void* const> elements, std::string name) {
  require(!name.empty(), "set_weights_name: the name is empty");
  std::vector<const Layer*> named;
  for (const void* const data : elements)
    for (const Layer* layer : network.weight_names().of_elements(data)) named.push_back(layer);
  require(!named.empty(), "set_weights_name, '", name,
          "': no layer of the network has these weights; name them after a layer was given them, "
          "with the array that it was given");
  for (const Layer* other : constants_named(network, name)) {
    const Blob& data = constant_of(*other)->params().data;
    require(data == constant_of(*named.front())->params().data, "set_weights_name: '", name,
            "' is the name of other weights of the network already");
  }
  WeightNames& names = network.weight_names();
  for (const Layer* layer : std::span(named).subspan(1)) names.set_name(*layer, name);
  names.set_name(*named.front(), std::move(name));
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
