#include "plugin/host_kernel.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {

namespace {

/// The function's own calling convention: args[i] points to argument i.
using HostFunction = void(void** args, int64_t x, int64_t y, int64_t z);

/// A run cannot be interrupted, and a cell takes a nanosecond at least. As much as the grid of a
/// GPU has in x.
constexpr int64_t kMaxCells = std::numeric_limits<int32_t>::max();

constexpr const char* kGridNames[] = {"grid_x", "grid_y", "grid_z"};
constexpr const char* kBlockNames[] = {"block_x", "block_y", "block_z"};

class HostKernel final : public Kernel {
 public:
  HostKernel(const KernelLaunch& launch, std::string name, std::shared_ptr<const HostCode> code,
             const KernelArgs& args)
      : layer_(args.layer),
        name_(std::move(name)),
        launch_(launch),
        code_(std::move(code)),
        function_(reinterpret_cast<HostFunction*>(code_->symbol(launch_.symbol))),
        num_inputs_(args.inputs.size()),
        num_outputs_(args.outputs.size()),
        values_(launch_.program.size()),
        scalars_(launch_.arguments.size()),
        pointers_(num_inputs_ + num_outputs_) {
    for (size_t i = 0; i < num_inputs_; ++i) {
      const int rank = args.inputs[i].present ? args.inputs[i].opt.rank() : 0;
      for (int axis = 0; axis < rank; ++axis)
        symbol_names_.push_back(str("inputs[", i, "].shape[", axis, "]"));
    }
    require(launch_.scratch.empty(), "layer '", layer_, "': compiled kernel '", name_,
            "' wants scratch memory, which only kernels for GPUs get");
    num_extents_ = symbol_names_.size();
    for (const int32_t input : launch_.shape_inputs) add_shape_input(input, args.inputs);
    symbols_.resize(symbol_names_.size());
    validate(launch_.program, static_cast<int>(symbols_.size()));
    for (size_t i = 0; i < num_inputs_; ++i) args_.push_back(&pointers_[i]);
    for (size_t i = 0; i < scalars_.size(); ++i) {
      const bool is_pointer = launch_.arguments[i].type == ArgumentType::kPOINTER;
      scalars_[i].address = &scalars_[i].int64;
      args_.push_back(is_pointer ? static_cast<void*>(&scalars_[i].address) : &scalars_[i].int64);
    }
    for (size_t o = 0; o < num_outputs_; ++o) args_.push_back(&pointers_[num_inputs_ + o]);
  }

  std::string description() const override { return "compiled:" + launch_.symbol; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    size_t next = 0;
    for (const Shape& input : inputs)
      for (const int64_t extent : input)
        if (next < num_extents_) symbols_[next++] = extent;
    unwritten_.reset();
    for (size_t o = 0; o < outputs.size() && !unwritten_; ++o)
      if (outputs[o].numel() != 0) unwritten_ = o;
    is_prepared_ = false;
    if (shape_inputs_.empty()) prepare();  // else once their elements are there
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    for (size_t i = 0; i < num_inputs_; ++i) pointers_[i] = const_cast<void*>(inputs[i]);
    for (size_t o = 0; o < num_outputs_; ++o) pointers_[num_inputs_ + o] = outputs[o];
    if (!shape_inputs_.empty()) [[unlikely]]
      read_shape_inputs(inputs);
    if (cells_ == 1) {
      function_(args_.data(), 0, 0, 0);
      return;
    }
    parallel_for(cells_, 1, [this](int64_t begin, int64_t end) {
      int64_t x = begin % grid_[0];
      int64_t y = begin / grid_[0] % grid_[1];
      int64_t z = begin / grid_[0] / grid_[1];
      for (int64_t cell = begin; cell < end; ++cell) {
        function_(args_.data(), x, y, z);
        if (++x < grid_[0]) continue;
        x = 0;
        if (++y < grid_[1]) continue;
        y = 0;
        ++z;
      }
    });
  }

 private:
  struct Scalar {
    union {
      int8_t int8;
      int16_t int16;
      int32_t int32;
      int64_t int64 = 0;
      float float32;
      double float64;
    };
    void* address = nullptr;  ///< of the value, which is what a pointer argument is
  };
  struct ShapeInput {
    size_t input;
    DataType dtype;
    size_t first, count;  ///< among the symbols
  };

  void add_shape_input(int32_t input, std::span<const PortDesc> ports) {
    require(std::cmp_less(input, ports.size()) && ports[static_cast<size_t>(input)].present,
            "input ", input, " of compiled kernel '", name_, "', a shape input, is absent");
    const PortDesc& port = ports[static_cast<size_t>(input)];
    const DataType dtype = port.type.dtype;
    require(dtype == DataType::kINT32 || dtype == DataType::kINT64, "input ", input,
            " of compiled kernel '", name_, "' is a shape input of type ", name(dtype),
            "; expected INT32 or INT64");
    const int64_t count = port.opt.numel();
    require(port.min == port.max && count <= TensorInfo::kMaxValues, "input ", input,
            " of compiled kernel '", name_, "' is a shape input of shape ", port.max,
            "; expected a constant shape of at most ", TensorInfo::kMaxValues, " elements");
    shape_inputs_.push_back(
        {static_cast<size_t>(input), dtype, symbol_names_.size(), static_cast<size_t>(count)});
    for (int64_t i = 0; i < count; ++i)
      symbol_names_.push_back(str("inputs[", input, "][", i, "]"));
  }

  void read_shape_inputs(void const* const* inputs) {
    for (const ShapeInput& shape : shape_inputs_) {
      const void* data = inputs[shape.input];
      for (size_t i = 0; i < shape.count; ++i) {
        const int64_t value = shape.dtype == DataType::kINT32
                                  ? static_cast<const int32_t*>(data)[i]
                                  : static_cast<const int64_t*>(data)[i];
        int64_t& symbol = symbols_[shape.first + i];
        is_prepared_ &= symbol == value;
        symbol = value;
      }
    }
    if (!is_prepared_) prepare();
  }

  /// Evaluates the launch for the symbols.
  void prepare() {
    try {
      evaluate(launch_.program, symbols_, values_);
    } catch (const Error& error) {
      fail(who(), find_failing(), ": ", error.what());
    }
    require_checks(launch_, values_, layer_, name_);
    __int128 cells = 1;
    for (int i = 0; i < 3; ++i) {
      grid_[i] = values_[launch_.grid[i]];
      require_at_least(grid_[i] == 0 && !unwritten_ ? 0 : 1, launch_.grid[i], kGridNames[i]);
      require_at_least(1, launch_.block[i], kBlockNames[i]);
      // At most 2^31 times 2^63.
      cells = std::min<__int128>(cells * grid_[i], __int128{kMaxCells} + 1);
    }
    require(cells <= kMaxCells, who(), "the grid has ", values_[launch_.grid[0]], " x ",
            values_[launch_.grid[1]], " x ", values_[launch_.grid[2]], " cells (",
            text(launch_.grid[0]), ", ", text(launch_.grid[1]), ", ", text(launch_.grid[2]),
            "); at most ", kMaxCells, " run, so let a cell compute more");
    cells_ = static_cast<int64_t>(cells);
    require_at_least(0, launch_.shared_memory, "shared_mem");
    for (size_t i = 0; i < scalars_.size(); ++i) set_scalar(i);
    is_prepared_ = true;
  }

  /// "layer 'l': compiled kernel 'ns::plugin kernel': "
  std::string who() const { return str("layer '", layer_, "': compiled kernel '", name_, "': "); }

  /// "inputs[0].shape[1] - 4"
  std::string text(int32_t instruction) const {
    try {
      return launch_.expression(instruction).str(symbol_names_);
    } catch (const Error& error) {
      return error.what();
    }
  }

  void require_at_least(int64_t least, int32_t instruction, const char* what) const {
    const int64_t value = values_[instruction];
    if (value >= least) [[likely]]
      return;
    if (value == 0 && unwritten_)
      fail(who(), what, " is 0 (", text(instruction), "), so that nothing would write output ",
           *unwritten_, ", which has elements; it must be at least ", least);
    fail(who(), what, " is ", value, " (", text(instruction), "); it must be at least ", least);
  }

  /// The first of the launch's expressions that has no value for the symbols.
  std::string find_failing() const {
    std::vector<std::pair<std::string, int32_t>> parts;
    for (int i = 0; i < 3; ++i) {
      parts.emplace_back(kGridNames[i], launch_.grid[i]);
      parts.emplace_back(kBlockNames[i], launch_.block[i]);
    }
    parts.emplace_back("shared_mem", launch_.shared_memory);
    for (size_t i = 0; i < launch_.arguments.size(); ++i)
      parts.emplace_back(str("extra argument ", i), launch_.arguments[i].value);
    for (const auto& [what, instruction] : parts) {
      try {
        launch_.expression(instruction).evaluate(symbols_);
      } catch (const Error&) {
        return str(what, " (", text(instruction), ")");
      }
    }
    return "the launch parameters";
  }

  template <class T>
  T narrow(size_t i, int64_t value) const {
    if (!std::in_range<T>(value)) [[unlikely]]
      fail(who(), "extra argument ", i, " is ", value, " (", text(launch_.arguments[i].value),
           "), which does not fit ", 8 * sizeof(T), " bits; pass it as SymInt64");
    return static_cast<T>(value);
  }

  void set_scalar(size_t i) {
    const KernelLaunch::Argument& argument = launch_.arguments[i];
    const int64_t value = values_[argument.value];
    switch (argument.type) {
      case ArgumentType::kINT8:
        scalars_[i].int8 = narrow<int8_t>(i, value);
        break;
      case ArgumentType::kINT16:
        scalars_[i].int16 = narrow<int16_t>(i, value);
        break;
      case ArgumentType::kINT32:
        scalars_[i].int32 = narrow<int32_t>(i, value);
        break;
      case ArgumentType::kINT64:
      case ArgumentType::kPOINTER:
        scalars_[i].int64 = value;
        break;
      case ArgumentType::kFLOAT32:
        scalars_[i].float32 = static_cast<float>(static_cast<double>(value) + argument.constant);
        break;
      case ArgumentType::kFLOAT64:
        scalars_[i].float64 = static_cast<double>(value) + argument.constant;
        break;
    }
  }

  const std::string layer_, name_;
  const KernelLaunch launch_;
  const std::shared_ptr<const HostCode> code_;
  HostFunction* const function_;
  const size_t num_inputs_, num_outputs_;
  size_t num_extents_ = 0;
  std::vector<std::string> symbol_names_;
  std::vector<ShapeInput> shape_inputs_;
  std::vector<int64_t> symbols_, values_;
  std::vector<Scalar> scalars_;
  std::vector<void*> pointers_;
  std::vector<void*> args_;
  std::array<int64_t, 3> grid_{};
  int64_t cells_ = 0;
  std::optional<size_t> unwritten_;  // an output with elements
  bool is_prepared_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_host_kernel(const KernelLaunch& launch, std::string name,
                                         std::shared_ptr<const HostCode> code,
                                         const KernelArgs& args) {
  return std::make_unique<HostKernel>(launch, std::move(name), std::move(code), args);
}

}  // namespace opwright
