#include "backend/rank_sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace opwright {
namespace {

using Clock = RankSockets::Clock;

constexpr uint64_t kSocketMagic = 0x4f50574b534f434b;  // of hosts of one byte order
constexpr uint64_t kSocketVersion = 1;
constexpr size_t kMostToken = 64, kLeastToken = 16;
constexpr size_t kMostRanks = 64, kMostCallers = 128;
/// Rank 0 notices first who is missing: the others wait so much longer for it to say so.
constexpr auto kGraceOfFirst = std::chrono::seconds(1);

/// What a rank says to one that listens, and the answer.
struct Greeting {
  uint64_t magic = kSocketMagic, version = kSocketVersion;
  int32_t rank = 0, ranks = 0;
  uint32_t port = 0;  ///< where it listens itself
  uint32_t token_size = 0;
  char token[kMostToken] = {};
};
enum Verdict : int32_t { kCome, kWrongVersion, kWrongNumber, kRankTaken, kWrongToken };
struct Response {
  uint64_t magic = kSocketMagic;
  int32_t verdict = kCome, ranks = 0;
};
/// Where the ranks listen, or which ones did not come.
struct Directory {
  uint64_t magic = kSocketMagic, missing = 0;
  struct Entry {
    char host[64];
    uint32_t port;
  } entries[kMostRanks] = {};
};

uint64_t bit_of(int rank) { return uint64_t{1} << rank; }

class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  int operator*() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  uint32_t port() const {
    return ntohs(storage.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  }
  bool operator==(const Address& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }
};

/// Numeric addresses only: no name is looked up.
bool parse_numeric(const std::string& host, const std::string& port, Address& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return false;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return true;
}

std::string host_of(const Address& address) {
  char host[64] = {};
  return ::getnameinfo(address.get(), address.size, host, sizeof(host), nullptr, 0,
                       NI_NUMERICHOST) == 0
             ? host
             : "";
}

Address own_address(int socket) {
  Address address;
  ::getsockname(socket, address.get(), &address.size);
  return address;
}

Address other_address(int socket) {
  Address address;
  ::getpeername(socket, address.get(), &address.size);
  return address;
}

int wait_time(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 20));
}

Socket new_socket(const Address& address) {
  return Socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Small messages go at once. A host that vanishes is noticed in 20 s, whether something is on its
/// way there or not.
void set_options(int socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
}

bool send_all(int socket, const void* bytes, size_t size, Clock::time_point deadline) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      from += sent, size -= static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
    pollfd watched{socket, POLLOUT, 0};
    ::poll(&watched, 1, wait_time(deadline));
  }
  return true;
}

bool receive_all(int socket, void* bytes, size_t size, Clock::time_point deadline) {
  auto* to = static_cast<std::byte*>(bytes);
  while (size > 0) {
    const ssize_t got = ::recv(socket, to, size, MSG_DONTWAIT);
    if (got > 0) {
      to += got, size -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (Clock::now() >= deadline) return false;
    pollfd watched{socket, POLLIN, 0};
    ::poll(&watched, 1, wait_time(deadline));
  }
  return true;
}

/// -1 where nobody listens there until the deadline.
Socket call(const Address& address, Clock::time_point deadline) {
  do {
    Socket socket = new_socket(address);
    if (*socket < 0) return socket;
    int result = ::connect(*socket, address.get(), address.size);
    if (result != 0 && errno == EINPROGRESS) {
      pollfd watched{*socket, POLLOUT, 0};
      while (::poll(&watched, 1, wait_time(deadline)) <= 0 && Clock::now() < deadline) {
      }
      int error = ETIMEDOUT;
      socklen_t size = sizeof(error);
      if (watched.revents != 0) ::getsockopt(*socket, SOL_SOCKET, SO_ERROR, &error, &size);
      result = error;
    }
    // A call of a free port of this host may reach itself.
    if (result == 0 && own_address(*socket) != other_address(*socket)) {
      set_options(*socket);
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  return Socket();
}

bool is_same_token(const Greeting& greeting, const std::string& token) {
  char wanted[kMostToken] = {};
  token.copy(wanted, kMostToken);
  unsigned difference = greeting.token_size ^ static_cast<unsigned>(token.size());
  for (size_t i = 0; i < kMostToken; ++i)
    difference |= static_cast<unsigned char>(greeting.token[i] ^ wanted[i]);
  return difference == 0;
}

/// One rank while it meets the others.
class Meeting {
 public:
  Meeting(const RankSockets::Self& self, const MeetingPlace& place, Clock::time_point deadline)
      : self_(self),
        place_(place),
        deadline_(deadline),
        who_(str("Communicator '", self.name, "'")) {
    const size_t colon = place.address.rfind(':');
    std::string host = place.address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    require(colon != std::string::npos &&
                parse_numeric(host, place.address.substr(colon + 1), first_) && first_.port() != 0,
            who_, ": the address is '", place.address,
            "'; expected a numeric one with a port, such as 10.0.0.1:29500");
    require(place.token.size() >= kLeastToken && place.token.size() <= kMostToken, who_,
            ": the token has ", place.token.size(), " characters; expected ", kLeastToken, " to ",
            kMostToken);
    connected.resize(static_cast<size_t>(self.ranks));
  }

  void run(const std::function<void(int, uint64_t)>& late) {
    uint64_t others = 0;
    for (int rank = self_.rank + 1; rank < self_.ranks; ++rank) others |= bit_of(rank);
    Directory directory;
    if (self_.rank == 0) {
      const Socket listener = listen(first_);
      const uint64_t missing = accept(*listener, others, directory);
      directory.missing = missing;
      for (int rank = 1; rank < self_.ranks; ++rank)
        if (*connected[static_cast<size_t>(rank)] >= 0)
          send_all(*connected[static_cast<size_t>(rank)], &directory, sizeof(directory),
                   Clock::now() + kGraceOfFirst);
      if (missing != 0) late(0, missing);
      return;
    }
    Socket first = call(first_, deadline_);
    if (*first < 0) late(self_.rank, bit_of(0));
    Address own = own_address(*first);
    if (own.storage.ss_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(own.storage).sin6_port = 0;
    else
      reinterpret_cast<sockaddr_in&>(own.storage).sin_port = 0;
    const Socket listener = listen(own);
    const uint32_t port = own_address(*listener).port();
    if (!greet(*first, port) ||
        !receive_all(*first, &directory, sizeof(directory), deadline_ + kGraceOfFirst))
      late(self_.rank, bit_of(0));
    require(directory.magic == kSocketMagic, who_, ": what answers at ", place_.address,
            " is no rank of a communicator");
    if (directory.missing != 0) late(0, directory.missing);
    connected[0] = std::move(first);
    for (int rank = 1; rank < self_.rank; ++rank) {
      Directory::Entry& entry = directory.entries[rank];
      entry.host[sizeof(entry.host) - 1] = 0;
      Address address;
      require(parse_numeric(entry.host, str(entry.port), address), who_, ": rank 0 says that rank ",
              rank, " has no address");
      Socket socket = call(address, deadline_);
      if (*socket < 0 || !greet(*socket, 0)) late(self_.rank, bit_of(rank));
      connected[static_cast<size_t>(rank)] = std::move(socket);
    }
    if (const uint64_t missing = accept(*listener, others, directory); missing != 0)
      late(self_.rank, missing);
  }

  std::vector<Socket> connected;

 private:
  Socket listen(const Address& address) const {
    Socket socket = new_socket(address);
    const int yes = 1;
    ::setsockopt(*socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    require(*socket >= 0 && ::bind(*socket, address.get(), address.size) == 0 &&
                ::listen(*socket, kMostCallers) == 0,
            who_, ": rank ", self_.rank, " cannot listen at ", host_of(address), ":",
            address.port(), ": ", std::strerror(errno));
    return socket;
  }

  /// Returns false where the other does not answer. Throws Error where it refuses.
  bool greet(int socket, uint32_t port) const {
    Greeting greeting{.rank = self_.rank, .ranks = self_.ranks, .port = port};
    greeting.token_size = static_cast<uint32_t>(place_.token.size());
    place_.token.copy(greeting.token, kMostToken);
    Response response;
    if (!send_all(socket, &greeting, sizeof(greeting), deadline_) ||
        !receive_all(socket, &response, sizeof(response), deadline_ + kGraceOfFirst))
      return false;
    require(response.magic == kSocketMagic, who_, ": what answers at ", place_.address,
            " is no rank of a communicator");
    require(response.verdict != kWrongVersion, who_,
            ": the other ranks are of another version of Opwright");
    require(response.verdict != kWrongNumber, who_, ": the other ranks expect ", response.ranks,
            " ranks, and this one, rank ", self_.rank, ", expects ", self_.ranks);
    require(response.verdict != kRankTaken, who_, ": another process is rank ", self_.rank,
            " already");
    require(response.verdict == kCome, who_, ": the other ranks have another token than rank ",
            self_.rank);
    return true;
  }

  Verdict judge(const Greeting& greeting, uint64_t missing) const {
    if (greeting.version != kSocketVersion) return kWrongVersion;
    if (!is_same_token(greeting, place_.token)) return kWrongToken;
    if (greeting.ranks != self_.ranks || greeting.rank <= 0 || greeting.rank >= self_.ranks)
      return kWrongNumber;
    return (missing & bit_of(greeting.rank)) == 0 ? kRankTaken : kCome;
  }

  /// Waits for those ranks, and notes where they listen. Returns those that did not come.
  uint64_t accept(int listener, uint64_t missing, Directory& directory) {
    struct Caller {
      Socket socket;
      Greeting greeting;
      size_t got = 0;
    };
    std::vector<Caller> callers;
    while (missing != 0 && Clock::now() < deadline_) {
      std::vector<pollfd> watched{{listener, POLLIN, 0}};
      for (const Caller& caller : callers) watched.push_back({*caller.socket, POLLIN, 0});
      if (::poll(watched.data(), watched.size(), wait_time(deadline_)) <= 0) continue;
      for (size_t i = callers.size(); i-- > 0;) {
        if (watched[i + 1].revents == 0) continue;
        Caller& caller = callers[i];
        const ssize_t got =
            ::recv(*caller.socket, reinterpret_cast<char*>(&caller.greeting) + caller.got,
                   sizeof(Greeting) - caller.got, MSG_DONTWAIT);
        if (got > 0) caller.got += static_cast<size_t>(got);
        const bool is_whole = caller.got == sizeof(Greeting);
        if (got > 0 && !is_whole) continue;
        if (is_whole && caller.greeting.magic == kSocketMagic) welcome(caller, missing, directory);
        callers.erase(callers.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (watched[0].revents == 0) continue;
      Socket socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (*socket < 0) continue;
      // Callers that say nothing make room for new ones.
      if (callers.size() == kMostCallers) callers.erase(callers.begin());
      callers.push_back({std::move(socket), {}, 0});
    }
    return missing;
  }

  template <class Caller>
  void welcome(Caller& caller, uint64_t& missing, Directory& directory) {
    const Greeting& greeting = caller.greeting;
    const Response response{.verdict = judge(greeting, missing), .ranks = self_.ranks};
    // So few bytes fit the empty buffer of a new connection.
    if (!send_all(*caller.socket, &response, sizeof(response), Clock::now()) ||
        response.verdict != kCome)
      return;
    missing &= ~bit_of(greeting.rank);
    set_options(*caller.socket);
    Directory::Entry& entry = directory.entries[greeting.rank];
    host_of(other_address(*caller.socket)).copy(entry.host, sizeof(entry.host) - 1);
    entry.port = greeting.port;
    connected[static_cast<size_t>(greeting.rank)] = std::move(caller.socket);
  }

  const RankSockets::Self& self_;
  const MeetingPlace& place_;
  const Clock::time_point deadline_;
  const std::string who_;
  Address first_;
};

}  // namespace

std::optional<MeetingPlace> meeting_place(const char* address, const char* token) {
  MeetingPlace place{address == nullptr ? "" : address, token == nullptr ? "" : token};
  require(!place.address.empty() || place.token.empty(),
          "Communicator: a token needs the address where ranks meet");
  return place.address.empty() ? std::nullopt : std::optional(std::move(place));
}

struct RankSockets::Peer {
  Socket socket;
  std::mutex sending;
  RankMessage message;
  size_t got = 0;  ///< bytes of the message and its chunk
  std::byte* chunk = nullptr;
};

RankSockets::RankSockets(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) peers_.push_back(std::make_unique<Peer>());
}

std::unique_ptr<RankSockets> RankSockets::meet(const Self& self, const MeetingPlace& place,
                                               Clock::time_point deadline,
                                               const std::function<void(int, uint64_t)>& late) {
  Meeting meeting(self, place, deadline);
  meeting.run(late);
  std::unique_ptr<RankSockets> made(new RankSockets(self.ranks));
  for (size_t rank = 0; rank < meeting.connected.size(); ++rank)
    made->peers_[rank]->socket = std::move(meeting.connected[rank]);
  return made;
}

RankSockets::~RankSockets() {
  stop();
  for (const int end : wake_)
    if (end >= 0) ::close(end);
}

void RankSockets::start(Reader& reader) {
  require(::pipe2(wake_, O_CLOEXEC) == 0, "there is no pipe: ", std::strerror(errno));
  thread_ = std::thread([this, &reader] { read(reader); });
}

void RankSockets::stop() {
  if (!thread_.joinable()) return;
  const char stop = 0;
  const ssize_t written = ::write(wake_[1], &stop, 1);
  static_cast<void>(written);  // an empty pipe takes it
  thread_.join();
}

void RankSockets::abandon() {
  if (thread_.joinable()) thread_.detach();
}

bool RankSockets::send(int rank, const RankMessage& message, std::span<const std::byte> chunk,
                       Clock::time_point deadline) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const std::lock_guard lock(peer.sending);
  if ((gone_.load() & bit_of(rank)) != 0) return false;
  if (send_all(*peer.socket, &message, sizeof(message), deadline) &&
      send_all(*peer.socket, chunk.data(), chunk.size(), deadline))
    return true;
  // Half a message may have gone. The thread sees the end, after what has come before.
  ::shutdown(*peer.socket, SHUT_RDWR);
  return false;
}

void RankSockets::read(Reader& reader) {
  while (true) {
    std::vector<pollfd> watched{{wake_[0], POLLIN, 0}};
    std::vector<int> ranks{-1};
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (*peers_[rank]->socket < 0 || (gone_.load() & bit_of(static_cast<int>(rank))) != 0)
        continue;
      watched.push_back({*peers_[rank]->socket, POLLIN, 0});
      ranks.push_back(static_cast<int>(rank));
    }
    if (::poll(watched.data(), watched.size(), -1) <= 0) continue;
    if (watched[0].revents != 0) return;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents == 0 || take(ranks[i], reader)) continue;
      gone_.fetch_or(bit_of(ranks[i]));
      ::shutdown(*peers_[static_cast<size_t>(ranks[i])]->socket, SHUT_RDWR);
      reader.ended(ranks[i], false);
    }
  }
}

/// Reads what has come. Returns false where the connection has ended.
bool RankSockets::take(int rank, Reader& reader) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  constexpr size_t kHead = sizeof(RankMessage);
  const bool is_head = peer.got < kHead;
  void* const to = is_head ? reinterpret_cast<std::byte*>(&peer.message) + peer.got
                           : peer.chunk + (peer.got - kHead);
  const size_t end = is_head ? kHead : kHead + peer.message.size;
  const ssize_t got = ::recv(*peer.socket, to, end - peer.got, MSG_DONTWAIT);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  peer.got += static_cast<size_t>(got);
  if (peer.got < end) return true;
  if (is_head) {
    peer.chunk = reader.place_of(rank, peer.message);
    if (peer.chunk == nullptr) {
      reader.ended(rank, true);
      return false;
    }
    if (peer.message.size > 0) return true;
  }
  peer.got = 0;
  reader.came(rank, peer.message);
  return true;
}

}  // namespace opwright
