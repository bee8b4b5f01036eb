#pragma once

namespace opwright {

/// Runs the parent's requests over standard input (compile/trial_process.h) on the device of that
/// name. Ends the process once the parent is done or the device's context is lost. Returns the
/// process's status where the device cannot be used.
int serve_trials(const char* device_name);

}  // namespace opwright
