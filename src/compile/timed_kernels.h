#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "network/operator.h"

namespace opwright {

// Kernels that wrap a timed kernel so that each of its runs begins as in an engine.

/// A kernel whose size tensors are 0 at the start of each run.
class WithSizes final : public Kernel {
 public:
  /// `zero` is an INT64 in the device's memory.
  WithSizes(Kernel& kernel, const Device& device, const void* zero)
      : kernel_(kernel), device_(device), zero_(zero) {}
  /// Declares that the output is a size tensor of the type.
  void add(size_t output, DataType type) { sizes_.emplace_back(output, type); }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override;
  ExecutionDomain* domain() const override { return kernel_.domain(); }

 private:
  Kernel& kernel_;
  const Device& device_;
  const void* const zero_;
  std::vector<std::pair<size_t, DataType>> sizes_;
};

/// A kernel whose runs find constants in other memory than the runs before. A device whose caches
/// nothing empties no longer caches a copy when its turn comes again.
class WithCopies final : public Kernel {
 public:
  /// `inputs`: the addresses that all runs share, whatever enqueue() is given.
  WithCopies(Kernel& kernel, std::span<const void* const> inputs)
      : kernel_(kernel), inputs_(inputs.begin(), inputs.end()) {}
  /// Lets the runs take one of the copies after the other as that input.
  void add(size_t input, std::vector<const void*> copies) {
    copies_.emplace_back(input, std::move(copies));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override;
  ExecutionDomain* domain() const override { return kernel_.domain(); }

 private:
  Kernel& kernel_;
  std::vector<const void*> inputs_;
  std::vector<std::pair<size_t, std::vector<const void*>>> copies_;
  size_t run_ = 0;
};

/// Number of places in which constants of `bytes` bytes have to lie so that the device's caches
/// hold none of them.
size_t count_copies(const Device& device, uint64_t bytes);

}  // namespace opwright
