#pragma once

namespace opwright::threads {

/// Cores that this process may use at the moment, 1 or more. They are those of its affinity mask,
/// which is that of its first thread, limited by the CPU quotas of its control groups (version 1
/// and 2), rounded up. Reads files: some microseconds.
int available_cores();

}  // namespace opwright::threads
