#include "compile/build_progress.h"

#include "base/error.h"

namespace opwright {

void BuildProgress::operator()(const std::string& phase, int done, int total,
                               const GraphNode* node) const {
  if (node != nullptr)
    budget_.check_time(phase, " layer '", node->name, "', ", done, " of ", total);
  else
    budget_.check_time(phase);
  if (config_.progress && !config_.progress(phase, done, total))
    throw BuildCancelledError(
        str("The build was cancelled by its progress callback in '", phase, "'"));
  if (config_.interrupt_check) config_.interrupt_check();
}

}  // namespace opwright
