#pragma once

#include <span>
#include <string>
#include <vector>

#include "operators/composed.h"
#include "operators/layer_writer.h"

namespace opwright {

/// Writes Einstein's summation as transposes, products of matrices and sums. Terms have letters,
/// which are axes, and "...", which stands for the remaining axes. Spaces do not count. Without
/// "->" the result has the letters that occur once, in alphabetical order. Throws the writer's
/// error for an equation that does not fit the inputs.
Tensor* write_einsum(LayerWriter& writer, const std::string& equation,
                     std::span<Tensor* const> inputs);

struct EinsumParams {
  std::string equation;
  template <class V>
  void visit(V& v) {
    v("equation", equation);
  }
};
/// Inputs of one type, one for each term. The output has the same type.
class Einsum final : public ComposedOperator<Einsum, EinsumParams> {
 public:
  static constexpr std::string_view kKind = "Einsum";
  static constexpr LayerClass<class IEinsumLayer> kLayer{
      LayerType::kEINSUM, "IEinsumLayer",
      "Sums of products along axes that an equation names: `bij,bjk->bik`."};
  using ComposedOperator::ComposedOperator;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

}  // namespace opwright
