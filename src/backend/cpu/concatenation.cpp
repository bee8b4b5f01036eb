#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_broadcast.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "operators/movement.h"

namespace opwright {
namespace {

int axis_of(const Operator& op, int rank) {
  const int64_t axis = static_cast<const Concatenation&>(op).params().axis;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// In memory order, every format is a stack of rows, each with a piece of every input.
class ConcatenationKernel final : public Kernel {
 public:
  ConcatenationKernel(const Operator& op, const KernelArgs& args)
      : axis_(axis_of(op, args.outputs[0].max.rank())), type_(args.outputs[0].type) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    rows_ = 0;
    require_countable(inputs), require_countable(outputs);
    int64_t sum = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int k = 0; k < outputs[0].rank(); ++k)
        if (k != axis_) require_equal_extent(k, outputs[0], static_cast<int>(i), inputs[i]);
      // Only the last input may leave padding in a block.
      if (axis_ == 1 && i + 1 < inputs.size()) require_filled(inputs[i], type_.format);
      sum += inputs[i][axis_];
    }
    require(sum == outputs[0][axis_], "the inputs have ", sum, " extents along axis ", axis_,
            ", the output ", outputs[0][axis_]);
    const int axis = physical_axis(axis_, outputs[0].rank(), type_.format);
    const auto bytes_from = [&](const Shape& shape, int first) {
      const Axes extents = physical_extents(shape, type_.format);
      int64_t bytes = element_size(type_.dtype);
      for (int i = first; i < extents.count; ++i) bytes *= extents[i];
      return bytes;
    };
    pieces_.clear();
    row_bytes_ = 0;
    for (const Shape& shape : inputs) {
      pieces_.push_back({bytes_from(shape, axis), row_bytes_});
      row_bytes_ += pieces_.back().bytes;
    }
    rows_ = row_bytes_ == 0 ? 0 : bytes_from(outputs[0], 0) / row_bytes_;
    grain_ = std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(1, row_bytes_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    auto* to = static_cast<std::byte*>(outputs[0]);
    if (rows_ == 1) {
      for (size_t i = 0; i < pieces_.size(); ++i)
        parallel_copy(to + pieces_[i].offset, inputs[i], pieces_[i].bytes);
      return;
    }
    parallel_for(rows_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (size_t i = 0; i < pieces_.size(); ++i)
          std::memcpy(to + row * row_bytes_ + pieces_[i].offset,
                      static_cast<const std::byte*>(inputs[i]) + row * pieces_[i].bytes,
                      pieces_[i].bytes);
    });
  }

 private:
  struct Piece {
    int64_t bytes, offset;
  };
  int axis_;
  PortType type_;
  std::vector<Piece> pieces_;
  int64_t row_bytes_ = 0, rows_ = 0, grain_ = 1;
};

std::vector<Candidate> concatenation_candidates(const Operator& op, const CandidateQuery& query) {
  std::vector<Candidate> result;
  if (!kWholeBytes.has(query.outputs[0].type.dtype)) return result;
  const int rank = query.outputs[0].max.rank();
  for (const TensorFormat format : formats_of(query, rank)) {
    // Only the last input's channels may leave padding in a block; it is copied with the block.
    if (axis_of(op, rank) == 1 &&
        !std::all_of(query.inputs.begin(), query.inputs.end() - 1,
                     [&](const PortDesc& port) { return fills_blocks(port, format); }))
      continue;
    Candidate candidate = linear_candidate(query, "copy");
    for (PortType& type : candidate.inputs) type.format = format;
    candidate.outputs[0].format = format;
    result.push_back(std::move(candidate));
  }
  // Copies work on any type, so all ports get the lower precision together.
  const size_t count = result.size();
  for (const DataType type : {DataType::kBF16, DataType::kHALF}) {
    if (query.strongly_typed || !(type == DataType::kBF16 ? query.bf16 : query.fp16) ||
        query.outputs[0].type.dtype != DataType::kFLOAT)
      continue;
    for (size_t i = 0; i < count; ++i) {
      Candidate candidate = result[i];
      for (PortType& port : candidate.inputs) port.dtype = type;
      candidate.outputs[0].dtype = type;
      result.push_back(std::move(candidate));
    }
  }
  return result;
}

void check_concatenation(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(args.inputs.size(), args.inputs.size());
  rules.require_that(!args.inputs.empty(), "expected at least one input");
  const PortRules::Port y = rules.output(0);
  rules.require(y, kWholeBytes, kImageFormats);
  const bool joins_channels = axis_of(op, y.desc.max.rank()) == 1;
  for (size_t i = 0; i < rules.inputs(); ++i) {
    rules.require_same(rules.input(i), y);
    if (joins_channels && i + 1 < rules.inputs()) rules.require_filled(rules.input(i));
  }
}

const RegisteredKernels<Concatenation> kConcatenationKernels(
    {concatenation_candidates, make_kernel<ConcatenationKernel, Concatenation>,
     check_concatenation});

}  // namespace
}  // namespace opwright
