#include "backend/gpu/part_counters.h"

#include "base/error.h"

namespace opwright::gpu {

std::string add_part_counters(KernelSource& source, int64_t tasks, int bits) {
  const int of_word = 64 / bits, words = static_cast<int>((tasks + of_word - 1) / of_word);
  source.add_counters(words);
  source.add_declarations(include("part_counters.cuh"));
  std::string text = "counter0";
  for (int i = 1; i < words; ++i) text += str(", counter", i);
  return text;
}

}  // namespace opwright::gpu
