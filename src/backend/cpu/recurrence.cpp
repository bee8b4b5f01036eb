#include "operators/recurrence.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/candidates.h"
#include "backend/cpu/byte_panel.h"
#include "backend/cpu/kernel_workspace.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/recurrence_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "base/parallel.h"

namespace opwright {
namespace {

constexpr int64_t kUnits = kRecurrentUnits;
static_assert(kUnits == kByteColumns);
/// Rows that are multiplied with a panel of weights while it stays in the nearest cache.
constexpr int64_t kProjectedRows = 256;
/// Multiplications that are worth a thread.
constexpr int64_t kProductGrain = 1 << 15;
enum Port { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP };

/// Weights [directions, gates * hidden, inner] in the kernel's order: [directions, blocks of kUnits
/// hidden units, gates, inner, kUnits]. They are FP32 and padded with zeros.
struct Panels {
  int64_t directions, gates, hidden, inner;

  int64_t blocks() const { return (hidden + kUnits - 1) / kUnits; }
  int64_t panel_size() const { return inner * kUnits; }
  int64_t count() const {
    return checked_product("the size of recurrent weights",
                           {directions, blocks(), gates, inner, kUnits});
  }
  /// Text of the layout, in the form in which plans describe packed weights: type, extents, padded
  /// extents, strides, blocks and their axes.
  std::string layout() const {
    constexpr int kDnnlFloat = 3;
    const int64_t padded = blocks() * kUnits;
    return str(kDnnlFloat, ":", directions, ",", gates, ",", hidden, ",", inner, ":", directions,
               ",", gates, ",", padded, ",", inner, ":", blocks() * gates * panel_size(), ",",
               panel_size(), ",", gates * panel_size(), ",", kUnits, ":", kUnits, ":2");
  }
  void pack(const std::byte* from, DataType type, float* to) const {
    const int64_t element = element_size(type);
    parallel_for(panels(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t gate = i % gates, block = i / gates % blocks();
        const int64_t direction = i / gates / blocks(), first = block * kUnits;
        float* const panel = to + i * panel_size();
        for (int64_t unit = 0; unit < kUnits; ++unit) {
          const bool there = first + unit < hidden;
          const std::byte* row =
              from + ((direction * gates + gate) * hidden + first + unit) * inner * element;
          for (int64_t k = 0; k < inner; ++k) {
            float value = 0;
            if (there) convert(row + k * element, type, &value, DataType::kFLOAT, 1);
            panel[k * kUnits + unit] = value;
          }
        }
      }
    });
  }

  int64_t panels() const { return directions * blocks() * gates; }
  /// The panels as bytes, and behind them a scale and an offset of each unit.
  size_t byte_size() const {
    return static_cast<size_t>(panels()) *
           static_cast<size_t>(byte_panel_size(inner) + kUnits * (sizeof(float) + sizeof(int32_t)));
  }
  std::string byte_layout() const {
    constexpr int kDnnlByte = 5;
    const int64_t padded = blocks() * kUnits, panel = byte_panel_size(inner);
    return str(kDnnlByte, ":", directions, ",", gates, ",", hidden, ",", inner, ":", directions,
               ",", gates, ",", padded, ",", panel / kUnits, ":", blocks() * gates * panel, ",",
               panel, ",", gates * panel, ",", kUnits * 4, ":", kUnits, ",4:2,3");
  }
  /// The parts of packed bytes.
  template <class Byte>
  struct ByteParts {
    Byte* codes;
    std::conditional_t<std::is_const_v<Byte>, const float, float>* scales;
    std::conditional_t<std::is_const_v<Byte>, const int32_t, int32_t>* offsets;
  };
  template <class Byte>
  ByteParts<Byte> byte_parts(Byte* codes) const {
    ByteParts<Byte> parts{codes, nullptr, nullptr};
    parts.scales =
        reinterpret_cast<decltype(parts.scales)>(codes + panels() * byte_panel_size(inner));
    parts.offsets = reinterpret_cast<decltype(parts.offsets)>(parts.scales + panels() * kUnits);
    return parts;
  }
  /// Packs panels as bytes. Returns false where they are not whole multiples of a number for each
  /// unit.
  bool pack_bytes(const float* from, int8_t* to) const {
    const ByteParts<int8_t> parts = byte_parts(to);
    std::atomic<bool> fits = true;
    parallel_for(panels(), 1, [&](int64_t begin, int64_t end) {
      std::vector<float> column(static_cast<size_t>(inner));
      std::vector<int8_t> codes(static_cast<size_t>(inner));
      for (int64_t i = begin; i < end && fits; ++i) {
        int8_t* const panel = to + i * byte_panel_size(inner);
        std::fill_n(panel, byte_panel_size(inner), int8_t{0});
        for (int64_t unit = 0; unit < kUnits && fits; ++unit) {
          for (int64_t k = 0; k < inner; ++k)
            column[static_cast<size_t>(k)] = from[i * panel_size() + k * kUnits + unit];
          if (!find_byte_codes(column.data(), inner, codes.data(), parts.scales[i * kUnits + unit]))
            fits = false;
          int32_t sum = 0;
          for (int64_t k = 0; k < inner; ++k) {
            const int8_t code = codes[static_cast<size_t>(k)];
            panel[byte_place(k, unit)] = code, sum += code;
          }
          parts.offsets[i * kUnits + unit] = 128 * sum;
        }
      }
    });
    return fits;
  }
  void unpack_bytes(const int8_t* from, float* to) const {
    const ByteParts<const int8_t> parts = byte_parts(from);
    for (int64_t i = 0; i < panels(); ++i)
      for (int64_t k = 0; k < inner; ++k)
        for (int64_t unit = 0; unit < kUnits; ++unit)
          to[i * panel_size() + k * kUnits + unit] =
              static_cast<float>(from[i * byte_panel_size(inner) + byte_place(k, unit)]) *
              parts.scales[i * kUnits + unit];
  }
};

/// One of the two weights: packed during the build where it is constant, else in each run.
class PanelWeights {
 public:
  PanelWeights(const KernelArgs& args, int input, const Panels& panels, int64_t vectors)
      : input_(input), panels_(panels), vectors_(vectors), type_(args.inputs[input].type.dtype) {
    const PortDesc& port = args.inputs[input];
    const size_t bytes = panels.count() * sizeof(float);
    for (const PackedInput& stored : args.packed)
      if (stored.input == input) {
        are_bytes_ = stored.layout == panels.byte_layout();
        require(
            (are_bytes_ || stored.layout == panels.layout()) &&
                (!stored.data || stored.data.size() >= (are_bytes_ ? panels.byte_size() : bytes)),
            "Layer '", args.layer, "': the packed weights of input ", input,
            " are of another version of this library; build the engine again.");
        packed_ = stored.data;
      }
    if (port.constant) {
      packed_ = Blob::make(bytes, [&](void* to) {
        panels.pack(port.constant.data(), type_, static_cast<float*>(to));
      });
      are_bytes_ = false;
      if (can_be_bytes()) {
        Blob narrow = Blob::make(panels.byte_size(), [&](void* to) {
          are_bytes_ = panels.pack_bytes(packed_.as<float>(), static_cast<int8_t*>(to));
        });
        if (are_bytes_) packed_ = std::move(narrow);
      }
    } else if (are_bytes_ && packed_ && !can_be_bytes()) {
      const Blob narrow = packed_;
      packed_ = Blob::make(bytes, [&](void* to) {
        panels.unpack_bytes(narrow.as<int8_t>(), static_cast<float*>(to));
      });
      are_bytes_ = false;
    }
    is_constant_ = port.is_constant;
    require(!is_constant_ || packed_, "Layer '", args.layer, "': the weights of input ", input,
            " are missing from the engine; refit it or build it again.");
  }
  /// Floats of workspace that a run needs.
  int64_t workspace() const { return is_constant_ ? 0 : panels_.count(); }
  /// Bytes of workspace for each vector, and numbers.
  int64_t plane_bytes() const { return is_constant_ ? byte_planes_size(panels_.inner) : 0; }
  bool are_bytes() const { return are_bytes_; }
  const float* prepare(void const* const* inputs, float* workspace) const {
    if (are_bytes_) return nullptr;
    if (is_constant_) return packed_.as<float>();
    panels_.pack(static_cast<const std::byte*>(inputs[input_]), type_, workspace);
    return workspace;
  }
  void append_packed(std::vector<PackedInput>& packed) const {
    if (is_constant_)
      packed.push_back({input_, packed_, are_bytes_ ? panels_.byte_layout() : panels_.layout()});
  }
  /// Brings the vectors into the form that multiply() reads.
  void prepare(const ByteVectors& vectors) const {
    if (!are_bytes_) return;
    constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
    parallel_for(vectors.rows, kGrain / std::max<int64_t>(vectors.k, 1) + 1,
                 [&](int64_t begin, int64_t end) { make_byte_planes(vectors, begin, end); });
  }
  /// Multiplies vectors [first, first + rows) by a panel. `weights` is what prepare() returned.
  void multiply(const float* weights, int64_t panel, const ByteVectors& vectors, int64_t first,
                int64_t rows, const float* init, float* out, int64_t out_stride) const {
    if (!are_bytes_)
      return multiply_panel({vectors.a + first * vectors.a_stride, vectors.a_stride, rows,
                             vectors.k, weights + panel * panels_.panel_size(), init, 0, out,
                             out_stride});
    const auto parts = panels_.byte_parts(packed_.as<int8_t>());
    multiply_byte_panel({vectors, first, rows, parts.codes + panel * byte_panel_size(panels_.inner),
                         parts.scales + panel * kUnits, parts.offsets + panel * kUnits, init, out,
                         out_stride});
  }

 private:
  bool can_be_bytes() const {
    return prefers_bytes(panels_.inner, panels_.gates * panels_.hidden, vectors_);
  }

  int input_;
  Panels panels_;
  int64_t vectors_;  ///< that are multiplied at a time, at the profile's optimum
  DataType type_;
  bool is_constant_ = false, are_bytes_ = false;
  Blob packed_;
};

class RecurrenceKernel final : public Kernel {
 public:
  RecurrenceKernel(const RecurrenceParams& params, const KernelArgs& args)
      : params_(params),
        type_(args.inputs[kX].type.dtype),
        element_(element_size(type_)),
        load_(find_cast(type_, DataType::kFLOAT)),
        store_(find_cast(DataType::kFLOAT, type_)),
        directions_(params.directions()),
        gates_(gate_count(params.cell)),
        hidden_(args.inputs[kR].opt[2]),
        input_(args.inputs[kW].opt[2]),
        blocks_((hidden_ + kUnits - 1) / kUnits),
        padded_(blocks_ * kUnits),
        w_(args, kW, {directions_, gates_, hidden_, input_}, args.inputs[kX].opt.numel(0, 2)),
        r_(args, kR, {directions_, gates_, hidden_, hidden_}, args.inputs[kX].opt[1]),
        clip_(params.clip > 0 ? static_cast<float>(params.clip)
                              : std::numeric_limits<float>::infinity()) {
    for (size_t i = 0; i < params.activations.size(); ++i)
      activations_.push_back({static_cast<int32_t>(params.activations[i]),
                              static_cast<float>(params.alphas[i]),
                              static_cast<float>(params.betas[i])});
    for (size_t i = 0; i < present_.size(); ++i)
      present_[i] = i < args.inputs.size() && args.inputs[i].present;
    workspace_.plan(arrange(args.inputs[kX].max[0], args.inputs[kX].max[1]));
  }

  size_t workspace_size() const override { return workspace_.planned(); }
  std::vector<PackedInput> packed() const override {
    std::vector<PackedInput> packed;
    w_.append_packed(packed), r_.append_packed(packed);
    return packed;
  }
  std::string description() const override {
    const bool w = w_.are_bytes(), r = r_.are_bytes();
    return std::string("panels of 32 units") + (w && r ? " of bytes"
                                                : w    ? ", inputs by bytes"
                                                : r    ? ", states by bytes"
                                                       : "");
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    steps_ = batch_ = 0;
    require_countable(inputs), require_countable(outputs);
    const int64_t steps = inputs[kX][0], batch = inputs[kX][1];
    const auto require_shape = [&](int i, const Shape& expected) {
      if (!present_[i]) return;
      require(inputs[i] == expected, "input ", i, " of a recurrent layer must have the shape ",
              expected, " beside an input of ", inputs[kX], ", but has ", inputs[i]);
    };
    require_shape(kX, {steps, batch, input_});
    require_shape(kW, {directions_, gates_ * hidden_, input_});
    require_shape(kR, {directions_, gates_ * hidden_, hidden_});
    require_shape(kB, {directions_, 2 * gates_ * hidden_});
    require_shape(kLengths, {batch});
    require_shape(kInitialH, {directions_, batch, hidden_});
    require_shape(kInitialC, {directions_, batch, hidden_});
    require_shape(kP, {directions_, 3 * hidden_});
    workspace_.need(arrange(steps, batch));
    steps_ = steps, batch_ = batch;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (batch_ * hidden_ == 0) return;
    auto* const base = static_cast<float*>(workspace_.of(workspace));
    Run run{inputs, outputs, base, w_.prepare(inputs, base + at_.w),
            r_.prepare(inputs, base + at_.r)};
    prepare(run);
    const int64_t most =
        is_projected_in_parts() ? std::max<int64_t>(kProjectedRows / batch_, 1) : steps_;
    for (int64_t first = 0; first < steps_; first += most) {
      const int64_t count = std::min(most, steps_ - first);
      run.first_time = count < steps_ && is_reverse(0) ? steps_ - first - count : first;
      project(run, run.first_time * batch_, count * batch_);
      for (int64_t step = first; step < first + count; ++step) advance(run, step);
    }
    const int64_t last = steps_ % 2;
    store_states(base + at_.h + last * state_size(), static_cast<std::byte*>(outputs[1]));
    if (params_.cell == RecurrentCell::kLSTM)
      store_states(base + at_.c, static_cast<std::byte*>(outputs[2]));
  }

 private:
  struct Run {
    void const* const* inputs;
    void* const* outputs;
    float* base;
    const float *w, *r;
    int64_t first_time = 0;  ///< first of the steps whose inputs are projected
  };
  /// Offsets of the workspace's parts, in floats.
  struct Places {
    int64_t bias, recurrent_bias, peephole, x, projected, h, c, reset, gates, lengths, w, r;
    int64_t input_planes, input_scales, state_planes, state_scales;
  };

  int64_t row_size() const { return blocks_ * gates_ * kUnits; }
  /// Whether inputs are projected in parts, not all before the first step, so that they are still
  /// in a near cache when their step runs. This needs all sequences to begin at the same end.
  bool is_projected_in_parts() const { return directions_ == 1 && !present_[kLengths]; }
  int64_t state_size() const { return directions_ * batch_of_places_ * padded_; }

  /// Sets the places for these extents and returns the bytes that they need.
  size_t arrange(int64_t steps, int64_t batch) {
    constexpr std::string_view kWhat = "the workspace of a recurrent layer";
    batch_of_places_ = batch;
    int64_t total = 0;
    const auto place = [&](std::initializer_list<int64_t> extents) {
      const int64_t begin = total;
      const int64_t size = checked_product(kWhat, extents);
      // Sizes are whole cache lines, so that every part begins with one.
      require(size < (int64_t{1} << 53) && total < (int64_t{1} << 53), kWhat, " is too large");
      total += (size + 15) / 16 * 16;
      return begin;
    };
    const bool lstm = params_.cell == RecurrentCell::kLSTM;
    const bool gru = params_.cell == RecurrentCell::kGRU;
    // The size also suffices for fewer steps and a smaller batch.
    int64_t rows = checked_product(kWhat, {steps, batch});
    if (is_projected_in_parts()) rows = std::min(rows, std::max(kProjectedRows, batch));
    at_.bias = place({directions_, row_size()});
    at_.recurrent_bias = place({directions_, padded_});
    at_.peephole = place({directions_, lstm ? 3 : 0, padded_});
    at_.x = place({type_ == DataType::kFLOAT ? 0 : rows, input_});
    at_.projected = place({directions_, rows, row_size()});
    at_.h = place({2, directions_, batch, padded_});
    at_.c = place({lstm ? directions_ : 0, batch, padded_});
    at_.reset = place({gru ? directions_ : 0, batch, padded_});
    at_.gates = place({directions_, batch, row_size()});
    at_.lengths = place({2, batch});
    at_.w = place({w_.workspace()});
    at_.r = place({r_.workspace()});
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    at_.input_planes = place({rows, w_.plane_bytes() / kBytes});
    at_.input_scales = place({w_.plane_bytes() > 0 ? rows : 0});
    at_.state_planes = place({directions_, batch, r_.plane_bytes() / kBytes});
    at_.state_scales = place({r_.plane_bytes() > 0 ? directions_ : 0, batch});
    return static_cast<size_t>(total) * sizeof(float);
  }

  void load(const std::byte* from, int64_t index, int64_t count, float* to) const {
    if (type_ == DataType::kFLOAT)
      std::memcpy(to, from + index * element_, count * sizeof(float));
    else
      load_(to, from + index * element_, nullptr, nullptr, count, nullptr);
  }
  void store(const float* from, int64_t count, std::byte* to, int64_t index) const {
    if (type_ == DataType::kFLOAT)
      std::memcpy(to + index * element_, from, count * sizeof(float));
    else
      store_(to + index * element_, from, nullptr, nullptr, count, nullptr);
  }
  const std::byte* bytes(const Run& run, Port port) const {
    return present_[port] ? static_cast<const std::byte*>(run.inputs[port]) : nullptr;
  }

  /// Brings biases, states and lengths into the order and the types in which the steps read them.
  void prepare(const Run& run) const {
    float* const base = run.base;
    int64_t* const lengths = reinterpret_cast<int64_t*>(base + at_.lengths);
    std::fill_n(lengths, batch_, steps_);
    if (const auto* given = reinterpret_cast<const int32_t*>(bytes(run, kLengths))) {
      for (int64_t n = 0; n < batch_; ++n) lengths[n] = std::clamp<int64_t>(given[n], 0, steps_);
      // The output behind the ends of sequences is zero.
      std::memset(run.outputs[0], 0, steps_ * directions_ * batch_ * hidden_ * element_);
    }
    prepare_biases(run);
    const auto load_states = [&](Port port, float* to) {
      std::memset(to, 0, state_size() * sizeof(float));
      if (const std::byte* from = bytes(run, port))
        for (int64_t row = 0; row < directions_ * batch_; ++row)
          load(from, row * hidden_, hidden_, to + row * padded_);
    };
    load_states(kInitialH, base + at_.h);
    if (params_.cell == RecurrentCell::kLSTM) load_states(kInitialC, base + at_.c);
    if (const std::byte* from = bytes(run, kP))
      for (int64_t row = 0; row < directions_ * 3; ++row) {
        float* const to = base + at_.peephole + row * padded_;
        std::fill_n(to + hidden_, padded_ - hidden_, 0.0f);
        load(from, row * hidden_, hidden_, to);
      }
  }

  void prepare_biases(const Run& run) const {
    float* const bias = run.base + at_.bias;
    float* const recurrent = run.base + at_.recurrent_bias;
    std::memset(bias, 0, directions_ * row_size() * sizeof(float));
    std::memset(recurrent, 0, directions_ * padded_ * sizeof(float));
    const std::byte* const from = bytes(run, kB);
    if (from == nullptr) return;
    for (int64_t i = 0; i < directions_ * blocks_ * gates_; ++i) {
      const int64_t gate = i % gates_, block = i / gates_ % blocks_;
      const int64_t direction = i / gates_ / blocks_, first = block * kUnits;
      const int64_t count = std::min(kUnits, hidden_ - first);
      const int64_t at = (direction * 2 * gates_ + gate) * hidden_ + first;
      float* const sum = bias + i * kUnits;
      float part[kUnits];
      load(from, at, count, sum);
      load(from, at + gates_ * hidden_, count, part);
      if (params_.linear_before_reset && gate == 2)
        std::copy_n(part, count, recurrent + direction * padded_ + first);
      else
        for (int64_t unit = 0; unit < count; ++unit) sum[unit] += part[unit];
    }
  }

  /// Computes the inputs' contribution to the gates as one product, for elements of the batch at
  /// several steps.
  void project(const Run& run, int64_t first_row, int64_t rows) const {
    if (rows == 0) return;
    const auto* x = static_cast<const float*>(run.inputs[kX]) + first_row * input_;
    if (type_ != DataType::kFLOAT) {
      float* const wide = run.base + at_.x;
      parallel_for(rows, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(input_, 1)),
                   [&](int64_t begin, int64_t end) {
                     load(static_cast<const std::byte*>(run.inputs[kX]),
                          (first_row + begin) * input_, (end - begin) * input_,
                          wide + begin * input_);
                   });
      x = wide;
    }
    const ByteVectors vectors{x,
                              input_,
                              rows,
                              input_,
                              reinterpret_cast<uint8_t*>(run.base + at_.input_planes),
                              run.base + at_.input_scales};
    w_.prepare(vectors);
    constexpr int64_t kRows = kProjectedRows;
    const int64_t pieces = (rows + kRows - 1) / kRows, panels = directions_ * blocks_ * gates_;
    const int64_t cost = std::max<int64_t>(std::min(rows, kRows) * kUnits * input_, 1);
    parallel_for(panels * pieces, kProductGrain / cost + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / pieces, first = i % pieces * kRows;
        const int64_t direction = panel / (blocks_ * gates_), column = panel % (blocks_ * gates_);
        w_.multiply(
            run.w, panel, vectors, first, std::min(kRows, rows - first),
            run.base + at_.bias + panel * kUnits,
            run.base + at_.projected + (direction * rows + first) * row_size() + column * kUnits,
            row_size());
      }
    });
  }

  void advance(const Run& run, int64_t step) const {
    const int64_t cost = std::max<int64_t>(batch_ * gates_ * kUnits * hidden_, 1);
    const int64_t grain = std::max<int64_t>(1, kProductGrain / cost);
    if (params_.cell == RecurrentCell::kGRU && !params_.linear_before_reset) {
      // The candidate's product needs the reset gates of all units, so those are computed first.
      const ByteVectors states = prepared(run, run.base + at_.h + step % 2 * state_size());
      parallel_for(directions_ * blocks_, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          multiply_state(run, i, 0, 2, states);
          for (int64_t n = 0; n < batch_; ++n) gru_gates(cell_step(run, step, i, n));
        }
      });
      const ByteVectors reset = prepared(run, run.base + at_.reset);
      parallel_for(directions_ * blocks_, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          multiply_state(run, i, 2, 3, reset);
          for (int64_t n = 0; n < batch_; ++n) finish(run, step, i, n, gru_finish);
        }
      });
      return;
    }
    const auto function = params_.cell == RecurrentCell::kLSTM  ? lstm_step
                          : params_.cell == RecurrentCell::kGRU ? gru_step
                                                                : rnn_step;
    const ByteVectors states = prepared(run, run.base + at_.h + step % 2 * state_size());
    parallel_for(directions_ * blocks_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        multiply_state(run, i, 0, gates_, states);
        for (int64_t n = 0; n < batch_; ++n) finish(run, step, i, n, function);
      }
    });
  }

  /// The states of all directions as vectors that are multiplied.
  ByteVectors prepared(const Run& run, const float* state) const {
    const ByteVectors vectors{state,
                              padded_,
                              directions_ * batch_,
                              hidden_,
                              reinterpret_cast<uint8_t*>(run.base + at_.state_planes),
                              run.base + at_.state_scales};
    r_.prepare(vectors);
    return vectors;
  }

  /// Multiplies the states by the weights of gates [gate, end), for block `i` of the units of all
  /// directions.
  void multiply_state(const Run& run, int64_t i, int64_t gate, int64_t end,
                      const ByteVectors& states) const {
    const int64_t direction = i / blocks_;
    for (; gate < end; ++gate)
      r_.multiply(run.r, i * gates_ + gate, states, direction * batch_, batch_, nullptr,
                  run.base + at_.gates + i * batch_ * gates_ * kUnits + gate * kUnits,
                  gates_ * kUnits);
  }

  bool is_reverse(int64_t direction) const {
    return direction == 1 || params_.direction == RecurrentDirection::kREVERSE;
  }
  int64_t length(const Run& run, int64_t n) const {
    return reinterpret_cast<const int64_t*>(run.base + at_.lengths)[n];
  }
  /// The place in the sequence at that step; 0 beyond the sequence's end.
  int64_t time_of(const Run& run, int64_t direction, int64_t step, int64_t n) const {
    const int64_t count = length(run, n);
    if (step >= count) return 0;
    return is_reverse(direction) ? count - 1 - step : step;
  }

  CellStep cell_step(const Run& run, int64_t step, int64_t i, int64_t n) const {
    float* const base = run.base;
    const int64_t direction = i / blocks_, block = i % blocks_, first = block * kUnits;
    const int64_t state = (direction * batch_ + n) * padded_ + first;
    const int64_t time = time_of(run, direction, step, n) - run.first_time;
    CellStep result;
    result.projected = base + at_.projected +
                       ((direction * steps_ + time) * batch_ + n) * row_size() +
                       block * gates_ * kUnits;
    result.recurrent = base + at_.gates + (i * batch_ + n) * gates_ * kUnits;
    result.h = base + at_.h + step % 2 * state_size() + state;
    result.h_next = base + at_.h + (step + 1) % 2 * state_size() + state;
    result.c = base + at_.c + state;
    result.reset = base + at_.reset + state;
    result.recurrent_bias = base + at_.recurrent_bias + direction * padded_ + first;
    result.peephole =
        present_[kP] ? base + at_.peephole + direction * 3 * padded_ + first : nullptr;
    result.peephole_stride = padded_;
    result.activations = activations_.data() + direction * activation_count(params_.cell);
    result.clip = clip_;
    result.input_forget = params_.input_forget;
    return result;
  }

  void finish(const Run& run, int64_t step, int64_t i, int64_t n,
              void (*function)(const CellStep&)) const {
    const CellStep cell = cell_step(run, step, i, n);
    if (step >= length(run, n)) {
      std::copy_n(cell.h, kUnits, cell.h_next);
      return;
    }
    function(cell);
    const int64_t direction = i / blocks_, first = i % blocks_ * kUnits;
    const int64_t time = time_of(run, direction, step, n);
    store(cell.h_next, std::min(kUnits, hidden_ - first), static_cast<std::byte*>(run.outputs[0]),
          ((time * directions_ + direction) * batch_ + n) * hidden_ + first);
  }

  void store_states(const float* from, std::byte* to) const {
    for (int64_t row = 0; row < directions_ * batch_; ++row)
      store(from + row * padded_, hidden_, to, row * hidden_);
  }

  const RecurrenceParams params_;
  const DataType type_;
  const int64_t element_;
  const TileFunction load_, store_;
  const int64_t directions_, gates_, hidden_, input_, blocks_, padded_;
  const PanelWeights w_, r_;
  const float clip_;
  std::vector<CellActivation> activations_;
  std::array<bool, 8> present_{};
  Places at_{};
  KernelWorkspace workspace_;
  int64_t steps_ = 0, batch_ = 0, batch_of_places_ = 0;
};

std::vector<Candidate> recurrence_candidates(const Operator&, const CandidateQuery& query) {
  if (!kDnnlFloats.has(query.inputs[kX].type.dtype)) return {};
  for (const int i : {kW, kR})
    if (query.inputs[i].min != query.inputs[i].max) return {};
  return {linear_candidate(query, "panels")};
}

void check_recurrence(const Operator& op, const KernelArgs& args) {
  const RecurrenceParams& params = static_cast<const Recurrence&>(op).params();
  const PortRules rules(op, args);
  rules.require_ports(3, 8, params.cell == RecurrentCell::kLSTM ? 3 : 2);
  rules.require(rules.input(kX), kDnnlFloats);
  for (size_t i = 1; i < rules.inputs(); ++i) {
    if (!rules.has_input(i)) continue;
    if (i == kLengths)
      rules.require(rules.input(i), {DataType::kINT32});
    else
      rules.require_same(rules.input(i), rules.input(kX));
  }
  for (size_t i = 0; i < rules.outputs(); ++i) rules.require_same(rules.output(i), rules.input(kX));
  for (const int i : {kW, kR})
    rules.require_that(args.inputs[i].min == args.inputs[i].max, "the shape of the weights, input ",
                       i, ", must be fixed, but is ", args.inputs[i].min, " to ",
                       args.inputs[i].max);
}

std::unique_ptr<Kernel> make_recurrence(const Operator& op, const KernelArgs& args) {
  return std::make_unique<RecurrenceKernel>(static_cast<const Recurrence&>(op).params(), args);
}

const RegisteredKernels<Recurrence> kRecurrenceKernels({recurrence_candidates, make_recurrence,
                                                        check_recurrence, /*packed_input=*/kW,
                                                        /*other_packed_input=*/kR});

}  // namespace
}  // namespace opwright
