#include "backend/gpu/agreement_checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "operators/infer.h"
#include "operators/source.h"

namespace opwright::gpu {
namespace {

/// The inputs of a kernel. Symbols of its own stand for extents that shapes leave open.
class KernelPorts final : public InferContext, public ExtentListener {
 public:
  KernelPorts(const Operator& op, const KernelArgs& args, const std::vector<int>& shape_inputs)
      : infos_(args.inputs.size()) {
    layer = args.layer;
    const bool is_mixed = op.kind() != Fill::kKind;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const PortDesc& port = args.inputs[i];
      given_.push_back(port.present ? &infos_[i] : nullptr);
      if (!port.present) continue;
      const DataType type = port.type.dtype;
      infos_[i].dtype = is_mixed && is_floating(type) ? DataType::kFLOAT : type;
      for (int axis = 0; axis < port.min.rank(); ++axis) {
        const Expr symbol = Expr::symbol(next_++);
        is_open_ = is_open_ || port.min[axis] != port.max[axis];
        infos_[i].dims.push_back(port.min[axis] == port.max[axis] ? Expr(port.min[axis]) : symbol);
      }
      set_constant(port, infos_[i]);
    }
    for (const int input : shape_inputs) {
      TensorInfo& info = infos_[static_cast<size_t>(input)];
      SymShape values;
      for (int64_t left = constant_shape(info.dims).numel(); left > 0; --left)
        values.push_back(Expr::symbol(next_++));
      info.values = std::make_shared<const SymShape>(std::move(values));
    }
    inputs = given_;
  }

  bool is_open() const { return is_open_; }
  std::vector<KernelCheck> take_checks() { return std::move(checks_); }

  /// Returns the upper bound for a size tensor: its value in a run does not decide whether inputs
  /// fit.
  Expr declare_size_tensor(int, const Expr&, const Expr& upper_bound) override {
    return upper_bound;
  }
  bool is_non_negative(int) const override { return true; }
  void agree(int input, int axis, const Expr& expected, bool broadcasts) const override {
    const Expr& own = infos_[static_cast<size_t>(input)].dims[static_cast<size_t>(axis)];
    Expr condition = Expr::make(ExprOp::kEqual, own, expected);
    if (broadcasts) condition = max(condition, Expr::make(ExprOp::kEqual, own, 1));
    if (condition == Expr(1)) return;
    checks_.push_back({condition, str("input ", input, " does not fit the other inputs on axis ",
                                      axis, broadcasts ? ", nor does it broadcast" : "")});
  }

 private:
  static void set_constant(const PortDesc& port, TensorInfo& info) {
    if (port.constant.empty() || !is_constant(info.dims)) return;
    info.constant = port.constant;
    const std::optional<int64_t> count = value_count(info.dtype, info.dims);
    if (!count || info.dtype == DataType::kBOOL) return;
    std::vector<int64_t> elements(static_cast<size_t>(*count));
    convert(port.constant.data(), info.dtype, elements.data(), DataType::kINT64, *count);
    info.values = std::make_shared<const SymShape>(elements.begin(), elements.end());
  }

  std::vector<TensorInfo> infos_;
  std::vector<const TensorInfo*> given_;
  int next_ = 0;
  bool is_open_ = false;
  mutable std::vector<KernelCheck> checks_;
};

}  // namespace

std::vector<KernelCheck> agreement_checks(const Operator& op, const KernelArgs& args,
                                          const std::vector<int>& shape_inputs) {
  try {
    KernelPorts ports(op, args, shape_inputs);
    if (!ports.is_open()) return {};
    op.infer(ports);
    return ports.take_checks();
  } catch (const Error&) {  // some shapes are known only in a run
    return {};
  }
}

}  // namespace opwright::gpu
