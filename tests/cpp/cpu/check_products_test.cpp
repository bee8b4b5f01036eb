// The steps of products of matrices, of recurrent layers and of determinants: what a plan may not
// say of them, and what their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "operators/indexing.h"
#include "operators/matmul_nbits.h"
#include "operators/matrix.h"
#include "operators/recurrence.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

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
Step determinant() { return step<Determinant>({}, {port({4, 3, 3})}, {port({4})}); }
Step matmul_nbits() {
  return step<MatMulNBits>(
      {5, 40, 4, 32},
      {port({3, 40}), port({5, 2, 16}, kUINT8), port({5, 2}), port({5, 1}, kUINT8), port({5})},
      {port({3, 5})});
}

std::vector<Step> products_steps() {
  return {product(), recurrence(), byte_product(), determinant(), matmul_nbits()};
}

std::vector<FaultCase> products_cases() {
  return {
      {"many packed matrices", product(),
       [](Step& s) {
         s.inputs[1] = weights({3, 8, 16}), s.outputs[0] = port({3, 4, 16});
         s.packed = {{1, Blob::copy("1234", 4), "3:1:1:1::"}};
       },
       "one constant matrix only"},
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
      {"Determinant of integers", determinant(), [](Step& s) { set_all(s, {kINT32}); },
       "input 0 must be"},
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
  };
}

const RegisteredChecks registered_products(products_steps, products_cases);

TEST(Check, MatrixProductsOf32BitsAreRefused) {
  Step step = product();
  step.inputs[1].is_constant = false;
  step.inputs[0].max = {int64_t{1} << 32, 8}, step.outputs[0].max = {int64_t{1} << 32, 16};
  EXPECT_NE(obstacle(step).find("31 bits"), std::string::npos);
  // Rows that are one after another become one matrix.
  step.inputs[0] = port({1 << 16, 1 << 16, 8}), step.outputs[0] = port({1 << 16, 1 << 16, 16});
  EXPECT_NE(obstacle(step).find("31 bits"), std::string::npos);
}

TEST(Check, ShapesOfProductsFit) {
  Made squares(determinant());
  EXPECT_NE(squares.tell({{1, 4, 4}}, {{1}}).find("profile's maximum"), std::string::npos);
}

TEST(Check, AnyElementsKeepProductsWithinBounds) {
  for (const Step& each : {determinant(), matmul_nbits()}) run_on_any_bytes(each);
}

}  // namespace
}  // namespace opwright::testing
