#include "operators/builtin.h"

#include <string>
#include <utility>

#include "operators/builtin_layers.h"

namespace opwright {
namespace {

class PlannedBuiltin final : public PlannedOperator {
 public:
  explicit PlannedBuiltin(OperatorPtr op) : op_(std::move(op)) {}
  const Operator& op() const { return *op_; }

  std::string_view kind() const override { return op_->kind(); }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return op_->infer(context);
  }
  bool may_overwrite(int input, int count) const override {
    return op_->may_overwrite(input, count);
  }
  bool is_shape_input(int input) const override { return op_->is_shape_input(input); }
  void check(const KernelArgs& args) const override { args.device->check_operator(*op_, args); }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return args.device->make_kernel(*op_, args);
  }
  Attributes attributes() const override { return op_->attributes(); }

 private:
  const OperatorPtr op_;
};

[[maybe_unused]] const bool are_builtins_registered = [] {
  each_builtin_operator([]<class Op>() {
    if constexpr (!requires { Op::kHasNoKernels; })
      register_operator_kind(std::string(Op::kKind), Op::load);
  });
  return true;
}();

}  // namespace

PlannedOperatorPtr plan_builtin(OperatorPtr op, const KernelArgs& args) {
  if (PlannedOperatorPtr compiled = args.device->compile(*op, args)) return compiled;
  return load_builtin(std::move(op));
}

PlannedOperatorPtr load_builtin(OperatorPtr op) {
  return std::make_shared<PlannedBuiltin>(std::move(op));
}

const Operator* builtin_of(const PlannedOperator& planned) {
  const auto* builtin = dynamic_cast<const PlannedBuiltin*>(&planned);
  return builtin != nullptr ? &builtin->op() : nullptr;
}

bool is_builtin_operator(std::string_view kind) {
  bool is = false;
  each_builtin_operator([&]<class Op>() { is |= kind == Op::kKind; });
  return is;
}

}  // namespace opwright
