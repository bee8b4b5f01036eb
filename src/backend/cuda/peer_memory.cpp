#include "backend/cuda/peer_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "backend/cuda/relaxed_capture.h"
#include "base/error.h"

namespace opwright::cuda {
namespace {

/// The same as in device/peer_all_reduce.cuh.
struct Peers {
  static constexpr int kRanks = 64, kBlocks = 1024;
  unsigned long long packets[kRanks];
  unsigned long long stop;
  int32_t rank, places;
  uint32_t epochs[kBlocks];
};
static_assert(Peers::kRanks >= PeerMemory::kMostRanks);

constexpr size_t kPacketBytes = 16;  ///< of the memory
constexpr size_t kDataBytes = 8;     ///< of them that are data
/// Larger tensors go over NCCL, which sends each element fewer times.
constexpr size_t kMostBytes = 512 << 10;
static_assert(kMostBytes / kDataBytes / 64 <= Peers::kBlocks, "a block has 64 threads at least");
/// What a rank sends to all others together, at most.
constexpr size_t kMostSent = 1 << 20;
/// Where the packets begin in the memory.
constexpr size_t kPacketsAt = 8192;
static_assert(kPacketsAt >= sizeof(Peers));
/// The driver shares whole pages of this size. So nothing else lies in them.
constexpr size_t kPage = 2 << 20;
/// What a rank writes into the others' memory, to see whether it comes there.
constexpr uint64_t kGreeting = 0x6f70777269676874;

size_t places(int ranks) { return PeerMemory::most_bytes(ranks) / kDataBytes; }

bool is_switched_off() {
  const char* const text = std::getenv("NCCL_P2P_DISABLE");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

/// Whether the driver did all of it. That it did not is an answer, with which ranks go on.
template <class Work>
bool succeeds(Work&& work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    return false;
  }
}

CUdeviceptr driver_address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Whether all ranks say yes.
bool agree(HostCommunicator& host, bool is_well) {
  const auto answer = static_cast<std::byte>(is_well ? 1 : 0);
  const std::vector<std::byte> answers = host.gather(std::span(&answer, 1));
  return std::ranges::all_of(answers, [](std::byte each) { return each == std::byte{1}; });
}

}  // namespace

size_t PeerMemory::most_bytes(int ranks) {
  const auto others = static_cast<size_t>(std::max(ranks - 1, 1));
  return std::min(kMostBytes, kMostSent / others / kDataBytes * kDataBytes);
}

PeerMemory::PeerMemory(const CudaDevice& device, int rank, int ranks)
    : device_(device), rank_(rank), ranks_(ranks), all_(static_cast<size_t>(ranks)) {}

/// Every rank does every step, also where it has failed, since the others wait for it.
std::unique_ptr<PeerMemory> PeerMemory::make(const CudaDevice& device, HostCommunicator& host) {
  if (host.ranks() == 1 || host.ranks() > kMostRanks) return nullptr;
  const DeviceScope scope(device);
  const RelaxedCapture relaxed;
  std::unique_ptr<PeerMemory> made(new PeerMemory(device, host.rank(), host.ranks()));
  try {
    CUipcMemHandle handle{};
    bool is_well = !is_switched_off() && succeeds([&] { made->allocate(handle); });
    const std::vector<std::byte> handles = host.gather(std::as_bytes(std::span(&handle, 1)));
    is_well = agree(host, is_well) && succeeds([&] { made->map(handles); });
    is_well = agree(host, is_well) && succeeds([&] { made->send_greetings(); });
    is_well = agree(host, is_well) && succeeds([&] { made->expect_greetings(); });
    if (agree(host, is_well)) return made;
    made->close();
    agree(host, true);      // all have closed it
  } catch (const Error&) {  // a rank has ended
    made->close();          // others may still have this one's memory
    throw;
  }
  made->free();
  return nullptr;
}

void PeerMemory::allocate(CUipcMemHandle& handle) {
  const size_t packets = 2 * static_cast<size_t>(ranks_) * places(ranks_) * kPacketBytes;
  const size_t bytes = (kPacketsAt + packets + kPage - 1) / kPage * kPage;
  CUdeviceptr memory = 0;
  check(driver().cuMemAlloc(&memory, bytes), "allocating memory that ranks share");
  own_ = memory;
  setting_up_ = device_.make_queue();
  clear(own_, bytes);
  device_.synchronize(setting_up_.get());
  void* word = nullptr;
  check(driver().cuMemHostAlloc(&word, sizeof(uint64_t),
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "allocating the word that ends kernels");
  stop_ = word;
  std::memset(stop_, 0, sizeof(uint64_t));
  check(driver().cuIpcGetMemHandle(&handle, own_), "sharing memory with other ranks");
}

/// The driver refuses handles of this process, of GPUs that this one cannot reach, and of processes
/// that it cannot ask. Whether cuDeviceCanAccessPeer says so, too, does not matter: another
/// process may number the GPUs otherwise, and have some that this one has not.
void PeerMemory::map(const std::vector<std::byte>& handles) {
  Peers table{};
  for (int i = 0; i < ranks_; ++i) {
    const int rank = (rank_ + i) % ranks_;
    CUdeviceptr& memory = all_[static_cast<size_t>(rank)];
    if (i == 0) {
      memory = own_;
    } else {
      CUipcMemHandle handle{};
      std::memcpy(&handle, handles.data() + static_cast<size_t>(rank) * sizeof(handle),
                  sizeof(handle));
      CUdeviceptr mapped = 0;
      check(driver().cuIpcOpenMemHandle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            "mapping the memory of rank ", rank);
      memory = mapped;
    }
    table.packets[i] = memory + kPacketsAt;
  }
  table.stop = driver_address(stop_), table.rank = rank_;
  table.places = static_cast<int32_t>(places(ranks_));
  copy(own_, driver_address(&table), sizeof(table));
  device_.synchronize(setting_up_.get());
}

/// Writes a word into the place of this rank's first packet in all ranks' memory. Some machines
/// have GPUs that seem to reach each other, but what they write does not arrive.
void PeerMemory::send_greetings() {
  const uint64_t word = kGreeting + static_cast<uint64_t>(rank_);
  for (const CUdeviceptr memory : all_)
    copy(memory + first_packet_of(rank_), driver_address(&word), sizeof(word));
  device_.synchronize(setting_up_.get());
}

/// Those of all ranks have come. Their places become empty again.
void PeerMemory::expect_greetings() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const CUdeviceptr place = own_ + first_packet_of(rank);
    uint64_t word = 0;
    copy(driver_address(&word), place, sizeof(word));
    clear(place, sizeof(word));
    device_.synchronize(setting_up_.get());
    require(word == kGreeting + static_cast<uint64_t>(rank), "rank ", rank,
            " does not reach this GPU's memory");
  }
  setting_up_ = nullptr;
}

size_t PeerMemory::first_packet_of(int rank) const {
  return kPacketsAt + static_cast<size_t>(rank) * places(ranks_) * kPacketBytes;
}

void PeerMemory::copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) const {
  check(driver().cuMemcpyAsync(to, from, bytes, static_cast<CUstream>(setting_up_.get())),
        "copying to memory that ranks share");
}

void PeerMemory::clear(CUdeviceptr memory, size_t bytes) const {
  check(driver().cuMemsetD8Async(memory, 0, bytes, static_cast<CUstream>(setting_up_.get())),
        "clearing memory that ranks share");
}

/// The first program that uses a second stream waits for the GPU once. Until then kernels need no
/// event after them, which would keep the next kernel from beginning early. Graphs are ordered by
/// the program that launches them.
void PeerMemory::begin(Queue queue) {
  if (!has_run_ || queue == last_queue_ || device_.is_capturing(queue)) return;
  if (last_use_ != nullptr) {
    last_use_->make_wait(queue);
    return;
  }
  const RelaxedCapture relaxed;
  check(driver().cuCtxSynchronize(), "waiting for the work of another stream of the communicator");
  last_use_ = device_.make_event(false);
}

void PeerMemory::end(Queue queue) {
  if (device_.is_capturing(queue)) return;
  has_run_ = true, last_queue_ = queue;
  if (last_use_ != nullptr) last_use_->record(queue);
}

void PeerMemory::close() {
  for (int rank = 0; rank < ranks_; ++rank) {
    CUdeviceptr& memory = all_[static_cast<size_t>(rank)];
    if (rank != rank_ && memory != 0) driver().cuIpcCloseMemHandle(memory);
    memory = 0;
  }
}

void PeerMemory::free() {
  last_use_ = nullptr;
  if (own_ != 0) driver().cuMemFree(own_);
  if (stop_ != nullptr) driver().cuMemFreeHost(stop_);
  own_ = 0, stop_ = nullptr;
}

}  // namespace opwright::cuda
