#include "run/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define OPWRIGHT_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OPWRIGHT_FUZZ_ASAN 1
#endif
#endif
#ifdef OPWRIGHT_FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#endif

/// What an engine asks for beyond this is not there.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=0:abort_on_error=1";
}
/// What they find ends in SIGABRT, so that somebody can tell the script.
extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1:abort_on_error=1";
}

namespace opwright::fuzz {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kCanary = 0xC5;
constexpr size_t kMaxCanary = 128;  ///< bytes that are looked at beside a piece

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

void poison([[maybe_unused]] const std::byte* data, [[maybe_unused]] size_t bytes) {
#ifdef OPWRIGHT_FUZZ_ASAN
  ASAN_POISON_MEMORY_REGION(data, bytes);
#endif
}
void unpoison([[maybe_unused]] const std::byte* data, [[maybe_unused]] size_t bytes) {
#ifdef OPWRIGHT_FUZZ_ASAN
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
#endif
}

std::byte* reserve(size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) die("no address space");
  return static_cast<std::byte*>(memory);
}

void open(std::byte* begin, size_t bytes, bool is_open) {
  if (mprotect(begin, bytes, is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    die("mprotect failed");
}

/// What is compared of [begin, end): both ends.
template <class Visit>
void visit_gap(std::byte* begin, std::byte* end, Visit&& visit) {
  const size_t part = std::min<size_t>(static_cast<size_t>(end - begin), kMaxCanary);
  visit(begin, part);
  visit(end - part, part);
}

void write_canary(std::byte* data, size_t bytes) { std::memset(data, kCanary, bytes); }
void check_canary(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != std::byte{kCanary}) die("something was written beside a tensor");
}

}  // namespace

bool is_address_sanitized() {
#ifdef OPWRIGHT_FUZZ_ASAN
  return true;
#else
  return false;
#endif
}

std::byte* GuardedPool::allocate(size_t bytes, size_t alignment) {
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  size_t pages = 1;
  while (pages * kPage < rounded) pages *= 4;
  std::vector<Slot>& free = free_[pages];
  if (free.empty()) {
    std::byte* begin = reserve((pages + 2) * kPage) + kPage;
    open(begin, pages * kPage, true);
    free.push_back({begin, pages * kPage});
  }
  const Slot slot = free.back();
  free.pop_back();
  std::byte* const end = slot.begin + slot.size;
  std::byte* const data = end - rounded;
  pieces_.push_back({slot, data, bytes});
  visit_gap(slot.begin, data, write_canary);
  visit_gap(data + bytes, end, write_canary);
  poison(slot.begin, static_cast<size_t>(data - slot.begin));
  poison(data + bytes, rounded - bytes);
  return data;
}

void GuardedPool::reset() {
  for (const Piece& piece : pieces_) {
    unpoison(piece.slot.begin, piece.slot.size);
    visit_gap(piece.slot.begin, piece.data, check_canary);
    visit_gap(piece.data + piece.bytes, piece.slot.begin + piece.slot.size, check_canary);
    // A big one is not kept, as it would stay in memory.
    if (piece.slot.size > 256 * kPage) madvise(piece.slot.begin, piece.slot.size, MADV_DONTNEED);
    free_[piece.slot.size / kPage].push_back(piece.slot);
  }
  pieces_.clear();
}

void GuardedArena::check_gaps() const {
  for (const auto& [first, last] : gaps_) visit_gap(base_ + first, base_ + last, check_canary);
}

std::byte* GuardedArena::place(std::vector<std::pair<size_t, size_t>> ranges, size_t bytes,
                               uint8_t fill) {
  if (bytes > kMaxBytes) die("an arena that is too large");
  if (base_ == nullptr) base_ = reserve(kMaxBytes + 2 * kPage) + kPage;
  unpoison(base_, is_open_.size() * kPage);
  check_gaps();
  gaps_.clear();
  std::erase_if(ranges, [](const auto& range) { return range.first >= range.second; });
  std::sort(ranges.begin(), ranges.end());
  std::vector<bool> wanted;
  for (const auto& [first, last] : ranges) {
    const size_t behind = (last + kPage - 1) / kPage;
    if (wanted.size() < behind) wanted.resize(behind, false);
    for (size_t page = first / kPage; page < behind; ++page) wanted[page] = true;
  }
  const size_t pages = std::max(wanted.size(), is_open_.size());
  const auto at = [](const std::vector<bool>& list, size_t i) {
    return i < list.size() && list[i];
  };
  for (size_t page = 0; page < pages;) {
    size_t next = page + 1;
    const bool is_wanted = at(wanted, page);
    if (is_wanted != at(is_open_, page)) {
      while (next < pages && at(wanted, next) == is_wanted && at(is_open_, next) != is_wanted)
        ++next;
      open(base_ + page * kPage, (next - page) * kPage, is_wanted);
    }
    page = next;
  }
  is_open_ = std::move(wanted);
  // What lies between the ranges on open pages.
  for (const auto& [first, last] : ranges)
    std::memset(base_ + first, fill, std::min<size_t>(last - first, size_t{1} << 16));
  size_t covered = 0;
  const auto gap = [&](size_t first, size_t last) {
    for (size_t from = first; from < last;) {
      const size_t to = std::min(last, (from / kPage + 1) * kPage);
      if (at(is_open_, from / kPage)) {
        visit_gap(base_ + from, base_ + to, write_canary);
        gaps_.emplace_back(from, to);
        poison(base_ + from, to - from);
      }
      from = to;
    }
  };
  for (const auto& [first, last] : ranges) {
    if (first > covered) gap(covered, first);
    covered = std::max(covered, last);
  }
  gap(covered, is_open_.size() * kPage);
  return base_;
}

}  // namespace opwright::fuzz
