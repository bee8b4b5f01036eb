#include <gtest/gtest.h>

#include "compile/passes.h"
#include "graph_run.h"
#include "operators/layer_writer.h"

namespace opwright {
namespace {

constexpr int64_t kBatch = 2, kHeight = 8, kWidth = 12, kChannels = 3, kWindow = 4;

class RowMoves : public testing::Test {
 protected:
  Tensor* image() {
    return network_.add_input("x", DataType::kFLOAT, {kBatch, kHeight, kWidth, kChannels});
  }
  /// A cyclic shift along both axes of the image, as one slice or as slices that are joined.
  Tensor* roll(Tensor* x, int64_t rows, int64_t columns, bool is_joined) {
    if (!is_joined)
      return writer_.slice(x, {Expr(0), Expr(rows), Expr(columns), Expr(0)}, x->dims(),
                           {1, 1, 1, 1}, SampleMode::kWRAP);
    for (const auto& [axis, start] : {std::pair(1, rows), std::pair(2, columns)}) {
      const int64_t extent = x->dims()[static_cast<size_t>(axis)].constant();
      x = writer_.concatenate({writer_.slice_axis(x, axis, start, extent - start),
                               writer_.slice_axis(x, axis, 0, start)},
                              axis);
    }
    return x;
  }
  Tensor* windows(Tensor* x) {
    const SymShape apart = {kBatch,           kHeight / kWindow, kWindow,
                            kWidth / kWindow, kWindow,           kChannels};
    const SymShape all = {kBatch * kHeight / kWindow * kWidth / kWindow, kWindow * kWindow,
                          kChannels};
    return writer_.reshape(writer_.transpose(writer_.reshape(x, apart), {0, 1, 3, 2, 4, 5}), all);
  }
  Tensor* images(Tensor* x) {
    const SymShape apart = {kBatch,  kHeight / kWindow, kWidth / kWindow,
                            kWindow, kWindow,           kChannels};
    const SymShape all = {kBatch, kHeight, kWidth, kChannels};
    return writer_.reshape(writer_.transpose(writer_.reshape(x, apart), {0, 1, 3, 2, 4, 5}), all);
  }
  std::string kinds_of(Tensor* output) {
    network_.mark_output(*output);
    const ProfileRanges ranges(network_, nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph plain(network_);
    fold_shapes(plain);
    lower(plain);
    plain.remove_dead();
    Graph graph(network_);
    run_passes(graph, context);
    const std::vector<std::vector<float>> inputs = {
        random_floats(kBatch * kHeight * kWidth * kChannels, 1)};
    EXPECT_EQ(GraphRun(graph)(inputs), GraphRun(plain)(inputs));
    return kinds(graph);
  }
  Tensor* negated(Tensor* x) { return writer_.unary(UnaryOperation::kNEG, x); }

  Network network_;
  LayerWriter writer_{network_, "layer"};
};

TEST_F(RowMoves, ShiftedWindowsAreOneChoiceOfRows) {
  EXPECT_EQ(kinds_of(windows(roll(image(), 2, 2, false))), "Reshape Gather Reshape");
}

TEST_F(RowMoves, JoinedSlicesAreShifts) {
  EXPECT_EQ(kinds_of(windows(roll(image(), 2, 5, true))), "Reshape Gather Reshape");
}

TEST_F(RowMoves, WindowsAreShiftedBack) {
  Tensor* y = negated(windows(roll(image(), 2, 2, false)));
  EXPECT_EQ(kinds_of(roll(images(y), kHeight - 2, kWidth - 2, true)),
            "Reshape Gather Pointwise Gather Reshape");
}

TEST_F(RowMoves, WindowsThatAreNotShiftedStayTransposed) {
  EXPECT_EQ(kinds_of(windows(image())), "Reshape Transpose Reshape");
}

TEST_F(RowMoves, MovesWithinRowsStay) {
  Tensor* x = image();
  Tensor* y = writer_.slice(x, {Expr(0), Expr(1), Expr(0), Expr(1)}, x->dims(), {1, 1, 1, 1},
                            SampleMode::kWRAP);
  EXPECT_EQ(kinds_of(windows(y)), "Slice Reshape Transpose Reshape");
}

TEST_F(RowMoves, ShiftsThatOthersReadStay) {
  Tensor* y = roll(image(), 2, 2, false);
  network_.mark_output(*negated(y));
  EXPECT_NE(kinds_of(windows(y)).find("Slice"), std::string::npos);
}

/// The joined slices do not have the order of a shift.
TEST_F(RowMoves, OtherJoinedSlicesStay) {
  Tensor* x = image();
  Tensor* y = writer_.concatenate(
      {writer_.slice_axis(x, 1, 2, kHeight - 2), writer_.slice_axis(x, 1, 1, 2)}, 1);
  EXPECT_NE(kinds_of(windows(y)).find("Transpose"), std::string::npos);
}

}  // namespace
}  // namespace opwright
