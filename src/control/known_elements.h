#pragma once

#include <optional>
#include <unordered_map>

#include "network/network.h"

namespace opwright {

/// The elements of tensors that follow from constants alone, computed while a network is made:
/// conditions and numbers of iterations that decide what it becomes. Its tensors must outlive the
/// object.
class KnownElements {
 public:
  /// Dense, of the tensor's type; nothing where they depend on inputs or shapes, are many or far
  /// from constants, or come from plugins.
  std::optional<Blob> of(const Tensor& tensor);

 private:
  std::unordered_map<const Tensor*, std::optional<Blob>> known_;
};

}  // namespace opwright
