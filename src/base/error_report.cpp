#include "base/error_report.h"

#include <cstring>

namespace opwright {

void ErrorReport::record(ErrorCode code, const char* message) const noexcept {
  // Keeps a reference during the report: another thread may set another recorder.
  IErrorRecorder* recorder = nullptr;
  {
    const std::lock_guard lock(mutex_);
    recorder = recorder_;
    if (recorder != nullptr) recorder->incRefCount();
  }
  if (recorder == nullptr) return;
  char text[IErrorRecorder::kMAX_DESC_LENGTH + 1] = {};
  std::strncpy(text, message, IErrorRecorder::kMAX_DESC_LENGTH);
  recorder->reportError(code, text);
  recorder->decRefCount();
}

void ErrorReport::report(ErrorCode code, const char* message) const noexcept {
  try {
    log_.error(message);
  } catch (...) {
    // There is no memory for the text. The method's result still says that it failed.
  }
  record(code, message);
}

void ErrorReport::report_exception(const char* prefix) const noexcept {
  ErrorCode code = ErrorCode::kUNSPECIFIED_ERROR;
  try {
    const auto told = [&](const char* what) { report(code, str(prefix, what).c_str()); };
    try {
      throw;
    } catch (const Error& error) {
      code = error.code();
      told(error.what());
    } catch (const std::bad_alloc&) {
      code = ErrorCode::kFAILED_ALLOCATION;
      told("there is not enough memory");
    } catch (const std::exception& error) {
      told(error.what());
    } catch (...) {
      told("an exception of an unknown type was thrown");
    }
  } catch (...) {
    record(code, "there is not enough memory for the message of an error");
  }
}

}  // namespace opwright
