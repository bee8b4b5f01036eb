#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "network/kernel.h"

namespace opwright::cuda {

class CudaDevice;

/// cuDNN, NVIDIA's library of neural networks, used through graphs of operations. It is loaded when
/// first used. Thread safe.
class Cudnn {
 public:
  /// The library, or null where it cannot be used; then `reason` says why, and how to mend it.
  static const Cudnn* find(std::string& reason);

  /// "9.19.0".
  const std::string& version() const { return version_; }

  /// Function applied to a convolution's result before it is stored.
  enum class Activation : uint8_t { kNone, kRelu, kSigmoid, kTanh };
  /// y = activation(convolution(x, kernel) + bias + residual). The shapes are [images, channels,
  /// ...] for x, [maps, channels of a group, ...] for the kernel, and [images, maps, ...] for y.
  struct Convolution {
    DataType type = DataType::kFLOAT;  ///< FP32, FP16 or BF16, of all tensors
    bool is_tf32 = false;              ///< whether FP32 may be rounded to TF32
    bool is_channels_last = false;     ///< whether all tensors have channels last in memory
    std::vector<int64_t> x, kernel, y;
    std::vector<int64_t> stride, dilation, pre_padding, post_padding;  ///< per spatial axis
    bool has_bias = false;                                             ///< one element for each map
    bool has_residual = false;  ///< with y's shape and layout
    Activation activation = Activation::kNone;
    uint32_t alignment = 16;  ///< of all addresses, in bytes
    friend bool operator==(const Convolution&, const Convolution&) = default;
  };
  /// A convolution with one of the library's engines.
  class Plan {
   public:
    virtual ~Plan() = default;
    virtual size_t workspace() const = 0;  ///< bytes
    /// A missing operand is null. Throws Error.
    virtual void run(const void* x, const void* kernel, const void* bias, const void* residual,
                     void* y, void* workspace, Queue queue) const = 0;
  };
  /// Plans that the library chooses and that give the same bits in every run, the best guess first,
  /// at most `count`. Each takes at most `workspace` bytes. The plans are for the device whose
  /// scope the caller is in. Throws Error where the library fails.
  std::vector<std::shared_ptr<const Plan>> plans(const CudaDevice& device,
                                                 const Convolution& convolution, int count,
                                                 size_t workspace) const;

 private:
  struct Functions;
  class Descriptor;
  class ConvolutionPlan;
  Cudnn(const Functions* functions, std::string version)
      : functions_(functions), version_(std::move(version)) {}
  void check(int status, const char* what) const;
  struct CudnnContext* handle(const CudaDevice& device) const;

  const Functions* functions_;  // never unloaded
  const std::string version_;
};

}  // namespace opwright::cuda
