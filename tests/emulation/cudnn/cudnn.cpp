// The part of cuDNN's interface that Opwright uses, with a kernel for the emulated driver: graphs
// of a forward convolution, sums and an activation.

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "own_kernel.h"

namespace {

using opwright::emulation::function_of;
using opwright::emulation::make_kernel;

enum Status {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kNotSupported = 3000,
  kExecution = 5000
};
enum Kind {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kForward = 10,
  kOperationPointwise = 13,
  kGraph = 15,
  kPack = 16,
  kTensor = 17
};
constexpr int kTypeDescriptor = 15;

std::atomic<long> convolutions{0};

/// Bytes of an attribute's element.
size_t size_of(int type) {
  switch (type) {
    case 2:  // a boolean
      return 1;
    case 1:
    case 4:
    case 7:
    case 8:
    case 11:
    case 14:
      return 4;
    default:
      return 8;
  }
}

struct Object {
  int kind = 0;
  bool is_finished = false;
  int place = 0;  ///< index of an engine among those of a graph
  struct Attribute {
    int type = 0;
    std::vector<char> bytes;
  };
  std::map<int, Attribute> attributes;

  template <class T>
  T get(int attribute, T otherwise = {}) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end() || found->second.bytes.size() < sizeof(T)) return otherwise;
    T value;
    std::memcpy(&value, found->second.bytes.data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> all(int attribute) const {
    std::vector<T> values;
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return values;
    values.resize(found->second.bytes.size() / sizeof(T));
    std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

int version() {
  const char* text = std::getenv("OPWRIGHT_EMULATED_CUDNN_VERSION");
  return text != nullptr ? std::atoi(text) : 91900;
}
int engines() {
  const char* text = std::getenv("OPWRIGHT_EMULATED_CUDNN_ENGINES");
  return text != nullptr ? std::atoi(text) : 3;
}
constexpr int64_t kWorkspace = 2048;

/// The kernel has one thread for each element. Tensors have three spatial axes with given strides.
constexpr char kSource[] = R"(
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ float load(const void* memory, int type, long long at) {
  if (type == 0) return ((const float*)memory)[at];
  if (type == 2) return __half2float(((const __half*)memory)[at]);
  return __bfloat162float(((const __nv_bfloat16*)memory)[at]);
}
__device__ void store(void* memory, int type, long long at, float value) {
  if (type == 0) ((float*)memory)[at] = value;
  else if (type == 2) ((__half*)memory)[at] = __float2half(value);
  else ((__nv_bfloat16*)memory)[at] = __float2bfloat16(value);
}
struct Tensor { long long extents[5], strides[5]; };
struct Axes { long long stride[3], dilation[3], padding[3]; };
extern "C" __global__ void convolve(const void* x, const void* w, const void* bias, const void* residual, void* y,
                                    int type, int activation, Tensor of_x, Tensor of_w, Tensor of_y, Axes axes) {
  const long long* const e = of_y.extents;
  const long long count = e[0] * e[1] * e[2] * e[3] * e[4], group_maps = e[1] / (of_x.extents[1] / of_w.extents[1]);
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * (long long)blockDim.x) {
    long long at[5], rest = i, place = 0;
    for (int axis = 4; axis >= 0; --axis) {
      at[axis] = rest % e[axis], rest /= e[axis];
      place += at[axis] * of_y.strides[axis];
    }
    float sum = 0;
    for (long long c = 0; c < of_w.extents[1]; ++c)
      for (long long tap = 0; tap < of_w.extents[2] * of_w.extents[3] * of_w.extents[4]; ++tap) {
        long long left = tap, from = 0, weight = at[1] * of_w.strides[0] + c * of_w.strides[1];
        bool is_there = true;
        for (int axis = 2; axis >= 0; --axis) {
          const long long k = left % of_w.extents[axis + 2];
          left /= of_w.extents[axis + 2];
          const long long position = at[axis + 2] * axes.stride[axis] + k * axes.dilation[axis] - axes.padding[axis];
          is_there = is_there && position >= 0 && position < of_x.extents[axis + 2];
          from += position * of_x.strides[axis + 2], weight += k * of_w.strides[axis + 2];
        }
        const long long channel = at[1] / group_maps * of_w.extents[1] + c;
        if (is_there)
          sum += load(x, type, at[0] * of_x.strides[0] + channel * of_x.strides[1] + from) * load(w, type, weight);
      }
    if (residual) sum += load(residual, type, place);
    if (bias) sum += load(bias, type, at[1]);
    if (activation == 100) sum = sum > 0 ? sum : 0;
    if (activation == 101) sum = tanhf(sum);
    if (activation == 102) sum = 1 / (1 + expf(-sum));
    store(y, type, place, sum);
  }
}
)";
struct TensorArgument {
  int64_t extents[5], strides[5];
};
struct AxesArgument {
  int64_t stride[3], dilation[3], padding[3];
};

struct Handle {
  CUfunction convolve = nullptr;
  CUstream stream = nullptr;
};

/// The computation of a graph of operations.
struct Graph {
  const Object* forward = nullptr;
  int64_t bias = -1, residual = -1, y = -1;  ///< tensors' numbers
  int activation = 0;

  /// Reads a graph. Returns false if it has other operations.
  bool read(const Object& graph) {
    const Object* value = nullptr;
    for (const Object* operation : graph.all<const Object*>(801)) {
      if (operation == nullptr || !operation->is_finished) return false;
      if (operation->kind == kForward) {
        if (forward != nullptr || operation->get<float>(700) != 1 ||
            operation->get<float>(701) != 0)
          return false;
        forward = operation;
        value = operation->get<const Object*>(705);
        continue;
      }
      if (operation->kind != kOperationPointwise || operation->get<const Object*>(751) != value)
        return false;
      const int mode = operation->get<const Object*>(750)->get<int>(0);
      const auto* other = operation->get<const Object*>(752);
      if (mode == 0 && other != nullptr) {
        const std::vector<int64_t> extents = other->all<int64_t>(902);
        const bool is_bias = extents != value->all<int64_t>(902);
        (is_bias ? bias : residual) = other->get<int64_t>(906);
      } else if (mode >= 100 && mode <= 102 && other == nullptr) {
        activation = mode;
      } else {
        return false;
      }
      value = operation->get<const Object*>(753);
    }
    if (forward == nullptr || value->get<char>(907) != 0) return false;
    y = value->get<int64_t>(906);
    return true;
  }
  const Object& x() const { return *forward->get<const Object*>(704); }
  const Object& kernel() const { return *forward->get<const Object*>(703); }
};

TensorArgument argument_of(const Object& tensor) {
  const std::vector<int64_t> extents = tensor.all<int64_t>(902), strides = tensor.all<int64_t>(903);
  TensorArgument made;
  const size_t missing = 5 - extents.size();
  for (size_t i = 0; i < 5; ++i) {
    const bool is_own = i < 2 || i >= 2 + missing;
    const size_t from = i < 2 ? i : i - missing;
    made.extents[i] = is_own ? extents[from] : 1, made.strides[i] = is_own ? strides[from] : 0;
  }
  return made;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return static_cast<size_t>(version()); }
int cudnnCreate(Handle** handle) {
  *handle = new Handle;
  (*handle)->convolve = make_kernel(kSource, "cudnn.cu", "convolve");
  return (*handle)->convolve != nullptr ? kSuccess : kNotInitialized;
}
int cudnnDestroy(Handle* handle) {
  delete handle;
  return kSuccess;
}
int cudnnSetStream(Handle* handle, CUstream stream) {
  handle->stream = stream;
  return kSuccess;
}
int cudnnBackendCreateDescriptor(int kind, Object** object) {
  *object = new Object;
  (*object)->kind = kind;
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(Object* object) {
  delete object;
  return kSuccess;
}
int cudnnBackendSetAttribute(Object* object, int attribute, int type, int64_t count,
                             const void* elements) {
  if (object->is_finished || count < 1 || elements == nullptr) return kBadParam;
  const size_t bytes = size_of(type) * static_cast<size_t>(count);
  Object::Attribute& to = object->attributes[attribute];
  to.type = type;
  to.bytes.assign(static_cast<const char*>(elements), static_cast<const char*>(elements) + bytes);
  return kSuccess;
}
/// Finalizes a descriptor. A convolution with 13 maps is not supported.
int cudnnBackendFinalize(Object* object) {
  if (object->is_finished) return kBadParam;
  if (object->kind == kTensor) {
    const size_t rank = object->all<int64_t>(902).size();
    if (rank < 4 || rank > 5 || object->all<int64_t>(903).size() != rank) return kBadParam;
  }
  if (object->kind == kConvolution &&
      object->all<int64_t>(103).size() != static_cast<size_t>(object->get<int64_t>(106)))
    return kBadParam;
  if (object->kind == kHeuristic) {
    const auto* graph = object->get<const Object*>(201);
    Graph read;
    if (graph == nullptr || !graph->is_finished || !read.read(*graph)) return kNotSupported;
    if (read.kernel().all<int64_t>(902)[0] == 13) return kNotSupported;
  }
  if (object->kind == kPlan) {
    const auto* config = object->get<const Object*>(401);
    if (config == nullptr || !config->is_finished) return kBadParam;
    object->place = config->place;
    object->attributes[201] = config->attributes.at(201);
  }
  object->is_finished = true;
  return kSuccess;
}
/// Reads an attribute. The first engine has a note that its results differ between runs. The last
/// one needs workspace.
int cudnnBackendGetAttribute(Object* object, int attribute, int type, int64_t asked, int64_t* count,
                             void* elements) {
  if (object->kind == kHeuristic && attribute == 202 && type == kTypeDescriptor) {
    const bool is_fallback = object->get<int>(200) == 2;
    *count = is_fallback ? 0 : std::min<int64_t>(engines(), asked == 0 ? engines() : asked);
    for (int64_t i = 0; i < *count && asked > 0; ++i) {
      Object* const config = static_cast<Object**>(elements)[i];
      if (config->kind != kEngineConfig) return kBadParam;
      config->place = static_cast<int>(i);
      config->attributes[201] = object->attributes.at(201);
      config->is_finished = true;
    }
    return kSuccess;
  }
  if (object->kind == kEngineConfig && attribute == 300) {
    Object* const engine = *static_cast<Object**>(elements);
    if (engine->kind != kEngine) return kBadParam;
    engine->place = object->place, engine->is_finished = true;
    *count = 1;
    return kSuccess;
  }
  if (object->kind == kEngine && attribute == 1303) {
    *count = object->place == 0 ? 1 : 0;
    if (object->place == 0) static_cast<int*>(elements)[0] = 4;
    return kSuccess;
  }
  if (object->kind == kPlan && attribute == 402) {
    *count = 1;
    *static_cast<int64_t*>(elements) = object->place + 1 == engines() ? kWorkspace : 0;
    return kSuccess;
  }
  return kBadParam;
}
int cudnnBackendExecute(Handle* handle, Object* plan, Object* pack) {
  const auto* graph_object = plan->get<const Object*>(201);
  Graph graph;
  if (!plan->is_finished || !pack->is_finished || !graph.read(*graph_object)) return kBadParam;
  std::map<int64_t, void*> pointers;
  const auto numbers = pack->all<int64_t>(1000);
  const auto given = pack->all<void*>(1001);
  for (size_t i = 0; i < numbers.size(); ++i) pointers[numbers[i]] = given.at(i);
  if (plan->place + 1 == engines() && pack->get<void*>(1003) == nullptr) return kBadParam;
  const Object &x = graph.x(), &kernel = graph.kernel();
  for (const auto& [number, pointer] : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uint64_t>(x.get<int64_t>(900)) != 0)
      return kBadParam;
  const auto address = [&](int64_t number) { return number < 0 ? nullptr : pointers.at(number); };
  const void *from = address(x.get<int64_t>(906)), *weights = address(kernel.get<int64_t>(906));
  const void *bias = address(graph.bias), *residual = address(graph.residual);
  void* to = address(graph.y);
  int type = x.get<int>(901);
  TensorArgument of_x = argument_of(x), of_kernel = argument_of(kernel),
                 of_y = argument_of(*graph.forward->get<const Object*>(705));
  const Object& convolution = *graph.forward->get<const Object*>(702);
  AxesArgument axes = {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
  const auto take = [&](int attribute, int64_t(&values)[3]) {
    const std::vector<int64_t> all = convolution.all<int64_t>(attribute);
    for (size_t i = 0; i < all.size(); ++i) values[3 - all.size() + i] = all[i];
  };
  take(103, axes.stride), take(102, axes.dilation), take(105, axes.padding);
  void* arguments[] = {&from, &weights,   &bias, &residual, &to, &type, &graph.activation,
                       &of_x, &of_kernel, &of_y, &axes};
  using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void**, void**);
  const auto launch = function_of<Launch*>("OPWRIGHT_CUDA_DRIVER", "cuLaunchKernel");
  ++convolutions;
  const CUresult result =
      launch(handle->convolve, 4, 1, 1, 64, 1, 1, 0, handle->stream, arguments, nullptr);
  return result == CUDA_SUCCESS ? kSuccess : kExecution;
}

/// The number of computed convolutions.
long opwright_emulation_convolutions() { return convolutions; }

}  // extern "C"
