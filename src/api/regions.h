#pragma once

#include "api/layer.h"
#include "control/regions.h"
#include "operators/attention.h"
#include "opwright/layers.h"

namespace opwright {

/// The public face of a loop.
class LoopApi final : public ILoop {
 public:
  LoopApi(const NetworkApi& network, LoopRegion& loop) : network_(network), loop_(loop) {}

  IRecurrenceLayer* addRecurrence(ITensor& initialValue) noexcept override;
  ITripLimitLayer* addTripLimit(ITensor& tensor, TripLimit limit) noexcept override;
  IIteratorLayer* addIterator(ITensor& tensor, int32_t axis, bool reverse) noexcept override;
  ILoopOutputLayer* addLoopOutput(ITensor& tensor, LoopOutput outputKind,
                                  int32_t axis) noexcept override;
  void setName(char const* name) noexcept override { loop_.set_name(name == nullptr ? "" : name); }
  char const* getName() const noexcept override { return loop_.name().c_str(); }

 private:
  const NetworkApi& network_;
  LoopRegion& loop_;
};

/// The public face of a conditional.
class ConditionalApi final : public IIfConditional {
 public:
  ConditionalApi(const NetworkApi& network, ConditionalRegion& conditional)
      : network_(network), conditional_(conditional) {}

  IConditionLayer* setCondition(ITensor& condition) noexcept override;
  IIfConditionalOutputLayer* addOutput(ITensor& trueSubgraphOutput,
                                       ITensor& falseSubgraphOutput) noexcept override;
  IIfConditionalInputLayer* addInput(ITensor& input) noexcept override;
  void setName(char const* name) noexcept override {
    conditional_.set_name(name == nullptr ? "" : name);
  }
  char const* getName() const noexcept override { return conditional_.name().c_str(); }

 private:
  const NetworkApi& network_;
  ConditionalRegion& conditional_;
};

/// The public face of an attention.
class AttentionApi final : public IAttention {
 public:
  explicit AttentionApi(const LayerHandle& handle) : handle_(handle) {}
  ~AttentionApi() noexcept override = default;

  bool setNormalizationOperation(AttentionNormalizationOp op) noexcept override {
    return set("norm_op", static_cast<int64_t>(op));
  }
  AttentionNormalizationOp getNormalizationOperation() const noexcept override {
    return get<AttentionNormalizationOp>("norm_op");
  }
  bool setMask(ITensor& mask) noexcept override { return setInput(Attention::kMask, mask); }
  ITensor* getMask() noexcept override { return optional_input(Attention::kMask); }
  bool setCausal(bool isCausal) noexcept override {
    return setCausalKind(isCausal ? CausalMaskKind::kUPPER_LEFT : CausalMaskKind::kNONE);
  }
  bool getCausal() const noexcept override { return getCausalKind() != CausalMaskKind::kNONE; }
  bool setCausalKind(CausalMaskKind kind) noexcept override {
    return set("causal_kind", static_cast<int64_t>(kind));
  }
  CausalMaskKind getCausalKind() const noexcept override {
    return get<CausalMaskKind>("causal_kind");
  }
  bool setDecomposable(bool decomposable) noexcept override {
    return set("decomposable", decomposable);
  }
  bool getDecomposable() const noexcept override { return get<bool>("decomposable"); }
  bool setInput(int32_t index, ITensor& input) noexcept override {
    return errors().run([&] { handle_.set_input(index, input); });
  }
  int32_t getNbInputs() const noexcept override { return handle_.layer.num_inputs(); }
  ITensor* getInput(int32_t index) const noexcept override {
    return errors().guard<ITensor*>(nullptr, [&] { return handle_.input(index); });
  }
  int32_t getNbOutputs() const noexcept override { return handle_.layer.num_outputs(); }
  ITensor* getOutput(int32_t index) const noexcept override {
    return errors().guard<ITensor*>(nullptr, [&] { return handle_.output(index); });
  }
  bool setName(char const* name) noexcept override {
    return errors().run([&] { handle_.set_name(name); });
  }
  char const* getName() const noexcept override { return handle_.layer.name().c_str(); }
  bool setMetadata(char const* metadata) noexcept override {
    return errors().run([&] { handle_.set_metadata(metadata); });
  }
  char const* getMetadata() const noexcept override { return handle_.layer.metadata().c_str(); }
  bool setNormalizationQuantizeScale(ITensor& tensor) noexcept override {
    return setInput(Attention::kQuantizeScale, tensor);
  }
  ITensor* getNormalizationQuantizeScale() const noexcept override {
    return optional_input(Attention::kQuantizeScale);
  }
  bool setNormalizationQuantizeToType(DataType type) noexcept override {
    return set("normalization_quantize_to_type", static_cast<int64_t>(type));
  }
  DataType getNormalizationQuantizeToType() const noexcept override {
    return get<DataType>("normalization_quantize_to_type");
  }
  bool setQueryForm(AttentionIOForm form) noexcept override {
    return set("query_form", static_cast<int64_t>(form));
  }
  AttentionIOForm getQueryForm() const noexcept override {
    return get<AttentionIOForm>("query_form");
  }
  bool setKeyValueForm(AttentionIOForm form) noexcept override {
    return set("key_value_form", static_cast<int64_t>(form));
  }
  AttentionIOForm getKeyValueForm() const noexcept override {
    return get<AttentionIOForm>("key_value_form");
  }
  int32_t getNbRanks() const noexcept override { return get<int32_t>("num_ranks"); }
  bool setNbRanks(int32_t nbRanks) noexcept override {
    return nbRanks >= 1 && set("num_ranks", nbRanks);
  }
  bool setQueryLengths(ITensor& lengths) noexcept override {
    return setInput(Attention::kQueryLengths, lengths);
  }
  ITensor* getQueryLengths() const noexcept override {
    return optional_input(Attention::kQueryLengths);
  }
  bool setKeyValueLengths(ITensor& lengths) noexcept override {
    return setInput(Attention::kKeyValueLengths, lengths);
  }
  ITensor* getKeyValueLengths() const noexcept override {
    return optional_input(Attention::kKeyValueLengths);
  }

 private:
  const ErrorReport& errors() const { return handle_.network.errors(); }
  bool set(char const* name, int64_t value) noexcept {
    return errors().run([&] { handle_.set_property(name, value); });
  }
  template <class T>
  T get(char const* name) const noexcept {
    return errors().guard(T{}, [&] {
      LayerHandle::Kept kept;
      return handle_.property(name, kept).as<T>();
    });
  }
  ITensor* optional_input(int32_t index) const noexcept {
    return index < handle_.layer.num_inputs() ? getInput(index) : nullptr;
  }

  LayerHandle handle_;
};

}  // namespace opwright
