// The part of NCCL's interface that Opwright and its tests use, between processes of one host, with
// a kernel for the emulated driver. Ranks meet in a file of /dev/shm, which the last one to come
// removes.

#include <cuda.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "own_kernel.h"

namespace {

using opwright::emulation::function_of;
using opwright::emulation::make_kernel;
using Clock = std::chrono::steady_clock;

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6
};
enum Kind : int { kMessage, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };
enum Operation : int { kSum, kProduct, kMaximum, kMinimum, kMean };

constexpr int kMaxRanks = 8;
constexpr size_t kChunk = 64 << 10;
constexpr uint64_t kMagic = 0x4c43434e74777270;

/// What both ends of a message must agree on.
struct Header {
  int32_t kind, type, operation, root, is_captured;
  uint64_t bytes;
  bool operator==(const Header&) const = default;
};

/// Messages from one rank to another, a chunk at a time.
struct Channel {
  std::atomic<uint64_t> written, read;  ///< chunks
  Header header;
  char data[kChunk];
};

struct Shared {
  std::atomic<uint32_t> come;
  std::atomic<int32_t> failure;  ///< the Result for all ranks; 0: none
  Channel channels[kMaxRanks][kMaxRanks];
};

struct UniqueId {
  char internal[128];
};

struct Comm {
  std::atomic<uint64_t> magic = kMagic;
  int rank = 0, ranks = 0, device = 0;
  Shared* shared = nullptr;
  CUfunction kernel = nullptr;
  std::atomic<int> failure{0};
  std::string last_error;
};

thread_local std::string thread_error;

/// A call within a group, or one of its own.
struct Call {
  Kind kind;
  Comm* comm;
  const char* from;
  char* to;
  size_t count;
  int type, operation = 0, root = -1, peer = -1;
  bool is_send = false, is_captured = false;
};

/// Work of one kernel. A graph runs it any number of times.
struct Work {
  std::vector<Call> calls;
  bool is_captured = false;
};

double time_limit() {
  const char* text = std::getenv("OPWRIGHT_EMULATED_NCCL_TIMEOUT");
  return text != nullptr ? std::atof(text) : 20;
}

Clock::time_point deadline() {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_limit()));
}

size_t size_of(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < static_cast<int>(std::size(kSizes)) ? kSizes[type] : 0;
}

int fail(Comm* comm, int result, const std::string& text) {
  thread_error = text;
  if (comm != nullptr) comm->last_error = text;
  return result;
}

// Elements.

float from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16, exponent = bits >> 10 & 31,
                 fraction = bits & 1023;
  float value = 0;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t word =
      sign | (exponent == 31 ? 0x7f800000U : (exponent + 112) << 23) | fraction << 13;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// The nearest number of 10 bits of fraction; ties go to even ones.
uint16_t to_half(float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000);
  word &= 0x7fffffff;
  if (word > 0x7f800000) return sign | 0x7e00;
  if (word >= 0x477ff000) return sign | 0x7c00;
  if (word < 0x38800000) {
    float small = 0;
    std::memcpy(&small, &word, sizeof small);
    small += 0.5F;  // whose last bit is the last one of small halves
    std::memcpy(&word, &small, sizeof word);
    return static_cast<uint16_t>(sign | (word - 0x3f000000));
  }
  word += 0xfff + (word >> 13 & 1);
  return static_cast<uint16_t>(sign | (word - 0x38000000) >> 13);
}

float from_bfloat(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

uint16_t to_bfloat(float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  if ((word & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

template <class T, class Sum, class Read, class Write>
void reduce_as(const std::vector<std::vector<char>>& parts, char* to, size_t count, int operation,
               Read read, Write write) {
  for (size_t i = 0; i < count; ++i) {
    Sum sum{};
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      T element;
      std::memcpy(&element, parts[rank].data() + i * sizeof(T), sizeof element);
      const Sum value = read(element);
      if (rank == 0)
        sum = value;
      else if (operation == kProduct)
        sum = static_cast<Sum>(sum * value);
      else if (operation == kMaximum)
        sum = std::max(sum, value);
      else if (operation == kMinimum)
        sum = std::min(sum, value);
      else
        sum = static_cast<Sum>(sum + value);
    }
    if (operation == kMean) sum = static_cast<Sum>(sum / static_cast<Sum>(parts.size()));
    const T result = write(sum);
    std::memcpy(to + i * sizeof(T), &result, sizeof result);
  }
}

/// Reduces the ranks' parts in their order.
void reduce(const std::vector<std::vector<char>>& parts, char* to, size_t count, int type,
            int operation) {
  const auto as = [&]<class T>(T) {
    reduce_as<T, T>(
        parts, to, count, operation, [](T value) { return value; }, [](T value) { return value; });
  };
  switch (type) {
    case 0:
      return as(int8_t());
    case 1:
      return as(uint8_t());
    case 2:
      return as(int32_t());
    case 4:
      return as(int64_t());
    case 6:
      return reduce_as<uint16_t, float>(parts, to, count, operation, from_half, to_half);
    case 7:
      return as(float());
    case 9:
      return reduce_as<uint16_t, float>(parts, to, count, operation, from_bfloat, to_bfloat);
    default:
      return;
  }
}

// Messages.

struct Transfer {
  Channel* channel;
  bool is_send;
  char* data;
  size_t bytes;
  Header header;
  size_t done = 0;
  bool is_finished = false;
};

bool give_up(Comm& comm, int result, const std::string& text) {
  int32_t none = 0;
  comm.shared->failure.compare_exchange_strong(none, result);
  comm.last_error = text;
  comm.failure = comm.shared->failure.load();
  std::fprintf(stderr, "emulated NCCL: rank %d of %d: %s\n", comm.rank, comm.ranks, text.c_str());
  return false;
}

/// Moves the next chunk if the other end is ready. Every message has one chunk at least.
bool advance(Comm& comm, Transfer& transfer, bool& has_moved) {
  Channel& channel = *transfer.channel;
  const bool is_full = channel.written.load() != channel.read.load();
  if (transfer.is_send == is_full) return true;
  const size_t bytes = std::min(kChunk, transfer.bytes - transfer.done);
  if (transfer.is_send) {
    channel.header = transfer.header;
    std::memcpy(channel.data, transfer.data + transfer.done, bytes);
    ++channel.written;
  } else {
    if (channel.header != transfer.header)
      return give_up(comm, kInvalidUsage,
                     "ranks call different operations, of different types, counts or roots, or one "
                     "of them captures what another runs");
    std::memcpy(transfer.data + transfer.done, channel.data, bytes);
    ++channel.read;
  }
  transfer.done += bytes;
  transfer.is_finished = transfer.done == transfer.bytes;
  has_moved = true;
  return true;
}

/// Moves all messages. False: another rank is missing or has failed, or runs something else.
bool move(Comm& comm, std::vector<Transfer>& transfers) {
  auto end = deadline();
  while (true) {
    bool has_moved = false, is_finished = true;
    std::vector<const Channel*> busy;  // messages between two ranks keep their order
    for (Transfer& transfer : transfers) {
      if (transfer.is_finished) continue;
      is_finished = false;
      if (std::find(busy.begin(), busy.end(), transfer.channel) != busy.end()) continue;
      busy.push_back(transfer.channel);
      if (!advance(comm, transfer, has_moved)) return false;
    }
    if (is_finished) return true;
    if (comm.failure != 0) return false;
    if (comm.shared->failure != 0) return give_up(comm, kRemoteError, "another rank has given up");
    if (has_moved) {
      end = deadline();
      continue;
    }
    if (Clock::now() > end) return give_up(comm, kRemoteError, "another rank does not come");
    sched_yield();
  }
}

/// Adds the message between this rank and a peer.
void add(std::vector<Transfer>& transfers, const Call& call, bool is_send, int peer,
         const char* data, size_t bytes) {
  Comm& comm = *call.comm;
  auto& channels = comm.shared->channels;
  const Header header{call.kind, call.type, call.operation, call.root, call.is_captured ? 1 : 0,
                      bytes};
  transfers.push_back({is_send ? &channels[comm.rank][peer] : &channels[peer][comm.rank], is_send,
                       const_cast<char*>(data), bytes, header});
}

bool run_collective(const Call& call) {
  Comm& comm = *call.comm;
  const auto ranks = static_cast<size_t>(comm.ranks);
  const auto rank = static_cast<size_t>(comm.rank);
  const size_t bytes = call.count * size_of(call.type);
  const bool is_root = call.root == comm.rank;
  const bool is_whole = call.kind == kAllReduce || call.kind == kAllGather;
  std::vector<std::vector<char>> parts(ranks, std::vector<char>(bytes));
  std::vector<Transfer> transfers;
  for (size_t peer = 0; peer < ranks; ++peer) {
    const bool is_peer_root = call.root == static_cast<int>(peer);
    const bool sends =
        is_whole || call.kind == kReduceScatter || (call.kind == kReduce ? is_peer_root : is_root);
    const bool receives =
        is_whole || call.kind == kReduceScatter || (call.kind == kReduce ? is_root : is_peer_root);
    const char* const from = call.from + (call.kind == kReduceScatter ? peer * bytes : 0);
    if (peer == rank) {
      if (sends && receives) std::memcpy(parts[rank].data(), from, bytes);
      continue;
    }
    if (sends) add(transfers, call, true, static_cast<int>(peer), from, bytes);
    if (receives) add(transfers, call, false, static_cast<int>(peer), parts[peer].data(), bytes);
  }
  if (!move(comm, transfers)) return false;
  if (call.kind == kBroadcast) {
    std::memcpy(call.to, parts[static_cast<size_t>(call.root)].data(), bytes);
  } else if (call.kind == kAllGather) {
    for (size_t i = 0; i < ranks; ++i) std::memcpy(call.to + i * bytes, parts[i].data(), bytes);
  } else if (call.kind != kReduce || is_root) {
    reduce(parts, call.to, call.count, call.type, call.operation);
  }
  return true;
}

/// Runs as a kernel: the device's memory is open, and the process's other streams wait.
void run(uint64_t address) {
  Work* const work = reinterpret_cast<Work*>(address);
  std::vector<Transfer> transfers;
  bool is_well = true;
  for (const Call& call : work->calls) {
    if (call.comm->failure != 0) return;
    if (call.kind == kMessage)
      add(transfers, call, call.is_send, call.peer, call.is_send ? call.from : call.to,
          call.count * size_of(call.type));
    else
      is_well = is_well && run_collective(call);
  }
  if (is_well && !transfers.empty()) move(*work->calls[0].comm, transfers);
  if (!work->is_captured) delete work;
}

constexpr char kSource[] = R"(
extern "C" __global__ void collective(unsigned long long run, unsigned long long work) {
  ((void (*)(unsigned long long))run)(work);
}
)";

template <class F>
F driver_function(const char* name) {
  return function_of<F>("OPWRIGHT_CUDA_DRIVER", name);
}

// Groups.

thread_local int depth = 0;
thread_local std::vector<Call> group;
thread_local CUstream group_stream = nullptr;

bool is_on_device(const void* address) {
  static const auto ask = driver_function<CUresult (*)(void*, CUpointer_attribute, CUdeviceptr)>(
      "cuPointerGetAttribute");
  unsigned found = 0;
  return ask(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(address)) ==
             CUDA_SUCCESS &&
         found == CU_MEMORYTYPE_DEVICE;
}

int launch(std::vector<Call> calls, CUstream stream) {
  static const auto ask =
      driver_function<CUresult (*)(CUstream, CUstreamCaptureStatus*)>("cuStreamIsCapturing");
  static const auto launch_kernel = driver_function<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (ask(stream, &status) != CUDA_SUCCESS) return kUnhandledCudaError;
  const bool is_captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
  for (Call& call : calls) call.is_captured = is_captured;
  Comm* const comm = calls[0].comm;
  // As NCCL's own kernels, this one has the addresses elsewhere, not among its arguments.
  auto work = std::make_unique<Work>(Work{std::move(calls), is_captured});
  auto function = reinterpret_cast<uint64_t>(&run),
       address = reinterpret_cast<uint64_t>(work.get());
  void* arguments[] = {&function, &address};
  if (launch_kernel(comm->kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) != CUDA_SUCCESS)
    return kUnhandledCudaError;
  work.release();
  return kSuccess;
}

int give(Call call, CUstream stream) {
  Comm* const comm = call.comm;
  if (comm == nullptr || comm->magic != kMagic)
    return fail(nullptr, kInvalidArgument, "the communicator is none, or is destroyed");
  const size_t element = size_of(call.type);
  if (element == 0) return fail(comm, kInvalidArgument, "there is no such type");
  if (call.operation < kSum || call.operation > kMean)
    return fail(comm, kInvalidArgument, "there is no such operation");
  const bool has_root = call.kind == kReduce || call.kind == kBroadcast;
  if (has_root && (call.root < 0 || call.root >= comm->ranks))
    return fail(comm, kInvalidArgument, "the root is no rank");
  if (call.kind == kMessage && (call.peer < 0 || call.peer >= comm->ranks))
    return fail(comm, kInvalidArgument, "the peer is no rank");
  const bool reads =
      call.kind == kMessage ? call.is_send : call.kind != kBroadcast || call.root == comm->rank;
  const bool writes =
      call.kind == kMessage ? !call.is_send : call.kind != kReduce || call.root == comm->rank;
  if (call.count > 0 && ((reads && !is_on_device(call.from)) || (writes && !is_on_device(call.to))))
    return fail(comm, kInvalidArgument, "an address is none of the device's memory");
  if (depth > 0) {
    if (!group.empty() && (group_stream != stream || group[0].comm != comm))
      return fail(comm, kInvalidUsage, "the emulation has one communicator and stream for a group");
    group.push_back(call);
    group_stream = stream;
    return kSuccess;
  }
  if (call.kind == kMessage && call.peer == comm->rank)
    return fail(comm, kInvalidUsage, "a rank sends to itself outside of a group");
  return launch({call}, stream);
}

Call collective(Kind kind, Comm* comm, const void* from, void* to, size_t count, int type,
                int operation = 0, int root = -1) {
  return {kind,      comm, static_cast<const char*>(from), static_cast<char*>(to), count, type,
          operation, root};
}

std::string file_of(const UniqueId& id) {
  return "/dev/shm/" + std::string(id.internal, strnlen(id.internal, sizeof id.internal));
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* text = std::getenv("OPWRIGHT_EMULATED_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22809;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kUnhandledCudaError:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(Comm* comm) {
  return comm != nullptr ? comm->last_error.c_str() : thread_error.c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "opwright-nccl-%08x%08x%08x", random(), random(),
                random());
  return kSuccess;
}

int ncclCommInitRank(Comm** made, int ranks, UniqueId id, int rank) {
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks)
    return fail(nullptr, kInvalidArgument, "there is no such rank");
  const auto current = driver_function<CUresult (*)(CUdevice*)>("cuCtxGetDevice");
  auto comm = std::make_unique<Comm>();
  comm->rank = rank, comm->ranks = ranks;
  if (current == nullptr || current(&comm->device) != CUDA_SUCCESS)
    return fail(nullptr, kUnhandledCudaError, "the thread has no current context");
  comm->kernel = make_kernel(kSource, "nccl.cu", "collective");
  if (comm->kernel == nullptr)
    return fail(nullptr, kUnhandledCudaError, "the kernel cannot be made");
  const std::string file = file_of(id);
  const int descriptor = open(file.c_str(), O_CREAT | O_RDWR, 0600);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0)
    return fail(nullptr, kSystemError, "there is no memory for the ranks");
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) return fail(nullptr, kSystemError, "there is no memory for the ranks");
  comm->shared = static_cast<Shared*>(memory);
  const auto all = static_cast<uint32_t>(ranks);
  if (++comm->shared->come == all) unlink(file.c_str());
  const auto end = deadline();
  while (comm->shared->come < all) {
    if (Clock::now() > end) {
      unlink(file.c_str());
      munmap(memory, sizeof(Shared));
      return fail(nullptr, kRemoteError, "another rank does not come");
    }
    sched_yield();
  }
  *made = comm.release();
  return kSuccess;
}

int ncclCommDestroy(Comm* comm) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  munmap(comm->shared, sizeof(Shared));
  // The memory stays, so that a later use of the communicator is an error.
  comm->magic = 0;
  return kSuccess;
}

int ncclCommAbort(Comm* comm) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  // The kernel that waits ends. The memory stays, so that a later use is an error.
  comm->failure = kRemoteError;
  comm->magic = 0;
  return kSuccess;
}

int ncclCommCount(Comm* comm, int* count) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  *count = comm->ranks;
  return kSuccess;
}
int ncclCommUserRank(Comm* comm, int* rank) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  *rank = comm->rank;
  return kSuccess;
}
int ncclCommCuDevice(Comm* comm, int* device) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  *device = comm->device;
  return kSuccess;
}
int ncclCommGetAsyncError(Comm* comm, int* result) {
  if (comm == nullptr || comm->magic != kMagic) return kInvalidArgument;
  *result = comm->failure;
  return kSuccess;
}

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}
int ncclGroupEnd() {
  if (depth == 0) return fail(nullptr, kInvalidUsage, "there is no group to end");
  if (--depth > 0 || group.empty()) return kSuccess;
  return launch(std::exchange(group, {}), group_stream);
}

int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, CUstream stream) {
  Call call = collective(kMessage, comm, from, nullptr, count, type);
  call.peer = peer, call.is_send = true;
  return give(call, stream);
}
int ncclRecv(void* to, size_t count, int type, int peer, Comm* comm, CUstream stream) {
  Call call = collective(kMessage, comm, nullptr, to, count, type);
  call.peer = peer;
  return give(call, stream);
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, Comm* comm,
                  CUstream stream) {
  return give(collective(kAllReduce, comm, from, to, count, type, operation), stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int operation, int root,
               Comm* comm, CUstream stream) {
  return give(collective(kReduce, comm, from, to, count, type, operation, root), stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm* comm,
                  CUstream stream) {
  return give(collective(kBroadcast, comm, from, to, count, type, 0, root), stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm, CUstream stream) {
  return give(collective(kAllGather, comm, from, to, count, type), stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation, Comm* comm,
                      CUstream stream) {
  return give(collective(kReduceScatter, comm, from, to, count, type, operation), stream);
}

}  // extern "C"
