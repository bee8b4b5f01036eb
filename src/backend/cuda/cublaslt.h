#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "network/kernel.h"

namespace opwright::cuda {

class CudaDevice;

/// cuBLASLt, NVIDIA's library of matrix products, loaded when first used. Thread safe.
class CublasLt {
 public:
  /// The library, or null where it cannot be used; then `reason` says why, and how to mend it.
  static const CublasLt* find(std::string& reason);

  /// "13.1.0".
  const std::string& version() const { return version_; }

  /// Function applied to a product before it is stored.
  enum class Activation : uint8_t { kNone, kRelu, kGeluTanh };
  /// A stack of products [rows, depth] x [depth, columns], all row by row in memory.
  struct Product {
    DataType type = DataType::kFLOAT;  ///< FP32, FP16 or BF16, of operands and results
    bool is_tf32 = false;              ///< whether FP32 may be rounded to TF32
    int64_t rows = 0, columns = 0, depth = 0;
    bool is_a_transposed = false, is_b_transposed = false;
    int64_t count = 1, a_stride = 0, b_stride = 0;  ///< matrices; distances in elements
    bool has_bias = false;                          ///< one element for each column
    Activation activation = Activation::kNone;
    uint32_t alignment = 16;  ///< of all addresses, in bytes
    friend bool operator==(const Product&, const Product&) = default;
  };
  /// An algorithm. It depends only on the product, the library's version and the device.
  struct Algorithm {
    std::array<uint64_t, 8> data{};
    size_t workspace = 0;  ///< bytes
  };
  /// A product described to the library.
  class Plan {
   public:
    virtual ~Plan() = default;
    /// Algorithms that the library chooses and that give the same bits in every run, the best guess
    /// first, at most `count`. Throws Error where the library fails.
    virtual std::vector<Algorithm> algorithms(int count, size_t workspace) const = 0;
    /// Throws Error.
    virtual void run(const Algorithm& algorithm, const void* a, const void* b, const void* bias,
                     void* result, void* workspace, Queue queue) = 0;
  };
  /// Plans a product on the device whose scope the caller is in. Throws Error.
  std::unique_ptr<Plan> plan(const CudaDevice& device, const Product& product) const;

 private:
  struct Functions;
  class ProductPlan;
  CublasLt(const Functions* functions, std::string version)
      : functions_(functions), version_(std::move(version)) {}
  void check(int status, const char* what) const;
  struct CublasLtContext* handle(const CudaDevice& device) const;

  const Functions* functions_;  // never unloaded
  const std::string version_;
};

}  // namespace opwright::cuda
