#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "onnx/node_error.h"
#include "onnx/protobuf.h"

namespace opwright::onnx {
namespace {

using protozero::pbf_reader;

/// The bytes as the engine keeps them: a reference where alignment allows typed access, else a
/// copy.
Blob aligned(const Blob& owner, const char* data, size_t size, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) return Blob::copy(data, size);
  return Blob(std::make_shared<Blob>(owner), data, size);
}

struct RawTensor {
  std::string name;
  int32_t element_type = 0;
  std::vector<int64_t> dims;
  protozero::data_view raw;
  bool has_raw = false, is_external = false;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> ints;  // int32_data and int64_data
  ExternalData external;
  bool has_fields() const { return !floats.empty() || !doubles.empty() || !ints.empty(); }
};

Blob external_bytes(const TensorProto& tensor, int64_t expected, Source& source) {
  const ExternalData& external = *tensor.external;
  auto number = [&](const char* key, const std::string& value, int64_t otherwise) {
    if (value.empty()) return otherwise;
    size_t end = 0;
    int64_t parsed = -1;
    try {
      parsed = std::stoll(value, &end);
    } catch (const std::exception&) {
    }
    require(parsed >= 0 && end == value.size(), "ONNX: initializer '", tensor.name,
            "': external data has ", key, " '", value, "'; expected a number of bytes");
    return parsed;
  };
  std::filesystem::path location = std::filesystem::path(external.location).lexically_normal();
  require(!location.empty() && location.is_relative() && *location.begin() != "..",
          "ONNX: initializer '", tensor.name,
          "': external data must lie in a file beside the model, not at '", external.location, "'");
  require(!source.directory.empty(), "ONNX: initializer '", tensor.name,
          "' has its data in the file '", location.string(),
          "', but the model was given as bytes: parse it from its file, or pass its path as well");
  std::string path = (std::filesystem::path(source.directory) / location).string();
  auto [file, is_new] = source.external_files.try_emplace(path);
  if (is_new) {
    try {
      file->second = map_file_beneath(source.directory, location.string(), source.links);
    } catch (const Error& error) {
      source.external_files.erase(file);
      fail("ONNX: initializer '", tensor.name, "': external data: ", error.what());
    }
  }
  const int64_t offset = number("offset", external.offset, 0);
  const int64_t size = static_cast<int64_t>(file->second.size());
  require(offset <= size, "ONNX: initializer '", tensor.name, "': external data starts at byte ",
          offset, " of '", path, "', which has ", size);
  const int64_t length = number("length", external.length, size - offset);
  require(length == expected && length <= size - offset, "ONNX: initializer '", tensor.name,
          "': external data has ", std::min(length, size - offset), " bytes in '", path,
          "'; its shape needs ", expected);
  return aligned(file->second, file->second.as<char>() + offset, length, 8);
}

int64_t bytes_in_model(const TensorProto& tensor) {
  const int64_t count = tensor.shape.numel();
  switch (static_cast<ElementType>(tensor.element_type)) {
    case ElementType::kDouble:
      return count * 8;
    case ElementType::kInt16:
      return count * 2;
    case ElementType::kUint4:
    case ElementType::kInt4:
      return count / 2 + count % 2;
    default:
      return bytes_of(tensor.dtype, count);
  }
}

/// Checks that one field has all elements: `given` is its number of elements, `others` that of the
/// other fields.
void check_count(const RawTensor& raw, size_t given, size_t others, int64_t count) {
  require(std::cmp_equal(given, count) && others == 0, "ONNX: tensor '", raw.name, "' has ",
          given + others, " elements; its shape needs ", count, " in one field");
}

template <class To, class From>
Blob cast_elements(const From* from, int64_t count) {
  return Blob::make(static_cast<size_t>(count) * sizeof(To),
                    [&](void* out) { std::copy_n(from, count, static_cast<To*>(out)); });
}

/// Elements of four bits, two in each of these bytes, as INT8 or UINT8.
template <class Byte>
Blob unpack_four_bits(const Byte* from, int64_t count, bool is_signed) {
  return Blob::make(static_cast<size_t>(count), [&](void* out) {
    for (int64_t i = 0; i < count; ++i) {
      const auto pair = static_cast<uint8_t>(from[i / 2]);
      const int code = i % 2 == 0 ? pair & 15 : pair >> 4;
      static_cast<uint8_t*>(out)[i] =
          static_cast<uint8_t>(is_signed && code > 7 ? code - 16 : code);
    }
  });
}

/// Elements from repeated fields instead of raw bytes.
Blob from_fields(const RawTensor& raw, DataType dtype, int64_t count) {
  const auto [fewer, more] = std::minmax({raw.floats.size(), raw.ints.size()});
  check_count(raw, more, fewer, count);
  return Blob::make(bytes_of(dtype, count), [&](void* out) {
    if (!raw.floats.empty()) {
      convert(raw.floats.data(), DataType::kFLOAT, out, dtype, count);
    } else if (dtype == DataType::kHALF || dtype == DataType::kBF16 || dtype == DataType::kFP8) {
      // int32_data has the bit patterns of small floating types.
      for (int64_t i = 0; i < count; ++i) {
        if (dtype == DataType::kFP8)
          static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(raw.ints[i]);
        else
          static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(raw.ints[i]);
      }
    } else {
      convert(raw.ints.data(), DataType::kINT64, out, dtype, count);
    }
  });
}

RawTensor decode_message(pbf_reader reader) {
  RawTensor raw;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        append_int64(reader, raw.dims);
        break;
      case 2:
        raw.element_type = reader.get_int32();
        break;
      case 4:
        append(
            reader, raw.floats, [&] { return reader.get_float(); },
            [&] { return reader.get_packed_float(); });
        break;
      case 5:
        append(
            reader, raw.ints, [&] { return reader.get_int32(); },
            [&] { return reader.get_packed_int32(); });
        break;
      case 7:
        append_int64(reader, raw.ints);
        break;
      case 8:
        raw.name = text(reader);
        break;
      case 9:
        raw.raw = reader.get_view();
        raw.has_raw = true;
        break;
      case 10:
        append(
            reader, raw.doubles, [&] { return reader.get_double(); },
            [&] { return reader.get_packed_double(); });
        break;
      case 13: {
        auto entry = reader.get_message();
        std::string key, value;
        while (entry.next()) {
          if (entry.tag() == 1)
            key = text(entry);
          else if (entry.tag() == 2)
            value = text(entry);
          else
            entry.skip();
        }
        if (key == "location") raw.external.location = value;
        if (key == "offset") raw.external.offset = value;
        if (key == "length") raw.external.length = value;
        break;
      }
      case 14:
        raw.is_external = reader.get_int32() == 1;
        break;
      default:
        reader.skip();
    }
  }
  return raw;
}

}  // namespace

TensorProto decode_tensor(pbf_reader reader, Source& source) {
  RawTensor raw = decode_message(reader);
  TensorProto tensor;
  tensor.name = raw.name;
  tensor.element_type = raw.element_type;
  for (int64_t extent : raw.dims)
    require(extent >= 0, "ONNX: tensor '", raw.name, "' has a negative extent, ", extent);
  require(raw.dims.size() <= Dims::MAX_DIMS, "ONNX: tensor '", raw.name, "' has ", raw.dims.size(),
          " dimensions; at most ", Dims::MAX_DIMS, " are supported");
  tensor.shape = Shape(raw.dims);
  const auto element_type = static_cast<ElementType>(raw.element_type);
  if (element_type == ElementType::kString) {
    // Kept without data, so that only a node that reads it fails.
    tensor.has_texts = true;
    tensor.shape = Shape{0};
    tensor.data = Blob::copy("", 0);
    return tensor;
  }
  if (element_type != ElementType::kDouble)
    raw.floats.insert(raw.floats.end(), raw.doubles.begin(), raw.doubles.end());
  tensor.dtype = element_type == ElementType::kInt16  ? DataType::kINT32
                 : element_type == ElementType::kInt4 ? DataType::kINT8
                 : element_type == ElementType::kUint4
                     ? DataType::kUINT8
                     : data_type(raw.element_type, str("tensor '", raw.name, "'"));
  int64_t count = 1;
  bool is_countable = true;
  for (const int64_t extent : tensor.shape)
    is_countable = !__builtin_mul_overflow(count, extent, &count) && is_countable;
  require(is_countable && count <= INT64_MAX / 16, "ONNX: tensor '", raw.name, "' of shape ",
          tensor.shape, " has more elements than can be counted");
  if (raw.is_external) {
    tensor.external = std::move(raw.external);
  } else if (raw.has_raw) {
    set_elements(tensor, aligned(source.model, raw.raw.data(), raw.raw.size(), 8));
  } else if (!raw.has_fields() && count > 0) {
    tensor.problem = str("ONNX: tensor '", raw.name, "' has 0 elements; its shape needs ", count);
  } else if (element_type == ElementType::kDouble) {
    check_count(raw, raw.doubles.size(), raw.floats.size() + raw.ints.size(), count);
    set_elements(tensor, Blob::copy(raw.doubles.data(), raw.doubles.size() * sizeof(double)));
  } else if (is_four_bits(raw.element_type)) {
    check_count(raw, raw.ints.size(), raw.floats.size(), count / 2 + count % 2);
    tensor.data = unpack_four_bits(raw.ints.data(), count, element_type == ElementType::kInt4);
  } else {
    tensor.data = from_fields(raw, tensor.dtype, count);
  }
  return tensor;
}

void read_external(TensorProto& tensor, Source& source) {
  if (tensor.external) set_elements(tensor, external_bytes(tensor, bytes_in_model(tensor), source));
  require(tensor.problem.empty(), tensor.problem);
}

void set_elements(TensorProto& tensor, const Blob& raw) {
  const int64_t count = tensor.shape.numel();
  const int64_t expected = bytes_in_model(tensor);
  require(std::cmp_equal(raw.size(), expected), "ONNX: tensor '", tensor.name, "' has ", raw.size(),
          " bytes; its shape ", tensor.shape, " needs ", expected);
  tensor.external.reset();
  tensor.problem.clear();
  switch (static_cast<ElementType>(tensor.element_type)) {
    case ElementType::kDouble:
      tensor.data = cast_elements<float>(raw.as<double>(), count);
      tensor.doubles = raw;
      break;
    case ElementType::kInt16:
      tensor.data = cast_elements<int32_t>(raw.as<int16_t>(), count);
      break;
    case ElementType::kUint4:
    case ElementType::kInt4:
      tensor.data =
          unpack_four_bits(raw.as<uint8_t>(), count,
                           tensor.element_type == static_cast<int32_t>(ElementType::kInt4));
      break;
    default:
      tensor.data = raw;
  }
}

DataType data_type(int32_t element_type, std::string_view what) {
  switch (static_cast<ElementType>(element_type)) {
    case ElementType::kFloat:
    case ElementType::kDouble:
      return DataType::kFLOAT;
    case ElementType::kFloat16:
      return DataType::kHALF;
    case ElementType::kBfloat16:
      return DataType::kBF16;
    case ElementType::kFloat8E4M3FN:
      return DataType::kFP8;
    case ElementType::kUint8:
      return DataType::kUINT8;
    case ElementType::kInt8:
      return DataType::kINT8;
    case ElementType::kInt32:
      return DataType::kINT32;
    case ElementType::kInt64:
      return DataType::kINT64;
    case ElementType::kBool:
      return DataType::kBOOL;
    default:
      throw NodeError(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DATATYPE,
                      str("ONNX: ", what, " has element type ", element_type,
                          ", which is not supported; expected FLOAT, FLOAT16, BFLOAT16, DOUBLE, "
                          "INT8, UINT8, INT32, INT64, BOOL or FLOAT8E4M3FN"));
  }
}

}  // namespace opwright::onnx
