#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "error_of.h"
#include "network/network.h"

namespace opwright {

/// An operator without kernels.
class InferOnly : public Operator {
 public:
  std::vector<Candidate> candidates(const CandidateQuery&) const override { return {}; }
  PlannedOperatorPtr plan(const KernelArgs&) const override { return nullptr; }
};

/// Adds `amount` to the extent of axis `axis`; refuses extents above `limit`; has `outputs` equal
/// outputs.
class Grow final : public InferOnly {
 public:
  struct Params {
    int64_t amount = 1;
    int axis = 0;
    int64_t limit = 1000;
    int outputs = 1;
    bool late = false;  ///< says how many outputs it has, so that it is inferred when asked
  };
  explicit Grow(Params params) : params_(params) {}
  const Params& params() const { return params_; }
  std::string_view kind() const override { return "Grow"; }
  std::optional<int> num_outputs() const override {
    return params_.late ? std::optional(params_.outputs) : std::nullopt;
  }
  Attributes attributes() const override {
    return {{"amount", params_.amount}, {"axis", int64_t{params_.axis}}};
  }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    ++inferred;
    context.require_inputs(kind(), 1, 2);
    OutputInfo output;
    output.dtype = context.inputs[0]->dtype;
    output.dims = context.inputs[0]->dims;
    require(params_.axis < static_cast<int>(output.dims.size()), "there is no axis ", params_.axis);
    Expr& extent = output.dims[static_cast<size_t>(params_.axis)];
    extent = extent + params_.amount;
    require(!extent.is_constant() || extent.constant() <= params_.limit, "extent ", extent,
            " is above ", params_.limit);
    return std::vector<OutputInfo>(static_cast<size_t>(params_.outputs), output);
  }
  static inline int inferred = 0;  ///< how often infer was called

 private:
  Params params_;
};

/// Gives what it is told to, for wrong answers and exceptions of a plugin.
class Scripted final : public InferOnly {
 public:
  using Script = std::function<std::vector<OutputInfo>(InferContext&)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}
  std::string_view kind() const override { return "Scripted"; }
  std::vector<OutputInfo> infer(InferContext& context) const override { return script_(context); }

 private:
  Script script_;
};

/// The elements of input 1, which must be known, as the shape of the output.
class ShapedLike final : public InferOnly {
 public:
  std::string_view kind() const override { return "ShapedLike"; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    context.require_inputs(kind(), 2, 2);
    require(context.inputs[1]->values != nullptr, "the elements of input 1 are not known");
    OutputInfo output;
    output.dtype = context.inputs[0]->dtype;
    output.dims = *context.inputs[1]->values;
    return {output};
  }
};

/// Gives the layer, a Grow, other parameters.
template <class Change>
void edit(Layer& layer, Change&& change) {
  Grow::Params params = static_cast<const Grow&>(*layer.op()).params();
  change(params);
  layer.set_op(std::make_shared<Grow>(params));
}

}  // namespace opwright
