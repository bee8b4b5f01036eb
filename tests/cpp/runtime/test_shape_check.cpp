#include <gtest/gtest.h>

#include "base/error.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "runtime/shape_check.h"

namespace opwright {
namespace {

using Values = std::optional<std::vector<Expr>>;

template <class Op>
void check(const Op& op, std::vector<Shape> inputs, std::vector<Shape> outputs,
           std::vector<Values> values = {}, std::vector<DataType> types = {DataType::kHALF}) {
  Candidate candidate;
  candidate.inputs.resize(inputs.size(), {DataType::kINT64, TensorFormat::kLINEAR});
  candidate.inputs[0] = {DataType::kHALF, TensorFormat::kHWC};
  types.resize(outputs.size(), DataType::kINT32);
  for (const DataType type : types) candidate.outputs.push_back({type, TensorFormat::kLINEAR});
  StepTensors tensors;
  for (const Shape& shape : inputs) tensors.inputs.push_back(sym_shape(shape));
  for (const Shape& shape : outputs) tensors.outputs.push_back(sym_shape(shape));
  tensors.present.assign(inputs.size(), true);
  tensors.elements = std::move(values);
  tensors.elements.resize(inputs.size());
  check_tensors(*load_builtin(std::make_shared<Op>(op)), "layer", candidate, tensors);
}

TEST(ShapeCheck, TakesWhatTheOperatorMakes) {
  const Reduce reduce({ReduceOperation::kSUM, 0b10, false});
  check(reduce, {{2, 3, 4}}, {{2, 4}});
  EXPECT_THROW(check(reduce, {{2, 3, 4}}, {{2, 5}}), Error);
  EXPECT_THROW(check(reduce, {{2, 3, 4}}, {{2, 4}, {2, 4}}), Error);
}

TEST(ShapeCheck, ReshapesKeepTheNumberOfElementsAndConversionsTheShape) {
  check(Reshape(), {{2, 6}}, {{3, 4}});
  EXPECT_THROW(check(Reshape(), {{2, 6}}, {{3, 5}}), Error);
  check(Reformat(), {{2, 6}}, {{2, 6}});
  EXPECT_THROW(check(Reformat(), {{2, 6}}, {{6, 2}}), Error);
}

TEST(ShapeCheck, ShapeInputsCountWhereTheyAreKnown) {
  const Transpose transpose({{1, 0}});
  EXPECT_THROW(check(transpose, {{2, 3}}, {{2, 3}}), Error);
  const TopK top({TopKOperation::kMAX, 1, 0b1, DataType::kINT32});
  check(top, {{9}, {}}, {{4}, {4}}, {Values(), std::vector<Expr>{4}});
  EXPECT_THROW(check(top, {{9}, {}}, {{5}, {5}}, {Values(), std::vector<Expr>{4}}), Error);
}

TEST(ShapeCheck, TypesAreThoseThatTheOperatorMakesButForTheFloatingOnes) {
  const Transpose transpose({{1, 0}});
  check(transpose, {{2, 3}}, {{3, 2}}, {}, {DataType::kBF16});
  EXPECT_THROW(check(transpose, {{2, 3}}, {{3, 2}}, {}, {DataType::kINT32}), Error);
  EXPECT_THROW(check(transpose, {{2, 3}}, {{3, 2}}, {}, {DataType::kBOOL}), Error);
}

}  // namespace
}  // namespace opwright
