#include "torch_tensors.h"

namespace opwright::python {
namespace {

/// An interned name, which can be compared by its address.
nb::object interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

bool is_true(const nb::object& value) { return value.ptr() == Py_True; }

void* address_of(const nb::object& data_ptr) {
  return reinterpret_cast<void*>(nb::cast<uintptr_t>(data_ptr));
}

}  // namespace

TorchTensors::TorchTensors(const Engine& engine)
    : engine_(engine),
      dtype_(interned("dtype")),
      shape_(interned("shape")),
      layout_(interned("layout")),
      is_cpu_(interned("is_cpu")),
      is_contiguous_(interned("is_contiguous")),
      data_ptr_(interned("data_ptr")),
      requires_grad_(interned("requires_grad")),
      keywords_(nb::make_tuple(dtype_)),
      keywords_with_device_(nb::make_tuple(dtype_, interned("device"))) {}

const TorchTensors::Package& TorchTensors::package() {
  if (package_) return *package_;
  const nb::module_ torch = nb::module_::import_("torch");
  Package made;
  made.tensor = torch.attr("Tensor");
  made.parameter = torch.attr("nn").attr("Parameter");
  made.strided = torch.attr("strided");
  made.empty = torch.attr("empty");
  made.is_grad_enabled = torch.attr("is_grad_enabled");
  const auto dtype = [&](const PlanPort& port) {
    const DataType type = port.type.dtype;
    return bits(type) < 8 ? nb::none() : nb::object(torch.attr(torch_name(type)));
  };
  for (const PlanPort& port : engine_.plan().inputs) made.inputs.push_back(dtype(port));
  for (const PlanPort& port : engine_.plan().outputs) made.outputs.push_back(dtype(port));
  return package_.emplace(std::move(made));
}

bool TorchTensors::is_strided(nb::handle value) {
  if (!package_ && kind_of(value) != ArrayKind::kTorch) return false;
  const Package& torch = package();
  const nb::handle type = value.type();
  return (type.is(torch.tensor) || type.is(torch.parameter)) &&
         value.attr(layout_).is(torch.strided);
}

bool TorchTensors::has_type(size_t input, nb::handle tensor) {
  return tensor.attr(dtype_).is(package().inputs[input]);
}

bool TorchTensors::is_contiguous(nb::handle tensor) const {
  return is_true(tensor.attr(is_contiguous_)());
}

bool TorchTensors::is_dense_on_host(size_t input, nb::handle tensor) {
  return has_type(input, tensor) && is_true(tensor.attr(is_cpu_)) && is_contiguous(tensor);
}

bool TorchTensors::records_gradients(nb::handle tensor) const {
  return is_true(tensor.attr(requires_grad_)) && is_true(package_->is_grad_enabled());
}

Argument TorchTensors::read(size_t input, nb::object tensor) const {
  Argument argument{
      address_of(tensor.attr(data_ptr_)()), {}, engine_.plan().inputs[input].type.dtype, {}};
  for (nb::handle extent : nb::borrow<nb::tuple>(tensor.attr(shape_)))
    argument.shape.push_back(nb::cast<int64_t>(extent));
  argument.holder = std::move(tensor);
  return argument;
}

std::pair<nb::object, void*> TorchTensors::allocate(size_t output, const Shape& shape,
                                                    nb::handle device) {
  const Package& torch = package();
  const nb::tuple extents = to_tuple(shape);
  PyObject* const given[] = {extents.ptr(), torch.outputs[output].ptr(), device.ptr()};
  const nb::object& names = device.is_valid() ? keywords_with_device_ : keywords_;
  PyObject* const made = PyObject_Vectorcall(torch.empty.ptr(), given, 1, names.ptr());
  if (made == nullptr) nb::raise_python_error();
  nb::object tensor = nb::steal(made);
  void* const address = address_of(tensor.attr(data_ptr_)());
  return {std::move(tensor), address};
}

}  // namespace opwright::python
