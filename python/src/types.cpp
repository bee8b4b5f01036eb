// Data types, formats, Dims, Weights, exceptions.

#include "opwright/types.h"

#include "base/error.h"
#include "base/printable.h"
#include "bindings.h"
#include "handle.h"
#include "host_arrays.h"
#include "host_memory.h"

namespace opwright::python {
namespace {

/// Weights as in TensorRT: a view of a NumPy array, or empty weights of a type.
struct WeightsView {
  DataType dtype = DataType::kFLOAT;
  nb::object array = nb::none();  ///< numpy.ndarray, or None when empty
  size_t size() const { return array.is_none() ? 0 : nb::cast<size_t>(array.attr("size")); }
  nb::object numpy() const { return array.is_none() ? flat_array(dtype, {}, 0) : array; }
};

/// Binds Dims, DimsHW and so on, which differ only in their names and default lengths.
void bind_dims(nb::module_& m) {
  nb::class_<Shape>(
      m, "Dims",
      "Extents of a tensor, in elements; -1 stands for one that is known at run time only. "
      "Behaves as a sequence of int.")
      .def(nb::init<>())
      .def("__init__", [](Shape* self, nb::handle extents) { new (self) Shape(to_shape(extents)); })
      .def("__len__", &Shape::rank)
      .def("__getitem__",
           [](const Shape& self, int i) {
             const int index = i < 0 ? i + self.rank() : i;
             if (index < 0 || index >= self.rank()) throw nb::index_error();
             return self[index];
           })
      .def("__getitem__",
           [](const Shape& self, nb::slice slice) {
             return nb::object(nb::object(to_tuple(self))[slice]);
           })
      .def("__setitem__",
           [](Shape& self, int i, int64_t extent) {
             const int index = i < 0 ? i + self.rank() : i;
             if (index < 0 || index >= self.rank()) throw nb::index_error();
             self[index] = extent;
           })
      .def("__iter__", [](const Shape& self) { return nb::iter(to_tuple(self)); })
      .def("__eq__",
           [](const Shape& self, nb::handle other) {
             return nb::isinstance<Shape>(other) || nb::isinstance<nb::sequence>(other)
                        ? to_tuple(self).equal(nb::tuple(nb::borrow(other)))
                        : false;
           })
      .def("__hash__", [](const Shape& self) { return nb::hash(to_tuple(self)); })
      .def("__repr__", [](const Shape& self) { return nb::repr(to_tuple(self)); })
      .def("__str__", [](const Shape& self) { return nb::repr(to_tuple(self)); })
      .def_ro_static("MAX_DIMS", &Dims::MAX_DIMS);
}

/// Binds types, formats and locations of tensors.
void bind_tensor_enums(nb::module_& m) {
  nb::enum_<DataType>(m, "DataType", nb::is_arithmetic(), "Types of tensor elements.")
      .value("FLOAT", DataType::kFLOAT, "32-bit floating point.")
      .value("HALF", DataType::kHALF, "16-bit floating point, IEEE.")
      .value("INT8", DataType::kINT8,
             "Signed byte; a quantized value where the tensor has a scale.")
      .value("INT32", DataType::kINT32, "Signed 32-bit integer.")
      .value("BOOL", DataType::kBOOL, "One byte, 0 or 1.")
      .value("UINT8", DataType::kUINT8, "Unsigned byte.")
      .value("FP8", DataType::kFP8,
             "8-bit floating point: 4 exponent and 3 mantissa bits, no infinity.")
      .value("BF16", DataType::kBF16, "16-bit floating point: the upper half of FLOAT.")
      .value("INT64", DataType::kINT64, "Signed 64-bit integer.")
      .value("INT4", DataType::kINT4,
             "Signed 4-bit integer, two to a byte, the first in the low bits.")
      .value("FP4", DataType::kFP4, "4-bit floating point, two to a byte.")
      .value("E8M0", DataType::kE8M0, "8-bit power of two, a scale of blocks.")
      .def_prop_ro(
          "itemsize",
          [](DataType type) -> nb::object {
            const int size = bits(type);
            if (size % 8 != 0) return nb::float_(size / 8.0);
            return nb::int_(size / 8);
          },
          nb::sig("def itemsize(self) -> int | float"),
          "Bytes of an element; 0.5 where two lie in a byte.");
  nb::enum_<TensorFormat>(m, "TensorFormat", nb::is_arithmetic(),
                          "How a tensor's elements lie in memory. Channels, the second axis, are "
                          "padded to a multiple of the number in the name.")
      .value("LINEAR", TensorFormat::kLINEAR, "In C order.")
      .value("CHW2", TensorFormat::kCHW2, "Vectors of 2 channels, innermost.")
      .value("HWC8", TensorFormat::kHWC8, "Channels innermost.")
      .value("CHW4", TensorFormat::kCHW4, "Vectors of 4 channels, innermost.")
      .value("CHW16", TensorFormat::kCHW16, "Vectors of 16 channels, innermost.")
      .value("CHW32", TensorFormat::kCHW32, "Vectors of 32 channels, innermost.")
      .value("DHWC8", TensorFormat::kDHWC8, "Channels innermost, of volumes.")
      .value("CDHW32", TensorFormat::kCDHW32, "Vectors of 32 channels, innermost, of volumes.")
      .value("HWC", TensorFormat::kHWC, "Channels innermost, not padded.")
      .value("DLA_LINEAR", TensorFormat::kDLA_LINEAR, "Of a DLA; not here.")
      .value("DLA_HWC4", TensorFormat::kDLA_HWC4, "Of a DLA; not here.")
      .value("HWC16", TensorFormat::kHWC16, "Channels innermost.")
      .value("DHWC", TensorFormat::kDHWC, "Channels innermost, not padded, of volumes.");
  nb::enum_<DeviceType>(m, "DeviceType", nb::is_arithmetic(), "Where a network runs.")
      .value("GPU", DeviceType::kGPU, "A GPU of NVIDIA.")
      .value("DLA", DeviceType::kDLA, "Not here.")
      .value("CPU", DeviceType::kCPU, "The host.");
  nb::enum_<TensorIOMode>(m, "TensorIOMode", "What a named tensor is to an engine.")
      .value("NONE", TensorIOMode::kNONE, "Neither.")
      .value("INPUT", TensorIOMode::kINPUT, "An input of the engine.")
      .value("OUTPUT", TensorIOMode::kOUTPUT, "An output of the engine.");
  nb::enum_<TensorLocation>(m, "TensorLocation", "Whether data is on the device or the host.")
      .value("DEVICE", TensorLocation::kDEVICE, "In memory of the device.")
      .value("HOST", TensorLocation::kHOST, "In memory of the host.");
}

}  // namespace

void bind_types(nb::module_& m) {
  nb::enum_<EngineCapability>(m, "EngineCapability", nb::is_arithmetic(),
                              "The set of features that an engine is built for.")
      .value("STANDARD", EngineCapability::kSTANDARD, "All that there are.")
      .value("SAFETY", EngineCapability::kSAFETY, "Not here: raises Error.")
      .value("DLA_STANDALONE", EngineCapability::kDLA_STANDALONE, "Not here: raises Error.");
  nb::exception<Error> error(m, "Error", PyExc_RuntimeError);
  error.doc() =
      "What every failure of the engine raises. The message says what was wrong, where, and how to "
      "mend it.";
  // This translator runs before the one that nb::exception has registered, since names in messages
  // may contain any bytes.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& problem) {
          PyErr_SetString(static_cast<PyObject*>(type),
                          printable(problem.what(), LineEnds::kKeep).c_str());
        }
      },
      error.ptr());

  bind_tensor_enums(m);
  bind_dims(m);

  nb::class_<WeightsView>(
      m, "Weights",
      "Values of a layer: a NumPy array (kept alive, not copied), or no values of a type.")
      .def(
          "__init__",
          [](WeightsView* self, DataType type) {
            new (self) WeightsView{type, nb::none()};
          },
          nb::arg("type").sig("DataType.FLOAT") = DataType::kFLOAT, "No values of the type.")
      .def(
          "__init__",
          [](WeightsView* self, DataType type, Handle address, int64_t count) {
            require(count >= 0 && (count == 0 || address.value != 0), "Weights: the address ",
                    address.value, " cannot have ", count, " elements");
            const auto bytes = static_cast<size_t>(bytes_of(type, count));
            new (self) WeightsView{
                type, flat_array(type, Blob({}, address.as<const void*>(), bytes), count)};
          },
          nb::arg("type"), nb::arg("ptr"), nb::arg("count"),
          "So many elements at an address, which must be there for as long as the weights are.")
      .def(
          "__init__",
          [](WeightsView* self, nb::handle array) {
            nb::object made = nb::module_::import_("numpy").attr("ascontiguousarray")(array);
            new (self) WeightsView{data_type(made.attr("dtype"), "Weights"), made};
          },
          nb::arg("a"))
      .def_ro("dtype", &WeightsView::dtype)
      .def_prop_ro("size", &WeightsView::size, "Number of elements.")
      .def_prop_ro("nbytes",
                   [](const WeightsView& self) {
                     return bytes_of(self.dtype, static_cast<int64_t>(self.size()));
                   })
      .def("numpy", &WeightsView::numpy, "The values as a NumPy array, which is empty for none.")
      .def("__array__", [](const WeightsView& self, nb::args, nb::kwargs) { return self.numpy(); })
      .def("__len__", &WeightsView::size);
}

nb::object numpy_dtype(DataType type) {
  const char* name = nullptr;
  switch (type) {
    case DataType::kFLOAT:
      name = "float32";
      break;
    case DataType::kHALF:
      name = "float16";
      break;
    case DataType::kINT8:
      name = "int8";
      break;
    case DataType::kUINT8:
      name = "uint8";
      break;
    case DataType::kINT32:
      name = "int32";
      break;
    case DataType::kINT64:
      name = "int64";
      break;
    case DataType::kBOOL:
      name = "bool";
      break;
    default:
      break;
  }
  nb::object dtype = nb::module_::import_("numpy").attr("dtype");
  if (name != nullptr) return dtype(name);
  const char* extended = type == DataType::kBF16   ? "bfloat16"
                         : type == DataType::kFP8  ? "float8_e4m3fn"
                         : type == DataType::kE8M0 ? "float8_e8m0fnu"
                         : type == DataType::kINT4 ? "int4"
                                                   : nullptr;
  if (extended != nullptr) {
    try {
      return dtype(nb::module_::import_("ml_dtypes").attr(extended));
    } catch (nb::python_error&) {
      fail("NumPy has no type for ", opwright::name(type), ": install the package ml_dtypes");
    }
  }
  fail("NumPy has no type for ", opwright::name(type));
}

DataType data_type(nb::handle dtype, std::string_view what) {
  const std::string name = nb::cast<std::string>(dtype.attr("name"));
  static constexpr std::pair<std::string_view, DataType> kTypes[] = {
      {"float32", DataType::kFLOAT},       {"float16", DataType::kHALF},
      {"int8", DataType::kINT8},           {"uint8", DataType::kUINT8},
      {"int32", DataType::kINT32},         {"int64", DataType::kINT64},
      {"bool", DataType::kBOOL},           {"bfloat16", DataType::kBF16},
      {"float8_e4m3fn", DataType::kFP8},   {"int4", DataType::kINT4},
      {"float8_e8m0fnu", DataType::kE8M0},
  };
  for (const auto& [known, type] : kTypes)
    if (name == known) return type;
  fail(what, " has elements of type ", name,
       "; expected float32, float16, bfloat16, int8, uint8, int32, int64 or bool: convert it first "
       "(x.astype('float32'))");
}

Shape to_shape(nb::handle sequence) {
  if (nb::isinstance<Shape>(sequence)) return nb::cast<Shape>(sequence);
  Shape shape;
  if (PyLong_Check(sequence.ptr())) {
    shape.push_back(nb::cast<int64_t>(sequence));
    return shape;
  }
  for (nb::handle extent : nb::iter(sequence))
    shape.push_back(nb::cast<int64_t>(nb::int_(nb::borrow(extent))));
  return shape;
}

size_t index_in(nb::ssize_t index, size_t size) {
  const auto count = static_cast<nb::ssize_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) throw nb::index_error();
  return static_cast<size_t>(index);
}

std::string to_path(nb::handle path) {
  if (path.is_none()) return "";
  return nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(path));
}

nb::tuple to_tuple(const Shape& shape) {
  nb::list extents;
  for (int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

std::shared_ptr<const void> keep_alive(nb::handle object) {
  object.inc_ref();
  return std::shared_ptr<const void>(object.ptr(), [](const void* pointer) {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire gil;
    Py_DECREF(static_cast<PyObject*>(const_cast<void*>(pointer)));
  });
}

Blob borrow_bytes(nb::handle object) {
  struct View {
    Py_buffer buffer{};
    ~View() {
      if (buffer.obj == nullptr || !Py_IsInitialized()) return;
      nb::gil_scoped_acquire gil;
      PyBuffer_Release(&buffer);
    }
  };
  auto view = std::make_shared<View>();
  if (PyObject_GetBuffer(object.ptr(), &view->buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const void* data = view->buffer.buf;
  const size_t size = static_cast<size_t>(view->buffer.len);
  return Blob(view, data, size);
}

namespace {

/// Packs two elements in a byte, the first one in the low bits, as in ONNX. ml_dtypes stores one in
/// a byte.
Blob pack_int4(const uint8_t* elements, int64_t count) {
  return Blob::make(static_cast<size_t>(bytes_of(DataType::kINT4, count)), [&](void* memory) {
    auto* packed = static_cast<uint8_t*>(memory);
    for (int64_t i = 0; i < count; i += 2) {
      const int high = i + 1 < count ? elements[i + 1] << 4 : 0;
      packed[i / 2] = static_cast<uint8_t>((elements[i] & 0xF) | high);
    }
  });
}

}  // namespace

nb::object flat_array(DataType type, const Blob& data, int64_t count) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object dtype = numpy_dtype(type);
  if (count == 0) return numpy.attr("empty")(0, dtype);
  nb::object bytes = nb::cast(HostMemory{{data}});
  if (bits(type) % 8 == 0) return numpy.attr("frombuffer")(bytes, dtype);
  // Signed elements, one in each byte, which ml_dtypes converts to its own type.
  const auto* packed = reinterpret_cast<const uint8_t*>(data.data());
  Blob unpacked = Blob::make(static_cast<size_t>(count), [&](void* memory) {
    auto* elements = static_cast<int8_t*>(memory);
    for (int64_t i = 0; i < count; ++i) {
      const int bits = packed[i / 2] >> (i % 2 == 0 ? 0 : 4) & 0xF;
      elements[i] = static_cast<int8_t>(bits < 8 ? bits : bits - 16);
    }
  });
  bytes = nb::cast(HostMemory{{std::move(unpacked)}});
  return numpy.attr("frombuffer")(bytes, "int8").attr("astype")(dtype);
}

ArrayData to_array(nb::handle object, std::string_view what) {
  nb::object source = nb::borrow(object);
  DataType type_of_none = DataType::kFLOAT;
  if (nb::isinstance<WeightsView>(object)) {
    const auto& weights = nb::cast<WeightsView&>(object);
    source = weights.array;
    type_of_none = weights.dtype;
  }
  if (source.is_none()) return {type_of_none, Shape{0}, Blob::copy("", 0)};
  // PyTorch's bfloat16, a type that NumPy lacks.
  nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> tensor;
  if (kind_of(source) == ArrayKind::kTorch && nb::try_cast(source, tensor, false)) {
    if (const std::optional<DataType> type = data_type(tensor.dtype())) {
      Shape extents;
      for (size_t i = 0; i < tensor.ndim(); ++i)
        extents.push_back(static_cast<int64_t>(tensor.shape(i)));
      return {*type, extents, Blob(keep_alive(source), tensor.data(), tensor.nbytes())};
    }
  }
  nb::object array = nb::module_::import_("numpy").attr("ascontiguousarray")(source);
  // ascontiguousarray makes rank 0 rank 1.
  const Shape shape =
      to_shape(nb::hasattr(source, "shape") ? source.attr("shape") : array.attr("shape"));
  const DataType dtype = data_type(array.attr("dtype"), what);
  const auto* data =
      reinterpret_cast<const uint8_t*>(nb::cast<uintptr_t>(array.attr("ctypes").attr("data")));
  if (dtype == DataType::kINT4) return {dtype, shape, pack_int4(data, shape.numel())};
  return {dtype, shape, Blob(keep_alive(array), data, nb::cast<size_t>(array.attr("nbytes")))};
}

}  // namespace opwright::python
