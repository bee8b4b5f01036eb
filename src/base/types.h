#pragma once

#include <cstdint>
#include <string_view>

#include "base/shape.h"
#include "opwright/types.h"

namespace opwright {

/// Bits per element: 32 for kFLOAT, 4 for kINT4, 8 for kBOOL.
int bits(DataType type);
/// Bytes of `count` densely packed elements (4-bit types are rounded up to whole bytes).
int64_t bytes_of(DataType type, int64_t count);
/// kFLOAT, kHALF, kBF16 or kFP8.
bool is_floating(DataType type);
/// kINT8, kUINT8, kINT32 or kINT64.
bool is_integer(DataType type);
/// The name that logs, errors and the inspector use: "FP32", "FP16", "BF16", "INT8", "UINT8",
/// "INT32", "INT64", "BOOL", "FP8", "INT4", ...
std::string_view name(DataType type);
/// Accepts the names above and TensorRT's ("FLOAT", "HALF"), in any case; throws Error otherwise.
DataType parse_data_type(std::string_view text);

/// "LINEAR", "HWC", "CHW16", ...
std::string_view name(TensorFormat format);
TensorFormat parse_tensor_format(std::string_view text);

/// The layout of a vectorized format in memory. The channel axis (counted from the front) is padded
/// and split into blocks of `block`; `channels_last` puts channels behind the spatial axes.
struct FormatLayout {
  bool channels_last = false;
  int block = 1;
};
FormatLayout layout_of(TensorFormat format);
/// Whether a tensor of this rank can have the format. All formats except kLINEAR need a batch axis,
/// a channel axis and one or two spatial axes; three if the format's name has a D. The DLA formats
/// fit no tensor.
bool is_valid(TensorFormat format, int rank);

/// Bytes of a tensor with the format's padding of channels.
int64_t tensor_bytes(const Shape& shape, DataType type, TensorFormat format);
/// Strides of a tensor in elements; -1 for every axis while an extent is not known. In a vectorized
/// format the stride of channels leads from one block of channels to the next.
Dims strides_of(const Shape& shape, TensorFormat format);

}  // namespace opwright
