#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "network/operator.h"

namespace opwright {

/// A context that wants to know which extents are related in every run of an engine.
class ExtentListener {
 public:
  /// The extent of an input is `expected` or, where it broadcasts, 1. The two expressions differ.
  virtual void agree(int input, int axis, const Expr& expected, bool broadcasts) const = 0;
  /// The extent of an input is at least `least`. Kernels that need that check it.
  virtual void bound(int input, int axis, const Expr& least) const {
    (void)input, (void)axis, (void)least;
  }

 protected:
  ~ExtentListener() = default;
};

/// The inputs of one operator while its outputs are inferred. Its checks throw errors that name the
/// layer, operator and input, and the expected and the actual value.
class Inference {
 public:
  /// `names` are the inputs' names in order. There may be more inputs than names only up to `most`.
  Inference(const InferContext& context, std::string_view kind,
            std::initializer_list<std::string_view> names, int least, int most = -1);

  int count() const { return static_cast<int>(context_.inputs.size()); }
  /// A present input.
  const TensorInfo& input(int i) const { return *context_.inputs[i]; }
  /// Null when the input is absent.
  const TensorInfo* optional(int i) const { return i < count() ? context_.inputs[i] : nullptr; }
  int rank(int i) const { return static_cast<int>(input(i).dims.size()); }
  /// "Convolution 'conv1'".
  const std::string& who() const { return who_; }
  /// "input 1 (kernel)".
  std::string port(int i) const;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    opwright::fail(who_, ": ", parts...);
  }
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      fail(parts...);
  }
  void require_type(int i, bool accepted, std::string_view expected) const;
  void require_floating(int i) const;
  void require_same_type(int i, int j) const;
  /// Requires FP32, or the type of input j, for a bias: sums in FP32 take either as it is.
  void require_same_type_or_fp32(int i, int j) const;
  void require_rank(int i, int least, int most) const;
  /// Constant extents must agree. Extents that may differ at run time pass.
  void require_extent(int i, int axis, const Expr& expected, std::string_view meaning) const;
  /// Declares the extents equal in every run of the engine, whatever their expressions are.
  void agree(int i, int axis_i, int j, int axis_j) const;
  /// Declares the extent equal to `expected` or 1.
  void agree_to_be(int i, int axis, const Expr& expected) const { tell(i, axis, expected, true); }
  /// Declares the extent at least `least`.
  void be_at_least(int i, int axis, const Expr& least) const;
  /// Declares the first `count` extents of an input equal to those of `shape`, aligned at its end,
  /// or 1.
  void agree_to_broadcast(int i, size_t count, std::span<const Expr> shape) const;
  /// The input must broadcast to `shape` without enlarging it.
  void require_broadcasts_to(int i, std::span<const Expr> shape) const;
  void require_axis(int64_t axis, int rank, std::string_view meaning) const;
  /// The axes of a mask as indices. Fails when a bit is beyond the rank or negative.
  std::vector<int> axes_of(int64_t mask, int rank) const;
  /// NumPy's broadcasting of the shapes of all given inputs.
  SymShape broadcast(std::initializer_list<int> inputs) const;
  /// The elements of an integer input of rank 0 or 1 that decides shapes.
  const std::vector<Expr>& shape_values(int i) const;

 private:
  void tell(int i, int axis, const Expr& expected, bool broadcasts) const;

  const InferContext& context_;
  std::string who_;
  std::vector<std::string_view> names_;
};

using ValuesPtr = std::shared_ptr<const std::vector<Expr>>;

OutputInfo make_output(DataType dtype, SymShape dims, ValuesPtr values = nullptr);

/// Whether both are constant and differ.
bool conflict(const Expr& a, const Expr& b);
/// The more definite one of two extents that must be equal.
const Expr& merge(const Expr& a, const Expr& b);

/// Whether inference follows values through tensors of this type: INT32, INT64, BOOL. Arithmetic of
/// narrower integers wraps, and that of expressions does not.
bool carries_values(DataType dtype);
/// The number of elements, if a tensor of this type and shape may carry values.
std::optional<int64_t> value_count(DataType dtype, std::span<const Expr> dims);
/// Whether all tensors have values, either one or as many as `dims` has elements. Element i of
/// their broadcast combination is then value_at(tensor, i).
bool have_aligned_values(std::span<const Expr> dims,
                         std::initializer_list<const TensorInfo*> tensors);
/// Values from `element(i)`. Null when the tensor cannot carry values, an element is not known, or
/// its arithmetic would overflow or divide by zero.
ValuesPtr make_values(DataType dtype, std::span<const Expr> dims,
                      const std::function<std::optional<Expr>(int64_t)>& element);
/// Element `i` of a tensor with values. A single element is broadcast.
const Expr& value_at(const TensorInfo& tensor, int64_t i);

/// Checks that `given` has `count` elements between `least` and 2^31 - 1. Returns `count` times
/// `fallback` when `given` is empty.
Ints per_axis(std::string_view who, std::string_view what, const Ints& given, int count,
              int64_t fallback, int64_t least);
/// Throws Error unless `permutation` is one of [0, rank).
void require_permutation(std::string_view who, std::string_view what, const Ints& permutation,
                         int rank);
/// Throws Error unless `shape` has at most Dims::MAX_DIMS extents, none a negative constant.
void require_valid_shape(std::string_view who, std::span<const Expr> shape);
std::string str(const Ints& values);
inline std::string str(const SymShape& shape) { return str(std::span<const Expr>(shape)); }

}  // namespace opwright
