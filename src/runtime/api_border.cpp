#include "runtime/api_border.h"

namespace opwright {

void ErrorReport::report(ErrorCode code, const char* message) const noexcept {
  try {
    log_.error(message);
    if (recorder_ == nullptr) return;
    const std::string text = std::string(message).substr(0, IErrorRecorder::kMAX_DESC_LENGTH);
    recorder_->reportError(code, text.c_str());
  } catch (...) {
    // No memory for the text; the method's result still says that it failed.
  }
}

}  // namespace opwright
