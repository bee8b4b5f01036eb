#include "creators.h"

#include "base/cast.h"
#include "base/error.h"
#include "creators_v2.h"
#include "plugin/abi/v2_plugin.h"
#include "plugin/abi/v3_creator.h"
#include "plugin/registry/plugin_library.h"
#include "plugin/registry/registry.h"

namespace opwright::python {
namespace {

/// The C++ face of a Python IPluginCreatorV3One.
class V3CreatorFace final : public CreatorFace<IPluginCreatorV3One> {
 public:
  using CreatorFace::CreatorFace;

  IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fields,
                          TensorRTPhase phase) noexcept override {
    return guarded<IPluginV3*>(nullptr, "create_plugin", [&]() -> IPluginV3* {
      FieldCollection collection{fields != nullptr ? copy_fields(*fields) : FieldValues{}};
      nb::object plugin = object().attr("create_plugin")(name, std::move(collection), phase);
      return plugin.is_none() ? nullptr : to_plugin_v3(plugin).release();
    });
  }
};

/// The C++ face of a Python IPluginCreatorV3Quick.
class QuickCreatorFace final : public CreatorFace<IPluginCreatorV3Quick> {
 public:
  using CreatorFace::CreatorFace;

  IPluginV3* createPlugin(AsciiChar const* name, AsciiChar const* plugin_namespace,
                          PluginFieldCollection const* fields, TensorRTPhase phase,
                          QuickPluginCreationRequest request) noexcept override {
    return guarded<IPluginV3*>(nullptr, "create_plugin", [&]() -> IPluginV3* {
      FieldCollection collection{fields != nullptr ? copy_fields(*fields) : FieldValues{}};
      nb::object plugin = object().attr("create_plugin")(name, plugin_namespace,
                                                         std::move(collection), phase, request);
      return plugin.is_none() ? nullptr : to_plugin_v3(plugin).release();
    });
  }
};

/// A creator that a library implements; the Python class LibraryCreator wraps it.
struct CreatorHandle {
  IPluginCreatorInterface* creator = nullptr;
  std::shared_ptr<const void> code;  ///< the library
};

IPluginCreatorInterface& v3_creator(const CreatorHandle& self) {
  require(is_v3_creator(*self.creator), "plugin creator ", str(identity(*self.creator)),
          " is neither an IPluginCreatorV3One nor an IPluginCreatorV3Quick");
  return *self.creator;
}

}  // namespace

std::shared_ptr<IPluginCreatorInterface> make_creator_face(nb::handle object) {
  if (!nb::hasattr(object, "create_plugin"))
    throw nb::type_error(("register_creator: expected a creator, such as an IPluginCreatorV3One, "
                          "with a name and create_plugin; " +
                          nb::cast<std::string>(nb::repr(object)) + " came")
                             .c_str());
  if (is_python_v2_creator(object)) return make_v2_creator_face(object);
  nb::object quick =
      nb::module_::import_("opwright._plugins.classes_quick").attr("IPluginCreatorV3Quick");
  if (nb::isinstance(object, quick)) return std::make_shared<QuickCreatorFace>(nb::borrow(object));
  return std::make_shared<V3CreatorFace>(nb::borrow(object));
}

nb::object to_python(IPluginCreatorInterface* creator) {
  if (creator == nullptr) return nb::none();
  if (auto* face = cast_to<PythonFace>(creator)) return face->object();
  if (is_v2_creator(*creator))
    return make_library_creator_v2(static_cast<IPluginCreator&>(*creator));
  if (is_quick_creator(*creator))
    return nb::module_::import_("opwright._plugins.classes_quick")
        .attr("LibraryCreatorV3Quick")(CreatorHandle{creator, keep_code(*creator)});
  return nb::module_::import_("opwright._plugins.classes")
      .attr("LibraryCreator")(CreatorHandle{creator, keep_code(*creator)});
}

IPluginCreatorInterface* library_creator(nb::handle object) {
  if (IPluginCreator* creator = library_creator_v2(object)) return creator;
  if (!nb::hasattr(object, "_handle") || !nb::isinstance<CreatorHandle>(object.attr("_handle")))
    return nullptr;
  return nb::cast<CreatorHandle&>(object.attr("_handle")).creator;
}

void bind_creators(nb::module_& m) {
  bind_creators_v2(m);
  nb::class_<CreatorHandle>(m, "_CreatorHandle", "A creator that a C++ library implements.")
      .def_prop_ro("name", [](const CreatorHandle& self) { return identity(*self.creator).name; })
      .def_prop_ro("version",
                   [](const CreatorHandle& self) { return identity(*self.creator).version; })
      .def_prop_ro(
          "namespace",
          [](const CreatorHandle& self) { return identity(*self.creator).plugin_namespace; })
      .def_prop_ro(
          "field_names",
          [](const CreatorHandle& self) {
            FieldCollection fields;
            const PluginFieldCollection* declared = v3_field_names(v3_creator(self));
            // Declared fields carry no data, whatever their pointers say.
            for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i)
              fields.values.push_back({declared->fields[i].name, declared->fields[i].type, 0, {}});
            return fields;
          })
      .def(
          "create_plugin",
          [](const CreatorHandle& self, const std::string& name, nb::handle collection,
             TensorRTPhase phase, const std::string& plugin_namespace,
             QuickPluginCreationRequest request) {
            // The name is the layer's name. For creators of the Quick family it is the plugin's
            // name.
            std::unique_ptr<IPluginV3> plugin =
                create_v3(v3_creator(self), {name, "", plugin_namespace}, name,
                          to_fields(collection, "create_plugin"), phase, request);
            require(plugin != nullptr, "plugin creator ", str(identity(*self.creator)),
                    " refused the fields that it was given");
            return from_plugin_v3(std::move(plugin));
          },
          nb::arg("name"), nb::arg("field_collection"), nb::arg("phase"), nb::arg("namespace") = "",
          nb::arg("request") = QuickPluginCreationRequest::kUNKNOWN)
      .def("__eq__",
           [](const CreatorHandle& a, const CreatorHandle& b) { return a.creator == b.creator; });
}

}  // namespace opwright::python
