#include "base/types.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"

namespace opwright {
namespace {

struct TypeTraits {
  std::string_view name;
  std::string_view tensorrt_name;
  int bits;
};

// Indexed by DataType.
constexpr std::array<TypeTraits, EnumMax<DataType>()> kTypes{{
    {"FP32", "FLOAT", 32},
    {"FP16", "HALF", 16},
    {"INT8", "INT8", 8},
    {"INT32", "INT32", 32},
    {"BOOL", "BOOL", 8},
    {"UINT8", "UINT8", 8},
    {"FP8", "FP8", 8},
    {"BF16", "BF16", 16},
    {"INT64", "INT64", 64},
    {"INT4", "INT4", 4},
    {"FP4", "FP4", 4},
    {"E8M0", "E8M0", 8},
}};

struct FormatTraits {
  std::string_view name;
  FormatLayout layout;
  int min_rank;
  int max_rank;
};

// Indexed by TensorFormat. The formats of NVIDIA's DLA fit no tensor, because no backend drives the
// DLA.
constexpr std::array<FormatTraits, EnumMax<TensorFormat>()> kFormats{{
    {"LINEAR", {false, 1}, 0, Dims::MAX_DIMS},
    {"CHW2", {false, 2}, 3, 4},
    {"HWC8", {true, 8}, 3, 4},
    {"CHW4", {false, 4}, 3, 4},
    {"CHW16", {false, 16}, 3, 4},
    {"CHW32", {false, 32}, 3, 4},
    {"DHWC8", {true, 8}, 5, 5},
    {"CDHW32", {false, 32}, 5, 5},
    {"HWC", {true, 1}, 3, 4},
    {"DLA_LINEAR", {false, 1}, 0, -1},
    {"DLA_HWC4", {true, 4}, 0, -1},
    {"HWC16", {true, 16}, 3, 4},
    {"DHWC", {true, 1}, 5, 5},
}};

const TypeTraits& traits(DataType type) {
  const auto index = static_cast<size_t>(type);
  require(index < kTypes.size(), "there is no data type ", static_cast<int>(type));
  return kTypes[index];
}

const FormatTraits& traits(TensorFormat format) {
  const auto index = static_cast<size_t>(format);
  require(index < kFormats.size(), "there is no tensor format ", static_cast<int>(format));
  return kFormats[index];
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

template <class Table>
std::string names(const Table& table) {
  std::string text;
  for (const auto& entry : table) {
    if (!text.empty()) text += ", ";
    text += entry.name;
  }
  return text;
}

}  // namespace

int bits(DataType type) { return traits(type).bits; }

int64_t bytes_of(DataType type, int64_t count) {
  const int width = bits(type);
  require(count >= 0, "a tensor cannot have ", count, " elements");
  if (width < 8) return count / (8 / width) + (count % (8 / width) != 0);
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(count, width / 8, &bytes), count, " elements of type ",
          name(type), " have more bytes than 63 bits can count");
  return bytes;
}

bool is_floating(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16 ||
         type == DataType::kFP8;
}

bool is_integer(DataType type) {
  return type == DataType::kINT8 || type == DataType::kUINT8 || type == DataType::kINT32 ||
         type == DataType::kINT64;
}

std::string_view name(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypes.size() ? kTypes[index].name : "unknown type";
}

DataType parse_data_type(std::string_view text) {
  const std::string wanted = upper(text);
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (wanted == kTypes[i].name || wanted == kTypes[i].tensorrt_name)
      return static_cast<DataType>(i);
  fail("there is no data type '", text, "': expected one of ", names(kTypes));
}

std::string_view name(TensorFormat format) {
  const auto index = static_cast<size_t>(format);
  return index < kFormats.size() ? kFormats[index].name : "unknown format";
}

TensorFormat parse_tensor_format(std::string_view text) {
  const std::string wanted = upper(text);
  for (size_t i = 0; i < kFormats.size(); ++i)
    if (wanted == kFormats[i].name) return static_cast<TensorFormat>(i);
  fail("there is no tensor format '", text, "': expected one of ", names(kFormats));
}

FormatLayout layout_of(TensorFormat format) { return traits(format).layout; }

bool is_valid(TensorFormat format, int rank) {
  const FormatTraits& t = traits(format);
  return rank >= t.min_rank && rank <= t.max_rank;
}

int64_t tensor_bytes(const Shape& shape, DataType type, TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  if (layout.block == 1) return bytes_of(type, shape.numel());
  require(is_valid(format, shape.rank()), "a tensor of shape ", shape, " cannot have the format ",
          name(format));
  constexpr int kChannelAxis = 1;
  Shape padded = shape;
  const int64_t channels = shape[kChannelAxis];
  const int64_t blocks = channels / layout.block + (channels % layout.block != 0);
  require(!__builtin_mul_overflow(blocks, layout.block, &padded[kChannelAxis]), "shape ", shape,
          " has too many channels for the format ", name(format));
  return bytes_of(type, padded.numel());
}

Dims strides_of(const Shape& shape, TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  Dims strides = shape.dims();
  if (std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent < 0; })) {
    std::fill_n(strides.d, shape.rank(), -1);
    return strides;
  }
  constexpr int kChannels = 1;
  const bool is_linear = layout.block == 1 && !layout.channels_last;
  const int64_t groups = is_linear ? 0 : (shape[kChannels] + layout.block - 1) / layout.block;
  int64_t stride = 1;
  if (!is_linear && !layout.channels_last) stride = layout.block;
  if (layout.channels_last) {
    strides.d[kChannels] = 1;
    stride = groups * layout.block;
  }
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (layout.channels_last && axis == kChannels) continue;
    strides.d[axis] = stride;
    stride *= !is_linear && axis == kChannels ? groups : shape[axis];
  }
  return strides;
}

}  // namespace opwright
