#include "onnx/model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <protozero/exception.hpp>
#include <utility>

// A field of another wire type than its number calls for is bad input, in every build.
#define protozero_assert(condition) \
  ((condition) ? static_cast<void>(0) : throw protozero::unknown_pbf_wire_type_exception())
#include <protozero/pbf_reader.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"

namespace opwright::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

/// What decoding needs beside the message: where the bytes live and where external data is.
struct Source {
  const Blob& model;
  const std::string& directory;
  std::unordered_map<std::string, Blob> external_files;
};

std::string text(pbf_reader& reader) {
  auto view = reader.get_view();
  return std::string(view.data(), view.size());
}

/// A repeated scalar that may be packed or not, as proto2 and proto3 writers differ.
template <class T, class ReadOne, class ReadPacked>
void append(pbf_reader& reader, std::vector<T>& out, ReadOne one, ReadPacked packed) {
  if (reader.wire_type() == pbf_wire_type::length_delimited) {
    auto range = packed();
    for (auto value : range) out.push_back(static_cast<T>(value));
  } else {
    out.push_back(static_cast<T>(one()));
  }
}

void append_int64(pbf_reader& r, std::vector<int64_t>& out) {
  append(
      r, out, [&] { return r.get_int64(); }, [&] { return r.get_packed_int64(); });
}

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
  bool has_raw = false, external = false;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> ints;  // int32_data and int64_data
  std::unordered_map<std::string, std::string> external_data;
};

Blob external_bytes(const RawTensor& raw, int64_t expected, Source& source) {
  auto entry = [&](const char* key) {
    auto found = raw.external_data.find(key);
    return found == raw.external_data.end() ? std::string() : found->second;
  };
  auto number = [&](const char* key, int64_t otherwise) {
    std::string value = entry(key);
    if (value.empty()) return otherwise;
    size_t end = 0;
    int64_t parsed = -1;
    try {
      parsed = std::stoll(value, &end);
    } catch (const std::exception&) {
    }
    require(parsed >= 0 && end == value.size(), "ONNX: initializer '", raw.name,
            "': external data has ", key, " '", value, "'; expected a number of bytes");
    return parsed;
  };
  std::filesystem::path location = std::filesystem::path(entry("location")).lexically_normal();
  require(!location.empty() && location.is_relative() && *location.begin() != "..",
          "ONNX: initializer '", raw.name,
          "': external data must lie in a file beside the model, not at '", entry("location"), "'");
  require(!source.directory.empty(), "ONNX: initializer '", raw.name,
          "' has its data in the file '", location.string(),
          "', but the model was given as bytes: parse it from its file, or pass its path as well");
  std::string path = (std::filesystem::path(source.directory) / location).string();
  auto [file, is_new] = source.external_files.try_emplace(path);
  if (is_new) file->second = map_file(path);
  const int64_t offset = number("offset", 0);
  const int64_t size = static_cast<int64_t>(file->second.size());
  require(offset <= size, "ONNX: initializer '", raw.name, "': external data starts at byte ",
          offset, " of '", path, "', which has ", size);
  const int64_t length = number("length", size - offset);
  require(length == expected && length <= size - offset, "ONNX: initializer '", raw.name,
          "': external data has ", std::min(length, size - offset), " bytes in '", path,
          "'; its shape needs ", expected);
  return aligned(file->second, file->second.as<char>() + offset, length, 8);
}

int64_t element_bytes(int32_t type, const std::string& name) {
  switch (static_cast<ElementType>(type)) {
    case ElementType::kDouble:
      return 8;
    case ElementType::kInt16:
      return 2;
    default:
      return bits(data_type(type, str("initializer '", name, "'"))) / 8;
  }
}

/// `given` elements are in one field, `others` in others.
void check_count(const RawTensor& raw, size_t given, size_t others, int64_t count) {
  require(std::cmp_equal(given, count) && others == 0, "ONNX: tensor '", raw.name, "' has ",
          given + others, " elements; its shape needs ", count, " in one field");
}

template <class To, class From>
Blob cast_elements(const From* from, int64_t count) {
  return Blob::make(static_cast<size_t>(count) * sizeof(To),
                    [&](void* out) { std::copy_n(from, count, static_cast<To*>(out)); });
}

/// Elements that come as repeated fields instead of raw bytes.
Blob from_fields(const RawTensor& raw, DataType dtype, int64_t count) {
  const auto [fewer, more] = std::minmax({raw.floats.size(), raw.ints.size()});
  check_count(raw, more, fewer, count);
  return Blob::make(bytes_of(dtype, count), [&](void* out) {
    if (!raw.floats.empty()) {
      convert(raw.floats.data(), DataType::kFLOAT, out, dtype, count);
    } else if (dtype == DataType::kHALF || dtype == DataType::kBF16 || dtype == DataType::kFP8) {
      // int32_data holds the bit patterns of small floating types.
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

TensorProto decode_tensor(pbf_reader reader, Source& source) {
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
        raw.external_data[key] = value;
        break;
      }
      case 14:
        raw.external = reader.get_int32() == 1;
        break;
      default:
        reader.skip();
    }
  }
  TensorProto tensor;
  tensor.name = raw.name;
  for (int64_t extent : raw.dims)
    require(extent >= 0, "ONNX: tensor '", raw.name, "' has a negative extent, ", extent);
  require(raw.dims.size() <= Dims::MAX_DIMS, "ONNX: tensor '", raw.name, "' has ", raw.dims.size(),
          " dimensions; at most ", Dims::MAX_DIMS, " are supported");
  tensor.shape = Shape(raw.dims);
  if (raw.element_type == static_cast<int32_t>(ElementType::kString)) {
    // Kept without data, so that only a node that reads it fails.
    tensor.has_texts = true;
    tensor.shape = Shape{0};
    tensor.data = Blob::copy("", 0);
    return tensor;
  }
  const auto element_type = static_cast<ElementType>(raw.element_type);
  const bool is_short = element_type == ElementType::kInt16;
  if (element_type != ElementType::kDouble)
    raw.floats.insert(raw.floats.end(), raw.doubles.begin(), raw.doubles.end());
  tensor.dtype =
      is_short ? DataType::kINT32 : data_type(raw.element_type, str("tensor '", raw.name, "'"));
  const int64_t count = tensor.shape.numel();
  const int64_t width = element_bytes(raw.element_type, raw.name);
  require(count <= INT64_MAX / 16, "ONNX: tensor '", raw.name, "' has ", count, " elements");
  Blob bytes;
  if (raw.external) {
    bytes = external_bytes(raw, count * width, source);
  } else if (raw.has_raw) {
    require(static_cast<int64_t>(raw.raw.size()) == count * width, "ONNX: tensor '", raw.name,
            "' has ", raw.raw.size(), " bytes; its shape ", tensor.shape, " needs ", count * width);
    bytes = aligned(source.model, raw.raw.data(), raw.raw.size(), 8);
  } else if (element_type == ElementType::kDouble) {
    check_count(raw, raw.doubles.size(), raw.floats.size() + raw.ints.size(), count);
    bytes = Blob::copy(raw.doubles.data(), raw.doubles.size() * sizeof(double));
  } else {
    tensor.data = from_fields(raw, tensor.dtype, count);
    return tensor;
  }
  if (element_type == ElementType::kDouble) {
    tensor.data = cast_elements<float>(bytes.as<double>(), count);
    tensor.doubles = bytes;
  } else if (is_short) {
    tensor.data = cast_elements<int32_t>(bytes.as<int16_t>(), count);
  } else {
    tensor.data = bytes;
  }
  return tensor;
}

AttributeProto decode_attribute(pbf_reader reader, Source& source) {
  AttributeProto a;
  bool has_int = false, has_float = false, has_text = false, has_tensor = false;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        a.name = text(reader);
        break;
      case 2:
        a.f = reader.get_float();
        has_float = true;
        break;
      case 3:
        a.i = reader.get_int64();
        has_int = true;
        break;
      case 4:
        a.s = text(reader);
        has_text = true;
        break;
      case 5:
        a.t = decode_tensor(reader.get_message(), source);
        has_tensor = true;
        break;
      case 7:
        append(
            reader, a.floats, [&] { return reader.get_float(); },
            [&] { return reader.get_packed_float(); });
        break;
      case 8:
        append_int64(reader, a.ints);
        break;
      case 9:
        a.strings.push_back(text(reader));
        break;
      case 20:
        a.type = static_cast<AttributeProto::Type>(reader.get_int32());
        break;
      default:
        reader.skip();
    }
  }
  require(a.type != AttributeProto::Type::kTensor || has_tensor, "ONNX: attribute '", a.name,
          "' is said to be a tensor, but has none");
  if (a.type == AttributeProto::Type::kUndefined) {
    // Writers of the first ONNX versions left the type out.
    using Type = AttributeProto::Type;
    a.type = has_tensor          ? Type::kTensor
             : has_text          ? Type::kString
             : has_int           ? Type::kInt
             : has_float         ? Type::kFloat
             : !a.ints.empty()   ? Type::kInts
             : !a.floats.empty() ? Type::kFloats
                                 : Type::kStrings;
  }
  return a;
}

NodeProto decode_node(pbf_reader reader, Source& source) {
  NodeProto node;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        node.inputs.push_back(text(reader));
        break;
      case 2:
        node.outputs.push_back(text(reader));
        break;
      case 3:
        node.name = text(reader);
        break;
      case 4:
        node.op_type = text(reader);
        break;
      case 5:
        node.attributes.push_back(decode_attribute(reader.get_message(), source));
        break;
      case 7:
        node.domain = text(reader);
        break;
      default:
        reader.skip();
    }
  }
  if (node.domain == "ai.onnx") node.domain.clear();
  return node;
}

void decode_shape(pbf_reader reader, ValueInfoProto& value) {
  value.has_shape = true;
  while (reader.next(1)) {
    auto dim = reader.get_message();
    int64_t extent = -1;
    std::string name;
    while (dim.next()) {
      if (dim.tag() == 1)
        extent = dim.get_int64();
      else if (dim.tag() == 2)
        name = text(dim);
      else
        dim.skip();
    }
    value.dims.push_back(extent < 0 ? -1 : extent);
    value.dim_names.push_back(name);
  }
}

ValueInfoProto decode_value(pbf_reader reader) {
  ValueInfoProto value;
  while (reader.next()) {
    if (reader.tag() == 1) {
      value.name = text(reader);
    } else if (reader.tag() == 2) {
      auto type = reader.get_message();
      while (type.next()) {
        if (type.tag() != 1) {  // not a tensor type
          type.skip();
          continue;
        }
        auto tensor = type.get_message();
        while (tensor.next()) {
          if (tensor.tag() == 1)
            value.element_type = tensor.get_int32();
          else if (tensor.tag() == 2)
            decode_shape(tensor.get_message(), value);
          else
            tensor.skip();
        }
      }
    } else {
      reader.skip();
    }
  }
  return value;
}

GraphProto decode_graph(pbf_reader reader, Source& source) {
  GraphProto graph;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        graph.nodes.push_back(decode_node(reader.get_message(), source));
        break;
      case 2:
        graph.name = text(reader);
        break;
      case 5:
        graph.initializers.push_back(decode_tensor(reader.get_message(), source));
        break;
      case 11:
        graph.inputs.push_back(decode_value(reader.get_message()));
        break;
      case 12:
        graph.outputs.push_back(decode_value(reader.get_message()));
        break;
      case 15:
        fail(
            "ONNX: the model has sparse initializers, which are not supported: store them as dense "
            "tensors");
      default:
        reader.skip();
    }
  }
  return graph;
}

}  // namespace

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
      fail("ONNX: ", what, " has element type ", element_type,
           ", which is not supported; expected FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT8, UINT8, "
           "INT32, INT64, BOOL or "
           "FLOAT8E4M3FN");
  }
}

const AttributeProto* NodeProto::attribute(std::string_view name) const {
  for (const AttributeProto& a : attributes)
    if (a.name == name) return &a;
  return nullptr;
}

ModelProto decode_model(const Blob& bytes, const std::string& directory) {
  ModelProto model;
  Source source{bytes, directory, {}};
  bool has_graph = false;
  try {
    pbf_reader reader(bytes.as<char>(), bytes.size());
    while (reader.next()) {
      switch (reader.tag()) {
        case 1:
          model.ir_version = reader.get_int64();
          break;
        case 2:
          model.producer = text(reader);
          break;
        case 7:
          model.graph = decode_graph(reader.get_message(), source);
          has_graph = true;
          break;
        case 8: {
          auto opset = reader.get_message();
          std::string domain;
          int64_t version = 0;
          while (opset.next()) {
            if (opset.tag() == 1)
              domain = text(opset);
            else if (opset.tag() == 2)
              version = opset.get_int64();
            else
              opset.skip();
          }
          model.opsets[domain == "ai.onnx" ? "" : domain] = version;
          break;
        }
        case 25:
          fail(
              "ONNX: the model defines functions of its own, which are not supported: inline them "
              "first "
              "(onnx.inliner.inline_local_functions)");
        default:
          reader.skip();
      }
    }
  } catch (const protozero::exception& problem) {
    fail("ONNX: the bytes are not a serialized ONNX model, or the file is truncated (",
         problem.what(), ")");
  }
  require(has_graph && model.ir_version > 0 && !model.graph.outputs.empty(),
          "ONNX: the bytes are not an ONNX model: they hold no graph with outputs");
  return model;
}

}  // namespace opwright::onnx
