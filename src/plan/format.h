#pragma once

#include <cstdint>

namespace opwright {

/// An engine file: this header, the FlatBuffers plan, the code section, the weights section, each
/// at a 4096-byte aligned offset, zeros between. All integers little-endian. Hashes are XXH3 (128
/// bits, low half first) of the section's bytes; the header's own is over the bytes before it.
struct PlanHeader {
  static constexpr char kMagic[8] = {'O', 'P', 'W', 'R', 'I', 'G', 'H', 'T'};
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kAlignment = 4096;

  struct Section {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t hash[2] = {0, 0};
  };

  char magic[8];
  uint32_t version;
  uint32_t api_level;  ///< NV_TENSORRT_MAJOR * 100 + MINOR that the builder had
  uint64_t file_size;
  Section plan;
  Section code;
  Section weights;
  uint64_t hash[2];
};
static_assert(sizeof(PlanHeader) == 24 + 3 * 32 + 16);

}  // namespace opwright
