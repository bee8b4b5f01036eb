#include "backend/host_communicator.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr uint64_t kMagic = 0x4f50575249474854;  // "OPWRIGHT"
constexpr uint64_t kVersion = 1;
constexpr int kTick = 20;  ///< milliseconds between looks at other processes
constexpr int kSpins = 200;
/// How long a rank that ends a communicator tries to tell one that reads nothing.
constexpr auto kLastWord = std::chrono::milliseconds(500);
/// How long a rank that leaves waits until the others of other hosts have read its last chunk.
constexpr auto kLastRead = std::chrono::milliseconds(500);

enum FailureCode : uint64_t { kNone, kLate, kEnded, kDisagrees, kNonsense };
enum Presence : uint32_t { kAbsent, kPresent, kLeft };

/// What a process says to the one that brings the ranks together, and its answer.
struct Hello {
  uint64_t magic = kMagic, version = kVersion;
  int32_t rank = 0, ranks = 0;
};
enum Answer : int32_t { kWelcome, kOtherVersion, kOtherNumber, kTaken };
struct Reply {
  uint64_t magic = kMagic;
  int32_t answer = kWelcome, ranks = 0;
};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

uint64_t bit(int rank) { return uint64_t{1} << rank; }

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// "rank 2" or "ranks 1, 3".
std::string names(uint64_t mask, int ranks) {
  std::string list;
  int count = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if ((mask & bit(rank)) == 0) continue;
    list += str(count++ == 0 ? "" : ", ", rank);
  }
  return (count == 1 ? "rank " : "ranks ") + list;
}

template <class E>
E from_byte(uint64_t number) {
  return static_cast<E>(number & 0xff);
}

const char* name_of(CollectiveOperation op) {
  static constexpr const char* kNames[] = {"ALL_REDUCE",     "ALL_GATHER", "BROADCAST", "REDUCE",
                                           "REDUCE_SCATTER", "ALL_TO_ALL", "GATHER",    "SCATTER"};
  const auto number = static_cast<size_t>(op);
  return number < std::size(kNames) ? kNames[number] : "an unknown operation";
}

const char* name_of(ReduceOperation op) {
  static constexpr const char* kNames[] = {"(SUM)", "(PROD)", "(MAX)", "(MIN)", "(AVG)", ""};
  const auto number = static_cast<size_t>(op);
  return number < std::size(kNames) ? kNames[number] : "(?)";
}

/// An abstract address, which no file has and which ends with the process that holds it.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string path = str("opwright/", ::geteuid(), "/", name);
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

bool is_of_this_user(int socket) {
  ucred other{};
  socklen_t size = sizeof(other);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

bool send_reply(int socket, const Reply& reply, int descriptor) {
  iovec part{const_cast<Reply*>(&reply), sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control, message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(reply));
}

/// Returns false where the other side has ended. The descriptor is -1 where none came.
bool receive_reply(int socket, Reply& reply, int& descriptor) {
  descriptor = -1;
  iovec part{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return got == static_cast<ssize_t>(sizeof(reply)) && reply.magic == kMagic;
}

int milliseconds_left(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                        deadline - std::chrono::steady_clock::now())
                        .count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kTick));
}

}  // namespace

/// A step of a rank as numbers, which need not make sense where another process wrote them.
struct HostCommunicator::Description {
  std::array<uint64_t, kWords> words{};
  uint64_t count = 0;     ///< of chunks that the rank has published
  bool is_whole = false;  ///< whether the rank did not change it meanwhile

  uint64_t members() const { return words[0]; }
  std::string text() const {
    const auto rank = static_cast<int>(words[1] >> 24 & 0xff);
    const auto type = from_byte<DataType>(words[1] >> 16);
    std::string text =
        str(name_of(from_byte<CollectiveOperation>(words[1])),
            name_of(from_byte<ReduceOperation>(words[1] >> 8)), " of ",
            static_cast<int>(type) < EnumMax<DataType>() ? opwright::name(type) : "?", " [");
    for (int axis = 0; axis < std::min(rank, int{Dims::MAX_DIMS}); ++axis)
      text += str(axis == 0 ? "" : ", ", static_cast<int64_t>(words[4 + axis]));
    text += "]";
    if (static_cast<int64_t>(words[2]) >= 0)
      text += str(" with the root ", static_cast<int64_t>(words[2]));
    return text;
  }
};

/// The shared memory, before the ranks' chunks.
struct HostCommunicator::Memory {
  struct Rank {
    alignas(64) std::atomic<uint32_t> presence;
    std::atomic<int32_t> process;
    std::atomic<uint64_t> blamed;  ///< for the reason of a failure: which ranks this one names
    /// Twice the number of published chunks, and 1 more while the description changes.
    alignas(64) std::atomic<uint64_t> published;
    std::array<std::atomic<uint64_t>, kWords> words;
    /// How many chunks of each rank this one has read.
    alignas(64) std::array<std::atomic<uint64_t>, kMaxRanks> read;
  };
  uint64_t magic, version, ranks;
  /// 0, or the first failure: FailureCode, and above it the rank that noticed it.
  alignas(64) std::atomic<uint64_t> failure;
  /// Changes whenever something may have come that ranks wait for.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> waiting;
  std::array<Rank, kMaxRanks> rank;
};

std::shared_ptr<HostCommunicator> HostCommunicator::join(std::string name, int rank, int ranks,
                                                         double timeout,
                                                         const MeetingPlace* place) {
  require(!name.empty() && name.size() <= 64 && name.find('\0') == std::string::npos,
          "Communicator: the name has ", name.size(),
          " characters; expected 1 to 64, none of them 0");
  require(ranks >= 1 && ranks <= kMaxRanks, "Communicator '", name, "': there are ", ranks,
          " ranks; expected 1 to ", kMaxRanks);
  require(rank >= 0 && rank < ranks, "Communicator '", name, "': the rank is ", rank,
          "; expected 0 to ", ranks - 1);
  require(timeout > 0 && timeout <= 1e6, "Communicator '", name, "': the time limit is ", timeout,
          " seconds; expected more than 0, and at most a million");
  std::shared_ptr<HostCommunicator> made(
      new HostCommunicator(std::move(name), rank, ranks, timeout));
  if (place == nullptr)
    made->meet();
  else
    made->meet_over_sockets(*place);
  return made;
}

HostCommunicator::HostCommunicator(std::string name, int rank, int ranks, double timeout)
    : name_(std::move(name)), rank_(rank), ranks_(ranks), timeout_(timeout), process_(::getpid()) {}

HostCommunicator::~HostCommunicator() {
  if (memory_ != nullptr) {
    if (is_of_this_process())
      leave();
    else if (sockets_ != nullptr)
      sockets_->abandon();
    sockets_.reset();
    ::munmap(mapped_, bytes_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::byte* HostCommunicator::data_of(int rank) const {
  return static_cast<std::byte*>(mapped_) + bytes_ -
         static_cast<size_t>(ranks_ - rank) * kChunkBytes;
}

// How the ranks meet

/// The first process of a name brings the others together: it listens at an address with the name,
/// makes the memory and sends it to those that call.
void HostCommunicator::meet() {
  const auto deadline = this->deadline();
  sockaddr_un address;
  const socklen_t size = address_of(name_, address);
  while (true) {
    const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    require(*socket >= 0, "Communicator '", name_, "': there is no socket: ", std::strerror(errno));
    if (::bind(*socket, reinterpret_cast<sockaddr*>(&address), size) == 0) {
      require(::listen(*socket, kMaxRanks) == 0, "Communicator '", name_,
              "': listening fails: ", std::strerror(errno));
      serve(*socket, deadline);
      return;
    }
    require(errno == EADDRINUSE, "Communicator '", name_,
            "': there is no address for it: ", std::strerror(errno));
    if (::connect(*socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
        ask(*socket, deadline))
      return;
    require(Clock::now() < deadline, "Communicator '", name_, "': rank ", rank_, " of ", ranks_,
            " waited ", timeout_,
            " s for the rank that brings the others together, which did not answer");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void HostCommunicator::serve(int listener, Clock::time_point deadline) {
  Descriptor memory(::memfd_create("opwright communicator", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  bytes_ = (sizeof(Memory) + 4095) / 4096 * 4096 + static_cast<size_t>(ranks_) * kChunkBytes;
  require(*memory >= 0 && ::ftruncate(*memory, static_cast<off_t>(bytes_)) == 0 &&
              ::fcntl(*memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
          "Communicator '", name_, "': there is no shared memory: ", std::strerror(errno));
  const int shared = *memory;
  map(memory.release());
  this->memory().version = kVersion, this->memory().ranks = static_cast<uint64_t>(ranks_);
  this->memory().magic = kMagic;
  come();
  uint64_t given = bit(rank_);
  std::vector<std::unique_ptr<Descriptor>> callers;
  const auto missing = [&] {
    uint64_t mask = 0;
    for (int rank = 0; rank < ranks_; ++rank)
      if (this->memory().rank[rank].presence.load() == kAbsent) mask |= bit(rank);
    return mask;
  };
  while (missing() != 0) {
    require_going_on();
    if (Clock::now() >= deadline) {
      end(kLate, missing());
      require_going_on();
    }
    std::vector<pollfd> watched{{listener, POLLIN, 0}};
    for (const auto& caller : callers) watched.push_back({**caller, POLLIN, 0});
    // A rank that has come says so in the memory only.
    if (::poll(watched.data(), watched.size(), 1) <= 0) continue;
    for (size_t i = watched.size() - 1; i >= 1; --i) {
      if (watched[i].revents == 0) continue;
      Hello hello;
      const ssize_t got = ::recv(**callers[i - 1], &hello, sizeof(hello), 0);
      if (got != static_cast<ssize_t>(sizeof(hello)) || hello.magic != kMagic) {
        callers.erase(callers.begin() + static_cast<std::ptrdiff_t>(i) - 1);
        continue;
      }
      Reply reply{.ranks = ranks_};
      if (hello.version != kVersion)
        reply.answer = kOtherVersion;
      else if (hello.ranks != ranks_ || hello.rank < 0 || hello.rank >= ranks_)
        reply.answer = kOtherNumber;
      else if ((given & bit(hello.rank)) != 0)
        reply.answer = kTaken;
      if (send_reply(**callers[i - 1], reply, reply.answer == kWelcome ? shared : -1) &&
          reply.answer == kWelcome)
        given |= bit(hello.rank);
    }
    if (watched[0].revents != 0) {
      auto caller = std::make_unique<Descriptor>(
          ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (**caller >= 0 && is_of_this_user(**caller) &&
          std::cmp_less(callers.size(), 2 * kMaxRanks))
        callers.push_back(std::move(caller));
    }
  }
}

/// Returns false where the other process has ended meanwhile.
bool HostCommunicator::ask(int socket, Clock::time_point deadline) {
  require(is_of_this_user(socket), "Communicator '", name_, "': a process of another user has it");
  const Hello hello{.rank = rank_, .ranks = ranks_};
  if (::send(socket, &hello, sizeof(hello), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(hello)))
    return false;
  pollfd watched{socket, POLLIN, 0};
  while (::poll(&watched, 1, milliseconds_left(deadline)) <= 0)
    if (Clock::now() >= deadline) return false;
  Reply reply;
  int shared = -1;
  const bool has_reply = receive_reply(socket, reply, shared);
  Descriptor memory(shared);
  if (!has_reply) return false;
  require(reply.answer != kOtherVersion, "Communicator '", name_,
          "': the other ranks are of another version of Opwright");
  require(reply.answer != kOtherNumber, "Communicator '", name_, "': the other ranks expect ",
          reply.ranks, " ranks, and this one, rank ", rank_, ", expects ", ranks_);
  require(reply.answer != kTaken, "Communicator '", name_, "': another process is rank ", rank_,
          " already");
  if (shared < 0) return false;
  struct stat status {};
  bytes_ = (sizeof(Memory) + 4095) / 4096 * 4096 + static_cast<size_t>(ranks_) * kChunkBytes;
  const int seals = ::fcntl(shared, F_GET_SEALS);
  require(::fstat(shared, &status) == 0 && status.st_size == static_cast<off_t>(bytes_) &&
              seals >= 0 && (seals & F_SEAL_SHRINK) != 0,
          "Communicator '", name_, "': the other ranks' memory is not what this one expects");
  map(memory.release());
  const Memory& m = this->memory();
  require(m.magic == kMagic && m.version == kVersion && m.ranks == static_cast<uint64_t>(ranks_),
          "Communicator '", name_, "': the other ranks' memory is not what this one expects");
  come();
  wait(
      [&] {
        uint64_t mask = 0;
        for (int rank = 0; rank < ranks_; ++rank)
          if (m.rank[rank].presence.load() == kAbsent) mask |= bit(rank);
        return mask;
      },
      deadline);
  return true;
}

void HostCommunicator::map(int descriptor) {
  descriptor_ = descriptor;
  void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  require(mapped != MAP_FAILED, "Communicator '", name_,
          "': the shared memory cannot be mapped: ", std::strerror(errno));
  mapped_ = mapped;
  // The memory is zeros, which is what the numbers in it begin with.
  memory_ = static_cast<Memory*>(mapped);
}

/// Shows the others that this rank is there. The lock ends with the process, however it ends.
void HostCommunicator::come() {
  struct flock lock {};
  lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET, lock.l_start = rank_, lock.l_len = 1;
  require(::fcntl(descriptor_, F_SETLK, &lock) == 0, "Communicator '", name_, "': the rank ", rank_,
          " is taken: ", std::strerror(errno));
  Memory::Rank& own = memory().rank[rank_];
  own.process.store(process_);
  own.presence.store(kPresent);
  ring();
}

/// Writes what ranks of other hosts say into this rank's copy of the memory. It believes them as
/// little as ranks that share memory are believed: sizes and numbers are within bounds.
class HostCommunicator::Mirror final : public RankSockets::Reader {
 public:
  explicit Mirror(HostCommunicator& self) : self_(self) {}

  std::byte* place_of(int rank, const RankMessage& message) override {
    const Memory::Rank& theirs = self_.memory().rank[rank];
    bool is_possible = message.size == 0;
    switch (message.kind) {
      case RankMessage::kPublished:
        is_possible =
            message.size <= kChunkBytes && message.count == theirs.published.load() / 2 + 1;
        break;
      case RankMessage::kRead:
        is_possible = is_possible && message.count >= theirs.read[self_.rank_].load() &&
                      message.count <= self_.memory().rank[self_.rank_].published.load() / 2;
        break;
      case RankMessage::kFailed:
        is_possible = is_possible && message.count >= kLate && message.count <= kNonsense;
        break;
      case RankMessage::kLeft:
        is_possible = is_possible && message.count == 0;
        break;
      default:
        is_possible = false;
    }
    return is_possible ? self_.data_of(rank) : nullptr;
  }

  void came(int rank, const RankMessage& message) override {
    Memory::Rank& theirs = self_.memory().rank[rank];
    switch (message.kind) {
      case RankMessage::kPublished:
        theirs.published.store(2 * message.count - 1);
        for (size_t i = 0; i < kWords; ++i) theirs.words[i].store(message.words[i]);
        theirs.published.store(2 * message.count);
        break;
      case RankMessage::kRead:
        theirs.read[self_.rank_].store(message.count);
        break;
      case RankMessage::kFailed:
        note(message.count, rank, message.words[0]);
        break;
      default:
        theirs.presence.store(kLeft);
    }
    self_.ring();
  }

  void ended(int rank, bool is_nonsense) override {
    if (is_nonsense) note(kNonsense, self_.rank_, bit(rank));
    self_.ring();
  }

 private:
  void note(uint64_t code, int reporter, uint64_t mask) {
    uint64_t none = 0;
    if (self_.memory().failure.load() != 0) return;
    self_.memory().rank[reporter].blamed.store(mask);
    self_.memory().failure.compare_exchange_strong(none, code | static_cast<uint64_t>(reporter)
                                                                    << 8);
  }

  HostCommunicator& self_;
};

void HostCommunicator::meet_over_sockets(const MeetingPlace& place) {
  bytes_ = (sizeof(Memory) + 4095) / 4096 * 4096 + static_cast<size_t>(ranks_) * kChunkBytes;
  void* const mapped =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(mapped != MAP_FAILED, "Communicator '", name_,
          "': there is no memory: ", std::strerror(errno));
  mapped_ = mapped;
  Memory& copy = *static_cast<Memory*>(mapped);
  memory_ = &copy;
  auto sockets = RankSockets::meet(
      {name_, rank_, ranks_}, place, deadline(), [&](int reporter, uint64_t missing) {
        copy.rank[reporter].blamed.store(missing);
        copy.failure.store(kLate | static_cast<uint64_t>(reporter) << 8);
        require_going_on();
      });
  for (int rank = 0; rank < ranks_; ++rank) copy.rank[rank].presence.store(kPresent);
  copy.rank[rank_].process.store(process_);
  mirror_ = std::make_unique<Mirror>(*this);
  sockets_ = std::move(sockets);
  sockets_->start(*mirror_);
}

void HostCommunicator::tell(uint64_t ranks, const RankMessage& message,
                            std::span<const std::byte> chunk, Clock::time_point deadline) {
  if (sockets_ == nullptr) return;
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && (ranks & bit(rank)) != 0) sockets_->send(rank, message, chunk, deadline);
}

// How they wait for each other

bool HostCommunicator::has_ended(int rank) const {
  const Memory::Rank& other = memory().rank[rank];
  if (rank == rank_ || other.presence.load() == kAbsent) return false;
  if (other.presence.load() == kLeft) return true;
  if (sockets_ != nullptr) return (sockets_->gone() & bit(rank)) != 0;
  // A process's own locks look free to it.
  if (other.process.load() == process_) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET, lock.l_start = rank, lock.l_len = 1;
  return ::fcntl(descriptor_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

uint64_t HostCommunicator::ended() const {
  uint64_t mask = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    if (memory().rank[rank].presence.load() != kLeft && has_ended(rank)) mask |= bit(rank);
  return mask;
}

uint64_t HostCommunicator::left() const {
  uint64_t mask = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    if (memory().rank[rank].presence.load() == kLeft) mask |= bit(rank);
  return mask;
}

void HostCommunicator::leave() {
  if (sockets_ != nullptr && memory().rank[rank_].presence.load() != kLeft) {
    // What comes for a closed connection would take this rank's last words away.
    for (const auto until = Clock::now() + kLastRead; Clock::now() < until;) {
      if ((unread() & ~sockets_->gone()) == 0 || memory().failure.load() != 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    tell(~uint64_t{0}, {.kind = RankMessage::kLeft}, {}, Clock::now() + kLastWord);
  }
  memory().rank[rank_].presence.store(kLeft);
  ring();
}

/// The ranks that have not read this one's last chunk.
uint64_t HostCommunicator::unread() const {
  uint64_t mask = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    if ((last_readers_ & bit(rank)) != 0 && memory().rank[rank].read[rank_].load() < published_)
      mask |= bit(rank);
  return mask;
}

uint64_t HostCommunicator::others() const {
  uint64_t mask = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && !has_ended(rank) &&
        (sockets_ != nullptr || memory().rank[rank].process.load() != process_))
      mask |= bit(rank);
  return mask;
}

std::string HostCommunicator::names_of(uint64_t mask) const { return names(mask, ranks_); }

bool HostCommunicator::is_of_this_process() const { return process_ == ::getpid(); }

void HostCommunicator::look_for_ended() {
  if (const uint64_t mask = ended() | left(); mask != 0) end(kEnded, mask);
  require_going_on();
}

void HostCommunicator::ring() const {
  memory().bell.fetch_add(1);
  if (memory().waiting.load() != 0)
    ::syscall(SYS_futex, &memory().bell, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr,
              nullptr, 0);
}

template <class Missing>
void HostCommunicator::wait(Missing&& missing, Clock::time_point deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (missing() == 0) return;
    if (spin % 16 == 15) std::this_thread::yield();
  }
  auto look = Clock::now();
  while (true) {
    memory().waiting.fetch_add(1);
    const uint32_t bell = memory().bell.load();
    const uint64_t mask = missing();
    if (mask != 0 && memory().failure.load() == 0) {
      const timespec tick{0, 1'000'000L * std::max(1, milliseconds_left(deadline))};
      ::syscall(SYS_futex, &memory().bell, FUTEX_WAIT, bell, &tick, nullptr, 0);
    }
    memory().waiting.fetch_sub(1);
    if (missing() == 0) return;
    require_going_on();
    const auto now = Clock::now();
    if (now < look) continue;
    look = now + std::chrono::milliseconds(kTick);
    uint64_t ended = 0;
    for (int rank = 0; rank < ranks_; ++rank)
      if ((mask & bit(rank)) != 0 && has_ended(rank)) ended |= bit(rank);
    const uint64_t still = missing();
    if (still == 0) return;
    if ((ended & still) != 0)
      end(kEnded, ended & still);
    else if (now >= deadline)
      end(kLate, still);
    require_going_on();
  }
}

/// Ends the communicator for the reason, if it goes on.
void HostCommunicator::end(uint64_t code, uint64_t mask) {
  memory().rank[rank_].blamed.store(mask);
  uint64_t none = 0;
  if (memory().failure.compare_exchange_strong(none, code | static_cast<uint64_t>(rank_) << 8)) {
    RankMessage message{.kind = RankMessage::kFailed, .count = code};
    message.words[0] = mask;
    tell(~uint64_t{0}, message, {}, Clock::now() + kLastWord);
  }
  ring();
}

void HostCommunicator::require_going_on() const {
  if (const uint64_t failure = memory().failure.load(); failure != 0) [[unlikely]]
    fail_ended(failure);
}

void HostCommunicator::fail_ended(uint64_t failure) const {
  const auto reporter = static_cast<int>(failure >> 8 & 0xff) % ranks_;
  const uint64_t mask = memory().rank[reporter].blamed.load();
  const std::string who = names(mask, ranks_);
  std::string reason;
  switch (failure & 0xff) {
    case kLate:
      reason = str("rank ", reporter, " waited ", timeout_, " s for ", who, ", which did not come");
      break;
    case kEnded:
      reason = str(who, mask != 0 && (mask & (mask - 1)) == 0 ? " has" : " have",
                   " ended while rank ", reporter, " waits for it");
      break;
    case kDisagrees: {
      int other = 0;
      while (other + 1 < ranks_ && (mask & bit(other)) == 0) ++other;
      reason =
          str("ranks run different steps: rank ", reporter, " ", description_of(reporter).text(),
              ", rank ", other, " ", description_of(other).text());
      break;
    }
    case kNonsense:
      reason = str(who, " sent rank ", reporter, " what no rank sends");
      break;
    default:
      reason = "another process has written into its memory";
  }
  fail_with(ErrorCode::kFAILED_EXECUTION, "Communicator '", name_, "' of ", ranks_,
            " ranks has ended: ", reason, "; make another one on all ranks");
}

HostCommunicator::Description HostCommunicator::description_of(int rank) const {
  const Memory::Rank& other = memory().rank[rank];
  Description description;
  const uint64_t before = other.published.load();
  for (size_t i = 0; i < kWords; ++i) description.words[i] = other.words[i].load();
  description.is_whole = before % 2 == 0 && other.published.load() == before;
  description.count = before / 2;
  return description;
}

// One step

HostCommunicator::Exchange::Exchange(HostCommunicator& communicator, const CollectiveStep& step,
                                     std::span<const int> members)
    : communicator_(communicator),
      lock_(communicator.running_, std::try_to_lock),
      members_(members) {
  require(lock_.owns_lock(), "Communicator '", communicator.name_,
          "' is used by another run at the same time, so that the order of what ranks exchange is "
          "not known; use one communicator for each thread");
  require(communicator.is_of_this_process(), "Communicator '", communicator.name_,
          "' belongs to the process ", communicator.process_,
          ", which this one was forked from; make one in this process");
  uint64_t order = 14695981039346656037U;
  for (const int member : members) {
    mask_ |= bit(member);
    order = (order ^ static_cast<uint64_t>(member)) * 1099511628211U;
  }
  own_[0] = mask_;
  own_[1] = static_cast<uint64_t>(step.op) | static_cast<uint64_t>(step.reduce_op) << 8 |
            static_cast<uint64_t>(step.type) << 16 | static_cast<uint64_t>(step.shape.rank()) << 24;
  own_[2] = static_cast<uint64_t>(step.root);
  own_[3] = order;
  for (int axis = 0; axis < step.shape.rank(); ++axis)
    own_[4 + static_cast<size_t>(axis)] = static_cast<uint64_t>(step.shape[axis]);
  communicator.require_going_on();
}

std::byte* HostCommunicator::Exchange::next_chunk() {
  HostCommunicator& c = communicator_;
  c.wait([&] { return c.unread(); }, c.deadline());
  return c.data_of(c.rank_);
}

void HostCommunicator::Exchange::publish(size_t bytes) {
  HostCommunicator& c = communicator_;
  Memory::Rank& own = c.memory().rank[c.rank_];
  own.published.store(2 * c.published_ + 1);
  for (size_t i = 0; i < kWords; ++i) own.words[i].store(own_[i]);
  ++c.published_;
  own.published.store(2 * c.published_);
  c.last_readers_ = mask_ & ~bit(c.rank_);
  c.ring();
  if (!c.is_of_one_host()) {
    RankMessage message{.kind = RankMessage::kPublished, .count = c.published_, .words = own_};
    // The others need the description to say who disagrees.
    c.tell(~mask_, message, {}, c.deadline());
    message.size = static_cast<uint32_t>(bytes);
    c.tell(mask_, message, {c.data_of(c.rank_), bytes}, c.deadline());
  }
  uint64_t seen = bit(c.rank_);
  c.wait(
      [&] {
        for (const int member : members_) {
          if ((seen & bit(member)) != 0) continue;
          // A chunk for others is followed by one for this rank, or by none.
          const Description theirs = c.description_of(member);
          if (!theirs.is_whole || theirs.count <= c.read_[member] ||
              (theirs.members() & bit(c.rank_)) == 0)
            continue;
          if (theirs.words != own_) {
            c.end(kDisagrees, bit(member));
            c.require_going_on();
          }
          seen |= bit(member);
          coming_[member] = theirs.count;
        }
        return mask_ & ~seen;
      },
      c.deadline());
}

const std::byte* HostCommunicator::Exchange::chunk_of(int rank) const {
  return communicator_.data_of(rank);
}

void HostCommunicator::Exchange::finish_chunk() {
  HostCommunicator& c = communicator_;
  Memory::Rank& own = c.memory().rank[c.rank_];
  for (const int member : members_) {
    if (member == c.rank_) continue;
    c.read_[member] = coming_[member];
    own.read[member].store(coming_[member]);
    c.tell(bit(member), {.kind = RankMessage::kRead, .count = coming_[member]}, {}, c.deadline());
  }
  c.ring();
}

void HostCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  const std::vector<int> all = all_ranks(ranks_);
  const CollectiveStep step{CollectiveOperation::kBROADCAST, ReduceOperation::kNONE, root,
                            DataType::kUINT8, Shape{static_cast<int64_t>(bytes.size())}};
  Exchange exchange(*this, step, all);
  std::byte* const chunk = exchange.next_chunk();
  if (rank_ == root) std::memcpy(chunk, bytes.data(), bytes.size());
  exchange.publish(bytes.size());
  if (rank_ != root) std::memcpy(bytes.data(), exchange.chunk_of(root), bytes.size());
  exchange.finish_chunk();
}

std::vector<std::byte> HostCommunicator::gather(std::span<const std::byte> bytes) {
  const std::vector<int> all = all_ranks(ranks_);
  const CollectiveStep step{CollectiveOperation::kALL_GATHER, ReduceOperation::kNONE, -1,
                            DataType::kUINT8, Shape{static_cast<int64_t>(bytes.size())}};
  Exchange exchange(*this, step, all);
  std::memcpy(exchange.next_chunk(), bytes.data(), bytes.size());
  exchange.publish(bytes.size());
  std::vector<std::byte> gathered;
  for (const int rank : all) {
    const std::byte* const chunk = exchange.chunk_of(rank);
    gathered.insert(gathered.end(), chunk, chunk + bytes.size());
  }
  exchange.finish_chunk();
  return gathered;
}

}  // namespace opwright
