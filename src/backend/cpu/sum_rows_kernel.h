#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/cpu/pointwise_plan.h"
#include "network/operator.h"
#include "operators/fused_program.h"

namespace opwright {

/// Rows of INT32 sums, which a program turns into the result block by block: a pixel of all
/// channels, or a row of a matrix. Without a program, the sums are the result.
class SumRowsKernel : public Kernel {
 public:
  size_t workspace_size() const override { return per_worker_ * static_cast<size_t>(workers_); }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) final;

 protected:
  /// Rows [first, first + count) of the result.
  struct Block {
    const void* x = nullptr;
    int64_t first = 0, count = 0;
    std::byte* scratch = nullptr;  ///< `row_bytes` for each row
    int32_t* sums = nullptr;       ///< [count, columns]
  };
  /// `row_bytes`: what a row needs as scratch.
  SumRowsKernel(const KernelArgs& args, const FusedProgram& fused, int64_t columns,
                int64_t row_bytes);
  void set_shapes(int64_t rows, std::span<const Shape> inputs, std::span<const Shape> outputs);
  const std::string& layer() const { return layer_; }
  /// Bytes from a row's scratch to that of the next row.
  int64_t row_bytes() const { return row_bytes_; }

  /// Prepares the rows of a block in its scratch.
  virtual void read(const Block& block) const = 0;
  /// In how many parts threads can compute the columns of a block.
  virtual int64_t parts() const { return 1; }
  /// Computes the sums of parts [begin, end) from the block's scratch.
  virtual void add_up(const Block& block, int64_t begin, int64_t end) const = 0;

 private:
  Block block_at(int64_t first, int64_t count, int64_t worker, void const* const* inputs,
                 void* const* outputs, void* workspace) const;
  void run_few(const Block& all, void const* const* inputs, void* const* outputs) const;

  const std::string layer_;
  const int64_t columns_, row_bytes_, most_rows_;
  const int64_t own_inputs_;  ///< those in front of the program's
  const int workers_;
  const size_t per_worker_;
  std::optional<PointwisePlan> plan_;
  int64_t rows_ = 0;
};

}  // namespace opwright
