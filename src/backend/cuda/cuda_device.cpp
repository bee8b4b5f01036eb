#include "backend/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "backend/cuda/code_format.h"
#include "backend/cuda/compile_cuda.h"
#include "backend/cuda/cublaslt_product.h"
#include "backend/cuda/cudnn_convolution.h"
#include "backend/cuda/events.h"
#include "backend/cuda/nccl_collective.h"
#include "backend/cuda/relaxed_capture.h"
#include "backend/gpu/agreement_checks.h"
#include "backend/gpu/kernels.h"
#include "network/domain_guard.h"

namespace opwright::cuda {
namespace {

std::string device_name(CUdevice device) {
  std::array<char, 256> name{};
  check(driver().cuDeviceGetName(name.data(), name.size(), device), "asking for the GPU's name");
  return name.data();
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, CUcontext context) : ordinal_(ordinal), context_(context) {
  check(driver().cuDeviceGet(&device_, ordinal), "asking for GPU ", ordinal);
  capability_ = {attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                 attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
  max_shared_memory_ = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  cache_ = static_cast<uint64_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  has_pools_ = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
  name_ = device_name(device_);
  size_t memory = 0;
  check(driver().cuDeviceTotalMem(&memory, device_), "asking for the GPU's memory");
  memory_ = memory;
  constexpr double kGiB = 1 << 30;
  identity_ =
      str(name_, ", ", architecture(), ", ", attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
          " multiprocessors, ", attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000, " MHz, memory ",
          std::lround(static_cast<double>(memory) / kGiB), " GiB at ",
          attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000, " MHz, CUDA driver ",
          driver().version / 1000, ".", driver().version % 1000 / 10);
  // A non-blocking stream does not wait for the default stream, nor the default stream for it.
  for (CUstream* stream : {&allocating_stream_, &freeing_stream_, &timing_stream_})
    check(driver().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), "making a stream on ", name_);
  if (has_pools_) set_up_pool();
}

int CudaDevice::attribute(CUdevice_attribute which) const {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device_), "asking for properties of GPU ",
        ordinal_);
  return value;
}

std::string CudaDevice::architecture() const {
  return str("sm_", capability_.major, capability_.minor);
}

bool CudaDevice::runs(std::string_view target) const {
  const int own = 10 * capability_.major + capability_.minor;
  const std::optional<GpuRange> range = served_gpus(target);
  return range && range->first <= own && own <= range->last;
}

LaunchLimits CudaDevice::launch_limits() const {
  constexpr int64_t kGrid = 65535, kThreads = 1024, kLast = 64;
  return {.grid = {LaunchLimits::kMost, kGrid, kGrid},
          .block = {kThreads, kThreads, kLast},
          .threads = kThreads};
}

std::vector<TensorFormat> CudaDevice::formats(int rank) const {
  std::vector<TensorFormat> formats = {TensorFormat::kHWC, TensorFormat::kDHWC};
  std::erase_if(formats, [&](TensorFormat format) { return !is_valid(format, rank); });
  return formats;
}

void* CudaDevice::enter() const {
  CUcontext current = nullptr;
  check(driver().cuCtxGetCurrent(&current), "asking for the current CUDA context");
  if (current == context_) return nullptr;
  check(driver().cuCtxPushCurrent(context_), "making the context of ", name_, " current");
  return context_;
}

void CudaDevice::leave(void* entered) const noexcept {
  CUcontext popped = nullptr;
  if (entered != nullptr) driver().cuCtxPopCurrent(&popped);
}

void CudaDevice::synchronize(Queue queue) const {
  const DeviceScope scope(*this);
  const RelaxedCapture relaxed;
  check(driver().cuStreamSynchronize(static_cast<CUstream>(queue)), "work on ", name_, " failed");
}

void CudaDevice::record(void* event, Queue queue) const {
  check(driver().cuEventRecord(static_cast<CUevent>(event), static_cast<CUstream>(queue)),
        "recording the event ", event, " of the application");
}

void CudaDevice::check_queue(Queue queue) const {
  const DeviceScope scope(*this);
  CUcontext context = nullptr;
  const CUresult result = driver().cuStreamGetCtx(static_cast<CUstream>(queue), &context);
  if (is_lost(result) && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
    fail_cuda(result, "asking for a stream's context");
  require(result == CUDA_SUCCESS, "the stream ", queue, " is no CUDA stream, or is destroyed (",
          describe(result), "); pass the handle of a stream that lives until its work is done");
  if (context == context_) return;
  CUdevice device = 0;
  check(driver().cuCtxPushCurrent(context), "making the context of a stream current");
  const CUresult found = driver().cuCtxGetDevice(&device);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent(&popped);
  check(found, "asking for the GPU of a stream");
  require(device == device_, "the stream ", queue, " is one of ", device_name(device),
          " (another GPU), and the engine is on GPU ", ordinal_, ", ", name_,
          "; make the stream while that GPU is the current one");
  fail("the stream ", queue, " belongs to another CUDA context on ", name_,
       " than the engine; load the engine while the stream's context is the current one");
}

std::unique_ptr<Event> CudaDevice::make_event(bool is_timed) const {
  const DeviceScope scope(*this);
  return std::make_unique<CudaEvent>(is_timed);
}

std::shared_ptr<void> CudaDevice::make_queue() const {
  const DeviceScope scope(*this);
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream");
  return {stream, [](void* made) { driver().cuStreamDestroy(static_cast<CUstream>(made)); }};
}

std::shared_ptr<const DeviceFunction> CudaDevice::load_function(const CodeObject& code,
                                                                const std::string& name) const {
  const DeviceScope scope(*this);
  const RelaxedCapture relaxed;
  return find_function(modules_.load(*this, code), code, name);
}

void CudaDevice::make_tensor_map(const TensorMapShape& shape, const void* address, void* to) const {
  const CUtensorMapDataType type = shape.type == DataType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : shape.type == DataType::kHALF ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : shape.type == DataType::kFLOAT
                                       ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const auto rank = static_cast<cuuint32_t>(shape.extents.size());
  const std::vector<cuuint64_t> extents(shape.extents.begin(), shape.extents.end());
  const std::vector<cuuint64_t> strides(shape.strides.begin(), shape.strides.end());
  const std::vector<cuuint32_t> box(shape.box.begin(), shape.box.end());
  const std::vector<cuuint32_t> steps(shape.steps.begin(), shape.steps.end());
  auto* const map = static_cast<CUtensorMap*>(to);
  auto* const tensor = const_cast<void*>(address);
  const DeviceScope scope(*this);
  const CUresult result =
      shape.lower.empty()
          ? driver().cuTensorMapEncodeTiled(
                map, type, rank, tensor, extents.data(), strides.data(), box.data(), steps.data(),
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
          : driver().cuTensorMapEncodeIm2col(
                map, type, rank, tensor, extents.data(), strides.data(), shape.lower.data(),
                shape.upper.data(), box[0], box[1], steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result, "making a tensor map of ", rank, " axes");
}

bool CudaDevice::is_capturing(Queue queue) const {
  const DeviceScope scope(*this);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(static_cast<CUstream>(queue), &status);
  // The default stream cannot be used while a stream that waits for it is captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    fail(
        "the default stream cannot be used while a stream that is not non-blocking is captured; "
        "pass a stream of your own");
  check(result, "asking whether a stream is captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::vector<Candidate> CudaDevice::candidates(const Operator& op,
                                              const CandidateQuery& query) const {
  const gpu::KernelEntry* entry = gpu::find_entry(op.kind());
  std::vector<Candidate> found;
  if (entry != nullptr) found = entry->candidates(op, query);
  add_cublaslt_candidates(op, query, found);
  add_cudnn_candidates(op, query, found);
  return found;
}

/// A plan holds the compiled kernels of operators that need code: nothing is compiled from
/// attributes of a file.
void CudaDevice::check_operator(const Operator& op, const KernelArgs& args) const {
  const gpu::KernelEntry* entry = gpu::find_entry(op.kind());
  if (entry == nullptr)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", args.layer, "': ", name_,
              " has no kernel for ", op.kind(), ".");
  require(entry->check != nullptr, "Layer '", args.layer, "': the engine stores a ", op.kind(),
          " for a GPU without its compiled kernel, and nothing is compiled while an engine is "
          "loaded; build the engine again");
  entry->check(op, args);
}

std::unique_ptr<Kernel> CudaDevice::make_kernel(const Operator& op, const KernelArgs& args) const {
  const gpu::KernelEntry* entry = gpu::find_entry(op.kind());
  if (entry == nullptr)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", args.layer, "': ", name_,
              " has no kernel for ", op.kind(), ".");
  return entry->make(op, args);
}

PlannedOperatorPtr CudaDevice::compile(const Operator& op, const KernelArgs& args) const {
  const gpu::KernelEntry* entry = gpu::find_entry(op.kind());
  if (PlannedOperatorPtr planned = plan_cublaslt(*this, op, args)) return planned;
  if (PlannedOperatorPtr planned = plan_cudnn(*this, op, args)) return planned;
  if (PlannedOperatorPtr planned = plan_nccl(*this, op, args)) return planned;
  if (entry == nullptr || entry->generate == nullptr) return nullptr;
  gpu::require_candidate(*entry, op, args);
  std::optional<gpu::GeneratedKernel> generated = entry->generate(op, args);
  if (!generated) return nullptr;
  KernelCode code = std::move(generated->launch);
  for (KernelCheck& check : gpu::agreement_checks(op, args, code.shape_inputs))
    code.checks.push_back(std::move(check));
  try {
    code.object = compile_cuda(*this, generated->source, str(op.kind(), " kernel ", code.name),
                               args.hardware_compatibility, generated->is_for_one_architecture,
                               args.gives_up);
  } catch (const Error& error) {
    throw Error(error.code(), str("Layer '", args.layer, "': ", error.what()));
  }
  code.layer_kind = op.kind();
  return make_compiled_kernel(std::move(code));
}

CacheLevel CudaDevice::cache_level(uint64_t bytes) const {
  return bytes > cache_ ? CacheLevel::kMemory : CacheLevel::kInner;
}

double CudaDevice::time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                        void* workspace, int iterations, const CacheScene&) const {
  const DeviceScope scope(*this);
  const std::lock_guard lock(timing_mutex_);
  const Queue queue = timing_stream_;
  const DomainGuard guard(kernel.domain(), queue);
  CudaEvent begin(true), end(true);
  const auto milliseconds = [&](int runs) {
    begin.record(queue);
    for (int run = 0; run < runs; ++run) kernel.enqueue(inputs, outputs, workspace, queue);
    end.record(queue);
    end.synchronize();
    return static_cast<double>(end.milliseconds_since(begin)) / runs;
  };
  milliseconds(1);
  // A short kernel takes the GPU less time than the host needs to launch it. With several launches
  // the host is ahead, so its time is not measured. Callbacks are timed with their work on the
  // host.
  constexpr double kShort = 0.02;
  constexpr int kBatch = 20;
  const int runs = kernel.domain() == nullptr && milliseconds(1) < kShort ? kBatch : 1;
  std::vector<double> times(static_cast<size_t>(std::max(iterations, 1)));
  for (double& time : times) time = milliseconds(runs);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace opwright::cuda
