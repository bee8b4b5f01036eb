#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/rank_sockets.h"
#include "base/shape.h"
#include "opwright/layers.h"

namespace opwright {

/// What the ranks that take part in a step must agree on.
struct CollectiveStep {
  CollectiveOperation op;
  ReduceOperation reduce_op;
  int64_t root = -1;  ///< -1 for operations without one
  DataType type;
  Shape shape;  ///< of the input
};

/// Processes that exchange data, called ranks. Each rank has a communicator with the same name.
/// Ranks of one host share memory, which has no file and is gone with the last process. Ranks of
/// several hosts have a copy of the memory each: a rank sends what it writes there to the others,
/// whose threads write it into their copies.
///
/// A rank publishes a chunk of its data in its part of the memory, with a description of the step,
/// and waits until all that take part have done so. Then it reads their chunks. It replaces its
/// chunk once all others have read it. A rank believes nothing that others wrote there: it compares
/// descriptions with its own, and all sizes are its own.
///
/// A rank that waits longer than the time limit, for a rank that has ended or for one that runs
/// another step ends the communicator. All runs on all ranks then fail with the same reason.
class HostCommunicator {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr size_t kChunkBytes = 256 << 10;
  static constexpr size_t kWords = RankMessage::kWords;  ///< of a step's description

  /// Waits until all ranks have come. Throws Error naming the missing ranks after `timeout`
  /// seconds, and where another process has the same rank or expects another number of ranks.
  /// `place`: where ranks of several hosts meet; null for ranks of one host.
  static std::shared_ptr<HostCommunicator> join(std::string name, int rank, int ranks,
                                                double timeout,
                                                const MeetingPlace* place = nullptr);
  ~HostCommunicator();
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  double timeout() const { return timeout_; }
  /// Whether the ranks share this host's memory.
  bool is_of_one_host() const { return sockets_ == nullptr; }
  /// Whether this process made it, and was not forked since then.
  bool is_of_this_process() const;

  /// Gives the root's bytes, at most kChunkBytes, to all ranks.
  void broadcast(std::span<std::byte> bytes, int root);
  /// The bytes of all ranks, one behind the other. All have the same number, at most kChunkBytes.
  std::vector<std::byte> gather(std::span<const std::byte> bytes);
  /// Ranks whose processes have ended without leaving it, and those that have left it, as masks.
  uint64_t ended() const;
  uint64_t left() const;
  /// "rank 2" or "ranks 1, 3".
  std::string names_of(uint64_t mask) const;
  /// Tells the others that this rank exchanges nothing any more.
  void leave();
  /// The ranks of other processes that are still there, as a mask.
  uint64_t others() const;
  /// Ends it where one of the ranks has ended or left.
  void look_for_ended();
  /// Throws Error, which says why, where it has ended.
  void require_going_on() const;

  /// One step of this rank, which exchanges chunks with the members. One thread at a time.
  class Exchange {
   public:
    /// `members`: the ranks that take part, this one among them, in the order of the group.
    /// Throws Error where another run uses the communicator.
    Exchange(HostCommunicator& communicator, const CollectiveStep& step,
             std::span<const int> members);
    /// The memory of this rank's next chunk, kChunkBytes. Waits until the last one was read.
    std::byte* next_chunk();
    /// Publishes so many bytes of the chunk and waits until all members have published theirs.
    void publish(size_t bytes);
    /// The chunk of a member.
    const std::byte* chunk_of(int rank) const;
    /// Tells all members that this rank has read their chunks.
    void finish_chunk();

   private:
    HostCommunicator& communicator_;
    const std::unique_lock<std::mutex> lock_;
    const std::span<const int> members_;
    uint64_t mask_ = 0;
    std::array<uint64_t, kWords> own_{};        ///< the step as the others see it
    std::array<uint64_t, kMaxRanks> coming_{};  ///< the numbers of the members' chunks
  };

 private:
  struct Memory;
  struct Description;
  class Mirror;
  using Clock = std::chrono::steady_clock;
  HostCommunicator(std::string name, int rank, int ranks, double timeout);
  void meet();
  void meet_over_sockets(const MeetingPlace& place);
  /// Tells the ranks of other hosts. Does nothing where all share the memory.
  void tell(uint64_t ranks, const RankMessage& message, std::span<const std::byte> chunk,
            Clock::time_point deadline);
  void serve(int listener, Clock::time_point deadline);
  bool ask(int socket, Clock::time_point deadline);
  void map(int descriptor);
  void come();
  Memory& memory() const { return *memory_; }
  std::byte* data_of(int rank) const;
  bool has_ended(int rank) const;
  /// Waits until `missing()` is 0, a mask of ranks.
  template <class Missing>
  void wait(Missing&& missing, Clock::time_point deadline);
  Clock::time_point deadline() const {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  }
  void ring() const;
  void end(uint64_t code, uint64_t mask);
  uint64_t unread() const;
  [[noreturn]] void fail_ended(uint64_t failure) const;
  Description description_of(int rank) const;

  const std::string name_;
  const int rank_, ranks_;
  const double timeout_;
  int process_ = 0;
  int descriptor_ = -1;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
  Memory* memory_ = nullptr;
  std::mutex running_;
  uint64_t published_ = 0;     ///< chunks of this rank
  uint64_t last_readers_ = 0;  ///< who must read the last chunk
  std::unique_ptr<RankSockets::Reader> mirror_;
  std::unique_ptr<RankSockets> sockets_;    ///< null where all ranks share the memory
  std::array<uint64_t, kMaxRanks> read_{};  ///< chunks of each rank that this one has read
};

}  // namespace opwright
