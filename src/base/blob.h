#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace opwright {

/// Immutable bytes with shared ownership: a weight in a mapped file, a folded constant, packed
/// code. Copying a Blob copies a pointer. An empty Blob stands for "no data".
class Blob {
 public:
  Blob() = default;
  /// `owner` keeps [data, data + size) alive.
  Blob(std::shared_ptr<const void> owner, const void* data, size_t size)
      : owner_(std::move(owner)), data_(static_cast<const std::byte*>(data)), size_(size) {}

  /// A private, 64-byte aligned copy of the bytes.
  static Blob copy(const void* data, size_t size);
  /// Uninitialized 64-byte aligned memory, which `fill` writes before the Blob is shared.
  template <class Fill>
  static Blob make(size_t size, Fill&& fill) {
    std::shared_ptr<void> memory = allocate(size);
    fill(memory.get());
    return Blob(memory, memory.get(), size);
  }

  const std::byte* data() const { return data_; }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  size_t size() const { return size_; }
  bool empty() const { return data_ == nullptr; }
  explicit operator bool() const { return !empty(); }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  friend bool operator==(const Blob& a, const Blob& b) {
    return a.size_ == b.size_ &&
           (a.size_ == 0 || a.data_ == b.data_ || std::memcmp(a.data_, b.data_, a.size_) == 0);
  }

 private:
  static std::shared_ptr<void> allocate(size_t size);

  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace opwright
