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
  kUint4 = 21,
  kInt4 = 22,
};
/// Whether the model has two elements in a byte, the first one in the low bits.
constexpr bool is_four_bits(int32_t element_type) {
  return element_type == static_cast<int32_t>(ElementType::kUint4) ||
         element_type == static_cast<int32_t>(ElementType::kInt4);
}

/// The engine's type for an ONNX element type. Double precision becomes FP32. Throws Error naming
/// `what` for types that the engine lacks.
DataType data_type(int32_t element_type, std::string_view what);

/// The place of a tensor's elements in a file beside the model, in the model's words.
struct ExternalData {
  std::string location, offset, length;
};

/// A constant. Its type may be wider than the model's: INT16 becomes INT32, INT4 and UINT4 become
/// INT8 and UINT8.
struct TensorProto {
  std::string name;
  int32_t element_type = 0;  ///< the model's
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;               ///< dense, in `dtype`
  bool has_texts = false;  ///< STRING, whose elements are not kept
  Blob doubles;            ///< the elements, if the model has them in double precision
  /// The place of the elements until they are read.
  std::optional<ExternalData> external{};
  /// Why there are no elements; empty if there are.
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
  /// In a function, the call's attribute to which this one refers; empty for an attribute with a
  /// value of its own.
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

/// A model's declaration of a tensor. `dims` has -1 for extents that are named or unknown.
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
  std::vector<ValueInfoProto> values;  ///< declarations of tensors between the model's nodes
};

using OpsetImports = std::unordered_map<std::string, int64_t>;  ///< version by domain; "": ONNX's

/// A function that the model defines: nodes that replace a node of the function's name.
struct FunctionProto {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> defaults;  ///< of attributes that a call may omit
  std::vector<NodeProto> nodes;
  OpsetImports opsets;
  std::string problem;  ///< why the function cannot be called; empty if it can
};

struct ModelProto {
  int64_t ir_version = 0;
  ModelMetadata metadata;  ///< includes the graph's metadata
  OpsetImports opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::vector<std::string> external_files;  ///< files from which weights were read
};

/// Decodes a serialized onnx.ModelProto. Large weights stay references into `bytes` where their
/// alignment allows it. `directory` is the folder of external data. Files outside of it are
/// refused, and so are links that lead out of it, unless `links` permits them. Throws Error for
/// bytes that are no ONNX model.
ModelProto decode_model(const Blob& bytes, const std::string& directory,
                        Links links = Links::kBeneath);

/// Decodes a model without reading external data: initializers whose elements are not in `bytes`
/// have no elements yet, so that the caller can set them.
ModelProto decode_without_external(const Blob& bytes, const std::string& directory);
/// Reads the elements that decode_without_external() did not read, unless they have been set since.
/// Throws Error for an initializer without elements.
void read_external(ModelProto& model, const std::string& directory, Links links);

/// Gives a tensor its elements: dense, of the model's type and shape. Throws Error for a wrong size
/// in bytes.
void set_elements(TensorProto& tensor, const Blob& raw);

}  // namespace opwright::onnx
