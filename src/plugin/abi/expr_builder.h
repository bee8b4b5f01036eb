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

/// The IExprBuilder with which a plugin describes its output shapes. It owns the expressions.
///
/// Plugins call noexcept methods and use results unchecked. So a failure, such as a division by the
/// constant 0, returns the constant 0, and check() throws it.
class ExprBuilder final : public IExprBuilder, public apiv::VExprBuilder {
 public:
  /// `context` declares size tensors. Some generations of plugins have none.
  ExprBuilder(InferContext& context, int num_outputs, bool has_size_tensors = true);
  ~ExprBuilder() noexcept override;

  const IDimensionExpr* wrap(const Expr& expr);
  DimsExprs wrap(std::span<const Expr> dims);
  /// The expression that a plugin returned; null if it is not from this builder.
  const Expr* unwrap(const IDimensionExpr* expr) const;
  /// The shape that a plugin returned. Throws Error for an invalid shape. The message begins with
  /// `subject`, "getOutputShapes() gave output 0".
  SymShape unwrap(const DimsExprs& dims, std::string_view subject) const;
  /// Throws the first failure since construction.
  void check() const;
  /// False once the builder is destroyed. For bindings whose objects may outlive it.
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
