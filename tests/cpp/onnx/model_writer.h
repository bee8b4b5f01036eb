#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

#include "base/blob.h"

namespace opwright {

// Serialized ONNX messages, field by field, so that tests can write what no ONNX library would.
// Field numbers are those of onnx.proto.

using Writer = protozero::pbf_writer;

/// The bytes that `write(writer)` writes.
template <class Write>
std::string message(Write&& write) {
  std::string bytes;
  Writer writer(bytes);
  write(writer);
  return bytes;
}

inline Blob blob(const std::string& bytes) { return Blob::copy(bytes.data(), bytes.size()); }

inline std::string value_info(const std::string& name, int32_t type,
                              const std::vector<std::string>& dims) {
  return message([&](Writer& value) {
    value.add_string(1, name);
    Writer outer(value, 2);
    Writer tensor(outer, 1);
    tensor.add_int32(1, type);
    Writer shape(tensor, 2);
    for (const std::string& dim : dims) {
      Writer extent(shape, 1);
      if (dim.find_first_not_of("-0123456789") == std::string::npos)
        extent.add_int64(1, std::stoll(dim));
      else
        extent.add_string(2, dim);
    }
  });
}

inline std::string float_tensor(const std::string& name, const std::vector<int64_t>& dims,
                                const std::vector<float>& values) {
  return message([&](Writer& tensor) {
    tensor.add_packed_int64(1, dims.begin(), dims.end());
    tensor.add_int32(2, 1);
    tensor.add_string(8, name);
    tensor.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * 4);
  });
}

inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs,
                        const std::vector<std::string>& attributes = {}) {
  return message([&](Writer& n) {
    for (const std::string& input : inputs) n.add_string(1, input);
    for (const std::string& output : outputs) n.add_string(2, output);
    n.add_string(3, "the_" + op);
    n.add_string(4, op);
    for (const std::string& attribute : attributes) n.add_message(5, attribute);
  });
}

inline std::string int_attribute(const std::string& name, int64_t value) {
  return message([&](Writer& a) {
    a.add_string(1, name);
    a.add_int64(3, value);
    a.add_int32(20, 2);
  });
}

inline std::string ints_attribute(const std::string& name, const std::vector<int64_t>& values) {
  return message([&](Writer& a) {
    a.add_string(1, name);
    a.add_packed_int64(8, values.begin(), values.end());
    a.add_int32(20, 7);
  });
}

inline std::string tensor_attribute(const std::string& name, const std::string& tensor) {
  return message([&](Writer& a) {
    a.add_string(1, name);
    a.add_message(5, tensor);
    a.add_int32(20, 4);
  });
}

/// The parts of a graph, each serialized.
struct GraphParts {
  std::vector<std::string> nodes, initializers, inputs, outputs;
};

/// A call of a function, or another node, of a domain.
inline std::string node_of(const std::string& domain, const std::string& op,
                           const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs) {
  std::string bytes = node(op, inputs, outputs);
  Writer(bytes).add_string(7, domain);
  return bytes;
}

inline std::string function(const std::string& domain, const std::string& name,
                            const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs,
                            const std::vector<std::string>& nodes) {
  return message([&](Writer& f) {
    f.add_string(1, name);
    for (const std::string& input : inputs) f.add_string(4, input);
    for (const std::string& output : outputs) f.add_string(5, output);
    for (const std::string& part : nodes) f.add_message(7, part);
    f.add_string(10, domain);
  });
}

inline std::string model(const GraphParts& parts, int64_t opset = 17) {
  return message([&](Writer& m) {
    m.add_int64(1, 8);
    m.add_message(7, message([&](Writer& graph) {
                    for (const std::string& part : parts.nodes) graph.add_message(1, part);
                    graph.add_string(2, "hand_made");
                    for (const std::string& part : parts.initializers) graph.add_message(5, part);
                    for (const std::string& part : parts.inputs) graph.add_message(11, part);
                    for (const std::string& part : parts.outputs) graph.add_message(12, part);
                  }));
    m.add_message(8, message([&](Writer& set) { set.add_int64(2, opset); }));
  });
}

}  // namespace opwright
