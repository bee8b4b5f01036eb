// The threads with which engines on the CPU compute.

#include <optional>

#include "base/parallel.h"
#include "bindings.h"
#include "threads/pool.h"

namespace opwright::python {

void bind_threads(nb::module_& m) {
  m.def("max_threads", &thread_count,
        "Threads that an engine on the CPU that this thread called would use: the process's, see "
        "set_max_threads(). In a plugin's function those of the run that calls it.");
  m.def(
      "set_max_threads",
      [](std::optional<int> count) {
        threads::set_process_threads(count ? checked_threads(*count, "the process", ", or None")
                                           : 0);
      },
      nb::arg("count").none(),
      "Lets engines on the CPU compute with so many threads at once in this process, whoever calls "
      "them. None, the default: OMP_NUM_THREADS or, without it, the cores that the process may "
      "use: those of its affinity mask, at most its control group's CPU quota rounded up, both as "
      "they are at the moment. More than these are never used. Contexts that exist keep what they "
      "divide their work among, see IExecutionContext.max_threads.\n\n:raises Error: for less than "
      "1 or more than 4096.");
}

}  // namespace opwright::python
