#pragma once

/// \file
/// Beyond TensorRT: the threads that engines on the CPU compute with. A process has one pool of
/// them, whoever calls; a call that finds the cores busy uses fewer.

#include <cstdint>

#include "types.h"

/// Behind opwright::setMaxThreads() and getMaxThreads().
extern "C" OPWRIGHT_API bool opwrightSetMaxThreads(int32_t maxThreads) noexcept;
extern "C" OPWRIGHT_API int32_t opwrightGetMaxThreads() noexcept;

namespace opwright {

/// Threads that compute at once in this process, those that call among them. At first
/// OMP_NUM_THREADS or, without it, the cores that the process may use: those of its affinity mask,
/// at most its control group's CPU quota rounded up, both as they are at the moment. More than
/// these are never used. Contexts that exist keep what they divide their work among, see
/// IExecutionContext::setMaxThreads(). \param maxThreads 0: as at first. \return false, and nothing
/// is set, for less than 0 or more than 4096.
inline bool setMaxThreads(int32_t maxThreads) noexcept { return opwrightSetMaxThreads(maxThreads); }
/// In a plugin's enqueue() those of the run that calls it.
inline int32_t getMaxThreads() noexcept { return opwrightGetMaxThreads(); }

}  // namespace opwright
