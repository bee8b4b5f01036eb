#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// What is asked of a plugin's supportsFormatCombination().
struct FormatSearch {
  const CandidateQuery& query;
  /// The inputs that the plugin is asked about, the first ones. Those after them are shape tensors,
  /// which keep the network's types.
  int num_inputs = 0;
  /// The most combinations that are wanted.
  size_t limit = 0;
  /// Inputs and the outputs that share their memory, and so have their type and format.
  std::vector<std::pair<int, int>> aliased;
  /// Whether the type and format of `ports[pos]` can be had together with those before it. Inputs
  /// come first; entries after `pos` are not set.
  std::function<bool(int pos, std::span<const DynamicPluginTensorDesc> ports)> supports;
};

/// Every combination of types and formats that the plugin supports, found port by port as TensorRT
/// does, so that a port's alternatives are only tried with what was accepted before it.
/// Combinations in LINEAR come first. Throws Error that begins with `owner` when there is none.
std::vector<Candidate> search_formats(const FormatSearch& search, std::string_view owner);

}  // namespace opwright
