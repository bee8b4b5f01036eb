#pragma once

#include "operators/builtin.h"

namespace opwright {

/// How an update changes its element.
enum class ScatterReduction : int32_t {
  kNONE = 0,  ///< The update replaces the element; the last of several updates counts.
  kADD = 1,
  kMUL = 2,
  kMIN = 3,
  kMAX = 4,
};

template <>
inline constexpr auto kEnumeration<ScatterMode> = enumeration<ScatterMode>(
    "ScatterMode", "How indices are understood.",
    {
        {"ELEMENT", ScatterMode::kELEMENT, "Each is that of one element along an axis."},
        {"ND", ScatterMode::kND, "The last axis has the indices of a slice."},
    });

struct ScatterParams {
  ScatterMode mode = ScatterMode::kELEMENT;
  int64_t axis = 0;  ///< of kELEMENT
  ScatterReduction reduction = ScatterReduction::kNONE;
  bool in_place = false;  ///< whether the output is in the data's memory
  template <class V>
  void visit(V& v) {
    v("axis", axis), v("mode", mode), v.internal("reduction", reduction);
    v.internal("in_place", in_place);
  }
};
/// Inputs: data, indices (INT32 or INT64; negative ones count from the end), updates. Updates with
/// other indices out of range are left out. ONNX ScatterElements and ScatterND.
class Scatter final : public BuiltinOperator<Scatter, ScatterParams> {
 public:
  static constexpr std::string_view kKind = "Scatter";
  static constexpr LayerClass<class IScatterLayer> kLayer{
      LayerType::kSCATTER, "IScatterLayer", "A copy with elements put where indices say."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int) const override { return input == 0; }
  int64_t index_limit(int input, std::span<const PortDesc> inputs,
                      std::span<const PortDesc> outputs) const override;
};

struct MaxUnpoolParams {
  template <class V>
  void visit(V&) {}
};
/// The opposite of pooling that tells where its maxima lie. Inputs: maxima, as many indices (INT32
/// or INT64) and the result's extents. An index counts all elements of the result, a negative one
/// from the end. Maxima with other indices out of range are left out. The last one of several
/// maxima with one index stays. All other elements are zero.
class MaxUnpool final : public BuiltinOperator<MaxUnpool, MaxUnpoolParams> {
 public:
  static constexpr std::string_view kKind = "MaxUnpool";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 2; }
  int64_t index_limit(int input, std::span<const PortDesc> inputs,
                      std::span<const PortDesc> outputs) const override;
};

}  // namespace opwright
