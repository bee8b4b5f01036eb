#include "base/library.h"

#include <pthread.h>

#include <algorithm>

namespace opwright {
namespace {

void unlock_backwards(const std::vector<LibraryLock*>& locks) {
  std::for_each(locks.rbegin(), locks.rend(), [](LibraryLock* lock) { lock->unlock(); });
}

}  // namespace

LibraryLock::LibraryLock(LockOrder order) : order_(order) { Library::get().add(*this); }

LibraryLock::~LibraryLock() { Library::get().remove(*this); }

Library::Library() {
  pthread_atfork([] { get().lock_all(); }, [] { get().unlock_all(); }, [] { get().unlock_all(); });
}

Library& Library::get() {
  static auto* const library = new Library;
  return *library;
}

void Library::add(LibraryLock& lock) {
  const std::lock_guard guard(listing_);
  const auto after = std::ranges::upper_bound(locks_, lock.order(), {}, &LibraryLock::order);
  locks_.insert(after, &lock);
}

void Library::remove(LibraryLock& lock) {
  const std::lock_guard guard(listing_);
  std::erase(locks_, &lock);
}

std::vector<LibraryLock*> Library::outer_locks() const {
  const auto end = std::ranges::lower_bound(locks_, LockOrder::kLast, {}, &LibraryLock::order);
  return {locks_.begin(), end};
}

void Library::lock_all() {
  // Outer locks come first: a thread that holds one may make parts and take inner locks.
  while (true) {
    listing_.lock();
    const std::vector<LibraryLock*> outer = outer_locks();
    listing_.unlock();
    for (LibraryLock* lock : outer) lock->lock();
    making_.lock();
    listing_.lock();
    if (outer == outer_locks()) break;
    listing_.unlock();
    making_.unlock();
    unlock_backwards(outer);
  }
  for (LibraryLock* lock : locks_)
    if (lock->order() == LockOrder::kLast) lock->lock();
}

void Library::unlock_all() {
  unlock_backwards(locks_);
  listing_.unlock();
  making_.unlock();
}

}  // namespace opwright
