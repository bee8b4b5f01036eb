#pragma once

#include <cstddef>
#include <vector>

#include "base/blob.h"
#include "opwright/runtime.h"

namespace opwright {

/// Bytes that the caller of a public method gets.
class HostMemoryApi final : public IHostMemory {
 public:
  explicit HostMemoryApi(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  /// Concatenates the pieces.
  explicit HostMemoryApi(const std::vector<Blob>& pieces) {
    size_t size = 0;
    for (const Blob& piece : pieces) size += piece.size();
    bytes_.reserve(size);
    for (const Blob& piece : pieces) {
      bytes_.insert(bytes_.end(), piece.data(), piece.data() + piece.size());
    }
  }
  void* data() const noexcept override { return bytes_.data(); }
  std::size_t size() const noexcept override { return bytes_.size(); }
  DataType type() const noexcept override { return DataType::kINT8; }

 private:
  mutable std::vector<std::byte> bytes_;  // data() is const in the interface
};

}  // namespace opwright
