// PluginField, PluginFieldCollection, tensor descriptors, enums of plugins.

#include <cstring>

#include "base/error.h"
#include "plugin_bindings.h"
#include "plugin_communicator.h"
#include "raw_value.h"

namespace opwright::python {
namespace {

/// The NumPy type of a field's elements; null if the field is not an array.
const char* numpy_name(PluginFieldType type) {
  switch (type) {
    case PluginFieldType::kFLOAT16:
      return "float16";
    case PluginFieldType::kFLOAT32:
      return "float32";
    case PluginFieldType::kFLOAT64:
      return "float64";
    case PluginFieldType::kINT8:
    case PluginFieldType::kCHAR:
      return "int8";
    case PluginFieldType::kINT16:
      return "int16";
    case PluginFieldType::kINT32:
      return "int32";
    case PluginFieldType::kINT64:
      return "int64";
    default:
      return nullptr;
  }
}

PluginFieldType field_type(const std::string& numpy_type) {
  static constexpr std::pair<std::string_view, PluginFieldType> kTypes[] = {
      {"float16", PluginFieldType::kFLOAT16}, {"float32", PluginFieldType::kFLOAT32},
      {"float64", PluginFieldType::kFLOAT64}, {"int8", PluginFieldType::kINT8},
      {"int16", PluginFieldType::kINT16},     {"int32", PluginFieldType::kINT32},
      {"int64", PluginFieldType::kINT64},     {"bool", PluginFieldType::kINT8},
      {"bfloat16", PluginFieldType::kBF16},   {"float8_e4m3fn", PluginFieldType::kFP8},
  };
  for (const auto& [name, type] : kTypes)
    if (numpy_type == name) return type;
  return PluginFieldType::kUNKNOWN;
}

FieldValue from_bytes(std::string name, PluginFieldType type, const void* data, size_t size) {
  const size_t element = element_size(type);
  require(size % element == 0, "PluginField '", name, "': ", size,
          " bytes are no whole number of elements of ", element, " bytes");
  return {std::move(name), type, static_cast<int32_t>(size / element), copy_terminated(data, size)};
}

/// Converts an array's numbers to a field's elements. Characters are numbers of 8 bits.
FieldValue fit_numbers(std::string name, nb::handle array, PluginFieldType type) {
  const bool is_text = type == PluginFieldType::kCHAR;
  try {
    FieldValue field = fit(raw_value(name, array), is_text ? PluginFieldType::kINT8 : type);
    field.type = type;
    field.extents.reset();
    return field;
  } catch (const Error& error) {
    fail("PluginField '", name, "' ", error.what());
  }
}

FieldValue make_field(std::string name, nb::handle data, std::optional<PluginFieldType> type) {
  if (data.is_none()) return {std::move(name), type.value_or(PluginFieldType::kUNKNOWN), 0, {}};
  if (PyUnicode_Check(data.ptr())) {
    const auto text = nb::cast<std::string>(data);
    return from_bytes(std::move(name), type.value_or(PluginFieldType::kCHAR), text.data(),
                      text.size());
  }
  if (PyBytes_Check(data.ptr()) || PyByteArray_Check(data.ptr())) {
    const Blob bytes = borrow_bytes(data);
    return from_bytes(std::move(name), type.value_or(PluginFieldType::kUNKNOWN), bytes.data(),
                      bytes.size());
  }
  nb::module_ numpy = nb::module_::import_("numpy");
  if (type == PluginFieldType::kDIMS) {
    std::vector<Dims> dims;
    const bool is_one = nb::isinstance<Shape>(data) || PyTuple_Check(data.ptr());
    if (is_one) {
      dims.push_back(to_shape(data).dims());
    } else {
      for (nb::handle shape : nb::iter(data)) dims.push_back(to_shape(shape).dims());
    }
    return from_bytes(std::move(name), *type, dims.data(), dims.size() * sizeof(Dims));
  }
  nb::object array = numpy.attr("ascontiguousarray")(data);
  if (!type) type = field_type(nb::cast<std::string>(array.attr("dtype").attr("name")));
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (numpy_name(*type) != nullptr && kind != "S" &&
      (*type != PluginFieldType::kCHAR || kind != "u"))
    return fit_numbers(std::move(name), array, *type);
  const Blob bytes = borrow_bytes(numpy.attr("ravel")(array).attr("view")("uint8"));
  return from_bytes(std::move(name), *type, bytes.data(), bytes.size());
}

nb::object array_of(const FieldValue& value, nb::handle dtype) {
  nb::module_ numpy = nb::module_::import_("numpy");
  nb::object array = numpy.attr("empty")(value.length, nb::arg("dtype") = dtype);
  auto* to = reinterpret_cast<void*>(nb::cast<uintptr_t>(array.attr("ctypes").attr("data")));
  if (value.length != 0)
    std::memcpy(to, value.data.data(),
                static_cast<size_t>(value.length) * element_size(value.type));
  return array;
}

void bind_fields(nb::module_& m) {
  nb::enum_<PluginFieldType>(m, "PluginFieldType", nb::is_arithmetic(),
                             "Types of the elements of a plugin's attribute.")
      .value("FLOAT16", PluginFieldType::kFLOAT16)
      .value("FLOAT32", PluginFieldType::kFLOAT32)
      .value("FLOAT64", PluginFieldType::kFLOAT64)
      .value("INT8", PluginFieldType::kINT8)
      .value("INT16", PluginFieldType::kINT16)
      .value("INT32", PluginFieldType::kINT32)
      .value("CHAR", PluginFieldType::kCHAR)
      .value("DIMS", PluginFieldType::kDIMS)
      .value("UNKNOWN", PluginFieldType::kUNKNOWN)
      .value("BF16", PluginFieldType::kBF16)
      .value("INT64", PluginFieldType::kINT64)
      .value("FP8", PluginFieldType::kFP8)
      .value("INT4", PluginFieldType::kINT4)
      .value("FP4", PluginFieldType::kFP4);
  nb::class_<Field>(m, "PluginField",
                    "A named attribute of a plugin: PluginField(name, data, type). `data` is a "
                    "NumPy array, bytes or str and is copied; without `type` it decides the type.")
      .def(
          "__init__",
          [](Field* self, std::string name, nb::handle data, std::optional<PluginFieldType> type) {
            new (self) Field{make_field(std::move(name), data, type)};
          },
          nb::arg("name") = "", nb::arg("data").none() = nb::none(),
          nb::arg("type").none() = nb::none())
      .def_prop_rw(
          "name", [](const Field& self) { return self.value.name; },
          [](Field& self, std::string name) { self.value.name = std::move(name); })
      .def_prop_rw(
          "data", [](const Field& self) { return field_data(self.value); },
          [](Field& self, nb::handle data) {
            self.value = make_field(self.value.name, data, self.value.type);
          },
          "The elements: a one-dimensional NumPy array (int8 for CHAR and UNKNOWN), a list of Dims "
          "for DIMS, bytes of the types that NumPy does not have.")
      .def_prop_rw(
          "type", [](const Field& self) { return self.value.type; },
          [](Field& self, PluginFieldType type) { self.value.type = type; })
      .def_prop_ro(
          "size", [](const Field& self) { return self.value.length; }, "Number of elements.")
      .def("__repr__", [](const Field& self) { return "<PluginField '" + self.value.name + "'>"; });

  auto collection = nb::class_<FieldCollection>(m, "PluginFieldCollection",
                                                "Attributes of a plugin, a sequence.");
  collection.def(nb::init<>())
      .def(
          "__init__",
          [](FieldCollection* self, nb::handle fields) {
            new (self) FieldCollection{to_fields(fields, "PluginFieldCollection")};
          },
          nb::arg("fields"))
      .def("__len__", [](const FieldCollection& self) { return self.values.size(); })
      .def("__getitem__",
           [](const FieldCollection& self, nb::ssize_t index) {
             return Field{self.values[index_in(index, self.values.size())]};
           })
      .def("__setitem__",
           [](FieldCollection& self, nb::ssize_t index, const Field& field) {
             self.values[index_in(index, self.values.size())] = field.value;
           })
      .def("__delitem__",
           [](FieldCollection& self, nb::ssize_t index) {
             self.values.erase(self.values.begin() +
                               static_cast<std::ptrdiff_t>(index_in(index, self.values.size())));
           })
      .def("__iter__",
           [](const FieldCollection& self) {
             nb::list fields;
             for (const FieldValue& value : self.values) fields.append(Field{value});
             return nb::iter(fields);
           })
      .def("clear", [](FieldCollection& self) { self.values.clear(); })
      .def(
          "insert",
          [](FieldCollection& self, nb::ssize_t index, const Field& field) {
            const auto end = static_cast<nb::ssize_t>(self.values.size());
            if (index < 0) index += end;
            if (index < 0 || index > end)
              throw nb::index_error(str("insert at ", index, " of ", end, " fields").c_str());
            self.values.insert(self.values.begin() + index, field.value);
          },
          nb::arg("index"), nb::arg("field"), "Puts a field before the one of that index.")
      .def(
          "pop",
          [](FieldCollection& self, nb::ssize_t index) {
            const auto at = static_cast<std::ptrdiff_t>(index_in(index, self.values.size()));
            Field field{self.values[static_cast<size_t>(at)]};
            self.values.erase(self.values.begin() + at);
            return field;
          },
          nb::arg("index") = -1, "Takes a field out, the last one at first, and returns it.")
      .def(
          "append",
          [](FieldCollection& self, const Field& field) { self.values.push_back(field.value); },
          nb::arg("field"))
      .def(
          "extend",
          [](FieldCollection& self, nb::handle fields) {
            const FieldValues added = to_fields(fields, "extend");
            self.values.insert(self.values.end(), added.begin(), added.end());
          },
          nb::arg("fields"),
          nb::sig("def extend(self, fields: PluginFieldCollection | "
                  "collections.abc.Sequence[PluginField]) -> None"));
  m.attr("PluginFieldCollection_") = collection;
}

void bind_descriptors(nb::module_& m) {
  auto dims = [](auto member) {
    return [member](auto& self, nb::handle value) { self.*member = to_shape(value).dims(); };
  };
  nb::class_<PluginTensorDesc>(m, "PluginTensorDesc",
                               "A plugin's input or output: extents (-1 for one that is not known "
                               "yet), type, format, and the scale of a quantized tensor.")
      .def("__init__",
           [](PluginTensorDesc* self) {
             new (self) PluginTensorDesc{{}, DataType::kFLOAT, TensorFormat::kLINEAR, -1};
           })
      .def_prop_rw(
          "dims", [](const PluginTensorDesc& self) { return Shape(self.dims); },
          [dims](PluginTensorDesc& self, nb::handle v) { dims (&PluginTensorDesc::dims)(self, v); })
      .def_rw("type", &PluginTensorDesc::type)
      .def_rw("format", &PluginTensorDesc::format)
      .def_rw("scale", &PluginTensorDesc::scale);
  using Dynamic = DynamicPluginTensorDesc;
  nb::class_<Dynamic>(m, "DynamicPluginTensorDesc",
                      "A plugin's input or output during a build, with the range of its shape.")
      .def("__init__", [](Dynamic* self) { new (self) Dynamic{}; })
      .def_rw("desc", &Dynamic::desc)
      .def_prop_rw(
          "min", [](const Dynamic& self) { return Shape(self.min); },
          [dims](Dynamic& self, nb::handle v) { dims (&Dynamic::min)(self, v); })
      .def_prop_rw(
          "opt", [](const Dynamic& self) { return Shape(self.opt); },
          [dims](Dynamic& self, nb::handle v) { dims (&Dynamic::opt)(self, v); })
      .def_prop_rw(
          "max", [](const Dynamic& self) { return Shape(self.max); },
          [dims](Dynamic& self, nb::handle v) { dims (&Dynamic::max)(self, v); });
}

void bind_plugin_enums(nb::module_& m) {
  nb::enum_<TensorRTPhase>(m, "TensorRTPhase", nb::is_arithmetic(), "What a plugin is made for.")
      .value("BUILD", TensorRTPhase::kBUILD)
      .value("RUNTIME", TensorRTPhase::kRUNTIME);
  nb::enum_<PluginCapabilityType>(m, "PluginCapabilityType", nb::is_arithmetic(),
                                  "The parts of an IPluginV3.")
      .value("CORE", PluginCapabilityType::kCORE)
      .value("BUILD", PluginCapabilityType::kBUILD)
      .value("RUNTIME", PluginCapabilityType::kRUNTIME);
  nb::enum_<QuickPluginCreationRequest>(m, "QuickPluginCreationRequest", nb::is_arithmetic(),
                                        "Which implementation of a plugin is asked for.")
      .value("UNKNOWN", QuickPluginCreationRequest::kUNKNOWN)
      .value("PREFER_JIT", QuickPluginCreationRequest::kPREFER_JIT)
      .value("PREFER_AOT", QuickPluginCreationRequest::kPREFER_AOT)
      .value("STRICT_JIT", QuickPluginCreationRequest::kSTRICT_JIT)
      .value("STRICT_AOT", QuickPluginCreationRequest::kSTRICT_AOT);
}

}  // namespace

nb::object field_data(const FieldValue& value) {
  if (value.type == PluginFieldType::kDIMS) {
    nb::list all;
    for (int32_t i = 0; i < value.length; ++i) all.append(Shape(value.data.as<Dims>()[i]));
    return all;
  }
  if (const char* name = numpy_name(value.type); name != nullptr)
    return array_of(value, nb::str(name));
  if (value.type == PluginFieldType::kUNKNOWN) return array_of(value, nb::str("int8"));
  if (value.type == PluginFieldType::kBF16) return array_of(value, numpy_dtype(DataType::kBF16));
  if (value.type == PluginFieldType::kFP8) return array_of(value, numpy_dtype(DataType::kFP8));
  return nb::bytes(value.data.data(), static_cast<size_t>(value.length) * element_size(value.type));
}

FieldValues to_fields(nb::handle collection, std::string_view what) {
  if (nb::isinstance<FieldCollection>(collection))
    return nb::cast<FieldCollection&>(collection).values;
  FieldValues values;
  const std::string_view colon = what.empty() ? "" : ": ";
  const bool is_list =
      nb::isinstance<nb::list>(collection) || nb::isinstance<nb::tuple>(collection);
  require(is_list, what, colon, "expected a PluginFieldCollection or a list of PluginField; ",
          shown(collection), " came");
  for (nb::handle field : nb::iter(collection)) {
    require(nb::isinstance<Field>(field), what, colon, "expected a list of PluginField; it has ",
            shown(field));
    values.push_back(nb::cast<Field&>(field).value);
  }
  return values;
}

void bind_plugin(nb::module_& m) {
  bind_fields(m);
  bind_descriptors(m);
  bind_plugin_enums(m);
  // The module of the decorators imports its names from this submodule.
  nb::module_ plugin_module = m.def_submodule("_plugin", "The C++ half of opwright.plugin.");
  bind_symbolic(plugin_module);
  bind_autotune(plugin_module);
  bind_plugin_tensor(plugin_module);
  bind_plugin_communicator(plugin_module);
  bind_tensor_desc(plugin_module);
  bind_function_plugins(plugin_module);
}

}  // namespace opwright::python
