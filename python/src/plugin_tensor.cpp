// Tensor: the class of tensors with which the functions of a plugin compute.

#include "plugin_tensor.h"

#include <algorithm>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "plugin_bindings.h"
#include "plugin_tensor_views.h"

namespace opwright::python {
namespace {

thread_local const RunMemory* current_run = nullptr;

void make_tensor(PluginTensor* self, const PluginTensorDesc& desc, uintptr_t address,
                 bool read_only) {
  const Shape shape(desc.dims);
  require(std::all_of(shape.begin(), shape.end(), [](int64_t extent) { return extent >= 0; }),
          "Tensor(desc, address): the descriptor has the extents ", shape.str(),
          "; a tensor's memory needs known ones, as enqueue gets them");
  require(address != 0, "Tensor(desc, address): the address is 0");
  auto* tensor = new (self) PluginTensor({desc.type, desc.format}, desc.scale > 0 ? desc.scale : 1,
                                         read_only, false, current_place());
  tensor->set_shape(shape);
  tensor->set_data(reinterpret_cast<void*>(address));
}

}  // namespace

void* PluginTensor::data() const {
  void* data = source_.is_valid() ? nb::cast<PluginTensor&>(source_).data_ : data_;
  if (data == nullptr)
    fail(
        "this plugin tensor is used after its call: its memory belongs to the engine again. Copy "
        "what must stay (",
        place_.device == nullptr ? "numpy.array(t)" : "torch.as_tensor(t).clone()", ")");
  return data;
}

Queue PluginTensor::queue() const {
  return source_.is_valid() ? nb::cast<PluginTensor&>(source_).place_.queue : place_.queue;
}

const char* PluginTensor::device_advice() {
  return "this tensor lies in GPU memory: torch.as_tensor(t) or cupy.asarray(t) make arrays of it "
         "without a copy, torch.as_tensor(t).cpu() one that NumPy reads; a function that computes "
         "with NumPy is for the CPU: @impl(id, device=\"cpu\")";
}

PluginTensor& PluginTensor::source_tensor() {
  return source_.is_valid() ? nb::cast<PluginTensor&>(source_) : *this;
}

void PluginTensor::set_shape(const Shape& shape) {
  shape_ = shape;
  shape_tuple_ =
      nb::module_::import_("opwright._plugins.tensor_shape").attr("TensorShape")(to_tuple(shape));
  strides_ = Shape(strides_of(shape, type_.format));
  const FormatLayout format = layout_of(type_.format);
  has_strides_ = format.block == 1 || format.channels_last;
  const bool is_linear = format.block == 1 && !format.channels_last;
  const int width = bits(type_.dtype);
  has_layout_ = has_strides_ && (width % 8 == 0 || is_linear);
  if (!has_layout_) return;

  Shape seen = shape, strides = strides_;
  layout_ = {};
  layout_.dtype = type_.dtype;
  layout_.bytes = bytes_of(type_.dtype, shape.numel());
  if (width < 8) {
    layout_.dtype = DataType::kUINT8;
    const int last = shape.rank() - 1;
    if (shape.rank() > 0 && shape[last] % (8 / width) == 0)
      seen[last] = shape[last] * width / 8;
    else
      seen = Shape{layout_.bytes};
    strides = Shape(strides_of(seen, type_.format));
  }
  layout_.rank = seen.rank();
  layout_.itemsize = bits(layout_.dtype) / 8;
  layout_.is_contiguous = true;
  int64_t expected = 1;
  for (int i = seen.rank() - 1; i >= 0; --i) {
    layout_.shape[i] = seen[i];
    layout_.strides[i] = strides[i] * layout_.itemsize;
    if (seen[i] != 1 && strides[i] != expected) layout_.is_contiguous = false;
    expected *= seen[i];
  }
}

const Shape& PluginTensor::strides() const {
  if (!has_strides_) fail_without_layout();
  return strides_;
}

const PluginTensor::Layout& PluginTensor::layout() const {
  if (!has_layout_) [[unlikely]]
    fail_without_layout();
  return layout_;
}

void PluginTensor::fail_without_layout() const {
  if (has_strides_)
    fail("arrays cannot share the memory of a ", name(type_.dtype), " tensor of format ",
         name(type_.format), ", which has two elements in a byte; list LINEAR for it in autotune");
  const Shape shape = vectorized_shape();
  fail("a tensor of format ", name(type_.format), " cannot be described by strides: its memory is ",
       shape, ", the last axis channels, with padding. Take it as such by t.aliased(",
       nb::repr(to_tuple(shape)).c_str(), "), or list LINEAR for it in autotune");
}

Shape PluginTensor::vectorized_shape() const {
  const int block = layout_of(type_.format).block;
  Shape shape = shape_;
  shape[1] = (shape_[1] + block - 1) / block;
  shape.push_back(block);
  return shape;
}

int64_t PluginTensor::extent_bytes() const {
  return tensor_bytes(shape_, type_.dtype, type_.format);
}

PluginTensor PluginTensor::view(nb::object source, const Shape* shape) {
  const auto& base = nb::cast<PluginTensor&>(source);
  PortType type = base.type_;
  if (shape != nullptr) {
    const Shape memory = base.has_strides_ ? base.shape_ : base.vectorized_shape();
    // In a format with blocks of channels, fewer elements would not be the first ones in memory.
    const bool fits =
        base.has_strides_ ? shape->numel() <= memory.numel() : shape->numel() == memory.numel();
    require(fits, "aliased(", shape->str(), "): the tensor's memory has ", memory.numel(),
            " elements (", memory.str(), ")");
    require(!base.has_strides_ || (base.has_layout_ && base.layout_.is_contiguous),
            "aliased(shape): the tensor's format is ", name(type.format),
            ", which cannot be given another shape");
    type.format = TensorFormat::kLINEAR;
  }
  PluginTensor made(type, base.scale_, base.read_only_, base.data_dependent_, base.place_);
  made.set_shape(shape != nullptr ? *shape : base.shape_);
  made.aliased_ = source;
  made.source_ = base.source_.is_valid() ? base.source_ : std::move(source);
  return made;
}

void PluginTensor::count_view(int change) { source_tensor().views_ += change; }

RunMemory::RunMemory() : outer_(std::exchange(current_run, this)) {}

RunMemory::~RunMemory() { current_run = outer_; }

nb::object RunMemory::current_objects() {
  return current_run != nullptr ? current_run->objects() : nb::object();
}

void bind_plugin_tensor(nb::module_& m) {
  bind_tensor_bytes(m);
  nb::class_<PluginTensor>(
      m, "Tensor", nb::type_slots(tensor_slots),
      "The memory of a plugin's input or output while its impl function runs. "
      "numpy.asarray, numpy.from_dlpack, torch.as_tensor and torch.from_dlpack "
      "make views of it without a copy, on a GPU torch.as_tensor, cupy.asarray and "
      "numba.cuda.as_cuda_array; those of inputs are read-only where "
      "the framework knows that. A Tensor that is used after its call raises "
      "Error, and so does the call itself where a view is left after it.")
      .def(
          "__init__", &make_tensor, nb::arg("desc"), nb::arg("address"),
          nb::arg("read_only") = false,
          "What the enqueue method of a plugin class gets, a PluginTensorDesc and an address, as a "
          "Tensor. The memory is the caller's: use the Tensor within the call only.")
      .def_prop_ro(
          "data_ptr",
          [](const PluginTensor& self) { return reinterpret_cast<uintptr_t>(self.data()); },
          "The address of the first element.\n\n:raises Error: after the call.")
      .def_prop_ro(
          "dtype", [](const PluginTensor& self) { return self.type().dtype; },
          "The type of the elements.")
      .def_prop_ro(
          "format", [](const PluginTensor& self) { return self.type().format; },
          "How the elements lie in memory.")
      .def_prop_ro(
          "scale", &PluginTensor::scale,
          "What quantized INT8 elements are multiples of; 1 where the tensor has no scale.")
      .def_prop_ro(
          "shape", [](const PluginTensor& self) { return self.shape_tuple(); },
          nb::sig("def shape(self) -> opwright._plugins.tensor_shape.TensorShape"),
          "The extents, a tuple that has numel(), too; in a data-dependent output the upper "
          "bounds.")
      .def_prop_ro(
          "strides", [](const PluginTensor& self) { return to_tuple(self.strides()); },
          nb::sig("def strides(self) -> tuple[int, ...]"),
          "The distance between neighbours along each axis, in elements.\n\n:raises Error: for a "
          "format with blocks of channels.")
      .def_prop_ro(
          "ndim", [](const PluginTensor& self) { return self.shape().rank(); },
          "The number of axes.")
      .def(
          "numel", [](const PluginTensor& self) { return self.shape().numel(); },
          "The number of elements.")
      .def(
          "aliased",
          [](nb::object self, nb::handle shape) {
            if (shape.is_none()) return PluginTensor::view(std::move(self), nullptr);
            const bool is_desc = nb::isinstance<PluginTensorDesc>(shape);
            const Shape wanted =
                is_desc ? Shape(nb::cast<const PluginTensorDesc&>(shape).dims) : to_shape(shape);
            require(std::all_of(wanted.begin(), wanted.end(), [](int64_t e) { return e >= 0; }),
                    "aliased(", wanted.str(), "): the extents of memory are not negative");
            return PluginTensor::view(std::move(self), &wanted);
          },
          nb::arg("shape").none() = nb::none(),
          nb::sig("def aliased(self, shape: collections.abc.Sequence[int] | Shape | "
                  "opwright._core.PluginTensorDesc | None = None) -> Tensor"),
          "A tensor over the same memory, in another shape of as many elements or fewer: of a "
          "data-dependent output that of what was found. In a format with blocks of channels there "
          "are as many as lie in memory, padding included, and the new tensor is LINEAR: CHW4 of "
          "(1, 6, 2, 2) may be taken as (1, 2, 2, 2, 4).\n\n:raises Error: for more elements, or "
          "for channels last.")
      .def(
          "get_aliased",
          [](const PluginTensor& self) {
            return self.aliased().is_valid() ? self.aliased() : nb::none();
          },
          nb::sig("def get_aliased(self) -> Tensor | None"),
          "The tensor whose memory this is: of an output in place, the input; else None.")
      .def_prop_ro(
          "is_aliased", [](const PluginTensor& self) { return self.aliased().is_valid(); },
          "Whether this is another tensor's memory.")
      .def_prop_ro("is_data_dependent", &PluginTensor::is_data_dependent,
                   "Whether the shape is an upper bound and the true size is written to a size "
                   "tensor.")
      .def_prop_ro("__array_interface__", &array_interface)
      .def_prop_ro("__cuda_array_interface__", &cuda_array_interface)
      .def("__array__", &numpy_array, nb::arg("dtype").none() = nb::none(),
           nb::arg("copy").none() = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "numpy.typing.NDArray[typing.Any]"))
      .def(
          "__dlpack__", &dlpack, nb::arg("stream").none() = nb::none(), nb::kw_only(),
          nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
          nb::arg("copy").none() = nb::none(),
          nb::sig("def __dlpack__(self, stream: int | None = None, *, max_version: tuple[int, int] "
                  "| None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = "
                  "None) -> typing_extensions.CapsuleType"))
      .def("torch", &torch_tensor, nb::sig("def torch(self) -> typing.Any"),
           "The memory as a torch.Tensor, without a copy: what torch.from_dlpack(t) returns, in a "
           "third of the time. Valid within the call only.\n\n:raises Error: for a format that "
           "strides cannot describe, and after the call.\n:raises ImportError: without PyTorch.")
      .def("__dlpack_device__", &dlpack_device,
           nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const PluginTensor& self) {
        std::string where;
        if (const Device* device = self.device())
          where = opwright::str(" in memory of GPU ", device->ordinal());
        return opwright::str("<Tensor ", name(self.type().dtype), " ", self.shape(), where, ">");
      });
}

}  // namespace opwright::python
