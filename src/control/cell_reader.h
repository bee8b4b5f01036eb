#pragma once

#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/recognize_recurrence.h"
#include "operators/activation.h"
#include "operators/movement.h"

/// Reads the layers that a loop repeats as the equations of a recurrent cell.
namespace opwright::recurrent {

constexpr int kMostDepth = 64;

/// Columns of a tensor inside the loop. Its rows are the elements of the batch.
struct Node {
  enum class Kind : uint8_t {
    kState,       ///< columns of a state
    kElement,     ///< columns of an element
    kFixed,       ///< the same in all iterations
    kProduct,     ///< an operand times weights
    kSum,         ///< sum of the operands, some of them negative
    kMultiply,    ///< element by element
    kActivation,  ///< activation of the operand
    kSelect,      ///< the first operand where the condition is true, else the second
    kConcat,      ///< operands beside each other
  };
  Kind kind = Kind::kFixed;
  int64_t start = 0, size = 0;     ///< columns of the state, the element or the fixed tensor
  int index = -1;                  ///< number of the state or the element
  const Tensor* tensor = nullptr;  ///< the fixed tensor, weights, or condition
  std::vector<const Node*> operands{};
  std::vector<bool> is_negative{};  ///< per operand of a sum
  ActivationParams activation{};
  /// Where the product begins in the weights, and whether their rows are its results.
  int64_t weight_in = 0, weight_out = 0;
  bool by_output = false;
};
using Kind = Node::Kind;

/// A term of a sum: a product of factors.
struct Monomial {
  bool is_negative = false;
  std::vector<const Node*> factors;
};
/// Multiplies out products of sums. False where there are too many terms.
bool append_monomials(const Node* node, bool is_negative, std::vector<Monomial>& to);
/// Appends the terms of a sum. False unless all of them are positive.
bool append_terms(const Node* node, std::vector<const Node*>& to);

template <class Op>
const typename Op::Params* params_of(const Layer* layer) {
  if (layer == nullptr || layer->op()->kind() != Op::kKind) return nullptr;
  return &static_cast<const Op&>(*layer->op()).params();
}
/// The number that all elements of a constant have.
std::optional<double> number_of(const Tensor& tensor);
/// The integers of a small tensor whose elements are known.
std::optional<Ints> known_integers(const Tensor* tensor);
inline bool is_number(DataType type) {
  return type == DataType::kINT32 || type == DataType::kINT64;
}
/// Whether the layer's output has the elements of its input.
bool hands_on(const Layer& layer);

/// Reads the layers of a loop as sums, products and activations of columns.
class CellReader {
 public:
  CellReader(const RepeatedLayers& loop, Expr rows) : loop_(loop), rows_(std::move(rows)) {
    for (size_t i = 0; i < loop.states.size(); ++i)
      leaves_[loop.states[i]] = {Kind::kState, static_cast<int>(i)};
    for (size_t i = 0; i < loop.elements.size(); ++i)
      leaves_[loop.elements[i].inside] = {Kind::kElement, static_cast<int>(i)};
  }
  /// The number of a tensor's columns; empty if it has other rows.
  std::optional<int64_t> columns(const Tensor& tensor) const;
  const Node* whole(const Tensor& tensor);
  bool is_inside(const Tensor& tensor) const;

 private:
  using Key = std::tuple<const Tensor*, int64_t, int64_t>;
  /// Null if the layers cannot be read as a Node.
  const Node* read(const Tensor& tensor, int64_t start, int64_t size);
  const Node* keep(Node node);
  const Node* make(const Tensor& tensor, int64_t start, int64_t size);
  const Node* view(const Layer& layer, int64_t start, int64_t size);
  /// Whether a transpose only moves axes of extent 1. `dims`: the extents before or after it.
  static bool keeps_order(const Ints& order, const SymShape& dims);
  /// The number of leading axes that are the rows.
  std::optional<size_t> row_axes(const SymShape& dims) const;
  static int64_t behind(const SymShape& dims, size_t axis);
  /// Whether all axes before this one in a row have extent 1, so that parts along it are adjacent
  /// columns.
  bool is_outermost(const SymShape& dims, size_t axis) const;
  const Node* part(const Layer& layer, const SliceParams& params, int64_t start, int64_t size);
  const Node* concatenation(const Layer& layer, int64_t axis, int64_t start, int64_t size);
  const Node* multiplication(const Layer& layer, const MatrixMultiplyParams& params, int64_t start,
                             int64_t size);
  /// An operand of an element-wise layer. A fixed operand may repeat rows.
  const Node* operand_of(const Layer& layer, const Tensor& operand, int64_t start, int64_t size);
  const Node* elementwise(const Layer& layer, ElementWiseOperation op, int64_t start, int64_t size);
  const Node* selection(const Layer& layer, int64_t start, int64_t size);
  const RepeatedLayers& loop_;
  const Expr rows_;
  std::unordered_map<const Tensor*, std::pair<Kind, int>> leaves_;
  std::map<Key, const Node*> known_;
  std::deque<Node> nodes_;
  int depth_ = 0;
};

}  // namespace opwright::recurrent
