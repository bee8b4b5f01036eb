#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/blob.h"
#include "base/types.h"

namespace opwright::onnx {

/// onnx.TensorProto.DataType: the numbers of the ONNX specification.
enum class ElementType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBfloat16 = 16,
  kFloat8E4M3FN = 17,
};

/// The engine's type for an ONNX element type; double precision becomes FP32. Throws Error naming
/// `what` for types that the engine does not have.
DataType data_type(int32_t element_type, std::string_view what);

/// A constant. Its type may be wider than the model's: INT16 becomes INT32.
struct TensorProto {
  std::string name;
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;               ///< dense, in `dtype`
  bool has_texts = false;  ///< STRING, whose elements are not kept
  Blob doubles;            ///< the elements where the model has them in double precision
};

struct AttributeProto {
  enum class Type : int32_t {
    kUndefined = 0,
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8,
  };
  std::string name;
  Type type = Type::kUndefined;
  float f = 0;
  int64_t i = 0;
  std::string s;
  TensorProto t;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
};

struct NodeProto {
  std::string name, op_type, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> attributes;
  const AttributeProto* attribute(std::string_view name) const;
};

/// A graph input or output; `dims` holds -1 for extents that are named or unknown.
struct ValueInfoProto {
  std::string name;
  int32_t element_type = 0;
  bool has_shape = false;
  std::vector<int64_t> dims;
  std::vector<std::string> dim_names;
};

struct GraphProto {
  std::string name;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfoProto> inputs, outputs;
};

struct ModelProto {
  int64_t ir_version = 0;
  std::string producer;
  std::unordered_map<std::string, int64_t> opsets;  ///< version by domain; "" is the default domain
  GraphProto graph;
};

/// Decodes a serialized onnx.ModelProto. Large weights stay references into `bytes` where their
/// alignment allows it. `directory` is where external data lies; files outside of it are refused.
/// Throws Error for anything that is no ONNX model.
ModelProto decode_model(const Blob& bytes, const std::string& directory);

}  // namespace opwright::onnx
