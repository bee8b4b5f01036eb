#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

constexpr int64_t kMaxInThread = 16;  ///< keys that a thread keeps
constexpr int64_t kMaxInWarp = 1024;  ///< elements that a warp keeps
constexpr int64_t kMaxFromWarp = 32;  ///< keys that a warp takes one after the other
constexpr int64_t kSortBytes = 32768;

/// Blocks that share a row of which only the best is wanted, at most, and such rows; a counter of
/// blocks that are done has 8 bits of a word.
constexpr int64_t kMostBlocksOfRow = 32, kMostSharedRows = 64, kRowsOfWord = 8;

enum class TopKWay { kThread, kWarp, kSort, kSelect, kBest };

std::string_view name_of(TopKWay way) {
  switch (way) {
    case TopKWay::kThread:
      return "a thread per row";
    case TopKWay::kWarp:
      return "a warp per row";
    case TopKWay::kSort:
      return "a block sorts a row";
    case TopKWay::kSelect:
      return "a block selects by digits";
    case TopKWay::kBest:
      return "blocks find the best";
  }
  return {};
}

struct TopKExtents {
  int axis;
  int64_t most, k, rows;
  bool is_last;
  int64_t capacity;  ///< keys in shared memory
  int64_t parts;     ///< blocks that share a row, of which only the best is wanted

  TopKExtents(const TopKParams& params, std::span<const PortDesc> inputs,
              std::span<const PortDesc> outputs)
      : axis(std::countr_zero(static_cast<uint64_t>(params.axes))) {
    const Shape &x = inputs[0].max, &typical = inputs[0].opt;
    most = x[axis], k = outputs[0].max[axis];
    rows = typical.numel() / std::max<int64_t>(1, typical[axis]);
    is_last = x.numel(axis + 1, x.rank()) == 1;
    capacity = kSortBytes / (inputs[0].type.dtype == DataType::kINT64 ? 16 : 8);
    const bool is_fixed = inputs[0].min == x && rows > 0 && rows <= kMostSharedRows;
    parts = is_fixed
                ? std::clamp<int64_t>(most / 2048, 1, std::min(kMostBlocksOfRow, kFewBlocks / rows))
                : 1;
    parts = std::max<int64_t>(parts, 1);
  }

  Ways<TopKWay> ways() const {
    Ways<TopKWay> ways;
    const bool is_long = most > 512 && k < most / 4;
    if (k == 1 && is_last) ways.add(TopKWay::kBest, most > 512);
    if (k <= kMaxInThread) ways.add(TopKWay::kThread, !is_last || (most <= 64 && rows >= 4096));
    if (is_last && most <= kMaxInWarp && k <= kMaxFromWarp) ways.add(TopKWay::kWarp, true);
    if (is_long) ways.add(TopKWay::kSelect, true);
    if (most <= capacity) ways.add(TopKWay::kSort, true);
    if (!is_long) ways.add(TopKWay::kSelect, most > capacity);
    return ways;
  }
};

class TopKWriter {
 public:
  TopKWriter(const TopKParams& params, const KernelArgs& args)
      : params_(params),
        source_("topk", args),
        extents_(params, args.inputs, args.outputs),
        way_(extents_.ways().at(args.candidate->tactic)),
        type_(args.inputs[0].type.dtype),
        index_(storage_type(args.outputs[1].type.dtype)) {
    const SymShape& x = source_.dims(0);
    const auto axis = static_cast<size_t>(extents_.axis);
    Expr k(params.k);
    if (args.inputs.size() > 1 && args.inputs[1].present) k = source_.shape_values(1).at(0);
    if (args.outputs[0].min[extents_.axis] == args.outputs[0].max[extents_.axis])
      k = Expr(args.outputs[0].max[extents_.axis]);
    source_.check(Expr(1) - Expr::make(ExprOp::kLess, x[axis], k),
                  "k must not exceed the extent of the axis");
    inner_ = numel(std::span(x).subspan(axis + 1));
    rows_ = numel(std::span(x).first(axis)) * inner_;
    length_ = x[axis];
    k_ = source_.value(k);
  }

  GeneratedKernel write() {
    source_.add_declarations(include("topk_keys.cuh"));
    source_.add_declarations(
        str("typedef ", type_ == DataType::kINT64 ? "WideKey" : "NarrowKey", " Key;\n"));
    switch (way_) {
      case TopKWay::kThread:
        return write_thread();
      case TopKWay::kWarp:
        return write_warp();
      case TopKWay::kSort:
        return write_sort();
      case TopKWay::kSelect:
        return write_select();
      case TopKWay::kBest:
        return write_best();
    }
    return {};
  }

 private:
  /// What is known of row number `row`: `key_at(i)` and `put(place, key)`.
  std::string begin_row() {
    const std::string length = source_.value(length_), stride = source_.value(inner_);
    const std::string outer = inner_ == Expr(1) ? std::string("row") : str("row / ", stride),
                      rest = inner_ == Expr(1) ? std::string("0") : str("row % ", stride);
    return str(
        "const Index outer = ", outer, ", rest = ", rest,
        ";\nconst auto* const from = in0 + "
        "outer * ",
        length, " * ", stride, " + rest;\nconst Index to = outer * k * ", stride,
        " + rest;\nconst auto key_at = [&](Index i) {\nconst auto value = ordered(load(from[i * ",
        stride, "]));\nreturn Key::of(", params_.op == TopKOperation::kMAX ? "" : "~",
        "value, i);\n};\nconst auto put = [&](Index place, const Key& key) {\n",
        "const Index index = (Index)key.index();\nout0[to + place * ", stride, "] = from[index * ",
        stride, "];\nout1[to + place * ", stride, "] = (", index_, ")index;\n};\n(void)put;\n");
  }

  /// The best so far in order; most elements are worse than the last of them.
  GeneratedKernel write_thread() {
    const int64_t kept = std::max<int64_t>(1, extents_.k);
    return source_.finish(
        str("const Index k = ", k_, ", length = ", source_.value(length_),
            ";\nfor (Index row = first_index(); row < ", source_.value(rows_),
            "; row += index_step()) {\n", begin_row(), "Key best[", kept,
            "];\n#pragma unroll\nfor (int j = 0; j < ", kept,
            "; ++j) best[j] = Key{};\nfor (Index i = 0; i < length; ++i) {\nKey key = key_at(i);\n",
            "if (!(best[", kept - 1, "] < key)) continue;\n#pragma unroll\nfor (int j = 0; j < ",
            kept,
            "; ++j)\nif (best[j] < key) {\nconst Key next = best[j];\nbest[j] = key;\nkey = "
            "next;\n}\n}\n",
            "#pragma unroll\nfor (int j = 0; j < ", kept,
            "; ++j)\nif (j < k) put(j, best[j]);\n}\n"),
        blocks_for(rows_, kThreads), kThreads);
  }

  /// The greatest of all lanes' keys, again and again.
  GeneratedKernel write_warp() {
    const int64_t kept = std::max<int64_t>(1, (extents_.most + kWarp - 1) / kWarp);
    return source_.finish(
        str("const Index k = ", k_, ", length = ", source_.value(length_),
            ";\nconst int lane = (int)threadIdx.x % 32;\nfor (Index row = (Index)blockIdx.x * ",
            kThreads / kWarp, " + (Index)threadIdx.x / 32; row < ", source_.value(rows_),
            "; row += (Index)gridDim.x * ", kThreads / kWarp, ") {\n", begin_row(), "Key keys[",
            kept, "];\n#pragma unroll\nfor (int j = 0; j < ", kept,
            "; ++j) {\nconst Index i = lane + j * 32;\nkeys[j] = i < length ? key_at(i) : "
            "Key{};\n}\n",
            "for (Index place = 0; place < k; ++place) {\nKey best = keys[0];\n#pragma unroll\n",
            "for (int j = 1; j < ", kept, "; ++j)\nif (best < keys[j]) best = keys[j];\n",
            "#pragma unroll\nfor (int distance = 16; distance > 0; distance /= 2) {\n",
            "const Key other = best.from(distance);\nif (best < other) best = other;\n}\n",
            "if (lane == 0) put(place, best);\n#pragma unroll\nfor (int j = 0; j < ", kept,
            "; ++j)\nif (!(keys[j] < best)) keys[j] = Key{};\n}\n}\n"),
        blocks_for(rows_, kThreads / kWarp), kThreads);
  }

  std::string begin_block(int64_t size) {
    source_.add_declarations(include("topk_sort.cuh"));
    return str("__shared__ Key keys[", size, "];\nconst Index k = ", k_,
               ", length = ", source_.value(length_),
               ";\nfor (Index row = (Index)blockIdx.x; row < ", source_.value(rows_),
               "; row += (Index)gridDim.x) {\n", begin_row());
  }

  GeneratedKernel write_sort() {
    const auto size = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, extents_.most))));
    const int threads = threads_for(size / 2);
    return source_.finish(
        str(begin_block(size), "__syncthreads();\nfor (int i = (int)threadIdx.x; i < ", size,
            "; i += ", threads, ") keys[i] = i < length ? key_at(i) : Key{};\nsort<", size,
            ">(keys);\nfor (Index i = (Index)threadIdx.x; i < k; i += ", threads,
            ") put(i, keys[i]);\n}\n"),
        rows_, threads);
  }

  /// As many at a time as the shared memory sorts, each time those below the last one.
  GeneratedKernel write_select() {
    const auto size = static_cast<int64_t>(std::bit_ceil(
        static_cast<uint64_t>(std::clamp<int64_t>(extents_.k, 2, extents_.capacity))));
    const int threads = extents_.most >= 8192 ? 1024 : 512;
    const std::string text = begin_block(size);
    source_.add_declarations(include("topk_select.cuh"));
    return source_.finish(
        str("__shared__ Selection selection;\n__shared__ unsigned taken;\n", text,
            "Key bound = {};\nfor (Index done = 0; done < k; done += ", size,
            ") {\nconst Index wanted = k - done < ", size, " ? k - done : ", size,
            ";\nconst Key least = select(key_at, length, done > 0, bound, (unsigned)wanted, "
            "selection);\nif (threadIdx.x == 0) taken = 0;\nfor (int i = (int)threadIdx.x; i < ",
            size, "; i += ", threads,
            ") keys[i] = Key{};\n__syncthreads();\nfor (Index i = (Index)threadIdx.x; i < length; "
            "i += ",
            threads,
            ") {\nconst Key key = key_at(i);\nif (!(key < least) && (done == 0 || key < bound)) "
            "keys[atomicAdd(&taken, 1u)] = key;\n}\nsort<",
            size, ">(keys);\nfor (Index i = (Index)threadIdx.x; i < wanted; i += ", threads,
            ") put(done + i, keys[i]);\nbound = keys[wanted - 1];\n__syncthreads();\n}\n}\n"),
        rows_, threads);
  }

  /// The greatest key of a row, of which several blocks have parts; the last one that is done has
  /// what all have found.
  GeneratedKernel write_best() {
    const int64_t parts = extents_.parts;
    std::string text = str(
        "__shared__ Key found[", kThreads / kWarp, "];\nconst Index k = ", k_,
        ", length = ", source_.value(length_),
        ";\nconst int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
        "const auto best_of_lanes = [](Key best) {\n#pragma unroll\n"
        "for (int distance = 16; distance > 0; distance /= 2) {\n"
        "const Key other = best.from(distance);\nif (best < other) best = other;\n}\n"
        "return best;\n};\n",
        "for (Index number = (Index)blockIdx.x; number < ", source_.value(rows_ * Expr(parts)),
        "; number += (Index)gridDim.x) {\nconst Index row = number / ", parts, ", part = number % ",
        parts, ";\n", begin_row(), "Key best = {};\n#pragma unroll 8\n", "for (Index i = part * ",
        kThreads, " + (Index)threadIdx.x; i < length; i += ", parts * kThreads,
        ") {\nconst Key key = key_at(i);\nif (best < key) best = key;\n}\n"
        "best = best_of_lanes(best);\nif (lane == 0) found[warp] = best;\n__syncthreads();\n"
        "if (warp == 0) best = best_of_lanes(lane < ",
        kThreads / kWarp, " ? found[lane] : Key{});\n");
    if (parts > 1) {
      const int64_t rows = rows_.constant();
      const auto words = static_cast<int>((rows + kRowsOfWord - 1) / kRowsOfWord);
      source_.add_counters(words);
      source_.add_scratch("Key", rows * parts * (type_ == DataType::kINT64 ? 16 : 8));
      std::string word = "counter0";
      for (int i = 1; i < words; ++i)
        word = str("row >= ", i * kRowsOfWord, " ? counter", i, " : ", word);
      text += str(
          "__shared__ bool is_last;\nif (threadIdx.x == 0) {\nscratch[number] = best;\n"
          // What this block has written comes before its count, and what others have after it.
          "__threadfence();\nWord* const word = ",
          word, ";\nconst int place = (int)(row % ", kRowsOfWord,
          ") * 8;\nis_last = (atomicAdd(word, 1ull << place) >> place & 255u) == ", parts - 1,
          ";\nif (is_last) atomicAdd(word, 0ull - (", parts,
          "ull << place));\n}\n__syncthreads();\nif (!is_last) continue;\n__threadfence();\n"
          "if (warp == 0) {\nbest = Key{};\nif (lane < ",
          parts, ") {\nconst Word* const other = (const Word*)(scratch + row * ", parts,
          " + lane);\n#pragma unroll\nfor (int i = 0; i < (int)(sizeof(Key) / sizeof(Word)); ++i) "
          "((Word*)&best)[i] = __ldcg(other + i);\n}\nbest = best_of_lanes(best);\n}\n");
    }
    text += "if (threadIdx.x == 0) put(0, best);\n__syncthreads();\n}\n";
    return source_.finish(text, rows_ * Expr(parts), kThreads);
  }

  static int threads_for(int64_t pairs) {
    return static_cast<int>(std::clamp<int64_t>(pairs, kWarp, 1024));
  }

  const TopKParams& params_;
  KernelSource source_;
  const TopKExtents extents_;
  const TopKWay way_;
  const DataType type_;
  const std::string_view index_;
  Expr inner_ = 1, rows_ = 1, length_ = 1;
  std::string k_;
};

bool is_ordered(DataType type) {
  return is_floating(type) || type == DataType::kINT8 || type == DataType::kUINT8 ||
         type == DataType::kINT32 || type == DataType::kINT64 || type == DataType::kBOOL;
}

std::vector<Candidate> topk_candidates(const Operator& op, const CandidateQuery& query) {
  if (!is_ordered(query.inputs[0].type.dtype)) return {};
  const TopKParams& params = static_cast<const TopK&>(op).params();
  std::vector<Candidate> result;
  const TopKExtents extents(params, query.inputs, query.outputs);
  const Ways<TopKWay> ways = extents.ways();
  for (const TopKWay way : ways.listed(query.all_tactics)) {
    result.push_back(linear_candidate(query, std::string(name_of(way))));
    result.back().tactic = static_cast<int64_t>(result.size()) - 1;
  }
  return result;
}

std::optional<GeneratedKernel> generate_topk(const Operator& op, const KernelArgs& args) {
  return TopKWriter(static_cast<const TopK&>(op).params(), args).write();
}

std::vector<std::string> topk_tactics() {
  std::vector<std::string> names;
  for (const TopKWay way :
       {TopKWay::kThread, TopKWay::kWarp, TopKWay::kSort, TopKWay::kSelect, TopKWay::kBest})
    names.emplace_back(name_of(way));
  return names;
}

const RegisteredKernels<TopK> kTopKKernels({.candidates = topk_candidates,
                                            .generate = generate_topk,
                                            .make = nullptr,
                                            .tactics = topk_tactics});

}  // namespace
}  // namespace opwright::gpu
