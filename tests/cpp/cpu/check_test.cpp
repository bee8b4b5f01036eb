// What a plan may say of a step and the kernels cannot do: PlannedOperator::check refuses it before
// a kernel is made. Each case is a step that is fine, and one change to it.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "cpu/pointwise_program.h"
#include "cpu/run_kernel.h"
#include "operators/assertion.h"
#include "operators/bit_cast.h"
#include "operators/col2im.h"
#include "operators/context.h"
#include "operators/convolution.h"
#include "operators/indexing.h"
#include "operators/kv_cache.h"
#include "operators/matmul_nbits.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/rotary_embedding.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"
#include "operators/window_reduction.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

struct Step {
  OperatorPtr op;
  std::vector<PortDesc> inputs, outputs;
  std::vector<PackedInput> packed;
  std::map<int, std::vector<int64_t>> values = {};  ///< of shape inputs
};

PortDesc port(const Shape& shape, DataType type = kFLOAT, TensorFormat format = kLINEAR) {
  PortDesc result;
  result.type = {type, format};
  result.min = result.opt = result.max = shape;
  return result;
}

PortDesc weights(const Shape& shape, DataType type = kFLOAT) {
  PortDesc result = port(shape, type);
  result.is_constant = true;
  return result;
}

template <class Op>
Step step(typename Op::Params params, std::vector<PortDesc> inputs, std::vector<PortDesc> outputs) {
  return {std::make_shared<Op>(std::move(params)), std::move(inputs), std::move(outputs), {}, {}};
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string refusal(const Step& step) {
  Candidate candidate;
  for (const PortDesc& each : step.inputs) candidate.inputs.push_back(each.type);
  for (const PortDesc& each : step.outputs) candidate.outputs.push_back(each.type);
  return error_of(
      [&] { check_ports(*step.op, candidate, step.inputs, step.outputs, step.packed); });
}

Step convolution(ConvolutionParams params = {}) {
  return step<Convolution>(params, {port({1, 16, 8, 8}), weights({32, 16, 3, 3}), weights({32})},
                           {port({1, 32, 6, 6})});
}
Step deconvolution() {
  return step<Deconvolution>({}, {port({1, 16, 8, 8}), weights({16, 32, 3, 3})},
                             {port({1, 32, 10, 10})});
}
Step residual() {
  ConvolutionParams params;
  params.has_residual = true;
  Step result = convolution(params);
  result.inputs.push_back(port({1, 32, 6, 6}));
  return result;
}
Step product(bool has_bias = false) {
  MatrixMultiplyParams params;
  params.has_bias = has_bias;
  return step<MatrixMultiply>(params, {port({4, 8}), weights({8, 16})}, {port({4, 16})});
}
RecurrenceParams recurrence_params() {
  RecurrenceParams params;
  params.activations = {2, 1, 1};
  params.alphas = params.betas = {0, 0, 0};
  return params;
}
Step recurrence(RecurrenceParams params = recurrence_params()) {
  return step<Recurrence>(params,
                          {port({3, 2, 5}), port({1, 24, 5}), port({1, 24, 6}), port({1, 48}),
                           port({2}, kINT32), port({1, 2, 6}), port({1, 2, 6}), port({1, 18})},
                          {port({3, 1, 2, 6}), port({1, 2, 6}), port({1, 2, 6})});
}
Step byte_product() {
  return step<MatrixMultiply>({}, {port({4, 8}, kUINT8), port({8, 16}, kINT8)},
                              {port({4, 16}, kINT32)});
}
Step byte_convolution() {
  return step<Convolution>({}, {port({1, 16, 8, 8}, kUINT8), port({32, 16, 3, 3}, kINT8)},
                           {port({1, 32, 6, 6}, kINT32)});
}
Step concatenation() {
  return step<Concatenation>({1}, {port({1, 16, 4, 4}), port({1, 16, 4, 4})},
                             {port({1, 32, 4, 4})});
}
Step gather() {
  return step<Gather>({}, {port({5, 3}, kINT64), port({4}, kINT32)}, {port({4, 3}, kINT64)});
}
Step fill() {
  Step result = step<Fill>({}, {port({1}, kINT64), port({}), port({})}, {port({4})});
  result.values = {{0, {4}}};
  return result;
}
Step pooling(PoolingType type = PoolingType::kMAX) {
  PoolingParams params;
  params.type = type;
  params.window = params.stride = {2, 2};
  return step<Pooling>(params, {port({1, 16, 8, 8})}, {port({1, 16, 4, 4})});
}
Step lrn(int64_t window = 5) {
  return step<Lrn>({.window = window}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})});
}
Step normalization(int64_t axes = 12) {
  return step<Normalization>({.axes = axes}, {port({1, 16, 4, 4}), port({1, 16, 1, 1})},
                             {port({1, 16, 4, 4})});
}
Step softmax() { return step<Softmax>({.axes = 2}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})}); }
Step reduce(bool keep_dims = false) {
  return step<Reduce>({ReduceOperation::kSUM, 12, keep_dims}, {port({1, 16, 4, 4})},
                      {keep_dims ? port({1, 16, 1, 1}) : port({1, 16})});
}
Step topk() {
  TopKParams params;
  params.axes = 2;
  Step result =
      step<TopK>(params, {port({4, 8}), port({1}, kINT64)}, {port({4, 3}), port({4, 3}, kINT32)});
  result.values = {{1, {3}}};
  return result;
}
Step cumulative() { return step<Cumulative>({.axis = 1}, {port({4, 8})}, {port({4, 8})}); }
Step scatter(ScatterMode mode = ScatterMode::kELEMENT) {
  if (mode == ScatterMode::kND)
    return step<Scatter>({mode}, {port({4, 3}), port({2, 1}, kINT32), port({2, 3})},
                         {port({4, 3})});
  return step<Scatter>({}, {port({4, 3}), port({2, 3}, kINT32), port({2, 3})}, {port({4, 3})});
}
Step nonzero() {
  return step<NonZero>({}, {port({4, 3})}, {port({2, 12}, kINT32), port({}, kINT64)});
}
Step nms() {
  return step<Nms>({}, {port({1, 6, 4}), port({1, 6, 2}), port({1}, kINT64), port({})},
                   {port({12, 3}, kINT32), port({}, kINT32)});
}
Step unique() {
  return step<Unique>(
      {}, {port({4, 3})},
      {port({12}), port({12}, kINT64), port({12}, kINT64), port({12}, kINT64), port({}, kINT64)});
}
Step data_extent() {
  Step result = step<DataExtent>({2}, {port({4}, kINT64), port({}, kINT64)}, {port({}, kINT64)});
  result.values = {{1, {9}}};
  return result;
}
Step one_hot() {
  Step result = step<OneHot>({}, {port({4}, kINT64), port({2}), port({}, kINT64)}, {port({4, 3})});
  result.values = {{2, {3}}};
  return result;
}
Step reverse_sequence() {
  return step<ReverseSequence>({}, {port({4, 3}), port({3}, kINT64)}, {port({4, 3})});
}
Step assertion() { return step<Assertion>({}, {port({4}, kBOOL)}, {}); }
Step kv_cache() {
  return step<KvCacheUpdate>({}, {port({2, 3, 5, 4}), port({2, 3, 2, 4}), port({2}, kINT64)},
                             {port({2, 3, 5, 4})});
}
Step kv_cache_write() {
  return step<KvCacheWrite>({}, {port({2, 3, 5, 4}), port({2, 3, 2, 4}), port({2}, kINT64)},
                            {port({2, 3, 5, 4})});
}
Step packed_kv_cache() {
  KvCacheUpdateParams params;
  params.update_form = AttentionIOForm::kPACKED_NHD;
  return step<KvCacheUpdate>(
      params, {port({2, 3, 5, 4}), port({6, 3, 4}), port({2}, kINT32), port({3}, kINT32)},
      {port({2, 3, 5, 4})});
}
Step determinant() { return step<Determinant>({}, {port({4, 3, 3})}, {port({4})}); }
Step grid_sample() {
  return step<GridSample>({}, {port({1, 2, 4, 4}), port({1, 3, 3, 2})}, {port({1, 2, 3, 3})});
}
Step deformable_columns() {
  return step<DeformableColumns>({}, {port({1, 2, 4, 4}), port({1, 2, 4, 4}), port({1, 1, 4, 4})},
                                 {port({1, 2, 4, 4})});
}
Step bit_cast() { return step<BitCast>({kINT32}, {port({4, 3})}, {port({4, 3}, kINT32)}); }
Step roi_align() {
  return step<RoiAlign>({}, {port({1, 2, 4, 4}), port({3, 4}), port({3}, kINT64)},
                        {port({3, 2, 1, 1})});
}
Step roi_pool() {
  return step<RoiPool>({}, {port({1, 2, 4, 4}), port({3, 5})}, {port({3, 2, 1, 1})});
}
Step col2im() {
  Col2ImParams params;
  params.block = {2, 2};
  Step result = step<Col2Im>(params, {port({1, 8, 6}), port({2}, kINT64)}, {port({1, 2, 3, 4})});
  result.values = {{1, {3, 4}}};
  return result;
}
Step max_unpool() {
  Step result =
      step<MaxUnpool>({}, {port({1, 2, 2, 2}), port({1, 2, 2, 2}, kINT64), port({4}, kINT64)},
                      {port({1, 2, 4, 4})});
  result.values = {{2, {1, 2, 4, 4}}};
  return result;
}
Step matmul_nbits() {
  return step<MatMulNBits>(
      {5, 40, 4, 32},
      {port({3, 40}), port({5, 2, 16}, kUINT8), port({5, 2}), port({5, 1}, kUINT8), port({5})},
      {port({3, 5})});
}
Step rotary_embedding() {
  return step<RotaryEmbedding>(
      {}, {port({2, 3, 4, 6}), port({5, 3}), port({5, 3}), port({2, 4}, kINT64)},
      {port({2, 3, 4, 6})});
}
Step indexed_pooling() {
  IndexedMaxPoolingParams params;
  params.pooling.window = params.pooling.stride = {2, 2};
  return step<IndexedMaxPooling>(params, {port({1, 2, 4, 4})},
                                 {port({1, 2, 2, 2}), port({1, 2, 2, 2}, kINT64)});
}
Step lp_pooling() {
  LpPoolingParams params;
  params.pooling.window = params.pooling.stride = {2, 2};
  return step<LpPooling>(params, {port({1, 2, 4, 4})}, {port({1, 2, 2, 2})});
}
Step reformat() { return step<Reformat>({}, {port({1, 3, 4, 4})}, {port({1, 3, 4, 4})}); }
Step reshape() { return step<Reshape>({}, {port({2, 6})}, {port({3, 4})}); }
Step resize(InterpolationMode mode = InterpolationMode::kNEAREST) {
  ResizeParams params;
  params.mode = mode;
  Step result =
      step<Resize>(params, {port({1, 16, 4, 4}), port({4}, kINT64)}, {port({1, 16, 8, 8})});
  result.values = {{1, {1, 16, 8, 8}}};
  return result;
}
Step slice() {
  SliceParams params;
  params.mode = SampleMode::kFILL;
  Step result = step<Slice>(
      params, {port({4, 8}), port({2}, kINT32), port({2}, kINT64), port({2}, kINT64), port({})},
      {port({2, 4})});
  result.values = {{1, {1, -2}}, {2, {2, 4}}, {3, {1, 3}}};
  return result;
}
Step transpose() { return step<Transpose>({{1, 0}}, {port({4, 8})}, {port({8, 4})}); }
Step channel_shuffle() {
  return step<ChannelShuffle>({4}, {port({1, 16, 4, 4})}, {port({1, 16, 4, 4})});
}
Step pointwise() {
  Step result;
  result.op = std::make_shared<Pointwise>(make(
      {input(0), input(1), binary(ElementWiseOperation::kSUM, 0, 1), cast(2, kINT32)}, {2, 3}));
  result.inputs = {port({1, 16, 4, 4}), port({1, 16, 1, 1})};
  result.outputs = {port({1, 16, 4, 4}), port({1, 16, 4, 4}, kINT32)};
  return result;
}

struct Case {
  const char* name;
  Step step;
  void (*change)(Step&);
  const char* message;
};

void set_all(Step& step, PortType type) {
  for (auto* ports : {&step.inputs, &step.outputs})
    for (PortDesc& each : *ports) each.type = type;
}

std::vector<Case> cases() {
  const auto pack = [](Step& s) { s.packed = {{0, Blob::copy("", 1), "1:1:1:1::"}}; };
  return {
      {"a port too many", softmax(), [](Step& s) { s.inputs.push_back(port({1})); },
       "expected 1 inputs and 1 outputs, but there are 2 and 1"},
      {"no input", softmax(), [](Step& s) { s.inputs.clear(); }, "there are 0 and 1"},
      {"no output", softmax(), [](Step& s) { s.outputs.clear(); }, "there are 1 and 0"},
      {"an absent input", softmax(), [](Step& s) { s.inputs[0].present = false; },
       "input 0 is missing"},
      {"an absent output", softmax(), [](Step& s) { s.outputs[0].present = false; },
       "output 0 is missing"},
      {"2^62 elements, none of them there", transpose(),
       [](Step& s) {
         s.inputs[0].max = {int64_t{1} << 31, int64_t{1} << 31}, s.inputs[0].min = {0, 0};
       },
       "count up to 2^53 elements"},
      {"an empty tensor beyond counting", transpose(),
       [](Step& s) {
         s.inputs[0].max = {int64_t{1} << 62, 4, 0};
       },
       "count up to 2^53 elements"},
      {"a constant that grows", convolution(), [](Step& s) { s.inputs[2].max = {64}; },
       "is a constant, but its shape changes"},
      {"a constant that is cut off", convolution(),
       [](Step& s) { s.inputs[2].constant = Blob::copy("1234", 4); },
       "input 2 is a constant of 128 bytes, of which the engine has 4"},
      {"a packed input that is not packed", softmax(), pack, "input 0 is packed"},
      {"a packed image", convolution(), pack, "input 0 is packed"},
      {"packed twice", convolution(),
       [](Step& s) {
         const PackedInput packed{1, Blob::copy("1234", 4), "3:1:1:1::"};
         s.packed = {packed, packed};
       },
       "input 1 is packed"},
      {"packed weights that are none", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:1:1:1::"}};
         s.inputs[1].is_constant = false;
       },
       "input 1 is packed"},
      {"packed weights in no layout", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "any"}};
       },
       "The layout of packed weights 'any'"},
      {"packed weights of another type", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "99:1:1:1::"}};
       },
       "The layout of packed weights '99:1:1:1::'"},
      {"packed weights that are too short", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:2:2:1::"}};
       },
       "The layout of packed weights '3:2:2:1::'"},
      {"packed weights of 2^64 elements", convolution(),
       [](Step& s) {
         s.packed = {{1, Blob::copy("1234", 4), "3:1,1:4294967296,4294967296:1,1::"}};
       },
       "The layout of packed weights"},
      {"many packed matrices", product(),
       [](Step& s) {
         s.inputs[1] = weights({3, 8, 16}), s.outputs[0] = port({3, 4, 16});
         s.packed = {{1, Blob::copy("1234", 4), "3:1:1:1::"}};
       },
       "one constant matrix only"},

      {"Convolution in FP8", convolution(), [](Step& s) { set_all(s, {kFP8}); },
       "input 0 must be FP32, FP16 or BF16"},
      {"Convolution to another type", convolution(),
       [](Step& s) { s.outputs[0].type.dtype = kHALF; }, "output 0 must have the type of input 0"},
      {"Convolution in CHW32", convolution(),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kCHW32; },
       "input 0 must have the format LINEAR, CHW16 or HWC, but has CHW32"},
      {"Convolution from HWC to CHW16", convolution(),
       [](Step& s) { s.inputs[0].type.format = kHWC, s.outputs[0].type.format = kCHW16; },
       "and its format unless that is LINEAR"},
      {"a kernel in HWC", convolution(), [](Step& s) { s.inputs[1].type.format = kHWC; },
       "input 1 must have the format LINEAR"},
      {"a bias of integers", convolution(), [](Step& s) { s.inputs[2].type.dtype = kINT32; },
       "input 2 must be FP32, FP16 or BF16"},
      {"an absent kernel", convolution(), [](Step& s) { s.inputs[1].present = false; },
       "input 1 is missing"},
      {"an absent residual", residual(), [](Step& s) { s.inputs[3].present = false; },
       "the residual, input 3, is missing"},
      {"a residual that is the kernel", residual(), [](Step& s) { s.inputs.resize(2); },
       "the residual, input 1, is missing"},
      {"a residual in another format", residual(), [](Step& s) { s.inputs[3].type.format = kHWC; },
       "input 3 must be FP32 like output 0"},
      {"Deconvolution to another type", deconvolution(),
       [](Step& s) { s.outputs[0].type.dtype = kBF16; }, "output 0 must have the type of input 0"},

      {"MatrixMultiply of bytes", product(), [](Step& s) { set_all(s, {kINT8}); },
       "output 0 must be INT32"},
      {"MatrixMultiply of INT64 and FP32", product(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kINT64; },
       "input 1 must be INT64 like input 0"},
      {"MatrixMultiply to another type", product(),
       [](Step& s) { s.outputs[0].type.dtype = kHALF; }, "output 0 must be FP32 like input 0"},
      {"MatrixMultiply without its bias", product(true), [](Step&) {}, "expected 3 inputs"},
      {"MatrixMultiply of images", product(), [](Step& s) { s.inputs[1].type.format = kHWC; },
       "input 1 must have the format LINEAR"},

      {"Concatenation in CHW32", concatenation(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW32});
       },
       "must have the format LINEAR, CHW16 or HWC, but has CHW32"},
      {"Concatenation of blocks with padding", concatenation(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW16});
         s.inputs[0] = port({1, 17, 4, 4}, kFLOAT, kCHW16);
         s.inputs[1] = port({1, 15, 4, 4}, kFLOAT, kCHW16);
       },
       "input 0 must fill whole blocks of the format CHW16"},
      {"Concatenation of mixed types", concatenation(),
       [](Step& s) { s.inputs[1].type.dtype = kHALF; }, "input 1 must be FP32 like output 0"},
      {"Concatenation of mixed formats", concatenation(),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "input 0 must be FP32:HWC like output 0"},
      {"Concatenation of 4 bits", concatenation(), [](Step& s) { set_all(s, {kINT4}); },
       "output 0 must be"},
      {"Concatenation of nothing", concatenation(), [](Step& s) { s.inputs.clear(); },
       "at least one input"},

      {"Gather from INT64 to BOOL", gather(), [](Step& s) { s.outputs[0].type.dtype = kBOOL; },
       "output 0 must be INT64 like input 0, but is BOOL"},
      {"Gather by bytes", gather(), [](Step& s) { s.inputs[1].type.dtype = kUINT8; },
       "input 1 must be INT32 or INT64"},
      {"Gather of 4 bits", gather(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kFP4; }, "input 0 must be"},
      {"Gather without indices", gather(), [](Step& s) { s.inputs.pop_back(); },
       "expected 2 inputs"},

      {"Fill to E8M0", fill(), [](Step& s) { s.outputs[0].type.dtype = kE8M0; },
       "output 0 must be"},
      {"Fill to another type", fill(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32, but is FP16"},
      {"Fill from another type", fill(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "input 1 must be FP32 like output 0"},
      {"Fill in HWC", step<Fill>({}, {}, {port({1, 2, 2, 2})}),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "output 0 must have the format LINEAR"},

      {"Pooling in FP32 to bytes", pooling(), [](Step& s) { s.outputs[0].type.dtype = kINT8; },
       "output 0 must be FP32 like input 0"},
      {"an average of bytes", pooling(PoolingType::kAVERAGE), [](Step& s) { set_all(s, {kINT8}); },
       "input 0 must be FP32, FP16 or BF16"},
      {"Pooling in HWC8", pooling(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC8});
       },
       "input 0 must have the format"},

      {"LRN to FP16", lrn(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"LRN in CHW4", lrn(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW4});
       },
       "input 0 must have the format"},
      {"LRN of integers", lrn(), [](Step& s) { set_all(s, {kINT32}); }, "input 0 must be FP32"},
      {"LRN with an even window", lrn(4), [](Step&) {}, "odd window"},
      {"LRN with a window of 40 bits", lrn((int64_t{1} << 40) + 1), [](Step&) {}, "odd window"},

      {"Normalization in HWC along rows", normalization(8),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kHWC; },
       "input 0 must have the format LINEAR"},
      {"Normalization to another format", normalization(),
       [](Step& s) { s.inputs[0].type.format = kHWC; }, "output 0 must be FP32:HWC like input 0"},
      {"a scale of integers", normalization(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "input 1 must be"},
      {"a scale in HWC", normalization(), [](Step& s) { s.inputs[1].type.format = kHWC; },
       "input 1 must have the format LINEAR"},

      {"Softmax from FP32 to FP16", softmax(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0, but is FP16"},
      {"Softmax in CHW16", softmax(),
       [](Step& s) {
         set_all(s, {kFLOAT, kCHW16});
       },
       "input 0 must have the format LINEAR or HWC"},
      {"Softmax in FP8", softmax(), [](Step& s) { set_all(s, {kFP8}); }, "input 0 must be FP32"},

      {"Reduce to E8M0", reduce(), [](Step& s) { s.outputs[0].type.dtype = kE8M0; },
       "output 0 must be FP32, FP16, FP8 or BF16 on the CPU, but is E8M0"},
      {"Reduce from E8M0", reduce(), [](Step& s) { set_all(s, {kE8M0}); }, "input 0 must be"},
      {"Reduce from INT32 to INT64", reduce(),
       [](Step& s) { s.inputs[0].type.dtype = kINT32, s.outputs[0].type.dtype = kINT64; },
       "output 0 must be INT32"},
      {"Reduce of blocks with padding", reduce(),
       [](Step& s) {
         s.inputs[0] = port({1, 17, 4, 4}, kFLOAT, kCHW16), s.outputs[0] = port({1, 17});
       },
       "input 0 must fill whole blocks"},
      {"Reduce to another format", reduce(true), [](Step& s) { s.outputs[0].type.format = kHWC; },
       "output 0 must have the format LINEAR"},

      {"Recurrence of INT32", recurrence(), [](Step& s) { s.inputs[0].type.dtype = kINT32; },
       "input 0 must be FP32, FP16 or BF16"},
      {"Recurrence of mixed types", recurrence(), [](Step& s) { s.inputs[2].type.dtype = kHALF; },
       "input 2 must be FP32 like input 0"},
      {"Recurrence to another type", recurrence(), [](Step& s) { s.outputs[1].type.dtype = kHALF; },
       "output 1 must be FP32 like input 0"},
      {"Recurrence over lengths of 64 bits", recurrence(),
       [](Step& s) { s.inputs[4].type.dtype = kINT64; }, "input 4 must be INT32"},
      {"Recurrence without a cell", recurrence(), [](Step& s) { s.outputs.pop_back(); },
       "3 outputs"},
      {"Recurrence with open weights", recurrence(),
       [](Step& s) {
         s.inputs[1].max = {1, 24, 9};
       },
       "the shape of the weights, input 1, must be fixed"},
      {"Recurrence with a packed bias", recurrence(),
       [](Step& s) {
         s.inputs[3].is_constant = true;
         s.packed = {{3, {}, {}}};
       },
       "input 3 is packed"},

      {"bytes times floats", byte_product(), [](Step& s) { s.inputs[1].type.dtype = kFLOAT; },
       "input 1 must be"},
      {"bytes that add up to floats", byte_product(),
       [](Step& s) { s.outputs[0].type.dtype = kFLOAT; }, "output 0 must be INT32"},
      {"bytes times unsigned bytes", byte_product(),
       [](Step& s) { s.inputs[1].type.dtype = kUINT8; }, "input 1 must be INT8"},
      {"a convolution by unsigned bytes", byte_convolution(),
       [](Step& s) { s.inputs[1].type.dtype = kUINT8; }, "input 1 must be INT8"},
      {"a convolution of bytes to bytes", byte_convolution(),
       [](Step& s) { s.outputs[0].type.dtype = kINT8; }, "output 0 must"},
      {"a convolution of bytes with a bias", byte_convolution(),
       [](Step& s) { s.inputs.push_back(port({32}, kINT8)); }, "take neither a bias"},

      {"Cumulative of bytes", cumulative(), [](Step& s) { set_all(s, {kINT8}); },
       "input 0 must be"},
      {"Cumulative to another type", cumulative(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},

      {"Scatter by bytes", scatter(), [](Step& s) { s.inputs[1].type.dtype = kINT8; },
       "input 1 must be INT32 or INT64"},
      {"Scatter of updates of another type", scatter(),
       [](Step& s) { s.inputs[2].type.dtype = kINT32; }, "input 2 must be FP32 like input 0"},
      {"NonZero of wide indices", nonzero(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be INT32"},
      {"NonZero with a narrow count", nonzero(), [](Step& s) { s.outputs[1].type.dtype = kINT32; },
       "output 1 must be INT64"},
      {"NMS of scores of another type", nms(), [](Step& s) { s.inputs[1].type.dtype = kHALF; },
       "input 1 must"},
      {"NMS with two thresholds in one", nms(), [](Step& s) { s.inputs[3] = port({2}); },
       "input 3"},
      {"NMS with a wide count", nms(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 must be INT32"},
      {"Unique to another type", unique(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"Unique with narrow indices", unique(), [](Step& s) { s.outputs[2].type.dtype = kINT32; },
       "output 2 must be INT64"},
      {"DataExtent of floats", data_extent(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be INT32 or INT64"},
      {"DataExtent as a narrow integer", data_extent(),
       [](Step& s) { s.outputs[0].type.dtype = kINT32; }, "output 0 must be INT64"},
      {"OneHot of floats", one_hot(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be INT32 or INT64"},
      {"OneHot to another type", one_hot(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 1"},
      {"ReverseSequence by floats", reverse_sequence(),
       [](Step& s) { s.inputs[1].type.dtype = kFLOAT; }, "input 1 must be INT32 or INT64"},
      {"Assertion about floats", assertion(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be BOOL"},
      {"A cache of integers", kv_cache(), [](Step& s) { set_all(s, {kINT32}); }, "input 0 must be"},
      {"An update of another type", kv_cache(), [](Step& s) { s.inputs[1].type.dtype = kHALF; },
       "input 1 must be FP32 like input 0"},
      {"An update of a written cache at floats", kv_cache_write(),
       [](Step& s) { s.inputs[2].type.dtype = kFLOAT; }, "input 2 must be"},
      {"An update at floats", kv_cache(), [](Step& s) { s.inputs[2].type.dtype = kFLOAT; },
       "input 2 must be INT32 or INT64"},
      {"A packed update without lengths", packed_kv_cache(), [](Step& s) { s.inputs.pop_back(); },
       "expected 4 inputs"},
      {"Determinant of integers", determinant(), [](Step& s) { set_all(s, {kINT32}); },
       "input 0 must be"},
      {"GridSample of integers", grid_sample(), [](Step& s) { set_all(s, {kINT32}); },
       "input 0 must be"},
      {"RoiAlign of images by floats", roi_align(),
       [](Step& s) { s.inputs[2].type.dtype = kFLOAT; }, "input 2 must be INT32 or INT64"},
      {"RoiPool to another type", roi_pool(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"Maxima with narrow indices", indexed_pooling(),
       [](Step& s) { s.outputs[1].type.dtype = kINT32; }, "output 1 must be INT64"},
      {"Columns of another type", col2im(), [](Step& s) { set_all(s, {kHALF}); },
       "input 0 must be FP32"},
      {"Maxima put back as another type", max_unpool(),
       [](Step& s) { s.outputs[0].type.dtype = kHALF; }, "output 0 must be FP32 like input 0"},
      {"Maxima put back where floats say", max_unpool(),
       [](Step& s) { s.inputs[1].type.dtype = kFLOAT; }, "input 1 must be INT32 or INT64"},
      {"Packed weights of half a byte", matmul_nbits(),
       [](Step& s) { s.inputs[1].type.dtype = kINT8; }, "input 1 must be UINT8"},
      {"Packed weights with scales of another type", matmul_nbits(),
       [](Step& s) { s.inputs[2].type.dtype = kHALF; }, "input 2 must be FP32 like input 0"},
      {"Fewer packed weights", matmul_nbits(),
       [](Step& s) {
         s.inputs[1] = port({5, 2, 15}, kUINT8);
       },
       "input 1 must have 160 elements"},
      {"Fewer zero points", matmul_nbits(),
       [](Step& s) {
         s.inputs[3] = port({4, 1}, kUINT8);
       },
       "input 3 must have 5 elements"},
      {"Weights of 3 bits", matmul_nbits(),
       [](Step& s) {
         s.op = std::make_shared<MatMulNBits>(MatMulNBitsParams{5, 40, 3, 32});
       },
       "expected 2, 4 or 8"},
      {"Turned by angles of another type", rotary_embedding(),
       [](Step& s) { s.inputs[2].type.dtype = kHALF; }, "input 2 must be FP32 like input 0"},
      {"Turned at places of floats", rotary_embedding(),
       [](Step& s) { s.inputs[3].type.dtype = kFLOAT; }, "input 3 must be INT32 or INT64"},
      {"Norms of integers", lp_pooling(), [](Step& s) { set_all(s, {kINT8}); }, "input 0 must be"},

      {"Columns of windows of three axes",
       step<DeformableColumns>({.window = {1, 1, 1}}, {port({1, 2, 4, 4}), port({1, 2, 4, 4})},
                               {port({1, 2, 4, 4})}),
       [](Step&) {}, "windows of two axes"},
      {"Bits of another size", bit_cast(), [](Step& s) { s.inputs[0].type.dtype = kHALF; },
       "elements of the input's size"},
      {"Bits of another type", bit_cast(), [](Step& s) { s.outputs[0].type.dtype = kFLOAT; },
       "output 0 must be INT32"},

      {"TopK to another type", topk(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"TopK to wider indices", topk(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 must be INT32"},
      {"TopK in FP8", topk(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kFP8; }, "input 0 must be"},
      {"TopK without indices", topk(), [](Step& s) { s.outputs.pop_back(); }, "2 outputs"},

      {"Reformat from 4 bits", reformat(), [](Step& s) { s.inputs[0].type.dtype = kINT4; },
       "cannot convert from INT4 to FP32"},
      {"Reformat of 4 bits to another format", reformat(),
       [](Step& s) { set_all(s, {kINT4}), s.outputs[0].type.format = kCHW32; },
       "cannot convert from INT4 to INT4:CHW32"},
      {"Reformat from E8M0", reformat(), [](Step& s) { s.inputs[0].type.dtype = kE8M0; },
       "cannot convert from E8M0 to FP32"},
      {"Reformat to another shape", reformat(),
       [](Step& s) {
         s.outputs[0].max = {1, 3, 2, 2};
       },
       "must have the shape of input 0"},

      {"Reshape from BOOL to INT64", reshape(),
       [](Step& s) { s.inputs[0].type.dtype = kBOOL, s.outputs[0].type.dtype = kINT64; },
       "a reshape keeps the bytes"},
      {"Reshape in CHW32", reshape(),
       [](Step& s) {
         s.inputs[0] = port({1, 3, 4, 4}), s.outputs[0] = port({1, 3, 4, 4}, kFLOAT, kCHW32);
       },
       "a reshape keeps the bytes"},

      {"Resize to another type", resize(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Resize of channels in HWC", resize(),
       [](Step& s) {
         s.inputs[0].type.format = s.outputs[0].type.format = kHWC, s.outputs[0].max = {1, 8, 8, 8};
       },
       "cannot resize"},
      {"interpolation in CHW16", resize(InterpolationMode::kLINEAR),
       [](Step& s) { s.inputs[0].type.format = s.outputs[0].type.format = kCHW16; },
       "cannot resize"},
      {"interpolation of integers", resize(InterpolationMode::kCUBIC),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kINT32; },
       "input 0 must be"},

      {"Slice to another type", slice(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Slice filled with another type", slice(), [](Step& s) { s.inputs[4].type.dtype = kBOOL; },
       "input 4 must be FP32 like input 0"},
      {"Slice of 4 bits", slice(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kINT4; },
       "input 0 must be"},
      {"Transpose to another type", transpose(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be FP32 like input 0"},
      {"Transpose in HWC", transpose(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC});
       },
       "input 0 must have the format LINEAR"},

      {"ChannelShuffle to another format", channel_shuffle(),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "output 0 must be FP32 like input 0"},
      {"ChannelShuffle in CHW32", channel_shuffle(),
       [](Step& s) {
         set_all(s, {kFLOAT, TensorFormat::kCHW32});
       },
       "input 0 must have the format"},

      {"Pointwise outputs in different formats", pointwise(),
       [](Step& s) { s.outputs[1].type.format = kHWC; }, "output 1 must have the format LINEAR"},
      {"a broadcast input in HWC", pointwise(),
       [](Step& s) {
         set_all(s, {kFLOAT, kHWC}), s.outputs[1].type.dtype = kINT32;
       },
       "input 1 must have the format LINEAR, but has HWC"},
      {"an input in HWC of LINEAR outputs", pointwise(),
       [](Step& s) { s.inputs[0].type.format = kHWC; }, "input 0 must have the format LINEAR"},
      {"Pointwise in blocks with padding", pointwise(),
       [](Step& s) {
         s.inputs = {port({1, 17, 4, 4}), port({1, 17, 1, 1})};
         s.outputs = {port({1, 17, 4, 4}, kFLOAT, kCHW16), port({1, 17, 4, 4}, kINT32, kCHW16)};
       },
       "output 0 must fill whole blocks"},
      {"Pointwise to another type", pointwise(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 is INT64, but the program computes INT32"},
      {"Pointwise of 4 bits", pointwise(), [](Step& s) { s.inputs[1].type.dtype = kINT4; },
       "input 1 must be"},
      {"Pointwise from another type", pointwise(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "the program reads input 1 as FP32"},
      {"Pointwise without an input", pointwise(), [](Step& s) { s.inputs.pop_back(); },
       "the program reads input 1 as FP32"},
      {"Pointwise without an output", pointwise(), [](Step& s) { s.outputs.pop_back(); },
       "2 outputs"},
      {"Pointwise outputs of different shapes", pointwise(),
       [](Step& s) {
         s.outputs[1].max = {1, 16, 1, 1};
       },
       "all outputs must have one shape"},
  };
}

TEST(Check, RefusesWhatKernelsCannotDo) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    Step changed = each.step;
    each.change(changed);
    const std::string message = refusal(changed);
    EXPECT_NE(message.find(each.message), std::string::npos) << message;
  }
}

std::vector<Step> steps() {
  return {convolution(),
          deconvolution(),
          residual(),
          product(),
          concatenation(),
          gather(),
          fill(),
          pooling(),
          pooling(PoolingType::kAVERAGE),
          lrn(),
          normalization(),
          softmax(),
          reduce(),
          reduce(true),
          topk(),
          cumulative(),
          recurrence(),
          byte_product(),
          byte_convolution(),
          scatter(),
          scatter(ScatterMode::kND),
          nonzero(),
          nms(),
          unique(),
          data_extent(),
          one_hot(),
          reverse_sequence(),
          determinant(),
          grid_sample(),
          deformable_columns(),
          roi_align(),
          roi_pool(),
          rotary_embedding(),
          matmul_nbits(),
          col2im(),
          max_unpool(),
          indexed_pooling(),
          lp_pooling(),
          bit_cast(),
          reformat(),
          reshape(),
          resize(),
          resize(InterpolationMode::kLINEAR),
          slice(),
          transpose(),
          pointwise()};
}

TEST(Check, PassesWhatTheyCan) {
  for (const Step& each : steps()) EXPECT_EQ(refusal(each), "") << each.op->kind();
  Step stripped = convolution();
  stripped.packed = {{1, Blob(), "3:32,16,3,3:32,16,3,3:144,9,3,1::"}};
  EXPECT_EQ(refusal(stripped), "");
}

/// Whether inference gives the step's outputs, with floating types mixed as the tuner may.
bool is_inferred(const Step& step) {
  if (step.op->kind() == Reshape::kKind || step.op->kind() == Reformat::kKind) return true;
  Tensors tensors;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const PortDesc& desc = step.inputs[i];
    const bool is_mixed = is_floating(desc.type.dtype) && step.op->kind() != Fill::kKind;
    tensors.push_back(tensor(sym_shape(desc.opt), is_mixed ? kFLOAT : desc.type.dtype));
    const auto values = step.values.find(static_cast<int>(i));
    if (values == step.values.end()) continue;
    tensors.back()->values =
        std::make_shared<const std::vector<Expr>>(values->second.begin(), values->second.end());
  }
  return error_of([&] {
           Context context(tensors);
           const auto outputs = step.op->infer(context);
           require(outputs.size() == step.outputs.size(), "another number of outputs");
           for (size_t i = 0; i < outputs.size(); ++i) {
             const PortDesc& desc = step.outputs[i];
             require(constant_shape(outputs[i].dims) == desc.opt, "another shape");
             require(outputs[i].dtype == desc.type.dtype ||
                         (is_floating(outputs[i].dtype) && is_floating(desc.type.dtype)),
                     "another type");
           }
         })
      .empty();
}

/// Whatever is listed may be stored, with every type that a network may have and all precisions.
TEST(Check, PassesEveryCandidate) {
  int listed = 0;
  for (Step each : steps()) {
    for (int type = 0; type < EnumMax<DataType>(); ++type) {
      for (int options = 0; options < 16; ++options) {
        CandidateQuery query;
        Step asked = each;
        for (auto* ports : {&asked.inputs, &asked.outputs}) {
          for (PortDesc& desc : *ports) {
            if (desc.type.dtype == kFLOAT) desc.type.dtype = static_cast<DataType>(type);
            if (options & 8 && desc.max.rank() > 1 && !desc.is_constant) desc.min[0] = 0;
          }
        }
        // A filling says itself what type it has.
        if (!is_inferred(asked) || (each.op->kind() == Fill::kKind && type != 0)) continue;
        query.layer = "test";
        query.inputs = asked.inputs;
        query.outputs = asked.outputs;
        query.device = &test_device();
        query.fp16 = options & 1, query.bf16 = options & 2, query.strongly_typed = options & 4;
        std::vector<Candidate> candidates;
        const std::string lack = error_of([&] { candidates = asked.op->candidates(query); });
        for (const Candidate& candidate : candidates) {
          ++listed;
          SCOPED_TRACE(::testing::Message() << each.op->kind() << " " << describe(candidate));
          EXPECT_EQ(
              error_of([&] { check_ports(*asked.op, candidate, asked.inputs, asked.outputs); }),
              "");
        }
      }
    }
  }
  EXPECT_GT(listed, 500);
}

/// Kernels are made and told of shapes with the step's types, as the runtime does it.
class Made {
 public:
  explicit Made(Step step) : step_(std::move(step)) {
    for (const PortDesc& each : step_.inputs) candidate_.inputs.push_back(each.type);
    for (const PortDesc& each : step_.outputs) candidate_.outputs.push_back(each.type);
    KernelArgs args;
    args.layer = "test";
    args.candidate = &candidate_;
    args.inputs = step_.inputs;
    args.outputs = step_.outputs;
    args.packed = step_.packed;
    args.device = &test_device();
    planned_ = step_.op->plan(args);
    kernel_ = planned_->make_kernel(args);
    for (const auto& [input, elements] : step_.values) kernel_->on_values_change(input, elements);
  }

  void tell(int input, std::vector<int64_t> elements) {
    kernel_->on_values_change(input, elements);
  }
  /// Why the kernel cannot run these shapes; empty when it can.
  std::string tell(std::vector<Shape> inputs, std::vector<Shape> outputs) {
    inputs_ = std::move(inputs), outputs_ = std::move(outputs);
    return error_of([&] { kernel_->on_shape_change(inputs_, outputs_); });
  }
  std::string tell_opt() {
    std::vector<Shape> inputs, outputs;
    for (const PortDesc& each : step_.inputs) inputs.push_back(each.opt);
    for (const PortDesc& each : step_.outputs) outputs.push_back(each.opt);
    return tell(std::move(inputs), std::move(outputs));
  }
  /// Runs on any bytes, between guards. Memory is of the size that the shapes, types and formats
  /// ask for; returns the first output.
  std::vector<std::byte> run(std::mt19937& random) {
    std::vector<Guarded> memory;
    memory.reserve(inputs_.size() + outputs_.size() + 1);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    const auto add = [&](const PortDesc& desc, const Shape& shape) {
      memory.emplace_back(desc.present ? tensor_bytes(shape, desc.type.dtype, desc.type.format)
                                       : 0);
      for (std::byte& each : memory.back().bytes()) each = static_cast<std::byte>(random());
      return memory.back().bytes().data();
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(add(step_.inputs[i], inputs_[i]));
      const std::vector<PackedInput> packed = kernel_->packed();
      for (const PackedInput& each : packed)
        if (each.input == static_cast<int>(i)) inputs.back() = nullptr;
    }
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs.push_back(add(step_.outputs[i], outputs_[i]));
    memory.emplace_back(kernel_->workspace_size());
    kernel_->enqueue(inputs.data(), outputs.data(), memory.back().bytes().data(), nullptr);
    for (size_t i = 0; i < memory.size(); ++i)
      EXPECT_TRUE(memory[i].is_intact()) << "wrote beyond memory " << i;
    const auto bytes = memory[inputs_.size()].bytes();
    return {bytes.begin(), bytes.end()};
  }

 private:
  class Guarded {
   public:
    explicit Guarded(size_t size) : all_(size + 2 * kGuard, std::byte{0xA5}), size_(size) {}
    std::span<std::byte> bytes() { return std::span(all_).subspan(kGuard, size_); }
    bool is_intact() const {
      const auto is_guard = [](std::byte each) { return each == std::byte{0xA5}; };
      return std::all_of(all_.begin(), all_.begin() + kGuard, is_guard) &&
             std::all_of(all_.end() - kGuard, all_.end(), is_guard);
    }

   private:
    static constexpr size_t kGuard = 4096;
    std::vector<std::byte> all_;
    size_t size_;
  };

  Step step_;
  Candidate candidate_;
  PlannedOperatorPtr planned_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Shape> inputs_, outputs_;
};

/// Random types and formats: what passes runs within its tensors.
TEST(Check, WhatPassesIsSafeToRun) {
  std::mt19937 random(14);
  const auto below = [&](int count) { return static_cast<int>(random() % count); };
  int passed = 0, refused = 0;
  for (const Step& each : steps()) {
    for (int round = 0; round < 100; ++round) {
      Step changed = each;
      for (PortDesc& desc : changed.inputs) desc.is_constant = false;
      const auto type = static_cast<DataType>(below(EnumMax<DataType>()));
      const auto format = static_cast<TensorFormat>(below(EnumMax<TensorFormat>()));
      const int which = below(4);
      for (auto* ports : {&changed.inputs, &changed.outputs}) {
        for (PortDesc& desc : *ports) {
          if (which == 0 || below(3) == 0) {
            if (desc.type.dtype == kFLOAT || below(4) == 0) desc.type.dtype = type;
          }
          if (is_valid(format, desc.opt.rank()) && (which == 1 || below(3) == 0))
            desc.type.format = format;
        }
      }
      if (!is_inferred(changed) || !refusal(changed).empty()) {
        ++refused;
        continue;
      }
      ++passed;
      std::string types;
      for (auto* ports : {&changed.inputs, &changed.outputs})
        for (const PortDesc& desc : *ports) types += " " + str(desc.type);
      SCOPED_TRACE(std::string(each.op->kind()) + types);
      Made made(changed);
      ASSERT_EQ(made.tell_opt(), "");
      made.run(random);
    }
  }
  EXPECT_GT(passed, 300);
  EXPECT_GT(refused, 300);
}

std::string obstacle(const Step& step) {
  return error_of([&] { Made made(step); });
}

TEST(Check, MatrixProductsOf32BitsAreRefused) {
  Step step = product();
  step.inputs[1].is_constant = false;
  step.inputs[0].max = {int64_t{1} << 32, 8}, step.outputs[0].max = {int64_t{1} << 32, 16};
  EXPECT_NE(obstacle(step).find("31 bits"), std::string::npos);
  // Rows that are one after another become one matrix.
  step.inputs[0] = port({1 << 16, 1 << 16, 8}), step.outputs[0] = port({1 << 16, 1 << 16, 16});
  EXPECT_NE(obstacle(step).find("31 bits"), std::string::npos);
}

TEST(Check, WindowsThatOverflowAreRefused) {
  const int64_t far = (int64_t{1} << 31) - 1;
  Step step = pooling();
  PoolingParams pooling_params;
  pooling_params.window = {1, 1}, pooling_params.stride = {far, far};
  step.op = std::make_shared<Pooling>(pooling_params);
  step.inputs[0] = port({1, 16, 8, 8}), step.outputs[0] = port({1, 16, 1, 1});
  EXPECT_NE(obstacle(step).find("2^24"), std::string::npos);
  Step padded = convolution();
  ConvolutionParams params;
  params.pre_padding = {1 << 25, 0};
  padded.op = std::make_shared<Convolution>(params);
  padded.inputs[1].is_constant = padded.inputs[2].is_constant = false;
  padded.outputs[0] = port({1, 32, (1 << 25) + 6, 6});
  EXPECT_NE(obstacle(padded).find("2^24"), std::string::npos) << obstacle(padded);
}

TEST(Check, WorkspacesThatOverflowAreRefused) {
  ResizeParams params;
  params.mode = InterpolationMode::kLINEAR;
  const int64_t large = int64_t{1} << 50;
  EXPECT_NE(obstacle(step<Resize>(params, {port({large, 1})}, {port({1, large})}))
                .find("does not fit 63 bits"),
            std::string::npos);
}

/// Shapes as they are between the ends of a profile, of an expression such as n * (8 - n).
TEST(Check, KernelsRefuseShapesBeyondTheProfile) {
  std::mt19937 random(1);
  Step selection = topk();
  Made most(selection);
  EXPECT_NE(most.tell({{4, 8}, {1}}, {{4, 9}, {4, 9}}).find("k must not exceed"),
            std::string::npos);
  EXPECT_NE(most.tell({{4, 8}, {1}}, {{4, 3}, {4, 4}}).find("cannot select"), std::string::npos);
  EXPECT_NE(most.tell({{4, 4000}, {1}}, {{4, 3000}, {4, 3000}}).find("more memory"),
            std::string::npos);
  EXPECT_EQ(most.tell_opt(), "");
  most.run(random);

  Made interpolation(resize(InterpolationMode::kLINEAR));
  EXPECT_NE(interpolation.tell({{1, 16, 40, 40}, {4}}, {{1, 16, 80, 80}})
                .find("beyond the optimization profile"),
            std::string::npos);
  // Neither shape is beyond it, but what lies between two passes is.
  EXPECT_NE(interpolation.tell({{1, 16, 64, 1}, {4}}, {{1, 16, 1, 64}})
                .find("beyond the optimization profile"),
            std::string::npos);
  EXPECT_EQ(interpolation.tell_opt(), "");
  interpolation.run(random);

  Step blocks = concatenation();
  for (auto* ports : {&blocks.inputs, &blocks.outputs})
    for (PortDesc& each : *ports) each.type.format = kCHW16;
  Made joined(blocks);
  EXPECT_NE(joined.tell({{1, 17, 4, 4}, {1, 15, 4, 4}}, {{1, 32, 4, 4}}).find("whole blocks"),
            std::string::npos);
  EXPECT_NE(joined.tell({{1, 16, 4, 4}, {1, 16, 8, 8}}, {{1, 32, 4, 4}}).find("must agree"),
            std::string::npos);
  EXPECT_EQ(joined.tell_opt(), "");
  joined.run(random);

  Step sum = reduce();
  sum.inputs[0].type.format = kCHW16;
  Made sums(sum);
  EXPECT_NE(sums.tell({{1, 17, 4, 4}}, {{1, 17}}).find("whole blocks"), std::string::npos);
  EXPECT_EQ(sums.tell_opt(), "");
  sums.run(random);

  Step added = pointwise();
  added.inputs[0].type.format = kHWC;
  for (PortDesc& each : added.outputs) each.type.format = kHWC;
  Made program(added);
  EXPECT_NE(program.tell({{1, 16, 1, 1}, {1, 16, 4, 4}}, {{1, 16, 4, 4}, {1, 16, 4, 4}})
                .find("is not broadcast"),
            std::string::npos);
  EXPECT_EQ(program.tell_opt(), "");
  program.run(random);

  Made shuffled(channel_shuffle());
  EXPECT_NE(shuffled.tell({{1, 18, 4, 4}}, {{1, 18, 4, 4}}).find("cannot shuffle"),
            std::string::npos);
  EXPECT_NE(shuffled.tell({{1, 16, 4, 4}}, {{1, 16, 4, 5}}), "");
  EXPECT_EQ(shuffled.tell({{1, 16, 4, 4}}, {{1, 16, 4, 4}}), "");
  shuffled.run(random);

  Made moved(transpose());
  EXPECT_NE(moved.tell({{int64_t{1} << 40, 0}}, {{int64_t{1} << 40, int64_t{1} << 40}}), "");
  EXPECT_EQ(moved.tell({{0, int64_t{1} << 40}}, {{int64_t{1} << 40, 0}}), "");
  moved.run(random);
}

TEST(Check, SlicesGoByTheValuesThatTheyWereTold) {
  std::mt19937 random(2);
  Made made(slice());
  const std::vector<Shape> inputs = {{4, 8}, {2}, {2}, {2}, {}}, outputs = {{2, 4}};
  made.tell(1, {INT64_MAX, 0}), made.tell(3, {INT64_MAX, 1});
  EXPECT_NE(made.tell(inputs, outputs).find("overflow"), std::string::npos);
  made.tell(1, {0});
  EXPECT_NE(made.tell(inputs, outputs).find("one per sliced axis"), std::string::npos);
  made.tell(1, {0, 0}), made.tell(3, {1, 1});
  EXPECT_EQ(made.tell(inputs, outputs), "");
  made.run(random);  // whatever the memory of the shape inputs holds

  SliceParams params;
  params.start = {0}, params.size = {2}, params.stride = {1}, params.axes = {1 << 20};
  Made beyond(step<Slice>(params, {port({4})}, {port({2})}));
  EXPECT_NE(beyond.tell_opt().find("there is no axis"), std::string::npos);
  params.axes = {0};
  Made strict(step<Slice>(params, {port({4})}, {port({2})}));
  EXPECT_EQ(strict.tell_opt(), "");
  EXPECT_NE(strict.tell({{1}}, {{2}}).find("reads index 1"), std::string::npos);
}

TEST(Check, ElementsThatSayWhereToGoStayWithinBounds) {
  std::mt19937 random(5);
  for (const Step& each : {scatter(),          scatter(ScatterMode::kND),
                           nonzero(),          nms(),
                           unique(),           one_hot(),
                           reverse_sequence(), determinant(),
                           grid_sample(),      deformable_columns(),
                           roi_align(),        kv_cache(),
                           kv_cache_write(),   packed_kv_cache(),
                           roi_pool(),         rotary_embedding(),
                           indexed_pooling(),  lp_pooling(),
                           bit_cast(),         matmul_nbits()}) {
    SCOPED_TRACE(each.op->kind());
    Made made(each);
    EXPECT_EQ(made.tell_opt(), "");
    for (int i = 0; i < 100; ++i) made.run(random);
  }
}

TEST(Check, ShapesOfIndicesAndWhatTheyReferToFit) {
  Made elements(scatter());
  EXPECT_NE(elements.tell({{4, 3}, {2, 4}, {2, 4}}, {{4, 3}}).find("reach beyond"),
            std::string::npos);
  EXPECT_NE(elements.tell({{4, 3}, {2, 3}, {3, 3}}, {{4, 3}}).find("as many as updates"),
            std::string::npos);
  Made tuples(scatter(ScatterMode::kND));
  EXPECT_NE(tuples.tell({{4, 3}, {2, 3}, {2, 3}}, {{4, 3}}).find("as many as 2"),
            std::string::npos);
  Made found(nonzero());
  EXPECT_NE(found.tell({{4, 4}}, {{2, 12}, {}}).find("have no room"), std::string::npos);
  Made different(unique());
  EXPECT_NE(different.tell({{4, 4}}, {{16}, {16}, {16}, {16}, {}}).find("profile's maximum"),
            std::string::npos);
  EXPECT_NE(different.tell({{4, 3}}, {{12}, {12}, {12}, {11}, {}}).find("have no room"),
            std::string::npos);
  Made boxes(nms());
  EXPECT_NE(boxes.tell({{1, 5, 4}, {1, 6, 2}, {1}, {}}, {{12, 3}, {}}).find("do not fit"),
            std::string::npos);
  EXPECT_NE(boxes.tell({{1, 6, 4}, {1, 6, 2}, {0}, {}}, {{12, 3}, {}}).find("one number"),
            std::string::npos);
  EXPECT_NE(boxes.tell({{1, 7, 4}, {1, 7, 2}, {1}, {}}, {{14, 3}, {}}).find("profile's maximum"),
            std::string::npos);
  EXPECT_NE(Made(data_extent()).tell({{2}, {}}, {{}}).find("element 2 is an extent"),
            std::string::npos);
  Made hot(one_hot());
  EXPECT_NE(hot.tell({{4}, {2}, {}}, {{5, 3}}).find("do not give"), std::string::npos);
  Made back(reverse_sequence());
  EXPECT_NE(back.tell({{4, 3}, {2}}, {{4, 3}}).find("do not fit"), std::string::npos);
  Made folded(col2im());
  EXPECT_NE(folded.tell({{1, 8, 9}, {2}}, {{1, 2, 3, 4}}).find("do not fit 6 blocks"),
            std::string::npos);
  EXPECT_NE(folded.tell({{1, 8, 6}, {2}}, {{1, 3, 3, 4}}).find("do not fit"), std::string::npos);
  Made put_back(max_unpool());
  EXPECT_NE(put_back.tell({{1, 2, 2, 2}, {1, 2, 2, 3}, {4}}, {{1, 2, 4, 4}}).find("as many"),
            std::string::npos);
  Made turned(rotary_embedding());
  EXPECT_NE(turned.tell({{2, 3, 4, 8}, {5, 3}, {5, 3}, {2, 4}}, {{2, 3, 4, 8}}).find("do not turn"),
            std::string::npos);
  EXPECT_NE(turned.tell({{2, 3, 4, 6}, {5, 3}, {4, 3}, {2, 4}}, {{2, 3, 4, 6}}).find("do not turn"),
            std::string::npos);
  EXPECT_NE(turned.tell({{3, 3, 4, 6}, {5, 3}, {5, 3}, {2, 4}}, {{3, 3, 4, 6}}).find("do not turn"),
            std::string::npos);
  Made cached(kv_cache());
  EXPECT_NE(cached.tell({{2, 3, 5, 4}, {2, 3, 2, 3}, {2}}, {{2, 3, 5, 4}}).find("do not fit"),
            std::string::npos);
  Made packed(packed_kv_cache());
  EXPECT_NE(packed.tell({{2, 3, 5, 4}, {6, 3, 4}, {2}, {2}}, {{2, 3, 5, 4}}).find("do not fit"),
            std::string::npos);
  Made squares(determinant());
  EXPECT_NE(squares.tell({{1, 4, 4}}, {{1}}).find("profile's maximum"), std::string::npos);
  Made sampled(grid_sample());
  EXPECT_NE(sampled.tell({{1, 2, 4, 4}, {1, 3, 3, 3}}, {{1, 2, 3, 3}}).find("cannot be sampled"),
            std::string::npos);
  EXPECT_NE(sampled.tell({{1, 2, 0, 4}, {1, 3, 3, 2}}, {{1, 2, 3, 3}}).find("nothing to sample"),
            std::string::npos);
  Made regions(roi_align());
  EXPECT_NE(regions.tell({{1, 2, 4, 4}, {3, 4}, {2}}, {{3, 2, 1, 1}}).find("images of shape"),
            std::string::npos);
}

TEST(Check, IndicesOutOfRangeGiveZero) {
  std::mt19937 random(3);
  for (const GatherMode mode : {GatherMode::kDEFAULT, GatherMode::kELEMENT, GatherMode::kND}) {
    for (const DataType index : {kINT32, kINT64}) {
      GatherParams params;
      params.mode = mode;
      Step each = step<Gather>(params, {port({5}), port({3}, index)}, {port({3})});
      if (mode == GatherMode::kND) each.inputs[1] = port({3, 1}, index);
      Made made(each);
      ASSERT_EQ(made.tell_opt(), "");
      // Of random indices none is within 5 elements.
      EXPECT_EQ(made.run(random), std::vector<std::byte>(12));
    }
  }
}

TEST(Check, AveragesOverManyPositionsEnd) {
  PoolingParams params;
  params.type = PoolingType::kAVERAGE;
  params.average_count_excludes_padding = false;
  params.padding_mode = PaddingMode::kEXPLICIT_ROUND_UP;
  params.window = {1, 2}, params.stride = {1, 3};
  Made made(
      step<Pooling>(params, {port({1, 1, 1, 1 << 20})}, {port({1, 1, 1, (1 << 20) / 3 + 1})}));
  EXPECT_EQ(made.tell_opt(), "");
}

TEST(Check, WindowsOfVeryManyTapsAreRefused) {
  PoolingParams params;
  params.window = {1, 1 << 20};
  const Step each = step<Pooling>(params, {port({1, 1, 1, 1 << 20})}, {port({1, 1, 1, 1})});
  EXPECT_NE(obstacle(each).find("2^16"), std::string::npos) << obstacle(each);
}

/// oneDNN does nothing then, so that the output would be what its memory held before.
TEST(Check, WindowsOverNothingAreRefused) {
  ConvolutionParams params;
  params.pre_padding = params.post_padding = {2, 2};
  for (const Shape& x : {Shape{1, 16, 0, 0}, Shape{1, 0, 4, 4}}) {
    const Step each = step<Convolution>(params, {port(x), port({16, x[1], 3, 3})},
                                        {port({1, 16, x[2] + 2, x[3] + 2})});
    EXPECT_NE(obstacle(each).find("nothing to convolve"), std::string::npos) << obstacle(each);
  }
}

}  // namespace
}  // namespace opwright::testing
