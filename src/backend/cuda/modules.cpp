#include "backend/cuda/modules.h"

#include <array>
#include <string_view>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/relaxed_capture.h"
#include "base/hash.h"
#include "base/library.h"

namespace opwright::cuda {
namespace {

/// Whether the code is PTX: cubins and fatbins are binary.
bool is_ptx(const Blob& code) {
  const std::string_view bytes(code.as<char>(), code.size());
  return !bytes.starts_with("\177ELF") && !bytes.starts_with("\x50\xed\x55\xba");
}

/// Explains why the driver does not take the code, beyond its own error text.
std::string explain(CUresult result, const CodeObject& code, const CudaDevice& device) {
  const std::string target = code.target.empty() ? "another architecture" : code.target;
  switch (result) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_IMAGE:
      return str("the code is for ", target, " and the GPU is ", device.architecture(), " (",
                 device.name(), "); compile it for that, or build the engine on this GPU");
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "its PTX is of a newer CUDA than the driver's; update NVIDIA's driver, or compile to "
             "a "
             "cubin";
    case CUDA_ERROR_INVALID_PTX:
      return str("its PTX, for ", target, ", does not compile for ", device.architecture());
    default:
      return "";
  }
}

CUmodule load_module(const CudaDevice& device, const CodeObject& code) {
  // The driver needs PTX as text that ends with a null.
  std::string text;
  const void* image = code.bytes.data();
  if (is_ptx(code.bytes)) {
    text.assign(code.bytes.as<char>(), code.bytes.size());
    image = text.c_str();
  }
  std::array<char, 8192> log{};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, options.size()> values = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  const CUresult result =
      driver().cuModuleLoadDataEx(&module, image, options.size(), options.data(), values.data());
  if (result == CUDA_SUCCESS) return module;
  std::string what = str("'", code.name, "' cannot be loaded onto the GPU");
  if (const std::string reason = explain(result, code, device); !reason.empty())
    what += ": " + reason;
  if (log[0] != '\0') what += str(":\n", log.data(), "\n");
  if (!is_lost(result) && result != CUDA_ERROR_OUT_OF_MEMORY)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, what, " (", describe(result), ")");
  fail_cuda(result, what);
}

/// Functions that are in use, with the number of CudaFunction objects of each.
class FoundFunctions {
 public:
  void add(CUfunction function) {
    const std::lock_guard lock(mutex_);
    ++counts_[function];
  }
  void remove(CUfunction function) {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(function);
    if (--found->second == 0) counts_.erase(found);
  }
  bool has(CUfunction function) const {
    const std::lock_guard lock(mutex_);
    return counts_.contains(function);
  }
  /// Never destroyed: functions may be given up until the process ends.
  static FoundFunctions& get() { return Library::part<FoundFunctions>(); }

 private:
  mutable std::mutex mutex_;
  std::map<CUfunction, int> counts_;
};

class CudaFunction final : public DeviceFunction {
 public:
  CudaFunction(std::shared_ptr<const Module> module, CUfunction function, std::string name)
      : driver_(driver()),
        function_(function),
        module_(std::move(module)),
        name_(std::move(name)),
        num_parameters_(count_parameters()) {
    allow_large_cluster();
    FoundFunctions::get().add(function_);
  }
  ~CudaFunction() override { FoundFunctions::get().remove(function_); }
  CudaFunction(const CudaFunction&) = delete;
  CudaFunction& operator=(const CudaFunction&) = delete;

  int num_parameters() const override { return num_parameters_; }

  void allow_shared_memory(uint32_t bytes) const override {
    if (bytes == 0) return;  // the compiler limits static variables
    // Of this, the kernel's static variables take a part.
    constexpr uint32_t kAlwaysAllowed = 48 * 1024;
    const CudaDevice& device = module_->device();
    int fixed = 0;
    check(driver_.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_),
          "asking for the shared memory of '", name_, "'");
    if (bytes + static_cast<uint32_t>(fixed) <= kAlwaysAllowed) return;
    const int most = device.max_shared_memory() - fixed;
    if (std::cmp_greater(bytes, most))
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "kernel '", name_, "' is to run with ", bytes,
                " bytes of dynamic shared memory per block; ", device.name(), " gives at most ",
                most, " to it");
    // The function may have several callers, so the limit is only ever raised.
    const std::lock_guard lock(mutex_);
    int allowed = 0;
    check(driver_.cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                     function_),
          "asking for the shared memory of '", name_, "'");
    if (std::cmp_less_equal(bytes, allowed)) return;
    check(driver_.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                     static_cast<int>(bytes)),
          "allowing kernel '", name_, "' ", bytes, " bytes of dynamic shared memory");
  }

  void launch(const LaunchShape& shape, void* const* arguments, Queue queue) const override {
    const CUresult result =
        shape.begins_early
            ? launch_early(shape, arguments, queue)
            : driver_.cuLaunchKernel(function_, shape.grid[0], shape.grid[1], shape.grid[2],
                                     shape.block[0], shape.block[1], shape.block[2],
                                     shape.shared_memory, static_cast<CUstream>(queue),
                                     const_cast<void**>(arguments), nullptr);
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail_launch(result, shape);
  }

 private:
  /// CUDA requires a permission for clusters that are larger than all GPUs of the architecture can
  /// run.
  void allow_large_cluster() const {
    constexpr int kPortableBlocks = 8;
    int64_t blocks = 1;
    for (const CUfunction_attribute attribute :
         {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
          CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
      int extent = 0;
      check(driver_.cuFuncGetAttribute(&extent, attribute, function_),
            "asking for the clusters of '", name_, "'");
      blocks *= std::max(1, extent);
    }
    if (blocks <= kPortableBlocks) return;
    check(driver_.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                                     1),
          "allowing kernel '", name_, "' clusters of ", blocks, " blocks");
  }

  int count_parameters() const {
    if (driver_.cuFuncGetParamInfo == nullptr) return -1;
    int count = 0;
    size_t offset = 0, size = 0;
    while (driver_.cuFuncGetParamInfo(function_, count, &offset, &size) == CUDA_SUCCESS) ++count;
    return count;
  }

  /// Programmatic dependent launch: CUDA C++ programming guide, "Programmatic Dependent Launch and
  /// Synchronization".
  CUresult launch_early(const LaunchShape& shape, void* const* arguments, Queue queue) const {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = shape.grid[0];
    config.gridDimY = shape.grid[1];
    config.gridDimZ = shape.grid[2];
    config.blockDimX = shape.block[0];
    config.blockDimY = shape.block[1];
    config.blockDimZ = shape.block[2];
    config.sharedMemBytes = shape.shared_memory;
    config.hStream = static_cast<CUstream>(queue);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return driver_.cuLaunchKernelEx(&config, function_, const_cast<void**>(arguments), nullptr);
  }

  [[noreturn]] void fail_launch(CUresult result, const LaunchShape& shape) const {
    const auto& [grid, block, shared_memory, begins_early] = shape;
    fail_cuda(result, str("launching kernel '", name_, "' over a grid of ", grid[0], " x ", grid[1],
                          " x ", grid[2], " blocks of ", block[0], " x ", block[1], " x ", block[2],
                          " threads with ", shared_memory, " bytes of shared memory"));
  }

  const Driver& driver_;
  const CUfunction function_;
  const std::shared_ptr<const Module> module_;
  const std::string name_;
  const int num_parameters_;
  mutable std::mutex mutex_;
};

}  // namespace

Module::~Module() {
  try {
    const DeviceScope scope(device_);
    const RelaxedCapture relaxed;
    driver().cuModuleUnload(module_);
  } catch (const Error&) {
    // The context is gone, and the code with it.
  }
}

std::shared_ptr<const Module> ModuleCache::load(const CudaDevice& device, const CodeObject& code) {
  const Key key{hash_bytes(code.bytes.bytes()), code.bytes.size()};
  const std::lock_guard lock(mutex_);
  std::erase_if(modules_, [](const auto& entry) { return entry.second.second.expired(); });
  const auto [first, last] = modules_.equal_range(key);
  for (auto entry = first; entry != last; ++entry)
    if (entry->second.first == code.bytes)
      if (std::shared_ptr<const Module> module = entry->second.second.lock()) return module;
  auto module = std::make_shared<const Module>(device, load_module(device, code));
  modules_.emplace(key, std::pair(code.bytes, std::weak_ptr(module)));
  return module;
}

std::shared_ptr<const DeviceFunction> find_function(std::shared_ptr<const Module> module,
                                                    const CodeObject& code,
                                                    const std::string& name) {
  CUfunction function = nullptr;
  const CUresult result = driver().cuModuleGetFunction(&function, module->get(), name.c_str());
  require(result != CUDA_ERROR_NOT_FOUND, "'", code.name, "' has no kernel of the name '", name,
          "'; is it extern \"C\"?");
  check(result, "looking for kernel '", name, "' in '", code.name, "'");
  return std::make_shared<CudaFunction>(std::move(module), function, name);
}

bool is_found(CUfunction function) { return FoundFunctions::get().has(function); }

}  // namespace opwright::cuda
