#include "run/follow.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "operators/movement.h"
#include "plan/shapes.h"
#include "run/seed_plugins.h"

namespace opwright::fuzz {
namespace {

/// A plan's expressions as trees, and the way back.
class Expressions {
 public:
  explicit Expressions(Plan& plan) : plan_(plan) {
    for (const ExprInstruction& i : plan.expressions) {
      if (i.op == ExprOp::kConstant)
        made_.emplace_back(i.value);
      else if (i.op == ExprOp::kSymbol)
        made_.push_back(Expr::symbol(static_cast<int>(i.value)));
      else if (i.op == ExprOp::kSelect)
        made_.push_back(Expr::select(made_[i.a], made_[i.b], made_[i.c]));
      else
        made_.push_back(Expr::make(i.op, made_[i.a], made_[i.b]));
      known_.emplace(made_.back(), static_cast<int32_t>(made_.size()) - 1);
    }
  }
  const Expr& at(int32_t index) const {
    require(index >= 0 && static_cast<size_t>(index) < made_.size(), "no expression");
    return made_[index];
  }
  int32_t add(const Expr& expr) {
    if (const auto found = known_.find(expr); found != known_.end()) return found->second;
    ExprInstruction made{.op = expr.op()};
    if (expr.op() == ExprOp::kConstant) {
      made.value = expr.constant();
    } else if (expr.op() == ExprOp::kSymbol) {
      made.value = expr.symbol_id();
    } else if (expr.op() == ExprOp::kSelect) {
      made.a = add(expr.operand(0)), made.b = add(expr.operand(1)), made.c = add(expr.operand(2));
    } else {
      // Those of many operands, two at a time.
      made.a = add(expr.operand(0));
      for (int i = 1; i < expr.arity(); ++i) {
        made.b = add(expr.operand(i));
        if (i + 1 == expr.arity()) break;
        plan_.expressions.push_back(made);
        made_.emplace_back();
        made.a = static_cast<int32_t>(plan_.expressions.size()) - 1;
      }
    }
    plan_.expressions.push_back(made);
    made_.push_back(expr);
    const auto index = static_cast<int32_t>(made_.size()) - 1;
    known_.emplace(expr, index);
    return index;
  }

 private:
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };
  Plan& plan_;
  std::vector<Expr> made_;
  std::unordered_map<Expr, int32_t, Hash> known_;
};

/// The sizes of a step are the symbols that it has already.
struct StepContext final : InferContext {
  const PlanStep* step = nullptr;
  Expr declare_size_tensor(int output, const Expr&, const Expr& upper_bound) override {
    const auto& symbols = step->size_symbols;
    const auto number = static_cast<size_t>(output);
    return number < symbols.size() && symbols[number] >= 0 ? Expr::symbol(symbols[number])
                                                           : upper_bound;
  }
};

class Follower {
 public:
  Follower(Plan& plan, Schedule& schedule, Expressions& expressions)
      : plan_(plan), schedule_(schedule), expressions_(expressions) {}

  void follow(const PlanStep& step) {
    std::vector<TensorInfo> infos(step.inputs.size());
    std::vector<const TensorInfo*> inputs(step.inputs.size(), nullptr);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (step.inputs[i] == -1) continue;
      infos[i] = info(tensor(step.inputs[i]));
      inputs[i] = &infos[i];
    }
    for (const int32_t output : step.outputs) tensor(output);
    if (step.kind == Reformat::kKind || step.kind == Reshape::kKind) {
      require(inputs.size() == 1 && inputs[0] != nullptr && step.outputs.size() == 1, "ports");
      PlanTensor& to = tensor(step.outputs[0]);
      SymShape dims = infos[0].dims;
      if (step.kind == Reshape::kKind) {
        SymShape present;
        for (const int32_t dim : to.dims) present.push_back(expressions_.at(dim));
        if (numel(present) == numel(dims)) return;
      }
      set_dims(to, dims);
      return;
    }
    OperatorLoadContext load;
    load.layer = step.name;
    load.plugins = &seed_registry();
    const PlannedOperatorPtr op = load_operator(step.kind, step.attributes, load);
    StepContext context;
    context.inputs = inputs;
    context.layer = step.name;
    context.step = &step;
    const std::vector<OutputInfo> outputs = op->infer(context);
    require(outputs.size() == step.outputs.size(), "outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      PlanTensor& to = tensor(step.outputs[i]);
      set_dims(to, outputs[i].dims);
      if (outputs[i].dtype != to.type.dtype &&
          !(is_floating(outputs[i].dtype) && is_floating(to.type.dtype)))
        to.type.dtype = outputs[i].dtype;
    }
  }

 private:
  PlanTensor& tensor(int32_t index) {
    require(index >= 0 && static_cast<size_t>(index) < schedule_.tensors.size(), "no tensor");
    return schedule_.tensors[index];
  }

  void set_dims(PlanTensor& tensor, const SymShape& dims) {
    std::vector<int32_t> changed;
    for (const Expr& dim : dims) changed.push_back(expressions_.add(dim));
    tensor.dims = std::move(changed);
  }

  TensorInfo info(const PlanTensor& tensor) {
    TensorInfo info;
    info.dtype = is_floating(tensor.type.dtype) ? DataType::kFLOAT : tensor.type.dtype;
    for (const int32_t dim : tensor.dims) info.dims.push_back(expressions_.at(dim));
    std::vector<Expr> values;
    if (tensor.location == PlanTensor::Location::kValues) {
      for (const int32_t value : tensor.values) values.push_back(expressions_.at(value));
    } else if (tensor.location == PlanTensor::Location::kInput && tensor.index >= 0 &&
               static_cast<size_t>(tensor.index) < plan_.inputs.size() &&
               plan_.inputs[tensor.index].is_shape_input) {
      for (size_t i = 0; i < plan_.symbols.size(); ++i)
        if (plan_.symbols[i].kind == Symbol::Kind::kInputValue &&
            plan_.symbols[i].tensor == plan_.inputs[tensor.index].name)
          values.push_back(Expr::symbol(static_cast<int>(i)));
    } else if (tensor.location == PlanTensor::Location::kWeight &&
               (tensor.type.dtype == DataType::kINT32 || tensor.type.dtype == DataType::kINT64) &&
               tensor.data.size() <= 64) {
      const size_t width = tensor.type.dtype == DataType::kINT32 ? 4 : 8;
      for (size_t i = 0; i + width <= tensor.data.size(); i += width)
        values.emplace_back(width == 4
                                ? int64_t{*reinterpret_cast<const int32_t*>(tensor.data.data() + i)}
                                : *reinterpret_cast<const int64_t*>(tensor.data.data() + i));
    }
    if (!values.empty()) info.values = std::make_shared<const std::vector<Expr>>(std::move(values));
    return info;
  }

  Plan& plan_;
  Schedule& schedule_;
  Expressions& expressions_;
};

}  // namespace

void follow(Plan& plan) {
  try {
    validate(plan.expressions, static_cast<int>(plan.symbols.size()));
    Expressions expressions(plan);
    for (Schedule& schedule : plan.schedules) {
      Follower follower(plan, schedule, expressions);
      for (const PlanStep& step : schedule.steps) {
        try {
          follower.follow(step);
        } catch (const Error&) {
        }
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace opwright::fuzz
