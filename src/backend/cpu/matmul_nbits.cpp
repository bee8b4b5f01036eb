#include "operators/matmul_nbits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "backend/candidates.h"
#include "backend/cpu/kernel_workspace.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/nbits_tile.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/recurrence_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"

namespace opwright {
namespace {

/// Blocks whose scales and zero points are converted at a time.
constexpr int64_t kNBitsBlocks = 128;
/// Bytes of each row that become a panel of numbers at a time: the panel stays in the
/// second-nearest cache.
constexpr int64_t kNBitsPanelBytes = 128;
constexpr int64_t kNBitsColumns = kRecurrentUnits;
/// From this number of vectors on, weights are unpacked once for all of them.
constexpr int64_t kNBitsManyVectors = 8;
/// Multiplications that are worth a thread.
constexpr int64_t kNBitsGrain = 1 << 16;

/// Transposes 8 rows of 8 bytes: byte i of x[j] and byte j of x[i] change places.
void transpose_bytes(std::array<uint64_t, 8>& x) {
  const auto exchange = [&](size_t i, size_t j, int shift, uint64_t mask) {
    const uint64_t moved = ((x[i] >> shift) ^ x[j]) & mask;
    x[i] ^= moved << shift, x[j] ^= moved;
  };
  for (size_t i = 0; i < 4; ++i) exchange(i, i + 4, 32, 0x00000000ffffffff);
  for (const size_t i : {0, 1, 4, 5}) exchange(i, i + 2, 16, 0x0000ffff0000ffff);
  for (size_t i = 0; i < 8; i += 2) exchange(i, i + 1, 8, 0x00ff00ff00ff00ff);
}

/// Transposes `count` bytes of each row to [count][kNBitsColumns]. Columns of missing rows stay as
/// they are.
void transpose_rows(const uint8_t* from, int64_t stride, int64_t rows, int64_t count, uint8_t* to) {
  int64_t r = 0;
  for (; std::endian::native == std::endian::little && count % 8 == 0 && r + 8 <= rows; r += 8)
    for (int64_t j = 0; j < count; j += 8) {
      std::array<uint64_t, 8> tile;
      for (int64_t i = 0; i < 8; ++i)
        std::memcpy(&tile[static_cast<size_t>(i)], from + (r + i) * stride + j, 8);
      transpose_bytes(tile);
      for (int64_t i = 0; i < 8; ++i)
        std::memcpy(to + (j + i) * kNBitsColumns + r, &tile[static_cast<size_t>(i)], 8);
    }
  for (; r < rows; ++r)
    for (int64_t j = 0; j < count; ++j) to[j * kNBitsColumns + r] = from[r * stride + j];
}

class MatMulNBitsKernel final : public Kernel {
 public:
  MatMulNBitsKernel(const MatMulNBitsParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        bits_(static_cast<int>(params.bits)),
        blocks_(params.blocks()),
        block_bytes_(params.bytes_per_block()),
        row_bytes_(blocks_ * block_bytes_),
        planes_(params.codes_per_byte()),
        shift_(std::countr_zero(static_cast<uint64_t>(planes_))),
        zero_bytes_(params.zero_bytes()),
        type_(args.inputs[0].type.dtype),
        element_(element_size(type_)),
        load_(type_ == DataType::kFLOAT ? nullptr : find_cast(type_, DataType::kFLOAT)),
        store_(type_ == DataType::kFLOAT ? nullptr : find_cast(DataType::kFLOAT, type_)),
        has_zeros_(args.inputs.size() > 3 && args.inputs[3].present),
        are_zeros_packed_(has_zeros_ && args.inputs[3].type.dtype == DataType::kUINT8),
        has_bias_(args.inputs.size() > 4 && args.inputs[4].present) {
    for (int byte = 0; byte < 256; ++byte)
      for (int p = 0; p < planes_; ++p)
        codes_of_byte_.push_back(static_cast<float>(byte >> (p * bits_) & ((1 << bits_) - 1)));
    const Shape& most = args.inputs[0].max;
    workspace_.plan(arrange(most.numel(0, most.rank() - 1)));
  }

  size_t workspace_size() const override { return workspace_.planned(); }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    vectors_ = 0;
    require_countable(inputs), require_countable(outputs);
    const Shape& a = inputs[0];
    Shape expected = a;
    expected[a.rank() - 1] = params_.rows;
    require(a[a.rank() - 1] == params_.columns && outputs[0] == expected, "Layer '", layer_,
            "': weights of ", params_.rows, " rows and ", params_.columns,
            " columns make no product ", outputs[0], " of an input ", a);
    const int64_t counts[] = {params_.rows * blocks_ * block_bytes_, params_.rows * blocks_,
                              params_.rows * (are_zeros_packed_ ? zero_bytes_ : blocks_),
                              params_.rows};
    for (size_t i = 0; i < 2 + (has_zeros_ ? 1U : 0U); ++i)
      require(inputs[1 + i].numel() == counts[i], "Layer '", layer_, "': input ", 1 + i,
              " must have ", counts[i], " elements, but has the shape ", inputs[1 + i]);
    require(!has_bias_ || inputs[4].numel() == counts[3], "Layer '", layer_, "': a bias of ",
            counts[3], " elements is expected");
    const int64_t vectors = a.numel(0, a.rank() - 1);
    workspace_.need(arrange(vectors));
    vectors_ = vectors;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (vectors_ == 0) return;
    auto* const base = static_cast<float*>(workspace_.of(workspace));
    const Run run{inputs, outputs[0], base};
    if (vectors_ >= kNBitsManyVectors)
      multiply_many(run);
    else
      multiply_few(run);
  }

 private:
  struct Run {
    void const* const* inputs;
    void* output;
    float* base;
  };

  /// Places the parts of the workspace and returns the bytes that they need.
  size_t arrange(int64_t vectors) {
    constexpr std::string_view kWhat = "the workspace of a product with packed weights";
    const bool is_many = vectors >= kNBitsManyVectors;
    int64_t total = 0;
    const auto place = [&](std::initializer_list<int64_t> extents) {
      const int64_t begin = total;
      const int64_t size = checked_product(kWhat, extents);
      require(size < (int64_t{1} << 53) && total < (int64_t{1} << 53), kWhat, " is too large");
      total += (size + 15) / 16 * 16;
      return begin;
    };
    const int64_t groups = (params_.rows + kNBitsColumns - 1) / kNBitsColumns;
    wide_at_ = place({is_many && load_ == nullptr ? 0 : vectors,
                      is_many ? params_.columns : row_bytes_ * planes_});
    sums_at_ = place({is_many ? 0 : vectors, blocks_});
    out_at_ = place({is_many ? vectors : 0, groups, kNBitsColumns});
    return static_cast<size_t>(total) * sizeof(float);
  }

  void load(const void* from, int64_t index, int64_t count, float* to) const {
    const std::byte* const at = static_cast<const std::byte*>(from) + index * element_;
    if (load_ == nullptr)
      std::memcpy(to, at, static_cast<size_t>(count) * sizeof(float));
    else
      load_(to, at, nullptr, nullptr, count, nullptr);
  }
  void store(const float* from, int64_t count, void* to, int64_t index) const {
    std::byte* const at = static_cast<std::byte*>(to) + index * element_;
    if (store_ == nullptr)
      std::memcpy(at, from, static_cast<size_t>(count) * sizeof(float));
    else
      store_(at, from, nullptr, nullptr, count, nullptr);
  }

  /// Scales of a row's blocks as FP32: in place, or converted in the buffer.
  const float* scales_of(const Run& run, int64_t row, int64_t first, int64_t count,
                         float* buffer) const {
    const int64_t at = row * blocks_ + first;
    if (load_ == nullptr) return static_cast<const float*>(run.inputs[2]) + at;
    load(run.inputs[2], at, count, buffer);
    return buffer;
  }
  float zero_of(const uint8_t* packed, int64_t row, int64_t block) const {
    const int byte = packed[row * zero_bytes_ + (block >> shift_)];
    return static_cast<float>(byte >> ((block & (planes_ - 1)) * bits_) & ((1 << bits_) - 1));
  }
  void zeros_of(const Run& run, int64_t row, int64_t first, int64_t count, float* to) const {
    if (!are_zeros_packed_) return load(run.inputs[3], row * blocks_ + first, count, to);
    const auto* const packed = static_cast<const uint8_t*>(run.inputs[3]);
    int64_t i = 0;
    if ((first & (planes_ - 1)) == 0) {
      const uint8_t* byte = packed + row * zero_bytes_ + (first >> shift_);
      // Copies have a length that the compiler knows.
      if (planes_ == 2)
        for (; i + 2 <= count; i += 2, ++byte)
          std::copy_n(codes_of_byte_.data() + *byte * 2, 2, to + i);
      else if (planes_ == 4)
        for (; i + 4 <= count; i += 4, ++byte)
          std::copy_n(codes_of_byte_.data() + *byte * 4, 4, to + i);
    }
    for (; i < count; ++i) to[i] = zero_of(packed, row, first + i);
  }
  float middle() const { return static_cast<float>(1 << (bits_ - 1)); }

  /// Writes the vectors as planes, and the sums of their blocks.
  void make_planes(const Run& run) const {
    const int64_t padded = row_bytes_ * planes_;
    for (int64_t m = 0; m < vectors_; ++m) {
      float* const planes = run.base + wide_at_ + m * padded;
      std::array<float, 512> part;
      for (int64_t k = 0; k < padded; k += static_cast<int64_t>(part.size())) {
        const int64_t count = std::min<int64_t>(part.size(), padded - k);
        const int64_t there = std::clamp<int64_t>(params_.columns - k, 0, count);
        load(run.inputs[0], m * params_.columns + k, there, part.data());
        std::fill(part.begin() + there, part.begin() + count, 0.0f);
        for (int64_t p = 0; p < planes_; ++p) {
          float* const plane = planes + p * row_bytes_ + (k >> shift_);
          for (int64_t j = 0; j < count >> shift_; ++j)
            plane[j] = part[static_cast<size_t>((j << shift_) + p)];
        }
      }
      float* const sums = run.base + sums_at_ + m * blocks_;
      for (int64_t b = 0; b < blocks_; ++b) {
        float sum = 0;
        for (int64_t p = 0; p < planes_; ++p)
          for (int64_t j = b * block_bytes_; j < (b + 1) * block_bytes_; ++j)
            sum += planes[p * row_bytes_ + j];
        sums[b] = sum;
      }
    }
  }

  void multiply_few(const Run& run) const {
    make_planes(run);
    const int64_t groups = (params_.rows + kNBitsRows - 1) / kNBitsRows;
    const int64_t cost = std::max<int64_t>(kNBitsRows * params_.columns * vectors_, 1);
    parallel_for(groups, kNBitsGrain / cost + 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) multiply_rows(run, group * kNBitsRows);
    });
  }
  /// Multiplies a few rows of the weights by all vectors.
  void multiply_rows(const Run& run, int64_t first) const {
    const int64_t rows = std::min(kNBitsRows, params_.rows - first);
    std::array<float, kNBitsManyVectors * kNBitsRows> out{};
    std::array<float, kNBitsRows * kNBitsBlocks> scales, zeros;
    if (has_bias_) {
      std::array<float, kNBitsRows> bias;
      load(run.inputs[4], first, rows, bias.data());
      for (int64_t m = 0; m < vectors_; ++m)
        std::copy_n(bias.begin(), rows, out.begin() + m * kNBitsRows);
    }
    for (int64_t block = 0; block < blocks_; block += kNBitsBlocks) {
      const int64_t count = std::min(kNBitsBlocks, blocks_ - block);
      const bool is_wide = load_ == nullptr;
      for (int64_t r = 0; r < rows; ++r) {
        if (!is_wide) scales_of(run, first + r, block, count, scales.data() + r * kNBitsBlocks);
        if (has_zeros_) zeros_of(run, first + r, block, count, zeros.data() + r * kNBitsBlocks);
      }
      for (int64_t m = 0; m < vectors_; ++m)
        multiply_nbits(
            {bits_, rows, count, block_bytes_,
             static_cast<const uint8_t*>(run.inputs[1]) + first * row_bytes_ + block * block_bytes_,
             row_bytes_, run.base + wide_at_ + m * row_bytes_ * planes_ + block * block_bytes_,
             row_bytes_, run.base + sums_at_ + m * blocks_ + block,
             is_wide ? static_cast<const float*>(run.inputs[2]) + first * blocks_ + block
                     : scales.data(),
             is_wide ? blocks_ : kNBitsBlocks, has_zeros_ ? zeros.data() : nullptr, kNBitsBlocks,
             middle(), out.data() + m * kNBitsRows});
    }
    for (int64_t m = 0; m < vectors_; ++m)
      store(out.data() + m * kNBitsRows, rows, run.output, m * params_.rows + first);
  }

  void multiply_many(const Run& run) const {
    const auto* a = static_cast<const float*>(run.inputs[0]);
    if (load_ != nullptr) {
      float* const wide = run.base + wide_at_;
      parallel_for(vectors_, (1 << 14) / params_.columns + 1, [&](int64_t begin, int64_t end) {
        load(run.inputs[0], begin * params_.columns, (end - begin) * params_.columns,
             wide + begin * params_.columns);
      });
      a = wide;
    }
    const int64_t groups = (params_.rows + kNBitsColumns - 1) / kNBitsColumns;
    const int64_t cost = std::max<int64_t>(kNBitsColumns * params_.columns * vectors_, 1);
    parallel_for(groups, kNBitsGrain / cost + 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) multiply_panels(run, a, group);
    });
  }
  /// Multiplies kNBitsColumns rows of the weights by all vectors.
  void multiply_panels(const Run& run, const float* a, int64_t group) const {
    alignas(64) float panel[(kNBitsPanelBytes * 4 + 32) * kNBitsColumns];
    alignas(64) uint8_t bytes[kNBitsPanelBytes * kNBitsColumns];
    // Scales and offsets by block and row, for the most blocks that a panel has.
    constexpr int64_t kBlocks = kNBitsPanelBytes / 4;
    alignas(64) float scales[kBlocks * kNBitsColumns]{}, offsets[kBlocks * kNBitsColumns]{};
    const int64_t first = group * kNBitsColumns;
    const int64_t rows = std::min(kNBitsColumns, params_.rows - first);
    const auto* const codes = static_cast<const uint8_t*>(run.inputs[1]) + first * row_bytes_;
    float* const out = run.base + out_at_ + group * vectors_ * kNBitsColumns;
    std::array<float, kNBitsColumns> bias{};
    if (has_bias_) load(run.inputs[4], first, rows, bias.data());
    // Each part of a block has the block's scale.
    const int64_t step = std::min(block_bytes_, kNBitsPanelBytes);
    std::fill_n(bytes, kNBitsPanelBytes * kNBitsColumns, uint8_t{0});
    for (int64_t begin = 0; begin < row_bytes_; begin += kNBitsPanelBytes) {
      const int64_t end = std::min(row_bytes_, begin + kNBitsPanelBytes);
      const int64_t block = begin / block_bytes_;
      const int64_t blocks = (end - 1) / block_bytes_ - block + 1;
      for (int64_t r = 0; r < rows; ++r) {
        std::array<float, kBlocks> scale, zero;
        load(run.inputs[2], (first + r) * blocks_ + block, blocks, scale.data());
        if (has_zeros_)
          zeros_of(run, first + r, block, blocks, zero.data());
        else
          zero.fill(middle());
        for (int64_t b = 0; b < blocks; ++b) {
          const auto i = static_cast<size_t>(b);
          scales[b * kNBitsColumns + r] = scale[i];
          offsets[b * kNBitsColumns + r] = -zero[i] * scale[i];
        }
      }
      for (int64_t at = begin; at < end; at += step) {
        const int64_t own = (at / block_bytes_ - block) * kNBitsColumns;
        transpose_rows(codes + at, row_bytes_, rows, step, bytes);
        unpack_nbits({bits_, step, bytes, scales + own, offsets + own,
                      panel + (at - begin) * planes_ * kNBitsColumns});
      }
      const int64_t k = begin * planes_;
      const int64_t count = std::min(end * planes_, params_.columns) - k;
      if (count <= 0 && begin > 0) break;
      multiply_panel({a + k, params_.columns, vectors_, count, panel,
                      begin == 0 ? (has_bias_ ? bias.data() : nullptr) : out,
                      begin == 0 ? 0 : kNBitsColumns, out, kNBitsColumns});
    }
    for (int64_t m = 0; m < vectors_; ++m)
      store(out + m * kNBitsColumns, rows, run.output, m * params_.rows + first);
  }

  const std::string layer_;
  const MatMulNBitsParams params_;
  const int bits_;
  const int64_t blocks_, block_bytes_, row_bytes_, planes_;
  const int shift_;  ///< log2 of planes_
  const int64_t zero_bytes_;
  const DataType type_;
  const int64_t element_;
  const TileFunction load_, store_;
  const bool has_zeros_, are_zeros_packed_, has_bias_;
  std::vector<float> codes_of_byte_;  ///< planes_ numbers for each byte
  int64_t vectors_ = 0, wide_at_ = 0, sums_at_ = 0, out_at_ = 0;
  KernelWorkspace workspace_;
};

std::vector<Candidate> matmul_nbits_candidates(const Operator&, const CandidateQuery& query) {
  if (!kDnnlFloats.has(query.inputs[0].type.dtype)) return {};
  for (size_t i = 1; i < query.inputs.size(); ++i)
    if (query.inputs[i].present && query.inputs[i].min != query.inputs[i].max) return {};
  return {linear_candidate(query, "packed weights")};
}

void check_matmul_nbits(const Operator& op, const KernelArgs& args) {
  const MatMulNBitsParams& params = static_cast<const MatMulNBits&>(op).params();
  const PortRules rules(op, args);
  const std::string problem = params.problem();
  rules.require_that(problem.empty(), problem);
  rules.require_ports(3, 5);
  rules.require(rules.input(0), kDnnlFloats);
  rules.require(rules.input(1), {DataType::kUINT8});
  rules.require_same(rules.input(2), rules.input(0));
  if (rules.has_input(3) && args.inputs[3].type.dtype != DataType::kUINT8)
    rules.require_same(rules.input(3), rules.input(0));
  if (rules.has_input(4)) rules.require_same(rules.input(4), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
  const auto require_elements = [&](size_t i, int64_t count) {
    if (!rules.has_input(i)) return;
    rules.require_that(
        args.inputs[i].min == args.inputs[i].max && args.inputs[i].max.numel() == count, "input ",
        i, " must have ", count, " elements, but is ", args.inputs[i].min, " to ",
        args.inputs[i].max);
  };
  require_elements(1, params.rows * params.blocks() * params.bytes_per_block());
  require_elements(2, params.rows * params.blocks());
  if (rules.has_input(3))
    require_elements(
        3, params.rows * (args.inputs[3].type.dtype == DataType::kUINT8 ? params.zero_bytes()
                                                                        : params.blocks()));
  require_elements(4, params.rows);
}

const RegisteredKernels<MatMulNBits> kMatMulNBitsKernels(
    {matmul_nbits_candidates, make_kernel<MatMulNBitsKernel, MatMulNBits>, check_matmul_nbits});

}  // namespace
}  // namespace opwright
