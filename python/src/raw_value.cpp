#include "raw_value.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

using RawForm = RawValue::Form;
using RawKind = RawValue::Kind;

RawValue unfit(std::string obstacle) {
  RawValue raw;
  raw.obstacle = std::move(obstacle);
  return raw;
}

template <class T>
RawValue made(RawKind kind, PluginFieldType type, const std::vector<T>& elements) {
  if (!std::in_range<int32_t>(elements.size()))
    return unfit(str("has ", elements.size(), " elements; fewer than 2^31 are possible"));
  RawValue raw;
  raw.kind = kind;
  raw.value = {"", type, static_cast<int32_t>(elements.size()),
               copy_terminated(elements.data(), elements.size() * sizeof(T))};
  return raw;
}

/// The text as UTF-8; empty for Python text with lone surrogates.
std::optional<std::string> utf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes != nullptr) return std::string(bytes, static_cast<size_t>(size));
  PyErr_Clear();
  return std::nullopt;
}

constexpr const char* kNoUtf8 = "must be text, but is no text that UTF-8 can encode";

RawValue of_text(RawKind kind, std::string_view text) {
  return made(kind, PluginFieldType::kCHAR, std::vector<char>(text.begin(), text.end()));
}

RawValue of_sequence(nb::handle value);

RawValue of_array(nb::object array, nb::module_& numpy) {
  nb::object dtype = array.attr("dtype");
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  const auto name = nb::cast<std::string>(dtype.attr("name"));
  const char* stored = nullptr;
  PluginFieldType type = PluginFieldType::kINT64;
  if (kind == "b") {
    stored = "int8";
    type = PluginFieldType::kINT8;
  } else if (kind == "i" || kind == "u") {
    stored = "int64";
    if (name == "uint64" && nb::cast<size_t>(array.attr("size")) != 0 &&
        nb::cast<uint64_t>(array.attr("max")().attr("item")()) >
            uint64_t{std::numeric_limits<int64_t>::max()})
      return unfit("must fit 64 bits with a sign, but does not");
  } else if (name == "float16" || name == "float32") {
    stored = name.c_str();
    type = name == "float16" ? PluginFieldType::kFLOAT16 : PluginFieldType::kFLOAT32;
  } else if (kind == "f") {
    stored = "float64";
    type = PluginFieldType::kFLOAT64;
  } else if (name == "bfloat16") {
    type = PluginFieldType::kBF16;
  } else if (kind == "U" && nb::cast<int>(array.attr("ndim")) == 1) {
    return of_sequence(array.attr("tolist")());
  } else {
    return unfit(str("must be numbers, but it is an array of ", name));
  }
  if (!std::in_range<int32_t>(nb::cast<size_t>(array.attr("size"))))
    return unfit("has too many elements; fewer than 2^31 are possible");
  RawValue raw;
  raw.kind = kind == "b" ? RawKind::kBool : RawKind::kNumber;
  raw.form = RawForm::kArray;
  if (nb::cast<int>(array.attr("ndim")) != 1)
    raw.value.extents = nb::cast<std::vector<int64_t>>(array.attr("shape"));
  raw.value.type = type;
  raw.value.length = nb::cast<int32_t>(array.attr("size"));
  // The bytes must be row-major and in this machine's byte order.
  if (stored != nullptr) array = numpy.attr("asarray")(array, stored);
  const Blob bytes = borrow_bytes(array.attr("tobytes")());
  raw.value.data = copy_terminated(bytes.data(), bytes.size());
  return raw;
}

RawValue as_array(nb::handle value, const char* obstacle) {
  nb::module_ numpy = nb::module_::import_("numpy");
  try {
    return of_array(numpy.attr("asarray")(value), numpy);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    return unfit(obstacle);
  }
}

bool is_numpy_scalar(nb::handle value) {
  return nb::isinstance(value, nb::module_::import_("numpy").attr("generic"));
}

RawValue of_scalar(nb::handle value) {
  if (PyBool_Check(value.ptr()))
    return made(RawKind::kBool, PluginFieldType::kINT8,
                std::vector<int8_t>{static_cast<int8_t>(value.is(nb::handle(Py_True)))});
  if (PyLong_Check(value.ptr())) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0) return unfit("is an integer that does not fit 64 bits");
    return made(RawKind::kNumber, PluginFieldType::kINT64, std::vector{number});
  }
  if (PyFloat_Check(value.ptr()))
    return made(RawKind::kNumber, PluginFieldType::kFLOAT64,
                std::vector{PyFloat_AsDouble(value.ptr())});
  if (PyUnicode_Check(value.ptr())) {
    const auto text = utf8(value);
    return text ? of_text(RawKind::kText, *text) : unfit(kNoUtf8);
  }
  const Blob bytes = borrow_bytes(value);
  return of_text(RawKind::kBytes, {bytes.as<char>(), bytes.size()});
}

bool is_scalar(nb::handle value) {
  return PyBool_Check(value.ptr()) || PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
         PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr());
}

RawValue of_texts(const std::vector<RawValue>& elements) {
  std::string all;
  std::vector<int64_t> lengths;
  for (const RawValue& each : elements) {
    all.append(each.value.data.as<char>(), each.value.data.size());
    lengths.push_back(each.value.length);
  }
  RawValue raw = of_text(RawKind::kText, all);
  raw.value.extents = std::move(lengths);
  return raw;
}

/// A sequence of scalars of one type. Floating numbers may have integers among them.
RawValue of_scalars(const std::vector<RawValue>& elements) {
  bool is_floating = false;
  for (const RawValue& each : elements) {
    if (!each.obstacle.empty()) return each;
    if (each.kind != elements[0].kind) return unfit("must have elements of one type");
    is_floating |= each.value.type == PluginFieldType::kFLOAT64;
  }
  switch (elements[0].kind) {
    case RawKind::kBool: {
      std::vector<int8_t> values;
      for (const RawValue& each : elements) values.push_back(*each.value.data.as<int8_t>());
      return made(RawKind::kBool, PluginFieldType::kINT8, values);
    }
    case RawKind::kNumber:
      break;
    case RawKind::kText:
      return of_texts(elements);
    default:
      return unfit("must be numbers, booleans or texts, but holds bytes");
  }
  if (!is_floating) {
    std::vector<int64_t> values;
    for (const RawValue& each : elements) values.push_back(*each.value.data.as<int64_t>());
    return made(RawKind::kNumber, PluginFieldType::kINT64, values);
  }
  std::vector<double> values;
  for (const RawValue& each : elements)
    values.push_back(*fit(each, PluginFieldType::kFLOAT64).data.as<double>());
  return made(RawKind::kNumber, PluginFieldType::kFLOAT64, values);
}

RawValue of_sequence(nb::handle value) {
  std::vector<RawValue> elements;
  for (nb::handle element : nb::iter(value)) {
    nb::object plain = nb::borrow(element);
    if (!is_scalar(plain) && is_numpy_scalar(plain)) plain = plain.attr("item")();
    if (!is_scalar(plain))
      return as_array(value, "must be an array, but its rows differ in length");
    elements.push_back(of_scalar(plain));
  }
  RawValue raw = elements.empty()
                     ? made(RawKind::kNumber, PluginFieldType::kINT64, std::vector<int64_t>{})
                     : of_scalars(elements);
  raw.form = RawForm::kList;
  return raw;
}

RawValue raw_of(nb::handle value) {
  nb::object plain = nb::borrow(value);
  if (!is_scalar(plain) && is_numpy_scalar(plain)) plain = plain.attr("item")();
  if (is_scalar(plain)) {
    RawValue raw = of_scalar(plain);
    raw.form = RawForm::kScalar;
    return raw;
  }
  if (value.is_none()) return unfit("must have a value");
  const nb::object sequence = nb::module_::import_("collections.abc").attr("Sequence");
  if (nb::isinstance(value, sequence)) return of_sequence(value);
  return as_array(value, "must be an array");
}

}  // namespace

RawValue raw_value(std::string name, nb::handle value) {
  RawValue raw = raw_of(value);
  raw.value.name = std::move(name);
  return raw;
}

}  // namespace opwright::python
