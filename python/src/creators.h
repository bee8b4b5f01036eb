#pragma once

// Conversion of plugin creators of every generation between Python and C++.

#include <string>

#include "plugin_callbacks.h"

namespace opwright::python {

/// The Python object behind a C++ face.
class PythonFace {
 public:
  virtual const nb::object& object() const = 0;

 protected:
  ~PythonFace() = default;
};

/// Base of the C++ faces of Python creators, for every creator interface. Name, version, namespace
/// and fields come from the object's attributes.
template <class Interface>
class CreatorFace : public Interface, public PythonFace {
 public:
  explicit CreatorFace(nb::object object) : object_(std::move(object)) {}
  const nb::object& object() const final { return object_.get(); }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  PluginFieldCollection const* getFieldNames() noexcept override {
    return guarded<PluginFieldCollection const*>(nullptr, "field_names", [&] {
      const bool is_set = nb::hasattr(object(), "field_names");
      nb::object names = is_set ? object().attr("field_names") : nb::none();
      return fields_.set(names.is_none() ? FieldValues{} : to_fields(names, "field_names"));
    });
  }
  AsciiChar const* getPluginName() const noexcept override { return get("name", name_); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return get("plugin_version", version_);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return get("plugin_namespace", namespace_);
  }

 private:
  const char* get(const char* attribute, std::string& to) const noexcept {
    return guarded<const char*>(to.c_str(), attribute, [&] {
      to = text(object(), attribute).value_or(to);
      return to.c_str();
    });
  }
  Reference object_;
  mutable std::string name_, version_ = "1", namespace_;
  FieldsResult fields_;
};

/// Makes a new C++ face for a Python creator. Throws TypeError for any other object.
std::shared_ptr<IPluginCreatorInterface> make_creator_face(nb::handle object);

/// The Python object of a Python creator. For a C++ creator, an object that stands for the creator
/// and keeps its library loaded. None for null.
nb::object to_python(IPluginCreatorInterface* creator);

/// The creator that a LibraryCreator object stands for, or null.
IPluginCreatorInterface* library_creator(nb::handle object);

/// The creator of a function plugin, or None.
nb::object find_function_creator(const std::string& name, const std::string& version,
                                 const std::string& plugin_namespace);

void bind_creators(nb::module_& m);

}  // namespace opwright::python
