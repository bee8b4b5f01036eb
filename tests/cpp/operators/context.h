#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "network/operator.h"
#include "operators/movement.h"

namespace opwright::testing {

/// A stand-in for the network: symbols below `non_negative` are extents.
class Context final : public InferContext {
 public:
  explicit Context(const std::vector<std::optional<TensorInfo>>& tensors, int non_negative = 0)
      : non_negative_(non_negative) {
    for (const auto& tensor : tensors) pointers_.push_back(tensor ? &*tensor : nullptr);
    inputs = pointers_;
    layer = "layer_7";
  }
  Expr declare_size_tensor(int, const Expr&, const Expr&) override { return Expr::symbol(99); }
  bool is_non_negative(int symbol) const override { return symbol < non_negative_; }

 private:
  std::vector<const TensorInfo*> pointers_;
  int non_negative_;
};

using Tensors = std::vector<std::optional<TensorInfo>>;

inline Expr s(int id) { return Expr::symbol(id); }

inline ShuffleParams reshape(Ints dims, bool zero_is_placeholder = true) {
  ShuffleParams params;
  params.has_reshape = true;
  params.reshape_dims = std::move(dims);
  params.zero_is_placeholder = zero_is_placeholder;
  return params;
}

inline TensorInfo tensor(SymShape dims, DataType dtype = DataType::kFLOAT) {
  TensorInfo info;
  info.dtype = dtype;
  info.dims = std::move(dims);
  return info;
}

/// A vector whose elements are known.
inline TensorInfo vector_of(std::vector<Expr> values, DataType dtype = DataType::kINT64) {
  TensorInfo info = tensor({Expr(static_cast<int64_t>(values.size()))}, dtype);
  info.values = std::make_shared<const std::vector<Expr>>(std::move(values));
  return info;
}

inline TensorInfo scalar_of(const Expr& value, DataType dtype = DataType::kINT64) {
  TensorInfo info = vector_of({value}, dtype);
  info.dims.clear();
  return info;
}

template <class Op>
std::vector<OutputInfo> infer(typename Op::Params params, const Tensors& inputs,
                              int non_negative = 0) {
  Context context(inputs, non_negative);
  return Op(std::move(params)).infer(context);
}

/// The only output.
template <class Op>
OutputInfo infer_one(typename Op::Params params, const Tensors& inputs, int non_negative = 0) {
  auto outputs = infer<Op>(std::move(params), inputs, non_negative);
  EXPECT_EQ(outputs.size(), 1u);
  return outputs.at(0);
}

template <class Op>
Shape shape_of(typename Op::Params params, const Tensors& inputs) {
  return constant_shape(infer_one<Op>(std::move(params), inputs).dims);
}

/// The shape inferred from symbolic inputs, at these values of the symbols.
template <class Op>
Shape shape_at(typename Op::Params params, const Tensors& inputs,
               const std::vector<int64_t>& symbols) {
  return evaluate(infer_one<Op>(std::move(params), inputs).dims, symbols);
}

inline std::vector<int64_t> values_at(const TensorInfo& tensor,
                                      const std::vector<int64_t>& symbols = {}) {
  std::vector<int64_t> result;
  EXPECT_NE(tensor.values, nullptr);
  if (tensor.values)
    for (const Expr& value : *tensor.values) result.push_back(value.evaluate(symbols));
  return result;
}

/// The message of the error that inference gives; empty when it gives none.
template <class Op>
std::string error_of(typename Op::Params params, const Tensors& inputs) {
  try {
    infer<Op>(std::move(params), inputs);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// The error must name the layer and contain each of these texts.
inline void expect_contains(const std::string& message, std::initializer_list<const char*> texts) {
  EXPECT_NE(message.find("layer_7"), std::string::npos) << message;
  opwright::expect_contains(message, texts);
}

}  // namespace opwright::testing
