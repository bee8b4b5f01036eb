#include "base/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace opwright {
namespace {

constexpr const char* kEraseLine = "\r\033[K";

struct Status {
  std::mutex mutex;
  std::string line;
};

Status& status() {
  static auto* status = new Status;  // never destroyed: objects of static lifetime may log
  return *status;
}

}  // namespace

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

int terminal_columns() {
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void show_status_line(const std::string& line) {
  Status& shown = status();
  const std::lock_guard lock(shown.mutex);
  if (line.empty() && shown.line.empty()) return;
  shown.line = line;
  std::fprintf(stderr, "%s%s", kEraseLine, line.c_str());
  std::fflush(stderr);
}

std::string hide_status_line() {
  std::string line;
  {
    Status& shown = status();
    const std::lock_guard lock(shown.mutex);
    line = shown.line;
  }
  if (!line.empty()) show_status_line({});
  return line;
}

void write_message(const std::string& line) {
  Status& shown = status();
  const std::lock_guard lock(shown.mutex);
  if (shown.line.empty())
    std::fprintf(stderr, "%s\n", line.c_str());
  else
    std::fprintf(stderr, "%s%s\n%s", kEraseLine, line.c_str(), shown.line.c_str());
}

}  // namespace opwright
