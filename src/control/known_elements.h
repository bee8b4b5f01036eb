#pragma once

#include <optional>
#include <unordered_map>

#include "network/network.h"

namespace opwright {

/// Computes elements of tensors that only depend on constants while a network is made. Conditions
/// and numbers of iterations decide what the network becomes. Tensors must outlive the object.
class KnownElements {
 public:
  /// The dense elements in the tensor's type. Empty if they depend on inputs or shapes, come from
  /// plugins, or need too many elements or layers.
  std::optional<Blob> of(const Tensor& tensor);

 private:
  std::unordered_map<const Tensor*, std::optional<Blob>> known_;
};

}  // namespace opwright
