#include "backend/zeroed_sizes.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/memory.h"
#include "base/types.h"

namespace opwright {
namespace {

class ZeroedSizes final : public Kernel {
 public:
  struct Size {
    size_t output = 0;
    size_t bytes = 0;
  };
  ZeroedSizes(std::unique_ptr<Kernel> kernel, std::vector<Size> sizes, const Device& device)
      : kernel_(std::move(kernel)), sizes_(std::move(sizes)), device_(device) {
    if (device.is_host()) return;
    zero_ = std::make_unique<PinnedMemory>(device, sizeof(int64_t));
    std::memset(zero_->data(), 0, sizeof(int64_t));
  }

  size_t workspace_size() const override { return kernel_->workspace_size(); }
  std::vector<PackedInput> packed() const override { return kernel_->packed(); }
  int in_place_input() const override { return kernel_->in_place_input(); }
  void on_values_change(int input, std::span<const int64_t> elements) override {
    kernel_->on_values_change(input, elements);
  }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    kernel_->on_shape_change(inputs, outputs);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    for (const Size& size : sizes_) {
      if (zero_ == nullptr) {
        std::memset(outputs[size.output], 0, size.bytes);
      } else {
        device_.copy(outputs[size.output], zero_->data(), size.bytes, queue);
      }
    }
    kernel_->enqueue(inputs, outputs, workspace, queue);
  }
  std::string capture_obstacle() const override { return kernel_->capture_obstacle(); }
  ExecutionDomain* domain() const override { return kernel_->domain(); }
  std::string description() const override { return kernel_->description(); }

 private:
  const std::unique_ptr<Kernel> kernel_;
  const std::vector<Size> sizes_;
  const Device& device_;
  std::unique_ptr<PinnedMemory> zero_;  ///< null where the host writes the outputs
};

}  // namespace

std::unique_ptr<Kernel> with_zeroed_sizes(std::unique_ptr<Kernel> kernel,
                                          std::span<const int> symbols,
                                          std::span<const PortType> outputs, const Device& device) {
  std::vector<ZeroedSizes::Size> sizes;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] >= 0) sizes.push_back({i, static_cast<size_t>(bytes_of(outputs[i].dtype, 1))});
  if (sizes.empty()) return kernel;
  return std::make_unique<ZeroedSizes>(std::move(kernel), std::move(sizes), device);
}

}  // namespace opwright
