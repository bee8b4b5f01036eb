#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/blob.h"

namespace opwright {

/// One end of a stream socket, over which messages go to another process and come from it.
class MessageStream {
 public:
  struct Message {
    uint8_t kind = 0;
    Blob bytes;
  };
  /// Called at least every 50 ms while nothing moves. False gives the message up.
  using Wait = std::function<bool()>;

  /// Closes the socket at its end.
  explicit MessageStream(int socket) : socket_(socket) {}
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  /// A message of the pieces one after the other. False where it was given up, or the other end is
  /// closed.
  bool send(uint8_t kind, std::span<const Blob> pieces, const Wait& wait) const;
  /// The next message; none where it was given up, where the other end is closed, or where it has
  /// more than `most` bytes.
  std::optional<Message> receive(uint64_t most, const Wait& wait) const;

 private:
  bool write(const void* from, size_t bytes, const Wait& wait) const;
  bool read(void* to, size_t bytes, const Wait& wait) const;

  const int socket_;
};

}  // namespace opwright
