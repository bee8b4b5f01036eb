// What the launch of a compiled kernel costs besides the kernel: no allocation, and for a grid of 1
// no thread.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "allocations.h"
#include "base/parallel.h"
#include "plugin/compile_for_test.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/plugin_test.h"

namespace opwright {
namespace {

using DT = DataType;

/// Each cell writes its number and the thread that ran it; one cell for each element of x.
const char* const kThreads = R"(
#include <pthread.h>
extern "C" void threads(void** args, int64_t x, int64_t y, int64_t z) {
  int64_t* out = *(int64_t**)args[1];
  out[2 * x] = x;
  out[2 * x + 1] = (int64_t)pthread_self();
}
)";

class KernelLaunchCost : public testing::Test {
 protected:
  KernelLaunchCost() {
    KernelCode code;
    code.name = "threads";
    code.object = compile_for_test(kThreads);
    code.grid[0] = Expr::symbol(0);
    const Candidate candidate{
        {{DT::kINT64, TensorFormat::kLINEAR}}, {{DT::kINT64, TensorFormat::kLINEAR}}, 0, ""};
    const std::vector<PortDesc> in = {port(DT::kINT64, {1000})},
                                out = {port(DT::kINT64, {1000, 2})};
    operator_ = make_compiled_kernel(std::move(code));
    kernel_ = operator_->make_kernel(make_args(candidate, in, out));
  }
  ~KernelLaunchCost() override { set_thread_count(threads_); }

  void set_cells(int64_t cells) {
    const Shape in = {cells}, out = {cells, 2};
    kernel_->on_shape_change({&in, 1}, {&out, 1});
    result_.assign(static_cast<size_t>(2 * cells), -1);
  }
  void enqueue() {
    void const* inputs[] = {result_.data()};  // not read
    void* outputs[] = {result_.data()};
    kernel_->enqueue(inputs, outputs, nullptr, nullptr);
  }

  PlannedOperatorPtr operator_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<int64_t> result_;
  const int threads_ = thread_count();
};

TEST_F(KernelLaunchCost, AGridReachesTheLoopWithoutAllocation) {
  for (const int threads : {1, 2, 4}) {
    set_thread_count(threads);
    for (const int64_t cells : {1, 2, 1000}) {
      set_cells(cells);
      // The first calls start the threads, which allocate until they run.
      const auto allocations = [&] {
        const long before = allocation_count();
        for (int i = 0; i < 100; ++i) enqueue();
        return allocation_count() - before;
      };
      long found = allocations();
      for (int round = 0; round < 20 && found > 0; ++round) found = allocations();
      EXPECT_EQ(found, 0) << cells << " cells, " << threads << " threads";
      for (int64_t cell = 0; cell < cells; ++cell)
        ASSERT_EQ(result_[static_cast<size_t>(2 * cell)], cell);
    }
  }
}

TEST_F(KernelLaunchCost, AGridOfOneRunsOnTheCallingThread) {
  set_cells(1);
  std::thread([this] {  // for which OpenMP has no threads yet
    set_thread_count(4);
    const auto running = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    const auto before = running();
    enqueue();
    EXPECT_EQ(running(), before);
    EXPECT_EQ(result_[1], static_cast<int64_t>(pthread_self()));
  })
      .join();
}

}  // namespace
}  // namespace opwright
