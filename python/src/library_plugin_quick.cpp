// The additional methods in Python of an IPluginV3 of the Quick family that C++ implements.

#include "base/error.h"
#include "library_arguments.h"
#include "library_plugin.h"
#include "quick_launch_refs.h"

namespace opwright::python {
namespace {

IPluginV3QuickAOTBuild& aot(const V3PluginHandle& self) {
  const V3Plugin& plugin = self.plugin();
  require(plugin.is_compiled(), "plugin ", str(plugin.identity()),
          " brings no compiled kernel: its build part is no IPluginV3QuickAOTBuild");
  return *plugin.quick().aot;
}

IPluginV3QuickRuntime& runtime(const V3PluginHandle& self) {
  const V3Plugin& plugin = self.plugin();
  require(plugin.quick().runtime != nullptr, "plugin ", str(plugin.identity()),
          " has no runtime part");
  return *plugin.quick().runtime;
}

nb::list get_output_data_types_of_ranks(const V3PluginHandle& self, nb::handle input_types,
                                        nb::handle input_ranks) {
  const auto inputs = vector_of<DataType>(input_types, "DataType");
  std::vector<int32_t> ranks;
  for (const nb::object& rank : sequence(input_ranks, -1, "ranks"))
    ranks.push_back(static_cast<int32_t>(integer(rank, "a rank")));
  require(ranks.size() == inputs.size(), "get_output_data_types: ", inputs.size(),
          " types came with ", ranks.size(), " ranks");
  std::vector<DataType> outputs(static_cast<size_t>(self.plugin().num_outputs({})));
  self.call("getOutputDataTypes", [&] {
    return self.plugin().quick().build->getOutputDataTypes(
        outputs.data(), count(outputs), inputs.data(), ranks.data(), count(inputs));
  });
  return list_of(outputs.data(), count(outputs));
}

nb::list get_supported_format_combinations(const V3PluginHandle& self, nb::handle in_out,
                                           int32_t num_inputs) {
  const auto ports = dynamic_descs(in_out);
  require(num_inputs >= 0 && num_inputs <= count(ports),
          "get_supported_format_combinations: there are ", ports.size(),
          " inputs and outputs, num_inputs is ", num_inputs);
  nb::list made;
  for (const PluginTensorDesc& desc : self.plugin().list_combinations({}, ports, num_inputs))
    made.append(desc);
  return made;
}

void get_launch_params(const V3PluginHandle& self, nb::handle inputs, nb::handle in_out,
                       int32_t num_inputs, nb::handle launch_params, nb::handle arguments,
                       const ExprBuilderRef& builder) {
  const auto dims = dims_exprs(inputs);
  const auto ports = dynamic_descs(in_out);
  require(num_inputs == count(dims) && num_inputs <= count(ports),
          "get_launch_params: ", dims.size(), " shapes and ", ports.size(),
          " descriptors came for ", num_inputs, " inputs");
  self.call("getLaunchParams", [&] {
    return aot(self).getLaunchParams(dims.data(), ports.data(), num_inputs,
                                     count(ports) - num_inputs, &launch_params_of(launch_params),
                                     &sym_exprs_of(arguments), builder.get());
  });
}

nb::tuple get_kernel(const V3PluginHandle& self, nb::handle input_desc, nb::handle output_desc) {
  const auto inputs = descs(input_desc), outputs = descs(output_desc);
  const char* name = nullptr;
  char* code = nullptr;
  int32_t size = 0;
  self.call("getKernel", [&] {
    return aot(self).getKernel(inputs.data(), count(inputs), outputs.data(), count(outputs), &name,
                               &code, &size);
  });
  require(name != nullptr && code != nullptr && size >= 0, "plugin ", str(self.plugin().identity()),
          ": getKernel() gave no kernel");
  return nb::make_tuple(name, nb::bytes(code, static_cast<size_t>(size)));
}

std::vector<Dims> strides_of(nb::handle list) {
  std::vector<Dims> strides;
  for (const nb::object& entry : sequence(list, -1, "Dims"))
    strides.push_back(to_shape(entry).dims());
  return strides;
}

void enqueue_quick(const V3PluginHandle& self, nb::handle input_desc, nb::handle output_desc,
                   nb::handle inputs, nb::handle outputs, nb::handle in_strides,
                   nb::handle out_strides, uintptr_t stream) {
  const auto in_descs = descs(input_desc), out_descs = descs(output_desc);
  const auto in = pointers(inputs), out = pointers(outputs);
  const auto from = strides_of(in_strides), to = strides_of(out_strides);
  require(in.size() == in_descs.size() && out.size() == out_descs.size() &&
              from.size() == in.size() && to.size() == out.size(),
          "enqueue: ", in_descs.size(), " and ", out_descs.size(), " descriptors came with ",
          in.size(), " and ", out.size(), " addresses and ", from.size(), " and ", to.size(),
          " strides");
  self.call("enqueue", [&] {
    return runtime(self).enqueue(in_descs.data(), out_descs.data(), in.data(), out.data(),
                                 from.data(), to.data(), count(in), count(out),
                                 reinterpret_cast<cudaStream_t>(stream));
  });
}

}  // namespace

void bind_library_plugin_quick(nb::class_<V3PluginHandle>& c) {
  c.def_prop_ro("has_kernel",
                [](const V3PluginHandle& self) { return self.plugin().is_compiled(); })
      .def_prop_ro(
          "has_runtime",
          [](const V3PluginHandle& self) { return self.plugin().quick().runtime != nullptr; })
      .def("get_output_data_types_of_ranks", &get_output_data_types_of_ranks)
      .def("get_supported_format_combinations", &get_supported_format_combinations)
      .def("set_build_tactic",
           [](const V3PluginHandle& self, int32_t tactic) {
             self.call("setTactic", [&] { return aot(self).setTactic(tactic); });
           })
      .def("get_launch_params", &get_launch_params)
      .def("get_kernel", &get_kernel)
      .def("set_quick_tactic",
           [](const V3PluginHandle& self, int32_t tactic) {
             self.call("setTactic", [&] { return runtime(self).setTactic(tactic); });
           })
      .def("enqueue_quick", &enqueue_quick);
}

}  // namespace opwright::python
