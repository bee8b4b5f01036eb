// Kernel launches.

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver/state.h"
#include "driver/threads.h"

namespace emulation {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
constexpr size_t kMaxShared = 227 * 1024;
constexpr int kPortableCluster = 8;

/// Argument of __tls_get_addr(): a place in a library's thread-local memory.
struct ThreadLocal {
  size_t module, offset;
};
extern "C" void* __tls_get_addr(ThreadLocal* place);

/// Place at which the thread that runs a kernel continues if the kernel faults.
thread_local bool in_kernel = false;
thread_local sigjmp_buf after_fault;
struct sigaction former[std::size(kSignals)];

void on_signal(int number, siginfo_t* info, void* context) {
  if (in_kernel) siglongjmp(after_fault, number);
  // A fault outside of kernels goes to the former handler.
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    if (kSignals[i] != number) continue;
    if (former[i].sa_flags & SA_SIGINFO) return former[i].sa_sigaction(number, info, context);
    if (former[i].sa_handler != SIG_DFL && former[i].sa_handler != SIG_IGN) {
      return former[i].sa_handler(number);
    }
    sigaction(number, &former[i], nullptr);
  }
}

void on_trap() { siglongjmp(after_fault, SIGTRAP); }

class FaultHandlers {
 public:
  FaultHandlers() {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &former[i]);
  }
  ~FaultHandlers() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &former[i], nullptr);
  }
};

size_t round_shared(size_t bytes) { return (bytes + 127) / 128 * 128; }

/// Dynamic shared memory of that size for the block of that rank in its cluster. A kernel that
/// writes behind it faults.
char* dynamic_shared(int rank, size_t bytes) {
  static size_t page = sysconf(_SC_PAGESIZE);
  static size_t length = (kMaxShared + page - 1) / page * page;
  static char* of_rank[kMaxCluster] = {};
  char*& memory = of_rank[rank];
  if (memory == nullptr) {
    memory = static_cast<char*>(
        mmap(nullptr, length + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory + length, page, PROT_NONE);
  }
  return memory + length - round_shared(bytes);
}

/// Fills shared memory for the next cluster's blocks with NaN or large numbers, in turns, so that
/// neither a maximum nor a sum hides unwritten elements.
void fill_shared(const Module& module, std::span<char* const> dynamic, size_t bytes, uint64_t run) {
  constexpr int kNan = 0xff, kLarge = 0x7b;
  const int content = run % 2 == 0 ? kLarge : kNan;
  for (char* const memory : dynamic) std::memset(memory, content, round_shared(bytes));
  if (module.static_shared > 0) {
    ThreadLocal place = {module.thread_local_id, 0};
    std::memset(__tls_get_addr(&place), content, module.static_shared);
  }
}

CUresult run_grid(const Module& module, const Entry& entry, const CUDA_KERNEL_NODE_PARAMS& launch,
                  void** parameters, bool is_early) {
  const Table& table = *module.table;
  Block& block = *table.block;
  block.grid_extent = {launch.gridDimX, launch.gridDimY, launch.gridDimZ};
  block.block_extent = {launch.blockDimX, launch.blockDimY, launch.blockDimZ};
  // Static, since a fault leaves this function without running its end.
  static char* of_rank[kMaxCluster];
  const int cluster = table.collective ? entry.cluster : 1;
  for (int rank = 0; rank < cluster; ++rank)
    of_rank[rank] = dynamic_shared(rank, launch.sharedMemBytes);
  const std::span<char* const> shared(of_rank, static_cast<size_t>(cluster));
  block.dynamic_shared = shared[0];
  set_callbacks(block, on_trap);
  for (block.block.z = 0; block.block.z < launch.gridDimZ; ++block.block.z) {
    for (block.block.y = 0; block.block.y < launch.gridDimY; ++block.block.y) {
      for (block.block.x = 0; block.block.x < launch.gridDimX; block.block.x += cluster) {
        block.waits = 0, ++block.runs;
        fill_shared(module, shared, launch.sharedMemBytes, block.runs);
        if (!table.collective) {
          entry.run_block(parameters);
        } else if (run_collective_blocks(table, entry, parameters, shared) == BlockEnd::kDeadlock) {
          std::fprintf(stderr, "emulated CUDA: threads of %s wait for each other forever\n",
                       entry.name);
          return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        if (is_early && block.waits == 0) {
          std::fprintf(stderr, "emulated CUDA: %s begins early and does not wait\n", entry.name);
          return CUDA_ERROR_LAUNCH_FAILED;
        }
      }
    }
  }
  return CUDA_SUCCESS;
}

const Parameter* parameters_of(const Function& function) { return function.entry->parameters; }

}  // namespace

CUresult check_launch(const CUDA_KERNEL_NODE_PARAMS& launch) {
  const Function* function = find_function(launch.func);
  if (!function || function->module->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  size_t threads = size_t{launch.blockDimX} * launch.blockDimY * launch.blockDimZ;
  bool grid = launch.gridDimX && launch.gridDimX <= 0x7fffffff && launch.gridDimY &&
              launch.gridDimY <= 65535 && launch.gridDimZ && launch.gridDimZ <= 65535;
  bool block = threads && threads <= 1024 && launch.blockDimX <= 1024 && launch.blockDimY <= 1024 &&
               launch.blockDimZ <= 64;
  if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
  if (launch.sharedMemBytes > static_cast<unsigned>(function->max_dynamic_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int cluster = function->entry->cluster;
  if (cluster < 1 || launch.gridDimX % cluster) return CUDA_ERROR_INVALID_VALUE;
  if (cluster > (function->allows_large_cluster ? kMaxCluster : kPortableCluster)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  if (threads > static_cast<unsigned>(function->entry->max_threads)) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (function->entry->parameter_count && !launch.kernelParams && !launch.extra) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

std::vector<std::vector<char>> copy_arguments(const CUDA_KERNEL_NODE_PARAMS& launch) {
  const Function& function = *find_function(launch.func);
  const char* buffer = nullptr;
  for (void** extra = launch.extra; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const char*>(extra[1]);
  }
  std::vector<std::vector<char>> arguments;
  for (int i = 0; i < function.entry->parameter_count; ++i) {
    Parameter parameter = parameters_of(function)[i];
    auto* from = launch.kernelParams ? static_cast<const char*>(launch.kernelParams[i])
                                     : buffer + parameter.offset;
    arguments.emplace_back(from, from + parameter.size);
  }
  return arguments;
}

CUresult run_kernel(const CUDA_KERNEL_NODE_PARAMS& launch,
                    const std::vector<std::vector<char>>& arguments, bool is_early) {
  const Function* found = find_function(launch.func);
  // The module was unloaded since the capture.
  if (!found) return CUDA_ERROR_LAUNCH_FAILED;
  const Function& function = *found;
  // Structures have at most the alignment of tensor maps.
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<std::vector<Line>> values;
  std::vector<void*> parameters;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::vector<Line>& value = values.emplace_back(arguments[i].size() / sizeof(Line) + 1);
    std::memcpy(value.data(), arguments[i].data(), arguments[i].size());
    if (parameters_of(function)[i].pointer) {
      // The device cannot reach pageable host memory.
      CUdeviceptr address;
      std::memcpy(&address, value.data(), sizeof(address));
      if (place_of(address, 1) == Place::kPageable) address = forbidden_address(address);
      std::memcpy(value.data(), &address, sizeof(address));
    }
    parameters.push_back(value.data());
  }
  OpenMemory open;
  FaultHandlers handlers;
  int fault = sigsetjmp(after_fault, 1);
  if (fault) {
    in_kernel = false;
    if (fault == SIGSEGV || fault == SIGBUS) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (fault != SIGILL) return CUDA_ERROR_LAUNCH_FAILED;
    std::fprintf(stderr, "emulated CUDA: an access of %s is not aligned\n", function.entry->name);
    return CUDA_ERROR_MISALIGNED_ADDRESS;
  }
  in_kernel = true;
  CUresult result =
      run_grid(*function.module, *function.entry, launch, parameters.data(), is_early);
  in_kernel = false;
  return result;
}

}  // namespace emulation

using namespace emulation;

namespace {

CUresult launch_kernel(const char* name, CUDA_KERNEL_NODE_PARAMS launch, CUstream handle,
                       bool is_early = false) {
  return call(name, [&] {
    Stream* stream = find_own_stream(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_legacy_use(stream)) return error;
    if (CUresult error = check_launch(launch)) return error;
    if (stream->capture) {
      GraphNode node;
      node.type = CU_GRAPH_NODE_TYPE_KERNEL;
      if (CUresult error = set_kernel(node, launch)) return error;
      node.is_early = is_early;
      return add_captured(stream, std::move(node));
    }
    enqueue(stream, [launch, arguments = copy_arguments(launch), is_early] {
      return run_kernel(launch, arguments, is_early);
    });
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** parameters, void** extra) {
  CUDA_KERNEL_NODE_PARAMS launch = {};
  launch.func = function;
  launch.gridDimX = grid_x;
  launch.gridDimY = grid_y;
  launch.gridDimZ = grid_z;
  launch.blockDimX = block_x;
  launch.blockDimY = block_y;
  launch.blockDimZ = block_z;
  launch.sharedMemBytes = shared;
  launch.kernelParams = parameters;
  launch.extra = extra;
  return launch_kernel(__func__, launch, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  CUDA_KERNEL_NODE_PARAMS launch = {};
  launch.func = function;
  launch.gridDimX = config->gridDimX;
  launch.gridDimY = config->gridDimY;
  launch.gridDimZ = config->gridDimZ;
  launch.blockDimX = config->blockDimX;
  launch.blockDimY = config->blockDimY;
  launch.blockDimZ = config->blockDimZ;
  launch.sharedMemBytes = config->sharedMemBytes;
  launch.kernelParams = parameters;
  launch.extra = extra;
  bool is_early = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      is_early = attribute.value.programmaticStreamSerializationAllowed != 0;
    }
  }
  return launch_kernel(__func__, launch, config->hStream, is_early);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t shared) {
  return call(__func__, [&] {
    const Function* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    int by_shared = static_cast<int>(kMaxShared / (shared + 1024));
    *blocks = std::min({by_threads, by_shared, 32});
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
