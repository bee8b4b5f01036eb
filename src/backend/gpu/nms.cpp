#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

/// The most blocks. Each has some of the classes.
constexpr int64_t kClassesAtOnce = 1024;

std::vector<Candidate> nms_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a block per class")};
}

std::optional<GeneratedKernel> generate_nms(const Operator& op, const KernelArgs& args) {
  const NmsParams& params = static_cast<const Nms&>(op).params();
  KernelSource source("nms", args);
  const SymShape &boxes = source.dims(0), &scores = source.dims(1);
  const auto require_equal = [&](const Expr& a, const Expr& b, std::string_view what) {
    source.check_equal(a, b, str("boxes and scores must agree in ", what));
  };
  require_equal(boxes[0], scores[0], "the images");
  require_equal(boxes[1], scores[1], "the boxes");
  require_equal(boxes.back(), Expr(4), "four coordinates of a box");
  const bool is_per_class = boxes.size() == 4 && boxes[2] != Expr(1);
  if (is_per_class) require_equal(boxes[2], scores[2], "the classes");
  const int64_t room = args.inputs[1].max.numel() + 1;
  source.add_scratch("int", checked_product("the memory to mark boxes in",
                                            {3, room, static_cast<int64_t>(sizeof(int))}));
  source.add_counters(1);
  const auto has = [&](size_t i) { return i < args.inputs.size() && args.inputs[i].present; };
  ConfigWriter config;
  config.type("Element", storage_type(args.inputs[0].type.dtype));
  config.type("Number", storage_type(args.outputs[0].type.dtype));
  config.number("kThreads", kThreads);
  config.flag("kCenters", params.bounding_box_format == BoundingBoxFormat::kCENTER_SIZES);
  config.flag("kTakesAny", !has(4));
  config.number("kMostRank", std::min<int64_t>(params.topk_box_limit, INT32_MAX));
  config.value("long long", "kRoom", room);
  source.add_declarations(include("nms.cuh") + config.write());

  const Expr groups = scores[0] * scores[2];
  const std::string count = source.value(scores[1]);
  const std::string limit =
      params.is_bounded ? source.value(max(min(scores[1], source.shape_values(2).at(0)), Expr(0)))
                        : str("in2[0] < 0 ? 0 : in2[0] < ", count, " ? (Index)in2[0] : ", count);
  const std::string text =
      str("const NmsArguments<Config> all = {in0, in1, out0, out1, scratch, ", count, ", ",
          source.value(scores[2]), ", ", is_per_class ? source.value(boxes[2]) : "1", ", ", count,
          " > 0 ? ", source.value(groups), " : 0, ", limit, ", ", has(3) ? "load(in3[0])" : "0.0f",
          ", ", has(4) ? "load(in4[0])" : "0.0f", "};\nsuppress(all, counter0);\n");
  return source.finish(text, max(min(groups, Expr(kClassesAtOnce)), Expr(1)), kThreads);
}

const RegisteredKernels<Nms> kNmsKernels({nms_candidates, generate_nms, nullptr});

}  // namespace
}  // namespace opwright::gpu
