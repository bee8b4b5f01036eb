#include "compile/tuning_report.h"

#include <optional>

#include "base/error.h"
#include "plan/tuning_table.h"
#include "plugin/model/plugin_model.h"

namespace opwright {

std::string kind_of(const Operator& op) {
  std::string text(op.kind());
  if (const PluginModel* const plugin = op.plugin()) text += " '" + plugin->identity().name + "'";
  return text;
}

std::string who_computes(const GraphNode& node) {
  const PluginModel* const plugin = node.op->plugin();
  return plugin != nullptr ? str("plugin ", str(plugin->identity()), " ") : "it ";
}

void report_tuning(const GraphNode& node, TunedNode& tuned, int chosen,
                   const std::vector<double>& reformats, const Log& log) {
  const TunedOption& option = tuned.options[chosen];
  for (size_t i = 0; i < option.parts.size(); ++i)
    report_tuning(node.parts->nodes[i], tuned.parts[i], option.parts[i],
                  std::vector<double>(tuned.parts[i].options.size()), log);
  if (tuned.considered.empty()) return;  // there was no choice
  int candidates = 0, timed = 0, cached = 0;
  std::vector<std::string> notes;
  for (size_t i = 0; i < tuned.considered.size(); ++i) {
    TimedCandidate& item = tuned.considered[i];
    const TunedNode::Source& source = tuned.sources[i];
    if (source.option >= 0) item.reformat_ms = static_cast<float>(reformats[source.option]);
    candidates += item.dropped.empty();
    cached += source.is_cached;
    timed += item.time_ms > 0 && !source.is_cached;
    notes.push_back(!source.same_as.empty() ? "as layer '" + source.same_as + "'"
                    : source.is_cached      ? "timing cache"
                                            : "");
  }
  std::string table = tuning_table(tuned.considered, option.candidate, notes);
  table.pop_back();  // the logger ends the line
  log.verbose("Layer '", node.name, "' (", kind_of(*node.op), "): ", candidates, " candidates, ",
              timed, " timed, ", cached, " found in the timing cache\n", table);
}

std::vector<TimedCandidate> fusion_compared(const TunedNode& tuned, const TunedOption& chosen) {
  std::optional<TimedCandidate> fused, unfused;
  for (size_t i = 0; i < tuned.considered.size(); ++i) {
    const TimedCandidate& each = tuned.considered[i];
    const int option = tuned.sources[i].option;
    if (option < 0) continue;
    if (tuned.options[option].candidate == chosen.candidate)
      unfused = each;
    else if (tuned.options[option].parts.empty() && (!fused || each.time_ms < fused->time_ms))
      fused = each;
  }
  std::vector<TimedCandidate> result;
  if (fused && unfused) {
    fused->tactic_name = "fused: " + tactic_text(fused->tactic, fused->tactic_name);
    fused->tactic = 0;
    result = {std::move(*unfused), std::move(*fused)};
  }
  return result;
}

}  // namespace opwright
