#include "tensorrt/abi/weights_by_role.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace opwright::tensorrt {
namespace {

struct Listing {
  std::vector<const char*> names, layers;
  std::vector<WeightsRole> roles;
};

Listing listing(IRefitter& refitter, Listed which) {
  const bool all = which == Listed::kAll;
  const int32_t count =
      all ? refitter.getAllWeights(0, nullptr) : refitter.getMissingWeights(0, nullptr);
  Listing found{std::vector<const char*>(count), std::vector<const char*>(count),
                std::vector<WeightsRole>(count)};
  if (all) {
    refitter.getAllWeights(count, found.names.data());
    refitter.getAll(count, found.layers.data(), found.roles.data());
  } else {
    refitter.getMissingWeights(count, found.names.data());
    refitter.getMissing(count, found.layers.data(), found.roles.data());
  }
  return found;
}

/// Whether the name is that of the output of a constant layer that nobody named, such as
/// "Constant 12_output_0".
bool is_made_up(std::string_view name) {
  constexpr std::string_view kFirst = "Constant ", kLast = "_output_0";
  if (!name.starts_with(kFirst) || !name.ends_with(kLast)) return false;
  name.remove_prefix(kFirst.size());
  name.remove_suffix(kLast.size());
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

constexpr const char* kRoleWords[] = {"KERNEL", "BIAS", "SHIFT", "SCALE", "CONSTANT"};

/// TensorRT's word for a role; null for none.
const char* word_of(WeightsRole role) {
  const auto number = static_cast<size_t>(role);
  return number < std::size(kRoleWords) ? kRoleWords[number] : nullptr;
}

struct LayerAndRole {
  std::string_view layer;
  WeightsRole role;
};

/// What a name such as "conv1 KERNEL" says, if it is one.
std::optional<LayerAndRole> split(std::string_view name) {
  const size_t space = name.rfind(' ');
  if (space == name.npos) return std::nullopt;
  const auto* const word = std::ranges::find(kRoleWords, name.substr(space + 1));
  if (word == std::end(kRoleWords)) return std::nullopt;
  return LayerAndRole{name.substr(0, space), static_cast<WeightsRole>(word - kRoleWords)};
}

/// TensorRT's name of weights that have a role.
std::string name_by_role(const char* layer, const char* word) {
  return std::string(layer) + ' ' + word;
}

/// The tensor with a layer's weights in that role; null for none.
const ITensor* weights_of(const ILayer& layer, WeightsRole role) {
  const LayerType type = layer.getType();
  const bool is_window = type == LayerType::kCONVOLUTION || type == LayerType::kDECONVOLUTION;
  const auto input = [&](bool has_role, int32_t index) -> const ITensor* {
    return has_role && index < layer.getNbInputs() ? layer.getInput(index) : nullptr;
  };
  switch (role) {
    case WeightsRole::kKERNEL:
      return input(is_window, 1);
    case WeightsRole::kBIAS:
      return input(is_window, 2);
    case WeightsRole::kSHIFT:
      return input(type == LayerType::kSCALE, 1);
    case WeightsRole::kSCALE:
      return input(type == LayerType::kSCALE, 2);
    case WeightsRole::kCONSTANT:
      return type == LayerType::kCONSTANT ? layer.getOutput(0) : nullptr;
    default:
      return nullptr;
  }
}

/// Opwright's names by TensorRT's.
using OwnNames = std::unordered_map<std::string, std::string>;

OwnNames own_names(IRefitter& refitter) {
  const Listing found = listing(refitter, Listed::kAll);
  OwnNames names;
  for (size_t i = 0; i < found.names.size(); ++i) {
    const char* const word = word_of(found.roles[i]);
    if (word != nullptr && is_made_up(found.names[i]))
      names.try_emplace(name_by_role(found.layers[i], word), found.names[i]);
  }
  return names;
}

/// Names of the refitters that were asked for one. An engine's weights keep their names.
struct KnownNames {
  std::mutex mutex;
  std::unordered_map<const IRefitter*, OwnNames> all;
};

KnownNames& known_names() {
  static auto* const kept = new KnownNames;  // refitters may be deleted while the process ends
  return *kept;
}

/// A copy that stays until the process ends.
const char* lasting(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace

int32_t list_weights(IRefitter& refitter, Listed which, int32_t size, char const** names) {
  const Listing found = listing(refitter, which);
  const auto count = static_cast<int32_t>(found.names.size());
  for (int32_t i = 0; names != nullptr && i < std::min(size, count); ++i) {
    const char* const word = word_of(found.roles[i]);
    names[i] = word != nullptr && is_made_up(found.names[i])
                   ? lasting(name_by_role(found.layers[i], word))
                   : found.names[i];
  }
  return count;
}

std::string own_name_of_weights(const IRefitter& refitter, const char* name) {
  if (!split(name)) return name;
  KnownNames& known = known_names();
  const std::lock_guard lock(known.mutex);
  const auto [entry, is_new] = known.all.try_emplace(&refitter);
  if (is_new) entry->second = own_names(const_cast<IRefitter&>(refitter));
  const auto found = entry->second.find(name);
  return found == entry->second.end() ? name : found->second;
}

std::string own_name_of_weights(const INetworkDefinition& network, const char* name) {
  const std::optional<LayerAndRole> given = split(name);
  if (!given) return name;
  for (int32_t i = 0; i < network.getNbLayers(); ++i) {
    const ILayer& layer = *network.getLayer(i);
    if (given->layer != layer.getName()) continue;
    const ITensor* const tensor = weights_of(layer, given->role);
    if (tensor != nullptr && is_made_up(tensor->getName())) return tensor->getName();
  }
  return name;
}

void destroy_refitter(void* refitter) {
  auto* const own = static_cast<IRefitter*>(refitter);
  {
    KnownNames& known = known_names();
    const std::lock_guard lock(known.mutex);
    known.all.erase(own);
  }
  delete own;
}

}  // namespace opwright::tensorrt
