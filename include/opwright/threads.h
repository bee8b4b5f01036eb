#pragma once

/// \file
/// Beyond TensorRT: the threads with which engines on the CPU compute. A process has one pool of
/// threads for all callers. A call that finds the cores busy uses fewer.

#include <cstdint>

#include "types.h"

/// Implementation of opwright::setMaxThreads() and getMaxThreads().
extern "C" OPWRIGHT_API bool opwrightSetMaxThreads(int32_t maxThreads) noexcept;
extern "C" OPWRIGHT_API int32_t opwrightGetMaxThreads() noexcept;

namespace opwright {

/// The most threads that compute at once in this process, including calling threads. The default is
/// OMP_NUM_THREADS or, without it, the cores that the process may use: those of its affinity mask,
/// at most its control group's CPU quota rounded up, both as they are at the moment. More than
/// these are never used. Existing contexts keep the number among which they divide their work, see
/// IExecutionContext::setMaxThreads().
/// \param maxThreads 0: the default.
/// \return false for less than 0 or more than 4096, and nothing is set.
inline bool setMaxThreads(int32_t maxThreads) noexcept { return opwrightSetMaxThreads(maxThreads); }
/// In a plugin's enqueue(), the threads of the run that calls it.
inline int32_t getMaxThreads() noexcept { return opwrightGetMaxThreads(); }

}  // namespace opwright
