#include "compile/candidate_failure.h"

#include <sstream>

#include "backend/device.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "plan/tuning_table.h"
#include "plugin/registry/callback.h"

namespace opwright {

std::string label_of(const Candidate& candidate) {
  return str(str(candidate), ", tactic ", tactic_text(candidate.tactic, candidate.tactic_name));
}

void rethrow_end(const std::exception_ptr& reason) {
  if (is_interrupt(reason)) std::rethrow_exception(reason);
  try {
    std::rethrow_exception(reason);
  } catch (const BuildEndError&) {
    throw;
  } catch (...) {
    return;
  }
}

void rethrow_lost_device(const std::exception_ptr& reason, const std::string& layer,
                         const Candidate& candidate) {
  try {
    std::rethrow_exception(reason);
  } catch (const DeviceLostError& error) {
    throw DeviceLostError(
        str("Layer '", layer, "', candidate ", label_of(candidate), ": ", error.what()));
  } catch (...) {
    return;
  }
}

bool is_error(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string text_of(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

std::string without_layer(std::string text, const GraphNode& node) {
  const std::string prefix = str("Layer '", node.name, "': ");
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  return text;
}

std::string without_warnings(const std::string& text) {
  std::istringstream lines(text);
  std::string line, kept;
  bool is_warning = false;
  while (std::getline(lines, line)) {
    // An indented line, or an empty one, belongs to the message before it.
    if (!line.empty() && !line.starts_with(' '))
      is_warning = line.find("): warning ") != std::string::npos ||
                   line.find(": warning: ") != std::string::npos || line.starts_with("Remark: ");
    if (!is_warning) kept += line + '\n';
  }
  if (!text.ends_with('\n') && !kept.empty()) kept.pop_back();
  return kept;
}

std::string headline(const std::string& text) {
  std::istringstream lines(text);
  std::string first, line, before;
  std::getline(lines, first);
  for (before = first; std::getline(lines, line); before = line) {
    const auto is_indented = [](const std::string& each) { return each.starts_with(' '); };
    if (!is_indented(before) && !is_indented(line)) return before;
  }
  return before.starts_with(' ') ? first : before;
}

}  // namespace opwright
