#include "backend/cuda/cublaslt.h"

#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace opwright::cuda {
namespace {

constexpr char kInstallCublasLt[] =
    "install it (python -m pip install nvidia-cublas, or the CUDA toolkit), or name its file with "
    "the environment variable OPWRIGHT_CUBLASLT";

// Values of cuBLASLt's interface, unchanged since CUDA 11.
enum DataTypeCode : int { kReal32 = 0, kReal16 = 2, kRealBf16 = 14 };
enum ComputeType : int { kCompute32 = 68, kCompute32Pedantic = 69, kComputeTf32 = 77 };
enum DescAttribute : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute : int { kMaxWorkspace = 1, kReductions = 3, kFirstAlignment = 5 };
enum Epilogue : uint32_t { kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32 };
/// Reduction schemes that add up the parts of a sum in one order, in a kernel after the product.
constexpr uint32_t kOrderedReductions = 2 | 4;

int code_of(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return kReal32;
    case DataType::kHALF:
      return kReal16;
    case DataType::kBF16:
      return kRealBf16;
    default:
      fail("cuBLASLt is asked for no products of ", name(type));
  }
}

}  // namespace

// In the namespace above, this struct makes GCC 13 crash over Functions in a build that compiles
// files together.
struct HeuristicResult {
  std::array<uint64_t, 8> algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct CublasLt::Functions {
  using Handle = struct CublasLtContext*;
  using Desc = struct CublasLtDesc*;
  using Layout = struct CublasLtLayout*;
  using Preference = struct CublasLtPreference*;
  size_t (*cublasLtGetVersion)();
  int (*cublasLtCreate)(Handle*);
  int (*cublasLtMatmulDescCreate)(Desc*, int compute_type, int scale_type);
  int (*cublasLtMatmulDescDestroy)(Desc);
  int (*cublasLtMatmulDescSetAttribute)(Desc, int attribute, const void* value, size_t bytes);
  int (*cublasLtMatrixLayoutCreate)(Layout*, int type, uint64_t rows, uint64_t columns,
                                    int64_t leading);
  int (*cublasLtMatrixLayoutDestroy)(Layout);
  int (*cublasLtMatrixLayoutSetAttribute)(Layout, int attribute, const void* value, size_t bytes);
  int (*cublasLtMatmulPreferenceCreate)(Preference*);
  int (*cublasLtMatmulPreferenceDestroy)(Preference);
  int (*cublasLtMatmulPreferenceSetAttribute)(Preference, int attribute, const void* value,
                                              size_t bytes);
  int (*cublasLtMatmulAlgoGetHeuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d,
                                        Preference, int asked, HeuristicResult* results,
                                        int* found);
  int (*cublasLtMatmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b,
                        Layout, const void* beta, const void* c, Layout, void* d, Layout,
                        const uint64_t* algorithm, void* workspace, size_t workspace_bytes,
                        CUstream);
};

const CublasLt* CublasLt::find(std::string& reason) {
  struct Found {
    const CublasLt* library = nullptr;
    std::string reason;
  };
  static const Found found = []() -> Found {
    std::string why;
    void* const library =
        open_library("OPWRIGHT_CUBLASLT",
                     library_files_for_driver({"libcublasLt.so.13", "libcublasLt.so.12"}), why);
    if (library == nullptr)
      return {nullptr, str("cuBLASLt cannot be loaded (", why, "); ", kInstallCublasLt)};
    auto functions = std::make_unique<Functions>();
    std::string missing;
    const auto look_up = [&](auto& function, const char* name) {
      if (!find_function(library, name, function) && missing.empty()) missing = name;
    };
#define OPWRIGHT_FIND(name) look_up(functions->name, #name)
    OPWRIGHT_FIND(cublasLtGetVersion);
    OPWRIGHT_FIND(cublasLtCreate);
    OPWRIGHT_FIND(cublasLtMatmulDescCreate);
    OPWRIGHT_FIND(cublasLtMatmulDescDestroy);
    OPWRIGHT_FIND(cublasLtMatmulDescSetAttribute);
    OPWRIGHT_FIND(cublasLtMatrixLayoutCreate);
    OPWRIGHT_FIND(cublasLtMatrixLayoutDestroy);
    OPWRIGHT_FIND(cublasLtMatrixLayoutSetAttribute);
    OPWRIGHT_FIND(cublasLtMatmulPreferenceCreate);
    OPWRIGHT_FIND(cublasLtMatmulPreferenceDestroy);
    OPWRIGHT_FIND(cublasLtMatmulPreferenceSetAttribute);
    OPWRIGHT_FIND(cublasLtMatmulAlgoGetHeuristic);
    OPWRIGHT_FIND(cublasLtMatmul);
#undef OPWRIGHT_FIND
    if (!missing.empty())
      return {nullptr, str("cuBLASLt is too old, it has no ", missing, "; ", kInstallCublasLt)};
    const std::string version = version_text(functions->cublasLtGetVersion());
    return {new CublasLt(functions.release(), version), {}};
  }();
  reason = found.reason;
  return found.library;
}

void CublasLt::check(int status, const char* what) const {
  if (status == 0) return;
  constexpr int kNotSupported = 15, kAllocation = 3;
  fail_with(status == kAllocation ? ErrorCode::kFAILED_ALLOCATION : ErrorCode::kFAILED_EXECUTION,
            "cuBLASLt ", version_, ": ", what, " failed with status ", status,
            status == kNotSupported ? " (not supported)" : "");
}

struct CublasLtContext* CublasLt::handle(const CudaDevice& device) const {
  return handle_of<CublasLtContext>(device, [&](CublasLtContext*& handle) {
    check(functions_->cublasLtCreate(&handle), "making a handle");
  });
}

/// cuBLASLt's matrices are column-major: to it, one of our products is b^T a^T.
class CublasLt::ProductPlan final : public Plan {
 public:
  ProductPlan(const CublasLt& library, CublasLtContext* handle, const Product& product)
      : library_(library), handle_(handle), product_(product) {
    const Functions& lt = *library_.functions_;
    const int type = code_of(product.type);
    const int compute = product.type != DataType::kFLOAT ? kCompute32
                        : product.is_tf32                ? kComputeTf32
                                                         : kCompute32Pedantic;
    library_.check(lt.cublasLtMatmulDescCreate(&desc_.made, compute, kReal32),
                   "describing a product");
    desc_.destroy = lt.cublasLtMatmulDescDestroy;
    set(kTransposeA, int32_t{product.is_b_transposed});
    set(kTransposeB, int32_t{product.is_a_transposed});
    uint32_t epilogue = kDefault;
    if (product.has_bias) epilogue = kBias;
    if (product.activation != Activation::kNone) {
      const uint32_t function = product.activation == Activation::kRelu ? kRelu : kGelu;
      epilogue = product.has_bias ? function | kBias : function;
    }
    set(kEpilogue, epilogue);
    const auto layout = [&](Object<Functions::Layout>& made, int64_t rows, int64_t columns,
                            int64_t stride) {
      library_.check(lt.cublasLtMatrixLayoutCreate(&made.made, type, static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(columns), rows),
                     "describing a matrix");
      made.destroy = lt.cublasLtMatrixLayoutDestroy;
      const auto count = static_cast<int32_t>(product.count);
      for (const auto& [attribute, value, bytes] :
           {std::tuple(kBatchCount, static_cast<const void*>(&count), sizeof count),
            std::tuple(kBatchStride, static_cast<const void*>(&stride), sizeof stride)})
        library_.check(lt.cublasLtMatrixLayoutSetAttribute(made.made, attribute, value, bytes),
                       "describing a stack of matrices");
    };
    const auto& [m, n, k] = std::tie(product.rows, product.columns, product.depth);
    layout(first_, product.is_b_transposed ? k : n, product.is_b_transposed ? n : k,
           product.b_stride);
    layout(second_, product.is_a_transposed ? m : k, product.is_a_transposed ? k : m,
           product.a_stride);
    layout(result_, n, m, m * n);
  }

  std::vector<Algorithm> algorithms(int count, size_t workspace) const override {
    const Functions& lt = *library_.functions_;
    Object<Functions::Preference> preference;
    library_.check(lt.cublasLtMatmulPreferenceCreate(&preference.made), "making a preference");
    preference.destroy = lt.cublasLtMatmulPreferenceDestroy;
    const auto prefer = [&](int attribute, auto value) {
      library_.check(
          lt.cublasLtMatmulPreferenceSetAttribute(preference.made, attribute, &value, sizeof value),
          "setting a preference");
    };
    prefer(kMaxWorkspace, uint64_t{workspace});
    prefer(kReductions, kOrderedReductions);
    for (int operand = 0; operand < 4; ++operand)
      prefer(kFirstAlignment + operand, product_.alignment);
    std::vector<HeuristicResult> results(static_cast<size_t>(count));
    int found = 0;
    library_.check(lt.cublasLtMatmulAlgoGetHeuristic(handle_, desc_.made, first_.made, second_.made,
                                                     result_.made, result_.made, preference.made,
                                                     count, results.data(), &found),
                   "looking for an algorithm");
    std::vector<Algorithm> algorithms;
    for (int i = 0; i < std::min(found, count); ++i)
      if (results[static_cast<size_t>(i)].state == 0 &&
          results[static_cast<size_t>(i)].workspace <= workspace)
        algorithms.push_back(
            {results[static_cast<size_t>(i)].algorithm, results[static_cast<size_t>(i)].workspace});
    return algorithms;
  }

  void run(const Algorithm& algorithm, const void* a, const void* b, const void* bias, void* result,
           void* workspace, Queue queue) override {
    const Functions& lt = *library_.functions_;
    if (product_.has_bias) set(kBiasPointer, bias);
    const float one = 1, zero = 0;
    library_.check(
        lt.cublasLtMatmul(handle_, desc_.made, &one, b, first_.made, a, second_.made, &zero, result,
                          result_.made, result, result_.made, algorithm.data.data(), workspace,
                          algorithm.workspace, static_cast<CUstream>(queue)),
        "a product");
  }

 private:
  /// An object that the library has made, with the function that destroys it.
  template <class T>
  struct Object {
    Object() = default;
    ~Object() {
      if (destroy != nullptr) destroy(made);
    }
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    T made = nullptr;
    int (*destroy)(T) = nullptr;
  };

  template <class T>
  void set(int attribute, const T& value) {
    library_.check(library_.functions_->cublasLtMatmulDescSetAttribute(desc_.made, attribute,
                                                                       &value, sizeof value),
                   "describing a product");
  }

  const CublasLt& library_;
  CublasLtContext* const handle_;
  const Product product_;
  Object<Functions::Desc> desc_;
  Object<Functions::Layout> first_, second_, result_;
};

std::unique_ptr<CublasLt::Plan> CublasLt::plan(const CudaDevice& device,
                                               const Product& product) const {
  return std::make_unique<ProductPlan>(*this, handle(device), product);
}

}  // namespace opwright::cuda
