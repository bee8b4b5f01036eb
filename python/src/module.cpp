#include <nanobind/nanobind.h>

#include "bindings.h"
#include "opwright/version.h"

namespace opwright::python {

NB_MODULE(_core, m) {
  m.doc() = "The engine. Use it through the package `opwright`.";
  // Plugin functions refer to their module, and the module's engines refer to the functions. The
  // interpreter does not see these cycles. They end with the process.
  nb::set_leak_warnings(false);
  bind_interpreter_end(m);
  bind_types(m);
  bind_logger(m);
  bind_limits(m);
  bind_progress(m);
  bind_threads(m);
  bind_error_recorder(m);
  bind_gpu_allocator(m);
  bind_network(m);
  bind_layer_enums(m);
  bind_layers(m);
  bind_add_layers(m);
  bind_regions(m);
  bind_plugin(m);
  bind_plugin_v3(m);
  bind_plugin_v2(m);
  bind_registry(m);
  bind_sources(m);
  bind_builder(m);
  bind_onnx(m);
  bind_communicator(m);
  bind_runtime(m);
  bind_refitter(m);
  bind_device_array(m);
  bind_run_graph(m);
  bind_call(m);
  bind_program(m);
}

}  // namespace opwright::python
