#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <numeric>

#include "emulation/emulated_gpu.h"

/// The emulated NCCL between processes: messages longer than a chunk, graphs, and ranks that
/// disagree.
namespace opwright {
namespace {

struct UniqueId {
  char internal[128];
};
using Comm = void*;
constexpr int kFloat = 7, kSum = 0, kInvalidUsage = 5, kRemoteError = 6;

template <class F>
F* nccl_function(const char* name) {
  static void* library = emulated_library("libnccl.so.2");
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

int all_reduce(CUdeviceptr from, CUdeviceptr to, size_t count, Comm comm, CUstream stream) {
  using Call = int(CUdeviceptr, CUdeviceptr, size_t, int, int, Comm, CUstream);
  return nccl_function<Call>("ncclAllReduce")(from, to, count, kFloat, kSum, comm, stream);
}

int failure_of(Comm comm) {
  int failure = -1;
  nccl_function<int(Comm, int*)>("ncclCommGetAsyncError")(comm, &failure);
  return failure;
}

class EmulatedNccl : public EmulatedGpu {
 protected:
  static constexpr int kRanks = 2;

  /// Runs the function in a process for each rank, which fails where the function returns false.
  void in_ranks(const std::function<bool(int rank, Comm comm)>& function) {
    setenv("OPWRIGHT_CUDA_DRIVER", OPWRIGHT_EMULATION_DIR "/libcuda.so.1", 1);
    setenv("OPWRIGHT_NVRTC", OPWRIGHT_EMULATION_DIR "/libnvrtc.so.13", 1);
    UniqueId id{};
    ASSERT_EQ(nccl_function<int(UniqueId*)>("ncclGetUniqueId")(&id), 0);
    std::vector<pid_t> processes;
    for (int rank = 0; rank < kRanks; ++rank) {
      processes.push_back(fork());
      if (processes.back() != 0) continue;
      Comm comm = nullptr;
      const bool is_well = nccl_function<int(Comm*, int, UniqueId, int)>("ncclCommInitRank")(
                               &comm, kRanks, id, rank) == 0 &&
                           function(rank, comm);
      _exit(is_well ? 0 : 1);
    }
    for (const pid_t process : processes) {
      int status = -1;
      ASSERT_EQ(waitpid(process, &status, 0), process);
      EXPECT_EQ(status, 0) << "rank " << &process - processes.data();
    }
  }

  /// The vector of a rank, and the sum of all ranks' vectors.
  static std::vector<float> values(int rank, size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1000.F * static_cast<float>(rank));
    return values;
  }
  static std::vector<float> total(size_t count) {
    std::vector<float> sums(count);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<float> of_rank = values(rank, count);
      for (size_t i = 0; i < count; ++i) sums[i] += of_rank[i];
    }
    return sums;
  }
};

TEST_F(EmulatedNccl, SumsRunInTheOrderOfTheStreamAndInGraphs) {
  constexpr size_t kCount = 20000;  // more than a chunk
  const std::vector<float> expected = total(kCount);
  in_ranks([&](int rank, Comm comm) {
    const CUdeviceptr x = upload(values(rank, kCount)), y = upload(std::vector<float>(kCount));
    const auto read = [&] {
      CU(cuStreamSynchronize)(stream);
      return download<float>(y, kCount);
    };
    if (all_reduce(x, y, kCount, comm, stream) != 0 || read() != expected) return false;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CU(cuMemsetD8Async)(y, 0, kCount * sizeof(float), stream);
    if (all_reduce(x, y, kCount, comm, stream) != 0) return false;
    if (CU(cuStreamEndCapture)(stream, &graph) != CUDA_SUCCESS) return false;
    CU(cuGraphInstantiateWithFlags)(&executable, graph, 0);
    for (int run = 0; run < 2; ++run)
      if (CU(cuGraphLaunch)(executable, stream) != CUDA_SUCCESS || read() != expected) return false;
    return failure_of(comm) == 0;
  });
}

TEST_F(EmulatedNccl, RanksThatDisagreeFail) {
  in_ranks([&](int rank, Comm comm) {
    const CUdeviceptr x = upload(std::vector<float>(100)), y = upload(std::vector<float>(100));
    if (all_reduce(x, y, rank == 0 ? 99 : 100, comm, stream) != 0) return false;
    CU(cuStreamSynchronize)(stream);
    const int failure = failure_of(comm);
    return failure == kInvalidUsage || failure == kRemoteError;
  });
}

TEST_F(EmulatedNccl, RefusesMemoryOfTheHostAndDestroyedCommunicators) {
  in_ranks([&](int, Comm comm) {
    std::vector<float> host(4);
    const auto memory = reinterpret_cast<CUdeviceptr>(host.data());
    if (all_reduce(memory, memory, 4, comm, stream) == 0) return false;
    if (nccl_function<int(Comm)>("ncclCommDestroy")(comm) != 0) return false;
    const CUdeviceptr x = upload(host);
    return all_reduce(x, x, 4, comm, stream) != 0;
  });
}

}  // namespace
}  // namespace opwright
