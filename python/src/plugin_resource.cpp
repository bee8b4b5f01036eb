#include "plugin_resource.h"

#include "base/cast.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// The C++ face of a Python IPluginResource.
class ResourceFace final : public IPluginResource {
 public:
  explicit ResourceFace(nb::object object) : object_(std::move(object)) {}
  const nb::object& object() const { return object_.get(); }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  int32_t release() noexcept override {
    if (!Py_IsInitialized()) return 0;
    return guarded<int32_t>(-1, "release", [&] {
      nb::object status = object().attr("release")();
      return PyLong_Check(status.ptr()) ? nb::cast<int32_t>(status) : 0;
    });
  }
  IPluginResource* clone() noexcept override {
    return guarded<IPluginResource*>(nullptr, "clone", [&]() -> IPluginResource* {
      nb::object copy = object().attr("clone")();
      if (copy.is_none()) return nullptr;
      require_resource(copy, "clone() of a plugin resource must return an IPluginResource");
      return new ResourceFace(copy);
    });
  }

  static void require_resource(nb::handle object, const char* what) {
    if (nb::hasattr(object, "clone") && nb::hasattr(object, "release")) return;
    throw nb::type_error((std::string(what) + ", an object with clone and release; " +
                          nb::cast<std::string>(nb::repr(object)) + " came")
                             .c_str());
  }

 private:
  Reference object_;
};

}  // namespace

nb::object acquire_resource(PluginResources& resources, const std::string& key, nb::handle object) {
  std::unique_ptr<ResourceFace> face;
  if (!object.is_none()) {
    ResourceFace::require_resource(
        object, "acquire_plugin_resource: the resource must be an IPluginResource or None");
    face = std::make_unique<ResourceFace>(nb::borrow(object));
  }
  IPluginResource* shared = resources.acquire(key.c_str(), face.get());
  if (auto* python = cast_to<ResourceFace>(shared)) return python->object();
  return nb::module_::import_("opwright._runtime_classes").attr("LibraryResource")(key);
}

}  // namespace opwright::python
