#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace opwright {

/// The order in which a thread may take the library's locks. A thread that holds a lock only takes
/// later ones.
enum class LockOrder : uint8_t {
  kBackendLoading,  ///< held while a backend's library is loaded
  kLibraryHandles,  ///< held while a backend makes handles of other libraries
  kLast,            ///< held for a few instructions that take no lock and call no foreign code
};

/// A mutex of an object that the process has once. A fork waits until no thread holds it, so that
/// the child finds it free and the guarded state complete. A thread that holds it must not wait for
/// an interpreter's lock, which the forking thread may hold.
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

/// The objects that the process has once. Each part is a class of the module that uses it.
class Library {
 public:
  /// Returns the part; the first call makes it by its default constructor. Parts are never
  /// destroyed: objects of static lifetime and other threads may use them until the very end.
  template <class Part>
  static Part& part() {
    static std::atomic<Part*> made{nullptr};
    Part* part = made.load(std::memory_order_acquire);
    if (part == nullptr) [[unlikely]] {
      // A fork waits for this lock. It would not wait for the compiler's lock of such variables.
      const std::lock_guard lock(get().making_);
      part = made.load(std::memory_order_acquire);
      if (part == nullptr) made.store(part = new Part, std::memory_order_release);
    }
    return *part;
  }

  /// A number, from 0 on, that is unique in the process.
  static int64_t next_number() { return get().numbers_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class LibraryLock;
  Library();
  static Library& get();
  void add(LibraryLock& lock);
  void remove(LibraryLock& lock);
  void lock_all();
  void unlock_all();
  /// The locks whose order comes before kLast.
  std::vector<LibraryLock*> outer_locks() const;

  std::mutex making_;                ///< taken while a part is made
  mutable std::mutex listing_;       ///< guards locks_
  std::vector<LibraryLock*> locks_;  ///< by LockOrder
  std::atomic<int64_t> numbers_{0};
};

}  // namespace opwright
