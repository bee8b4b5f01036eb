#include "plan/tuning_table.h"

#include "base/text_table.h"
#include "base/units.h"

namespace opwright {

std::string tactic_text(int64_t tactic, const std::string& name) {
  if (tactic == 0 && !name.empty()) return name;
  return std::to_string(tactic) + (name.empty() ? "" : " " + name);
}

bool is_chosen(const TimedCandidate& candidate, const Candidate& chosen) {
  // A chosen candidate without a name takes that of its kernel.
  return candidate.dropped.empty() && candidate.tactic == chosen.tactic &&
         candidate.types == str(chosen) &&
         (candidate.tactic_name.empty() || candidate.tactic_name == chosen.tactic_name);
}

std::string tuning_table(std::span<const TimedCandidate> considered, const Candidate& chosen,
                         std::span<const std::string> notes) {
  std::vector<std::vector<std::string>> rows = {{"", "types", "tactic", "time", "reformats", ""}};
  for (size_t i = 0; i < considered.size(); ++i) {
    const TimedCandidate& item = considered[i];
    std::string note = notes.empty() ? "" : notes[i];
    if (!item.dropped.empty()) note = "dropped: " + item.dropped;
    rows.push_back({is_chosen(item, chosen) ? "*" : "", item.types,
                    tactic_text(item.tactic, item.tactic_name), time_text(item.time_ms),
                    time_text(item.reformat_ms), std::move(note)});
  }
  return text_table(rows, "lllrrl");
}

}  // namespace opwright
