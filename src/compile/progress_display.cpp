#include "compile/progress_display.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/status_line.h"

namespace opwright {
namespace {

using namespace std::chrono_literals;

/// The shortest time between two texts that people can read.
constexpr auto kRedraw = 100ms;
constexpr auto kNextLine = 10s;
/// Least time that is measured: the first steps load and allocate things that later steps find
/// ready.
constexpr auto kLeastMeasured = 1s;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

}  // namespace

std::string duration_text(std::chrono::duration<double> time) {
  const auto seconds = static_cast<long>(std::ceil(std::max(time.count(), 0.0)));
  const long minutes = seconds / 60, hours = minutes / 60;
  if (hours > 0) return str(hours, " h ", minutes % 60, " min");
  if (minutes > 0) return str(minutes, " min ", seconds % 60, " s");
  return str(seconds, " s");
}

ProgressDisplay::ProgressDisplay(Style style, Write write, Columns columns, Now now)
    : style_(style),
      write_(std::move(write)),
      columns_(std::move(columns)),
      now_(std::move(now)),
      start_(now_()) {}

ProgressDisplay ProgressDisplay::on_stderr() {
  const bool terminal = is_terminal();
  return {terminal ? Style::kLine : Style::kLines, terminal ? show_status_line : write_message,
          terminal_columns};
}

void ProgressDisplay::step(const std::string& phase, int done, int total) {
  const Clock::time_point now = now_();
  const bool is_new = phase != phase_ || done < done_ || total != total_;
  if (is_new) phase_ = phase, phase_start_ = now;
  done_ = done, total_ = total;
  if (!is_new && now - shown_ < (style_ == Style::kLines ? Clock::duration(kNextLine) : kRedraw))
    return;
  shown_ = now;
  text_ = phase_;
  if (total > 1) {
    text_ += str(" ", done, "/", total);
    if (const auto spent = now - phase_start_; done > 0 && spent >= kLeastMeasured)
      text_ +=
          str(", about ",
              duration_text(std::chrono::duration<double>(spent) * (total - done) / done), " left");
  }
  switch (style_) {
    case Style::kLine:
      return write_(bar(columns_()));
    case Style::kLines:
      return write_(text_);
    case Style::kHtml:
      return write_(html(static_cast<double>(done) / std::max(total, 1)));
  }
}

/// A bar in ASCII, which every terminal shows.
std::string ProgressDisplay::bar(int columns) const {
  constexpr size_t kBar = 24;
  // The last column stays free, because some terminals begin another line there.
  const auto room = static_cast<size_t>(std::max(columns - 1, 1));
  std::string line = text_;
  if (total_ > 1 && room >= kBar + 3 + line.size()) {
    const size_t full =
        kBar * static_cast<size_t>(std::clamp(done_, 0, total_)) / static_cast<size_t>(total_);
    line = str("[", std::string(full, '#'), std::string(kBar - full, '.'), "] ", line);
  }
  return line.substr(0, room);
}

std::string ProgressDisplay::html(double value) const {
  return str("<div><progress max=\"1\" value=\"", value, "\"></progress> ", escaped(text_),
             "</div>");
}

void ProgressDisplay::finish(bool succeeded) {
  const std::string time = duration_text(now_() - start_);
  text_ = succeeded        ? "built in " + time
          : phase_.empty() ? "failed after " + time
                           : "failed in '" + phase_ + "' after " + time;
  switch (style_) {
    case Style::kLine:
      return write_({});
    case Style::kLines:
      return;
    case Style::kHtml:
      return write_(html(succeeded ? 1 : 0));
  }
}

}  // namespace opwright
