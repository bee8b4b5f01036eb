#include "operators/rationals.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "operators/infer.h"

namespace opwright {
namespace {

/// The operator's view of its inputs in which those of FP32 are integers.
class IntegerContext final : public InferContext {
 public:
  IntegerContext(InferContext& outer, const std::vector<RationalsPtr>& rationals,
                 Expr Rational::*part)
      : outer_(outer),
        infos_(outer.inputs.size()),
        pointers_(outer.inputs.begin(), outer.inputs.end()) {
    for (size_t i = 0; i < infos_.size(); ++i) {
      if (rationals[i] == nullptr) continue;
      auto values = std::make_shared<std::vector<Expr>>();
      for (const Rational& rational : *rationals[i]) values->push_back(rational.*part);
      infos_[i].dtype = DataType::kINT64;
      infos_[i].dims = outer.inputs[i]->dims;
      infos_[i].values = std::move(values);
      pointers_[i] = &infos_[i];
    }
    inputs = pointers_;
    layer = outer.layer;
  }
  Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) override {
    return outer_.declare_size_tensor(output, opt, upper_bound);
  }
  bool is_non_negative(int symbol) const override { return outer_.is_non_negative(symbol); }

 private:
  InferContext& outer_;
  std::vector<TensorInfo> infos_;
  std::vector<const TensorInfo*> pointers_;
};

/// Whether the number's products with all extents that occur are exact in FP32.
bool is_short(const Rational& number) {
  constexpr int64_t kMost = 1 << 12;
  return std::abs(number.numerator.constant()) <= kMost && number.divisor.constant() <= kMost;
}

}  // namespace

RationalsPtr rationals_of(const TensorInfo& tensor) {
  if (tensor.dtype != DataType::kFLOAT) return nullptr;
  if (tensor.rationals != nullptr) return tensor.rationals;
  if (tensor.values != nullptr)
    return make_rationals(tensor.dims, [&](int64_t i) { return Rational{(*tensor.values)[i], 1}; });
  if (tensor.constant.empty()) return nullptr;
  return make_rationals(tensor.dims, [&](int64_t i) {
    float number = 0;
    std::memcpy(&number, tensor.constant.bytes().data() + i * static_cast<int64_t>(sizeof number),
                sizeof number);
    return rational_of(number);
  });
}

const Rational& rational_at(const std::vector<Rational>& numbers, int64_t i) {
  return numbers[numbers.size() == 1 ? 0 : static_cast<size_t>(i)];
}

RationalsPtr make_rationals(std::span<const Expr> dims,
                            const std::function<std::optional<Rational>(int64_t)>& element) {
  // A tensor may carry as many rationals as INT64 values.
  const std::optional<int64_t> count = value_count(DataType::kINT64, dims);
  if (!count) return nullptr;
  auto rationals = std::make_shared<std::vector<Rational>>();
  try {
    for (int64_t i = 0; i < *count; ++i) {
      std::optional<Rational> rational = element(i);
      if (!rational) return nullptr;
      rationals->push_back(*std::move(rational));
    }
  } catch (const Error&) {
    return nullptr;
  }
  return rationals;
}

std::optional<Rational> rounded(const Rational& a, const Rational& b,
                                const std::function<float(float, float)>& of_constants,
                                const std::function<std::optional<Rational>()>& of_symbols) {
  if (a.is_constant() && b.is_constant())
    return rational_of(
        of_constants(static_cast<float>(a.constant()), static_cast<float>(b.constant())));
  for (const Rational* number : {&a, &b})
    if (number->is_constant() && !is_short(*number)) return std::nullopt;
  return of_symbols();
}

OutputInfo with_moved_rationals(InferContext& context, const Operation& op, OutputInfo output) {
  if (output.dtype != DataType::kFLOAT || !value_count(DataType::kINT64, output.dims))
    return output;
  std::vector<RationalsPtr> rationals;
  for (const TensorInfo* input : context.inputs) {
    const bool is_float = input != nullptr && input->dtype == DataType::kFLOAT;
    rationals.push_back(is_float ? rationals_of(*input) : nullptr);
    if (is_float && rationals.back() == nullptr) return output;
  }
  IntegerContext above(context, rationals, &Rational::numerator);
  IntegerContext below(context, rationals, &Rational::divisor);
  const auto numerators = op.infer(above).front().values, divisors = op.infer(below).front().values;
  if (numerators == nullptr || divisors == nullptr || numerators->size() != divisors->size())
    return output;
  output.rationals = make_rationals(output.dims, [&](int64_t i) {
    return Rational{(*numerators)[static_cast<size_t>(i)], (*divisors)[static_cast<size_t>(i)]};
  });
  return output;
}

}  // namespace opwright
