#include "backend/cuda/nccl_communicator.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/relaxed_capture.h"
#include "backend/gpu/dist_collective.h"
#include "base/error.h"
#include "base/printable.h"

namespace opwright::cuda {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 20ms;   ///< between looks at other processes while they start
constexpr auto kLook = 100ms;  ///< and later
/// Work that needs nothing of a rank whose process has ended may go on for so long.
constexpr auto kGrace = 500ms;
/// How long a rank that leaves waits for the others to leave.
constexpr auto kWaitForOthers = 2s;
/// Characters of a name of memory.
constexpr size_t kMostName = 119;
/// How long an abort waits for a function of NCCL's that uses the communicator.
constexpr auto kWaitForUse = 2s;

const Nccl& find_nccl() {
  std::string reason;
  const Nccl* const library = Nccl::find(reason);
  if (library == nullptr) fail_with(ErrorCode::kFAILED_INITIALIZATION, reason);
  return *library;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const CudaDevice& device, HostCommunicator& host)
    : device_(device), host_(host), library_(find_nccl()), stop_word_(device) {
  Nccl::UniqueId id{};
  if (host_.rank() == 0)
    library_.check(library_.functions().ncclGetUniqueId(&id), nullptr,
                   str("Communicator '", host_.name(), "'"));
  host_.broadcast(std::as_writable_bytes(std::span(id.internal)), 0);
  communicator_ = start(id);
  try {
    peers_ = PeerMemory::make(device_, host_, gpu::packet_bytes_between_peers(host_.ranks()),
                              stop_word_);
    // All ranks have one, or all fail.
    std::byte nothing{};
    host_.broadcast(std::span(&nothing, 1), 0);
  } catch (...) {
    const DeviceScope scope(device_);
    close_memory();
    library_.functions().ncclCommAbort(communicator_);
    throw;
  }
  std::unique_lock lock(stopping_);
  watcher_ = std::thread([this] { watch(); });
  stop_.wait(lock, [&] { return is_watching_; });
}

/// NCCL waits for all ranks without a limit of time, so a thread of its own does that.
Nccl::Communicator NcclCommunicator::start(const Nccl::UniqueId& id) const {
  struct Start {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    int result = 0;
    Nccl::Communicator made = nullptr;
    std::string error;
  };
  const auto start = std::make_shared<Start>();
  std::thread starter([start, id, &library = library_, &device = device_, rank = host_.rank(),
                       ranks = host_.ranks()] {
    Nccl::Communicator made = nullptr;
    int result = 0;
    std::string error;
    try {
      const DeviceScope scope(device);
      const RelaxedCapture relaxed;
      result = library.functions().ncclCommInitRank(&made, ranks, id, rank);
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    const std::lock_guard lock(start->mutex);
    start->is_done = true, start->result = result, start->made = made;
    start->error = std::move(error);
    start->changed.notify_all();
  });
  starter.detach();
  const std::string who = str("Communicator '", host_.name(), "': rank ", host_.rank(), " of ",
                              host_.ranks(), " on GPU ", device_.ordinal());
  const auto deadline = Clock::now() + std::chrono::duration<double>(host_.timeout());
  std::unique_lock lock(start->mutex);
  while (!start->changed.wait_for(lock, kTick, [&] { return start->is_done; })) {
    host_.look_for_ended();
    if (Clock::now() >= deadline)
      fail_with(ErrorCode::kFAILED_INITIALIZATION, who, ": NCCL ", library_.version(),
                " did not bring the ranks together within ", host_.timeout(),
                " s; NCCL_DEBUG=WARN in the environment makes it say why");
  }
  require(start->error.empty(), who, ": ", start->error);
  library_.check(start->result, start->made, who);
  return start->made;
}

NcclCommunicator::~NcclCommunicator() {
  if (!host_.is_of_this_process()) {  // a fork has no such thread and must not use the GPU
    watcher_.detach();
    return;
  }
  try {
    const DeviceScope scope(device_);
    const RelaxedCapture relaxed;
    // Work of this rank may wait for one that ends; the watcher ends it.
    driver().cuCtxSynchronize();
    close_memory();
    // Another rank's work may still read this one's memory. ncclCommDestroy would wait for the
    // others, too, but for ever.
    host_.leave();
    for (const auto end = Clock::now() + kWaitForOthers; host_.others() != 0 && Clock::now() < end;)
      std::this_thread::sleep_for(1ms);
    const bool is_last = host_.others() == 0;
    stop_watching();
    // The memory stays where another rank still has it.
    if (is_last) free_memory();
    stop_word_.free();
    if (!has_failed_) library_.functions().ncclCommAbort(communicator_);
  } catch (const Error&) {  // the context has failed, and the communicator with it
    stop_watching();
  }
}

void NcclCommunicator::stop_watching() {
  {
    const std::lock_guard lock(stopping_);
    is_stopped_ = true;
    stop_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
}

void NcclCommunicator::watch() {
  const DeviceScope scope(device_);
  const RelaxedCapture relaxed;
  Clock::time_point ended_at{}, left_at{};
  std::unique_lock lock(stopping_);
  is_watching_ = true;
  stop_.notify_all();
  while (!stop_.wait_for(lock, kLook, [&] { return is_stopped_; })) {
    const auto now = Clock::now();
    const uint64_t ended = host_.ended(), left = host_.left();
    if (ended == 0)
      ended_at = now;
    else if (now - ended_at >= kGrace)
      return abort(host_.names_of(ended) + " has ended");
    if (left == 0)
      left_at = now;
    else if (now - left_at >= std::chrono::duration<double>(host_.timeout()))
      return abort(host_.names_of(left) + " has left it");
  }
}

void NcclCommunicator::abort(const std::string& reason) {
  failure_ = reason;
  has_failed_ = true;
  stop_word_.set();
  const std::unique_lock lock(using_, kWaitForUse);
  library_.functions().ncclCommAbort(communicator_);
}

void NcclCommunicator::close_memory() {
  if (peers_ != nullptr) peers_->close();
  for (const auto& [name, memory] : of_plugins_) memory->close();
}

void NcclCommunicator::free_memory() {
  if (peers_ != nullptr) peers_->free();
  for (const auto& [name, memory] : of_plugins_) memory->free();
}

/// The ranks compare what they ask for before one of them waits for its GPU. By then all have
/// enqueued what came before, so no GPU waits for a rank that waits here.
PeerBuffers* NcclCommunicator::peer_buffers(const std::string& name, size_t bytes) {
  if (peers_ == nullptr) return nullptr;
  const std::string who = str("Communicator '", host_.name(), "': peer memory '", name, "'");
  const std::lock_guard lock(making_);
  if (const auto found = of_plugins_.find(name); found != of_plugins_.end()) {
    require(found->second->bytes() == bytes, who, " has ", found->second->bytes(), " bytes, and ",
            bytes, " are asked for; give each size a name of its own");
    return found->second.get();
  }
  struct Wish {
    uint64_t bytes;
    char name[kMostName + 1];
  };
  require(!name.empty() && name.size() <= kMostName, who, ": a name has 1 to ", kMostName,
          " characters");
  Wish wish{bytes, {}};
  name.copy(wish.name, kMostName);
  const std::vector<std::byte> wishes = host_.gather(std::as_bytes(std::span(&wish, 1)));
  for (int rank = 0; rank < host_.ranks(); ++rank) {
    Wish other{};
    std::memcpy(&other, wishes.data() + static_cast<size_t>(rank) * sizeof(Wish), sizeof(Wish));
    other.name[kMostName] = 0;
    require(other.name == name && other.bytes == bytes, who, " of ", bytes,
            " bytes is asked for by rank ", host_.rank(), ", and '", printable(other.name), "' of ",
            other.bytes, " bytes by rank ", rank, "; all ranks ask for the same in the same order");
  }
  std::unique_ptr<PeerMemory> made = PeerMemory::make(device_, host_, bytes, stop_word_);
  if (made == nullptr)
    fail_with(ErrorCode::kFAILED_ALLOCATION, who, ": the GPUs do not have ", bytes,
              " bytes for it, or could not share them");
  return of_plugins_.emplace(name, std::move(made)).first->second.get();
}

void NcclCommunicator::require_well(const std::string& what) const {
  if (has_failed_)
    fail_with(ErrorCode::kFAILED_EXECUTION, what, " on rank ", host_.rank(), " of ", host_.ranks(),
              ": ", failure_, "; all ranks need a new communicator after that");
  const std::unique_lock lock(using_);
  if (!has_failed_) library_.require_well(communicator_, what);
}

PeerMemory* peers_of(void* given) {
  const std::shared_ptr<Communicator> own = Communicator::find(given);
  return own == nullptr ? nullptr
                        : static_cast<const NcclCommunicator&>(*own->on_device()).peers_.get();
}

NcclUse::NcclUse(const Nccl& library, void* given, const std::string& what)
    : own_(Communicator::find(given)) {
  if (own_ == nullptr) {
    communicator_ = static_cast<Nccl::Communicator>(given);
  } else {
    const auto& made = static_cast<const NcclCommunicator&>(*own_->on_device());
    made.require_well(what);
    lock_ = std::unique_lock(made.using_);
    if (made.has_failed_) {
      lock_.unlock();
      made.require_well(what);
    }
    communicator_ = made.communicator_;
    peers_ = made.peers_.get();
    return;
  }
  library.require_well(communicator_, what);
}

}  // namespace opwright::cuda
