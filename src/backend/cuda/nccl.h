#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/types.h"
#include "opwright/layers.h"

namespace opwright::cuda {

/// NCCL, NVIDIA's library of collectives, loaded when first used. Thread safe.
class Nccl {
 public:
  /// What NCCL calls ncclComm_t.
  using Communicator = struct NcclComm*;

  /// What NCCL calls ncclUniqueId: the name of a new communicator.
  struct UniqueId {
    char internal[128];
  };

  // Functions of NCCL, unchanged since 2.10. They are declared here because NCCL's header comes in
  // a package of its own. Results are of an enumeration whose 0 is success. Types and operations
  // are those of type_of() and operation_of().
  struct Functions {
    int (*ncclGetVersion)(int* version);
    const char* (*ncclGetErrorString)(int result);
    int (*ncclGetUniqueId)(UniqueId*);
    int (*ncclCommInitRank)(Communicator* made, int ranks, UniqueId, int rank);
    int (*ncclCommAbort)(Communicator);
    int (*ncclCommCount)(Communicator, int* count);
    int (*ncclCommUserRank)(Communicator, int* rank);
    int (*ncclCommCuDevice)(Communicator, int* device);
    int (*ncclCommGetAsyncError)(Communicator, int* result);
    int (*ncclGroupStart)();
    int (*ncclGroupEnd)();
    int (*ncclSend)(const void* from, size_t count, int type, int peer, Communicator, CUstream);
    int (*ncclRecv)(void* to, size_t count, int type, int peer, Communicator, CUstream);
    int (*ncclAllReduce)(const void* from, void* to, size_t count, int type, int operation,
                         Communicator, CUstream);
    int (*ncclReduce)(const void* from, void* to, size_t count, int type, int operation, int root,
                      Communicator, CUstream);
    int (*ncclBroadcast)(const void* from, void* to, size_t count, int type, int root, Communicator,
                         CUstream);
    int (*ncclAllGather)(const void* from, void* to, size_t count, int type, Communicator,
                         CUstream);
    int (*ncclReduceScatter)(const void* from, void* to, size_t count, int type, int operation,
                             Communicator, CUstream);
    /// Null before NCCL 2.13.
    const char* (*ncclGetLastError)(Communicator);
  };

  /// The library, or null where it cannot be used; then `reason` says why, and how to mend it.
  static const Nccl* find(std::string& reason);
  /// The library if the process has loaded it; null: nothing has used a communicator.
  static const Nccl* loaded();

  const Functions& functions() const { return functions_; }
  /// "2.27.3".
  const std::string& version() const { return version_; }

  /// The code of a type whose elements are reduced; BOOL is unsigned bytes.
  static int type_of(DataType type);
  /// The code of bytes that are only moved.
  static int type_of_bytes();
  static int operation_of(ReduceOperation operation);

  /// Throws Error that begins with `what` unless the result is that of success. Waits while a
  /// communicator that does not block says that the call is still in progress.
  void check(int result, Communicator communicator, std::string_view what) const;
  /// Throws Error that begins with `what` where earlier work of the communicator has failed.
  void require_well(Communicator communicator, std::string_view what) const;

 private:
  Nccl(const Functions& functions, std::string version)
      : functions_(functions), version_(std::move(version)) {}
  [[noreturn]] void fail_call(int result, Communicator communicator, std::string_view what) const;

  const Functions functions_;
  const std::string version_;
};

}  // namespace opwright::cuda
