#include "cpu/run_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string_view>

#include "backend/backend.h"
#include "base/half.h"

namespace opwright::testing {
namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr size_t kGuardBytes = 256;

/// The device's memory between two guards, `shift` bytes behind where it is aligned.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, size_t shift)
      : bytes_(size + shift + 2 * kGuardBytes, kGuard),
        begin_(kGuardBytes + shift),
        size_(size),
        memory_(static_cast<unsigned char*>(test_device().allocate(bytes_.size()))) {
    test_device().copy(memory_, bytes_.data(), bytes_.size(), nullptr);
  }
  ~GuardedBuffer() { test_device().free(memory_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  unsigned char* data() { return memory_ + begin_; }
  void write(const Blob& bytes) {
    if (bytes.size() > 0) test_device().copy(data(), bytes.data(), bytes.size(), nullptr);
  }
  /// What the device has written is then in bytes().
  void fetch() {
    test_device().copy(bytes_.data(), memory_, bytes_.size(), nullptr);
    test_device().synchronize(nullptr);
  }
  const unsigned char* bytes() const { return bytes_.data() + begin_; }
  std::vector<unsigned char> written() const { return {bytes(), bytes() + size_}; }
  bool intact() const {
    const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_), bytes_.end(), is_guard);
  }

 private:
  std::vector<unsigned char> bytes_;
  const size_t begin_, size_;
  unsigned char* const memory_;
};

double read(const void* bytes, DataType type, int64_t i) {
  if (type == DataType::kFLOAT) return static_cast<const float*>(bytes)[i];
  if (type == DataType::kHALF) return half_to_float(static_cast<const uint16_t*>(bytes)[i]);
  if (type == DataType::kBF16) return bfloat16_to_float(static_cast<const uint16_t*>(bytes)[i]);
  if (type == DataType::kFP8) return fp8_to_float(static_cast<const uint8_t*>(bytes)[i]);
  if (type == DataType::kINT8) return static_cast<const int8_t*>(bytes)[i];
  if (type == DataType::kINT32) return static_cast<const int32_t*>(bytes)[i];
  if (type == DataType::kINT64) return static_cast<double>(static_cast<const int64_t*>(bytes)[i]);
  return static_cast<const uint8_t*>(bytes)[i];
}

void write(void* bytes, DataType type, int64_t i, double value) {
  const auto single = static_cast<float>(value);
  if (type == DataType::kFLOAT)
    static_cast<float*>(bytes)[i] = single;
  else if (type == DataType::kHALF)
    static_cast<uint16_t*>(bytes)[i] = float_to_half(single);
  else if (type == DataType::kBF16)
    static_cast<uint16_t*>(bytes)[i] = float_to_bfloat16(single);
  else if (type == DataType::kFP8)
    static_cast<uint8_t*>(bytes)[i] = float_to_fp8(single);
  else if (type == DataType::kINT8)
    static_cast<int8_t*>(bytes)[i] = static_cast<int8_t>(value);
  else if (type == DataType::kINT32)
    static_cast<int32_t*>(bytes)[i] = static_cast<int32_t>(value);
  else if (type == DataType::kINT64)
    static_cast<int64_t*>(bytes)[i] = static_cast<int64_t>(value);
  else
    static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(value);
}

/// Of OPWRIGHT_ALL_TACTICS; "" where it is not set.
std::string_view asked_tactics() {
  const char* const asked = std::getenv("OPWRIGHT_ALL_TACTICS");
  return asked == nullptr ? "" : asked;
}
/// Of each kernel's tactics each once.
bool runs_least() { return asked_tactics() == "least"; }

/// Kernel, tactic in whatever number of parts, the first type, and the kind of shapes, as in
/// tools/tactic_coverage.py. Only the first two where runs_least().
std::string class_of(std::string_view kind, const Candidate& candidate,
                     std::span<const PortDesc> inputs, std::span<const PortDesc> outputs) {
  std::string_view tactic = candidate.tactic_name;
  if (tactic.ends_with(" parts")) tactic = tactic.substr(0, tactic.rfind(" in "));
  if (runs_least()) return str(kind, "/", tactic);
  bool is_open = false, fills = true;
  const auto neighbours = [](const PortDesc& port, const PortType& type) -> int64_t {
    const Shape& shape = port.max;
    if (shape.rank() == 0) return 1;
    const bool is_packed = type.format != TensorFormat::kLINEAR && shape.rank() > 1;
    return shape[is_packed ? 1 : shape.rank() - 1];
  };
  const auto look = [&](std::span<const PortDesc> ports, std::span<const PortType> types) {
    for (size_t i = 0; i < std::min(ports.size(), types.size()); ++i) {
      if (!ports[i].present) continue;
      is_open |= ports[i].min != ports[i].max;
      fills &= neighbours(ports[i], types[i]) * bits(types[i].dtype) % 128 == 0;
    }
  };
  look(inputs, candidate.inputs), look(outputs, candidate.outputs);
  const bool is_single = !outputs.empty() && !candidate.outputs.empty() &&
                         neighbours(outputs[0], candidate.outputs[0]) == 1;
  return str(kind, "/", tactic, "/", candidate.inputs.empty() ? "" : str(candidate.inputs[0]),
             is_open     ? "/open"
             : is_single ? "/single"
             : fills     ? "/vectors"
                         : "/odd");
}

constexpr std::string_view kClassMember = ", \"class\": \"";

/// The classes that were run, also by an earlier process that wrote the same record.
std::set<std::string>& classes_run() {
  static std::set<std::string> classes = [] {
    std::set<std::string> recorded;
    const char* const name = std::getenv("OPWRIGHT_TACTICS");
    std::ifstream file(name == nullptr ? "" : name);
    for (std::string line; std::getline(file, line);)
      if (size_t begin = line.find(kClassMember); begin != std::string::npos) {
        begin += kClassMember.size();
        recorded.insert(line.substr(begin, line.find('"', begin) - begin));
      }
    return recorded;
  }();
  return classes;
}

/// What tools/tactic_coverage.py counts, in the file that OPWRIGHT_TACTICS names: the tactics that
/// the device's kernels have, and those that a kernel listed or a test ran, with the ports.
class TacticRecord {
 public:
  static constexpr std::string_view kListed = "listed", kRun = "run";

  void add(std::string_view event, std::string_view kind, const Candidate& candidate,
           std::span<const PortDesc> inputs, std::span<const PortDesc> outputs) {
    if (!file_.is_open()) return;
    std::string line =
        str("{\"event\": \"", event, "\", \"device\": \"", device_, "\", \"kind\": \"", kind,
            "\", \"tactic\": \"", candidate.tactic_name, "\"");
    for (const auto& [name, ports, types] :
         {std::tuple("inputs", inputs, std::span(candidate.inputs)),
          std::tuple("outputs", outputs, std::span(candidate.outputs))}) {
      line += str(", \"", name, "\": [");
      bool is_first = true;
      for (size_t i = 0; i < std::min(ports.size(), types.size()); ++i) {
        if (!ports[i].present) continue;
        line += str(is_first ? "" : ", ", "[\"", str(types[i]), "\", \"", ports[i].min, "\", \"",
                    ports[i].max, "\"]");
        is_first = false;
      }
      line += "]";
    }
    if (event == kRun) line += str(kClassMember, class_of(kind, candidate, inputs, outputs), "\"");
    if (seen_.insert(line).second) file_ << line << "}\n" << std::flush;
  }
  static TacticRecord& instance() {
    static TacticRecord record;
    return record;
  }

 private:
  TacticRecord() {
    const char* name = std::getenv("OPWRIGHT_TACTICS");
    if (name == nullptr) return;
    file_.open(name, std::ios::app);
    const Backend& backend = test_device().backend();
    device_ = backend.name();
    for (const auto& [kind, names] : backend.kernel_tactics()) {
      file_ << "{\"event\": \"exists\", \"device\": \"" << device_ << "\", \"kind\": \"" << kind
            << "\", \"tactics\": [";
      for (size_t i = 0; i < names.size(); ++i)
        file_ << (i > 0 ? ", \"" : "\"") << names[i] << "\"";
      file_ << "]}\n";
    }
  }

  std::ofstream file_;
  std::string device_;
  std::set<std::string> seen_;
};

PortDesc port_of(const Shape& shape, DataType dtype) {
  PortDesc port;
  port.type.dtype = dtype;
  port.min = port.opt = port.max = shape;
  return port;
}

// Sanitizers look at what writes and launches kernels, not at the emulated kernels.
#ifdef OPWRIGHT_SANITIZED
constexpr int kShareOfSanitizers = 3;
#else
constexpr int kShareOfSanitizers = 1;
#endif

}  // namespace

bool runs_all_tactics() { return std::getenv("OPWRIGHT_ALL_TACTICS") != nullptr; }
bool runs_each_once() { return asked_tactics() == "once" || runs_least(); }

Selection::Selection(int every)
    : every_(test_device().is_host() || runs_all_tactics() ? 1 : every * kShareOfSanitizers) {}

bool PairSelection::takes(std::initializer_list<std::string_view> of_parts) {
  const std::span parts(of_parts.begin(), of_parts.size());
  if (test_device().is_host() || runs_all_tactics()) return true;
  bool is_new = false;
  for (size_t second = 1; second < parts.size(); ++second)
    for (size_t first = 0; first < second; ++first)
      is_new |=
          tested_.insert(str(first, "/", parts[first], "/", second, "/", parts[second])).second;
  return is_new && number_++ % kShareOfSanitizers == 0;
}

Values random_values(const Shape& shape, int seed, double low, double high) {
  std::mt19937 generator(seed);
  Values values{shape, std::vector<double>(shape.numel())};
  // The numbers of std::uniform_real_distribution, which takes logarithms for each.
  for (double& value : values.data) {
    const double lower = static_cast<double>(generator());
    const double share = (lower + static_cast<double>(generator()) * 0x1p32) * 0x1p-64;
    value = low + (high - low) * std::min(share, std::nextafter(1.0, 0.0));
  }
  return values;
}

Values make_values(const Shape& shape, const std::function<double(int64_t)>& element) {
  Values values{shape, std::vector<double>(shape.numel())};
  for (int64_t i = 0; i < values.size(); ++i) values[i] = element(i);
  return values;
}

int64_t broadcast_index(const Shape& tensor, const Shape& shape, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int axis = shape.rank() - 1, own = tensor.rank() - 1; own >= 0; --axis, --own) {
    index += tensor[own] == 1 ? 0 : i % shape[axis] * stride;
    stride *= tensor[own];
    i /= shape[axis];
  }
  return index;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

namespace {

int64_t offset_in_format(const Shape& shape, TensorFormat format, int64_t i) {
  const FormatLayout layout = layout_of(format);
  const int64_t channels = shape[1], spatial = shape.numel(2, shape.rank());
  const int64_t groups = (channels + layout.block - 1) / layout.block;
  const int64_t n = i / (channels * spatial), c = i / spatial % channels, s = i % spatial;
  if (layout.channels_last) return (n * spatial + s) * groups * layout.block + c;
  return ((n * groups + c / layout.block) * spatial + s) * layout.block + c % layout.block;
}

}  // namespace

int64_t offset_of(const Shape& shape, TensorFormat format, int64_t i) {
  return format == TensorFormat::kLINEAR ? i : offset_in_format(shape, format, i);
}

Blob to_bytes(const Values& values, PortType type) {
  const size_t size = tensor_bytes(values.shape, type.dtype, type.format);
  return Blob::make(size, [&](void* bytes) {
    std::memset(bytes, 0, size);
    for (int64_t i = 0; i < values.size(); ++i)
      write(bytes, type.dtype, offset_of(values.shape, type.format, i), values[i]);
  });
}

Values from_bytes(const void* bytes, const Shape& shape, PortType type) {
  Values values{shape, std::vector<double>(shape.numel())};
  for (int64_t i = 0; i < values.size(); ++i)
    values[i] = read(bytes, type.dtype, offset_of(shape, type.format, i));
  return values;
}

Values rounded(const Values& values, DataType type) {
  const PortType port{type, TensorFormat::kLINEAR};
  return from_bytes(to_bytes(values, port).data(), values.shape, port);
}

std::vector<PortDesc> describe(std::span<const TestInput> inputs) {
  std::vector<PortDesc> ports;
  for (const TestInput& input : inputs) {
    PortDesc port = port_of(input.values.shape, input.dtype);
    port.present = input.present;
    port.is_constant = input.constant;
    if (input.constant) port.constant = to_bytes(input.values, port.type);
    ports.push_back(port);
  }
  return ports;
}

std::vector<PortDesc> describe(std::span<const TestOutput> outputs) {
  std::vector<PortDesc> ports;
  for (const TestOutput& output : outputs) ports.push_back(port_of(output.shape, output.dtype));
  return ports;
}

std::vector<PortDesc> with_max(std::vector<PortDesc> ports, std::span<const Shape> max) {
  for (size_t i = 0; i < max.size(); ++i) ports[i].max = max[i];
  return ports;
}

std::vector<Candidate> candidates_of(const Operator& op, std::span<const TestInput> inputs,
                                     std::span<const TestOutput> outputs, QueryOptions options) {
  return candidates_of(op, describe(inputs), describe(outputs), options);
}

std::vector<Candidate> candidates_of(const Operator& op, std::span<const PortDesc> inputs,
                                     std::span<const PortDesc> outputs, QueryOptions options) {
  CandidateQuery query;
  query.layer = "test";
  query.inputs = inputs;
  query.outputs = outputs;
  query.device = &test_device();
  query.fp16 = options.fp16, query.bf16 = options.bf16;
  query.strongly_typed = options.strongly_typed;
  query.tf32 = options.tf32;
  query.all_tactics = options.all_tactics || runs_all_tactics();
  std::vector<Candidate> candidates = op.candidates(query);
  // What is listed can be stored: what checks plans must let it pass.
  for (const Candidate& candidate : candidates) {
    check_ports(op, candidate, inputs, outputs);
    TacticRecord::instance().add(TacticRecord::kListed, op.kind(), candidate, inputs, outputs);
  }
  if (runs_each_once() && !candidates.empty()) {
    const Candidate first = candidates[0];
    std::set<std::string> listed;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      const std::string name = class_of(op.kind(), candidate, inputs, outputs);
      return classes_run().contains(name) || !listed.insert(name).second;
    });
    if (candidates.empty() && !runs_least()) candidates.push_back(first);
  }
  return candidates;
}

void check_ports(const Operator& op, const Candidate& candidate, std::span<const PortDesc> inputs,
                 std::span<const PortDesc> outputs, std::span<const PackedInput> packed) {
  std::vector<PortDesc> input_ports(inputs.begin(), inputs.end());
  std::vector<PortDesc> output_ports(outputs.begin(), outputs.end());
  // A constant of another type comes without its bytes, which nobody has converted.
  for (size_t i = 0; i < std::min(input_ports.size(), candidate.inputs.size()); ++i) {
    PortDesc& port = input_ports[i];
    if (port.type.dtype != candidate.inputs[i].dtype) port.constant = Blob();
    port.type = candidate.inputs[i];
  }
  for (size_t i = 0; i < std::min(output_ports.size(), candidate.outputs.size()); ++i)
    output_ports[i].type = candidate.outputs[i];
  KernelArgs args;
  args.layer = "test";
  args.candidate = &candidate;
  args.inputs = input_ports;
  args.outputs = output_ports;
  args.packed = packed;
  args.device = &test_device();
  // On a GPU plans store what is compiled for it.
  if (args.device->is_host()) args.device->check_operator(op, args);
}

namespace {

std::vector<PortDesc> with_constants(std::vector<PortDesc> ports, const Candidate& candidate,
                                     std::span<const TestInput> inputs) {
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].is_constant)
      ports[i].constant = to_bytes(inputs[i].values, {candidate.inputs[i].dtype});
  return ports;
}

}  // namespace

TestKernel::TestKernel(const Operator& op, const Candidate& candidate,
                       std::span<const TestInput> inputs, std::span<const TestOutput> outputs,
                       std::span<const PackedInput> packed, std::span<const Shape> max_inputs,
                       std::span<const Shape> max_outputs)
    : TestKernel(op, candidate,
                 with_max(with_constants(describe(inputs), candidate, inputs), max_inputs),
                 with_max(describe(outputs), max_outputs), packed) {}

TestKernel::TestKernel(const Operator& op, const Candidate& candidate,
                       std::span<const PortDesc> inputs, std::span<const PortDesc> outputs,
                       std::span<const PackedInput> packed)
    : kind_(op.kind()),
      candidate_(candidate),
      inputs_(inputs.begin(), inputs.end()),
      outputs_(outputs.begin(), outputs.end()) {
  std::vector<PortDesc> input_ports(inputs.begin(), inputs.end());
  std::vector<PortDesc> output_ports(outputs.begin(), outputs.end());
  for (size_t i = 0; i < input_ports.size(); ++i) input_ports[i].type = candidate.inputs[i];
  for (size_t i = 0; i < output_ports.size(); ++i) output_ports[i].type = candidate.outputs[i];
  for (const PackedInput& input : packed) input_ports[input.input].constant = Blob();

  KernelArgs args;
  args.layer = "test";
  args.candidate = &candidate_;
  args.inputs = input_ports;
  args.outputs = output_ports;
  args.packed = packed;
  args.device = &test_device();
  const DeviceScope scope(test_device());
  planned_ = op.plan(args);
  planned_->check(args);
  kernel_ = planned_->make_kernel(args);
  workspace_size_ = kernel_->workspace_size();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].present && op.is_shape_input(static_cast<int>(i)))
      shape_inputs_.push_back(static_cast<int>(i));
  for (const PackedInput& input : packed) packed_inputs_.push_back(input.input);
  if (packed.empty())
    for (const PackedInput& input : kernel_->packed()) packed_inputs_.push_back(input.input);
}

std::vector<Values> TestKernel::run(std::span<const TestInput> inputs,
                                    std::span<const TestOutput> outputs, int in_place, int shift) {
  const DeviceScope scope(test_device());
  TacticRecord::instance().add(TacticRecord::kRun, kind_, candidate_, inputs_, outputs_);
  classes_run().insert(class_of(kind_, candidate_, inputs_, outputs_));
  std::vector<Shape> input_shapes, output_shapes;
  std::vector<std::unique_ptr<GuardedBuffer>> input_buffers, output_buffers;
  std::vector<const void*> input_pointers;
  std::vector<void*> output_pointers;
  std::vector<Blob> originals;
  const auto make_buffer = [&](size_t size, PortType type) {
    return std::make_unique<GuardedBuffer>(size, shift * bits(type.dtype) / 8);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_shapes.push_back(inputs[i].values.shape);
    const Blob bytes =
        inputs[i].present ? to_bytes(inputs[i].values, candidate_.inputs[i]) : Blob();
    input_buffers.push_back(make_buffer(bytes.size(), candidate_.inputs[i]));
    input_buffers[i]->write(bytes);
    const bool packed =
        std::find(packed_inputs_.begin(), packed_inputs_.end(), i) != packed_inputs_.end();
    input_pointers.push_back(inputs[i].present && !packed ? input_buffers[i]->data() : nullptr);
    originals.push_back(bytes);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const PortType type = candidate_.outputs[i];
    output_shapes.push_back(outputs[i].shape);
    output_buffers.push_back(
        make_buffer(tensor_bytes(outputs[i].shape, type.dtype, type.format), type));
    output_pointers.push_back(output_buffers[i]->data());
  }
  if (in_place >= 0) output_pointers[0] = input_buffers[in_place]->data();

  GuardedBuffer workspace(workspace_size_, 0);
  for (const int input : shape_inputs_) {
    const std::vector<double>& values = inputs[static_cast<size_t>(input)].values.data;
    const std::vector<int64_t> elements(values.begin(), values.end());
    kernel_->on_values_change(input, elements);
  }
  kernel_->on_shape_change(input_shapes, output_shapes);
  kernel_->enqueue(input_pointers.data(), output_pointers.data(), workspace.data(), nullptr);

  workspace.fetch();
  EXPECT_TRUE(workspace.intact()) << "wrote beyond the workspace";
  std::vector<Values> results;
  written_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_buffers[i]->fetch();
    EXPECT_TRUE(input_buffers[i]->intact()) << "wrote beyond input " << i;
    if (static_cast<int>(i) != in_place && originals[i].size() > 0) {
      EXPECT_EQ(std::memcmp(input_buffers[i]->bytes(), originals[i].data(), originals[i].size()), 0)
          << "changed input " << i;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    output_buffers[i]->fetch();
    EXPECT_TRUE(output_buffers[i]->intact()) << "wrote beyond output " << i;
    const GuardedBuffer& written =
        i == 0 && in_place >= 0 ? *input_buffers[in_place] : *output_buffers[i];
    written_.push_back(written.written());
    results.push_back(from_bytes(written.bytes(), outputs[i].shape, candidate_.outputs[i]));
  }
  return results;
}

std::vector<Values> run_kernel(const Operator& op, const Candidate& candidate,
                               std::span<const TestInput> inputs,
                               std::span<const TestOutput> outputs) {
  return TestKernel(op, candidate, inputs, outputs).run(inputs, outputs);
}

void expect_close(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.shape, expected.shape);
  for (int64_t i = 0; i < actual.size(); ++i) {
    const bool same_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
    const bool close = std::abs(actual[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]));
    if (same_nan || close || actual[i] == expected[i]) continue;
    ADD_FAILURE() << "element " << i << " of " << actual.shape << " is " << actual[i]
                  << " instead of " << expected[i];
    return;
  }
}

double tolerance_of(DataType type) {
  if (type == DataType::kBF16) return 0.02;
  if (type == DataType::kHALF) return 0.003;
  return type == DataType::kFLOAT ? 2e-5 : 0;
}

std::string describe(const Candidate& candidate) {
  std::string text;
  const auto add = [&](const std::vector<PortType>& ports) {
    for (const PortType& port : ports)
      text += std::string(name(port.dtype)) + " " + std::string(name(port.format)) + ", ";
  };
  add(candidate.inputs);
  text += "-> ";
  add(candidate.outputs);
  return text + "(" + candidate.tactic_name + ")";
}

}  // namespace opwright::testing
