#include "plugin_callbacks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace opwright::python {

std::vector<nb::object> sequence(nb::handle value, int32_t count, const char* method) {
  const bool is_sequence = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
  require(is_sequence, method, " must return a list; it returned ",
          nb::cast<std::string>(nb::repr(value)));
  std::vector<nb::object> entries;
  for (nb::handle entry : nb::iter(value)) entries.push_back(nb::borrow(entry));
  require(count < 0 || std::cmp_equal(entries.size(), count), method, " returned ", entries.size(),
          " entries, expected ", count, ", one for each output");
  return entries;
}

std::optional<std::string> text(nb::handle object, const char* name) {
  if (!nb::hasattr(object, name)) return std::nullopt;
  nb::object value = object.attr(name);
  if (value.is_none()) return std::nullopt;
  require(nb::isinstance<nb::str>(value), name, " must be a str, but is ",
          nb::cast<std::string>(nb::repr(value)));
  return nb::cast<std::string>(value);
}

const PluginFieldCollection* FieldsResult::set(FieldValues fields) {
  fields_ = std::move(fields);
  pointers_ = point_to(fields_);
  collection_ = {static_cast<int32_t>(pointers_.size()), pointers_.data()};
  return &collection_;
}

IPluginResourceContext& ResourceContextRef::get() const {
  require(*context != nullptr, "this resource context has ended with its plugin");
  return **context;
}

AddressList::AddressList(int32_t count)
    : count_(static_cast<size_t>(count)), values_(count_), integers_(count_) {
  // A null pointer reaches a plugin as 0, so that is what the values start with.
  for (Reference& integer : integers_) integer = Reference(nb::int_(0));
}

PyObject* AddressList::set(void const* const* addresses) {
  PyObject* list = list_.get().ptr();
  if (list == nullptr || Py_REFCNT(list) != 1 || std::cmp_not_equal(PyList_Size(list), count_)) {
    nb::list fresh;
    for (const Reference& integer : integers_) fresh.append(integer.get());
    list_ = Reference(std::move(fresh));
    list = list_.get().ptr();
  }
  for (size_t i = 0; i < count_; ++i) {
    const auto value = reinterpret_cast<uintptr_t>(addresses[i]);
    if (value != values_[i]) {
      integers_[i] = Reference(nb::int_(value));
      values_[i] = value;
    }
    PyObject* integer = integers_[i].get().ptr();
    const auto index = static_cast<Py_ssize_t>(i);
    if (PyList_GetItem(list, index) != integer) {
      Py_INCREF(integer);
      PyList_SetItem(list, index, integer);
    }
  }
  return list;
}

PyObject* EnqueueCall::Integer::set(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  if (wanted != value || !object.is_valid()) {
    object = Reference(nb::int_(wanted));
    value = wanted;
  }
  return object.get().ptr();
}

EnqueueCall::EnqueueCall(nb::handle plugin, nb::list input_descs, nb::list output_descs)
    : function_(plugin.attr("enqueue")),
      inputs_(static_cast<int32_t>(nb::len(input_descs))),
      outputs_(static_cast<int32_t>(nb::len(output_descs))) {
  input_descs_ = Reference(std::move(input_descs));
  output_descs_ = Reference(std::move(output_descs));
}

void EnqueueCall::operator()(void const* const* inputs, void* const* outputs, void* workspace,
                             void* stream) {
  require(function_.is_valid(), "enqueue was called before the shapes were set");
  // The first entry is the callee's to use: a bound method puts its object there.
  PyObject* arguments[] = {nullptr,
                           input_descs_.get().ptr(),
                           output_descs_.get().ptr(),
                           inputs_->set(inputs),
                           outputs_->set(outputs),
                           workspace_.set(workspace),
                           stream_.set(stream)};
  constexpr size_t kCount = std::size(arguments) - 1;
  PyObject* result = PyObject_Vectorcall(function_.get().ptr(), arguments + 1,
                                         kCount | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) [[unlikely]]
    throw nb::python_error();
  Py_DECREF(result);
}

void bind_plugin_callbacks(nb::module_& m) {
  nb::class_<ResourceContextRef>(m, "IPluginResourceContext",
                                 "What an execution context offers to its plugins.")
      .def_prop_ro("error_recorder", [](const ResourceContextRef&) { return nb::none(); })
      .def(
          "allocate",
          [](const ResourceContextRef& self, uint64_t size) {
            IGpuAllocator* allocator = self.get().getGpuAllocator();
            return reinterpret_cast<uintptr_t>(allocator->allocate(size, 64, 0));
          },
          nb::arg("size"), "The address of fresh memory, 64-byte aligned; 0 when there is none.")
      .def(
          "deallocate",
          [](const ResourceContextRef& self, uintptr_t memory) {
            return self.get().getGpuAllocator()->deallocate(reinterpret_cast<void*>(memory));
          },
          nb::arg("memory"));
}

}  // namespace opwright::python
