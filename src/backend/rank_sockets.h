#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "opwright/types.h"

namespace opwright {

/// Where ranks of several hosts meet.
struct MeetingPlace {
  std::string address;  ///< of rank 0, numeric: "10.0.0.1:29500", "[fd00::1]:29500"
  std::string token;    ///< what each rank must show, 16 to 64 characters
};

/// Where ranks meet that were given an address. Nothing without one. A null pointer is an empty
/// text. Throws Error for a token without an address.
std::optional<MeetingPlace> meeting_place(const char* address, const char* token);

/// What one rank tells another, before the bytes of a chunk.
struct RankMessage {
  static constexpr size_t kWords = 4 + Dims::MAX_DIMS;
  enum Kind : uint32_t { kPublished = 1, kRead, kFailed, kLeft };
  uint32_t kind = 0;
  uint32_t size = 0;   ///< bytes of the chunk that follows
  uint64_t count = 0;  ///< of chunks; of kFailed the code
  std::array<uint64_t, kWords> words{};
};

/// TCP connections of a rank to all others. A thread reads what comes. The connections are not
/// encrypted.
class RankSockets {
 public:
  using Clock = std::chrono::steady_clock;

  /// What the thread hands on.
  class Reader {
   public:
    virtual ~Reader() = default;
    /// Where the chunk behind the message goes. Null: the message cannot be right.
    virtual std::byte* place_of(int rank, const RankMessage& message) = 0;
    /// The message has come, and its chunk.
    virtual void came(int rank, const RankMessage& message) = 0;
    /// The connection has ended, or nonsense came.
    virtual void ended(int rank, bool is_nonsense) = 0;
  };

  struct Self {
    std::string name;
    int rank, ranks;
  };

  /// Waits until the ranks have connected. Rank 0 listens at the place; the others call it and
  /// learn where all listen. `late` gets the rank that waited and the mask of those that are
  /// missing, and throws.
  static std::unique_ptr<RankSockets> meet(const Self& self, const MeetingPlace& place,
                                           Clock::time_point deadline,
                                           const std::function<void(int, uint64_t)>& late);
  ~RankSockets();
  RankSockets(const RankSockets&) = delete;
  RankSockets& operator=(const RankSockets&) = delete;

  /// Starts the thread.
  void start(Reader& reader);
  /// Ends the thread. A fork, which has no such thread, calls abandon().
  void stop();
  void abandon();
  /// False where the other rank did not take it until then: its connection has ended after that.
  bool send(int rank, const RankMessage& message, std::span<const std::byte> chunk,
            Clock::time_point deadline);
  /// The ranks whose connections have ended, as a mask.
  uint64_t gone() const { return gone_.load(); }

 private:
  struct Peer;
  explicit RankSockets(int ranks);
  void read(Reader& reader);
  bool take(int rank, Reader& reader);

  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<uint64_t> gone_ = 0;
  int wake_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace opwright
