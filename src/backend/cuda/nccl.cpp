#include "backend/cuda/nccl.h"

#include <atomic>
#include <thread>
#include <vector>

#include "backend/cuda/libraries.h"
#include "base/error.h"
#include "base/library.h"

namespace opwright::cuda {
namespace {

constexpr char kInstallNccl[] =
    "install it (python -m pip install nvidia-nccl-cu13, or the system's package libnccl2), or "
    "name its file with the environment variable OPWRIGHT_NCCL";
/// 2.10.3, the first version with means (ncclAvg).
constexpr int kFirstNccl = 21003;

// Values of NCCL's interface, unchanged since 2.10.
enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclBfloat16 = 9
};
enum NcclOperation : int {
  kNcclSum = 0,
  kNcclProduct = 1,
  kNcclMaximum = 2,
  kNcclMinimum = 3,
  kNcclMean = 4
};

/// "2.27.3" of 22703; before 2.9 it is "2.8.4" of 2804.
std::string nccl_version_text(int number) {
  constexpr int kFirstLong = 10000;
  return number < kFirstLong ? str(number / 1000, ".", number / 100 % 10, ".", number % 100)
                             : version_text(static_cast<size_t>(number));
}

/// The library once it is loaded.
struct LoadedNccl {
  std::atomic<const Nccl*> library{nullptr};
};

}  // namespace

const Nccl* Nccl::find(std::string& reason) {
  struct Found {
    const Nccl* library = nullptr;
    std::string reason;
  };
  static const Found found = []() -> Found {
    std::string why;
    void* const library = open_library("OPWRIGHT_NCCL", library_files({"libnccl.so.2"}), why);
    if (library == nullptr)
      return {nullptr,
              str("ranks on GPUs exchange data with NCCL, NVIDIA's library of collectives, which "
                  "cannot be loaded (",
                  why, "); ", kInstallNccl)};
    Functions functions{};
    std::string missing;
    const auto look_up = [&](auto& function, const char* name) {
      if (!find_function(library, name, function) && missing.empty()) missing = name;
    };
#define OPWRIGHT_FIND(name) look_up(functions.name, #name)
    OPWRIGHT_FIND(ncclGetVersion);
    OPWRIGHT_FIND(ncclGetErrorString);
    OPWRIGHT_FIND(ncclGetUniqueId);
    OPWRIGHT_FIND(ncclCommInitRank);
    OPWRIGHT_FIND(ncclCommAbort);
    OPWRIGHT_FIND(ncclCommCount);
    OPWRIGHT_FIND(ncclCommUserRank);
    OPWRIGHT_FIND(ncclCommCuDevice);
    OPWRIGHT_FIND(ncclCommGetAsyncError);
    OPWRIGHT_FIND(ncclGroupStart);
    OPWRIGHT_FIND(ncclGroupEnd);
    OPWRIGHT_FIND(ncclSend);
    OPWRIGHT_FIND(ncclRecv);
    OPWRIGHT_FIND(ncclAllReduce);
    OPWRIGHT_FIND(ncclReduce);
    OPWRIGHT_FIND(ncclBroadcast);
    OPWRIGHT_FIND(ncclAllGather);
    OPWRIGHT_FIND(ncclReduceScatter);
#undef OPWRIGHT_FIND
    int version = 0;
    if (!missing.empty() || functions.ncclGetVersion(&version) != kNcclSuccess ||
        version < kFirstNccl)
      return {nullptr, str("NCCL is too old, ",
                           missing.empty() ? "its version is " + nccl_version_text(version)
                                           : "it has no " + missing,
                           "; 2.10.3 or newer is needed: ", kInstallNccl)};
    find_function(library, "ncclGetLastError", functions.ncclGetLastError);
    const auto* const made = new Nccl(functions, nccl_version_text(version));
    Library::part<LoadedNccl>().library.store(made, std::memory_order_release);
    return {made, {}};
  }();
  reason = found.reason;
  return found.library;
}

const Nccl* Nccl::loaded() {
  return Library::part<LoadedNccl>().library.load(std::memory_order_acquire);
}

int Nccl::type_of(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return kNcclFloat32;
    case DataType::kHALF:
      return kNcclFloat16;
    case DataType::kBF16:
      return kNcclBfloat16;
    case DataType::kINT8:
      return kNcclInt8;
    case DataType::kUINT8:
    case DataType::kBOOL:
      return kNcclUint8;
    case DataType::kINT32:
      return kNcclInt32;
    case DataType::kINT64:
      return kNcclInt64;
    default:
      fail("elements of ", name(type), " cannot be reduced");
  }
}

int Nccl::type_of_bytes() { return kNcclUint8; }

int Nccl::operation_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::kSUM:
      return kNcclSum;
    case ReduceOperation::kPROD:
      return kNcclProduct;
    case ReduceOperation::kMAX:
      return kNcclMaximum;
    case ReduceOperation::kMIN:
      return kNcclMinimum;
    case ReduceOperation::kAVG:
      return kNcclMean;
    default:
      fail("there is no ReduceOperation ", static_cast<int>(operation), " of ranks");
  }
}

void Nccl::fail_call(int result, Communicator communicator, std::string_view what) const {
  const char* const text = functions_.ncclGetErrorString(result);
  const char* const last =
      functions_.ncclGetLastError != nullptr ? functions_.ncclGetLastError(communicator) : nullptr;
  fail_with(ErrorCode::kFAILED_EXECUTION, what, ": NCCL ", version_, ": ",
            text != nullptr ? text : "unknown error", " (result ", result, ")",
            last != nullptr && *last != '\0' ? str("; it says: ", last) : "",
            "; all ranks need a new communicator after that");
}

void Nccl::check(int result, Communicator communicator, std::string_view what) const {
  while (result == kNcclInProgress) {
    const int asked = functions_.ncclCommGetAsyncError(communicator, &result);
    if (asked != kNcclSuccess) result = asked;
    if (result == kNcclInProgress) std::this_thread::yield();
  }
  if (result != kNcclSuccess) fail_call(result, communicator, what);
}

void Nccl::require_well(Communicator communicator, std::string_view what) const {
  int failed = kNcclSuccess;
  const int asked = functions_.ncclCommGetAsyncError(communicator, &failed);
  if (asked != kNcclSuccess) fail_call(asked, communicator, what);
  if (failed != kNcclSuccess && failed != kNcclInProgress) fail_call(failed, communicator, what);
}

}  // namespace opwright::cuda
