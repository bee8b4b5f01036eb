#include "runtime/api_border.h"

#include <cstring>

namespace opwright {

void ErrorReport::report(ErrorCode code, const char* message) const noexcept {
  try {
    log_.error(message);
  } catch (...) {
    // No memory for the text; the method's result still says that it failed.
  }
  record(code, message);
}

void ErrorReport::record(ErrorCode code, const char* message) const noexcept {
  if (recorder_ == nullptr) return;
  char text[IErrorRecorder::kMAX_DESC_LENGTH + 1] = {};
  std::strncpy(text, message, IErrorRecorder::kMAX_DESC_LENGTH);
  recorder_->reportError(code, text);
}

}  // namespace opwright
