#include "base/types.h"

#include <gtest/gtest.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace opwright {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 3, 4, 5}).numel(1, 3), 12);
  EXPECT_EQ((Shape{int64_t{1} << 40, int64_t{1} << 40, 0}).numel(), 0);
  EXPECT_EQ((Shape{int64_t{1} << 31, (int64_t{1} << 31) + 1}).numel(),
            4611686020574871552);  // 2^62 + 2^31
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 31}).numel(), Error);
  EXPECT_THROW((Shape{2, -1}).numel(), Error);
}

TEST(Shape, Conversions) {
  Shape shape{1, 3};
  shape.push_back(224);
  EXPECT_EQ(shape.str(), "1x3x224");
  EXPECT_EQ(Shape{}.str(), "scalar");
  EXPECT_EQ(Shape(shape.dims()), shape);
  EXPECT_FALSE((shape == Shape{1, 3}));
  EXPECT_THROW(Shape(std::vector<int64_t>(9, 1)), Error);
  EXPECT_THROW(Shape(Dims{-1, {}}), Error);
  EXPECT_THROW(Shape(Dims{9, {}}), Error);
  Shape full(std::vector<int64_t>(8, 1));
  EXPECT_THROW(full.push_back(1), Error);
}

TEST(DataType, SizesAndNames) {
  EXPECT_EQ(bytes_of(DataType::kFLOAT, 3), 12);
  EXPECT_EQ(bytes_of(DataType::kINT4, 3), 2);
  EXPECT_EQ(bytes_of(DataType::kFP4, 4), 2);
  EXPECT_EQ(bytes_of(DataType::kBOOL, 3), 3);
  EXPECT_THROW(bytes_of(DataType::kINT64, INT64_MAX / 4), Error);
  EXPECT_THROW(bytes_of(DataType::kINT64, -1), Error);
  EXPECT_THROW(bits(static_cast<DataType>(99)), Error);
  for (int i = 0; i < EnumMax<DataType>(); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(name(type)), type);
  }
  EXPECT_EQ(name(DataType::kHALF), "FP16");
  EXPECT_EQ(parse_data_type("half"), DataType::kHALF);
  EXPECT_EQ(parse_data_type("Float"), DataType::kFLOAT);
  EXPECT_THROW(parse_data_type("FP64"), Error);
}

TEST(TensorFormat, LayoutsAndSizes) {
  for (int i = 0; i < EnumMax<TensorFormat>(); ++i) {
    const auto format = static_cast<TensorFormat>(i);
    EXPECT_EQ(parse_tensor_format(name(format)), format);
    // The layout is what the name says.
    const std::string_view text = name(format);
    const size_t digits = text.find_last_not_of("0123456789") + 1;
    EXPECT_EQ(layout_of(format).block,
              digits == text.size() ? 1 : std::stoi(std::string(text.substr(digits))));
    EXPECT_EQ(layout_of(format).channels_last, text.find("WC") != text.npos);
  }
  EXPECT_EQ(tensor_bytes(Shape{2, 3, 4, 5}, DataType::kFLOAT, TensorFormat::kLINEAR), 480);
  EXPECT_EQ(tensor_bytes(Shape{2, 3, 4, 5}, DataType::kHALF, TensorFormat::kHWC8), 640);
  EXPECT_EQ(tensor_bytes(Shape{2, 17, 4, 5}, DataType::kINT8, TensorFormat::kCHW16), 1280);
  EXPECT_EQ(tensor_bytes(Shape{2, 16, 4, 5}, DataType::kINT8, TensorFormat::kCHW16), 640);
  EXPECT_EQ(tensor_bytes(Shape{2, 3, 4, 5, 6}, DataType::kFLOAT, TensorFormat::kCDHW32), 30720);
  EXPECT_THROW(tensor_bytes(Shape{2}, DataType::kFLOAT, TensorFormat::kCHW4), Error);
  EXPECT_TRUE(is_valid(TensorFormat::kLINEAR, 0));
  EXPECT_TRUE(is_valid(TensorFormat::kHWC, 4));
  EXPECT_FALSE(is_valid(TensorFormat::kHWC, 2));
  EXPECT_FALSE(is_valid(TensorFormat::kDHWC, 4));
  EXPECT_TRUE(is_valid(TensorFormat::kDHWC, 5));
}

TEST(StridesOf, FollowsTheFormat) {
  const auto strides = [](Shape shape, TensorFormat format) {
    return Shape(strides_of(shape, format));
  };
  EXPECT_EQ(strides({2, 3, 4, 5}, TensorFormat::kLINEAR), (Shape{60, 20, 5, 1}));
  EXPECT_EQ(strides({2, 3, 4, 5}, TensorFormat::kHWC), (Shape{60, 1, 15, 3}));
  EXPECT_EQ(strides({2, 3, 4, 5}, TensorFormat::kHWC8), (Shape{160, 1, 40, 8}));
  EXPECT_EQ(strides({2, 5, 4, 5}, TensorFormat::kCHW4), (Shape{160, 80, 20, 4}));
  EXPECT_EQ(strides({2, 0, 4}, TensorFormat::kLINEAR), (Shape{0, 4, 1}));
  EXPECT_EQ(strides({2, -1, 4}, TensorFormat::kLINEAR), (Shape{-1, -1, -1}));
  EXPECT_EQ(strides({}, TensorFormat::kLINEAR), Shape{});
}

TEST(Blob, SharesAndCompares) {
  const Blob copy = Blob::copy("abc", 3), same = copy;
  EXPECT_EQ(copy.data(), same.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.data()) % 64, 0u);
  EXPECT_EQ(copy, Blob::copy("abc", 3));
  EXPECT_FALSE(copy == Blob::copy("abd", 3));
  EXPECT_FALSE(copy == Blob::copy("ab", 2));
  EXPECT_TRUE(Blob().empty());
  EXPECT_FALSE(Blob::copy(nullptr, 0).empty());
  EXPECT_THROW(Blob::make(SIZE_MAX, [](void*) {}), Error);
  const size_t large = (size_t{5} << 20) + 3;  // of huge pages and a part of one
  EXPECT_EQ(Blob::make(large, [&](void* memory) { std::memset(memory, 7, large); }).size(), large);
}

TEST(Hash, IsXxh3) {  // of no bytes, as in the specification's own tests
  EXPECT_EQ(hash_bytes({}), 0x2D06800538D394C2u);
}

class Recorder final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    lines.push_back(str(static_cast<int>(severity), message));
  }
  std::vector<std::string> lines;
};

TEST(Log, GoesToTheLoggerOrStderr) {
  Recorder recorder;
  const Log log(&recorder);
  log.warning("layer ", 3);
  log.verbose("x");
  EXPECT_EQ(recorder.lines, (std::vector<std::string>{"2layer 3", "4x"}));
  testing::internal::CaptureStderr();
  Log().info("quiet");
  Log().error("loud");
  Log(nullptr).warning("too");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[opwright] error: loud\n[opwright] warning: too\n");
}

}  // namespace
}  // namespace opwright
