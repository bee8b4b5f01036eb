#pragma once

#include <cstdint>

namespace opwright {

/// An engine file: this header, the FlatBuffers plan, the code section and the weights section,
/// each at the next 4096-byte aligned offset with zeros between. The file ends with the weights.
/// All integers are little-endian. Hashes are XXH3 (128 bits, low half first). The header's own
/// hash covers the bytes before it. The hashes of plan and code cover their sections. The hash of
/// the weights covers the hashes of chunks of kHashChunk bytes (the last one may be shorter), so
/// that threads can share the work.
struct PlanHeader {
  static constexpr char kMagic[8] = {'O', 'P', 'W', 'R', 'I', 'G', 'H', 'T'};
  static constexpr uint32_t kVersion = 8;
  static constexpr uint64_t kAlignment = 4096;
  /// Alignment of code objects and of weights within their sections.
  static constexpr uint64_t kCodeAlignment = 16;
  static constexpr uint64_t kWeightAlignment = 64;
  static constexpr uint64_t kHashChunk = 4 << 20;
  /// FlatBuffers' own limit is 2^31.
  static constexpr uint64_t kMaxPlanSize = 1 << 30;

  struct Section {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t hash[2] = {0, 0};
    uint64_t end() const { return offset + size; }
  };

  char magic[8];
  uint32_t version;
  uint32_t api_level;  ///< NV_TENSORRT_MAJOR * 100 + MINOR of the builder
  uint64_t file_size;
  Section plan;
  Section code;
  Section weights;
  uint64_t hash[2];
};
static_assert(sizeof(PlanHeader) == 24 + 3 * 32 + 16);

}  // namespace opwright
