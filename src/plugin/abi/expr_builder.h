#pragma once

#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_base.h"
#include "symbolic/expr.h"

namespace opwright {

/// The IExprBuilder that a plugin describes its output shapes with. Expressions belong to it.
///
/// Plugins call through noexcept methods and use what they get without looking, so a failure (such
/// as a division by the constant 0) gives the constant 0 and throws at check().
class ExprBuilder final : public IExprBuilder, public apiv::VExprBuilder {
 public:
  /// Size tensors are declared through `context`; not every generation of plugins has them.
  ExprBuilder(InferContext& context, int num_outputs, bool has_size_tensors = true);
  ~ExprBuilder() noexcept override;

  const IDimensionExpr* wrap(const Expr& expr);
  DimsExprs wrap(std::span<const Expr> dims);
  /// The expression behind what a plugin gave back, null when it is not this builder's.
  const Expr* unwrap(const IDimensionExpr* expr) const;
  /// The shape that a plugin gave back. Throws Error that begins with `subject`, "getOutputShapes()
  /// gave output 0", for what is none.
  SymShape unwrap(const DimsExprs& dims, std::string_view subject) const;
  /// Throws the first failure since construction.
  void check() const;
  /// False once the builder has ended, for bindings whose objects may outlive it.
  std::shared_ptr<const bool> is_alive() const { return is_alive_; }
  /// Whether output `output` was declared as a size tensor.
  bool is_size_tensor(int output) const { return size_tensors_[output]; }

  const IDimensionExpr* constant(int64_t value) override;
  const IDimensionExpr* operation(DimensionOperation op, const IDimensionExpr& first,
                                  const IDimensionExpr& second) override;
  const IDimensionExpr* declareSizeTensor(int32_t output, const IDimensionExpr& opt,
                                          const IDimensionExpr& upper) override;

 private:
  class Node;
  const IDimensionExpr* add(Expr expr, bool is_size_tensor, bool depends_on_size_tensor);
  const Node& node(const IDimensionExpr& expr) const;

  const std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
  InferContext& context_;
  const bool has_size_tensors_;
  std::vector<bool> size_tensors_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_set<const IDimensionExpr*> known_;
  std::exception_ptr failure_;
};

}  // namespace opwright
