#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

/// Blocks at most, each of which has some of the classes.
constexpr int64_t kClassesAtOnce = 1024;

std::vector<Candidate> nms_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a block per class")};
}

/// Greedy: of each class of each image the best box that overlaps none that was taken. The last
/// block writes what all of them took.
class NmsWriter {
 public:
  NmsWriter(const NmsParams& params, const KernelArgs& args)
      : params_(params), args_(args), source_("nms", args) {}

  GeneratedKernel write() {
    const SymShape &boxes = source_.dims(0), &scores = source_.dims(1);
    const auto require_equal = [&](const Expr& a, const Expr& b, std::string_view what) {
      source_.check_equal(a, b, str("boxes and scores must agree in ", what));
    };
    require_equal(boxes[0], scores[0], "the images");
    require_equal(boxes[1], scores[1], "the boxes");
    require_equal(boxes.back(), Expr(4), "four coordinates of a box");
    const bool is_per_class = boxes.size() == 4 && boxes[2] != Expr(1);
    if (is_per_class) require_equal(boxes[2], scores[2], "the classes");
    const int64_t room = args_.inputs[1].max.numel() + 1;
    source_.add_scratch("int", checked_product("the memory to mark boxes in",
                                               {3, room, static_cast<int64_t>(sizeof(int))}));
    source_.add_counters(1);
    source_.add_declarations(
        str("constexpr bool kCenters = ",
            params_.bounding_box_format == BoundingBoxFormat::kCENTER_SIZES ? "true" : "false",
            ";\n", include("nms.cuh")));
    const Expr groups = scores[0] * scores[2];
    const std::string per_box = is_per_class ? source_.value(boxes[2]) : "1";
    text_ = str(
        "const Index boxes = ", source_.value(scores[1]), ", classes = ", source_.value(scores[2]),
        ", groups = boxes > 0 ? ", source_.value(groups),
        " : 0;\nconst int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / "
        "32;\nint* const alive = scratch;\nint* const lists = scratch + ",
        room, "LL;\nint* const counts = scratch + ", 2 * room, "LL;\n", parameters(),
        "__shared__ float warp_scores[", kThreads / kWarp, "];\n__shared__ Index warp_boxes[",
        kThreads / kWarp, "];\n__shared__ bool is_last;\n");
    text_ +=
        str("for (Index group = (Index)blockIdx.x; group < groups; "
            "group += (Index)gridDim.x) {\n"
            "const Index image = group / classes, of = group % classes;\n"
            "int* const open = alive + group * boxes;\n"
            "const auto score = [&](Index i) -> float {\n"
            "return load(in1[(image * boxes + i) * classes + of]);\n};\n"
            "const auto counts_at_all = [&](float x) { return takes_any ? x == x : "
            "x > least_score; };\n"
            "const auto box = [&](Index i) {\nreturn box_at(in0 + ((image * boxes + i) * ",
            per_box, " + ", is_per_class ? "of" : "0", ") * 4);\n};\n", each_box(),
            "open[i] = counts_at_all(score(i));\nIndex taken = 0;\n"
            "while (taken < limit) {\n");
    find_best();
    text_ += str("if (best < 0) break;\n", stop_at_limit(),
                 "if (thread == 0) lists[group * boxes + taken] = (int)best;\n++taken;\n"
                 "const Box taken_box = box(best);\n",
                 each_box(),
                 "if (open[i] && (i == best || overlap(box(i), taken_box) > most_overlap)) "
                 "open[i] = 0;\n}\nif (thread == 0) counts[group] = (int)taken;\n}\n");
    write_out();
    return source_.finish(text_, max(min(groups, Expr(kClassesAtOnce)), Expr(1)), kThreads);
  }

 private:
  static std::string each_box() {
    return str("for (Index i = thread; i < boxes; i += ", kThreads, ") ");
  }

  std::string parameters() {
    const auto has = [&](size_t i) { return i < args_.inputs.size() && args_.inputs[i].present; };
    const std::string limit =
        params_.is_bounded
            ? str("const Index limit = ",
                  source_.value(
                      max(min(source_.dims(1)[1], source_.shape_values(2).at(0)), Expr(0))),
                  ";\n")
            : "const Index limit = in2[0] < 0 ? 0 : in2[0] < boxes ? (Index)in2[0] : boxes;\n";
    return str(limit, "const float most_overlap = ", has(3) ? "load(in3[0])" : "0.0f",
               ", least_score = ", has(4) ? "load(in4[0])" : "0.0f",
               ";\nconst bool takes_any = ", has(4) ? "false" : "true", ";\n");
  }

  /// Statements that find `best` of the open boxes, of several the first, and its `best_score`.
  void find_best() {
    const std::string_view better =
        "if (other >= 0 && (best < 0 || x > best_score || (x == best_score && other < best))) "
        "{\nbest = other;\nbest_score = x;\n}\n";
    text_ +=
        str("Index best = -1;\nfloat best_score = 0;\n", each_box(),
            "{\nif (!open[i]) continue;\nconst float x = score(i);\nconst Index other = i;\n",
            better, "}\nfor (int half = 16; half > 0; half /= 2) {\n",
            "const float x = __shfl_xor_sync(0xffffffffu, best_score, half);\n"
            "const Index other = __shfl_xor_sync(0xffffffffu, best, half);\n",
            better, "}\n__syncthreads();\nif (lane == 0) {\nwarp_scores[warp] = best_score;\n",
            "warp_boxes[warp] = best;\n}\n__syncthreads();\nfor (int k = 0; k < ", kThreads / kWarp,
            "; ++k) {\nconst float x = warp_scores[k];\nconst Index other = warp_boxes[k];\n",
            better, "}\n");
  }

  /// Ends the loop where as many boxes are better as are looked at.
  std::string stop_at_limit() {
    if (params_.topk_box_limit == 0) return {};
    return str("Index rank = 0;\nfor (Index first = 0; first < boxes; first += ", kThreads,
               ") {\nconst Index i = first + thread;\n"
               "const float x = i < boxes ? score(i) : 0.0f;\n"
               "rank += __syncthreads_count(i < boxes && counts_at_all(x) && "
               "(x > best_score || (x == best_score && i < best)));\n}\nif (rank >= ",
               source_.value(Expr(std::min<int64_t>(params_.topk_box_limit, INT32_MAX))),
               ") break;\n");
  }

  void write_out() {
    const std::string_view type = storage_type(args_.outputs[0].type.dtype);
    // What this block has written comes before its count, and what others have after it.
    text_ +=
        str("__threadfence();\n__syncthreads();\n"
            "if (thread == 0) is_last = atomicAdd(counter0, 1ull) == gridDim.x - 1;\n"
            "__syncthreads();\nif (!is_last) return;\n__threadfence();\n"
            "if (thread == 0) *counter0 = 0;\nIndex total = 0;\n"
            "for (Index group = 0; group < groups; ++group) {\n"
            "const Index count = counts[group];\nfor (Index k = thread; k < count; k += ",
            kThreads, ") {\nout0[(total + k) * 3] = (", type,
            ")(group / classes);\nout0[(total + k) * 3 + 1] = (", type,
            ")(group % classes);\nout0[(total + k) * 3 + 2] = lists[group * boxes + k];\n}\n"
            "total += count;\n}\nif (thread == 0) out1[0] = (int)total;\n");
  }

  const NmsParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  std::string text_;
};

std::optional<GeneratedKernel> generate_nms(const Operator& op, const KernelArgs& args) {
  return NmsWriter(static_cast<const Nms&>(op).params(), args).write();
}

const RegisteredKernels<Nms> kNmsKernels({nms_candidates, generate_nms, nullptr});

}  // namespace
}  // namespace opwright::gpu
