// IPluginV3 of the Quick family implemented in C++, as Python sees and calls it.

#include "base/error.h"
#include "library_arguments.h"
#include "library_plugin.h"
#include "plugin/abi/v3_quick_plugin.h"
#include "quick_launch_refs.h"

namespace opwright::python {
namespace {

/// A C++ plugin that Python owns, with the methods of its parts; the classes of
/// opwright/_library_plugins_quick.py wrap it.
class QuickPluginHandle {
 public:
  explicit QuickPluginHandle(V3QuickPlugin plugin) : plugin_(std::move(plugin)) {}
  const V3QuickPlugin& plugin() const { return plugin_; }

  IPluginV3QuickBuild& build() const { return plugin_.build(); }
  IPluginV3QuickAOTBuild& aot() const {
    require(plugin_.aot() != nullptr, "plugin ", str(plugin_.identity()),
            " brings no compiled kernel: its build part is no IPluginV3QuickAOTBuild");
    return *plugin_.aot();
  }
  IPluginV3QuickRuntime& runtime() const {
    require(plugin_.has_runtime(), "plugin ", str(plugin_.identity()), " has no runtime part");
    return plugin_.runtime();
  }
  /// What `body`, a call of a method, returns; throws what a callback left behind.
  template <class Body>
  auto call(Body&& body) const {
    return plugin_.call({}, std::forward<Body>(body));
  }
  /// The same, or Error for a status other than 0.
  template <class Body>
  void call(const char* method, Body&& body) const {
    plugin_.call({}, method, std::forward<Body>(body));
  }

 private:
  const V3QuickPlugin plugin_;
};

nb::list quick_output_data_types(const QuickPluginHandle& self, nb::handle input_types,
                                 nb::handle input_ranks) {
  const auto inputs = vector_of<DataType>(input_types, "DataType");
  std::vector<int32_t> ranks;
  for (const nb::object& rank : sequence(input_ranks, -1, "ranks"))
    ranks.push_back(static_cast<int32_t>(integer(rank, "a rank")));
  require(ranks.size() == inputs.size(), "get_output_data_types: ", inputs.size(),
          " types came with ", ranks.size(), " ranks");
  std::vector<DataType> outputs(static_cast<size_t>(self.plugin().num_outputs("")));
  self.call("getOutputDataTypes", [&] {
    return self.build().getOutputDataTypes(outputs.data(), count(outputs), inputs.data(),
                                           ranks.data(), count(inputs));
  });
  return list_of(outputs.data(), count(outputs));
}

nb::list quick_output_shapes(const QuickPluginHandle& self, nb::handle inputs,
                             nb::handle shape_inputs, const ExprBuilderRef& builder) {
  const auto in = dims_exprs(inputs), shapes = dims_exprs(shape_inputs);
  std::vector<DimsExprs> outputs(static_cast<size_t>(self.plugin().num_outputs("")));
  self.call("getOutputShapes", [&] {
    return self.build().getOutputShapes(in.data(), count(in), shapes.data(), count(shapes),
                                        outputs.data(), count(outputs), builder.get());
  });
  nb::list made;
  for (const DimsExprs& dims : outputs) made.append(to_dim_exprs(dims, builder.scope));
  return made;
}

nb::list get_supported_format_combinations(const QuickPluginHandle& self, nb::handle in_out,
                                           int32_t num_inputs) {
  const auto ports = dynamic_descs(in_out);
  require(num_inputs >= 0 && num_inputs <= count(ports),
          "get_supported_format_combinations: there are ", ports.size(),
          " inputs and outputs, num_inputs is ", num_inputs);
  nb::list made;
  for (const PluginTensorDesc& desc : list_combinations(self.plugin(), "", ports, num_inputs))
    made.append(desc);
  return made;
}

nb::list quick_valid_tactics(const QuickPluginHandle& self) {
  std::vector<int32_t> tactics(
      static_cast<size_t>(std::max(self.call([&] { return self.build().getNbTactics(); }), 0)));
  self.call("getValidTactics",
            [&] { return self.build().getValidTactics(tactics.data(), count(tactics)); });
  return list_of(tactics.data(), count(tactics));
}

void get_launch_params(const QuickPluginHandle& self, nb::handle inputs, nb::handle in_out,
                       int32_t num_inputs, nb::handle launch_params, nb::handle arguments,
                       const ExprBuilderRef& builder) {
  const auto dims = dims_exprs(inputs);
  const auto ports = dynamic_descs(in_out);
  require(num_inputs == count(dims) && num_inputs <= count(ports),
          "get_launch_params: ", dims.size(), " shapes and ", ports.size(),
          " descriptors came for ", num_inputs, " inputs");
  self.call("getLaunchParams", [&] {
    return self.aot().getLaunchParams(dims.data(), ports.data(), num_inputs,
                                      count(ports) - num_inputs, &launch_params_of(launch_params),
                                      &sym_exprs_of(arguments), builder.get());
  });
}

nb::tuple get_kernel(const QuickPluginHandle& self, nb::handle input_desc, nb::handle output_desc) {
  const auto inputs = descs(input_desc), outputs = descs(output_desc);
  const char* name = nullptr;
  char* code = nullptr;
  int32_t size = 0;
  self.call("getKernel", [&] {
    return self.aot().getKernel(inputs.data(), count(inputs), outputs.data(), count(outputs), &name,
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

void enqueue_quick(const QuickPluginHandle& self, nb::handle input_desc, nb::handle output_desc,
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
    return self.runtime().enqueue(in_descs.data(), out_descs.data(), in.data(), out.data(),
                                  from.data(), to.data(), count(in), count(out),
                                  reinterpret_cast<cudaStream_t>(stream));
  });
}

void bind_build(nb::class_<QuickPluginHandle>& c) {
  c.def("get_num_outputs",
        [](const QuickPluginHandle& self) { return self.plugin().num_outputs(""); })
      .def("get_output_data_types", &quick_output_data_types)
      .def("get_output_shapes", &quick_output_shapes)
      .def("configure_plugin",
           [](const QuickPluginHandle& self, nb::handle in, nb::handle out) {
             const auto inputs = dynamic_descs(in), outputs = dynamic_descs(out);
             self.call("configurePlugin", [&] {
               return self.build().configurePlugin(inputs.data(), count(inputs), outputs.data(),
                                                   count(outputs));
             });
           })
      .def("get_supported_format_combinations", &get_supported_format_combinations)
      .def("get_aliased_input", [](const QuickPluginHandle& self,
                                   int32_t output) { return self.build().getAliasedInput(output); })
      .def("get_valid_tactics", &quick_valid_tactics)
      .def("get_timing_cache_id",
           [](const QuickPluginHandle& self) {
             return optional_text(self.build().getTimingCacheID());
           })
      .def("get_metadata_string",
           [](const QuickPluginHandle& self) {
             return optional_text(self.build().getMetadataString());
           })
      .def("set_build_tactic",
           [](const QuickPluginHandle& self, int32_t tactic) {
             self.call("setTactic", [&] { return self.aot().setTactic(tactic); });
           })
      .def("get_launch_params", &get_launch_params)
      .def("get_kernel", &get_kernel);
}

void bind_runtime_part(nb::class_<QuickPluginHandle>& c) {
  c.def("set_tactic",
        [](const QuickPluginHandle& self, int32_t tactic) {
          self.call("setTactic", [&] { return self.runtime().setTactic(tactic); });
        })
      .def("enqueue", &enqueue_quick)
      .def("get_fields_to_serialize",
           [](const QuickPluginHandle& self) { return FieldCollection{self.plugin().fields()}; });
}

}  // namespace

IPluginV3* quick_library_plugin(nb::handle handle) {
  if (!nb::isinstance<QuickPluginHandle>(handle)) return nullptr;
  return &nb::cast<QuickPluginHandle&>(handle).plugin().object();
}

nb::object from_quick_plugin(std::unique_ptr<IPluginV3> plugin) {
  auto* handle = new QuickPluginHandle(V3QuickPlugin(std::move(plugin)));
  return nb::module_::import_("opwright._library_plugins_quick")
      .attr("LibraryPluginV3Quick")(nb::cast(handle, nb::rv_policy::take_ownership));
}

void bind_library_plugin_quick(nb::module_& m) {
  nb::class_<QuickPluginHandle> c(m, "_QuickPluginHandle",
                                  "A plugin of the Quick family that a C++ library implements.");
  c.def(
       "clone",
       [](const QuickPluginHandle& self) { return new QuickPluginHandle(self.plugin().clone()); },
       nb::rv_policy::take_ownership)
      .def_prop_ro("name",
                   [](const QuickPluginHandle& self) { return self.plugin().identity().name; })
      .def_prop_ro("version",
                   [](const QuickPluginHandle& self) { return self.plugin().identity().version; })
      .def_prop_ro(
          "namespace",
          [](const QuickPluginHandle& self) { return self.plugin().identity().plugin_namespace; })
      .def_prop_ro("has_build",
                   [](const QuickPluginHandle& self) { return self.plugin().has_build(); })
      .def_prop_ro("has_kernel",
                   [](const QuickPluginHandle& self) { return self.plugin().aot() != nullptr; })
      .def_prop_ro("has_runtime",
                   [](const QuickPluginHandle& self) { return self.plugin().has_runtime(); });
  bind_build(c);
  bind_runtime_part(c);
}

}  // namespace opwright::python
