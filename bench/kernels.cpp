// Compares our own CPU kernels with a copy of as many bytes, the measure for a kernel that is bound
// by memory. Run with --benchmark_filter=NAME for one of them.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/copy.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"

namespace {

using namespace opwright;

struct Tensor {
  Shape shape;
  TensorFormat format = TensorFormat::kLINEAR;
  DataType type = DataType::kFLOAT;
};

PortDesc port(const Tensor& tensor) {
  PortDesc desc;
  desc.type = {tensor.type, TensorFormat::kLINEAR};
  desc.min = desc.opt = desc.max = tensor.shape;
  return desc;
}

/// Memory of a tensor, filled so that no page is unmapped and no element is denormal.
class Memory {
 public:
  explicit Memory(size_t bytes) : data_(get_device(DeviceType::kCPU).allocate(bytes)) {
    std::memset(data_, 0x3F, bytes);
  }
  ~Memory() { get_device(DeviceType::kCPU).free(data_); }
  Memory(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

void run(benchmark::State& state, const Operator& op, const std::vector<Tensor>& inputs,
         const Tensor& output) {
  const Device& device = get_device(DeviceType::kCPU);
  std::vector<PortDesc> input_ports, output_ports = {port(output)};
  for (const Tensor& tensor : inputs) input_ports.push_back(port(tensor));
  CandidateQuery query;
  query.layer = "bench";
  query.inputs = input_ports, query.outputs = output_ports;
  query.device = &device;
  KernelArgs args;
  for (const Candidate& candidate : op.candidates(query)) {
    bool fits = candidate.outputs[0].format == output.format;
    for (size_t i = 0; i < inputs.size(); ++i)
      fits &= candidate.inputs[i].format == inputs[i].format;
    if (!fits) continue;
    args.layer = "bench";
    args.candidate = &candidate;
    for (size_t i = 0; i < inputs.size(); ++i) input_ports[i].type = candidate.inputs[i];
    output_ports[0].type = candidate.outputs[0];
    args.inputs = input_ports, args.outputs = output_ports;
    args.device = &device;
    const PlannedOperatorPtr planned = op.plan(args);
    const std::unique_ptr<Kernel> kernel = planned->make_kernel(args);

    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<const void*> from;
    std::vector<Shape> shapes;
    int64_t bytes = 0;
    const auto allocate = [&](const Tensor& tensor) {
      const int64_t size = tensor_bytes(tensor.shape, tensor.type, tensor.format);
      bytes += size;
      memory.push_back(std::make_unique<Memory>(size));
      return memory.back()->data();
    };
    for (const Tensor& tensor : inputs) {
      from.push_back(allocate(tensor));
      shapes.push_back(tensor.shape);
    }
    void* to = allocate(output);
    const Memory workspace(kernel->workspace_size());
    kernel->on_shape_change(shapes, std::span(&output.shape, 1));
    for (auto _ : state) kernel->enqueue(from.data(), &to, workspace.data(), nullptr);
    state.SetBytesProcessed(state.iterations() * bytes);
    return;
  }
  state.SkipWithError("no such candidate");
}

void copy(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  const Memory from(bytes), to(bytes);
  for (auto _ : state) parallel_copy(to.data(), from.data(), bytes);
  state.SetBytesProcessed(state.iterations() * bytes * 2);
}
BENCHMARK(copy)->Arg(64 * 56 * 56 * 4)->Arg(64 * 112 * 112 * 4)->Arg(64 << 20)->UseRealTime();

Pointwise program(std::vector<PointwiseInstruction> instructions) {
  for (int i = 1; i >= 0; --i)
    instructions.insert(instructions.begin(),
                        {static_cast<int32_t>(PointwiseOp::kInput), DataType::kFLOAT, i});
  return Pointwise(encode(instructions, {static_cast<int64_t>(instructions.size()) - 1}));
}
PointwiseInstruction sum() {
  return {static_cast<int32_t>(PointwiseOp::kBinary), DataType::kFLOAT, 0, 1};
}
PointwiseInstruction activation(ActivationType type, int operand) {
  return {static_cast<int32_t>(PointwiseOp::kActivation) + static_cast<int32_t>(type),
          DataType::kFLOAT, operand};
}

const Shape kImage = {1, 64, 56, 56}, kLarge = {1, 64, 512, 512};
const Shape kChannels = {1, 64, 1, 1};

#define OPWRIGHT_BENCH(name, ...)                                 \
  void name(benchmark::State& state) { run(state, __VA_ARGS__); } \
  BENCHMARK(name)->UseRealTime()

Pointwise relu() {
  return Pointwise(encode(
      std::vector<PointwiseInstruction>{
          {static_cast<int32_t>(PointwiseOp::kInput), DataType::kFLOAT, 0},
          activation(ActivationType::kRELU, 0)},
      {1}));
}
Pointwise unary(ActivationType type) {
  return Pointwise(encode(
      std::vector<PointwiseInstruction>{
          {static_cast<int32_t>(PointwiseOp::kInput), DataType::kFLOAT, 0}, activation(type, 0)},
      {1}));
}

OPWRIGHT_BENCH(relu_small, relu(), {{{1, 1000}}}, {{1, 1000}});
OPWRIGHT_BENCH(relu_image, relu(), {{kImage}}, {kImage});
OPWRIGHT_BENCH(relu_large, relu(), {{kLarge}}, {kLarge});
OPWRIGHT_BENCH(add_relu, program({sum(), activation(ActivationType::kRELU, 2)}),
               {{kImage}, {kImage}}, {kImage});
OPWRIGHT_BENCH(bias_relu, program({sum(), activation(ActivationType::kRELU, 2)}),
               {{kImage}, {kChannels}}, {kImage});
OPWRIGHT_BENCH(bias_relu_hwc, program({sum(), activation(ActivationType::kRELU, 2)}),
               {{kImage, TensorFormat::kHWC}, {kChannels}}, {kImage, TensorFormat::kHWC});
OPWRIGHT_BENCH(bias_rows, program({sum()}), {{{128, 3072}}, {{3072}}}, {{128, 3072}});
OPWRIGHT_BENCH(gelu, unary(ActivationType::kGELU_ERF), {{{128, 3072}}}, {{128, 3072}});
OPWRIGHT_BENCH(gelu_tanh, unary(ActivationType::kGELU_TANH), {{{128, 3072}}}, {{128, 3072}});
OPWRIGHT_BENCH(sigmoid, unary(ActivationType::kSIGMOID), {{{128, 3072}}}, {{128, 3072}});
OPWRIGHT_BENCH(tanh_, unary(ActivationType::kTANH), {{{128, 3072}}}, {{128, 3072}});

OPWRIGHT_BENCH(transpose_heads, Transpose({{0, 2, 1, 3}}), {{{1, 128, 12, 64}}},
               {{1, 12, 128, 64}});
OPWRIGHT_BENCH(transpose_matrix, Transpose({{1, 0}}), {{{1024, 1024}}}, {{1024, 1024}});
OPWRIGHT_BENCH(transpose_photograph, Transpose({{0, 3, 1, 2}}), {{{1, 512, 512, 3}}},
               {{1, 3, 512, 512}});
OPWRIGHT_BENCH(transpose_bytes, Transpose({{1, 0}}), {{{1024, 1024}, {}, DataType::kINT8}},
               {{1024, 1024}, {}, DataType::kINT8});

Slice pad() {
  SliceParams params;
  params.start = {0, 0, -1, -1};
  params.size = {1, 64, 58, 58};
  params.stride = {1, 1, 1, 1};
  params.mode = SampleMode::kFILL;
  return Slice(params);
}
OPWRIGHT_BENCH(pad_image, pad(), {{kImage}}, {{1, 64, 58, 58}});
Slice crop() {
  SliceParams params;
  params.start = {0, 0, 128, 128};
  params.size = {1, 64, 256, 256};
  params.stride = {1, 1, 1, 1};
  return Slice(params);
}
OPWRIGHT_BENCH(crop_large, crop(), {{kLarge}}, {{1, 64, 256, 256}});
OPWRIGHT_BENCH(concatenate, Concatenation({1}), {{kImage}, {kImage}}, {{1, 128, 56, 56}});
OPWRIGHT_BENCH(concatenate_hwc, Concatenation({1}),
               {{kImage, TensorFormat::kHWC}, {kImage, TensorFormat::kHWC}},
               {{1, 128, 56, 56}, TensorFormat::kHWC});
OPWRIGHT_BENCH(average_image, Reduce({ReduceOperation::kAVG, 12, true}), {{{1, 2048, 7, 7}}},
               {{1, 2048, 1, 1}});
OPWRIGHT_BENCH(average_image_hwc, Reduce({ReduceOperation::kAVG, 12, true}),
               {{{1, 2048, 7, 7}, TensorFormat::kHWC}}, {{1, 2048, 1, 1}, TensorFormat::kHWC});
OPWRIGHT_BENCH(sum_rows, Reduce({ReduceOperation::kSUM, 2, false}), {{{128, 3072}}}, {{128}});
OPWRIGHT_BENCH(sum_columns, Reduce({ReduceOperation::kSUM, 1, false}), {{{128, 3072}}}, {{3072}});
OPWRIGHT_BENCH(sum_all, Reduce({ReduceOperation::kSUM, 3, false}), {{{1024, 1024}}}, {Shape{}});

OPWRIGHT_BENCH(layer_norm, Normalization({1e-5f, 2}), {{{128, 768}}, {{768}}, {{768}}},
               {{128, 768}});
OPWRIGHT_BENCH(group_norm, Normalization({1e-5f, 12, 32}), {{kImage}, {kChannels}, {kChannels}},
               {kImage});
OPWRIGHT_BENCH(group_norm_hwc, Normalization({1e-5f, 12, 32}),
               {{kImage, TensorFormat::kHWC}, {kChannels}, {kChannels}},
               {kImage, TensorFormat::kHWC});

Resize resize(InterpolationMode mode) {
  ResizeParams params;
  params.mode = mode;
  params.coordinate_transformation = ResizeCoordinateTransformation::kHALF_PIXEL;
  params.scales = {1, 1, 2, 2};
  return Resize(params);
}
OPWRIGHT_BENCH(nearest, resize(InterpolationMode::kNEAREST), {{kImage}}, {{1, 64, 112, 112}});
OPWRIGHT_BENCH(bilinear, resize(InterpolationMode::kLINEAR), {{kImage}}, {{1, 64, 112, 112}});
OPWRIGHT_BENCH(bilinear_hwc, resize(InterpolationMode::kLINEAR), {{kImage, TensorFormat::kHWC}},
               {{1, 64, 112, 112}, TensorFormat::kHWC});

}  // namespace

BENCHMARK_MAIN();
