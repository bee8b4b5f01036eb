#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "network/network.h"
#include "operators/activation.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright {

/// Writes an operator as several layers of a network: an ONNX node, or a composed layer.
class LayerWriter {
 public:
  LayerWriter(Network& network, std::string name) : network_(network), name_(std::move(name)) {}
  virtual ~LayerWriter() = default;
  LayerWriter(const LayerWriter&) = delete;
  LayerWriter& operator=(const LayerWriter&) = delete;

  Network& network() { return network_; }
  const std::string& name() const { return name_; }
  /// Throws the Error of the node or layer that is written, with its name.
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(str(parts...));
    // Compilers do not know that virtual functions do not return.
    __builtin_unreachable();
  }

  /// The first layer has the writer's name. Further layers get a suffix.
  std::string next_name();
  template <class Op>
  Tensor* add(typename Op::Params params, std::initializer_list<Tensor*> inputs) {
    return add<Op>(std::move(params), std::span<Tensor* const>(inputs.begin(), inputs.size()));
  }
  template <class Op>
  Tensor* add(typename Op::Params params, std::span<Tensor* const> inputs) {
    return network_.add<Op>(std::move(params), inputs, next_name())->output(0);
  }
  Tensor* scalar(double value, DataType dtype);
  Tensor* elementwise(ElementWiseOperation op, Tensor* a, Tensor* b);
  /// The same with a scalar of the tensor's type as the second operand.
  Tensor* elementwise(ElementWiseOperation op, Tensor* a, double b);
  Tensor* unary(UnaryOperation op, Tensor* x);
  Tensor* activation(ActivationType type, Tensor* x, float alpha = 0, float beta = 0);
  /// x * sigmoid(alpha * x)
  Tensor* swish(Tensor* x, float alpha);
  Tensor* cast(Tensor* x, DataType to);
  /// The nearest integers of the type, halves rounded to even. Numbers beyond its range become its
  /// least, or the greatest that FP32 also has.
  Tensor* round_to(Tensor* x, DataType to);
  Tensor* reduce(ReduceOperation op, Tensor* x, const Ints& axes, bool keep_dims);
  Tensor* reshape(Tensor* x, std::span<const Expr> dims);
  Tensor* transpose(Tensor* x, Ints permutation);
  Tensor* squeeze(Tensor* x, const Ints& axes);
  Tensor* unsqueeze(Tensor* x, const Ints& axes);
  /// x broadcast to `dims`.
  Tensor* expand(Tensor* x, std::span<const Expr> dims);
  /// `size` elements of every axis from `start` on. An empty stride is 1 everywhere.
  Tensor* slice(Tensor* x, std::vector<Expr> start, std::vector<Expr> size, Ints stride = {},
                SampleMode mode = SampleMode::kSTRICT_BOUNDS, Tensor* fill = nullptr);
  /// The elements [start, start + size) of one axis.
  Tensor* slice_axis(Tensor* x, int axis, const Expr& start, const Expr& size);
  /// Slice `index` of an axis. The axis stays with extent 1.
  Tensor* slice_at(Tensor* x, int axis, const Expr& index) { return slice_axis(x, axis, index, 1); }
  Tensor* concatenate(std::span<Tensor* const> inputs, int axis);
  Tensor* concatenate(std::initializer_list<Tensor*> inputs, int axis) {
    return concatenate(std::span<Tensor* const>(inputs.begin(), inputs.size()), axis);
  }
  Tensor* multiply_matrices(Tensor* a, Tensor* b, MatrixOperation op_a = MatrixOperation::kNONE,
                            MatrixOperation op_b = MatrixOperation::kNONE);
  Tensor* select(Tensor* condition, Tensor* then_input, Tensor* else_input);
  /// A Fill with these extents, which replace `params.shape`.
  Tensor* fill(FillParams params, std::span<const Expr> dims);
  /// 0, 1, 2, ... before `count`.
  Tensor* count_up(const Expr& count, DataType dtype = DataType::kINT64);
  /// A scalar that may depend on input shapes.
  Tensor* scalar_of(const Expr& value, DataType dtype = DataType::kINT64);
  /// A constant of FP32 elements, converted to the type. It belongs to the layers that implement
  /// the operator, not to the model's weights.
  Tensor* constant_of(const Shape& shape, std::span<const float> values, DataType dtype);

 protected:
  [[noreturn]] virtual void fail(const std::string& problem) const;

 private:
  Tensor* fixed(Tensor* constant);

  Network& network_;
  const std::string name_;
  int layers_ = 0;
};

}  // namespace opwright
