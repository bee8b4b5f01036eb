#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/memory.h"
#include "base/per_process.h"

namespace opwright {

class Scratch;

/// Lets the contexts of an engine on the CPU share working memory. The contents are not needed
/// between runs, so a context without memory takes that of one that does not run. The memory is
/// that of the most concurrent runs, however many contexts there are.
class ScratchSharing {
 public:
  ScratchSharing() : owners_([] { return std::make_unique<Owners>(); }) {}
  /// The bytes of all contexts together.
  size_t memory_size() const;

 private:
  friend class Scratch;
  struct Owners {
    std::mutex mutex;
    std::vector<Scratch*> list;  ///< contexts that others may take memory from, the latest one last
  };
  /// A forked child starts with an empty list: its parent's runs may never end in the child.
  mutable PerProcess<Owners> owners_;
};

/// The working memory of one context, and whether the context runs. Sharing costs nothing for runs
/// of a context that keeps its memory: the mark that it runs also keeps other contexts off.
class Scratch {
 public:
  /// `sharing` outlives the object; null: the memory is not shared.
  explicit Scratch(ScratchSharing* sharing) : sharing_(sharing) {}
  ~Scratch() { withdraw(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Marks the context as running; false if it runs already.
  bool begin() {
    Use seen = Use::kIdle;
    if (use_.compare_exchange_strong(seen, Use::kRunning, std::memory_order_acquire)) [[likely]]
      return true;
    return seen == Use::kTaken && begin_after_taker();
  }
  void end() noexcept { use_.store(Use::kIdle, std::memory_order_release); }
  bool is_running() const { return use_.load(std::memory_order_relaxed) == Use::kRunning; }

  /// Whether place() has given the current memory. Called while the context runs.
  bool is_placed() const { return is_placed_; }
  /// Provides at least these bytes for intermediate tensors and for kernels; 0: none are needed.
  /// Called while the context runs. Takes fitting memory from a context that does not run.
  /// Otherwise its own memory grows, or if it has none, that of a context that does not run. Throws
  /// Error as DeviceMemory::grow does.
  void place(const Device& device, size_t arena_bytes, size_t workspace_bytes,
             const std::shared_ptr<IGpuAllocator>& allocator,
             const std::shared_ptr<const LastUse>& last_use);
  std::byte* arena() const { return memory_.arena.data(); }
  std::byte* workspace() const { return memory_.workspace.data(); }

  /// Releases memory while the context does not run. place() allocates it anew.
  void release();
  void release_arena();
  /// The bytes that the context has; other contexts may take them between runs. Any thread may ask.
  size_t memory_size() const { return size_.load(std::memory_order_relaxed); }

 private:
  enum class Use : uint8_t { kIdle, kRunning, kTaken };
  struct Memory {
    DeviceMemory arena, workspace;
    bool fits(size_t arena_bytes, size_t workspace_bytes) const {
      return arena.size() >= arena_bytes && workspace.size() >= workspace_bytes;
    }
    size_t size() const { return arena.size() + workspace.size(); }
  };
  bool begin_after_taker();
  void share(size_t arena_bytes, size_t workspace_bytes);
  bool give_to(Memory& taker, size_t arena_bytes, size_t workspace_bytes);
  void withdraw() noexcept;
  void note_size() noexcept { size_.store(memory_.size(), std::memory_order_relaxed); }

  ScratchSharing* const sharing_;
  std::atomic<Use> use_ = Use::kIdle;
  bool is_placed_ = false;
  Memory memory_;
  std::atomic<size_t> size_ = 0;  ///< size of `memory_`
};

}  // namespace opwright
