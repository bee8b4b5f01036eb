#include "tensorrt/abi/weights_by_role.h"

#include <algorithm>
#include <mutex>
#include <string_view>
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

/// TensorRT's word for a role; null for none.
const char* word_of(WeightsRole role) {
  constexpr const char* kWords[] = {"KERNEL", "BIAS", "SHIFT", "SCALE", "CONSTANT"};
  const auto number = static_cast<size_t>(role);
  return number < std::size(kWords) ? kWords[number] : nullptr;
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
                   ? lasting(std::string(found.layers[i]) + ' ' + word)
                   : found.names[i];
  }
  return count;
}

std::string own_name_of_weights(const IRefitter& refitter, const char* name) {
  const std::string_view given = name;
  const size_t space = given.rfind(' ');
  if (space == given.npos) return name;
  const std::string_view layer = given.substr(0, space), role = given.substr(space + 1);
  const Listing found = listing(const_cast<IRefitter&>(refitter), Listed::kAll);
  for (size_t i = 0; i < found.names.size(); ++i) {
    const char* const word = word_of(found.roles[i]);
    if (word != nullptr && role == word && layer == found.layers[i] && is_made_up(found.names[i]))
      return found.names[i];
  }
  return name;
}

}  // namespace opwright::tensorrt
