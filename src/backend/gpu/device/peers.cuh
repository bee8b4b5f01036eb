// Memory of each rank's GPU that the GPUs of all ranks read and write, as kernels and the host know
// it. The host's compiler reads this file, too, so it has plain types and includes nothing.
#pragma once

namespace opwright::peers {

// What a rank's kernels know of the memory. It lies in front of the rank's own buffer. The host
// writes it. Plans hold code with this layout.
struct Table {
  // A kernel keeps an address and a packet of each rank in registers. More GPUs do not reach each
  // other.
  static constexpr int kRanks = 16;
  static constexpr int kCounters = 1024;
  // Where the buffer begins behind the beginning of the table.
  static constexpr int kBufferAt = 8192;

  // The addresses of the ranks' buffers, first this rank's, then the next one's, and so on.
  unsigned long long buffers[kRanks];
  unsigned long long stop;  // the address of a word of the host; not 0: the kernels end
  int rank;                 // this one
  int ranks;
  unsigned counters[kCounters];  // of calls; kernels of this rank count them
};
static_assert(sizeof(Table) == 8 * Table::kRanks + 8 + 2 * 4 + 4 * Table::kCounters &&
                  sizeof(Table) <= Table::kBufferAt,
              "all compilers lay the table out alike");

// Eight bytes of data in two words, as they lie in a buffer: each word has the number of the call
// beside it. So a word that has come says so itself. No fence and no flag is needed. The memory
// model has no access of more than eight bytes that is seen as one, so a packet has two of them.
struct alignas(16) Packet {
  static constexpr int kBytes = 8;  // of data
  unsigned words[kBytes / 4];
};
static_assert(sizeof(Packet) == 2 * sizeof(Packet::words), "a number beside each word");

// The all-reduce of small tensors. A thread has a packet, and a block a counter.
struct AllReduce {
  // Of a block of all its kernels, so that a place always belongs to the same block.
  static constexpr int kThreads = 256;
  // Bytes of the largest tensor. The library sends each element of larger ones fewer times.
  static constexpr int kMostBytes = 512 << 10;
  // What a rank sends to all others together, at most.
  static constexpr int kMostSent = 1 << 20;
};
static_assert(AllReduce::kMostBytes <= Table::kCounters * AllReduce::kThreads * Packet::kBytes,
              "each block has a counter");

}  // namespace opwright::peers
