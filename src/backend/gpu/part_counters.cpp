#include "backend/gpu/part_counters.h"

#include "base/error.h"

namespace opwright::gpu {
namespace {

/// Counters of blocks that are done, of so many bits each, in one word.
constexpr int kCounterBits = 4, kCountersOfWord = 64 / kCounterBits;

}  // namespace

std::string continue_unless_last_part(KernelSource& source, int64_t tasks, int parts) {
  const int words = static_cast<int>((tasks + kCountersOfWord - 1) / kCountersOfWord);
  source.add_counters(words);
  std::string word = "counter0";
  for (int i = 1; i < words; ++i)
    word = str("task >= ", i * kCountersOfWord, " ? counter", i, " : ", word);
  // What this block has written comes before its count, and what others have after it.
  return str(
      "__threadfence();\n__syncthreads();\n__shared__ bool is_last;\n"
      "if (threadIdx.x == 0) {\nunsigned long long* const word = ",
      word, ";\nconst int place = (int)(task % ", kCountersOfWord, ") * ", kCounterBits,
      ";\nis_last = (atomicAdd(word, 1ull << place) >> place & ", (1 << kCounterBits) - 1,
      "ull) == ", parts - 1, ";\nif (is_last) atomicAdd(word, 0ull - (", parts,
      "ull << place));\n}\n__syncthreads();\nif (!is_last) continue;\n__threadfence();\n");
}

}  // namespace opwright::gpu
