#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace opwright {

/// In which order a thread may take the library's locks: one that holds a lock takes later ones
/// only.
enum class LockOrder : uint8_t {
  kBackendLoading,  ///< held while a backend's library is loaded
  kLibraryHandles,  ///< held while a backend makes handles of other libraries
  kLast,            ///< held for a few instructions, which take no lock and call nobody else's code
};

/// A mutex of what the process has once. A fork waits until nobody holds it, so that the child
/// finds it free and what it guards complete. Nobody waits for an interpreter's lock while holding
/// it, as the thread that forks may have that.
class LibraryLock {
 public:
  explicit LibraryLock(LockOrder order = LockOrder::kLast);
  ~LibraryLock();
  LibraryLock(const LibraryLock&) = delete;
  LibraryLock& operator=(const LibraryLock&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  LockOrder order() const { return order_; }

 private:
  std::mutex mutex_;
  const LockOrder order_;
};

/// What the process has once. It consists of parts, each a class of the module that uses it.
class Library {
 public:
  /// The part, which is made when somebody first asks for it, by its default constructor. It is
  /// never destroyed: objects of static lifetime and other threads may use it until the very end.
  template <class Part>
  static Part& part() {
    static std::atomic<Part*> made{nullptr};
    Part* part = made.load(std::memory_order_acquire);
    if (part == nullptr) [[unlikely]] {
      // Under a lock that a fork waits for, which the compiler's own for such variables is not.
      const std::lock_guard lock(get().making_);
      part = made.load(std::memory_order_acquire);
      if (part == nullptr) made.store(part = new Part, std::memory_order_release);
    }
    return *part;
  }

  /// A number that the process has not given before, from 0 on.
  static int64_t next_number() { return get().numbers_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class LibraryLock;
  Library();
  static Library& get();
  void add(LibraryLock& lock);
  void remove(LibraryLock& lock);
  void lock_all();
  void unlock_all();
  /// Those before kLast.
  std::vector<LibraryLock*> outer_locks() const;

  std::mutex making_;                ///< taken while a part is made
  mutable std::mutex listing_;       ///< of locks_
  std::vector<LibraryLock*> locks_;  ///< in their order
  std::atomic<int64_t> numbers_{0};
};

}  // namespace opwright
