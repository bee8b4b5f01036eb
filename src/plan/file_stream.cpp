#include "plan/file_stream.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "plan/format.h"

namespace opwright {
namespace {

// The most bytes of one read, so that a false size in the header does not ask the stream for all of
// them at once.
constexpr uint64_t kPiece = 64 << 20;

/// Fills [begin, begin + size) with the bytes of the stream from `offset` on.
void read_exactly(const ReadBytes& read, std::byte* begin, uint64_t size, uint64_t offset,
                  uint64_t expected) {
  for (uint64_t done = 0; done < size;) {
    const auto wanted = static_cast<int64_t>(std::min(size - done, kPiece));
    const int64_t got = read(begin + done, wanted);
    require(got >= 0, "the stream reader failed (it returned ", got, ") at byte ", offset + done,
            " of ", expected, " of the engine");
    require(got <= wanted, "the stream reader says that it gave ", got, " bytes, but ", wanted,
            " were asked for");
    require(got > 0, "the stream ends after ", offset + done, " bytes; the engine has ", expected);
    done += static_cast<uint64_t>(got);
  }
}

}  // namespace

Blob read_stream(const ReadBytes& read) {
  PlanHeader header;
  auto* const start = reinterpret_cast<std::byte*>(&header);
  read_exactly(read, start, sizeof(header), 0, sizeof(header));
  require(std::memcmp(header.magic, PlanHeader::kMagic, sizeof(header.magic)) == 0,
          "the stream has no Opwright engine: it does not begin with '",
          std::string_view(PlanHeader::kMagic, sizeof(PlanHeader::kMagic)), "'");
  require(header.file_size >= sizeof(header),
          "the engine in the stream is damaged: its header says ", header.file_size, " bytes");
  try {
    return Blob::make(header.file_size, [&](void* memory) {
      auto* const file = static_cast<std::byte*>(memory);
      std::memcpy(file, &header, sizeof(header));
      read_exactly(read, file + sizeof(header), header.file_size - sizeof(header), sizeof(header),
                   header.file_size);
    });
  } catch (const std::bad_alloc&) {
    fail_with(ErrorCode::kFAILED_ALLOCATION, "there is no memory for the engine in the stream, of ",
              header.file_size, " bytes");
  }
}

void write_stream(const std::vector<Blob>& pieces, const WriteBytes& write) {
  uint64_t written = 0;
  for (const Blob& piece : pieces) {
    for (size_t done = 0; done < piece.size();) {
      const auto rest = static_cast<int64_t>(piece.size() - done);
      const int64_t taken = write(piece.data() + done, rest);
      require(taken > 0 && taken <= rest, "the stream writer failed at byte ", written,
              " of the engine: it returned ", taken, " for ", rest, " bytes");
      done += static_cast<size_t>(taken);
      written += static_cast<uint64_t>(taken);
    }
  }
}

}  // namespace opwright
