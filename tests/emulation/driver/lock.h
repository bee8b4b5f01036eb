#pragma once

#include <mutex>

namespace emulation {

/// Held during every call of the driver, but not while a host function runs.
std::mutex& driver_lock();

}  // namespace emulation
