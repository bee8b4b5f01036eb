// A run of a context as a CUDA graph, for engines of several ranks.

#include <memory>
#include <utility>

#include "backend/backend.h"
#include "bindings.h"
#include "execution_context.h"

namespace opwright::python {
namespace {

/// The work of a run with the context's shapes and addresses, which must stay.
class RunGraph {
 public:
  explicit RunGraph(ExecutionContext& context)
      : device_(context.engine()->device()),
        graph_(device_.capture([&](Queue queue) { context.enqueue(queue); })) {}
  ~RunGraph() {
    const DeviceScope scope(device_);
    graph_.reset();
  }
  RunGraph(const RunGraph&) = delete;
  RunGraph& operator=(const RunGraph&) = delete;

  /// Gives the work to the default stream.
  void launch() {
    const DeviceScope scope(device_);
    graph_->launch(nullptr);
  }

 private:
  const Device& device_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace

void bind_run_graph(nb::module_& m) {
  nb::class_<RunGraph>(m, "_RunGraph")
      .def(nb::init<ExecutionContext&>(), nb::arg("context"), nb::keep_alive<1, 2>(),
           nb::call_guard<nb::gil_scoped_release>())
      .def("launch", &RunGraph::launch, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace opwright::python
