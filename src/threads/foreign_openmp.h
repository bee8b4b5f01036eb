#pragma once

namespace opwright::threads {

/// Lets the OpenMP libraries of others that are loaded (libgomp, libomp, libiomp5; copies of them,
/// too) put away the threads that loops of the calling thread left behind. They look for work for
/// milliseconds after a loop, each on a core. Their next loop starts new ones. Does nothing where
/// there is none; costs some tens of nanoseconds then, and some tens of microseconds a thread
/// otherwise.
void pause_foreign_openmp();

}  // namespace opwright::threads
