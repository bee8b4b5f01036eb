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
int finished = 0;
/// The warp whose lanes run, one after another: `lane` is the running one's place among `lanes`,
/// `step` the direction. After a pass over its lanes the next one goes the other way.
struct Warp {
  std::unique_ptr<Thread>* lanes = nullptr;
  int count = 0, lane = 0, step = 1, passes = 0;
};
Warp warp;
Block* running_block = nullptr;
const Entry* running_entry = nullptr;
std::span<char* const> running_shared;
void** running_parameters = nullptr;
void (*trap)() = nullptr;

/// The next lane of the running warp that can run; null if this pass over the lanes is over.
Thread* next_lane() {
  for (warp.lane += warp.step; warp.lane >= 0 && warp.lane < warp.count; warp.lane += warp.step) {
    Thread& thread = *warp.lanes[warp.lane];
    if (thread.status != Thread::kRunnable) continue;
    running = &thread;
    running_block->thread = thread.index;
    return &thread;
  }
  return nullptr;
}

bool release_exchanges();

/// Lets the next lane of the warp run. It goes on without the scheduler as long as the warp waits
/// only for itself, so that its stacks stay in the caches. That is limited, since it may wait for
/// another warp.
void wait(Thread* self) {
  constexpr int kPasses = 64;
  Thread* next = next_lane();
  while (next == nullptr && release_exchanges() && ++warp.passes < kPasses) {
    warp.step = -warp.step;
    warp.lane = warp.step > 0 ? -1 : warp.count;
    next = next_lane();
  }
  if (next == nullptr) {
    self->fiber.suspend();
  } else if (next != self) {
    self->fiber.hand_over(next->fiber);
  }
}

void run_thread() {
  running_entry->run_thread(running_parameters);
  running->status = Thread::kFinished;
  ++finished;
  wait(running);
}

int wait_barrier(int predicate) {
  Thread* self = running;
  self->predicate = predicate != 0;
  self->status = Thread::kBarrier;
  wait(self);
  return self->barrier_count;
}

void wait_numbered_barrier(int number, int count) {
  Thread* self = running;
  if (number < 0 || number >= kBarriers || count <= 0 || count % kWarp != 0) trap();
  self->number = number;
  self->needed = count;
  self->status = Thread::kNumberedBarrier;
  wait(self);
}

void wait_while(const uint64_t* word, unsigned bit) {
  Thread* self = running;
  if (*word >> 63 != bit) return;
  self->word = word;
  self->bit = bit;
  self->status = Thread::kWord;
  wait(self);
}

void wait_cluster_barrier() {
  running->status = Thread::kCluster;
  wait(running);
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
  wait(self);
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
bool release_exchange(unsigned mask) {
  uint64_t present = 0;
  for (int lane = 0; lane < warp.count; ++lane) {
    const Thread& thread = *warp.lanes[lane];
    if (!(mask >> lane & 1) || thread.status == Thread::kFinished) continue;
    if (thread.status != Thread::kExchange || thread.mask != mask) return false;
    present |= uint64_t{1} << lane;
  }
  uint64_t* const exchanged = warp.lanes[std::countr_zero(present)]->exchanged;
  for (int lane = 0; lane < kWarp; ++lane) {
    exchanged[lane] = 0;
    if (!(present >> lane & 1)) continue;
    Thread& thread = *warp.lanes[lane];
    exchanged[lane] = thread.value;
    thread.received = exchanged;
    thread.status = Thread::kRunnable;
  }
  exchanged[kWarp] = present;
  return true;
}

/// Releases the lanes of the warp whose exchanges are complete.
bool release_exchanges() {
  bool any = false;
  for (int lane = 0; lane < warp.count; ++lane)
    if (warp.lanes[lane]->status == Thread::kExchange)
      any |= release_exchange(warp.lanes[lane]->mask);
  return any;
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
  block.multiply_e4m3 = multiply_e4m3_rows;
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
  running_block = table.block;
  for (int t = 0; t < count; ++t) {
    const unsigned place = t % block;
    Thread& thread = *threads[t];
    thread.index = {place % extent.x, place / extent.x % extent.y, place / extent.x / extent.y};
    thread.block = t / block;
    thread.lane = place % kWarp;
    thread.status = Thread::kRunnable;
    thread.fiber.start(run_thread);
  }
  const int warps_of_block = (block + kWarp - 1) / kWarp;
  const int warps = warps_of_block * (count / block);
  finished = 0;
  // Threads run forwards and backwards in turns, so that a kernel that lacks a barrier fails.
  for (bool forwards = true;; forwards = !forwards) {
    for (int i = 0; i < warps; ++i) {
      const int number = forwards ? i : warps - 1 - i;
      const int begin = number % warps_of_block * kWarp, of_block = number / warps_of_block;
      const int lanes = std::min(kWarp, block - begin);
      running_block->block = {first.x + of_block, first.y, first.z};
      running_block->dynamic_shared = shared[of_block];
      warp = {.lanes = &threads[of_block * block + begin],
              .count = lanes,
              .lane = forwards ? -1 : lanes,
              .step = forwards ? 1 : -1};
      if (Thread* const thread = next_lane()) thread->fiber.resume();
    }
    running_block->block = first;
    if (finished == count) return BlockEnd::kFinished;
    if (!release(threads, count, block)) return BlockEnd::kDeadlock;
  }
}

}  // namespace emulation
