#pragma once

#include <string>

#include "base/blob.h"
#include "base/types.h"

namespace opwright {

/// An array in NumPy's NPY format, C order, little-endian. BF16 is stored as two-byte void ("|V2"),
/// as ml_dtypes does.
struct NpyArray {
  DataType dtype = DataType::kFLOAT;
  Shape shape;
  Blob data;
};

/// Throws Error naming the file for what is no NPY file, is truncated, in Fortran order or of a
/// type that the engine does not have.
NpyArray read_npy(const std::string& path);
/// The same of the file's bytes; `path` is for messages.
NpyArray parse_npy(const Blob& file, const std::string& path);
void write_npy(const std::string& path, const NpyArray& array);

}  // namespace opwright
