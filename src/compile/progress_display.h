#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace opwright {

/// Shows people the progress of a build: the phase, a bar, and the time that the phase will still
/// take if its steps go on as before.
class ProgressDisplay {
 public:
  enum class Style {
    kLine,   ///< one line, rewritten; empty when the build has ended
    kLines,  ///< a line for each phase, and every ten seconds of it
    kHtml,   ///< an element of a page, rewritten
  };
  using Clock = std::chrono::steady_clock;
  /// Called with the next text to show.
  using Write = std::function<void(const std::string& text)>;
  using Now = std::function<Clock::time_point()>;
  using Columns = std::function<int()>;

  /// \param columns the width of a line of kLine.
  ProgressDisplay(Style style, Write write, Columns columns, Now now = Clock::now);
  /// A display on stderr: one line on a terminal, lines elsewhere.
  static ProgressDisplay on_stderr();

  /// Shows that `done` of the `total` steps of `phase` are done, as a ProgressCallback hears it.
  void step(const std::string& phase, int done, int total);
  /// Shows that the build has ended, or failed.
  void finish(bool succeeded);
  /// The text that is shown.
  const std::string& text() const { return text_; }

 private:
  std::string bar(int columns) const;
  std::string html(double value) const;

  const Style style_;
  const Write write_;
  const Columns columns_;
  const Now now_;
  const Clock::time_point start_;
  Clock::time_point phase_start_, shown_;
  std::string phase_, text_;
  int done_ = 0, total_ = 0;
};

/// Seconds as people read them: "8 s", "2 min 5 s", "1 h 2 min".
std::string duration_text(std::chrono::duration<double> time);

}  // namespace opwright
