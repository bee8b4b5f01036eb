#include "operators/movement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

constexpr DataType kSizes[] = {DataType::kINT8, DataType::kHALF, DataType::kFLOAT,
                               DataType::kINT64};

/// Small integers, which every type holds exactly.
Values numbered(const Shape& shape) {
  return make_values(shape, [](int64_t i) { return static_cast<double>(i * 7 % 113); });
}

std::vector<int64_t> unravel(int64_t i, const Shape& shape) {
  std::vector<int64_t> index(shape.rank());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = i % shape[axis];
    i /= shape[axis];
  }
  return index;
}
int64_t ravel(std::span<const int64_t> index, const Shape& shape) {
  int64_t i = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) i = i * shape[axis] + index[axis];
  return i;
}

/// Runs the operator in all the ways that the device knows. Of a GPU also those where the profile
/// leaves the extents open and tensors that are aligned to elements only.
void check(const Operator& op, const std::vector<TestInput>& inputs, const TestOutput& output,
           const Values& expected) {
  const std::vector<TestOutput> outputs = {output};
  std::vector<PortDesc> input_ports = describe(inputs), output_ports = describe(outputs);
  const auto run = [&](const char* what, std::initializer_list<int> shifts) {
    for (const Candidate& candidate : candidates_of(op, input_ports, output_ports)) {
      TestKernel kernel(op, candidate, input_ports, output_ports);
      for (const int shift : shifts) {
        SCOPED_TRACE(::testing::Message() << what << describe(candidate) << " shift " << shift);
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, 0);
      }
    }
  };
  if (test_device().is_host()) return run("", {0});
  run("", {0, 1});
  const auto open = [](PortDesc& port, int kept) {
    for (int i = 0; i < port.max.rank() - kept; ++i) {
      port.min[i] = 0;
      port.max[i] += 7;
    }
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!op.is_shape_input(static_cast<int>(i)))  // and tuples have a constant length
      open(input_ports[i], op.kind() == Gather::kKind && i == 1 ? 1 : 0);
  open(output_ports[0], 0);
  run("open ", {0, 1});
}

TEST(Transpose, EveryPermutationAndElementSize) {
  Selection selection(97);
  const std::vector<Shape> shapes = {{2, 3, 4, 5},   {1, 17, 33, 2}, {70, 1, 65, 3},
                                     {3, 64, 20, 1}, {5, 7, 1, 31},  {1, 1, 1, 1}};
  for (const DataType type : kSizes) {
    for (const Shape& shape : shapes) {
      Ints permutation = {0, 1, 2, 3};
      do {
        if (!selection.takes_next()) continue;
        Shape result;
        for (const int64_t axis : permutation) result.push_back(shape[axis]);
        SCOPED_TRACE(::testing::Message() << name(type) << " " << shape << " to " << result);
        const Values x = numbered(shape);
        const Values expected = make_values(result, [&](int64_t i) {
          const std::vector<int64_t> to = unravel(i, result);
          int64_t from[4];
          for (int axis = 0; axis < 4; ++axis) from[permutation[axis]] = to[axis];
          return x[ravel(from, shape)];
        });
        check(Transpose({permutation}), {{x, type}}, {result, type}, expected);
      } while (std::next_permutation(permutation.begin(), permutation.end()));
    }
  }
}

TEST(Transpose, LargeMatricesAndEmptyTensors) {
  const Values x = numbered({1100, 90});
  const Values expected =
      make_values({90, 1100}, [&](int64_t i) { return x[i % 1100 * 90 + i / 1100]; });
  check(Transpose({{1, 0}}), {{x}}, {{90, 1100}}, expected);
  check(Transpose({{1, 0}}), {{Values{Shape{0, 4}, {}}}}, {{4, 0}}, Values{Shape{4, 0}, {}});
}

// Lines of these rows share a set of the nearest cache.
TEST(Transpose, RowsApartByAPage) {
  for (const DataType type : kSizes) {
    const Values x =
        make_values({1024, 70}, [](int64_t i) { return static_cast<double>(i % 127); });
    const Values expected =
        make_values({70, 1024}, [&](int64_t i) { return x[i % 1024 * 70 + i / 1024]; });
    check(Transpose({{1, 0}}), {{x, type}}, {{70, 1024}, type}, expected);
  }
}

/// The permutation of SpaceToDepth, of rows that vectors divide and that they do not.
TEST(Transpose, ElementsOfPairs) {
  for (const int64_t width : {1, 16, 31, 1030}) {
    const Values x = numbered({3, 5, 2, width, 2});
    const Values expected = make_values({2, 2, 3, 5, width}, [&](int64_t i) {
      const int64_t column = i % width, row = i / width % 5, channel = i / width / 5 % 3;
      const int64_t right = i / width / 15 % 2, below = i / width / 30;
      return x[(((channel * 5 + row) * 2 + below) * width + column) * 2 + right];
    });
    check(Transpose({{2, 4, 0, 1, 3}}), {{x}}, {{2, 2, 3, 5, width}}, expected);
  }
}

TEST(Transpose, ShortRowsOfEveryExtent) {
  for (const DataType type : kSizes)
    for (const int64_t extent : {2, 3, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << name(type) << " rows of " << extent);
      const Values x = numbered({37, 3, 21, extent});
      const auto moved = [&](const Shape& shape, int64_t rows) {
        return make_values(shape, [&](int64_t i) {
          const int64_t last = i % extent, row = i / extent % rows, column = i / extent / rows;
          return x[(row * (37 * 63 / rows) + column) * extent + last];
        });
      };
      check(Transpose({{1, 2, 0, 3}}), {{x, type}}, {{3, 21, 37, extent}, type},
            moved({3, 21, 37, extent}, 37));
      check(Transpose({{2, 0, 1, 3}}), {{x, type}}, {{21, 37, 3, extent}, type},
            moved({21, 37, 3, extent}, 37 * 3));
      check(Transpose({{0, 1, 2, 3}}), {{x, type}}, {x.shape, type}, x);
    }
}
TEST(Transpose, RowsAndVectors) {
  const Values x = numbered({6, 5, 32});
  const Values expected = make_values(
      {5, 6, 32}, [&](int64_t i) { return x[(i / 32 % 6 * 5 + i / 192) * 32 + i % 32]; });
  for (const DataType type : kSizes) {
    check(Transpose({{1, 0, 2}}), {{x, type}}, {{5, 6, 32}, type}, expected);
  }
}

/// By definition: reshape, transpose, reshape.
Values shuffled(const Values& x, int64_t groups) {
  const int64_t channels = x.shape[1], per_group = channels / groups;
  const int64_t pixels = x.shape.numel(2, x.shape.rank());
  return make_values(x.shape, [&](int64_t i) {
    const int64_t pixel = i % pixels, channel = i / pixels % channels,
                  image = i / pixels / channels;
    const int64_t from = channel % groups * per_group + channel / groups;
    return x[(image * channels + from) * pixels + pixel];
  });
}

TEST(ChannelShuffle, EveryFormatAndElementSize) {
  Selection selection(7);
  const struct {
    Shape shape;
    int64_t groups;
  } cases[] = {{{2, 136, 3, 5}, 4}, {{1, 34, 4, 4}, 2}, {{1, 48, 7, 1}, 8},   {{3, 15, 2, 2}, 3},
               {{1, 64, 5, 2}, 16}, {{2, 12, 6}, 4},    {{5, 24}, 3},         {{1, 7, 3, 3}, 7},
               {{1, 7, 3, 3}, 1},   {{0, 8, 3, 3}, 2},  {{1, 20, 2, 3, 4}, 5}};
  for (const auto& c : cases) {
    for (const DataType type : kSizes) {
      if (!selection.takes_next()) continue;
      SCOPED_TRACE(::testing::Message() << name(type) << " " << c.shape << " in " << c.groups);
      const Values x = numbered(c.shape);
      const ChannelShuffle op({c.groups});
      check(op, {{x, type}}, {c.shape, type}, shuffled(x, c.groups));
      if (c.shape.rank() != 4 || !test_device().is_host()) continue;
      // What another processor's plan may have.
      const PortType blocks{type, TensorFormat::kCHW16};
      const std::vector<TestInput> inputs = {{x, type}};
      const std::vector<TestOutput> outputs = {{c.shape, type}};
      expect_close(run_kernel(op, {{blocks}, {blocks}, 0, ""}, inputs, outputs)[0],
                   shuffled(x, c.groups), 0);
    }
  }
}

TEST(Reshape, CopiesTheElements) {
  for (const DataType type : kSizes) {
    Values x = numbered({40, 1000}), y = x;
    y.shape = {100, 400};
    check(Reshape(), {{x, type}}, {y.shape, type}, y);
  }
}

/// What the operator's description says, element by element.
Values sliced(const Values& x, const Shape& result, const SliceParams& params, double fill) {
  return make_values(result, [&](int64_t i) {
    std::vector<int64_t> index = unravel(i, result);
    for (int axis = 0; axis < result.rank(); ++axis) {
      const int64_t extent = x.shape[axis];
      int64_t at = params.start[axis] + index[axis] * params.stride[axis];
      if (at < 0 || at >= extent) {
        if (params.mode == SampleMode::kFILL) return fill;
        if (params.mode == SampleMode::kCLAMP) at = std::clamp<int64_t>(at, 0, extent - 1);
        while (params.mode == SampleMode::kWRAP && at < 0) at += extent;
        if (params.mode == SampleMode::kWRAP) at %= extent;
        while (params.mode == SampleMode::kREFLECT && (at < 0 || at >= extent)) {
          if (extent == 1) at = 0;
          if (at < 0) at = -at;
          if (at >= extent) at = 2 * (extent - 1) - at;
        }
      }
      index[axis] = at;
    }
    return x[ravel(index, x.shape)];
  });
}

TEST(Slice, RandomSlicesInEveryMode) {
  std::mt19937 random(3);
  const auto between = [&](int low, int high) {
    return low + static_cast<int64_t>(random() % (high - low + 1));
  };
  Selection selection(97);
  for (int round = 0; round < 600; ++round) {
    Shape shape, result;
    SliceParams params;
    params.mode = static_cast<SampleMode>(round % 5);
    for (int64_t axis = between(1, 4); axis > 0; --axis) {
      const int64_t extent = between(1, 9);
      shape.push_back(extent);
      if (between(0, 2) == 0) {  // the whole axis
        params.start.push_back(0), params.stride.push_back(1), result.push_back(extent);
      } else if (params.mode == SampleMode::kSTRICT_BOUNDS) {
        const int64_t first = between(0, extent - 1), last = between(0, extent - 1);
        const int64_t stride = first == last ? between(-2, 2) : first < last ? 1 : -1;
        params.start.push_back(first), params.stride.push_back(stride);
        result.push_back(first == last ? (stride == 0 ? 5 : 1) : std::abs(last - first) + 1);
      } else {
        params.start.push_back(between(-12, 12)), params.stride.push_back(between(-3, 3));
        result.push_back(between(1, 12));
      }
    }
    params.size.assign(result.begin(), result.end());
    if (!selection.takes_next()) continue;
    const DataType type = kSizes[round % 4];
    SCOPED_TRACE(::testing::Message() << round << ": " << shape << " to " << result);
    const Values x = numbered(shape);
    const bool has_fill = round % 2;
    const Values expected = sliced(x, result, params, has_fill ? 3 : 0);
    const TestInput fill = has_fill ? TestInput{{Shape{}, {3}}, type} : absent();
    check(Slice(params), {{x, type}, absent(), absent(), absent(), fill}, {result, type}, expected);

    // The same from shape tensors.
    const auto vector = [&](const Ints& values) {
      return TestInput{make_values({static_cast<int64_t>(values.size())},
                                   [&](int64_t i) { return static_cast<double>(values[i]); }),
                       round % 3 ? DataType::kINT64 : DataType::kINT32};
    };
    SliceParams dynamic;
    dynamic.mode = params.mode;
    check(Slice(dynamic),
          {{x, type}, vector(params.start), vector(params.size), vector(params.stride), fill},
          {result, type}, expected);
    if (HasFailure()) return;
  }
}

TEST(Slice, ReadsShapeTensorsAnewInEveryRun) {
  const Values x = numbered({10});
  const Slice op(SliceParams{});
  const auto inputs = [&](double start) {
    return std::vector<TestInput>{
        {x}, {{Shape{1}, {start}}, DataType::kINT32}, {{Shape{1}, {3}}, DataType::kINT32}};
  };
  const std::vector<TestOutput> outputs = {{{3}}};
  SliceParams params;
  params.stride = {1};
  TestKernel kernel(Slice(params), candidates_of(op, inputs(0), outputs).at(0), inputs(0), outputs);
  for (const double start : {0.0, 4.0, 7.0}) {
    const Values expected{Shape{3}, {x[start], x[start + 1], x[start + 2]}};
    expect_close(kernel.run(inputs(start), outputs)[0], expected, 0);
  }
  EXPECT_THROW(kernel.run(inputs(8), outputs), std::exception);
  EXPECT_THROW(kernel.run(inputs(-1), outputs), std::exception);
  const Values expected{Shape{3}, {x[2], x[3], x[4]}};
  expect_close(kernel.run(inputs(2), outputs)[0], expected, 0);
}

TEST(Slice, AxesAndPadding) {
  SliceParams params;
  params.start = {-2, -1}, params.size = {12, 9}, params.stride = {1, 1}, params.axes = {-1, 2};
  params.mode = SampleMode::kFILL;
  const Values x = numbered({3, 4, 7, 8});
  SliceParams all = params;
  all.start = {0, 0, -1, -2}, all.stride = {1, 1, 1, 1};
  const Shape result = {3, 4, 9, 12};
  check(Slice(params), {{x}}, {result}, sliced(x, result, all, 0));
  check(Slice(params), {{Values{Shape{0, 4, 7, 8}, {}}}}, {{0, 4, 9, 12}},
        Values{Shape{0, 4, 9, 12}, {}});
}

/// Runs of a row that vectors can take, each mode with all of its axes.
TEST(Slice, VectorsInEveryMode) {
  for (int mode = 0; mode < 5; ++mode) {
    for (const DataType type : {DataType::kHALF, DataType::kFLOAT}) {
      const Values x = numbered({3, 5, 16, 32});
      SliceParams params;
      params.mode = static_cast<SampleMode>(mode);
      Shape result = {3, 5, 16, 16};
      params.start = {0, 0, 0, 8}, params.stride = {1, 1, 1, 1};
      if (params.mode != SampleMode::kSTRICT_BOUNDS) {
        params.start = {0, -2, -3, -8};
        result = {3, 9, 22, 48};
      }
      params.size.assign(result.begin(), result.end());
      const Values expected = sliced(x, result, params, 0);
      check(Slice(params), {{x, type}}, {result, type}, expected);
    }
  }
}

TEST(Slice, Broadcasts) {
  SliceParams params;
  params.start = {0, 2, 0}, params.size = {4, 3, 24}, params.stride = {0, 1, 0};
  const Values x = numbered({1, 6, 1});
  const Shape result = {4, 3, 24};
  for (const DataType type : kSizes) {
    check(Slice(params), {{x, type}}, {result, type}, sliced(x, result, params, 0));
  }
}

TEST(Concatenation, EveryAxisFormatAndElementSize) {
  Selection selection(17);
  for (const DataType type : kSizes) {
    for (int axis = -4; axis < 4; ++axis) {
      for (const int64_t last : {16, 5}) {
        if (!selection.takes_next()) continue;
        const int at = axis < 0 ? axis + 4 : axis;
        std::vector<TestInput> inputs;
        Shape result = {2, 32, 3, 5};
        result[at] = 0;
        for (const int64_t extent : {int64_t{32}, int64_t{0}, int64_t{16}, last}) {
          Shape shape = {2, 32, 3, 5};
          shape[at] = extent;
          result[at] += extent;
          Values x = numbered(shape);
          for (double& v : x.data) v += inputs.size();
          inputs.push_back({x, type});
        }
        const Values expected = make_values(result, [&](int64_t i) {
          std::vector<int64_t> index = unravel(i, result);
          for (const TestInput& input : inputs) {
            if (index[at] < input.values.shape[at])
              return input.values[ravel(index, input.values.shape)];
            index[at] -= input.values.shape[at];
          }
          return -1.0;
        });
        SCOPED_TRACE(::testing::Message() << name(type) << " axis " << axis << " " << result);
        check(Concatenation({axis}), inputs, {result, type}, expected);
      }
    }
  }
}

TEST(Concatenation, PaddedChannelsOnlyAtTheEnd) {
  const std::vector<TestInput> inputs = {{numbered({1, 5, 2, 2})}, {numbered({1, 16, 2, 2})}};
  const std::vector<TestOutput> outputs = {{{1, 21, 2, 2}}};
  for (const Candidate& candidate : candidates_of(Concatenation({1}), inputs, outputs))
    EXPECT_NE(candidate.outputs[0].format, TensorFormat::kCHW16);
}

TEST(Concatenation, LongPieces) {
  for (const int64_t odd : {0, 3}) {
    const std::vector<TestInput> inputs = {{numbered({3, 700})}, {numbered({3, 400 + odd})}};
    const Shape result = {3, 1100 + odd};
    const Values expected = make_values(result, [&](int64_t i) {
      const int64_t row = i / result[1], column = i % result[1];
      return column < 700 ? inputs[0].values[row * 700 + column]
                          : inputs[1].values[row * (400 + odd) + column - 700];
    });
    check(Concatenation({1}), inputs, {result}, expected);
  }
}

TEST(Concatenation, ManyInputs) {
  std::vector<TestInput> inputs;
  Values expected{Shape{0}, {}};
  for (int i = 0; i < 100; ++i) {
    inputs.push_back({numbered({i % 4})});
    for (double& value : inputs.back().values.data) expected.data.push_back(value += i);
  }
  expected.shape[0] = expected.size();
  check(Concatenation({0}), inputs, {expected.shape}, expected);
}

TEST(Concatenation, ExtentsThatDisagreeAreAnError) {
  const std::vector<TestInput> inputs = {{numbered({2, 3})}, {numbered({2, 4})}};
  const std::vector<TestInput> others = {{numbered({2, 3})}, {numbered({3, 4})}};
  const std::vector<TestOutput> outputs = {{{2, 7}}};
  const Concatenation op({1});
  std::vector<PortDesc> ports = describe(inputs);
  for (PortDesc& port : ports) port.max[0] = 3;
  const std::vector<PortDesc> output_ports = describe(outputs);
  TestKernel kernel(op, candidates_of(op, ports, output_ports).at(0), ports, output_ports);
  kernel.run(inputs, outputs);
  EXPECT_THROW(kernel.run(others, outputs), std::exception);
}

/// An index counted from the end where negative; -1 when it is out of range.
int64_t normalized(double index, int64_t extent) {
  const auto i = static_cast<int64_t>(index);
  if (i >= 0) return i < extent ? i : -1;
  return i >= -extent ? i + extent : -1;
}

TEST(Gather, SlicesAlongEveryAxis) {
  Selection selection(5);
  for (const DataType index_type : {DataType::kINT32, DataType::kINT64}) {
    for (const DataType type : kSizes) {
      for (int axis = 0; axis < 3; ++axis) {
        if (!selection.takes_next()) continue;
        const Values x = numbered({4, 5, 6});
        // Out of range on both sides as well.
        const Values indices = random_values({3, 2}, axis + 1, -8.9, 8.9);
        Values whole = indices;
        for (double& v : whole.data) v = std::trunc(v);
        Shape result;
        for (int i = 0; i < axis; ++i) result.push_back(x.shape[i]);
        result.push_back(3), result.push_back(2);
        for (int i = axis + 1; i < 3; ++i) result.push_back(x.shape[i]);
        const Values expected = make_values(result, [&](int64_t i) {
          const std::vector<int64_t> to = unravel(i, result);
          std::vector<int64_t> from(to.begin(), to.begin() + axis);
          const int64_t at = normalized(whole[to[axis] * 2 + to[axis + 1]], x.shape[axis]);
          if (at < 0) return 0.0;
          from.push_back(at);
          from.insert(from.end(), to.begin() + axis + 2, to.end());
          return x[ravel(from, x.shape)];
        });
        SCOPED_TRACE(axis);
        check(Gather({GatherMode::kDEFAULT, axis}), {{x, type}, {whole, index_type}},
              {result, type}, expected);
      }
    }
  }
}

TEST(Gather, BatchesOfSlicesAndScalarIndices) {
  const Values x = numbered({2, 3, 5, 4});
  const Values indices{Shape{2, 3}, {0, 4, -1, 2, 2, 7}};
  const Values expected = make_values({2, 3, 3, 4}, [&](int64_t i) {
    const std::vector<int64_t> to = unravel(i, {2, 3, 3, 4});
    const int64_t at = normalized(indices[to[0] * 3 + to[2]], 5);
    return at < 0 ? 0.0 : x[((to[0] * 3 + to[1]) * 5 + at) * 4 + to[3]];
  });
  check(Gather({GatherMode::kDEFAULT, 2, 1}), {{x}, {indices, DataType::kINT32}}, {{2, 3, 3, 4}},
        expected);
  check(Gather({GatherMode::kDEFAULT, 0}),
        {{numbered({3, 4})}, {{Shape{}, {-1}}, DataType::kINT64}}, {{4}},
        make_values({4}, [](int64_t i) { return static_cast<double>((8 + i) * 7 % 113); }));
}

TEST(Gather, LongSlices) {
  const Values x = numbered({7, 64}), indices{Shape{5}, {6, -7, 7, -8, 2}};
  const Values expected = make_values({5, 64}, [&](int64_t i) {
    const int64_t at = normalized(indices[i / 64], 7);
    return at < 0 ? 0.0 : x[at * 64 + i % 64];
  });
  for (const DataType type : kSizes)
    check(Gather({GatherMode::kDEFAULT, 0}), {{x, type}, {indices, DataType::kINT64}},
          {{5, 64}, type}, expected);
}

TEST(Gather, SingleElements) {
  Selection selection(5);
  for (int axis = 0; axis < 3; ++axis) {
    const Values x = numbered({4, 5, 6});
    Shape shape = {3, 5, 2};  // smaller than the data
    Values indices = random_values(shape, axis + 1, -7.9, 7.9);
    for (double& v : indices.data) v = std::trunc(v);
    const Values expected = make_values(shape, [&](int64_t i) {
      std::vector<int64_t> at = unravel(i, shape);
      at[axis] = normalized(indices[i], x.shape[axis]);
      return at[axis] < 0 ? 0.0 : x[ravel(at, x.shape)];
    });
    for (const DataType type : kSizes)
      if (selection.takes_next())
        check(Gather({GatherMode::kELEMENT, axis}), {{x, type}, {indices, DataType::kINT32}},
              {shape, type}, expected);
  }
}

TEST(Gather, Tuples) {
  const Values x = numbered({2, 3, 4, 5});
  for (const int64_t batch : {0, 1}) {
    for (int64_t tuple = 1; tuple <= 4 - batch; ++tuple) {
      Shape shape = {2, 3, tuple};
      Values indices = random_values(shape, 5, -4.9, 4.9);
      for (double& v : indices.data) v = std::trunc(v);
      Shape result = {2, 3};
      for (int64_t i = batch + tuple; i < 4; ++i) result.push_back(x.shape[i]);
      const Values expected = make_values(result, [&](int64_t i) {
        const std::vector<int64_t> to = unravel(i, result);
        std::vector<int64_t> from;
        if (batch) from.push_back(to[0]);
        for (int64_t k = 0; k < tuple; ++k) {
          from.push_back(normalized(indices[(to[0] * 3 + to[1]) * tuple + k],
                                    x.shape[static_cast<int>(batch + k)]));
          if (from.back() < 0) return 0.0;
        }
        from.insert(from.end(), to.begin() + 2, to.end());
        return x[ravel(from, x.shape)];
      });
      SCOPED_TRACE(::testing::Message() << batch << " " << tuple);
      check(Gather({GatherMode::kND, 0, batch}), {{x}, {indices, DataType::kINT64}}, {result},
            expected);
    }
  }
}

TEST(Gather, EmptyTensorsGiveZeros) {
  check(Gather({GatherMode::kDEFAULT, 0}),
        {{Values{Shape{0, 2}, {}}}, {{Shape{1}, {0}}, DataType::kINT32}}, {{1, 2}},
        Values{Shape{1, 2}, {0, 0}});
  check(Gather({GatherMode::kDEFAULT, 0}),
        {{numbered({3, 2})}, {Values{Shape{0}, {}}, DataType::kINT32}}, {{0, 2}},
        Values{Shape{0, 2}, {}});
}

}  // namespace
}  // namespace opwright::testing
