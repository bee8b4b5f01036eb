#include "driver/threads.h"

#include <deque>

#include "driver/fiber.h"

namespace emulation {
namespace {

constexpr int kWarp = 32;

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
  int block = 0;  ///< of the cluster
  int lane = 0;
  unsigned mask = 0;
  uint64_t value = 0;
  int predicate = 0;
  int barrier_count = 0;
  int number = 0, needed = 0;  ///< of a numbered barrier
  const uint64_t* word = nullptr;
  unsigned bit = 0;
  uint64_t exchanged[kWarp + 1] = {};
};

// Blocks run one at a time, under the driver's lock.
std::deque<Thread>& pool() {
  static auto* pool = new std::deque<Thread>;
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
  if (number < 0 || number > 15 || count <= 0 || count % kWarp != 0) trap();
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
  return self->exchanged;
}

/// Lets the threads from `first` to `end` go on that wait for all of them, once those that live do.
bool release_barrier(std::deque<Thread>& threads, int first, int end, int status) {
  int waiting = 0, total = 0;
  for (int t = first; t < end; ++t) {
    const Thread& thread = threads[t];
    if (thread.status == Thread::kFinished) continue;
    if (thread.status != status) return false;
    ++waiting;
    total += thread.predicate;
  }
  for (int t = first; t < end; ++t) {
    if (threads[t].status != status) continue;
    threads[t].barrier_count = total;
    threads[t].status = Thread::kRunnable;
  }
  return waiting > 0;
}

/// Lets the threads go on that wait at the barrier of `first`, once there are as many as it needs.
bool release_numbered_barrier(std::deque<Thread>& threads, int count, const Thread& first) {
  const int number = first.number, needed = first.needed;
  const auto waits = [&](const Thread& thread) {
    return thread.status == Thread::kNumberedBarrier && thread.number == number &&
           thread.block == first.block;
  };
  int waiting = 0;
  for (int t = 0; t < count; ++t) {
    if (!waits(threads[t])) continue;
    if (threads[t].needed != needed) trap();
    ++waiting;
  }
  if (waiting != needed) return false;
  for (int t = 0; t < count; ++t)
    if (waits(threads[t])) threads[t].status = Thread::kRunnable;
  return true;
}

/// Lets the lanes of one mask go on, once all of them that live wait with that mask.
bool release_exchange(std::deque<Thread>& threads, int first, int lanes, unsigned mask) {
  uint64_t exchanged[kWarp + 1] = {};
  for (int lane = 0; lane < lanes; ++lane) {
    const Thread& thread = threads[first + lane];
    if (!(mask >> lane & 1) || thread.status == Thread::kFinished) continue;
    if (thread.status != Thread::kExchange || thread.mask != mask) return false;
    exchanged[lane] = thread.value;
    exchanged[kWarp] |= uint64_t{1} << lane;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    Thread& thread = threads[first + lane];
    if (!(exchanged[kWarp] >> lane & 1)) continue;
    for (int i = 0; i <= kWarp; ++i) thread.exchanged[i] = exchanged[i];
    thread.status = Thread::kRunnable;
  }
  return true;
}

/// `count` threads, of blocks of `block` each.
bool release(std::deque<Thread>& threads, int count, int block) {
  bool any = release_barrier(threads, 0, count, Thread::kCluster);
  for (int first = 0; first < count; first += block)
    any |= release_barrier(threads, first, first + block, Thread::kBarrier);
  for (int t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    if (thread.status == Thread::kNumberedBarrier)
      any |= release_numbered_barrier(threads, count, thread);
    if (thread.status == Thread::kWord && *thread.word >> 63 != thread.bit) {
      thread.status = Thread::kRunnable;
      any = true;
    }
    if (thread.status != Thread::kExchange) continue;
    int first = t - thread.lane, end = (thread.block + 1) * block;
    int lanes = end - first < kWarp ? end - first : kWarp;
    any |= release_exchange(threads, first, lanes, threads[t].mask);
  }
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
}

BlockEnd run_collective_blocks(const Table& table, const Entry& entry, void** parameters,
                               std::span<char* const> shared) {
  std::deque<Thread>& threads = pool();
  const Dim3 extent = table.block->block_extent, first = table.block->block;
  const int block = extent.x * extent.y * extent.z;
  const int count = block * static_cast<int>(shared.size());
  while (static_cast<int>(threads.size()) < count) threads.emplace_back();
  running_entry = &entry;
  running_parameters = parameters;
  running_shared = shared;
  for (int t = 0; t < count; ++t) {
    const unsigned place = t % block;
    threads[t].index = {place % extent.x, place / extent.x % extent.y, place / extent.x / extent.y};
    threads[t].block = t / block;
    threads[t].lane = place % kWarp;
    threads[t].status = Thread::kRunnable;
    threads[t].fiber.start(run_thread);
  }
  int finished = 0;
  // Threads take turns forwards and backwards, so that a kernel that lacks a barrier fails.
  for (bool forwards = true;; forwards = !forwards) {
    for (int i = 0; i < count; ++i) {
      Thread& thread = threads[forwards ? i : count - 1 - i];
      if (thread.status != Thread::kRunnable) continue;
      running = &thread;
      table.block->thread = thread.index;
      table.block->block = {first.x + thread.block, first.y, first.z};
      table.block->dynamic_shared = shared[thread.block];
      thread.fiber.resume();
      finished += thread.status == Thread::kFinished;
    }
    table.block->block = first;
    if (finished == count) return BlockEnd::kFinished;
    if (!release(threads, count, block)) return BlockEnd::kDeadlock;
  }
}

}  // namespace emulation
