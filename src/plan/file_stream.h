#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/blob.h"

namespace opwright {

/// Reads the next bytes of a stream, at most `size`. Returns their number, 0 at the end, less than
/// 0 on failure.
using ReadBytes = std::function<int64_t(void* destination, int64_t size)>;
/// Reads the bytes of an engine file from a stream, for deserialize(), and nothing behind them.
/// Throws Error for a stream that fails, ends too early or has no engine.
Blob read_stream(const ReadBytes& read);

/// Writes bytes. Returns how many it took, 0 or less on failure.
using WriteBytes = std::function<int64_t(const void* data, int64_t size)>;
/// Writes the result of serialize(). Throws Error if `write` fails.
void write_stream(const std::vector<Blob>& pieces, const WriteBytes& write);

}  // namespace opwright
