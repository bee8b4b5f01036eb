#include "driver/threads.h"

#include <deque>

#include "driver/fiber.h"

namespace emulation {
namespace {

constexpr int kWarp = 32;

struct Thread {
  Fiber fiber;
  enum { kRunnable, kBarrier, kExchange, kFinished } status = kRunnable;
  Dim3 index = {};
  int lane = 0;
  unsigned mask = 0;
  uint64_t value = 0;
  int predicate = 0;
  int barrier_count = 0;
  uint64_t exchanged[kWarp + 1] = {};
};

// Blocks run one at a time, under the driver's lock.
std::deque<Thread>& pool() {
  static auto* pool = new std::deque<Thread>;
  return *pool;
}
Thread* running = nullptr;
const Entry* running_entry = nullptr;
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

const uint64_t* wait_exchange(unsigned mask, uint64_t value) {
  Thread* self = running;
  if (!(mask >> self->lane & 1)) trap();
  self->mask = mask;
  self->value = value;
  self->status = Thread::kExchange;
  self->fiber.suspend();
  return self->exchanged;
}

/// Lets the threads go on that wait for the whole block, once all that live do.
bool release_barrier(std::deque<Thread>& threads, int count) {
  int waiting = 0, total = 0;
  for (int t = 0; t < count; ++t) {
    const Thread& thread = threads[t];
    if (thread.status == Thread::kFinished) continue;
    if (thread.status != Thread::kBarrier) return false;
    ++waiting;
    total += thread.predicate;
  }
  for (int t = 0; t < count; ++t) {
    if (threads[t].status != Thread::kBarrier) continue;
    threads[t].barrier_count = total;
    threads[t].status = Thread::kRunnable;
  }
  return waiting > 0;
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

bool release(std::deque<Thread>& threads, int count) {
  bool any = release_barrier(threads, count);
  for (int t = 0; t < count; ++t) {
    if (threads[t].status != Thread::kExchange) continue;
    int first = t / kWarp * kWarp;
    int lanes = count - first < kWarp ? count - first : kWarp;
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
}

BlockEnd run_collective_block(const Table& table, const Entry& entry, void** parameters) {
  std::deque<Thread>& threads = pool();
  Dim3 extent = table.block->block_extent;
  int count = extent.x * extent.y * extent.z;
  while (static_cast<int>(threads.size()) < count) threads.emplace_back();
  running_entry = &entry;
  running_parameters = parameters;
  for (int t = 0; t < count; ++t) {
    threads[t].index = {t % extent.x, t / extent.x % extent.y, t / extent.x / extent.y};
    threads[t].lane = t % kWarp;
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
      thread.fiber.resume();
      finished += thread.status == Thread::kFinished;
    }
    if (finished == count) return BlockEnd::kFinished;
    if (!release(threads, count)) return BlockEnd::kDeadlock;
  }
}

}  // namespace emulation
