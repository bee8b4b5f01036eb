#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/blob.h"

namespace opwright {

/// Gives the next bytes of a stream, at most so many: how many they are, 0 at its end, less on
/// failure.
using ReadBytes = std::function<int64_t(void* destination, int64_t size)>;
/// The bytes of an engine file from a stream, for deserialize(); of what follows them nothing is
/// read. Throws Error for a stream that fails, ends too early or has no engine.
Blob read_stream(const ReadBytes& read);

/// Takes bytes: how many of them, 0 or less on failure.
using WriteBytes = std::function<int64_t(const void* data, int64_t size)>;
/// Writes what serialize() gave. Throws Error where the stream does not take it.
void write_stream(const std::vector<Blob>& pieces, const WriteBytes& write);

}  // namespace opwright
