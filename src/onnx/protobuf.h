#pragma once

#include <protozero/exception.hpp>

// A field whose wire type does not fit its number is bad input, in every build.
#define protozero_assert(condition) \
  ((condition) ? static_cast<void>(0) : throw protozero::unknown_pbf_wire_type_exception())
#include <protozero/pbf_reader.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/model.h"

namespace opwright::onnx {

/// The sources of decoding beside the message: the blob that owns the bytes, and the folder of
/// external data.
struct Source {
  const Blob& model;
  const std::string& directory;
  Links links = Links::kBeneath;
  std::unordered_map<std::string, Blob> external_files{};
};

inline std::string text(protozero::pbf_reader& reader) {
  auto view = reader.get_view();
  return std::string(view.data(), view.size());
}

/// A repeated scalar, packed or not: proto2 and proto3 writers differ.
template <class T, class ReadOne, class ReadPacked>
void append(protozero::pbf_reader& reader, std::vector<T>& out, ReadOne one, ReadPacked packed) {
  if (reader.wire_type() == protozero::pbf_wire_type::length_delimited) {
    auto range = packed();
    for (auto value : range) out.push_back(static_cast<T>(value));
  } else {
    out.push_back(static_cast<T>(one()));
  }
}

inline void append_int64(protozero::pbf_reader& r, std::vector<int64_t>& out) {
  append(
      r, out, [&] { return r.get_int64(); }, [&] { return r.get_packed_int64(); });
}

/// A tensor whose elements may still be missing; see TensorProto.
TensorProto decode_tensor(protozero::pbf_reader reader, Source& source);
/// Reads the elements of a tensor from its file. Throws Error where the file does not have them.
void read_external(TensorProto& tensor, Source& source);

}  // namespace opwright::onnx
