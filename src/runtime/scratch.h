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

/// Lets the contexts of an engine on the CPU share working memory: nobody needs its contents
/// between runs, so that a context which has none takes that of one that does not run. There is as
/// much as runs were at once, however many contexts there are.
class ScratchSharing {
 public:
  ScratchSharing() : owners_([] { return std::make_unique<Owners>(); }) {}
  /// Bytes that the contexts have in all.
  size_t memory_size() const;

 private:
  friend class Scratch;
  struct Owners {
    std::mutex mutex;
    std::vector<Scratch*> list;  ///< those that others may take from, the latest one behind
  };
  /// A forked child's begin without those of before, whose runs may never end there.
  mutable PerProcess<Owners> owners_;
};

/// The working memory of one context, and whether the context runs. Runs of a context that keeps
/// its memory cost no more for the sharing: the mark that it runs also keeps others off.
class Scratch {
 public:
  /// Null: nobody shares it. Otherwise `sharing` outlives the object.
  explicit Scratch(ScratchSharing* sharing) : sharing_(sharing) {}
  ~Scratch() { withdraw(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Marks the context as running; false where it is already.
  bool begin() {
    Use seen = Use::kIdle;
    if (use_.compare_exchange_strong(seen, Use::kRunning, std::memory_order_acquire)) [[likely]]
      return true;
    return seen == Use::kTaken && begin_after_taker();
  }
  void end() noexcept { use_.store(Use::kIdle, std::memory_order_release); }
  bool is_running() const { return use_.load(std::memory_order_relaxed) == Use::kRunning; }

  /// While it runs: whether the memory is what place() gave.
  bool is_placed() const { return is_placed_; }
  /// While it runs: at least so many bytes for intermediate tensors and for kernels, 0: none are
  /// needed. Takes what fits from a context that does not run, otherwise what there is of one that
  /// does not run, or its own, grows. Throws Error as DeviceMemory::grow does.
  void place(const Device& device, size_t arena_bytes, size_t workspace_bytes,
             const std::shared_ptr<IGpuAllocator>& allocator,
             const std::shared_ptr<const LastUse>& last_use);
  std::byte* arena() const { return memory_.arena.data(); }
  std::byte* workspace() const { return memory_.workspace.data(); }

  /// The others while it does not run. What is given back is allocated anew by place().
  void release();
  void release_arena();
  /// Bytes that it has, which others may take between runs. Any thread may ask.
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
  std::atomic<size_t> size_ = 0;  ///< of the memory
};

}  // namespace opwright
