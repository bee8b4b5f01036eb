#include "plugin/kernel/device_kernel.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "backend/memory.h"
#include "base/error.h"
#include "plugin/kernel/launch_values.h"
#include "plugin/kernel/tensor_maps.h"

namespace opwright {

namespace {

/// Alignment of scratch buffers, as compilers for GPUs expect it.
constexpr size_t kScratchAlignment = 256;
/// The most bytes of all scratch buffers, more than any device has.
constexpr size_t kMaxScratch = size_t{1} << 48U;

/// Loads the function. Puts the kernel's name before the device's error.
std::shared_ptr<const DeviceFunction> load(const LaunchValues& values, const Device& device,
                                           const CodeObject& object) {
  try {
    return device.load_function(object, values.launch().symbol);
  } catch (const Error& error) {
    throw Error(error.code(), values.who() + error.what());
  }
}

size_t round_up(size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

class DeviceKernel final : public Kernel {
 public:
  DeviceKernel(const KernelLaunch& launch, const CodeObject& object, const KernelArgs& args)
      : values_(launch, object.name, args),
        device_(*args.device),
        function_(load(values_, device_, object)),
        limits_(device_.launch_limits()),
        maps_(values_, args) {
    const int expected = function_->num_parameters();
    const size_t given = values_.num_arguments();
    // Pointers that the code does not read are null, as from the compiler's own launcher.
    if (std::cmp_not_equal(expected, given))
      values_.add_null_pointers(
          device_.backend().code_format().unread_pointers(object, values_.launch().symbol, given));
    arguments_ = values_.arguments();
    require(
        expected < 0 || static_cast<size_t>(expected) == values_.num_arguments(), values_.who(),
        "the code takes ", expected, " parameters, but it is called with ", values_.num_arguments(),
        " arguments (", values_.describe_arguments(),
        "); a kernel has a pointer for each input, the extra arguments, a pointer for each "
        "output, and a scratch pointer for each that the compiler adds and the kernel reads (of "
        "Triton's two: pass what opwright.aot.triton returns, or bytes with an attribute "
        "scratch)");
    plan_scratch(launch, args);
    for (size_t i = 0; i < launch.arguments.size(); ++i)
      if (launch.arguments[i].type == ArgumentType::kPOINTER) pointed_.push_back(i);
    are_values_there_ = pointed_.empty();
    if (are_values_there_) return;
    host_values_.resize(pointed_.size());
    device_values_.grow(device_, pointed_.size() * sizeof(int64_t), nullptr,
                        args.services != nullptr ? args.services->last_use : nullptr);
    for (size_t i = 0; i < pointed_.size(); ++i)
      values_.set_pointer_argument(pointed_[i], device_values_.data() + i * sizeof(int64_t));
    // Values that are 0 for all shapes need no copy in a run, which may be captured. The copy does
    // not use the default queue: it would wait for the captured queue and break the capture.
    const std::shared_ptr<void> queue = device_.make_queue();
    upload(queue.get());
    device_.synchronize(queue.get());
  }

  std::string description() const override { return "compiled:" + values_.launch().symbol; }
  size_t workspace_size() const override { return workspace_size_; }

  void on_values_change(int input, std::span<const int64_t> elements) override {
    values_.set_values(input, elements);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    values_.set_shapes(inputs, outputs);
    prepare();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    values_.set_pointers(inputs, outputs);
    if (is_special_) [[unlikely]] {
      if (!is_launched_) return;
      for (size_t i = 0; i < scratch_.size(); ++i)
        values_.set_scratch(i, scratch_[i].bytes == 0
                                   ? nullptr
                                   : static_cast<std::byte*>(workspace) + scratch_[i].offset);
      if (!are_values_there_) upload(queue);
      maps_.bind(inputs, queue);
    }
    function_->launch(shape_, arguments_, queue);
  }

 private:
  struct Scratch {
    size_t offset = 0, room = 0, bytes = 0;  ///< `room`: bytes at the profile's maximum
  };

  /// Places scratch buffers in the workspace.
  void plan_scratch(const KernelLaunch& launch, const KernelArgs& args) {
    if (launch.scratch.empty()) return;
    std::vector<int64_t> largest;
    for (const PortDesc& port : args.inputs)
      if (port.present) largest.insert(largest.end(), port.max.begin(), port.max.end());
    scratch_.resize(launch.scratch.size());
    for (size_t i = 0; i < scratch_.size(); ++i) {
      int64_t bytes = 0;
      try {
        bytes = launch.evaluate(launch.scratch[i], largest);
      } catch (const Error& error) {
        fail(values_.who(), "the size of scratch buffer ", i, " (", values_.text(launch.scratch[i]),
             ") is not known for the profile's largest shapes: ", error.what());
      }
      if (bytes < 0)
        fail(values_.who(), "the size of scratch buffer ", i, " is ", bytes, " (",
             values_.text(launch.scratch[i]), ") for the profile's largest shapes");
      scratch_[i] = {workspace_size_, round_up(static_cast<size_t>(bytes)), 0};
      require(scratch_[i].room <= kMaxScratch - workspace_size_, values_.who(),
              "its scratch buffers take more than ", kMaxScratch,
              " bytes for the profile's largest shapes");
      workspace_size_ += scratch_[i].room;
    }
  }

  void prepare() {
    values_.evaluate();
    const KernelLaunch& launch = values_.launch();
    int64_t threads = 1;
    for (size_t i = 0; i < 3; ++i) {
      require_at_most(limits_.grid[i], launch.grid[i], LaunchValues::kGridNames[i]);
      require_at_most(limits_.block[i], launch.block[i], LaunchValues::kBlockNames[i]);
      shape_.grid[i] = static_cast<uint32_t>(values_.value(launch.grid[i]));
      shape_.block[i] = static_cast<uint32_t>(values_.value(launch.block[i]));
      threads *= values_.value(launch.block[i]);
    }
    require(threads <= limits_.threads, values_.who(), "a block has ", shape_.block[0], " x ",
            shape_.block[1], " x ", shape_.block[2], " threads; GPUs have at most ",
            limits_.threads);
    require_at_most(std::numeric_limits<int32_t>::max(), launch.shared_memory, "shared_mem");
    shape_.begins_early = launch.begins_early;
    shape_.shared_memory = static_cast<uint32_t>(values_.value(launch.shared_memory));
    is_launched_ = values_.cells() > 0;
    if (is_launched_) {
      try {
        function_->allow_shared_memory(shape_.shared_memory);
      } catch (const Error& error) {
        throw Error(error.code(), str(values_.who(), "shared_mem is ", shape_.shared_memory, " (",
                                      values_.text(launch.shared_memory), "): ", error.what()));
      }
    }
    for (size_t i = 0; i < scratch_.size(); ++i) {
      scratch_[i].bytes = static_cast<size_t>(values_.value(launch.scratch[i]));
      if (scratch_[i].bytes > scratch_[i].room) [[unlikely]]
        fail(values_.who(), "scratch buffer ", i, " takes ", scratch_[i].bytes, " bytes (",
             values_.text(launch.scratch[i]), "), but ", scratch_[i].room,
             " at the profile's largest shapes; make its size largest there");
    }
    for (size_t i = 0; i < pointed_.size(); ++i) {
      const int64_t value = values_.value(launch.arguments[pointed_[i]].value);
      if (host_values_[i] == value) continue;
      host_values_[i] = value;
      are_values_there_ = false;
    }
    values_.accept();
    if (is_launched_) maps_.prepare();
    is_special_ = !scratch_.empty() || !pointed_.empty() || !maps_.empty() || !is_launched_;
  }

  void require_at_most(int64_t most, int32_t instruction, const char* what) const {
    if (values_.value(instruction) > most) [[unlikely]]
      fail(values_.who(), what, " is ", values_.value(instruction), " (", values_.text(instruction),
           "); GPUs have at most ", most, ", so let a block compute more");
  }

  void upload(Queue queue) {
    device_.copy(device_values_.data(), host_values_.data(), host_values_.size() * sizeof(int64_t),
                 queue);
    are_values_there_ = true;
  }

  LaunchValues values_;
  const Device& device_;
  const std::shared_ptr<const DeviceFunction> function_;
  const LaunchLimits limits_;
  void* const* arguments_ = nullptr;
  LaunchShape shape_;
  /// Whether a run does more than launch.
  bool is_special_ = true;
  bool is_launched_ = true;
  std::vector<Scratch> scratch_;
  size_t workspace_size_ = 0;
  TensorMaps maps_;
  std::vector<size_t> pointed_;  ///< arguments that are addresses of values
  std::vector<int64_t> host_values_;
  DeviceMemory device_values_;
  bool are_values_there_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_device_kernel(const KernelLaunch& launch, const CodeObject& object,
                                           const KernelArgs& args) {
  const Device& device = *args.device;
  if (!device.runs(object.target)) {
    const CodeFormat& format = device.backend().code_format();
    const std::string served = format.served({&object, 1}), form = format.portable_form();
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "layer '", args.layer, "': compiled kernel '",
              object.name, "' is code for ", object.target, served.empty() ? "" : ", for ", served,
              "; this device is ", device.architecture(), ". Build the engine here",
              form.empty() ? "" : ", or compile the kernel as ", form);
  }
  return std::make_unique<DeviceKernel>(launch, object, args);
}

}  // namespace opwright
