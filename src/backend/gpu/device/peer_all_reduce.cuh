// The all-reduce of small tensors through memory that the ranks' GPUs share.
// Expects prelude.cuh.
#pragma once

#include "peers.cuh"

using Peers = opwright::peers::Table;
using opwright::peers::Packet;

__device__ inline void send(unsigned long long to, Packet packet, unsigned epoch) {
  const unsigned long long first = (unsigned long long)epoch << 32 | packet.words[0];
  const unsigned long long second = (unsigned long long)epoch << 32 | packet.words[1];
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
}
// Whether the packet of that call has come.
__device__ inline bool receive(unsigned long long from, Packet& packet, unsigned epoch) {
  unsigned long long first, second;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
  packet.words[0] = (unsigned)first, packet.words[1] = (unsigned)second;
  return (unsigned)(first >> 32) == epoch && (unsigned)(second >> 32) == epoch;
}

// Elements of a packet.
template <class Element>
union PacketElements {
  static constexpr int kCount = Packet::kBytes / sizeof(Element);
  Packet packet;
  Element at[kCount];
};

// Each rank sends its tensor to all others, and each adds what it gets, in the order of the ranks.
// So all ranks get the same bits. A thread sends and adds one packet. `to` may be `from`. Config
// has what reduce_ranks() uses, and kPlaces, the packets of one rank and one half of the memory.
//
// The packets of a call lie in the half of the memory that its number's last bit names. They
// replace those of the call before the last one. Nobody reads these any more: a rank sends the
// packets of call n + 1 once its own call n has ended, because its kernels run one after another.
// Call n has ended there once it has the packets of all others' call n, and a rank sends those once
// its call n - 1 has ended. So a rank is at most one call ahead, and no barrier is needed. This
// holds for each block by itself: block i of a call only meets the blocks i of the other ranks. All
// ranks have the same number of elements, so the blocks i of all ranks count the same calls. The
// count lies in the GPU's memory, so a graph may run the kernel again and again.
//
// Blocks that do not fit on the GPU at once begin in the same order on all ranks, so none waits for
// one that cannot begin.
template <class Config>
__device__ void all_reduce_of_peers(const typename Config::Element* from, const Peers* known,
                                    Index count, typename Config::Element* to) {
  using Element = typename Config::Element;
  using Value = typename Config::Value;
  using Sum = typename Config::Sum;
  using Elements = PacketElements<Element>;
  using Whole = Pack<Element, Elements::kCount>;
  constexpr int kRanks = Config::kRanks;
  // The next kernels fetch their weights while this one waits for the other ranks.
  begin_next_kernel();
  // The table but for the counts stays the same, so it is read while the kernel before ends.
  const int rank = known->rank;
  constexpr unsigned long long kStep = Config::kPlaces * sizeof(Packet);  // from rank to rank
  unsigned long long packets[kRanks];
#pragma unroll
  for (int i = 0; i < kRanks; ++i) packets[i] = known->buffers[i];
  wait_for_kernels();
  from = read_anew(from);

  const Index place = (Index)blockIdx.x * opwright::peers::AllReduce::kThreads + (Index)threadIdx.x;
  const Index first = place * Elements::kCount, left = count - first;
  const bool is_whole = left >= Elements::kCount;
  Elements own = {};
  if (is_whole && is_aligned<Element, Elements::kCount>(from)) {
    const Whole whole = *(const Whole*)(from + first);
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i) own.at[i] = whole.at[i];
  } else {
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i)
      if (i < left) own.at[i] = from[first + i];
  }
  // The kernel before may have changed the count.
  volatile unsigned* const calls = (volatile unsigned*)known->counters + blockIdx.x;
  unsigned epoch = *calls + 1;
  if (epoch == 0) epoch = 2;  // memory that was never written has 0
  const unsigned long long half = (epoch & 1) * kRanks * kStep + place * sizeof(Packet);
  if (left > 0) {
#pragma unroll
    for (int i = 1; i < kRanks; ++i) send(packets[i] + half + rank * kStep, own.packet, epoch);
  }
  // All threads have the epoch, and have sent before one of them waits.
  __syncthreads();
  if (threadIdx.x == 0) *calls = epoch;
  if (left <= 0) return;

  Elements parts[kRanks];
  constexpr unsigned kLook = 4096;  // tries between looks at the host's word, which is far away
  for (unsigned tries = 1;; ++tries) {
    bool is_there = true;
#pragma unroll
    for (int i = 0; i < kRanks; ++i)
      if (i != rank) is_there &= receive(packets[0] + half + i * kStep, parts[i].packet, epoch);
    if (is_there) break;
    if (tries % kLook == 0) {
      if (*(volatile unsigned*)known->stop != 0) return;
      __nanosleep(100);
    }
  }

#pragma unroll
  for (int i = 0; i < kRanks; ++i)
    if (i == rank) parts[i] = own;
  Elements result;
#pragma unroll
  for (int i = 0; i < Elements::kCount; ++i) {
    Sum sum = (Sum)load(parts[0].at[i]);
#pragma unroll
    for (int each = 1; each < kRanks; ++each)
      sum = Config::combine(sum, (Sum)load(parts[each].at[i]));
    result.at[i] = store<Element>((Value)Config::finish(sum));
  }
  if (is_whole && is_aligned<Element, Elements::kCount>(to)) {
    Whole whole;
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i) whole.at[i] = result.at[i];
    *(Whole*)(to + first) = whole;
  } else {
#pragma unroll
    for (int i = 0; i < Elements::kCount; ++i)
      if (i < left) to[first + i] = result.at[i];
  }
}
