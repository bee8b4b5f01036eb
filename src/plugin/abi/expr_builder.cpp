#include "plugin/abi/expr_builder.h"

#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"

namespace opwright {

class ExprBuilder::Node final : public IDimensionExpr, public apiv::VDimensionExpr {
 public:
  Node(Expr expr, bool is_size_tensor, bool depends_on_size_tensor)
      : expr_(std::move(expr)),
        is_size_tensor_(is_size_tensor),
        depends_on_size_tensor_(depends_on_size_tensor) {
    mImpl = this;
  }
  const Expr& expr() const { return expr_; }
  bool depends_on_size_tensor() const { return depends_on_size_tensor_; }

  bool isConstant() const override { return expr_.is_constant(); }
  int64_t getConstantValue() const override {
    return expr_.is_constant() ? expr_.constant() : std::numeric_limits<int64_t>::min();
  }
  bool isSizeTensor() const override { return is_size_tensor_; }

 private:
  const Expr expr_;
  const bool is_size_tensor_;
  const bool depends_on_size_tensor_;
};

ExprBuilder::ExprBuilder(InferContext& context, int num_outputs, bool has_size_tensors)
    : context_(context), has_size_tensors_(has_size_tensors), size_tensors_(num_outputs) {
  mImpl = this;
}

ExprBuilder::~ExprBuilder() noexcept { *is_alive_ = false; }

const IDimensionExpr* ExprBuilder::add(Expr expr, bool is_size_tensor,
                                       bool depends_on_size_tensor) {
  nodes_.push_back(std::make_unique<Node>(std::move(expr), is_size_tensor, depends_on_size_tensor));
  known_.insert(nodes_.back().get());
  return nodes_.back().get();
}

const ExprBuilder::Node& ExprBuilder::node(const IDimensionExpr& expr) const {
  require(known_.count(&expr) != 0,
          "a dimension expression was used that this expression builder did not make; expressions "
          "must not be kept beyond their builder");
  return static_cast<const Node&>(expr);
}

const IDimensionExpr* ExprBuilder::wrap(const Expr& expr) { return add(expr, false, false); }

DimsExprs ExprBuilder::wrap(std::span<const Expr> dims) {
  DimsExprs wrapped{};
  wrapped.nbDims = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) wrapped.d[i] = wrap(dims[i]);
  return wrapped;
}

const Expr* ExprBuilder::unwrap(const IDimensionExpr* expr) const {
  return known_.count(expr) != 0 ? &static_cast<const Node*>(expr)->expr() : nullptr;
}

SymShape ExprBuilder::unwrap(const DimsExprs& dims, std::string_view subject) const {
  require(dims.nbDims >= 0 && dims.nbDims <= Dims::MAX_DIMS, subject, " a rank of ", dims.nbDims,
          "; it must be 0 to ", Dims::MAX_DIMS);
  SymShape shape;
  for (int i = 0; i < dims.nbDims; ++i) {
    const Expr* extent = unwrap(dims.d[i]);
    require(extent != nullptr, subject, " for extent ", i,
            " no expression of this call's expression builder");
    require(!extent->is_constant() || extent->constant() >= 0, subject, " for extent ", i,
            " the negative value ", extent->str());
    shape.push_back(*extent);
  }
  return shape;
}

void ExprBuilder::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

const IDimensionExpr* ExprBuilder::constant(int64_t value) { return wrap(Expr(value)); }

const IDimensionExpr* ExprBuilder::operation(DimensionOperation op, const IDimensionExpr& first,
                                             const IDimensionExpr& second) {
  static constexpr ExprOp kOps[] = {ExprOp::kSum,  ExprOp::kProd,     ExprOp::kMax,
                                    ExprOp::kMin,  ExprOp::kSub,      ExprOp::kEqual,
                                    ExprOp::kLess, ExprOp::kFloorDiv, ExprOp::kCeilDiv};
  static_assert(std::ssize(kOps) == EnumMax<DimensionOperation>());
  const auto index = static_cast<size_t>(op);
  if (index >= std::size(kOps)) return nullptr;
  try {
    const Node& a = node(first);
    const Node& b = node(second);
    return add(Expr::make(kOps[index], a.expr(), b.expr()), false,
               a.depends_on_size_tensor() || b.depends_on_size_tensor());
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    return wrap(Expr(0));
  }
}

const IDimensionExpr* ExprBuilder::declareSizeTensor(int32_t output, const IDimensionExpr& opt,
                                                     const IDimensionExpr& upper) {
  try {
    require(
        has_size_tensors_,
        "declareSizeTensor() was called, but V2 plugins cannot have size tensors: a plugin whose "
        "output shapes depend on data must be an IPluginV3");
    require(output >= 0 && static_cast<size_t>(output) < size_tensors_.size(),
            "declareSizeTensor() was called for output ", output, ", but there are ",
            size_tensors_.size(), " outputs");
    require(!size_tensors_[output], "output ", output, " was declared as a size tensor twice");
    const Node& opt_node = node(opt);
    const Node& upper_node = node(upper);
    require(!opt_node.depends_on_size_tensor() && !upper_node.depends_on_size_tensor(),
            "opt and upper bound of size tensor ", output,
            " must be known from the input shapes, but one depends on another size tensor");
    const Expr value = context_.declare_size_tensor(output, opt_node.expr(), upper_node.expr());
    size_tensors_[output] = true;
    return add(value, true, true);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    return wrap(Expr(0));
  }
}

}  // namespace opwright
