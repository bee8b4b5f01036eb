#include "operators/host_run.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright {
namespace {

class HostMemory {
 public:
  HostMemory(const Device& device, size_t bytes)
      : device_(device), data_(device.allocate(std::max<size_t>(bytes, 64))) {}
  ~HostMemory() { device_.free(data_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* get() const { return data_; }

 private:
  const Device& device_;
  void* data_;
};

PortDesc dense_port(const TensorInfo& info, Blob constant) {
  PortDesc port;
  port.type = {info.dtype, TensorFormat::kLINEAR};
  port.min = port.opt = port.max = constant_shape(info.dims);
  port.is_constant = !constant.empty();
  port.constant = std::move(constant);
  return port;
}

Blob dense_constant(const TensorInfo& info) {
  if (!info.constant.empty()) return info.constant;
  std::vector<int64_t> values;
  for (const Expr& element : *info.values) values.push_back(element.constant());
  return dense_values(values, info.dtype);
}

std::vector<Blob> run_kernel(const PlannedOperator& op, const KernelArgs& args) {
  std::unique_ptr<Kernel> kernel = op.make_kernel(args);
  std::vector<Shape> in_shapes, out_shapes;
  std::vector<const void*> in;
  std::vector<Blob> results;
  std::vector<void*> out;
  for (const PortDesc& port : args.inputs) {
    in_shapes.push_back(port.opt);
    in.push_back(port.present ? port.constant.data() : nullptr);
  }
  for (const PortDesc& port : args.outputs) {
    out_shapes.push_back(port.opt);
    results.push_back(Blob::make(tensor_bytes(port.opt, port.type.dtype, port.type.format),
                                 [&](void* memory) { out.push_back(memory); }));
  }
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const PortDesc& port = args.inputs[i];
    if (!port.present || !op.is_shape_input(static_cast<int>(i))) continue;
    std::vector<int64_t> elements(static_cast<size_t>(port.opt.numel()));
    convert(port.constant.data(), port.type.dtype, elements.data(), DataType::kINT64,
            port.opt.numel());
    kernel->on_values_change(static_cast<int>(i), elements);
  }
  HostMemory workspace(*args.device, kernel->workspace_size());
  kernel->on_shape_change(in_shapes, out_shapes);
  kernel->enqueue(in.data(), out.data(), workspace.get(), nullptr);
  return results;
}

}  // namespace

Blob dense_values(std::span<const int64_t> values, DataType type) {
  return Blob::make(bytes_of(type, static_cast<int64_t>(values.size())), [&](void* memory) {
    convert(values.data(), DataType::kINT64, memory, type, static_cast<int64_t>(values.size()));
  });
}

std::vector<Blob> run_on_host(const Device& host, const Operator& op, std::string_view name,
                              std::span<const TensorInfo* const> inputs,
                              std::span<const TensorInfo> outputs) {
  struct {
    std::vector<PortDesc> inputs, outputs;
  } ports;
  for (const TensorInfo* input : inputs) {
    ports.inputs.push_back(input ? dense_port(*input, dense_constant(*input)) : PortDesc{});
    ports.inputs.back().present = input != nullptr;
  }
  for (const TensorInfo& output : outputs) ports.outputs.push_back(dense_port(output, {}));
  CandidateQuery query;
  query.layer = name;
  query.inputs = ports.inputs;
  query.outputs = ports.outputs;
  query.device = &host;
  query.strongly_typed = true;
  auto fits = [](const std::vector<PortType>& types, const std::vector<PortDesc>& descs) {
    for (size_t i = 0; i < types.size(); ++i)
      if (descs[i].present && types[i] != descs[i].type) return false;
    return types.size() == descs.size();
  };
  for (const Candidate& candidate : op.candidates(query)) {
    if (!fits(candidate.inputs, ports.inputs) || !fits(candidate.outputs, ports.outputs)) continue;
    KernelArgs args;
    args.layer = name;
    args.candidate = &candidate;
    args.inputs = ports.inputs;
    args.outputs = ports.outputs;
    args.device = &host;
    return run_kernel(*op.plan(args), args);
  }
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", name, "': the host has no kernel for ",
            op.kind(), " with dense operands");
}

Blob as_type(const Blob& elements, DataType from, DataType to, int64_t count, float scale) {
  if (from == to) return elements;
  return Blob::make(bytes_of(to, count), [&](void* memory) {
    convert(elements.data(), from, memory, to, count, scale);
  });
}

namespace {

Blob reformatted(const Device& host, const Blob& elements, const Shape& shape, PortType from_type,
                 PortType to_type, std::string_view name) {
  if (same_bytes(shape, shape, from_type, to_type)) return elements;
  const Reformat reformat;
  Candidate candidate{{from_type}, {to_type}, 0, ""};
  PortDesc from, to;
  from.type = from_type;
  to.type = to_type;
  from.min = from.opt = from.max = to.min = to.opt = to.max = shape;
  from.constant = elements;
  from.is_constant = true;
  KernelArgs args;
  args.layer = name;
  args.candidate = &candidate;
  args.inputs = {&from, 1};
  args.outputs = {&to, 1};
  args.device = &host;
  return run_kernel(*reformat.plan(args), args).front();
}

}  // namespace

Blob laid_out(const Device& host, const Blob& dense, const Shape& shape, PortType type,
              std::string_view name) {
  return reformatted(host, dense, shape, {type.dtype, TensorFormat::kLINEAR}, type, name);
}

Blob dense_of(const Device& host, const Blob& stored, const Shape& shape, PortType type,
              std::string_view name) {
  return reformatted(host, stored, shape, type, {type.dtype, TensorFormat::kLINEAR}, name);
}

bool are_dense(PortType a, PortType b) {
  return a.dtype == b.dtype && layout_of(a.format).block == 1 && layout_of(b.format).block == 1;
}

bool same_bytes(const Shape& min, const Shape& max, PortType a, PortType b) {
  if (a == b) return true;
  if (a.dtype != b.dtype) return false;
  const FormatLayout layout_a = layout_of(a.format), layout_b = layout_of(b.format);
  const int rank = max.rank();
  const int64_t channels = rank > 1 ? max[1] : 1;
  const bool fixed_channels = rank > 1 && min[1] == max[1];
  bool one_position = true;  // all spatial extents are 1
  for (int i = 2; i < rank; ++i) one_position = one_position && max[i] == 1;
  auto padded = [&](const FormatLayout& layout) {
    return layout.block > 1 && (!fixed_channels || channels % layout.block != 0);
  };
  if (padded(layout_a) || padded(layout_b)) return false;
  if (one_position) return true;
  // A single channel lies the same way in every order.
  return fixed_channels && channels == 1 && layout_a.block == 1 && layout_b.block == 1;
}

}  // namespace opwright
