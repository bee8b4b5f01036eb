// Tensor: what the functions of a plugin compute with. Buffer protocol, array interface, DLPack.

#include "plugin_tensor.h"

#include <algorithm>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

// The exchange structures of DLPack 1.0, https://dmlc.github.io/dlpack/latest/c_api.html.
struct DlDevice {
  int32_t type = 1;  // CPU
  int32_t id = 0;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
struct DlVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr uint64_t kReadOnly = 1;

DlType dl_type(DataType type) {
  const auto width = static_cast<uint8_t>(bits(type));
  switch (type) {
    case DataType::kFLOAT:
    case DataType::kHALF:
      return {2, width, 1};
    case DataType::kBF16:
      return {4, width, 1};
    case DataType::kFP8:
      return {10, width, 1};  // float8_e4m3fn
    case DataType::kINT8:
    case DataType::kINT32:
    case DataType::kINT64:
      return {0, width, 1};
    case DataType::kUINT8:
      return {1, width, 1};
    case DataType::kBOOL:
      return {6, width, 1};
    default:
      fail("DLPack has no type for ", name(type));
  }
}

/// A managed tensor with all that it points to.
template <class Managed>
struct Export {
  Managed managed{};
  int64_t shape[Dims::MAX_DIMS];
  int64_t strides[Dims::MAX_DIMS];
  Reference owner;
};

template <class Managed>
Managed* export_dlpack(const PluginTensor& tensor, nb::handle owner) {
  const Shape& strides = tensor.strides();
  auto made = std::make_unique<Export<Managed>>();
  std::copy(tensor.shape().begin(), tensor.shape().end(), made->shape);
  std::copy(strides.begin(), strides.end(), made->strides);
  made->owner = Reference(nb::borrow(owner));
  DlTensor& t = made->managed.tensor;
  t = {tensor.data(), {}, tensor.shape().rank(), dl_type(tensor.dtype()), made->shape,
       made->strides, 0};
  made->managed.context = made.get();
  made->managed.deleter = [](Managed* self) {
    delete static_cast<Export<Managed>*>(self->context);
  };
  return &made.release()->managed;
}

/// A capsule that frees the tensor unless a consumer has taken it over, which renames the capsule.
template <class Managed>
nb::object to_capsule(Managed* managed, const char* name) {
  PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* object) {
    constexpr const char* kName =
        std::is_same_v<Managed, DlVersioned> ? "dltensor_versioned" : "dltensor";
    if (PyCapsule_IsValid(object, kName) == 0) return;
    auto* left = static_cast<Managed*>(PyCapsule_GetPointer(object, kName));
    left->deleter(left);
  });
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

nb::object dlpack(nb::handle self, nb::handle, nb::handle max_version, nb::handle,
                  nb::handle copy) {
  const auto& tensor = nb::cast<PluginTensor&>(self);
  if (!copy.is_none() && nb::cast<bool>(copy))
    throw nb::buffer_error("a plugin's Tensor gives a view of its memory, not a copy");
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[nb::int_(0)]) >= 1;
  if (!versioned) return to_capsule(export_dlpack<DlManaged>(tensor, self), "dltensor");
  DlVersioned* managed = export_dlpack<DlVersioned>(tensor, self);
  managed->major = 1;
  managed->flags = tensor.is_read_only() ? kReadOnly : 0;
  return to_capsule(managed, "dltensor_versioned");
}

/// The codes of the buffer protocol and of the array interface; null for types that have none.
const char* buffer_format(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return "f";
    case DataType::kHALF:
      return "e";
    case DataType::kINT8:
      return "b";
    case DataType::kUINT8:
      return "B";
    case DataType::kINT32:
      return "i";
    case DataType::kINT64:
      return "l";
    case DataType::kBOOL:
      return "?";
    default:
      return nullptr;
  }
}
static_assert(sizeof(long) == 8);

int get_buffer(PyObject* object, Py_buffer* view, int flags) noexcept {
  try {
    const auto& tensor = *nb::inst_ptr<PluginTensor>(object);
    const char* format = buffer_format(tensor.dtype());
    require(format != nullptr, "the buffer protocol has no type for ", name(tensor.dtype()),
            ": use DLPack, or numpy.asarray with the package ml_dtypes installed");
    require((flags & PyBUF_WRITABLE) == 0 || !tensor.is_read_only(),
            "a plugin's input is read-only");
    tensor.strides();
    const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    require(strided || tensor.is_contiguous(), "the tensor has the format ", name(tensor.format()),
            ", which is not contiguous in the order of its axes");
    view->buf = tensor.data();
    view->len = tensor.shape().numel() * bits(tensor.dtype()) / 8;
    view->itemsize = bits(tensor.dtype()) / 8;
    view->readonly = tensor.is_read_only();
    view->ndim = tensor.shape().rank();
    view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
    view->shape =
        (flags & PyBUF_ND) != 0 ? const_cast<nb::ssize_t*>(tensor.buffer_shape()) : nullptr;
    view->strides = strided ? const_cast<nb::ssize_t*>(tensor.buffer_strides()) : nullptr;
    view->suboffsets = nullptr;
    view->internal = nullptr;
    view->obj = object;
    Py_INCREF(object);
    return 0;
  } catch (const std::exception& error) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

int traverse(PyObject* object, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(object));
  if (!nb::inst_ready(object)) return 0;
  const auto& tensor = *nb::inst_ptr<PluginTensor>(object);
  Py_VISIT(tensor.aliased().ptr());
  Py_VISIT(tensor.source().ptr());
  return 0;
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {0, nullptr}};

nb::object array_interface(const PluginTensor& self) {
  const char* format = buffer_format(self.dtype());
  if (format == nullptr) {
    PyErr_Format(PyExc_AttributeError, "NumPy's array interface has no type for %s",
                 std::string(name(self.dtype())).c_str());
    throw nb::python_error();
  }
  const int size = bits(self.dtype()) / 8;
  const char kind = self.dtype() == DataType::kBOOL    ? 'b'
                    : is_floating(self.dtype())        ? 'f'
                    : self.dtype() == DataType::kUINT8 ? 'u'
                                                       : 'i';
  nb::dict d;
  d["shape"] = self.shape_tuple();
  d["typestr"] =
      nb::str((std::string(size == 1 ? "|" : "<") + kind + std::to_string(size)).c_str());
  d["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(self.data()), self.is_read_only());
  d["version"] = 3;
  if (self.is_contiguous()) {
    d["strides"] = nb::none();
  } else {
    nb::list strides;
    for (int i = 0; i < self.shape().rank(); ++i) strides.append(self.buffer_strides()[i]);
    d["strides"] = nb::tuple(strides);
  }
  return d;
}

/// NumPy's last resort, which it only takes for types that the buffer protocol has no code for.
nb::object numpy_array(nb::handle self, nb::handle dtype, nb::handle copy) {
  const auto& tensor = nb::cast<PluginTensor&>(self);
  nb::module_ numpy = nb::module_::import_("numpy");
  nb::object array;
  if (buffer_format(tensor.dtype()) != nullptr) {
    array = numpy.attr("asarray")(nb::steal(PyMemoryView_FromObject(self.ptr())));
  } else {
    require(tensor.is_contiguous(), "the tensor's format is ", name(tensor.format()),
            "; NumPy can take ", name(tensor.dtype()), " tensors only as LINEAR");
    nb::object memory =
        nb::steal(PyMemoryView_FromMemory(static_cast<char*>(tensor.data()), tensor.extent_bytes(),
                                          tensor.is_read_only() ? PyBUF_READ : PyBUF_WRITE));
    array = numpy.attr("frombuffer")(memory, nb::arg("dtype") = numpy_dtype(tensor.dtype()))
                .attr("reshape")(tensor.shape_tuple());
  }
  if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
  return !copy.is_none() && nb::cast<bool>(copy) ? array.attr("copy")() : array;
}

void make_tensor(PluginTensor* self, const PluginTensorDesc& desc, uintptr_t address,
                 bool read_only) {
  const Shape shape(desc.dims);
  require(std::all_of(shape.begin(), shape.end(), [](int64_t extent) { return extent >= 0; }),
          "Tensor(desc, address): the descriptor has the extents ", shape.str(),
          "; a tensor's memory needs known ones, as enqueue gets them");
  require(address != 0, "Tensor(desc, address): the address is 0");
  auto* tensor = new (self) PluginTensor(desc.type, desc.format, read_only, false);
  tensor->set_shape(shape);
  tensor->set_data(reinterpret_cast<void*>(address));
}

}  // namespace

void* PluginTensor::data() const {
  void* data = source_.is_valid() ? nb::cast<PluginTensor&>(source_).data_ : data_;
  require(data != nullptr,
          "this plugin tensor is used after its call: its memory belongs to the engine again. Copy "
          "what must stay (numpy.array(t))");
  return data;
}

void PluginTensor::set_shape(const Shape& shape) {
  shape_ = shape;
  shape_tuple_ = to_tuple(shape);
  const int rank = shape.rank();
  strides_ = Shape(strides_of(shape, format_));
  const FormatLayout layout = layout_of(format_);
  has_strides_ = layout.block == 1 || layout.channels_last;
  if (!has_strides_ || bits(dtype_) % 8 != 0) {
    has_strides_ = false;
    return;
  }
  for (int i = 0; i < rank; ++i) {
    buffer_shape_[i] = shape[i];
    buffer_strides_[i] = strides_[i] * bits(dtype_) / 8;
  }
}

const Shape& PluginTensor::strides() const {
  require(has_strides_, "a tensor of type ", name(dtype_), " and format ", name(format_),
          " cannot be described by strides; read its memory at data_ptr");
  return strides_;
}

bool PluginTensor::is_contiguous() const {
  if (!has_strides_) return false;
  int64_t expected = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

int64_t PluginTensor::extent_bytes() const { return tensor_bytes(shape_, dtype_, format_); }

PluginTensor PluginTensor::view(nb::object source, const Shape* shape) {
  const auto& base = nb::cast<PluginTensor&>(source);
  PluginTensor made(base.dtype_, base.format_, base.read_only_, base.data_dependent_);
  if (shape != nullptr) {
    require(shape->numel() == base.shape_.numel(), "aliased(", shape->str(), "): the tensor has ",
            base.shape_.numel(), " elements (", base.shape_.str(), ")");
    require(base.is_contiguous(), "aliased(shape): the tensor's format is ", name(base.format_),
            ", which cannot be given another shape");
  }
  made.set_shape(shape != nullptr ? *shape : base.shape_);
  made.scale_ = base.scale_;
  made.aliased_ = source;
  made.source_ = base.source_.is_valid() ? base.source_ : std::move(source);
  return made;
}

void bind_plugin_tensor(nb::module_& m) {
  nb::class_<PluginTensor>(
      m, "Tensor", nb::type_slots(slots),
      "The memory of a plugin's input or output while its impl function runs. "
      "numpy.asarray, numpy.from_dlpack, torch.as_tensor and torch.from_dlpack "
      "make views of it without a copy; those of inputs are read-only where "
      "the framework knows that. A Tensor that is used after its call raises "
      "Error.")
      .def(
          "__init__", &make_tensor, nb::arg("desc"), nb::arg("address"),
          nb::arg("read_only") = false,
          "What the enqueue method of a plugin class gets, a PluginTensorDesc and an address, as a "
          "Tensor. The memory is the caller's: use the Tensor within the call only.")
      .def_prop_ro(
          "data_ptr",
          [](const PluginTensor& self) { return reinterpret_cast<uintptr_t>(self.data()); },
          "The address of the first element.\n\n:raises Error: after the call.")
      .def_prop_ro("dtype", &PluginTensor::dtype, "The type of the elements.")
      .def_prop_ro("format", &PluginTensor::format, "How the elements lie in memory.")
      .def_prop_ro("scale", &PluginTensor::scale,
                   "What INT8 elements are multiples of; 1 where the tensor has no scale.")
      .def_prop_ro(
          "shape", [](const PluginTensor& self) { return self.shape_tuple(); },
          nb::sig("def shape(self) -> tuple[int, ...]"),
          "The extents; in a data-dependent output the upper bounds.")
      .def_prop_ro(
          "strides", [](const PluginTensor& self) { return to_tuple(self.strides()); },
          nb::sig("def strides(self) -> tuple[int, ...]"),
          "The distance between neighbours along each axis, in elements.\n\n:raises Error: for a "
          "format with blocks of channels, and for types of less than a byte.")
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
            const Shape wanted = to_shape(shape);
            return PluginTensor::view(std::move(self), &wanted);
          },
          nb::arg("shape").none() = nb::none(),
          nb::sig(
              "def aliased(self, shape: collections.abc.Sequence[int] | None = None) -> Tensor"),
          "A tensor over the same memory, in another shape of as many elements.\n\n:raises Error: "
          "for another number of elements, or a format that is not contiguous.")
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
      .def(
          "__dlpack_device__", [](const PluginTensor&) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const PluginTensor& self) {
        return opwright::str("<Tensor ", name(self.dtype()), " ", self.shape(), ">");
      });
}

}  // namespace opwright::python
