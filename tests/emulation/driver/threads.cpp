#include "driver/threads.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <memory>
#include <vector>

#include "driver/fiber.h"
#include "driver/products.h"

namespace emulation {
namespace {

constexpr int kWarp = 32;
constexpr int kBarriers = 16;  // numbered barriers of a block

struct Thread {
  Fiber fiber;
  enum {
    kRunnable,
    kBarrier,
    kNumberedBarrier,
    kExchange,
    kWord,
    kCluster,
    kFinished
  } status = kRunnable;
  Dim3 index = {};
  int block = 0;  ///< number of the block in the cluster
  int lane = 0;
  unsigned mask = 0;
  uint64_t value = 0;
  int predicate = 0;
  int barrier_count = 0;
  int number = 0, needed = 0;  ///< of a numbered barrier
  const uint64_t* word = nullptr;
  unsigned bit = 0;
  /// Values of the lanes of an exchange, in the thread of the first lane. All lanes read them
  /// before anything else is released.
  uint64_t exchanged[kWarp + 1] = {};
  const uint64_t* received = nullptr;
};
using Threads = std::vector<std::unique_ptr<Thread>>;

// The threads of the running block. Blocks run one at a time, under the driver's lock.
Threads& pool() {
  static auto* pool = new Threads;
  return *pool;
}
Thread* running = nullptr;
const Entry* running_entry = nullptr;
std::span<char* const> running_shared;
void** running_parameters = nullptr;
void (*trap)() = nullptr;

void run_thread() {
  running_entry->run_thread(running_parameters);
  running->status = Thread::kFinished;
  running->fiber.suspend();
}

int wait_barrier(int predicate) {
  Thread* self = running;
  self->predicate = predicate != 0;
  self->status = Thread::kBarrier;
  self->fiber.suspend();
  return self->barrier_count;
}

void wait_numbered_barrier(int number, int count) {
  Thread* self = running;
  if (number < 0 || number >= kBarriers || count <= 0 || count % kWarp != 0) trap();
  self->number = number;
  self->needed = count;
  self->status = Thread::kNumberedBarrier;
  self->fiber.suspend();
}

void wait_while(const uint64_t* word, unsigned bit) {
  Thread* self = running;
  if (*word >> 63 != bit) return;
  self->word = word;
  self->bit = bit;
  self->status = Thread::kWord;
  self->fiber.suspend();
}

void wait_cluster_barrier() {
  running->status = Thread::kCluster;
  running->fiber.suspend();
}

char* shared_of(unsigned rank) {
  if (rank >= running_shared.size()) trap();
  return running_shared[rank];
}

const uint64_t* wait_exchange(unsigned mask, uint64_t value) {
  Thread* self = running;
  if (!(mask >> self->lane & 1)) trap();
  self->mask = mask;
  self->value = value;
  self->status = Thread::kExchange;
  self->fiber.suspend();
  return self->received;
}

/// Releases the threads from `first` to `end` that wait for all of them, once all that are alive
/// wait.
bool release_barrier(const Threads& threads, int first, int end, int status) {
  int waiting = 0, total = 0;
  for (int t = first; t < end; ++t) {
    const Thread& thread = *threads[t];
    if (thread.status == Thread::kFinished) continue;
    if (thread.status != status) return false;
    ++waiting;
    total += thread.predicate;
  }
  for (int t = first; t < end; ++t) {
    if (threads[t]->status != status) continue;
    threads[t]->barrier_count = total;
    threads[t]->status = Thread::kRunnable;
  }
  return waiting > 0;
}

/// Releases the threads that wait at the barrier of `first`, once there are as many as it needs.
bool release_numbered_barrier(const Threads& threads, int count, const Thread& first) {
  const int number = first.number, needed = first.needed;
  const auto waits = [&](const Thread& thread) {
    return thread.status == Thread::kNumberedBarrier && thread.number == number &&
           thread.block == first.block;
  };
  int waiting = 0;
  for (int t = 0; t < count; ++t) {
    if (!waits(*threads[t])) continue;
    if (threads[t]->needed != needed) trap();
    ++waiting;
  }
  if (waiting != needed) return false;
  for (int t = 0; t < count; ++t)
    if (waits(*threads[t])) threads[t]->status = Thread::kRunnable;
  return true;
}

/// Releases the lanes of a mask, once all of them that are alive wait with that mask.
bool release_exchange(const Threads& threads, int first, int lanes, unsigned mask) {
  uint64_t present = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    const Thread& thread = *threads[first + lane];
    if (!(mask >> lane & 1) || thread.status == Thread::kFinished) continue;
    if (thread.status != Thread::kExchange || thread.mask != mask) return false;
    present |= uint64_t{1} << lane;
  }
  uint64_t* const exchanged = threads[first + std::countr_zero(present)]->exchanged;
  for (int lane = 0; lane < kWarp; ++lane) {
    exchanged[lane] = 0;
    if (!(present >> lane & 1)) continue;
    Thread& thread = *threads[first + lane];
    exchanged[lane] = thread.value;
    thread.received = exchanged;
    thread.status = Thread::kRunnable;
  }
  exchanged[kWarp] = present;
  return true;
}

/// Releases threads of blocks of `block` threads each; `count` is the number of all threads.
bool release(const Threads& threads, int count, int block) {
  bool any = release_barrier(threads, 0, count, Thread::kCluster);
  for (int first = 0; first < count; first += block)
    any |= release_barrier(threads, first, first + block, Thread::kBarrier);
  std::bitset<size_t{kBarriers} * kMaxCluster> seen;
  for (int t = 0; t < count; ++t) {
    Thread& thread = *threads[t];
    const auto barrier = static_cast<size_t>(thread.block) * kBarriers + thread.number;
    if (thread.status == Thread::kNumberedBarrier && !seen[barrier]) {
      seen[barrier] = true;
      any |= release_numbered_barrier(threads, count, thread);
    }
    if (thread.status == Thread::kWord && *thread.word >> 63 != thread.bit) {
      thread.status = Thread::kRunnable;
      any = true;
    }
    any |= thread.status == Thread::kRunnable;
  }
  return any;
}

/// Releases the lanes of a warp whose exchanges are complete.
bool release_exchanges(const Threads& threads, int first, int lanes) {
  bool any = false;
  for (int t = first; t < first + lanes; ++t)
    if (threads[t]->status == Thread::kExchange)
      any |= release_exchange(threads, first, lanes, threads[t]->mask);
  return any;
}

}  // namespace

void set_callbacks(Block& block, void (*on_trap)()) {
  trap = on_trap;
  block.trap = on_trap;
  block.barrier = wait_barrier;
  block.exchange = wait_exchange;
  block.numbered_barrier = wait_numbered_barrier;
  block.wait_while = wait_while;
  block.cluster_barrier = wait_cluster_barrier;
  block.shared_of = shared_of;
  block.multiply_floats = multiply_rows;
  block.multiply_ints = multiply_rows;
}

BlockEnd run_collective_blocks(const Table& table, const Entry& entry, void** parameters,
                               std::span<char* const> shared) {
  Threads& threads = pool();
  const Dim3 extent = table.block->block_extent, first = table.block->block;
  const int block = extent.x * extent.y * extent.z;
  const int count = block * static_cast<int>(shared.size());
  while (static_cast<int>(threads.size()) < count) threads.push_back(std::make_unique<Thread>());
  running_entry = &entry;
  running_parameters = parameters;
  running_shared = shared;
  for (int t = 0; t < count; ++t) {
    const unsigned place = t % block;
    Thread& thread = *threads[t];
    thread.index = {place % extent.x, place / extent.x % extent.y, place / extent.x / extent.y};
    thread.block = t / block;
    thread.lane = place % kWarp;
    thread.status = Thread::kRunnable;
    thread.fiber.start(run_thread);
  }
  const int warps_of_block = (block + kWarp - 1) / kWarp, block_count = count / block;
  int finished = 0;
  // Threads run forwards and backwards in turns, so that a kernel that lacks a barrier fails. A
  // warp goes on as long as it waits only for itself, so that its stacks stay in the caches. That
  // is limited, since it may wait for another warp.
  for (bool forwards = true;; forwards = !forwards) {
    for (int i = 0; i < warps_of_block * block_count; ++i) {
      const int warp = forwards ? i : warps_of_block * block_count - 1 - i;
      const int begin = warp % warps_of_block * kWarp, lanes = std::min(kWarp, block - begin);
      const int of_block = warp / warps_of_block;
      table.block->block = {first.x + of_block, first.y, first.z};
      table.block->dynamic_shared = shared[of_block];
      constexpr int kRounds = 64;
      for (int round = 0; round < kRounds; ++round) {
        for (int lane = 0; lane < lanes; ++lane) {
          const bool is_forwards = forwards == (round % 2 == 0);
          Thread& thread =
              *threads[of_block * block + begin + (is_forwards ? lane : lanes - 1 - lane)];
          if (thread.status != Thread::kRunnable) continue;
          running = &thread;
          table.block->thread = thread.index;
          thread.fiber.resume();
          finished += thread.status == Thread::kFinished;
        }
        if (!release_exchanges(threads, of_block * block + begin, lanes)) break;
      }
    }
    table.block->block = first;
    if (finished == count) return BlockEnd::kFinished;
    if (!release(threads, count, block)) return BlockEnd::kDeadlock;
  }
}

}  // namespace emulation
