#include "compile/trial_process.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "base/library_folder.h"
#include "base/limits.h"
#include "base/message_stream.h"
#include "compile/candidate_failure.h"

namespace opwright {
namespace {

// A driver that finds many GPUs takes seconds to start.
constexpr double kStartSeconds = 60;
constexpr double kEndSeconds = 2;
constexpr uint64_t kMaxText = 1 << 20;

struct SpawnSettings {
  SpawnSettings() {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    // The parent receives Ctrl-C and ends the child.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

}  // namespace

/// The child process and the socket to it.
class TrialProcess::Child {
 public:
  /// Throws Error where the process cannot be started.
  explicit Child(const std::string& device) : Child(device, make_sockets()) {}
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const MessageStream& stream() const { return stream_; }

  /// Does not wait.
  bool has_ended() {
    if (is_gone_) return true;
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    // Other code in this process may have waited for all children.
    if (ended == pid_) status_ = status;
    return is_gone_ = true;
  }

  /// How the process ended, once it ends by itself.
  std::string wait_for_end() {
    const Deadline deadline(kEndSeconds);
    while (!has_ended() && !deadline.has_passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end();
    constexpr const char* kWho = "the process that ran it first ended";
    if (status_ && WIFSIGNALED(*status_))
      return str(kWho, " by signal ", WTERMSIG(*status_), " (", strsignal(WTERMSIG(*status_)), ")");
    if (status_ && WIFEXITED(*status_))
      return str(kWho, " with the status ", WEXITSTATUS(*status_));
    return kWho;
  }

 private:
  struct Sockets {
    int own, childs;
  };
  static Sockets make_sockets() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
            "socketpair: ", std::strerror(errno));
    return {ends[0], ends[1]};
  }

  Child(const std::string& device, Sockets sockets) : stream_(sockets.own) {
    const std::string program = library_folder() / kTrialProgram;
    SpawnSettings settings;
    posix_spawn_file_actions_adddup2(&settings.actions, sockets.childs, STDIN_FILENO);
    const char* const arguments[] = {program.c_str(), device.c_str(), nullptr};
    const int problem = posix_spawn(&pid_, program.c_str(), &settings.actions, &settings.attributes,
                                    const_cast<char* const*>(arguments), environ);
    close(sockets.childs);
    require(problem == 0, "'", program, "' cannot be started: ", std::strerror(problem));
  }

  void end() {
    if (has_ended()) return;
    kill(pid_, SIGKILL);
    int status = 0;
    pid_t ended = 0;
    do {
      ended = waitpid(pid_, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended == pid_) status_ = status;
    is_gone_ = true;
  }

  pid_t pid_ = -1;
  const MessageStream stream_;
  bool is_gone_ = false;
  std::optional<int> status_;
};

TrialProcess::TrialProcess(const Device& device, Log log) : device_(device), log_(log) {}

TrialProcess::~TrialProcess() = default;

bool TrialProcess::start(const Check& check) {
  libraries_.clear();
  try {
    child_ = std::make_unique<Child>(str(device_.backend().name(), ":", device_.ordinal()));
    const Deadline deadline(kStartSeconds);
    const auto ready = child_->stream().receive(kMaxText, [&] {
      check();
      return !deadline.has_passed();
    });
    if (ready && ready->kind == static_cast<uint8_t>(TrialOutcome::kRan)) {
      const std::string identity(ready->bytes.as<char>(), ready->bytes.size());
      require(identity == device_.identity(), "its device is ", identity, ", not ",
              device_.identity());
      log_.verbose("Another process (", kTrialProgram,
                   ") runs candidates that never ran on this device");
      return true;
    }
    if (ready) fail(std::string(ready->bytes.as<char>(), ready->bytes.size()));
    require(!deadline.has_passed(), "it has not started within ", kStartSeconds, " seconds");
    fail(child_->wait_for_end());
  } catch (const Error& error) {
    rethrow_end(std::current_exception());
    child_.reset();
    obstacle_ = error.what();
    log_.warning("Candidates that never ran on this device do not run in another process first: ",
                 obstacle_, ". One that faults ends the build");
    return false;
  }
}

TrialProcess::Answer TrialProcess::ask(TrialRequest request, std::span<const Blob> message,
                                       double seconds, const Check& check) {
  const Deadline deadline(seconds);
  const MessageStream::Wait wait = [&] {
    check();
    return !deadline.has_passed();
  };
  const auto kind = static_cast<uint8_t>(request);
  std::optional<MessageStream::Message> reply;
  if (child_->stream().send(kind, message, wait)) reply = child_->stream().receive(kMaxText, wait);
  Answer answer{TrialOutcome::kFault, {}};
  if (reply) {
    answer.outcome = static_cast<TrialOutcome>(reply->kind);
    answer.text = std::string(reply->bytes.as<char>(), reply->bytes.size());
  } else if (deadline.has_passed()) {
    answer.text = str("it did not end within ", seconds, " seconds (kernel_seconds)");
  } else {
    answer.text = child_->wait_for_end();
  }
  if (answer.outcome == TrialOutcome::kFault) child_.reset();
  return answer;
}

TrialProcess::Answer TrialProcess::run(const Plan& plan, std::span<const std::string> libraries,
                                       double seconds, const Check& check) {
  if (!obstacle_.empty()) return {TrialOutcome::kUnknown, obstacle_};
  try {
    // An end while the process has nothing to do is no candidate's fault.
    if (child_ != nullptr && child_->has_ended()) child_.reset();
    if (child_ == nullptr && !start(check)) return {TrialOutcome::kUnknown, obstacle_};
    for (const std::string& path : libraries) {
      if (libraries_.contains(path)) continue;
      const Blob name = Blob::copy(path.data(), path.size());
      Answer answer = ask(TrialRequest::kLoadLibrary, {&name, 1}, seconds, check);
      if (answer.outcome != TrialOutcome::kRan) return answer;
      libraries_.insert(path);
    }
    return ask(TrialRequest::kRun, serialize(plan), seconds, check);
  } catch (...) {
    child_.reset();
    throw;
  }
}

}  // namespace opwright
