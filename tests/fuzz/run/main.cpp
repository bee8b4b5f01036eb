// The target without libFuzzer, for builds with any compiler and without sanitizers: random scripts
// as fast as they go, or what a given script does, in words.

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
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

std::vector<uint8_t> current;
const char* crash_folder = nullptr;
volatile uint64_t number = 0;

/// Tells the script that was running, by calls that are safe in a signal handler.
void tell(const char* what) {
  const auto say = [](const char* text) { (void)!write(2, text, std::strlen(text)); };
  say("fuzz: ");
  say(what);
  say("\nscript: ");
  static char text[2 * 4096];
  size_t length = 0;
  for (const uint8_t byte : current) {
    text[length++] = "0123456789abcdef"[byte >> 4];
    text[length++] = "0123456789abcdef"[byte & 15];
  }
  (void)!write(2, text, length);
  say("\nseed: ");
  say(seeds()[seed_of(current.data(), current.size())].name.c_str());
  say("\n");
  if (crash_folder == nullptr) return;
  static char path[1024];
  std::snprintf(path, sizeof(path), "%s/crash-%d-%llu", crash_folder, static_cast<int>(getpid()),
                static_cast<unsigned long long>(number));
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) {
    (void)!write(file, current.data(), current.size());
    close(file);
  }
}

void on_signal(int signal_number) {
  static const char* const names[] = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"};
  static constexpr int kNumbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  const char* name = "signal";
  for (int i = 0; i < 5; ++i)
    if (kNumbers[i] == signal_number) name = names[i];
  tell(name);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/// Every few seconds: still the same script?
void on_alarm(int) {
  static uint64_t last = 0;
  if (last == number && number != 0) {
    tell("a script took more than five seconds");
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
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(each, &action, nullptr);
  signal(SIGALRM, on_alarm);
  itimerval every{};
  every.it_interval.tv_sec = every.it_value.tv_sec = 5;
  setitimer(ITIMER_REAL, &every, nullptr);
}

std::vector<uint8_t> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void make_script(Random& random, size_t seed) {
  current.resize(24 + random.below(120));
  for (uint8_t& byte : current) byte = static_cast<uint8_t>(random() >> 32);
  const uint16_t id = seed_id(seed);
  current[0] = static_cast<uint8_t>(id);
  current[1] = static_cast<uint8_t>(id >> 8);
}

int usage() {
  std::fputs(
      "run_scripts --seconds N [--seed S] [--out FOLDER] [--seed-name NAME]: random scripts\n"
      "run_scripts --describe FILE...: runs scripts and tells what they do\n"
      "run_scripts --replay FOLDER...: runs all scripts in there\n"
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
    else if (argument == "--seed-name")
      only = value();
    else if (argument == "--describe" || argument == "--replay" || argument == "--list")
      mode = argument;
    else
      files.push_back(argument);
  }
  if (mode.empty()) return usage();
  use_one_thread();
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  check_seeds();
  std::printf("%zu seeds after %.1f s\n", seeds().size(), elapsed());
  if (mode == "--list") {
    for (const Seed& each : seeds()) {
      std::printf("%s:", each.name.c_str());
      for (const auto& step : each.plan.schedules[0].steps)
        std::printf(" %s", step.kind.c_str());
      std::printf("\n");
    }
    return 0;
  }
  current.reserve(4096);
  // What an engine asks for beyond this is not there.
  rlimit memory{};
  getrlimit(RLIMIT_AS, &memory);
  if (!is_address_sanitized()) {
    memory.rlim_cur = rlim_t{6} << 30;
    setrlimit(RLIMIT_AS, &memory);
  }
  watch();
  if (mode == "--describe" || mode == "--replay") {
    std::vector<std::string> paths;
    for (const std::string& file : files) {
      DIR* folder = opendir(file.c_str());
      if (folder == nullptr) {
        paths.push_back(file);
        continue;
      }
      while (const dirent* entry = readdir(folder))
        if (entry->d_name[0] != '.') paths.push_back(file + "/" + entry->d_name);
      closedir(folder);
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      current = read(path);
      if (current.size() > 4096) current.resize(4096);
      ++number;
      if (mode == "--describe") {
        // What is done is told before it is done, as the process may end.
        std::printf("== %s\n", path.c_str());
        std::fflush(stdout);
        std::fputs(describe_script(current.data(), current.size()).c_str(), stdout);
        std::fflush(stdout);
        std::string log;
        run_script(current.data(), current.size(), &log);
        std::printf("-- when it ran:\n%s", log.c_str());
      } else {
        run_script(current.data(), current.size());
      }
    }
    std::printf("%zu scripts ran\n", paths.size());
    return 0;
  }
  if (!out.empty()) crash_folder = out.c_str();
  Random random(seed);
  size_t fixed = seeds().size();
  for (size_t i = 0; i < seeds().size(); ++i)
    if (seeds()[i].name == only) fixed = i;
  const double before = elapsed();
  while (elapsed() - before < seconds) {
    for (int i = 0; i < 32; ++i) {
      make_script(random, fixed < seeds().size() ? fixed : random.below(seeds().size()));
      ++number;
      run_script(current.data(), current.size());
    }
  }
  const double took = elapsed() - before;
  std::printf(
      "%llu plans in %.1f s (%.0f/s): %llu refused, %llu too large, %llu runs, %llu runs with an "
      "error\n",
      static_cast<unsigned long long>(counts.plans), took,
      static_cast<double>(counts.plans) / took, static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.too_large),
      static_cast<unsigned long long>(counts.runs), static_cast<unsigned long long>(counts.errors));
  return 0;
}
