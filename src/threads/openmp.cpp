/// \file
/// The entry points of GCC's OpenMP runtime that oneDNN calls. The pool answers them, so that
/// oneDNN's loops and ours share the threads. The build gives these names to oneDNN's references
/// (cmake/Onednn.cmake), so that they are found here whatever OpenMP runtimes the process has
/// besides. Semantics: OpenMP 3.1, and libgomp's documentation of its ABI. Nested loops run on one
/// thread, as OpenMP does by default.

#include <algorithm>

#include "threads/team.h"

using opwright::threads::Place;
using opwright::threads::StaticLoop;
using opwright::threads::this_thread;

namespace {

/// The function that an OpenMP loop calls. Only the caller runs nested loops.
struct Region {
  void (*function)(void*) = nullptr;
  void* data = nullptr;
};
thread_local Region region;

void run_region(void* data, int, int) {
  const Region& region = *static_cast<const Region*>(data);
  region.function(region.data);
}

/// The next chunk of the calling thread's share; false when there is none left.
bool next_chunk(long* first, long* last) {
  Place& place = this_thread().place;
  StaticLoop& loop = place.loop;
  long begin, end;
  if (loop.chunk > 0) {
    begin = (loop.round * place.count + place.index) * loop.chunk;
    end = std::min(begin + loop.chunk, loop.count);
  } else {
    if (loop.round > 0) return false;
    const long share = (loop.count + place.count - 1) / place.count;
    begin = share * place.index;
    end = std::min(begin + share, loop.count);
  }
  if (begin >= loop.count) return false;
  ++loop.round;
  *first = loop.start + begin * loop.step;
  *last = loop.start + end * loop.step;
  return true;
}

}  // namespace

extern "C" {

// Between start and end the caller runs its own share.
void opwright_GOMP_parallel_start(void (*function)(void*), void* data, unsigned count) {
  using namespace opwright::threads;
  if (this_thread().depth == 0) region = {function, data};
  begin(count > 0 ? static_cast<int>(std::min<unsigned>(count, kMaxThreads)) : thread_count(),
        run_region, &region);
}
void opwright_GOMP_parallel_end() { opwright::threads::end(); }

void opwright_GOMP_barrier() {
  const Place& place = this_thread().place;
  if (place.count > 1) place.team->barrier();
}

bool opwright_GOMP_loop_static_start(long start, long end, long step, long chunk, long* first,
                                     long* last) {
  const long distance = step > 0 ? end - start + step - 1 : end - start + step + 1;
  this_thread().place.loop = {start, step, chunk, std::max(0L, distance / step), 0};
  return next_chunk(first, last);
}
bool opwright_GOMP_loop_static_next(long* first, long* last) { return next_chunk(first, last); }
void opwright_GOMP_loop_end_nowait() {}

int opwright_omp_get_max_threads() { return opwright::threads::thread_count(); }
int opwright_omp_get_num_threads() { return this_thread().place.count; }
int opwright_omp_get_thread_num() { return this_thread().place.index; }
int opwright_omp_in_parallel() { return this_thread().depth > 1 || this_thread().place.count > 1; }

}  // extern "C"
