#pragma once

#include "network/network.h"
#include "network/region.h"
#include "operators/builtin.h"

/// \file
/// The layers at the borders of loops and conditionals. Compiling the network replaces them by
/// other layers, so they have no kernels and stand in no plan.
namespace opwright {

class LoopBoundaryLayer : public Layer {};
class ConditionalBoundaryLayer : public Layer {};

template <class Derived, class ParamsType>
class RegionBoundary : public BuiltinOperator<Derived, ParamsType>, public BoundaryOperator {
 public:
  static constexpr bool kHasNoKernels = true;
  using BuiltinOperator<Derived, ParamsType>::BuiltinOperator;
  Region& region() const final { return *this->params().region; }
  OperatorPtr moved_to(Region& region) const final {
    ParamsType params = this->params();
    params.region = &region;
    return std::make_shared<Derived>(std::move(params));
  }
  bool is_pure() const final { return false; }
};

struct BoundaryParams {
  Region* region = nullptr;
  template <class V>
  void visit(V&) {}
};

template <>
inline constexpr auto kEnumeration<TripLimit> = enumeration<TripLimit>(
    "TripLimit", "What ends a loop.",
    {
        {"COUNT", TripLimit::kCOUNT, "A number of iterations."},
        {"WHILE", TripLimit::kWHILE, "A condition that is looked at before each iteration."},
    });

struct TripLimitParams : BoundaryParams {
  TripLimit kind = TripLimit::kCOUNT;
  template <class V>
  void visit(V& v) {
    v("kind", kind);
  }
};
/// Ends a loop. Input: the number of iterations (INT32 or INT64), or, from inside of the loop,
/// whether this iteration takes place (BOOL). One element each.
class TripLimitBoundary final : public RegionBoundary<TripLimitBoundary, TripLimitParams> {
 public:
  using LayerBase = LoopBoundaryLayer;
  static constexpr std::string_view kKind = "TripLimit";
  static constexpr LayerClass<class ITripLimitLayer> kLayer{LayerType::kTRIP_LIMIT,
                                                            "ITripLimitLayer", "What ends a loop."};
  using RegionBoundary::RegionBoundary;
  std::optional<int> num_outputs() const override { return 0; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// A value that an iteration hands to the next one. Inputs: the value in the first iteration, and
/// the value for the next one, from inside of the loop.
class RecurrenceBoundary final : public RegionBoundary<RecurrenceBoundary, BoundaryParams> {
 public:
  using LayerBase = LoopBoundaryLayer;
  static constexpr std::string_view kKind = "LoopRecurrence";
  static constexpr LayerClass<class IRecurrenceLayer> kLayer{
      LayerType::kRECURRENCE, "IRecurrenceLayer", "A value that an iteration hands to the next."};
  using RegionBoundary::RegionBoundary;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_fed_back(int input) const override { return input == 1; }
};

struct IteratorParams : BoundaryParams {
  int64_t axis = 0;
  bool reverse = false;
  template <class V>
  void visit(V& v) {
    v("axis", axis), v("reverse", reverse);
  }
};
/// The slice of a tensor at the number of the iteration along an axis, which is removed. In
/// reverse, the first iteration gets the last slice.
class IteratorBoundary final : public RegionBoundary<IteratorBoundary, IteratorParams> {
 public:
  using LayerBase = LoopBoundaryLayer;
  static constexpr std::string_view kKind = "Iterator";
  static constexpr LayerClass<class IIteratorLayer> kLayer{
      LayerType::kITERATOR, "IIteratorLayer",
      "The elements of a tensor that belong to an iteration."};
  using RegionBoundary::RegionBoundary;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<LoopOutput> = enumeration<LoopOutput>(
    "LoopOutput", "What leaves a loop.",
    {
        {"LAST_VALUE", LoopOutput::kLAST_VALUE,
         "The value of a recurrence behind the last iteration."},
        {"CONCATENATE", LoopOutput::kCONCATENATE, "What all iterations give, along a new axis."},
        {"REVERSE", LoopOutput::kREVERSE, "The same, the last iteration first."},
    });

struct LoopOutputParams : BoundaryParams {
  LoopOutput kind = LoopOutput::kLAST_VALUE;
  int64_t axis = 0;
  template <class V>
  void visit(V& v) {
    v("axis", axis), v("kind", kind);
  }
};
/// A tensor that leaves a loop: the value of a recurrence behind the last iteration, or values of
/// the iterations, one behind the other along a new axis, whose extent is input 1. Iterations
/// beyond this extent are left out, and zeros stand for missing ones.
class LoopOutputBoundary final : public RegionBoundary<LoopOutputBoundary, LoopOutputParams> {
 public:
  using LayerBase = LoopBoundaryLayer;
  static constexpr std::string_view kKind = "LoopOutput";
  static constexpr LayerClass<class ILoopOutputLayer> kLayer{
      LayerType::kLOOP_OUTPUT, "ILoopOutputLayer", "What leaves a loop."};
  using RegionBoundary::RegionBoundary;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

/// Decides which branch of a conditional gives the outputs. Input: a scalar BOOL.
class ConditionBoundary final : public RegionBoundary<ConditionBoundary, BoundaryParams> {
 public:
  using LayerBase = ConditionalBoundaryLayer;
  static constexpr std::string_view kKind = "Condition";
  static constexpr LayerClass<class IConditionLayer> kLayer{
      LayerType::kCONDITION, "IConditionLayer", "What decides which branch runs."};
  using RegionBoundary::RegionBoundary;
  std::optional<int> num_outputs() const override { return 0; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// A tensor that branches read.
class ConditionalInputBoundary final
    : public RegionBoundary<ConditionalInputBoundary, BoundaryParams> {
 public:
  using LayerBase = ConditionalBoundaryLayer;
  static constexpr std::string_view kKind = "ConditionalInput";
  static constexpr LayerClass<class IIfConditionalInputLayer> kLayer{
      LayerType::kCONDITIONAL_INPUT, "IIfConditionalInputLayer", "A tensor that branches read."};
  using RegionBoundary::RegionBoundary;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Chooses one of two tensors of the same type and rank by the condition. Where their extents
/// differ, the extent is known once the conditional has run: each is a further output.
class ConditionalOutputBoundary final
    : public RegionBoundary<ConditionalOutputBoundary, BoundaryParams> {
 public:
  using LayerBase = ConditionalBoundaryLayer;
  static constexpr std::string_view kKind = "ConditionalOutput";
  static constexpr LayerClass<class IIfConditionalOutputLayer> kLayer{
      LayerType::kCONDITIONAL_OUTPUT, "IIfConditionalOutputLayer",
      "What one branch or the other gives."};
  using RegionBoundary::RegionBoundary;
  std::optional<int> num_outputs() const override { return std::nullopt; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
