#pragma once

// Structures that a kernel library, compiled by the emulated NVRTC, shares with the emulated
// driver. The prelude of generated code (nvrtc/prelude.inc) repeats them: change both together.

#include <cstddef>
#include <cstdint>

namespace emulation {

struct Dim3 {
  unsigned x, y, z;
};

/// State of the running block, visible to its threads.
struct Block {
  Dim3 thread, block, block_extent, grid_extent;
  char* dynamic_shared;
  /// Contributes `value` to the collective of the lanes in `mask`. Returns the values of all 32
  /// lanes. The bits of element 32 are the lanes that took part.
  const uint64_t* (*exchange)(unsigned mask, uint64_t value);
  /// Waits for the block's threads. Returns the number of threads with a true predicate.
  int (*barrier)(int predicate);
  /// Waits for `count` threads at the barrier of that number.
  void (*numbered_barrier)(int number, int count);
  /// Waits until the highest bit of `word`, which other threads change, is not `bit`.
  void (*wait_while)(const uint64_t* word, unsigned bit);
  /// Waits for the threads of the block's cluster.
  void (*cluster_barrier)();
  /// Dynamic shared memory of the block of that rank in the cluster.
  char* (*shared_of)(unsigned rank);
  void (*trap)();
  /// Number of waits for earlier kernels (griddepcontrol.wait).
  int waits;
  /// Number of clusters that have begun, including this one.
  uint64_t runs;
  /// Multiplies two rows of `depth` elements with every fourth row of `columns` of b, and adds the
  /// products to two rows: one lane's part of a warpgroup's product.
  void (*multiply_floats)(const float* first, const float* second, const float* b, int depth,
                          int columns, float* to_first, float* to_second);
  /// The same of elements of E4M3, whose sums are cut.
  void (*multiply_e4m3)(const float* first, const float* second, const float* b, int depth,
                        int columns, float* to_first, float* to_second);
  void (*multiply_ints)(const int* first, const int* second, const int* b, int depth, int columns,
                        int* to_first, int* to_second);
};

/// Content of a CUtensorMap. Axes are listed from the innermost one.
struct TensorMapImage {
  static constexpr uint32_t kMagic = 0x70616d74;
  uint64_t address;
  uint64_t strides[4];  ///< in bytes, for all axes but the innermost
  uint32_t last[5];     ///< extents minus 1
  uint32_t magic;
  uint16_t box[5];  ///< extents of the box, or channels and pixels of windows
  int16_t lower[3], upper[3];
  uint8_t steps[5], rank, has_windows, element_size;
  uint8_t rounds;  ///< whether copies round to TF32
};

struct Parameter {
  size_t offset, size;
  bool pointer, floating;
};

struct Entry {
  const char* name;
  /// The kernel itself. Its symbol is the lowered name.
  void* function;
  /// Runs the thread that `Block` names.
  void (*run_thread)(void** parameters);
  /// Runs all threads of a block, one after another.
  void (*run_block)(void** parameters);
  const Parameter* parameters;
  int parameter_count;
  int max_threads;
  int cluster;  ///< blocks of a cluster, along x
};

struct Table {
  const Entry* entries;
  int count;
  Block* block;
  /// Whether threads wait for each other, so that each needs a stack.
  int collective;
};

inline constexpr char kTableSymbol[] = "opwright_kernel_table";

/// Header of a cubin, like that of an ELF file. The kernel library follows it.
struct CubinHeader {
  unsigned char identification[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t header_size, program_header_size, program_header_count, section_header_size,
      section_header_count, section_names;
};
static_assert(sizeof(CubinHeader) == 64);

inline constexpr uint16_t kMachineCuda = 190;
/// In PTX the kernel library follows in comment lines of this prefix, in hexadecimal digits.
inline constexpr char kPtxPayload[] = "//opwright-emulation ";

}  // namespace emulation
