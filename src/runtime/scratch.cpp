#include "runtime/scratch.h"

#include <algorithm>
#include <utility>

namespace opwright {

size_t ScratchSharing::memory_size() const {
  Owners& owners = owners_.get();
  const std::lock_guard lock(owners.mutex);
  size_t bytes = 0;
  for (const Scratch* owner : owners.list) bytes += owner->memory_size();
  return bytes;
}

/// Waits for the lock, which the context that takes the memory holds. False if this context runs
/// already.
bool Scratch::begin_after_taker() {
  const std::lock_guard lock(sharing_->owners_.get().mutex);
  Use seen = Use::kIdle;
  return use_.compare_exchange_strong(seen, Use::kRunning, std::memory_order_acquire);
}

void Scratch::place(const Device& device, size_t arena_bytes, size_t workspace_bytes,
                    const std::shared_ptr<IGpuAllocator>& allocator,
                    const std::shared_ptr<const LastUse>& last_use) {
  is_placed_ = false;
  if (sharing_ != nullptr && arena_bytes + workspace_bytes > 0) share(arena_bytes, workspace_bytes);
  try {
    // Allocates without the lock, as the system may take long to give and take back much memory.
    if (arena_bytes > 0) memory_.arena.grow(device, arena_bytes, allocator, last_use);
    if (workspace_bytes > 0) memory_.workspace.grow(device, workspace_bytes, allocator, last_use);
  } catch (...) {
    note_size();
    throw;
  }
  note_size();
  is_placed_ = true;
}

/// Joins the contexts that share memory, and takes memory from another context if its own does not
/// fit.
void Scratch::share(size_t arena_bytes, size_t workspace_bytes) {
  Memory unfit;  // freed after the lock is released
  ScratchSharing::Owners& owners = sharing_->owners_.get();
  const std::lock_guard lock(owners.mutex);
  auto& list = owners.list;
  const auto take = [&](size_t arena, size_t workspace) {
    Memory taken;
    // Memory that was used last is most likely in the processor's cache.
    const auto giver = std::find_if(list.rbegin(), list.rend(), [&](Scratch* other) {
      return other != this && other->give_to(taken, arena, workspace);
    });
    if (giver == list.rend()) return false;
    unfit = std::exchange(memory_, std::move(taken));
    list.erase(std::next(giver).base());
    return true;
  };
  if (!memory_.fits(arena_bytes, workspace_bytes) && !take(arena_bytes, workspace_bytes) &&
      memory_.size() == 0)
    take(0, 0);
  if (std::find(list.begin(), list.end(), this) == list.end()) list.push_back(this);
}

/// Gives its memory away if the context does not run and the memory is large enough. Called under
/// the lock.
bool Scratch::give_to(Memory& taker, size_t arena_bytes, size_t workspace_bytes) {
  Use seen = Use::kIdle;
  if (!use_.compare_exchange_strong(seen, Use::kTaken, std::memory_order_acquire)) return false;
  const bool gives = memory_.size() > 0 && memory_.fits(arena_bytes, workspace_bytes);
  if (gives) {
    taker = std::exchange(memory_, {});
    note_size();
    is_placed_ = false;
  }
  use_.store(Use::kIdle, std::memory_order_release);
  return gives;
}

void Scratch::withdraw() noexcept {
  if (sharing_ == nullptr) return;
  ScratchSharing::Owners& owners = sharing_->owners_.get();
  const std::lock_guard lock(owners.mutex);
  std::erase(owners.list, this);
}

void Scratch::release() {
  withdraw();
  is_placed_ = false;
  memory_ = {};
  note_size();
}

void Scratch::release_arena() {
  withdraw();
  is_placed_ = false;
  memory_.arena.reset();
  note_size();
}

}  // namespace opwright
