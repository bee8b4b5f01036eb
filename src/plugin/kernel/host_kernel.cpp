#include "plugin/kernel/host_kernel.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "plugin/kernel/launch_values.h"

namespace opwright {

namespace {

/// The calling convention of the function: args[i] points to argument i.
using HostFunction = void(void** args, int64_t x, int64_t y, int64_t z);

/// The most cells of a grid, as many as a GPU's grid has in x. A run cannot be interrupted, and a
/// cell takes at least a nanosecond.
constexpr int64_t kMaxCells = std::numeric_limits<int32_t>::max();

class HostKernel final : public Kernel {
 public:
  HostKernel(const KernelLaunch& launch, std::string name, std::shared_ptr<const HostCode> code,
             const KernelArgs& args)
      : values_(launch, std::move(name), args),
        code_(std::move(code)),
        function_(reinterpret_cast<HostFunction*>(code_->symbol(launch.symbol))) {
    require(launch.scratch.empty(), values_.who(),
            "it wants scratch memory, which only kernels for GPUs get");
  }

  std::string description() const override { return "compiled:" + values_.launch().symbol; }

  void on_values_change(int input, std::span<const int64_t> elements) override {
    values_.set_values(input, elements);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    values_.set_shapes(inputs, outputs);
    prepare();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    values_.set_pointers(inputs, outputs);
    if (cells_ == 1) {
      function_(values_.arguments(), 0, 0, 0);
      return;
    }
    parallel_for(cells_, 1, [this](int64_t begin, int64_t end) {
      int64_t x = begin % grid_[0];
      int64_t y = begin / grid_[0] % grid_[1];
      int64_t z = begin / grid_[0] / grid_[1];
      for (int64_t cell = begin; cell < end; ++cell) {
        function_(values_.arguments(), x, y, z);
        if (++x < grid_[0]) continue;
        x = 0;
        if (++y < grid_[1]) continue;
        y = 0;
        ++z;
      }
    });
  }

 private:
  void prepare() {
    values_.evaluate();
    const std::array<int32_t, 3>& grid = values_.launch().grid;
    if (values_.cells() > kMaxCells) [[unlikely]]
      fail(values_.who(), "the grid has ", values_.value(grid[0]), " x ", values_.value(grid[1]),
           " x ", values_.value(grid[2]), " cells (", values_.text(grid[0]), ", ",
           values_.text(grid[1]), ", ", values_.text(grid[2]), "); at most ", kMaxCells,
           " run, so let a cell compute more");
    for (int i = 0; i < 3; ++i) grid_[i] = values_.value(grid[i]);
    cells_ = values_.cells();
    values_.accept();
  }

  LaunchValues values_;
  const std::shared_ptr<const HostCode> code_;
  HostFunction* const function_;
  std::array<int64_t, 3> grid_{};
  int64_t cells_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_host_kernel(const KernelLaunch& launch, std::string name,
                                         std::shared_ptr<const HostCode> code,
                                         const KernelArgs& args) {
  return std::make_unique<HostKernel>(launch, std::move(name), std::move(code), args);
}

}  // namespace opwright
