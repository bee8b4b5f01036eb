#include "host_arrays.h"

#include <cstddef>

#include "base/did_you_mean.h"
#include "torch_tensors.h"

namespace opwright::python {
namespace {

using Array = nb::ndarray<nb::ro>;

nb::object numpy_or_none(DataType type) {
  try {
    return numpy_dtype(type);
  } catch (const Error&) {
    return nb::none();
  }
}

}  // namespace

std::optional<DataType> data_type(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(type.code)) {
    case Code::Float:
      return type.bits == 32   ? std::optional(DataType::kFLOAT)
             : type.bits == 16 ? std::optional(DataType::kHALF)
                               : std::nullopt;
    case Code::Bfloat:
      return DataType::kBF16;
    case Code::Int:
      if (type.bits == 64) return DataType::kINT64;
      if (type.bits == 32) return DataType::kINT32;
      if (type.bits == 8) return DataType::kINT8;
      return std::nullopt;
    case Code::UInt:
      return type.bits == 8 ? std::optional(DataType::kUINT8) : std::nullopt;
    case Code::Bool:
      return DataType::kBOOL;
    default:
      return std::nullopt;
  }
}

nb::dlpack::dtype dlpack_type(DataType type) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [type](Code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits(type)), 1};
  };
  switch (type) {
    case DataType::kFLOAT:
    case DataType::kHALF:
      return of(Code::Float);
    case DataType::kBF16:
      return of(Code::Bfloat);
    case DataType::kFP8:
      return of(Code::Float8_E4M3FN);
    case DataType::kINT8:
    case DataType::kINT32:
    case DataType::kINT64:
      return of(Code::Int);
    case DataType::kUINT8:
      return of(Code::UInt);
    case DataType::kBOOL:
      return of(Code::Bool);
    default:
      fail("DLPack has no type for ", name(type));
  }
}

ArrayKind kind_of(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return ArrayKind::kNumpy;
  const std::string_view package(nb::cast<const char*>(module));
  return package.starts_with("torch") ? ArrayKind::kTorch
         : package.starts_with("jax") ? ArrayKind::kJax
                                      : ArrayKind::kNumpy;
}

const char* torch_name(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return "float32";
    case DataType::kHALF:
      return "float16";
    case DataType::kBF16:
      return "bfloat16";
    case DataType::kFP8:
      return "float8_e4m3fn";
    case DataType::kINT8:
      return "int8";
    case DataType::kUINT8:
      return "uint8";
    case DataType::kINT32:
      return "int32";
    case DataType::kINT64:
      return "int64";
    case DataType::kBOOL:
      return "bool";
    default:
      fail("torch has no type for ", name(type));
  }
}

void check_array_type(const PlanPort& output) {
  const DataType type = output.type.dtype;
  require(bits(type) >= 8, "output '", output.name, "' is ", name(type),
          ", of which an array has one element a byte and the engine two: cast it to INT8 in the "
          "network, or give an address with an execution context's set_tensor_address");
}

void check_array_formats(const Engine& engine) {
  const Plan& plan = engine.plan();
  const auto check = [&](const PlanPort& port, const char* what, const std::string& advice) {
    require(port.type.format == TensorFormat::kLINEAR, what, " '", port.name, "' has the format ",
            name(port.type.format),
            ", which arrays do not have: give the address of memory in that format with an "
            "execution context's set_tensor_address (",
            advice, "), or build the engine with LINEAR inputs and outputs");
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    if (port.type.format == TensorFormat::kLINEAR) continue;
    const Shape& most = plan.schedules.at(0).inputs.at(i).max;
    check(port, "input",
          str(tensor_bytes(most, port.type.dtype, port.type.format), " bytes for ", most));
  }
  for (const PlanPort& port : plan.outputs)
    check(port, "output", "get_max_output_size says its bytes");
}

void check_alias(const Engine& engine, int output, const Shape& shape, const Argument& input) {
  const PlanPort& port = engine.plan().outputs[output];
  const int64_t has = bytes_of(port.type.dtype, shape.numel()),
                needs = bytes_of(input.dtype, input.shape.numel());
  require(has == needs, "output '", port.name, "' is made in the memory of the input '",
          engine.plan().inputs[port.aliased_input].name, "', but it has ", has,
          " bytes and the input ", needs);
}

void* usable_address(void* address) {
  static std::byte nothing[64];
  return address != nullptr ? address : nothing;
}

void refuse_type(const PlanPort& port, nb::handle value) {
  const nb::object given =
      nb::hasattr(value, "dtype") ? nb::object(value.attr("dtype")) : nb::borrow(value.type());
  std::string how;
  if (bits(port.type.dtype) >= 8) {
    if (kind_of(value) == ArrayKind::kTorch)
      how = str(", with x.to(torch.", torch_name(port.type.dtype), ')');
    else if (nb::hasattr(value, "astype") && !numpy_or_none(port.type.dtype).is_none())
      how = str(", with x.astype(\"", nb::str(numpy_dtype(port.type.dtype)).c_str(), "\")");
  }
  fail("input '", port.name, "' is ", name(port.type.dtype), "; ", nb::str(given).c_str(),
       " was given: convert it first", how);
}

std::string describe_input(const Engine& engine, size_t input) {
  const PlanPort& port = engine.plan().inputs[input];
  return str("'", port.name, "' (", name(port.type.dtype), ' ', engine.tensor_shape(port.name),
             ')');
}

namespace {

std::string all_inputs(const Engine& engine) {
  std::string all;
  for (size_t i = 0; i < engine.plan().inputs.size(); ++i)
    all += (i == 0 ? "" : ", ") + describe_input(engine, i);
  return all.empty() ? "none" : all;
}

}  // namespace

size_t input_named(const Engine& engine, nb::handle name) {
  if (!nb::isinstance<nb::str>(name))
    throw nb::type_error(str("the engine takes a dict of arrays by the names of its inputs, ",
                             all_inputs(engine), "; the key ", nb::repr(name).c_str(), " was given")
                             .c_str());
  const auto text = nb::cast<std::string>(name);
  const Port* const found = engine.find_port(text);
  if (found != nullptr && found->is_input) return static_cast<size_t>(found->index);
  std::vector<std::string> known;
  for (const PlanPort& port : engine.plan().inputs) known.push_back(port.name);
  fail("the engine has no input '", text, "'; it has ", all_inputs(engine),
       did_you_mean(text, known));
}

void refuse_count(const Engine& engine, size_t given) {
  const size_t count = engine.plan().inputs.size();
  fail("the engine takes ", count, count == 1 ? " input" : " inputs", ": ", all_inputs(engine),
       "; ", given, " were given");
}

void refuse_repeated(const Engine& engine, size_t input) {
  fail("input ", describe_input(engine, input), " was given twice, by position and by name");
}

void refuse_missing(const Engine& engine, size_t input) {
  fail("input ", describe_input(engine, input), " is missing; the engine takes ",
       all_inputs(engine));
}

HostArrays::HostArrays(const Engine& engine)
    : engine_(engine),
      torch_(std::make_unique<TorchTensors>(engine)),
      numpy_(nb::module_::import_("numpy")),
      empty_(numpy_.attr("empty")),
      ndarray_(numpy_.attr("ndarray")) {
  for (const PlanPort& port : engine.plan().outputs)
    output_dtypes_.push_back(numpy_or_none(port.type.dtype));
}

HostArrays::~HostArrays() = default;

void HostArrays::refuse_device(const PlanPort& port, nb::handle value) const {
  const bool on_cpu = engine_.device().is_host();
  fail("input '", port.name, "' (", nb::type_name(value.type()).c_str(),
       on_cpu ? ") lies on another device than the engine, which runs on the CPU: copy it to the "
                "host first (x.cpu(), cupy.asnumpy(x)), or build the engine with device=\"cuda\""
              : ") lies on a device that is neither a GPU of CUDA nor the CPU: copy it to one of "
                "them first");
}

Argument HostArrays::convert(size_t index, nb::handle value) const {
  const PlanPort& port = engine_.plan().inputs[index];
  if (torch_->is_strided(value)) {
    require(!torch_->records_gradients(value), "input '", port.name,
            "' requires gradients, which engines do not compute: call the engine within "
            "torch.no_grad(), or give it x.detach()");
    if (torch_->is_dense_on_host(index, value)) return torch_->read(index, nb::borrow(value));
  }
  if (!nb::hasattr(value, "__dlpack__") && !PyObject_CheckBuffer(value.ptr())) {
    if (nb::hasattr(value, "__cuda_array_interface__")) refuse_device(port, value);
    const auto refuse = [&](const std::string& why) {
      fail("input ", describe_input(engine_, index), ": ", why,
           "; expected an array, or numbers and lists of them");
    };
    if (value.is_none()) refuse("None was given");
    // Numbers and lists are converted to the input's type.
    nb::object made;
    try {
      made = numpy_.attr("asarray")(value, numpy_dtype(port.type.dtype));
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError) &&
          !error.matches(PyExc_OverflowError))
        throw;
      refuse(str("NumPy makes no array of the ", nb::type_name(value.type()).c_str(),
                 " that was given (", nb::str(error.value()).c_str(), ')'));
    }
    return convert(index, made);
  }
  Array array;
  if (!nb::try_cast(nb::borrow(value), array, false)) return convert_extended(port, value);
  if (array.device_type() != nb::device::cpu::value) refuse_device(port, value);
  const std::optional<DataType> type = data_type(array.dtype());
  if (!type || *type != port.type.dtype) refuse_type(port, value);
  if (!is_contiguous(array)) {
    if (kind_of(value) == ArrayKind::kTorch) return convert(index, value.attr("contiguous")());
    return convert(index, numpy_.attr("ascontiguousarray")(value));
  }
  Argument argument{array.data(), {}, *type, nb::borrow(value)};
  for (size_t i = 0; i < array.ndim(); ++i)
    argument.shape.push_back(static_cast<int64_t>(array.shape(i)));
  return argument;
}

/// Converts NumPy arrays of ml_dtypes' types, which no exchange protocol of NumPy supports.
Argument HostArrays::convert_extended(const PlanPort& port, nb::handle value) const {
  if (!nb::isinstance(value, ndarray_) ||
      opwright::python::data_type(value.attr("dtype"), str("input '", port.name, "'")) !=
          port.type.dtype)
    refuse_type(port, value);
  ArrayData data = to_array(value, str("input '", port.name, "'"));
  auto* keep = new Blob(data.data);
  nb::capsule holder(keep, [](void* p) noexcept { delete static_cast<Blob*>(p); });
  return {data.data.data(), data.shape, data.dtype, holder};
}

std::pair<nb::object, void*> HostArrays::allocate(ArrayKind kind, int output,
                                                  const Shape& shape) const {
  const DataType type = engine_.plan().outputs[output].type.dtype;
  check_array_type(engine_.plan().outputs[output]);
  if (kind == ArrayKind::kTorch) {
    auto [tensor, address] = torch_->allocate(static_cast<size_t>(output), shape, {});
    return {std::move(tensor), usable_address(address)};
  }
  const nb::object& dtype = output_dtypes_[output];
  if (dtype.is_none()) numpy_dtype(type);  // throws an Error that says which type NumPy lacks
  nb::object array = empty_(to_tuple(shape), dtype);
  nb::ndarray<> view;
  if (nb::try_cast(array, view, false)) return {array, usable_address(view.data())};
  return {array, usable_address(reinterpret_cast<void*>(
                     nb::cast<uintptr_t>(array.attr("ctypes").attr("data"))))};
}

nb::object HostArrays::give(ArrayKind kind, nb::object array) {
  if (kind != ArrayKind::kJax) return array;
  return nb::module_::import_("jax.numpy").attr("asarray")(array);
}

nb::object HostArrays::trim(nb::object array, const Shape& allocated, const Shape& actual) {
  if (allocated == actual) return array;
  const nb::slice written(nb::int_(0), nb::int_(actual.numel()), nb::none());
  nb::object flat = array.attr("reshape")(-1);
  nb::object part = nb::object(flat[written]).attr("reshape")(to_tuple(actual));
  return nb::hasattr(part, "copy") ? part.attr("copy")() : part.attr("clone")();
}

}  // namespace opwright::python
