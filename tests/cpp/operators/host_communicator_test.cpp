// Ranks in processes of their own: what they exchange, and what becomes of ranks that are missing,
// late, dead, at odds or malicious.

#include "backend/host_communicator.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "free_address.h"

namespace opwright::testing {
namespace {

using Work = std::function<void(int rank, HostCommunicator& communicator)>;

constexpr char kToken[] = "a token of these ranks";

/// Tests of both ways to meet: the memory of one host, and sockets.
class Ranks : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Ranks, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Sockets" : "Memory"; });

/// Runs a rank in each of several processes. Returns what each said: "" or an error's text;
/// "died" of a process that was killed. Fails the test where one is still there after 20 s.
std::vector<std::string> run_ranks(int ranks, double timeout, const Work& work,
                                   bool with_sockets = false) {
  static int number = 0;
  const std::string name = str("test-", ::getpid(), "-", number++);
  const MeetingPlace place{with_sockets ? free_address() : "", kToken};
  std::vector<pid_t> processes;
  std::vector<int> pipes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t process = ::fork();
    if (process == 0) {
      ::alarm(20);
      std::string said;
      try {
        work(rank,
             *HostCommunicator::join(name, rank, ranks, timeout, with_sockets ? &place : nullptr));
      } catch (const Error& error) {
        said = error.what();
      }
      const ssize_t written = ::write(ends[1], said.data(), said.size());
      ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    processes.push_back(process);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> said;
  for (size_t i = 0; i < processes.size(); ++i) {
    char text[1024];
    const ssize_t count = ::read(pipes[i], text, sizeof(text));
    int status = 0;
    EXPECT_EQ(::waitpid(processes[i], &status, 0), processes[i]);
    EXPECT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        << "rank " << i << " ended by signal " << WTERMSIG(status);
    said.push_back(WIFSIGNALED(status) ? "died" : std::string(text, std::max<ssize_t>(count, 0)));
    ::close(pipes[i]);
  }
  return said;
}

std::vector<int> all(int ranks) {
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

CollectiveStep step_of(Shape shape) {
  return {CollectiveOperation::kALL_GATHER, ReduceOperation::kNONE, -1, DataType::kINT64,
          std::move(shape)};
}

/// Throws Error where a member's chunk has not what that member wrote.
void exchange(HostCommunicator& communicator, const std::vector<int>& members, int times) {
  const CollectiveStep step = step_of({4});
  for (int64_t time = 0; time < times; ++time) {
    HostCommunicator::Exchange exchange(communicator, step, members);
    const auto value = [&](int rank, int64_t i) { return rank * 1000 + time * 10 + i; };
    auto* const own = reinterpret_cast<int64_t*>(exchange.next_chunk());
    for (int64_t i = 0; i < 4; ++i) own[i] = value(communicator.rank(), i);
    exchange.publish(32);
    for (const int member : members) {
      const auto* const theirs = reinterpret_cast<const int64_t*>(exchange.chunk_of(member));
      for (int64_t i = 0; i < 4; ++i)
        require(theirs[i] == value(member, i), "rank ", member, " sent ", theirs[i], "; expected ",
                value(member, i));
    }
    exchange.finish_chunk();
  }
}

void expect_each(const std::vector<std::string>& said, const char* text) {
  for (const std::string& each : said) EXPECT_NE(each.find(text), std::string::npos) << each;
}

TEST_P(Ranks, RanksReadWhatOthersWrote) {
  for (const int ranks : {1, 2, 8})
    EXPECT_EQ(run_ranks(ranks, 10,
                        [&](int, HostCommunicator& all_of) { exchange(all_of, all(ranks), 300); }),
              std::vector<std::string>(static_cast<size_t>(ranks)));
}

TEST_P(Ranks, GroupsExchangeBesideEachOther) {
  const auto said = run_ranks(
      5, 10,
      [](int rank, HostCommunicator& communicator) {
        for (int left_out = 0; left_out < 40; ++left_out) {
          std::vector<int> members = all(5);
          std::erase(members, left_out % 5);
          std::rotate(members.begin(), members.begin() + left_out % 3, members.end());
          if (rank != left_out % 5) exchange(communicator, members, 1);
        }
        exchange(communicator, rank < 2 ? std::vector{1, 0} : std::vector{2, 4, 3}, 100);
      },
      GetParam());
  EXPECT_EQ(said, std::vector<std::string>(5));
}

TEST(HostCommunicator, NamesTheRanksThatDoNotComeToTheMeeting) {
  const std::string name = str("missing-", ::getpid());
  opwright::expect_contains(opwright::error_of([&] { HostCommunicator::join(name, 1, 4, 0.2); }),
                            {"rank 1 waited 0.2 s for ranks 0, 2, 3"});
  // Another rank of the same number, and one that expects other ranks.
  std::string first;
  std::thread waiting(
      [&] { first = opwright::error_of([&] { HostCommunicator::join(name, 0, 2, 1); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  opwright::expect_contains(opwright::error_of([&] { HostCommunicator::join(name, 0, 2, 1); }),
                            {"another process is rank 0 already"});
  opwright::expect_contains(opwright::error_of([&] { HostCommunicator::join(name, 0, 3, 1); }),
                            {"the other ranks expect 2 ranks", "expects 3"});
  waiting.join();
  opwright::expect_contains(first, {"waited 1 s for rank 1"});
}

TEST_P(Ranks, LateRanksEndItForAll) {
  const auto said = run_ranks(
      3, 0.3,
      [](int rank, HostCommunicator& communicator) {
        exchange(communicator, all(3), 1);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(800));
        exchange(communicator, all(3), 1);
      },
      GetParam());
  expect_each(said, "waited 0.3 s for rank 1, which did not come");
}

TEST_P(Ranks, DeadRanksEndItAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto said = run_ranks(
      3, 15,
      [](int rank, HostCommunicator& communicator) {
        exchange(communicator, all(3), 1);
        if (rank == 2) ::kill(::getpid(), SIGKILL);
        exchange(communicator, all(3), 1);
      },
      GetParam());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(said[2], "died");
  expect_each({said[0], said[1]}, "rank 2 has ended");
}

TEST_P(Ranks, RanksThatDisagreeAreBothNamed) {
  const auto said = run_ranks(
      3, 10,
      [](int rank, HostCommunicator& communicator) {
        CollectiveStep step = step_of(rank == 1 ? Shape{2, 2} : Shape{4});
        const std::vector<int> members = all(3);
        HostCommunicator::Exchange exchange(communicator, step, members);
        exchange.next_chunk();
        exchange.publish(32);
      },
      GetParam());
  expect_each(said, "ranks run different steps");
  expect_each(said, "ALL_GATHER of INT64 [4]");
  expect_each(said, "ALL_GATHER of INT64 [2, 2]");
}

/// The shared memory of this process's communicator.
std::span<std::byte> find_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("opwright communicator") == std::string::npos) continue;
    const size_t dash = line.find('-');
    const uintptr_t begin = std::stoull(line.substr(0, dash), nullptr, 16);
    const uintptr_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
    return {reinterpret_cast<std::byte*>(begin), end - begin};  // NOLINT(*-int-to-ptr)
  }
  return {};
}

TEST(HostCommunicator, NonsenseInTheMemoryNeitherCrashesNorHangs) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    const auto said = run_ranks(3, 0.5, [&](int rank, HostCommunicator& communicator) {
      if (rank != 2) {
        for (int time = 0; time < 1000; ++time) exchange(communicator, {0, 1}, 1);
        exchange(communicator, all(3), 1);
        return;
      }
      const std::span<std::byte> memory = find_memory();
      require(!memory.empty(), "there is no memory");
      std::mt19937 random(seed);
      // Descriptions and counters lie before the chunks.
      const size_t most = seed % 2 == 0 ? 4096 : memory.size();
      for (int i = 0; i < 20000; ++i)
        memory[random() % most] = static_cast<std::byte>(seed < 4 ? random() : 0xff);
    });
    // Ranks 0 and 1 may see the wrong elements, but they end, and with an error.
    for (int rank = 0; rank < 2; ++rank) EXPECT_NE(said[static_cast<size_t>(rank)], "");
  }
}

TEST(HostCommunicator, AForkedProcessAndOtherThreadsMayNotUseIt) {
  const auto communicator = HostCommunicator::join(str("fork-", ::getpid()), 0, 1, 1);
  const CollectiveStep step = step_of({4});
  const std::vector<int> members = {0};
  const auto error = [&] {
    return opwright::error_of([&] { HostCommunicator::Exchange(*communicator, step, members); });
  };
  std::string other;
  {
    const HostCommunicator::Exchange exchange(*communicator, step, members);
    std::thread([&] { other = error(); }).join();
  }
  opwright::expect_contains(other, {"used by another run at the same time"});
  const pid_t child = ::fork();
  if (child == 0) ::_exit(error().find("belongs to the process") == std::string::npos ? 1 : 0);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(error(), "no error");
}

TEST_P(Ranks, BytesOfTheRootReachAllRanks) {
  const auto said = run_ranks(
      3, 10,
      [](int rank, HostCommunicator& communicator) {
        for (int root = 0; root < 3; ++root) {
          std::vector<std::byte> bytes(200, std::byte(rank));
          communicator.broadcast(bytes, root);
          require(std::ranges::count(bytes, std::byte(root)) == 200, "rank ", rank, " of ", root);
        }
      },
      GetParam());
  EXPECT_EQ(said, std::vector<std::string>(3));
}

/// A rank that meets others over sockets in this process.
std::string error_of_joining(int rank, int ranks, double timeout, const MeetingPlace& place) {
  return opwright::error_of(
      [&] { HostCommunicator::join("over sockets", rank, ranks, timeout, &place); });
}

TEST(HostCommunicator, RanksOfOtherHostsAreNamedWhereTheyDoNotCome) {
  const MeetingPlace place{free_address(), kToken};
  opwright::expect_contains(error_of_joining(1, 3, 0.2, place), {"waited 0.2 s for rank 0"});
  opwright::expect_contains(error_of_joining(0, 3, 0.2, place), {"waited 0.2 s for ranks 1, 2"});
  // Rank 0 tells those that came.
  std::string second;
  std::thread waiting([&] { second = error_of_joining(2, 3, 0.5, place); });
  error_of_joining(0, 3, 0.5, place);
  waiting.join();
  opwright::expect_contains(second, {"rank 0 waited 0.5 s for rank 1"});
}

TEST(HostCommunicator, StrangersDoNotComeInOverSockets) {
  const MeetingPlace place{free_address(), kToken};
  std::string first;
  std::thread waiting([&] { first = error_of_joining(0, 2, 2, place); });
  opwright::expect_contains(error_of_joining(1, 2, 1, {place.address, "a token of other ranks!"}),
                            {"the other ranks have another token than rank 1"});
  opwright::expect_contains(error_of_joining(1, 3, 1, place), {"the other ranks expect 2 ranks"});
  // Callers that send anything, or nothing, do not keep a rank away.
  std::mt19937 random(7);
  std::vector<int> callers;
  for (int i = 0; i < 200; ++i) {
    const int caller = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(place.address.substr(place.address.find(':') + 1))));
    ASSERT_EQ(::connect(caller, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    std::string bytes(random() % 300, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    static_cast<void>(::send(caller, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    callers.push_back(caller);
  }
  opwright::expect_contains(error_of_joining(1, 2, 1, place), {"no error"});
  waiting.join();
  opwright::expect_contains(first, {"no error"});
  for (const int caller : callers) ::close(caller);
}

TEST(HostCommunicator, AddressesAndTokensOfMeetingsAreChecked) {
  for (const char* const wrong : {"", "localhost:1", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x"})
    opwright::expect_contains(error_of_joining(0, 2, 1, {wrong, kToken}),
                              {"expected a numeric one with a port"});
  opwright::expect_contains(error_of_joining(0, 2, 1, {"127.0.0.1:1", "short"}),
                            {"the token has 5 characters; expected 16 to 64"});
}

/// The TCP sockets of this process that are connected.
std::vector<int> find_sockets() {
  std::vector<int> found;
  for (int number = 3; number < 100; ++number) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (::getpeername(number, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.sin_family == AF_INET)
      found.push_back(number);
  }
  return found;
}

TEST(HostCommunicator, NonsenseFromAnotherHostEndsItForAll) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const auto said = run_ranks(
        3, 1,
        [&](int rank, HostCommunicator& communicator) {
          exchange(communicator, all(3), 1);
          if (rank == 2) {
            std::mt19937 random(seed);
            RankMessage message{.kind = 1 + seed % 5, .size = seed % 3 == 0 ? 0 : 1U << 30};
            message.count = seed % 2 == 0 ? random() : ~uint64_t{0};
            if (seed >= 6)
              for (size_t i = 0; i < sizeof(message); ++i)
                reinterpret_cast<unsigned char*>(&message)[i] =
                    static_cast<unsigned char>(random());
            for (const int socket : find_sockets())
              static_cast<void>(::send(socket, &message, sizeof(message), MSG_NOSIGNAL));
          }
          exchange(communicator, all(3), 1);
        },
        true);
    for (int rank = 0; rank < 2; ++rank) EXPECT_NE(said[static_cast<size_t>(rank)], "") << seed;
  }
}

TEST_P(Ranks, TellsWhoHasEndedAndWhoHasLeft) {
  const auto said = run_ranks(
      4, 10,
      [](int rank, HostCommunicator& communicator) {
        if (rank == 1) ::raise(SIGKILL);
        if (rank == 3) return;
        while ((communicator.ended() & 2) == 0 || (communicator.left() & 8) == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        communicator.look_for_ended();
      },
      GetParam());
  EXPECT_EQ(said[1], "died");
  EXPECT_EQ(said[3], "");
  for (const int rank : {0, 2}) opwright::expect_contains(said[rank], {"ranks 1, 3 have ended"});
}

}  // namespace
}  // namespace opwright::testing
