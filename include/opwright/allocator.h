#pragma once

/// \file
/// Interfaces that the application implements to provide device memory.

#include "types.h"

namespace opwright {

enum class AllocatorFlag : int32_t {
  kRESIZABLE = 0,  ///< reallocate() may be called on the block.
};
/// A set of allocator flags: bit `1U << int(flag)` for each.
using AllocatorFlags = uint32_t;

namespace impl {
template <>
struct EnumMaxImpl<AllocatorFlag> {
  static constexpr int32_t kVALUE = 1;
};
}  // namespace impl

namespace v_1_0 {

/// Provides device memory (host memory on the CPU). Called from any thread, possibly from several
/// at once. Must outlive every object that uses it.
class IGpuAllocator : public IVersionedInterface {
 public:
  /// \param size in bytes; for 0 the result is null.
  /// \param alignment in bytes, a power of two; 0 if any will do.
  /// \return null on failure.
  virtual void* allocate(uint64_t const size, uint64_t const alignment,
                         AllocatorFlags const flags) noexcept = 0;

  ~IGpuAllocator() override = default;
  IGpuAllocator() = default;

  /// Grows or shrinks a block. Keeps its content up to the smaller size.
  /// \return the block's new address, or null if that is not possible; the old one is valid then.
  virtual void* reallocate(void* const /*baseAddr*/, uint64_t /*alignment*/,
                           uint64_t /*newSize*/) noexcept {
    return nullptr;
  }

  /// Frees a block; null is allowed.
  /// \return whether it was freed.
  virtual bool deallocate(void* const memory) noexcept = 0;

  /// As allocate(), in the order of the work on `stream`.
  virtual void* allocateAsync(uint64_t const size, uint64_t const alignment,
                              AllocatorFlags const flags, cudaStream_t /*stream*/) noexcept {
    return allocate(size, alignment, flags);
  }

  /// As deallocate(), in the order of the work on `stream`.
  virtual bool deallocateAsync(void* const memory, cudaStream_t /*stream*/) noexcept {
    return deallocate(memory);
  }

  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }

 protected:
  IGpuAllocator(IGpuAllocator const&) = default;
  IGpuAllocator(IGpuAllocator&&) = default;
  IGpuAllocator& operator=(IGpuAllocator const&) & = default;
  IGpuAllocator& operator=(IGpuAllocator&&) & = default;
};

/// An asynchronous allocator. Only the two stream-ordered methods need an implementation; the other
/// methods call them with a null stream.
class IGpuAsyncAllocator : public IGpuAllocator {
 public:
  IGpuAsyncAllocator() = default;
  ~IGpuAsyncAllocator() override = default;

  void* allocateAsync(uint64_t const size, uint64_t const alignment, AllocatorFlags const flags,
                      cudaStream_t stream) noexcept override = 0;
  bool deallocateAsync(void* const memory, cudaStream_t stream) noexcept override = 0;

  void* allocate(uint64_t const size, uint64_t const alignment,
                 AllocatorFlags const flags) noexcept override {
    return allocateAsync(size, alignment, flags, nullptr);
  }
  bool deallocate(void* const memory) noexcept override { return deallocateAsync(memory, nullptr); }

  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IGpuAllocator", 1, 0}; }
};

}  // namespace v_1_0
using IGpuAllocator = v_1_0::IGpuAllocator;
using IGpuAsyncAllocator = v_1_0::IGpuAsyncAllocator;

}  // namespace opwright
