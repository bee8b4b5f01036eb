#pragma once

#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "compile/expansion.h"

namespace opwright {

/// What tensors of a body that are the same in all iterations are in the network around it, which
/// gets layers for those that the body computes.
class TensorsOutside {
 public:
  /// \param captured the tensors that the body's inputs are, called as body.h says
  /// \param repeated the body's layers that depend on the iteration
  /// \param suffix goes behind the names of layers
  TensorsOutside(Network& network, const Network& body, std::span<Tensor* const> captured,
                 const std::unordered_set<const Layer*>& repeated, std::string suffix);

  /// False for what depends on extents, which have symbols of their own in a body.
  bool may_leave(const Tensor& tensor) const;
  /// Only for a tensor that may.
  Tensor* operator()(const Tensor& tensor);

 private:
  void find_constants();

  Network& network_;
  const Network& body_;
  LayerCopies copies_;
  std::unordered_set<const Tensor*> inputs_;
  std::unordered_set<const Layer*> layers_, done_;
  std::vector<const Layer*> order_;
};

}  // namespace opwright
