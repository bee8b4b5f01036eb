#include "base/message_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace opwright {
namespace {

constexpr int kPauseMilliseconds = 50;

struct Header {
  uint64_t kind, bytes;
};

/// Calls `move(at)`, which returns how many bytes it moved, until all are moved. A result of zero
/// ends the stream.
template <class Move>
bool move_all(int socket, short event, size_t bytes, const MessageStream::Wait& wait,
              const Move& move) {
  for (size_t at = 0; at < bytes;) {
    if (const ssize_t moved = move(at); moved > 0) {
      at += static_cast<size_t>(moved);
      continue;
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    if (!wait()) return false;
    pollfd ready{socket, event, 0};
    poll(&ready, 1, kPauseMilliseconds);
  }
  return true;
}

}  // namespace

MessageStream::~MessageStream() { close(socket_); }

bool MessageStream::write(const void* from, size_t bytes, const Wait& wait) const {
  return move_all(socket_, POLLOUT, bytes, wait, [&](size_t at) {
    return ::send(socket_, static_cast<const std::byte*>(from) + at, bytes - at,
                  MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

bool MessageStream::read(void* to, size_t bytes, const Wait& wait) const {
  return move_all(socket_, POLLIN, bytes, wait, [&](size_t at) {
    return recv(socket_, static_cast<std::byte*>(to) + at, bytes - at, MSG_DONTWAIT);
  });
}

bool MessageStream::send(uint8_t kind, std::span<const Blob> pieces, const Wait& wait) const {
  Header header{kind, 0};
  for (const Blob& piece : pieces) header.bytes += piece.size();
  if (!write(&header, sizeof(header), wait)) return false;
  for (const Blob& piece : pieces)
    if (!write(piece.data(), piece.size(), wait)) return false;
  return true;
}

std::optional<MessageStream::Message> MessageStream::receive(uint64_t most,
                                                             const Wait& wait) const {
  Header header{};
  if (!read(&header, sizeof(header), wait) || header.bytes > most) return std::nullopt;
  Message message{static_cast<uint8_t>(header.kind), {}};
  bool is_whole = true;
  message.bytes = Blob::make(static_cast<size_t>(header.bytes), [&](void* to) {
    is_whole = read(to, static_cast<size_t>(header.bytes), wait);
  });
  if (!is_whole) return std::nullopt;
  return message;
}

}  // namespace opwright
