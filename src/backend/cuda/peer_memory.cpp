#include "backend/cuda/peer_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "backend/cuda/relaxed_capture.h"
#include "backend/gpu/device/peers.cuh"
#include "base/error.h"

namespace opwright::cuda {
namespace {

using Layout = peers::Table;
static_assert(offsetof(Layout, buffers) == 0, "the kernel of the all-reduce gets the whole table");

/// The driver shares whole pages of this size. So nothing else lies in them.
constexpr size_t kPage = 2 << 20;
/// What a rank writes into the others' memory, to see whether it comes there.
constexpr uint64_t kGreeting = 0x6f70777269676874;

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

// NOLINTNEXTLINE(performance-no-int-to-ptr): the addresses of the driver are integers
void* pointer(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }
CUdeviceptr driver_address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Whether all ranks say yes.
bool agree(HostCommunicator& host, bool is_well) {
  const auto answer = static_cast<std::byte>(is_well ? 1 : 0);
  const std::vector<std::byte> answers = host.gather(std::span(&answer, 1));
  return std::ranges::all_of(answers, [](std::byte each) { return each == std::byte{1}; });
}

}  // namespace

// Kernels reach the host's memory at the same address. Without the word all ranks do without the
// memory.
StopWord::StopWord(const CudaDevice& device) {
  const DeviceScope scope(device);
  const RelaxedCapture relaxed;
  driver().cuMemHostAlloc(&word_, sizeof(uint64_t),
                          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (word_ != nullptr) std::memset(word_, 0, sizeof(uint64_t));
}

void StopWord::set() {
  if (word_ != nullptr) *static_cast<volatile uint64_t*>(word_) = 1;
}

void StopWord::free() {
  if (word_ != nullptr) driver().cuMemFreeHost(word_);
  word_ = nullptr;
}

PeerMemory::PeerMemory(const CudaDevice& device, int rank, int ranks, size_t bytes,
                       const StopWord& stop)
    : device_(device),
      rank_(rank),
      ranks_(ranks),
      bytes_(bytes),
      stop_(stop),
      all_(static_cast<size_t>(ranks)) {}

/// Every rank does every step, also where it has failed, since the others wait for it.
std::unique_ptr<PeerMemory> PeerMemory::make(const CudaDevice& device, HostCommunicator& host,
                                             size_t bytes, const StopWord& stop) {
  if (host.ranks() == 1 || host.ranks() > Layout::kRanks || !host.is_of_one_host()) return nullptr;
  const DeviceScope scope(device);
  const RelaxedCapture relaxed;
  std::unique_ptr<PeerMemory> made(new PeerMemory(device, host.rank(), host.ranks(), bytes, stop));
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
  const size_t room = std::max(bytes_, static_cast<size_t>(ranks_) * sizeof(uint64_t));
  require(stop_.address() != nullptr, "there is no word that ends kernels");
  require(room < SIZE_MAX / 2, "memory of ", bytes_, " bytes does not exist");
  const size_t bytes = (Layout::kBufferAt + room + kPage - 1) / kPage * kPage;
  CUdeviceptr memory = 0;
  check(driver().cuMemAlloc(&memory, bytes), "allocating memory that ranks share");
  own_ = memory;
  setting_up_ = device_.make_queue();
  clear(own_, bytes);
  device_.synchronize(setting_up_.get());
  check(driver().cuIpcGetMemHandle(&handle, own_), "sharing memory with other ranks");
}

/// The driver refuses handles of this process, of GPUs that this one cannot reach, and of processes
/// that it cannot ask. Whether cuDeviceCanAccessPeer says so, too, does not matter: another
/// process may number the GPUs otherwise, and have some that this one has not.
void PeerMemory::map(const std::vector<std::byte>& handles) {
  Layout table{};
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
    table.buffers[i] = memory + Layout::kBufferAt;
  }
  for (const CUdeviceptr memory : all_) buffers_.push_back(pointer(memory + Layout::kBufferAt));
  table.stop = driver_address(stop_.address()), table.rank = rank_, table.ranks = ranks_;
  copy(own_, driver_address(&table), sizeof(table));
  device_.synchronize(setting_up_.get());
}

/// Writes a word into this rank's place in all ranks' memory. Some machines have GPUs that seem to
/// reach each other, but what they write does not arrive.
void PeerMemory::send_greetings() {
  const uint64_t word = kGreeting + static_cast<uint64_t>(rank_);
  for (const CUdeviceptr memory : all_)
    copy(greeting_in(memory, rank_), driver_address(&word), sizeof(word));
  device_.synchronize(setting_up_.get());
}

/// Those of all ranks have come. Their places become empty again.
void PeerMemory::expect_greetings() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const CUdeviceptr place = greeting_in(own_, rank);
    uint64_t word = 0;
    copy(driver_address(&word), place, sizeof(word));
    clear(place, sizeof(word));
    device_.synchronize(setting_up_.get());
    require(word == kGreeting + static_cast<uint64_t>(rank), "rank ", rank,
            " does not reach this GPU's memory");
  }
  setting_up_ = nullptr;
}

CUdeviceptr PeerMemory::greeting_in(CUdeviceptr memory, int rank) const {
  return memory + Layout::kBufferAt + static_cast<size_t>(rank) * sizeof(uint64_t);
}

PeerBuffers::Table PeerMemory::table() const {
  return {pointer(own_ + offsetof(Layout, buffers)), pointer(own_ + offsetof(Layout, counters)),
          stop_.address()};
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
  own_ = 0;
}

}  // namespace opwright::cuda
