#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/blob.h"

namespace opwright {

/// One end of a stream socket that exchanges messages with another process.
class MessageStream {
 public:
  struct Message {
    uint8_t kind = 0;
    Blob bytes;
  };
  /// Called at least every 50 ms while no bytes move. False gives the message up.
  using Wait = std::function<bool()>;

  /// The destructor closes the socket.
  explicit MessageStream(int socket) : socket_(socket) {}
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  /// Sends a message of the pieces in order. False if it was given up, or the other end is closed.
  bool send(uint8_t kind, std::span<const Blob> pieces, const Wait& wait) const;
  /// Receives the next message. Empty if it was given up, if the other end is closed, or if it has
  /// more than `most` bytes.
  std::optional<Message> receive(uint64_t most, const Wait& wait) const;

 private:
  bool write(const void* from, size_t bytes, const Wait& wait) const;
  bool read(void* to, size_t bytes, const Wait& wait) const;

  const int socket_;
};

}  // namespace opwright
