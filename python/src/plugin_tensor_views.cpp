// Views of a plugin's tensor for NumPy, DLPack and others.

#include "plugin_tensor_views.h"

#include <memory>
#include <vector>

#include "backend/device.h"
#include "base/error.h"
#include "host_arrays.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// Keeps a tensor's object and counts as one of its views until it is dropped, on any thread.
class View {
 public:
  explicit View(nb::handle tensor) : tensor_(nb::borrow(tensor)) {
    nb::cast<PluginTensor&>(tensor).count_view(1);
  }
  ~View() {
    if (!Py_IsInitialized()) {
      tensor_.release();
      return;
    }
    nb::gil_scoped_acquire gil;
    nb::cast<PluginTensor&>(tensor_).count_view(-1);
    tensor_.reset();
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  const PluginTensor& tensor() const { return nb::cast<PluginTensor&>(tensor_); }

 private:
  nb::object tensor_;
};

// The exchange structures of DLPack 1.0, https://dmlc.github.io/dlpack/latest/c_api.html.
struct DlDevice {
  int32_t type = 1;  // CPU
  int32_t id = 0;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  nb::dlpack::dtype dtype;
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

constexpr int32_t kDlCuda = 2;

DlDevice dl_device(const PluginTensor& tensor) {
  const Device* device = tensor.device();
  return device == nullptr ? DlDevice{} : DlDevice{kDlCuda, device->ordinal()};
}

/// Makes the consumer's stream, numbered as in DLPack, wait for the tensor's stream. None stands
/// for the default stream. Consumers that order their work themselves pass it, so None does not
/// wait.
void make_wait(const PluginTensor& tensor, nb::handle stream) {
  const Device* device = tensor.device();
  if (device == nullptr || stream.is_none()) return;
  const auto number = nb::cast<int64_t>(stream);
  constexpr int64_t kNoOrder = -1, kLegacyDefault = 1;
  if (number == kNoOrder) return;
  const Queue consumer =
      number == kLegacyDefault ? nullptr : reinterpret_cast<Queue>(static_cast<uintptr_t>(number));
  if (consumer == tensor.queue()) return;
  const DeviceScope scope(*device);
  const std::unique_ptr<Event> event = device->make_event();
  event->record(tensor.queue());
  event->make_wait(consumer);
}

/// A managed tensor with the data that it points to.
template <class Managed>
struct Export {
  explicit Export(nb::handle tensor) : view(tensor) {}
  Managed managed{};
  int64_t shape[Dims::MAX_DIMS];
  int64_t strides[Dims::MAX_DIMS];
  View view;
};

template <class Managed>
Managed* export_dlpack(nb::handle self) {
  const auto& tensor = nb::cast<PluginTensor&>(self);
  const PluginTensor::Layout& layout = tensor.layout();
  void* data = tensor.data();
  const nb::dlpack::dtype type = dlpack_type(layout.dtype);
  auto made = std::make_unique<Export<Managed>>(self);
  for (int i = 0; i < layout.rank; ++i) {
    made->shape[i] = layout.shape[i];
    made->strides[i] = layout.strides[i] / layout.itemsize;
  }
  made->managed.tensor = {data, dl_device(tensor), layout.rank, type, made->shape, made->strides,
                          0};
  made->managed.context = made.get();
  made->managed.deleter = [](Managed* managed) {
    delete static_cast<Export<Managed>*>(managed->context);
  };
  return &made.release()->managed;
}

/// A capsule that frees the tensor unless a consumer has taken it. A consumer renames the capsule.
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

/// The type code of the buffer protocol; null for types without a code.
const char* buffer_format(const PluginTensor& tensor) {
  switch (tensor.type().dtype) {
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
    auto& tensor = *nb::inst_ptr<PluginTensor>(object);
    if (tensor.device() != nullptr) fail(PluginTensor::device_advice());
    const char* format = buffer_format(tensor);
    if (format == nullptr)
      fail("the buffer protocol has no type for ", name(tensor.type().dtype),
           ": use DLPack, or numpy.asarray with the package ml_dtypes installed");
    require((flags & PyBUF_WRITABLE) == 0 || !tensor.is_read_only(),
            "a plugin's input is read-only");
    const PluginTensor::Layout& layout = tensor.layout();
    const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if (!strided && !layout.is_contiguous)
      fail("the tensor has the format ", name(tensor.type().format),
           ", which is not contiguous in the order of its axes");
    view->buf = tensor.data();
    view->len = layout.bytes;
    view->itemsize = layout.itemsize;
    view->readonly = tensor.is_read_only();
    view->ndim = layout.rank;
    view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
    view->shape = (flags & PyBUF_ND) != 0 ? const_cast<nb::ssize_t*>(layout.shape) : nullptr;
    view->strides = strided ? const_cast<nb::ssize_t*>(layout.strides) : nullptr;
    view->suboffsets = nullptr;
    view->internal = nullptr;
    view->obj = object;
    Py_INCREF(object);
    tensor.count_view(1);
    return 0;
  } catch (const std::exception& error) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

void release_buffer(PyObject* object, Py_buffer*) noexcept {
  nb::inst_ptr<PluginTensor>(object)->count_view(-1);
}

/// The bytes of a tensor whose type the buffer protocol does not know. NumPy makes an array over
/// them, which then owns this object.
class TensorBytes {
 public:
  explicit TensorBytes(nb::handle tensor)
      : view_(std::make_unique<View>(tensor)), data_(view_->tensor().data()) {}
  static int get_buffer(PyObject* object, Py_buffer* view, int flags) noexcept {
    const auto& self = *nb::inst_ptr<TensorBytes>(object);
    const PluginTensor& tensor = self.view_->tensor();
    return PyBuffer_FillInfo(view, object, self.data_, tensor.layout().bytes, tensor.is_read_only(),
                             flags);
  }

 private:
  std::unique_ptr<View> view_;
  void* data_;
};

int traverse(PyObject* object, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(object));
  if (!nb::inst_ready(object)) return 0;
  const auto& tensor = *nb::inst_ptr<PluginTensor>(object);
  Py_VISIT(tensor.aliased().ptr());
  Py_VISIT(tensor.source().ptr());
  Py_VISIT(tensor.objects().ptr());
  return 0;
}

/// INT4 elements unpacked, one in each byte. In the engine's memory the first of two is the lower
/// half of a byte.
nb::object unpacked(const PluginTensor& tensor) {
  nb::object type = numpy_dtype(tensor.type().dtype);
  const auto* from = static_cast<const uint8_t*>(tensor.data());
  std::vector<int8_t> elements(static_cast<size_t>(tensor.shape().numel()));
  for (size_t i = 0; i < elements.size(); ++i) {
    const int half = from[i / 2] >> (i % 2 * 4) & 15;
    elements[i] = static_cast<int8_t>((half ^ 8) - 8);
  }
  nb::object array = nb::module_::import_("numpy").attr("frombuffer")(
      nb::bytes(elements.data(), elements.size()), numpy_dtype(DataType::kINT8));
  return array.attr("reshape")(tensor.shape_tuple()).attr("astype")(type);
}

}  // namespace

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                              {0, nullptr}};

nb::tuple dlpack_device(const PluginTensor& self) {
  const DlDevice device = dl_device(self);
  return nb::make_tuple(device.type, device.id);
}

nb::object dlpack(nb::handle self, nb::handle stream, nb::handle max_version, nb::handle device,
                  nb::handle copy) {
  const auto& tensor = nb::cast<PluginTensor&>(self);
  if (!copy.is_none() && nb::cast<bool>(copy))
    throw nb::buffer_error("a plugin's Tensor gives a view of its memory, not a copy");
  const nb::tuple own = dlpack_device(tensor);
  if (!device.is_none() && !device.equal(own))
    throw nb::buffer_error(str("a plugin's Tensor on ",
                               tensor.device() == nullptr ? "the CPU" : "a GPU",
                               ", DLPack's device (", nb::cast<int>(own[0]), ", ",
                               nb::cast<int>(own[1]), "), gives a view of its memory there only")
                               .c_str());
  make_wait(tensor, stream);
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[nb::int_(0)]) >= 1;
  if (!versioned) return to_capsule(export_dlpack<DlManaged>(self), "dltensor");
  DlVersioned* managed = export_dlpack<DlVersioned>(self);
  managed->major = 1;
  managed->flags = tensor.is_read_only() ? kReadOnly : 0;
  return to_capsule(managed, "dltensor_versioned");
}

nb::object torch_tensor(nb::handle self) {
  // torch.from_dlpack() itself calls this function once it has a capsule. Before that it asks for
  // the current stream, which is the engine's. That takes longer than all the rest.
  static PyObject* const from_capsule = [] {
    nb::object function = nb::module_::import_("torch").attr("_C").attr("_from_dlpack");
    return function.release().ptr();
  }();
  const nb::object capsule = to_capsule(export_dlpack<DlManaged>(self), "dltensor");
  return nb::borrow(from_capsule)(capsule);
}

namespace {

nb::dict interface_of(const PluginTensor& self, bool is_read_only) {
  if (buffer_format(self) == nullptr)
    throw nb::attribute_error(str("array interfaces have no type for ", name(self.type().dtype),
                                  ": use DLPack (torch.from_dlpack)")
                                  .c_str());
  const PluginTensor::Layout& layout = self.layout();
  const char kind = layout.dtype == DataType::kBOOL    ? 'b'
                    : is_floating(layout.dtype)        ? 'f'
                    : layout.dtype == DataType::kUINT8 ? 'u'
                                                       : 'i';
  nb::dict d;
  d["shape"] = to_tuple(self.shape());  // a plain tuple, since some consumers require it
  d["typestr"] = nb::str(str(layout.itemsize == 1 ? '|' : '<', kind, layout.itemsize).c_str());
  d["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(self.data()), is_read_only);
  d["version"] = 3;
  if (layout.is_contiguous)
    d["strides"] = nb::none();
  else
    d["strides"] = to_tuple(Shape(std::span(layout.strides, static_cast<size_t>(layout.rank))));
  return d;
}

}  // namespace

nb::object array_interface(const PluginTensor& self) {
  if (self.device() != nullptr) throw nb::attribute_error(PluginTensor::device_advice());
  return interface_of(self, self.is_read_only());
}

nb::object cuda_array_interface(PluginTensor& self) {
  if (self.device() == nullptr)
    throw nb::attribute_error(
        "this tensor lies in the host's memory: it has __array_interface__, the buffer "
        "protocol and __dlpack__");
  // PyTorch refuses memory that is marked read-only.
  nb::dict d = interface_of(self, false);
  d["stream"] = nb::none();  // no wait: callbacks run with the engine's stream current
  self.tell_address();
  return d;
}

nb::object numpy_array(nb::handle self, nb::handle dtype, nb::handle copy) {
  const auto& tensor = nb::cast<PluginTensor&>(self);
  if (tensor.device() != nullptr) fail(PluginTensor::device_advice());
  const PluginTensor::Layout& layout = tensor.layout();
  nb::module_ numpy = nb::module_::import_("numpy");
  const bool must_copy = !copy.is_none() && nb::cast<bool>(copy);
  const bool is_packed = layout.dtype != tensor.type().dtype;
  if (is_packed && !dtype.is_none() && !dtype.equal(numpy_dtype(layout.dtype))) {
    if (!copy.is_none() && !must_copy)
      throw nb::value_error(
          "NumPy has one element of four bits in a byte, the engine two, so that "
          "only a copy can have that type; without a type the array is uint8, of "
          "two elements each");
    return unpacked(tensor).attr("astype")(dtype, nb::arg("copy") = false);
  }
  auto axes = [&](const nb::ssize_t* values) {
    return to_tuple(Shape(std::span(values, static_cast<size_t>(layout.rank))));
  };
  nb::object array = numpy.attr("ndarray")(axes(layout.shape), numpy_dtype(layout.dtype),
                                           TensorBytes(self), 0, axes(layout.strides));
  if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
  return must_copy ? array.attr("copy")() : array;
}

void bind_tensor_bytes(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(TensorBytes::get_buffer)},
                                {0, nullptr}};
  nb::class_<TensorBytes>(m, "_TensorBytes", nb::type_slots(slots));
}

}  // namespace opwright::python
