#include "compile/tuning_report.h"

#include "base/error.h"
#include "plan/tuning_table.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

std::string kind_of(const Operator& op) {
  std::string text(op.kind());
  if (const auto* plugin = dynamic_cast<const PluginOperator*>(&op))
    text += " '" + plugin->model().identity().name + "'";
  return text;
}

void report_tuning(const GraphNode& node, TunedNode& tuned, int chosen,
                   const std::vector<double>& reformats, const Log& log) {
  if (tuned.considered.empty()) return;  // nothing to choose from
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
  std::string table = tuning_table(tuned.considered, tuned.options[chosen].candidate, notes);
  table.pop_back();  // the logger ends the line
  log.verbose("Layer '", node.name, "' (", kind_of(*node.op), "): ", candidates, " candidates, ",
              timed, " timed, ", cached, " found in the timing cache\n", table);
}

}  // namespace opwright
