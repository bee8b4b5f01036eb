#include <algorithm>

#include "plugin/abi/v3_plugin.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/model/format_search.h"

namespace opwright {

std::vector<Candidate> v3_candidates(const V3Plugin& plugin, const CandidateQuery& query,
                                     int num_shape_inputs) {
  const int num_inputs = static_cast<int>(query.inputs.size()) - num_shape_inputs;
  const int num_outputs = static_cast<int>(query.outputs.size());
  FormatSearch search{query, num_inputs, 0, {}, {}};
  for (int o = 0; o < num_outputs; ++o) {
    const int input = plugin.aliased_input(query.layer, o, num_inputs);
    if (input >= 0) search.aliased.emplace_back(input, o);
  }
  const int limit =
      plugin.call(query.layer, [&] { return plugin.build().getFormatCombinationLimit(); });
  search.limit = static_cast<size_t>(std::max(limit, 0));
  search.supports = [&](int pos, std::span<const DynamicPluginTensorDesc> ports) {
    return plugin.call(query.layer, [&] {
      return plugin.build().supportsFormatCombination(pos, ports.data(), num_inputs, num_outputs);
    });
  };

  std::vector<Candidate> candidates;
  for (Candidate& candidate : search_formats(search, plugin.prefix(query.layer))) {
    std::vector<DynamicPluginTensorDesc> inputs, outputs;
    for (int i = 0; i < num_inputs; ++i)
      inputs.push_back(describe(query.inputs[i], candidate.inputs[i]));
    for (int o = 0; o < num_outputs; ++o)
      outputs.push_back(describe(query.outputs[o], candidate.outputs[o]));
    plugin.configure(query.layer, inputs, outputs);
    for (const int32_t tactic : plugin.tactics(query.layer)) {
      candidate.tactic = tactic;
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

}  // namespace opwright
