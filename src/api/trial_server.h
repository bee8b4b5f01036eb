#pragma once

namespace opwright {

/// Runs what the parent asks for over standard input (compile/trial_process.h) on the device of
/// that name, and ends the process once the parent is done or the device's context is lost. Returns
/// its status where the device cannot be used.
int serve_trials(const char* device_name);

}  // namespace opwright
