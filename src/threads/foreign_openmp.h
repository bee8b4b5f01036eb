#pragma once

namespace opwright::threads {

/// Stops the threads that loops of the calling thread left behind in foreign OpenMP libraries
/// (libgomp, libomp, libiomp5, and copies of them). After a loop, such threads look for work for
/// milliseconds, each on a core. The next loop of such a library starts new threads. Without such a
/// library the call does nothing and costs some tens of nanoseconds; otherwise some tens of
/// microseconds per thread.
void pause_foreign_openmp();

}  // namespace opwright::threads
