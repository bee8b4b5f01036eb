#include "backend/gpu/source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "opwright/runtime.h"

namespace opwright::gpu {
namespace {

/// The most elements with a 32-bit Index. The index of a loop must not overflow when all threads of
/// the grid, which fills whole blocks, advance it beyond the last element.
constexpr int64_t kMaxNarrow = (int64_t{1} << 30) - 4096;
constexpr int64_t kMaxBlocks = 2147483647;

/// Whether 32 bits suffice for all offsets into a tensor with at most these extents. An extent of 0
/// does not make the others small.
bool is_narrow_shape(const Shape& max) {
  int64_t count = 1;
  for (const int64_t extent : max) {
    if (extent > kMaxNarrow / count) return false;
    count *= std::max<int64_t>(1, extent);
  }
  return true;
}

int architecture_of_level(const Device& device, HardwareCompatibilityLevel level) {
  constexpr int kLeastOfAmpere = 86;  // its blocks have the least shared memory
  return level == HardwareCompatibilityLevel::kAMPERE_PLUS
             ? kLeastOfAmpere
             : architecture_number(device.architecture());
}

}  // namespace

std::string_view storage_type(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return "float";
    case DataType::kHALF:
      return "Half";
    case DataType::kBF16:
      return "BFloat16";
    case DataType::kFP8:
      return "Fp8";
    case DataType::kINT8:
      return "signed char";
    case DataType::kUINT8:
      return "unsigned char";
    case DataType::kINT32:
      return "int";
    case DataType::kINT64:
      return "long long";
    case DataType::kBOOL:
      return "Bool";
    default:
      fail("GPU kernels have no elements of type ", name(type));
  }
}

std::string_view register_type(DataType type) {
  if (is_floating(type)) return "float";
  return type == DataType::kBOOL ? "bool" : storage_type(type);
}

std::string_view carrier_type(int bytes) {
  switch (bytes) {
    case 1:
      return "unsigned char";
    case 2:
      return "unsigned short";
    case 4:
      return "unsigned";
    case 8:
      return "unsigned long long";
    case 16:
      return "uint4";
    default:
      fail("GPU kernels move no elements of ", bytes, " bytes");
  }
}

int architecture_number(std::string_view architecture) {
  int number = 0;
  for (const char c : architecture)
    if (c >= '0' && c <= '9') number = 10 * number + (c - '0');
  return number;
}

int target_architecture(const CandidateQuery& query) {
  return architecture_of_level(*query.device, query.hardware_compatibility);
}

int target_architecture(const KernelArgs& args) {
  return architecture_of_level(*args.device, args.hardware_compatibility);
}

int written_inputs(const KernelArgs& args) {
  int written = 0;
  for (size_t i = 0; i < args.inputs.size(); ++i)
    if (args.inputs[i].present && !args.inputs[i].is_constant) written |= 1 << i;
  return written;
}

int64_t most_shared_memory(int architecture) {
  constexpr int kHopper = 90, kAmpere = 80, kOrin = 87;
  if (architecture >= kHopper && architecture < 120) return 227 << 10;
  return architecture == kAmpere || architecture == kOrin ? 163 << 10 : 99 << 10;
}

std::string float_literal(float value) {
  if (std::isnan(value)) return "__uint_as_float(0x7fc00000u)";
  if (std::isinf(value))
    return value > 0 ? "__uint_as_float(0x7f800000u)" : "__uint_as_float(0xff800000u)";
  char text[40];
  std::snprintf(text, sizeof text, std::signbit(value) ? "(%.9ef)" : "%.9ef",
                static_cast<double>(value));
  return text;
}

int axis_in_memory(TensorFormat format, int rank, int place) {
  if (!layout_of(format).channels_last || place == 0) return place;
  return place + 1 == rank ? 1 : place + 1;
}

int64_t axes_in_memory(TensorFormat format, int rank, int64_t axes) {
  int64_t result = 0;
  for (int place = 0; place < rank; ++place)
    result |= (axes >> axis_in_memory(format, rank, place) & 1) << place;
  return result;
}

PortsInMemory::PortsInMemory(const KernelArgs& args)
    : inputs_(args.inputs.begin(), args.inputs.end()),
      outputs_(args.outputs.begin(), args.outputs.end()),
      args_(args) {
  for (std::vector<PortDesc>* ports : {&inputs_, &outputs_})
    for (PortDesc& port : *ports) {
      const PortDesc given = port;
      const int rank = given.max.rank();
      for (int place = 0; place < rank; ++place) {
        const int axis = axis_in_memory(given.type.format, rank, place);
        port.min[place] = given.min[axis], port.max[place] = given.max[axis];
        port.opt[place] = given.opt[axis];
      }
    }
  args_.inputs = inputs_, args_.outputs = outputs_;
}

KernelSource::KernelSource(std::string name, const KernelArgs& args)
    : KernelSource(std::move(name), args, false) {}

KernelSource::KernelSource(std::string name, const PortsInMemory& ports)
    : KernelSource(std::move(name), ports.args(), true) {}

KernelSource::KernelSource(std::string name, const KernelArgs& args, bool is_in_memory)
    : name_(std::move(name)), args_(args) {
  for (const PortDesc& port : args.inputs) {
    SymShape& dims = dims_.emplace_back();
    input_types_.emplace_back(port.present ? storage_type(port.type.dtype) : "void");
    if (!port.present) continue;
    narrow_ &= is_narrow_shape(port.max);
    const int rank = port.max.rank();
    typical_.resize(typical_.size() + static_cast<size_t>(rank));
    for (int i = 0; i < rank; ++i) {
      // Symbols are numbered in the network's order of axes.
      const int symbol = symbols_ + (is_in_memory ? axis_in_memory(port.type.format, rank, i) : i);
      dims.push_back(port.min[i] == port.max[i] ? Expr(port.max[i]) : Expr::symbol(symbol));
      typical_[static_cast<size_t>(symbol)] = port.opt[i];
    }
    symbols_ += rank;
  }
  for (const PortDesc& port : args.outputs) {
    narrow_ &= is_narrow_shape(port.max);
    output_types_.emplace_back(storage_type(port.type.dtype));
  }
}

std::vector<Expr> KernelSource::shape_values(int input) {
  const PortDesc& port = args_.inputs[input];
  const DataType type = port.type.dtype;
  require(port.present && (type == DataType::kINT32 || type == DataType::kINT64) &&
              port.min == port.max,
          "layer '", args_.layer, "': input ", input,
          " must be an INT32 or INT64 tensor of constant shape, whose values are known");
  std::vector<Expr> values;
  if (port.constant) {
    for (int64_t i = 0; i < port.max.numel(); ++i)
      values.emplace_back(type == DataType::kINT32 ? port.constant.as<int32_t>()[i]
                                                   : port.constant.as<int64_t>()[i]);
    return values;
  }
  const auto known = std::find(shape_inputs_.begin(), shape_inputs_.end(), input);
  if (known != shape_inputs_.end()) return shape_input_values_[known - shape_inputs_.begin()];
  for (int64_t i = 0; i < port.max.numel(); ++i) values.push_back(Expr::symbol(symbols_++));
  shape_inputs_.push_back(input);
  shape_input_values_.push_back(values);
  return values;
}

std::string KernelSource::value(const Expr& expr) {
  if (expr.is_constant()) {
    const int64_t number = expr.constant();
    if (number == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807LL - 1)";
    const bool is_long = !narrow_ || number != static_cast<int32_t>(number);
    const std::string text = std::to_string(number) + (is_long ? "LL" : "");
    return number < 0 ? "(" + text + ")" : text;
  }
  const auto known = std::find(arguments_.begin(), arguments_.end(), expr);
  const size_t index = known - arguments_.begin();
  if (known == arguments_.end()) arguments_.push_back(expr);
  return "n" + std::to_string(index);
}

std::string KernelSource::values(std::span<const Expr> numbers) {
  std::vector<std::string> codes;
  for (const Expr& number : numbers) codes.push_back(value(number));
  return joined(codes, ", ");
}

std::string KernelSource::decompose(std::string_view index, std::span<const std::string> variables,
                                    std::span<const Expr> extents) {
  if (variables.empty()) return {};
  if (variables.size() == 1) return str("const Index ", variables[0], " = ", index, ";\n");
  // Unsigned divisions cost half as much as signed ones.
  const std::string rest = "rest_of_" + variables.back();
  std::string text = str("UIndex ", rest, " = (UIndex)(", index, ");\n");
  for (size_t i = variables.size(); i-- > 1;) {
    const std::string extent = value(extents[i]);
    text += str("const Index ", variables[i], " = (Index)(", rest, " % (UIndex)", extent, ");\n",
                rest, " /= (UIndex)", extent, ";\n");
  }
  return text + str("const Index ", variables[0], " = (Index)", rest, ";\n");
}

std::string KernelSource::offset(std::span<const std::string> variables,
                                 std::span<const Expr> strides) {
  std::string text;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (strides[i] == Expr(0)) continue;
    if (!text.empty()) text += " + ";
    text += variables[i];
    if (strides[i] != Expr(1)) text += " * " + value(strides[i]);
  }
  return text.empty() ? "0" : text;
}

std::string KernelSource::place(std::span<const Expr> extents, std::span<const Expr> strides) {
  std::vector<std::string> names;
  for (size_t i = 0; i < extents.size(); ++i) names.push_back(str("c", i));
  return str("[&](Index at) -> Index {\n", decompose("at", names, extents), "return ",
             offset(names, strides), ";\n}");
}

void KernelSource::check(const Expr& condition, std::string message) {
  // A condition that is known to fail is kept, too. It fails when the kernel runs, if it runs: the
  // tensors may be empty then.
  if (condition != Expr(1)) checks_.push_back({condition, std::move(message)});
}

std::string KernelSource::wait() {
  waits_ = true;
  std::string text = "wait_for_kernels();\n";
  for (size_t i = 0; i < args_.inputs.size(); ++i)
    if (args_.inputs[i].present && !args_.inputs[i].is_constant)
      text += str("in", i, " = read_anew(in", i, ");\n");
  return text;
}

bool KernelSource::begins_early() const {
  return args_.hardware_compatibility != HardwareCompatibilityLevel::kAMPERE_PLUS &&
         architecture_number(args_.device->architecture()) >= kEarlyArchitecture;
}

GeneratedKernel KernelSource::finish(std::string_view body, const Expr& blocks, int threads,
                                     int blocks_at_once, int cluster) {
  GeneratedKernel kernel;
  const std::string start = waits_ ? std::string() : wait() + kBeginNext;
  std::string& source = kernel.source;
  source = narrow_ ? "typedef int Index;\ntypedef unsigned UIndex;\n"
                   : "typedef long long Index;\ntypedef unsigned long long UIndex;\n";
  source += include("prelude.cuh");
  if (!maps_.empty()) source += include("tma.cuh");
  source += declarations_;
  std::string parameters;
  const auto add = [&](const auto&... parts) {
    if (!parameters.empty()) parameters += ", ";
    parameters += str(parts...);
  };
  for (size_t i = 0; i < input_types_.size(); ++i)
    add("const ", input_types_[i], "* __restrict__ in", i);
  for (size_t i = 0; i < arguments_.size(); ++i) add("const Index n", i);
  for (int i = 0; i < counters_; ++i) add("unsigned long long* counter", i);
  for (size_t i = 0; i < output_types_.size(); ++i) add(output_types_[i], "* __restrict__ out", i);
  // Not __restrict__: blocks read what other blocks have written.
  if (scratch_ > 0) add(scratch_type_, "* scratch");
  for (const std::string& map : map_names_) add("const __grid_constant__ TensorMap ", map);
  std::string attributes = str("__launch_bounds__(", threads);
  attributes += blocks_at_once == 0 ? ")" : str(", ", blocks_at_once, ")");
  if (cluster > 1) attributes += str(" __cluster_dims__(", cluster, ", 1, 1)");
  source += str("extern \"C\" __global__ void ", attributes, " ", name_, "(", parameters, ") {\n",
                start, body, "}\n");

  KernelCode& launch = kernel.launch;
  launch.name = name_;
  launch.grid[0] = narrow_ ? blocks : min(blocks, Expr(kMaxBlocks));
  launch.block[0] = threads;
  launch.begins_early = begins_early();
  for (const Expr& argument : arguments_)
    launch.arguments.push_back({narrow_ ? ArgumentType::kINT32 : ArgumentType::kINT64, argument});
  for (int i = 0; i < counters_; ++i) launch.arguments.push_back({ArgumentType::kPOINTER, 0});
  if (scratch_ > 0) launch.scratch.push_back(scratch_);
  launch.maps = maps_;
  launch.shape_inputs = shape_inputs_;
  launch.checks = checks_;
  return kernel;
}

namespace {

/// The first axis of the output that the input has, too.
int first_axis_of(const KernelArgs& args, int input) {
  const PortDesc& port = args.inputs[input];
  int axis = 0;
  while (axis < port.max.rank() && port.min[axis] == 1 && port.max[axis] == 1) ++axis;
  return args.outputs[0].max.rank() - port.max.rank() + axis;
}

}  // namespace

std::string repeated_place(KernelSource& source, const KernelArgs& args, int input,
                           std::string_view place, const Expr& channels) {
  constexpr int kChannelAxis = 1;
  const std::string count = source.value(numel(source.dims(input)));
  // Channels-last, an input without the channel axis has one element for all channels of a pixel.
  const bool is_by_pixels = args.outputs[0].type.format != TensorFormat::kLINEAR &&
                            first_axis_of(args, input) > kChannelAxis;
  return is_by_pixels ? str("(", place, ") / ", source.value(channels), " % ", count)
                      : str("(", place, ") % ", count);
}

bool repeats_whole_axes(const KernelArgs& args, int input, int axes) {
  return first_axis_of(args, input) <= args.outputs[0].max.rank() - axes;
}

std::string joined(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text += str(text.empty() ? "" : separator, part);
  return text;
}

SymShape row_major_strides(std::span<const Expr> extents) {
  SymShape strides(extents.size(), Expr(1));
  for (size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

}  // namespace opwright::gpu
