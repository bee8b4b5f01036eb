#include <algorithm>

#include "base/error.h"
#include "base/types.h"
#include "plugin/abi/v3_quick_plugin.h"
#include "plugin/kernel/descriptors.h"
#include "plugin/model/autotune.h"

namespace opwright {

std::vector<PluginTensorDesc> list_combinations(const V3QuickPlugin& plugin, std::string_view layer,
                                                std::span<const DynamicPluginTensorDesc> ports,
                                                int num_inputs) {
  // A number that no plugin means, rather than memory for it.
  constexpr int32_t kMaxCombinations = 10000;
  const auto num_outputs = static_cast<int32_t>(ports.size()) - num_inputs;
  const int32_t count = plugin.call(layer, [&] {
    return plugin.build().getNbSupportedFormatCombinations(ports.data(), num_inputs, num_outputs);
  });
  if (count < 1 || count > kMaxCombinations)
    plugin.reject(layer, "getNbSupportedFormatCombinations() returned ", count, "; expected 1 to ",
                  kMaxCombinations,
                  " combinations of types and formats, each with an entry for every input and "
                  "output");
  PluginTensorDesc unset{};
  unset.type = static_cast<DataType>(-1);
  unset.scale = -1;
  std::vector<PluginTensorDesc> listed(static_cast<size_t>(count) * ports.size(), unset);
  plugin.call(layer, "getSupportedFormatCombinations", [&] {
    return plugin.build().getSupportedFormatCombinations(ports.data(), num_inputs, num_outputs,
                                                         listed.data(), count);
  });
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto type = static_cast<int32_t>(listed[i].type);
    const auto format = static_cast<int32_t>(listed[i].format);
    if (type < 0 || type >= EnumMax<DataType>() || format < 0 || format >= EnumMax<TensorFormat>())
      plugin.reject(layer, "getSupportedFormatCombinations() gave port ", i % ports.size(),
                    " of combination ", i / ports.size(), " the type ", type, " and the format ",
                    format, "; expected values of DataType and TensorFormat");
  }
  return listed;
}

std::vector<Candidate> quick_candidates(const V3QuickPlugin& plugin, const CandidateQuery& query,
                                        int num_shape_inputs) {
  const size_t num_inputs = query.inputs.size() - static_cast<size_t>(num_shape_inputs);
  std::vector<DynamicPluginTensorDesc> ports = describe(query.inputs.first(num_inputs));
  for (const DynamicPluginTensorDesc& output : describe(query.outputs)) ports.push_back(output);
  const std::vector<PluginTensorDesc> listed =
      list_combinations(plugin, query.layer, ports, static_cast<int>(num_inputs));

  std::vector<std::pair<int, int>> aliased;
  for (size_t o = 0; o < query.outputs.size(); ++o) {
    const int input =
        plugin.aliased_input(query.layer, static_cast<int>(o), static_cast<int>(num_inputs));
    if (input >= 0) aliased.emplace_back(input, o);
  }
  std::vector<Candidate> combinations;
  for (size_t first = 0; first < listed.size(); first += ports.size()) {
    Candidate candidate;
    for (size_t p = 0; p < ports.size(); ++p)
      (p < num_inputs ? candidate.inputs : candidate.outputs)
          .push_back({listed[first + p].type, listed[first + p].format});
    for (size_t i = num_inputs; i < query.inputs.size(); ++i)
      candidate.inputs.push_back({query.inputs[i].type.dtype, TensorFormat::kLINEAR});
    const bool shares_memory = std::all_of(aliased.begin(), aliased.end(), [&](const auto& pair) {
      return candidate.inputs[pair.first] == candidate.outputs[pair.second];
    });
    std::string reason =
        shares_memory ? obstacle(candidate, query)
                      : "an output is aliased to an input, so that they must have the same type "
                        "and format";
    if (!reason.empty()) {
      if (query.dropped != nullptr)
        query.dropped->push_back({std::move(candidate), std::move(reason)});
    } else if (std::find(combinations.begin(), combinations.end(), candidate) ==
               combinations.end()) {
      combinations.push_back(std::move(candidate));
    }
  }
  if (combinations.empty())
    plugin.reject(query.layer,
                  "getSupportedFormatCombinations() lists no combination of types and formats that "
                  "is possible; the network's types are ",
                  describe_types(query),
                  query.strongly_typed
                      ? " and the network is strongly typed"
                      : "; allow lower precision in the builder config, or cast the inputs");

  std::vector<Candidate> candidates;
  for (Candidate& candidate : combinations) {
    for (size_t p = 0; p < ports.size(); ++p) {
      const bool is_input = p < num_inputs;
      ports[p] = describe(is_input ? query.inputs[p] : query.outputs[p - num_inputs],
                          is_input ? candidate.inputs[p] : candidate.outputs[p - num_inputs]);
    }
    plugin.configure(query.layer, std::span(ports).first(num_inputs),
                     std::span(ports).subspan(num_inputs));
    for (const int32_t tactic : plugin.tactics(query.layer)) {
      candidate.tactic = tactic;
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

}  // namespace opwright
