#pragma once

namespace opwright::threads {

/// Cores that this process may use at the moment, 1 or more: those of its affinity mask, which is
/// that of its first thread, but at most what the CPU quotas of its control groups (version 1 and
/// 2) pay for, rounded up. Reads files: some microseconds.
int available_cores();

}  // namespace opwright::threads
