#include "backend/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace opwright::cuda {
namespace {

constexpr char kInstallCudnn[] =
    "install it (python -m pip install nvidia-cudnn-cu13), or name its file with the environment "
    "variable OPWRIGHT_CUDNN";
/// 9.0.0. Version numbers have this form since then.
constexpr size_t kFirstVersion = 90000;

// Values of cuDNN's interface, unchanged since 8.0.
enum CudnnDescriptor : int {
  kPointwiseDescriptor = 0,
  kConvolutionDescriptor = 1,
  kEngineDescriptor = 2,
  kEngineConfigDescriptor = 3,
  kHeuristicDescriptor = 4,
  kPlanDescriptor = 5,
  kConvolutionForwardDescriptor = 10,
  kOperationPointwiseDescriptor = 13,
  kGraphDescriptor = 15,
  kVariantPackDescriptor = 16,
  kTensorDescriptor = 17,
};
enum CudnnType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypePointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
};
enum CudnnAttribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kConvolutionPrecision = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionAxes = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardKernel = 703,
  kForwardX = 704,
  kForwardY = 705,
  kPointwiseOf = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorExtents = 902,
  kTensorStrides = 903,
  kTensorNumber = 906,
  kTensorIsVirtual = 907,
  kPackNumbers = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303,
};
enum CudnnValue : int {
  kCrossCorrelation = 1,
  kHeuristicFallback = 2,
  kHeuristicModeA = 3,
  kPointwiseAdd = 0,
  kPointwiseRelu = 100,
  kPointwiseTanh = 101,
  kPointwiseSigmoid = 102,
  kCudnnFloat = 0,
  kCudnnHalf = 2,
  kCudnnBfloat16 = 9,
};
enum CudnnNote : int { kTensorCore = 0, kDownConverts = 1, kReduced = 2, kNondeterministic = 4 };

int cudnn_type(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return kCudnnFloat;
    case DataType::kHALF:
      return kCudnnHalf;
    case DataType::kBF16:
      return kCudnnBfloat16;
    default:
      fail("cuDNN is asked for no convolutions of ", name(type));
  }
}

}  // namespace

struct Cudnn::Functions {
  using Handle = struct CudnnContext*;
  using Object = struct CudnnObject*;
  size_t (*cudnnGetVersion)();
  int (*cudnnCreate)(Handle*);
  int (*cudnnSetStream)(Handle, CUstream);
  int (*cudnnBackendCreateDescriptor)(int kind, Object*);
  int (*cudnnBackendDestroyDescriptor)(Object);
  int (*cudnnBackendFinalize)(Object);
  int (*cudnnBackendSetAttribute)(Object, int attribute, int type, int64_t count,
                                  const void* elements);
  int (*cudnnBackendGetAttribute)(Object, int attribute, int type, int64_t asked, int64_t* count,
                                  void* elements);
  int (*cudnnBackendExecute)(Handle, Object plan, Object pack);
};

const Cudnn* Cudnn::find(std::string& reason) {
  struct Found {
    const Cudnn* library = nullptr;
    std::string reason;
  };
  static const Found found = []() -> Found {
    std::string why;
    void* const library = open_library("OPWRIGHT_CUDNN", library_files({"libcudnn.so.9"}), why);
    if (library == nullptr)
      return {nullptr, str("cuDNN cannot be loaded (", why, "); ", kInstallCudnn)};
    auto functions = std::make_unique<Functions>();
    std::string missing;
    const auto look_up = [&](auto& function, const char* name) {
      if (!find_function(library, name, function) && missing.empty()) missing = name;
    };
#define OPWRIGHT_FIND(name) look_up(functions->name, #name)
    OPWRIGHT_FIND(cudnnGetVersion);
    OPWRIGHT_FIND(cudnnCreate);
    OPWRIGHT_FIND(cudnnSetStream);
    OPWRIGHT_FIND(cudnnBackendCreateDescriptor);
    OPWRIGHT_FIND(cudnnBackendDestroyDescriptor);
    OPWRIGHT_FIND(cudnnBackendFinalize);
    OPWRIGHT_FIND(cudnnBackendSetAttribute);
    OPWRIGHT_FIND(cudnnBackendGetAttribute);
    OPWRIGHT_FIND(cudnnBackendExecute);
#undef OPWRIGHT_FIND
    if (!missing.empty())
      return {nullptr, str("cuDNN is too old, it has no ", missing, "; ", kInstallCudnn)};
    const size_t number = functions->cudnnGetVersion();
    if (number < kFirstVersion)
      return {nullptr, str("cuDNN is too old, expected 9.0.0 or newer; ", kInstallCudnn)};
    return {new Cudnn(functions.release(), version_text(number)), {}};
  }();
  reason = found.reason;
  return found.library;
}

void Cudnn::check(int status, const char* what) const {
  if (status == 0) return;
  // The thousands of a status are its kind.
  constexpr int kKinds = 1000, kNotSupported = 3;
  fail_with(ErrorCode::kFAILED_EXECUTION, "cuDNN ", version_, ": ", what, " failed with status ",
            status, status / kKinds == kNotSupported ? " (not supported)" : "");
}

struct CudnnContext* Cudnn::handle(const CudaDevice& device) const {
  return handle_of<CudnnContext>(device, [&](CudnnContext*& handle) {
    check(functions_->cudnnCreate(&handle), "making a handle");
  });
}

/// One of the library's objects. Attributes describe it.
class Cudnn::Descriptor {
 public:
  Descriptor(const Cudnn& library, int kind) : library_(library) {
    library.check(library.functions_->cudnnBackendCreateDescriptor(kind, &object_),
                  "making a descriptor");
  }
  ~Descriptor() { library_.functions_->cudnnBackendDestroyDescriptor(object_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Functions::Object object() const { return object_; }
  int try_set(int attribute, int type, int64_t count, const void* elements) {
    return library_.functions_->cudnnBackendSetAttribute(object_, attribute, type, count, elements);
  }
  void set(int attribute, int type, int64_t count, const void* elements) {
    library_.check(try_set(attribute, type, count, elements), "describing a convolution");
  }
  template <class T>
  void set(int attribute, int type, const T& value) {
    set(attribute, type, 1, &value);
  }
  void set(int attribute, const std::vector<int64_t>& values) {
    set(attribute, kTypeInt64, std::ssize(values), values.data());
  }
  void set(int attribute, const Descriptor& value) {
    set(attribute, kTypeDescriptor, 1, &value.object_);
  }
  int try_finish() { return library_.functions_->cudnnBackendFinalize(object_); }
  void finish() { library_.check(try_finish(), "describing a convolution"); }
  int try_get(int attribute, int type, int64_t asked, int64_t* count, void* elements) const {
    return library_.functions_->cudnnBackendGetAttribute(object_, attribute, type, asked, count,
                                                         elements);
  }

 private:
  const Cudnn& library_;
  Functions::Object object_ = nullptr;
};

namespace {

/// Numbers of the graph's outer tensors. Other numbers are for tensors between its operations.
enum CudnnTensor : int64_t {
  kXTensor = 1,
  kKernelTensor,
  kBiasTensor,
  kResidualTensor,
  kYTensor,
  kFirstBetween = 100
};

/// Strides in elements, of tensors with channels first or last.
std::vector<int64_t> cudnn_strides(const std::vector<int64_t>& extents, bool is_channels_last) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  if (is_channels_last) strides[1] = 1, stride = extents[1];
  for (size_t axis = extents.size(); axis-- > 0;) {
    if (axis == 1 && is_channels_last) continue;
    strides[axis] = stride;
    stride *= extents[axis];
  }
  return strides;
}

}  // namespace

/// The graph of a convolution: the convolution, the sums with bias and residual, the activation. It
/// must outlive the plans that are made of it.
class Cudnn::ConvolutionPlan final : public Plan {
 public:
  struct Graph {
    const Cudnn& library;
    CudnnContext* const handle;
    const Convolution convolution;
    std::vector<std::unique_ptr<Descriptor>> parts;
    std::unique_ptr<Descriptor> whole;

    Graph(const Cudnn& of, CudnnContext* of_device, Convolution described)
        : library(of), handle(of_device), convolution(std::move(described)) {
      const Convolution& c = convolution;
      int64_t between = kFirstBetween;
      const bool adds = c.has_bias || c.has_residual;
      const bool activates = c.activation != Activation::kNone;
      const Descriptor& x = tensor(kXTensor, c.x);
      const Descriptor& kernel = tensor(kKernelTensor, c.kernel);
      Descriptor& forward = part(kConvolutionDescriptor);
      forward.set(kConvolutionPrecision, kTypeDataType, int{kCudnnFloat});
      forward.set(kConvolutionMode, kTypeConvolutionMode, int{kCrossCorrelation});
      forward.set(kConvolutionAxes, kTypeInt64, std::ssize(c.stride));
      forward.set(kConvolutionStrides, c.stride);
      forward.set(kConvolutionDilations, c.dilation);
      forward.set(kConvolutionPrePaddings, c.pre_padding);
      forward.set(kConvolutionPostPaddings, c.post_padding);
      forward.finish();
      std::vector<Functions::Object> operations;
      // Results between operations are FP32.
      const auto result = [&](bool is_last) -> const Descriptor& {
        return is_last ? tensor(kYTensor, c.y) : tensor(between++, c.y, true);
      };
      const Descriptor* y = &result(!adds && !activates);
      Descriptor& convolve = part(kConvolutionForwardDescriptor);
      convolve.set(kForwardConvolution, forward);
      convolve.set(kForwardX, x);
      convolve.set(kForwardKernel, kernel);
      convolve.set(kForwardY, *y);
      convolve.set(kForwardAlpha, kTypeFloat, 1.0F);
      convolve.set(kForwardBeta, kTypeFloat, 0.0F);
      convolve.finish();
      operations.push_back(convolve.object());
      const auto apply = [&](int mode, const Descriptor* other, bool is_last) {
        Descriptor& function = part(kPointwiseDescriptor);
        function.set(kPointwiseMode, kTypePointwiseMode, mode);
        function.set(kPointwisePrecision, kTypeDataType, int{kCudnnFloat});
        function.finish();
        const Descriptor& made = result(is_last);
        Descriptor& operation = part(kOperationPointwiseDescriptor);
        operation.set(kPointwiseOf, function);
        operation.set(kPointwiseX, *y);
        if (other != nullptr) operation.set(kPointwiseB, *other);
        operation.set(kPointwiseY, made);
        operation.finish();
        operations.push_back(operation.object());
        y = &made;
      };
      if (c.has_residual)
        apply(kPointwiseAdd, &tensor(kResidualTensor, c.y), !c.has_bias && !activates);
      if (c.has_bias) {
        std::vector<int64_t> extents(c.y.size(), 1);
        extents[1] = c.y[1];
        apply(kPointwiseAdd, &tensor(kBiasTensor, extents), !activates);
      }
      if (activates)
        apply(c.activation == Activation::kRelu      ? kPointwiseRelu
              : c.activation == Activation::kSigmoid ? kPointwiseSigmoid
                                                     : kPointwiseTanh,
              nullptr, true);
      whole = std::make_unique<Descriptor>(library, kGraphDescriptor);
      whole->set(kGraphHandle, kTypeHandle, handle);
      whole->set(kGraphOperations, kTypeDescriptor, std::ssize(operations), operations.data());
      whole->finish();
    }

    Descriptor& part(int kind) {
      return *parts.emplace_back(std::make_unique<Descriptor>(library, kind));
    }
    const Descriptor& tensor(int64_t number, const std::vector<int64_t>& extents,
                             bool is_between = false) {
      Descriptor& made = part(kTensorDescriptor);
      made.set(kTensorType, kTypeDataType,
               is_between ? int{kCudnnFloat} : cudnn_type(convolution.type));
      made.set(kTensorExtents, extents);
      made.set(kTensorStrides, cudnn_strides(extents, convolution.is_channels_last));
      made.set(kTensorNumber, kTypeInt64, number);
      made.set(kTensorAlignment, kTypeInt64, int64_t{convolution.alignment});
      if (is_between) made.set(kTensorIsVirtual, kTypeBoolean, true);
      made.finish();
      return made;
    }
  };

  ConvolutionPlan(std::shared_ptr<const Graph> graph, std::unique_ptr<Descriptor> config,
                  std::unique_ptr<Descriptor> plan)
      : graph_(std::move(graph)), config_(std::move(config)), plan_(std::move(plan)) {
    int64_t count = 0, bytes = 0;
    graph_->library.check(plan_->try_get(kPlanWorkspace, kTypeInt64, 1, &count, &bytes),
                          "asking for the size of the workspace");
    workspace_ = static_cast<size_t>(std::max<int64_t>(bytes, 0));
  }

  size_t workspace() const override { return workspace_; }

  void run(const void* x, const void* kernel, const void* bias, const void* residual, void* y,
           void* workspace, Queue queue) const override {
    const Cudnn& library = graph_->library;
    const Convolution& c = graph_->convolution;
    std::array<int64_t, 5> numbers{kXTensor, kKernelTensor, kYTensor};
    std::array<const void*, 5> pointers{x, kernel, y};
    int64_t count = 3;
    const auto add = [&](int64_t number, const void* pointer) {
      numbers[static_cast<size_t>(count)] = number;
      pointers[static_cast<size_t>(count++)] = pointer;
    };
    if (c.has_bias) add(kBiasTensor, bias);
    if (c.has_residual) add(kResidualTensor, residual);
    Descriptor pack(library, kVariantPackDescriptor);
    pack.set(kPackNumbers, kTypeInt64, count, numbers.data());
    pack.set(kPackPointers, kTypePointer, count, pointers.data());
    pack.set(kPackWorkspace, kTypePointer, workspace);
    pack.finish();
    // Threads share the handle, and the stream is set on the handle.
    const std::lock_guard lock(Library::part<DeviceHandles<CudnnContext>>().mutex);
    library.check(library.functions_->cudnnSetStream(graph_->handle, static_cast<CUstream>(queue)),
                  "choosing a stream");
    library.check(
        library.functions_->cudnnBackendExecute(graph_->handle, plan_->object(), pack.object()),
        "a convolution");
  }

 private:
  const std::shared_ptr<const Graph> graph_;
  const std::unique_ptr<Descriptor> config_, plan_;
  size_t workspace_ = 0;
};

std::vector<std::shared_ptr<const Cudnn::Plan>> Cudnn::plans(const CudaDevice& device,
                                                             const Convolution& convolution,
                                                             int count, size_t workspace) const {
  const auto graph =
      std::make_shared<const ConvolutionPlan::Graph>(*this, handle(device), convolution);
  std::vector<std::shared_ptr<const Plan>> plans;
  const auto has_note = [&](const Descriptor& config, std::span<const int> unwanted) {
    Descriptor engine(*this, kEngineDescriptor);
    Functions::Object object = engine.object();
    int64_t found = 0;
    constexpr int64_t kMostNotes = 32;
    std::array<int, kMostNotes> notes{};
    check(config.try_get(kEngineConfigEngine, kTypeDescriptor, 1, &found, &object),
          "asking for an engine");
    check(
        engine.try_get(kEngineNumericalNote, kTypeNumericalNote, kMostNotes, &found, notes.data()),
        "asking what an engine does with numbers");
    const std::span given(notes.data(), static_cast<size_t>(std::clamp<int64_t>(found, 0, 32)));
    return std::ranges::find_first_of(given, unwanted) != given.end();
  };
  const bool is_exact = convolution.type == DataType::kFLOAT && !convolution.is_tf32;
  // Tensor cores round FP32 to TF32.
  const std::vector<int> unwanted =
      is_exact ? std::vector<int>{kNondeterministic, kDownConverts, kReduced, kTensorCore}
               : std::vector<int>{kNondeterministic, kDownConverts, kReduced};
  int failed = 0;
  for (const int mode : {kHeuristicModeA, kHeuristicFallback}) {
    Descriptor heuristic(*this, kHeuristicDescriptor);
    heuristic.set(kHeuristicGraph, *graph->whole);
    heuristic.set(kHeuristicMode, kTypeHeuristicMode, mode);
    int64_t available = 0;
    if (const int status = heuristic.try_finish(); status != 0) {
      failed = status;
      continue;
    }
    if (heuristic.try_get(kHeuristicResults, kTypeDescriptor, 0, &available, nullptr) != 0)
      continue;
    constexpr int64_t kMostConfigs = 24;
    std::vector<std::unique_ptr<Descriptor>> configs;
    std::vector<Functions::Object> objects;
    for (int64_t i = 0; i < std::min(available, kMostConfigs); ++i) {
      configs.push_back(std::make_unique<Descriptor>(*this, kEngineConfigDescriptor));
      objects.push_back(configs.back()->object());
    }
    int64_t found = 0;
    check(heuristic.try_get(kHeuristicResults, kTypeDescriptor, std::ssize(objects), &found,
                            objects.data()),
          "asking for engines");
    for (int64_t i = 0; i < std::min(found, std::ssize(configs)); ++i) {
      auto& config = configs[static_cast<size_t>(i)];
      if (has_note(*config, unwanted)) continue;
      auto plan = std::make_unique<Descriptor>(*this, kPlanDescriptor);
      plan->set(kPlanHandle, kTypeHandle, graph->handle);
      plan->set(kPlanEngineConfig, *config);
      if (const int status = plan->try_finish(); status != 0) {
        failed = status;
        continue;
      }
      auto made = std::make_shared<ConvolutionPlan>(graph, std::move(config), std::move(plan));
      if (made->workspace() > workspace) continue;
      plans.push_back(std::move(made));
      if (std::ssize(plans) == count) return plans;
    }
  }
  if (plans.empty() && failed != 0) check(failed, "looking for an engine");
  return plans;
}

}  // namespace opwright::cuda
