#pragma once

#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/reduce.h"

namespace opwright::testing {

inline Shape reduced_shape(const Shape& shape, int64_t axes, bool keep) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!(axes >> i & 1))
      result.push_back(shape[i]);
    else if (keep)
      result.push_back(1);
  }
  return result;
}

inline Values reduce(const Values& x, ReduceOperation op, int64_t axes, bool keep) {
  const Shape kept = reduced_shape(x.shape, axes, true);
  const double start = op == ReduceOperation::kPROD  ? 1
                       : op == ReduceOperation::kMAX ? -HUGE_VAL
                       : op == ReduceOperation::kMIN ? HUGE_VAL
                                                     : 0;
  Values result = make_values(reduced_shape(x.shape, axes, keep), [&](int64_t) { return start; });
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, to = 0, stride = 1;
    for (int axis = x.shape.rank() - 1; axis >= 0; --axis) {
      to += kept[axis] == 1 ? 0 : rest % x.shape[axis] * stride;
      stride *= kept[axis];
      rest /= x.shape[axis];
    }
    double& value = result[to];
    if (op == ReduceOperation::kPROD)
      value *= x[i];
    else if (op == ReduceOperation::kMAX)
      value = std::isnan(x[i]) || x[i] > value ? x[i] : value;
    else if (op == ReduceOperation::kMIN)
      value = std::isnan(x[i]) || x[i] < value ? x[i] : value;
    else
      value += x[i];
  }
  if (op == ReduceOperation::kAVG)
    for (double& value : result.data) value /= static_cast<double>(x.size()) / result.size();
  return result;
}

}  // namespace opwright::testing
