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

/// Reads a file. Throws Error naming the file if it is not an NPY file, is truncated, is in Fortran
/// order, or has a type that the engine does not have.
NpyArray read_npy(const std::string& path);
/// Reads the bytes of a file; `path` is for messages.
NpyArray parse_npy(const Blob& file, const std::string& path);
void write_npy(const std::string& path, const NpyArray& array);

}  // namespace opwright
