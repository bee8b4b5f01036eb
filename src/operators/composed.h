#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operators/builtin.h"
#include "operators/layer_writer.h"

namespace opwright {

/// Writes the layers that implement a composed operator. Errors name the operator and its layer.
class ComposedWriter : public LayerWriter {
 public:
  /// Throws Error unless there are between `least` and `most` inputs (0: any number) and the first
  /// `least` of them are present.
  ComposedWriter(Network& network, const Operator& op, const std::string& layer,
                 std::span<Tensor* const> inputs, size_t least, size_t most = 0);

  /// Null where the input is absent.
  Tensor* input(size_t index) const { return index < inputs_.size() ? inputs_[index] : nullptr; }
  void require_rank(size_t input, int low, int high, std::string_view what) const;
  /// Requires FP32, FP16 or BF16.
  void require_floating(size_t input, std::string_view what) const;
  void require_type(size_t input, bool accepted, std::string_view what,
                    std::string_view expected) const;
  void require_same_type(size_t input, size_t other, std::string_view what) const;
  /// Constant extents must agree. Extents that may differ at run time pass.
  void require_extent(size_t input, int axis, const Expr& expected, std::string_view what) const;

 protected:
  [[noreturn]] void fail(const std::string& problem) const override;

 private:
  const std::string who_;
  const std::span<Tensor* const> inputs_;
};

/// Types and shapes of the layers' outputs that `op` is composed of.
std::vector<OutputInfo> infer_composed(const Operator& op, const InferContext& context);

/// A built-in operator that becomes other layers when the network is compiled, and has no kernel of
/// its own. A derived class defines `compose` instead of `infer`.
template <class Derived, class ParamsType>
class ComposedOperator : public BuiltinOperator<Derived, ParamsType> {
 public:
  static constexpr bool kHasNoKernels = true;
  using BuiltinOperator<Derived, ParamsType>::BuiltinOperator;
  bool is_composed(std::span<Tensor* const>) const final { return true; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return infer_composed(*this, context);
  }
};

}  // namespace opwright
