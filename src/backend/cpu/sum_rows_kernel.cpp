#include "backend/cpu/sum_rows_kernel.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/widened_tile.h"
#include "base/aligned_memory.h"
#include "base/parallel.h"

namespace opwright {
namespace {

/// Bytes of rows and sums that stay in a thread's second-level cache beside the weights.
constexpr int64_t kBlockBytes = 192 << 10;
constexpr int64_t kMostRows = 8 * kWidenedRows;
/// Products that are worth a thread.
constexpr int64_t kWidenedGrain = 1 << 17;

int64_t most_rows(int64_t columns, int64_t row_bytes) {
  const int64_t rows = kBlockBytes / (row_bytes + columns * int64_t{sizeof(int32_t)});
  return std::clamp(rows / kWidenedRows * kWidenedRows, kWidenedRows, kMostRows);
}

/// The program's view of an operator: its first input has the sums.
PointwisePlan plan_of(const FusedProgram& fused, const KernelArgs& args) {
  std::vector<PortDesc> inputs = {args.outputs[0]};
  inputs[0].type.dtype = DataType::kINT32;
  inputs.insert(inputs.end(), args.inputs.end() - fused.inputs(), args.inputs.end());
  return {args.layer, decode(fused.program), fused.program.results, inputs, args.outputs};
}

}  // namespace

SumRowsKernel::SumRowsKernel(const KernelArgs& args, const FusedProgram& fused, int64_t columns,
                             int64_t row_bytes)
    : layer_(args.layer),
      columns_(columns),
      row_bytes_(static_cast<int64_t>(aligned_size(static_cast<size_t>(row_bytes)))),
      most_rows_(most_rows(columns, row_bytes_)),
      own_inputs_(static_cast<int64_t>(args.inputs.size()) - fused.inputs()),
      workers_(thread_count()),
      per_worker_(aligned_size(
          static_cast<size_t>(most_rows_) *
          (static_cast<size_t>(row_bytes_) + static_cast<size_t>(columns) * sizeof(int32_t)))) {
  if (fused.present()) plan_.emplace(plan_of(fused, args));
}

void SumRowsKernel::set_shapes(int64_t rows, std::span<const Shape> inputs,
                               std::span<const Shape> outputs) {
  rows_ = 0;
  if (plan_) {
    std::vector<Shape> shapes = {outputs[0]};
    shapes.insert(shapes.end(), inputs.begin() + own_inputs_, inputs.end());
    plan_->set_shapes(shapes, outputs);
  }
  rows_ = rows;
}

SumRowsKernel::Block SumRowsKernel::block_at(int64_t first, int64_t count, int64_t worker,
                                             void const* const* inputs, void* const* outputs,
                                             void* workspace) const {
  std::byte* const scratch =
      static_cast<std::byte*>(workspace) + worker * static_cast<int64_t>(per_worker_);
  int32_t* const sums = plan_ ? reinterpret_cast<int32_t*>(scratch + most_rows_ * row_bytes_)
                              : static_cast<int32_t*>(outputs[0]) + first * columns_;
  return {inputs[0], first, count, scratch, sums};
}

void SumRowsKernel::enqueue(void const* const* inputs, void* const* outputs, void* workspace,
                            Queue) {
  if (rows_ == 0) return;
  // Threads take whole tiles of rows.
  const int64_t tiles = (rows_ + kWidenedRows - 1) / kWidenedRows;
  const int64_t workers = std::min<int64_t>({workers_, thread_count(), tiles});
  if (tiles == 1)
    return run_few(block_at(0, rows_, 0, inputs, outputs, workspace), inputs, outputs);
  parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
    std::optional<PointwisePlan::Run> program;
    // The sums of a block stand for the program's first input.
    if (plan_) program.emplace(*plan_, inputs + own_inputs_ - 1, outputs);
    const int64_t last = std::min(rows_, tiles * end / workers * kWidenedRows);
    for (int64_t first = tiles * begin / workers * kWidenedRows, count = 0; first < last;
         first += count) {
      count = std::min(most_rows_, last - first);
      const Block block = block_at(first, count, begin, inputs, outputs, workspace);
      read(block);
      add_up(block, 0, parts());
      if (program) program->compute(first * columns_, (first + count) * columns_, block.sums);
    }
  });
}

/// Computes one block by threads that share its columns.
void SumRowsKernel::run_few(const Block& all, void const* const* inputs,
                            void* const* outputs) const {
  read(all);
  const int64_t work = std::max<int64_t>(1, all.count * row_bytes_ * columns_ / parts());
  parallel_for(parts(), std::max<int64_t>(1, kWidenedGrain / work),
               [&](int64_t begin, int64_t end) { add_up(all, begin, end); });
  if (!plan_) return;
  parallel_for(plan_->tiles(), plan_->grain(), [&](int64_t begin, int64_t end) {
    PointwisePlan::Run program(*plan_, inputs + own_inputs_ - 1, outputs);
    const auto [first, last] = plan_->elements(begin, end);
    program.compute(first, last, all.sums + first);
  });
}

}  // namespace opwright
