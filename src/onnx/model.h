#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/blob.h"
#include "base/file.h"
#include "base/types.h"
#include "network/model_metadata.h"

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

/// Where a file beside the model has a tensor's elements, as the model says it.
struct ExternalData {
  std::string location, offset, length;
};

/// A constant. Its type may be wider than the model's: INT16 becomes INT32.
struct TensorProto {
  std::string name;
  int32_t element_type = 0;  ///< the model's
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;               ///< dense, in `dtype`
  bool has_texts = false;  ///< STRING, whose elements are not kept
  Blob doubles;            ///< the elements where the model has them in double precision
  /// Where the elements lie as long as they have not been read.
  std::optional<ExternalData> external{};
  /// Why there are no elements; empty where there are.
  std::string problem{};
};

struct GraphProto;

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
  /// In a function: the attribute of its call that stands for this one; empty for one of its own.
  std::string reference;
  float f = 0;
  int64_t i = 0;
  std::string s;
  TensorProto t;
  std::shared_ptr<GraphProto> g;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
};

struct NodeProto {
  std::string name, op_type, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> attributes;
  const AttributeProto* attribute(std::string_view name) const;
};

/// What a model says of a tensor; `dims` holds -1 for extents that are named or unknown.
struct ValueInfoProto {
  std::string name;
  int32_t element_type = 0;
  bool has_shape = false;
  std::string other_type;  ///< "sequence" and the like; empty for tensors
  std::vector<int64_t> dims;
  std::vector<std::string> dim_names;
};

struct GraphProto {
  std::string name, description;
  ModelMetadata::Properties properties;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfoProto> inputs, outputs;
  std::vector<ValueInfoProto> values;  ///< what the model says of tensors between its nodes
};

using OpsetImports = std::unordered_map<std::string, int64_t>;  ///< version by domain; "": ONNX's

/// A function that the model defines: nodes that stand for a node of its name.
struct FunctionProto {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> defaults;  ///< of attributes that a call may leave out
  std::vector<NodeProto> nodes;
  OpsetImports opsets;
  std::string problem;  ///< why nobody can call it; empty where one can
};

struct ModelProto {
  int64_t ir_version = 0;
  ModelMetadata metadata;  ///< with the graph's
  OpsetImports opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::vector<std::string> external_files;  ///< that weights were read from
};

/// Decodes a serialized onnx.ModelProto. Large weights stay references into `bytes` where their
/// alignment allows it. `directory` is where external data lies; files outside of it are refused,
/// and so are links that lead out of it, unless `links` permits them. Throws Error for anything
/// that is no ONNX model.
ModelProto decode_model(const Blob& bytes, const std::string& directory,
                        Links links = Links::kBeneath);

/// The same, but initializers whose elements are not in `bytes` have none yet, so that the caller
/// can set them.
ModelProto decode_without_external(const Blob& bytes, const std::string& directory);
/// Reads what decode_without_external() left, unless it has been set since. Throws Error for an
/// initializer whose elements are nowhere.
void read_external(ModelProto& model, const std::string& directory, Links links);

/// Gives a tensor its elements: dense, of the model's type and shape. Throws Error where their size
/// in bytes is another one.
void set_elements(TensorProto& tensor, const Blob& raw);

}  // namespace opwright::onnx
