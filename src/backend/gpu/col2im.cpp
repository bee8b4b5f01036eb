#include "operators/col2im.h"

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "backend/gpu/windows.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Describes the blocks of an image as the input of a transposed convolution whose windows are the
/// blocks.
Windows blocks_of(const Col2ImParams& params, std::span<const Expr> image) {
  const auto given = [](const Ints& values, size_t axis, int64_t otherwise) {
    return axis < values.size() ? values[axis] : otherwise;
  };
  Windows windows;
  windows.is_transposed = true;
  for (size_t i = 0; i < image.size(); ++i) {
    WindowAxis axis;
    axis.stride = given(params.stride, i, 1), axis.dilation = given(params.dilation, i, 1);
    axis.pre = given(params.pre_padding, i, 0), axis.post = given(params.post_padding, i, 0);
    const Expr window = given(params.block, i, 1);
    windows.axes.push_back(axis);
    windows.window.push_back(window);
    windows.y.push_back(image[i]);
    windows.padding.emplace_back(axis.pre);
    windows.x.push_back(window_count(axis, PaddingMode::kEXPLICIT_ROUND_DOWN, image[i], window));
  }
  return windows;
}

std::vector<Candidate> col2im_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per element")};
}

std::optional<GeneratedKernel> generate_col2im(const Operator& op, const KernelArgs& args) {
  const Col2ImParams& params = static_cast<const Col2Im&>(op).params();
  KernelSource source("col2im", args);
  const SymShape& columns = source.dims(0);
  const std::vector<Expr> image = source.shape_values(1);
  const Windows windows = blocks_of(params, image);
  if (windows.reaches_far()) source.widen();
  const Expr taps = numel(windows.window), blocks = numel(windows.x), pixels = numel(image);
  const Expr planes = columns[0] * floor_div(columns[1], taps);
  source.check_equal(columns[2], blocks, "the columns must be those of the image's blocks");
  source.check_equal(floor_div(columns[1], taps) * taps, columns[1],
                     "the columns must have whole blocks");
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  windows.configure(config);
  source.add_declarations(include("col2im.cuh") + config.write());
  const Expr count = planes * pixels;
  return source.finish(
      str("add_columns<Config>({in0, out0, ", source.values({count, pixels, taps, blocks}), ", ",
          windows.make(source), "});\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<Col2Im> kCol2ImKernels({col2im_candidates, generate_col2im, nullptr});

}  // namespace
}  // namespace opwright::gpu
