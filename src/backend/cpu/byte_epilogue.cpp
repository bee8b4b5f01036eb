#include "backend/cpu/byte_epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/dnnl_post_ops.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/port_rules.h"
#include "base/half.h"

namespace opwright {
namespace {

using Numbers = std::vector<double>;
using Algorithm = dnnl::algorithm;

/// a op b, each with one element or one for each channel.
template <class F>
Numbers combine(const Numbers& a, const Numbers& b, F&& f) {
  Numbers result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = f(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]);
  return result;
}

/// Follows the sum through the program.
class EpilogueReader {
 public:
  EpilogueReader(const FusedProgram& fused, std::span<const PortDesc> inputs, int64_t channels)
      : fused_(fused), inputs_(inputs), channels_(channels), program_(decode(fused.program)) {}

  std::optional<ByteEpilogue> read() {
    if (fused_.program.results.size() != 1) return std::nullopt;
    for (size_t i = 0; i < program_.size(); ++i) {
      values_.push_back(read(program_[i], static_cast<int>(i)));
      if (values_.back().kind == Kind::kUnknown) return std::nullopt;
      if (values_.back().kind == Kind::kSum) sum_ = static_cast<int>(i);
    }
    if (fused_.program.results[0] != sum_ || sum_ < 0 || is_rounded_) return std::nullopt;
    if (!ends_in_range()) return std::nullopt;
    result_.result = fused_.result;
    for (const double scale : scale_) result_.scales.push_back(static_cast<float>(scale));
    for (int64_t i = 0; i < channels_; ++i)
      result_.bias.push_back(static_cast<float>(shift_[shift_.size() == 1 ? 0 : i]));
    return result_;
  }

 private:
  enum class Kind : uint8_t {
    kUnknown,
    kSum,       ///< the sum, with what has been computed from it
    kConstant,  ///< numbers
    kTensor,    ///< a tensor of the result's shape, times a number plus a number
    kGate       ///< an activation that multiplies the sum of which it is
  };
  struct Value {
    Kind kind = Kind::kUnknown;
    Numbers numbers = {};             // kConstant
    int input = -1;                   // kTensor
    double scale = 1, shift = 0;      // kTensor
    FusedActivation activation = {};  // kGate
  };
  using Instruction = PointwiseInstruction;

  Value read(const Instruction& i, int at) {
    if (i.op == opcode(PointwiseOp::kInput)) return read_input(i);
    if (i.op == opcode(PointwiseOp::kConstant)) return {Kind::kConstant, {i.alpha}};
    if (i.op == opcode(PointwiseOp::kCast)) return read_cast(i);
    if (i.op == opcode(UnaryOperation::kROUND)) return is_sum(i.a) ? round() : Value{};
    if (i.op >= opcode(PointwiseOp::kActivation)) return read_activation(i, at);
    if (i.op >= opcode(PointwiseOp::kBinary) && i.op < opcode(PointwiseOp::kUnary))
      return read_binary(binary_of(i.op), i.a, i.b);
    return {};
  }

  Value read_input(const Instruction& i) const {
    if (i.a == 0) return {Kind::kSum};
    const size_t index = inputs_.size() - fused_.places.size() + i.a - 1;
    const PortDesc& port = inputs_[index];
    const auto place = static_cast<FusedPlace>(fused_.places[i.a - 1]);
    if (place == FusedPlace::kElement && !port.is_constant) {
      if (!kBytes.has(port.type.dtype) && port.type.dtype != DataType::kFLOAT) return {};
      return {Kind::kTensor, {}, static_cast<int>(index)};
    }
    if (!port.is_constant || (place != FusedPlace::kScalar && place != FusedPlace::kChannel))
      return {};
    const int64_t count = port.opt.numel();
    if (count != 1 && count != channels_) return {};
    std::vector<float> numbers(count);
    if (!port.constant.empty())
      convert(port.constant.data(), port.type.dtype, numbers.data(), DataType::kFLOAT, count);
    return {Kind::kConstant, Numbers(numbers.begin(), numbers.end())};
  }

  Value read_cast(const Instruction& i) const {
    const Value& x = values_[i.a];
    // INT32 becomes FP32, or the result becomes bytes.
    if (x.kind == Kind::kSum && i.a != sum_) return {};
    if (i.type == DataType::kFLOAT || (x.kind != Kind::kSum && i.type == DataType::kINT32))
      return x;
    return kBytes.has(i.type) && x.kind == Kind::kSum && is_clipped_to(i.type) ? x : Value{};
  }

  /// Whether the sum was rounded and clipped to numbers that the type has.
  bool is_clipped_to(DataType type) const {
    const auto& steps = result_.steps;
    return steps.size() > 2 && steps.back().algorithm == Algorithm::eltwise_clip &&
           steps.back().alpha >= (type == DataType::kINT8 ? -128 : 0) &&
           steps.back().beta <= (type == DataType::kINT8 ? 127 : 255) &&
           steps[steps.size() - 3].algorithm == Algorithm::eltwise_linear &&
           steps[steps.size() - 3].beta == kRounder;
  }

  Value read_activation(const Instruction& i, int at) {
    const ActivationType type = activation_of(i.op);
    const bool is_narrow = type == ActivationType::kCLIP && -kMostRounded <= i.alpha &&
                           i.beta <= kMostRounded && i.alpha <= i.beta;
    if (!is_sum(i.a) || (is_rounded_ && !is_narrow)) return {};
    is_rounded_ = false;
    FusedActivation activation;
    activation.type = static_cast<int32_t>(type);
    activation.alpha = static_cast<float>(i.alpha), activation.beta = static_cast<float>(i.beta);
    if (type == ActivationType::kSIGMOID || type == ActivationType::kHARD_SIGMOID) {
      for (const Instruction& later : program_)
        if (later.op == opcode(ElementWiseOperation::kPROD) &&
            ((later.a == at && later.b == i.a) || (later.b == at && later.a == i.a))) {
          if (type == ActivationType::kSIGMOID) activation.alpha = 1;
          activation.type = type == ActivationType::kSIGMOID ? FusedActivation::kSwish
                                                             : FusedActivation::kHardSwish;
          Value gate{Kind::kGate};
          gate.activation = activation;
          return gate;
        }
    }
    return activate(activation);
  }

  Value read_binary(ElementWiseOperation op, int left, int right) {
    using Op = ElementWiseOperation;
    const Value &a = values_[left], &b = values_[right];
    if ((a.kind == Kind::kSum && left != sum_) || (b.kind == Kind::kSum && right != sum_))
      return {};
    if (a.kind == Kind::kConstant && b.kind == Kind::kConstant) {
      const auto f = arithmetic(op);
      return f ? Value{Kind::kConstant, combine(a.numbers, b.numbers, *f)} : Value{};
    }
    const bool turned = a.kind == Kind::kConstant || a.kind == Kind::kTensor ||
                        (a.kind == Kind::kGate && b.kind == Kind::kSum);
    if (turned && b.kind != Kind::kConstant) {
      if (op == Op::kSUB || op == Op::kDIV) return {};
      return read_binary(op, right, left, 0);
    }
    return read_binary(op, left, right, 0);
  }

  /// The second operand is a constant, a tensor or a gate.
  Value read_binary(ElementWiseOperation op, int left, int right, int) {
    using Op = ElementWiseOperation;
    const Value a = values_[left];
    const Value& b = values_[right];
    if (a.kind == Kind::kSum && b.kind == Kind::kGate)
      return op == Op::kPROD ? activate(b.activation) : Value{};
    if (a.kind == Kind::kSum && b.kind == Kind::kTensor) return op == Op::kSUM ? add(b) : Value{};
    if (b.kind != Kind::kConstant) return {};
    if (a.kind == Kind::kTensor) {
      if (b.numbers.size() != 1) return {};
      const double number = b.numbers[0];
      Value x = a;
      if (op == Op::kSUM) return x.shift += number, x;
      if (op == Op::kSUB) return x.shift -= number, x;
      if (op == Op::kPROD) return x.scale *= number, x.shift *= number, x;
      return {};
    }
    if (a.kind != Kind::kSum) return {};
    if (is_rounded_ && op != Op::kSUM && op != Op::kSUB) return {};
    if (op == Op::kMAX || op == Op::kMIN) {
      if (b.numbers.size() != 1) return {};
      const auto number = static_cast<float>(b.numbers[0]);
      constexpr float kMost = std::numeric_limits<float>::max();
      if (op == Op::kMAX && number == 0) return step(Algorithm::eltwise_relu);
      return op == Op::kMAX ? step(Algorithm::eltwise_clip, number, kMost)
                            : step(Algorithm::eltwise_clip, -kMost, number);
    }
    const auto f = arithmetic(op);
    if (!f) return {};
    const bool multiplies = op == Op::kPROD || op == Op::kDIV;
    if (result_.steps.empty()) {
      if (multiplies) scale_ = combine(scale_, b.numbers, *f);
      shift_ = combine(shift_, b.numbers, *f);
      return {Kind::kSum};
    }
    if (b.numbers.size() != 1) return {};
    const double number = b.numbers[0];
    if (op == Op::kDIV) return linear(1 / number, 0);
    if (op == Op::kPROD) return linear(number, 0);
    return linear(1, op == Op::kSUM ? number : -number);
  }

  static std::optional<double (*)(double, double)> arithmetic(ElementWiseOperation op) {
    switch (op) {
      case ElementWiseOperation::kSUM:
        return [](double a, double b) { return a + b; };
      case ElementWiseOperation::kSUB:
        return [](double a, double b) { return a - b; };
      case ElementWiseOperation::kPROD:
        return [](double a, double b) { return a * b; };
      case ElementWiseOperation::kDIV:
        return [](double a, double b) { return a / b; };
      default:
        return std::nullopt;
    }
  }

  bool is_sum(int at) const { return at == sum_ && sum_ >= 0; }

  Value step(Algorithm algorithm, float alpha = 0, float beta = 0) {
    result_.steps.push_back({algorithm, alpha, beta});
    return {Kind::kSum};
  }

  /// Rounds half to even: the sum with a large number has no bits for fractions. Numbers beyond
  /// kMostRounded come out wrong, so the result must be clipped next.
  Value round() {
    if (is_rounded_) return {};
    is_rounded_ = true;
    auto& steps = result_.steps;
    if (!steps.empty() && steps.back().algorithm == Algorithm::eltwise_linear &&
        steps.back().beta == 0)
      steps.back().beta = kRounder;
    else
      step(Algorithm::eltwise_linear, 1, kRounder);
    return step(Algorithm::eltwise_linear, 1, -kRounder);
  }

  /// Joins two linear steps.
  Value linear(double scale, double shift) {
    if (scale == 1 && shift == 0) return {Kind::kSum};
    if (!result_.steps.empty() && result_.steps.back().algorithm == Algorithm::eltwise_linear) {
      ByteEpilogue::Step& last = result_.steps.back();
      last.alpha = static_cast<float>(last.alpha * scale);
      last.beta = static_cast<float>(last.beta * scale + shift);
      return {Kind::kSum};
    }
    return step(Algorithm::eltwise_linear, static_cast<float>(scale), static_cast<float>(shift));
  }

  Value activate(const FusedActivation& activation) {
    dnnl::post_ops steps;
    if (!append_activation(steps, activation)) return {};
    for (int i = 0; i < steps.len(); ++i) {
      Algorithm algorithm{};
      float alpha = 0, beta = 0;
      steps.get_params_eltwise(i, algorithm, alpha, beta);
      step(algorithm, alpha, beta);
    }
    return {Kind::kSum};
  }

  /// Adds tensor * scale + shift: divides by the scale, adds the tensor, and multiplies again.
  Value add(const Value& tensor) {
    if (is_rounded_ || !(std::abs(tensor.scale) > 0x1p-60) || !(std::abs(tensor.scale) < 0x1p60))
      return {};
    const Numbers scale = {tensor.scale}, shift = {tensor.shift};
    if (result_.steps.empty()) {
      const auto divide = [](double a, double b) { return a / b; };
      scale_ = combine(scale_, scale, divide);
      shift_ =
          combine(combine(shift_, shift, [](double a, double b) { return a + b; }), scale, divide);
    } else {
      linear(1 / tensor.scale, tensor.shift / tensor.scale);
    }
    result_.steps.push_back({Algorithm::binary_add, 0, 0, tensor.input});
    return linear(tensor.scale, 0);
  }

  /// Whether bytes are rounded and clipped before they are stored, which storing does itself.
  bool ends_in_range() {
    if (fused_.result == DataType::kFLOAT) return true;
    if (!kBytes.has(fused_.result)) return false;
    auto& steps = result_.steps;
    const bool is_signed = fused_.result == DataType::kINT8;
    const float least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    if (steps.empty() || steps.back().algorithm != Algorithm::eltwise_clip ||
        steps.back().alpha != least || steps.back().beta != most)
      return false;
    steps.pop_back();
    const auto is_linear = [](const ByteEpilogue::Step& step) {
      return step.algorithm == Algorithm::eltwise_linear;
    };
    if (steps.size() < 2 || !is_linear(steps.back()) || !is_linear(steps[steps.size() - 2]) ||
        steps[steps.size() - 2].beta != kRounder || steps.back().alpha != 1)
      return false;
    const float zero_point = steps.back().beta + kRounder;
    if (zero_point != std::rint(zero_point)) return false;
    if (zero_point != 0) return true;
    steps.pop_back(), steps.back().beta = 0;
    if (steps.back().alpha == 1) steps.pop_back();
    if (!is_signed) drop_relu();
    return true;
  }

  /// Drops a ReLU in front of a positive factor: what is negative becomes 0 as UINT8.
  void drop_relu() {
    auto& steps = result_.steps;
    const bool has_factor = steps.size() == 2 && steps[1].algorithm == Algorithm::eltwise_linear &&
                            steps[1].alpha > 0 && steps[1].beta == 0;
    if ((steps.size() != 1 && !has_factor) || steps[0].algorithm != Algorithm::eltwise_relu ||
        steps[0].alpha != 0)
      return;
    const Numbers factor = {has_factor ? steps[1].alpha : 1};
    const auto multiply = [](double a, double b) { return a * b; };
    scale_ = combine(scale_, factor, multiply), shift_ = combine(shift_, factor, multiply);
    steps.clear();
  }

  static constexpr float kRounder = 0x1.8p23F, kMostRounded = 0x1p20F;

  const FusedProgram& fused_;
  std::span<const PortDesc> inputs_;
  int64_t channels_;
  std::vector<Instruction> program_;
  std::vector<Value> values_;
  bool is_rounded_ = false;  ///< whether the sum was rounded and is not clipped yet
  int sum_ = -1;             ///< the register that has what was computed from the sum
  Numbers scale_ = {1}, shift_ = {0};
  ByteEpilogue result_;
};

}  // namespace

void ByteEpilogue::append_to(dnnl::primitive_attr& attributes, int mask,
                             const dnnl::memory::desc& added,
                             std::span<const DataType> inputs) const {
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, scales.size() == 1 ? 0 : mask);
  dnnl::post_ops post_ops;
  for (const Step& step : steps) {
    if (step.input < 0)
      post_ops.append_eltwise(step.algorithm, step.alpha, step.beta);
    else
      post_ops.append_binary(step.algorithm, with_type(added, dnnl_type(inputs[step.input])));
  }
  attributes.set_post_ops(post_ops);
}

Operand ByteEpilogue::scales_operand(DnnlProgram& program) const {
  const dnnl::memory::desc desc({static_cast<int64_t>(scales.size())}, dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::a);
  return program.constant(Blob::copy(scales.data(), scales.size() * sizeof(float)), desc);
}

std::optional<ByteEpilogue> byte_epilogue(const FusedProgram& fused,
                                          std::span<const PortDesc> inputs, int64_t channels) {
  if (!fused.present() || inputs.size() < fused.places.size()) return std::nullopt;
  return EpilogueReader(fused, inputs, channels).read();
}

}  // namespace opwright
