#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// A query to a plugin's supportsFormatCombination().
struct FormatSearch {
  const CandidateQuery& query;
  /// The number of inputs that the plugin is asked about. They come first. Inputs after them are
  /// shape tensors and keep the network's types.
  int num_inputs = 0;
  /// The most combinations to find.
  size_t limit = 0;
  /// Pairs of an input and an output that shares its memory, and so has its type and format.
  std::vector<std::pair<int, int>> aliased;
  /// Whether the plugin supports the type and format of `ports[pos]` together with those before it.
  /// Inputs come first. Entries after `pos` are not set.
  std::function<bool(int pos, std::span<const DynamicPluginTensorDesc> ports)> supports;
};

/// Finds all combinations of types and formats that the plugin supports, port by port as TensorRT
/// does: a port's alternatives are only tried with accepted ports before it. Combinations in LINEAR
/// come first. Throws Error when there is none. The message begins with `owner`.
std::vector<Candidate> search_formats(const FormatSearch& search, std::string_view owner);

}  // namespace opwright
