// Conversion of creators of V2 plugins between Python and C++.

#include "creators_v2.h"

#include "base/error.h"
#include "plugin/registry/plugin_library.h"
#include "plugin/registry/registry.h"
#include "plugin_v2.h"

namespace opwright::python {
namespace {

/// The C++ face of a Python IPluginCreator.
class V2CreatorFace final : public CreatorFace<IPluginCreator> {
 public:
  using CreatorFace::CreatorFace;

  IPluginV2* createPlugin(AsciiChar const* name,
                          PluginFieldCollection const* fields) noexcept override {
    return guarded<IPluginV2*>(nullptr, "create_plugin", [&] {
      FieldCollection collection{fields != nullptr ? copy_fields(*fields) : FieldValues{}};
      return face_of(object().attr("create_plugin")(name, std::move(collection)));
    });
  }
  IPluginV2* deserializePlugin(AsciiChar const* name, void const* data,
                               size_t size) noexcept override {
    return guarded<IPluginV2*>(nullptr, "deserialize_plugin", [&] {
      return face_of(object().attr("deserialize_plugin")(name, nb::bytes(data, size)));
    });
  }
  void setPluginNamespace(AsciiChar const* value) noexcept override {
    run("plugin_namespace", [&] { nb::setattr(object(), "plugin_namespace", nb::str(value)); });
  }

 private:
  static IPluginV2* face_of(nb::handle plugin) {
    return plugin.is_none() ? nullptr : make_plugin_v2(plugin, true);
  }
};

/// A creator that a library implements; the Python class LibraryCreatorV2 wraps it.
struct V2CreatorHandle {
  IPluginCreator* creator = nullptr;
  std::shared_ptr<const void> code;  ///< the library

  /// The plugin that `make` returns, which calls the method. Throws the exception that a callback
  /// left behind, or Error if there is no plugin.
  template <class Make>
  nb::object made_by(const char* method, Make&& make) const {
    const std::string where = str("plugin creator ", opwright::str(identity(*creator)), ": ");
    IPluginV2* const plugin = call_plugin(where, make);
    require(plugin != nullptr, where, method, "() refused what it was given");
    return from_plugin_v2(V2Plugin(plugin));
  }
};

FieldCollection field_names(const V2CreatorHandle& self) {
  FieldCollection fields;
  const PluginFieldCollection* declared = self.creator->getFieldNames();
  // Declared fields carry no data, whatever their pointers say.
  for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i)
    fields.values.push_back({declared->fields[i].name, declared->fields[i].type, 0, {}});
  return fields;
}

nb::object create_plugin(const V2CreatorHandle& self, const std::string& name,
                         nb::handle collection) {
  const FieldValues values = to_fields(collection, "create_plugin");
  const std::vector<PluginField> fields = point_to(values);
  const PluginFieldCollection raw{static_cast<int32_t>(fields.size()), fields.data()};
  return self.made_by("createPlugin",
                      [&] { return self.creator->createPlugin(name.c_str(), &raw); });
}

nb::object deserialize_plugin(const V2CreatorHandle& self, const std::string& name,
                              const nb::bytes& data) {
  return self.made_by("deserializePlugin", [&] {
    return self.creator->deserializePlugin(name.c_str(), data.c_str(), nb::len(data));
  });
}

}  // namespace

bool is_python_v2_creator(nb::handle object) { return nb::hasattr(object, "deserialize_plugin"); }

std::shared_ptr<IPluginCreatorInterface> make_v2_creator_face(nb::handle object) {
  return std::make_shared<V2CreatorFace>(nb::borrow(object));
}

nb::object make_library_creator_v2(IPluginCreator& creator) {
  return nb::module_::import_("opwright._plugins.library_v2")
      .attr("LibraryCreatorV2")(V2CreatorHandle{&creator, keep_code(creator)});
}

IPluginCreator* library_creator_v2(nb::handle object) {
  if (!nb::hasattr(object, "_handle") || !nb::isinstance<V2CreatorHandle>(object.attr("_handle")))
    return nullptr;
  return nb::cast<V2CreatorHandle&>(object.attr("_handle")).creator;
}

void bind_creators_v2(nb::module_& m) {
  nb::class_<V2CreatorHandle>(m, "_V2CreatorHandle",
                              "A creator of V2 plugins that a C++ library implements.")
      .def_prop_ro("name", [](const V2CreatorHandle& self) { return identity(*self.creator).name; })
      .def_prop_ro("version",
                   [](const V2CreatorHandle& self) { return identity(*self.creator).version; })
      .def_prop_ro(
          "namespace",
          [](const V2CreatorHandle& self) { return identity(*self.creator).plugin_namespace; })
      .def_prop_ro("field_names", &field_names)
      .def("create_plugin", &create_plugin, nb::arg("name"), nb::arg("field_collection"))
      .def("deserialize_plugin", &deserialize_plugin, nb::arg("name"), nb::arg("serialized_plugin"))
      .def("__eq__", [](const V2CreatorHandle& a, const V2CreatorHandle& b) {
        return a.creator == b.creator;
      });
}

}  // namespace opwright::python
