#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "network/operator.h"

/// Small tensors given as doubles, for tests of any device's kernels.
namespace opwright::testing {

/// A tensor's elements in row-major order, whatever the format it is handed to a kernel in.
struct Values {
  Shape shape;
  std::vector<double> data;

  double& operator[](int64_t i) { return data[i]; }
  double operator[](int64_t i) const { return data[i]; }
  int64_t size() const { return static_cast<int64_t>(data.size()); }
};
/// An input of a kernel under test.
struct TestInput {
  Values values;
  DataType dtype = DataType::kFLOAT;
  bool constant = false;
  bool present = true;
};
inline TestInput absent() { return {{}, DataType::kFLOAT, false, false}; }

struct TestOutput {
  Shape shape;
  DataType dtype = DataType::kFLOAT;
};

namespace detail {

inline double read(const void* bytes, DataType type, int64_t i) {
  if (type == DataType::kFLOAT) return static_cast<const float*>(bytes)[i];
  if (type == DataType::kHALF) return half_to_float(static_cast<const uint16_t*>(bytes)[i]);
  if (type == DataType::kBF16) return bfloat16_to_float(static_cast<const uint16_t*>(bytes)[i]);
  if (type == DataType::kFP8) return fp8_to_float(static_cast<const uint8_t*>(bytes)[i]);
  if (type == DataType::kINT8) return static_cast<const int8_t*>(bytes)[i];
  if (type == DataType::kINT32) return static_cast<const int32_t*>(bytes)[i];
  if (type == DataType::kINT64) return static_cast<double>(static_cast<const int64_t*>(bytes)[i]);
  return static_cast<const uint8_t*>(bytes)[i];
}

inline void write(void* bytes, DataType type, int64_t i, double value) {
  const auto single = static_cast<float>(value);
  if (type == DataType::kFLOAT)
    static_cast<float*>(bytes)[i] = single;
  else if (type == DataType::kHALF)
    static_cast<uint16_t*>(bytes)[i] = float_to_half(single);
  else if (type == DataType::kBF16)
    static_cast<uint16_t*>(bytes)[i] = float_to_bfloat16(single);
  else if (type == DataType::kFP8)
    static_cast<uint8_t*>(bytes)[i] = float_to_fp8(single);
  else if (type == DataType::kINT8)
    static_cast<int8_t*>(bytes)[i] = static_cast<int8_t>(value);
  else if (type == DataType::kINT32)
    static_cast<int32_t*>(bytes)[i] = static_cast<int32_t>(value);
  else if (type == DataType::kINT64)
    static_cast<int64_t*>(bytes)[i] = static_cast<int64_t>(value);
  else
    static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(value);
}

inline PortDesc port_of(const Shape& shape, DataType dtype) {
  PortDesc port;
  port.type.dtype = dtype;
  port.min = port.opt = port.max = shape;
  return port;
}

}  // namespace detail

inline Values make_values(const Shape& shape, const std::function<double(int64_t)>& element) {
  Values values{shape, std::vector<double>(shape.numel())};
  for (int64_t i = 0; i < values.size(); ++i) values[i] = element(i);
  return values;
}

/// Uniform in [low, high], the same for the same seed.
inline Values random_values(const Shape& shape, int seed, double low = -1, double high = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(low, high);
  return make_values(shape, [&](int64_t) { return distribution(generator); });
}

/// The index, in elements, of row-major element `i` within a tensor of the format.
inline int64_t offset_of(const Shape& shape, TensorFormat format, int64_t i) {
  if (format == TensorFormat::kLINEAR) return i;
  const FormatLayout layout = layout_of(format);
  const int64_t channels = shape[1], spatial = shape.numel(2, shape.rank());
  const int64_t groups = (channels + layout.block - 1) / layout.block;
  const int64_t n = i / (channels * spatial), c = i / spatial % channels, s = i % spatial;
  if (layout.channels_last) return (n * spatial + s) * groups * layout.block + c;
  return ((n * groups + c / layout.block) * spatial + s) * layout.block + c % layout.block;
}

/// Bytes of the tensor in that type and format; the padding of channels is zero.
inline Blob to_bytes(const Values& values, PortType type) {
  const size_t size = tensor_bytes(values.shape, type.dtype, type.format);
  return Blob::make(size, [&](void* bytes) {
    std::memset(bytes, 0, size);
    for (int64_t i = 0; i < values.size(); ++i)
      detail::write(bytes, type.dtype, offset_of(values.shape, type.format, i), values[i]);
  });
}

inline Values from_bytes(const void* bytes, const Shape& shape, PortType type) {
  return make_values(shape, [&](int64_t i) {
    return detail::read(bytes, type.dtype, offset_of(shape, type.format, i));
  });
}

/// The values rounded to the type.
inline Values rounded(const Values& values, DataType type) {
  const PortType port{type, TensorFormat::kLINEAR};
  return from_bytes(to_bytes(values, port).data(), values.shape, port);
}

/// Ports with one shape for min, opt and max and the network's types.
inline std::vector<PortDesc> describe(std::span<const TestInput> inputs) {
  std::vector<PortDesc> ports;
  for (const TestInput& input : inputs) {
    PortDesc port = detail::port_of(input.values.shape, input.dtype);
    port.present = input.present;
    port.is_constant = input.constant;
    if (input.constant) port.constant = to_bytes(input.values, port.type);
    ports.push_back(port);
  }
  return ports;
}

/// Ports with one shape for min, opt and max and the network's types.
inline std::vector<PortDesc> describe(std::span<const TestOutput> outputs) {
  std::vector<PortDesc> ports;
  for (const TestOutput& output : outputs)
    ports.push_back(detail::port_of(output.shape, output.dtype));
  return ports;
}

struct QueryOptions {
  bool fp16 = false, bf16 = false, strongly_typed = false;
};

/// Fails the current test unless |actual - expected| <= tolerance * (1 + |expected|) everywhere.
inline void expect_close(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.shape, expected.shape);
  for (int64_t i = 0; i < actual.size(); ++i) {
    const bool same_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
    const bool close = std::abs(actual[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]));
    if (same_nan || close || actual[i] == expected[i]) continue;
    ADD_FAILURE() << "element " << i << " of " << actual.shape << " is " << actual[i]
                  << " instead of " << expected[i];
    return;
  }
}

/// A bound for expect_close that fits values computed in FP32 from and rounded to the type.
inline double tolerance_of(DataType type) {
  if (type == DataType::kBF16) return 0.02;
  if (type == DataType::kHALF) return 0.003;
  return type == DataType::kFLOAT ? 2e-5 : 0;
}

/// "FP32 HWC, ... -> FP32 HWC (name)", for SCOPED_TRACE.
inline std::string describe(const Candidate& candidate) {
  std::string text;
  const auto add = [&](const std::vector<PortType>& ports) {
    for (const PortType& port : ports)
      text += std::string(name(port.dtype)) + " " + std::string(name(port.format)) + ", ";
  };
  add(candidate.inputs);
  text += "-> ";
  add(candidate.outputs);
  return text + "(" + candidate.tactic_name + ")";
}

}  // namespace opwright::testing
