#pragma once

#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "compile/expansion.h"

namespace opwright {

/// Finds tensors outside a body for tensors of the body that are the same in all iterations. If the
/// body computes such a tensor, the network around it gets the layers.
class TensorsOutside {
 public:
  /// \param captured the tensors that the body's inputs stand for; body.h names the inputs
  /// \param repeated the body's layers that depend on the iteration
  /// \param suffix is appended to the names of layers
  TensorsOutside(Network& network, const Network& body, std::span<Tensor* const> captured,
                 const std::unordered_set<const Layer*>& repeated, std::string suffix);

  /// False for a tensor that depends on extents, because a body has symbols of its own.
  bool may_leave(const Tensor& tensor) const;
  /// Called only for a tensor that may_leave().
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
