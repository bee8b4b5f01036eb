// The target without libFuzzer, for builds with any compiler and without sanitizers: random scripts
// as fast as they go, or what a given script does, in words.

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "run/pages.h"
#include "run/run_plan.h"
#include "run/run_script.h"
#include "run/script.h"
#include "run/seeds.h"

namespace {

using namespace opwright::fuzz;

constexpr size_t kMaxScript = 4096;
constexpr int kSecondsPerScript = 5;

std::vector<uint8_t> current;
const char* crash_folder = nullptr;
volatile uint64_t number = 0;  ///< of the script
bool is_quiet = false;

void say(const char* text) { (void)!write(2, text, std::strlen(text)); }

/// What went wrong where: the same for the same fault, in all processes that one has forked.
uint64_t* signature = nullptr;

void sign(const char* what, void* const* frames, int count) {
  if (signature == nullptr) return;
  uint64_t hash = 14695981039346656037u;
  for (; *what != 0; ++what) hash = (hash ^ static_cast<uint8_t>(*what)) * 1099511628211u;
  // The first ones are the handler's.
  for (int i = 3; i < count && i < 7; ++i)
    hash = (hash ^ reinterpret_cast<uintptr_t>(frames[i])) * 1099511628211u;
  *signature = hash;
}

/// Tells the script that was running and where it was, by calls that are safe in a signal handler.
void tell(const char* what) {
  void* frames[24];
  const int count = backtrace(frames, 24);
  sign(what, frames, count);
  if (is_quiet) return;
  say("fuzz: ");
  say(what);
  say("\nseed: ");
  say(seeds()[seed_of(current.data(), current.size())].name.c_str());
  static char path[1024];
  if (crash_folder != nullptr) {
    std::snprintf(path, sizeof(path), "%s/crash-%d-%llu", crash_folder, static_cast<int>(getpid()),
                  static_cast<unsigned long long>(number));
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0) {
      (void)!write(file, current.data(), current.size());
      close(file);
    }
    say("\nfile: ");
    say(path);
  } else {
    say("\nscript: ");
    static char text[2 * kMaxScript];
    size_t length = 0;
    for (const uint8_t byte : current) {
      text[length++] = "0123456789abcdef"[byte >> 4];
      text[length++] = "0123456789abcdef"[byte & 15];
    }
    (void)!write(2, text, length);
  }
  say("\n");
  backtrace_symbols_fd(frames, count, 2);
  say("----\n");
}

constexpr std::pair<int, const char*> kSignals[] = {{SIGSEGV, "SIGSEGV"},
                                                    {SIGBUS, "SIGBUS"},
                                                    {SIGFPE, "SIGFPE"},
                                                    {SIGILL, "SIGILL"},
                                                    {SIGABRT, "SIGABRT"}};

void on_signal(int signal_number) {
  for (const auto& [each, name] : kSignals)
    if (each == signal_number) tell(name);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/// Every few seconds: still the same script?
void on_alarm(int) {
  static uint64_t last = 0;
  if (last == number && number != 0) {
    tell("a script that takes too long");
    _exit(3);
  }
  last = number;
}

void watch() {
  static uint8_t stack[1 << 16];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof(stack);
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = on_signal;
  for (const auto& [each, name] : kSignals) sigaction(each, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  itimerval every{};
  every.it_interval.tv_sec = every.it_value.tv_sec = kSecondsPerScript;
  setitimer(ITIMER_REAL, &every, nullptr);
  void* frame = nullptr;
  backtrace(&frame, 1);  // which allocates the first time
}

std::vector<uint8_t> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() > kMaxScript) bytes.resize(kMaxScript);
  return bytes;
}

void write_file(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void make_script(Random& random, size_t seed) {
  current.resize(24 + random.below(120));
  for (uint8_t& byte : current) byte = static_cast<uint8_t>(random() >> 32);
  const uint16_t id = seed_id(seed);
  current[0] = static_cast<uint8_t>(id);
  current[1] = static_cast<uint8_t>(id >> 8);
}

/// The files, and those in folders.
std::vector<std::string> files_in(const std::vector<std::string>& places) {
  std::vector<std::string> paths;
  for (const std::string& place : places) {
    DIR* folder = opendir(place.c_str());
    if (folder == nullptr) {
      paths.push_back(place);
      continue;
    }
    while (const dirent* entry = readdir(folder))
      if (entry->d_name[0] != '.') paths.push_back(place + "/" + entry->d_name);
    closedir(folder);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Calls `work` in a process of its own; whether that ended well.
template <class Work>
bool survives(Work&& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    watch();
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

void describe(const std::string& path) {
  current = read(path);
  // What is done is told before it is done, as it may not end well.
  std::printf("== %s\n%s", path.c_str(), describe_script(current.data(), current.size()).c_str());
  const bool is_well = survives([] {
    number = 1;
    std::string log;
    run_script(current.data(), current.size(), &log);
    std::printf("-- as it ran:\n%s", log.c_str());
    std::fflush(stdout);
  });
  if (!is_well) std::printf("-- it did not end well\n");
}

/// Shorter, and with more zeros, as long as the same goes wrong.
void minimize(const std::string& path) {
  is_quiet = true;
  signature = static_cast<uint64_t*>(
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  uint64_t wanted = 0;
  current = read(path);
  const auto is_kept = [&](std::vector<uint8_t> tried) {
    std::swap(current, tried);
    *signature = 0;
    const bool is_well = survives([] {
      close(2);
      number = 1;
      run_script(current.data(), current.size());
    });
    const bool is_same = !is_well && (wanted == 0 || *signature == wanted);
    if (!is_same) std::swap(current, tried);
    return is_same;
  };
  if (!is_kept(current)) {
    std::printf("%s ends well\n", path.c_str());
    return;
  }
  wanted = *signature;
  for (size_t part = current.size() / 2; part > 0; part /= 2)
    while (current.size() > part + 3 &&
           is_kept({current.begin(), current.end() - static_cast<std::ptrdiff_t>(part)})) {
    }
  for (int changes = 0; changes < (current[2] & 7); ++changes) {
    std::vector<uint8_t> tried = current;
    tried[2] = static_cast<uint8_t>((tried[2] & ~7) | changes);
    if (is_kept(tried)) break;
  }
  for (size_t i = 3; i < current.size(); ++i) {
    if (current[i] == 0) continue;
    std::vector<uint8_t> tried = current;
    tried[i] = 0;
    is_kept(tried);
  }
  while (current.size() > 3 && current.back() == 0) current.pop_back();
  write_file(path, current);
  std::printf("%s: %zu bytes\n", path.c_str(), current.size());
}

/// Random scripts. Each process does as many as it can before it ends badly; the next one goes on.
int run_random(double seconds, uint64_t seed, size_t only) {
  struct Shared {
    Counts counts;
    uint64_t crashes, scripts;
  };
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (uint64_t process = 0; elapsed() < seconds; ++process) {
    const bool is_well = survives([&] {
      const Counts before = shared->counts;
      counts = {};
      Random random(seed * 1000003 + process);
      while (elapsed() < seconds) {
        for (int i = 0; i < 16; ++i) {
          make_script(random, only < seeds().size() ? only : random.below(seeds().size()));
          number = ++shared->scripts;
          run_script(current.data(), current.size());
          shared->counts.plans = before.plans + counts.plans;
          shared->counts.refused = before.refused + counts.refused;
          shared->counts.too_large = before.too_large + counts.too_large;
          shared->counts.runs = before.runs + counts.runs;
          shared->counts.errors = before.errors + counts.errors;
        }
      }
    });
    if (!is_well) ++shared->crashes;
  }
  const Counts& c = shared->counts;
  std::printf(
      "%llu plans in %.1f s (%.0f/s): %llu refused, %llu too large, %llu runs, %llu runs "
      "with an error; %llu did not end well\n",
      static_cast<unsigned long long>(shared->scripts), elapsed(),
      static_cast<double>(shared->scripts) / elapsed(), static_cast<unsigned long long>(c.refused),
      static_cast<unsigned long long>(c.too_large), static_cast<unsigned long long>(c.runs),
      static_cast<unsigned long long>(c.errors), static_cast<unsigned long long>(shared->crashes));
  return shared->crashes == 0 ? 0 : 1;
}

int usage() {
  std::fputs(
      "run_scripts --seconds N [--seed S] [--out FOLDER] [--only SEED]: random scripts; those "
      "that\n"
      "    do not end well are kept in the folder\n"
      "run_scripts --replay FILE|FOLDER...: runs scripts\n"
      "run_scripts --describe FILE|FOLDER...: the same, and tells what they do\n"
      "run_scripts --minimize FILE|FOLDER...: makes those smaller that do not end well\n"
      "run_scripts --list: the seeds\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode, out, only;
  double seconds = 10;
  uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (argument == "--seconds")
      mode = argument, seconds = std::atof(value());
    else if (argument == "--seed")
      seed = std::strtoull(value(), nullptr, 10);
    else if (argument == "--out")
      out = value();
    else if (argument == "--only")
      only = value();
    else if (argument.starts_with("--"))
      mode = argument;
    else
      files.push_back(argument);
  }
  if (mode != "--seconds" && mode != "--replay" && mode != "--describe" && mode != "--minimize" &&
      mode != "--list")
    return usage();
  use_one_thread();
  check_seeds();
  size_t chosen = seeds().size();
  for (size_t i = 0; i < seeds().size(); ++i)
    if (seeds()[i].name == only) chosen = i;
  if (!only.empty() && chosen == seeds().size()) {
    std::fprintf(stderr, "there is no seed '%s'\n", only.c_str());
    return 2;
  }
  if (mode == "--list") {
    for (const Seed& each : seeds()) {
      std::printf("%s:", each.name.c_str());
      for (const auto& step : each.plan.schedules[0].steps) std::printf(" %s", step.kind.c_str());
      std::printf("\n");
    }
    return 0;
  }
  current.reserve(kMaxScript);
  if (!is_address_sanitized()) {
    // What an engine asks for beyond this is not there.
    rlimit memory{};
    getrlimit(RLIMIT_AS, &memory);
    memory.rlim_cur = rlim_t{6} << 30;
    setrlimit(RLIMIT_AS, &memory);
  }
  if (!out.empty()) crash_folder = out.c_str();
  if (mode == "--seconds") return run_random(seconds, seed, chosen);
  for (const std::string& path : files_in(files)) {
    if (mode == "--describe") {
      describe(path);
    } else if (mode == "--minimize") {
      minimize(path);
    } else {
      static const bool is_watched = (watch(), true);
      (void)is_watched;
      current = read(path);
      number = number + 1;
      run_script(current.data(), current.size());
    }
  }
  if (mode == "--replay")
    std::printf("%llu scripts ran\n", static_cast<unsigned long long>(number));
  return 0;
}
