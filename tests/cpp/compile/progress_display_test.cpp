#include "compile/progress_display.h"

#include <gtest/gtest.h>

#include <vector>

namespace opwright {
namespace {

using namespace std::chrono_literals;
using Style = ProgressDisplay::Style;

/// A display whose clock the test moves.
struct Shown {
  explicit Shown(Style style, int columns = 80)
      : display(
            style, [this](const std::string& text) { texts.push_back(text); },
            [columns] { return columns; }, [this] { return now; }) {}
  std::string after(std::chrono::milliseconds time, const std::string& phase, int done, int total) {
    now += time;
    display.step(phase, done, total);
    return texts.back();
  }
  std::vector<std::string> texts;
  ProgressDisplay::Clock::time_point now{};
  ProgressDisplay display;
};

TEST(ProgressDisplay, ShowsPhaseBarAndTimeLeft) {
  Shown line(Style::kLine);
  EXPECT_EQ(line.after(0s, "tuning", 0, 48), "[" + std::string(24, '.') + "] tuning 0/48");
  // 12 steps took 3 s: the other 36 will take 9 s.
  EXPECT_EQ(line.after(3s, "tuning", 12, 48),
            "[" + std::string(6, '#') + std::string(18, '.') + "] tuning 12/48, about 9 s left");
  // A phase without steps has nothing to measure.
  EXPECT_EQ(line.after(1s, "planning memory", 0, 1), "planning memory");
  // Each phase is measured from its own start.
  EXPECT_NE(line.after(0s, "comparing", 0, 4).find("comparing 0/4"), std::string::npos);
  EXPECT_NE(line.after(120s, "comparing", 1, 4).find("1/4, about 6 min 0 s left"),
            std::string::npos);
  line.display.finish(true);
  EXPECT_EQ(line.texts.back(), "");
}

TEST(ProgressDisplay, TheFirstSecondSaysNothingOfTheTimeLeft) {
  Shown line(Style::kLine);
  line.after(0s, "tuning", 0, 1000);
  EXPECT_EQ(line.after(900ms, "tuning", 10, 1000).find("left"), std::string::npos);
  EXPECT_NE(line.after(200ms, "tuning", 11, 1000).find("about 1 min 39 s left"), std::string::npos);
}

TEST(ProgressDisplay, RedrawsTenTimesASecondAtMost) {
  Shown line(Style::kLine);
  for (int i = 0; i < 1000; ++i) line.after(1ms, "tuning", i, 1000);
  EXPECT_EQ(line.texts.size(), 10u);
}

TEST(ProgressDisplay, FitsTheTerminal) {
  for (const int columns : {0, 1, 10, 30, 38, 39, 200}) {
    Shown line(Style::kLine, columns);
    const std::string text = line.after(0s, "tuning", 7, 20);
    EXPECT_LT(static_cast<int>(text.size()), std::max(columns, 2)) << columns;
    EXPECT_EQ(text.find('[') != std::string::npos, columns >= 39) << columns;
  }
}

TEST(ProgressDisplay, WhereThereIsNoTerminalALineSaysAPhaseAndTenSecondsOfOne) {
  Shown lines(Style::kLines);
  lines.after(0s, "optimizing", 0, 1);
  for (int i = 0; i < 250; ++i) lines.after(100ms, "tuning", i, 500);
  lines.display.finish(true);
  EXPECT_EQ(lines.texts, (std::vector<std::string>{"optimizing", "tuning 0/500",
                                                   "tuning 100/500, about 40 s left",
                                                   "tuning 200/500, about 30 s left"}));
}

TEST(ProgressDisplay, APageSaysHowTheBuildEnded) {
  Shown html(Style::kHtml);
  EXPECT_EQ(html.after(0s, "a<b & c", 1, 4),
            "<div><progress max=\"1\" value=\"0.25\"></progress> a&lt;b &amp; c 1/4</div>");
  html.now += 61s;
  html.display.finish(false);
  EXPECT_EQ(html.display.text(), "failed in 'a<b & c' after 1 min 1 s");
  html.display.finish(true);
  EXPECT_EQ(html.texts.back(),
            "<div><progress max=\"1\" value=\"1\"></progress> built in 1 min 1 s</div>");
}

TEST(ProgressDisplay, StrangeCountsAreNotDrawnOutside) {
  Shown line(Style::kLine);
  EXPECT_EQ(line.after(0s, "x", 9, 4), "[" + std::string(24, '#') + "] x 9/4");
  EXPECT_EQ(line.after(0s, "y", -1, 4), "[" + std::string(24, '.') + "] y -1/4");
  EXPECT_EQ(line.after(0s, "z", 0, 0), "z");
}

TEST(ProgressDisplay, DurationsAreRoundedUp) {
  EXPECT_EQ(duration_text(0.2s), "1 s");
  EXPECT_EQ(duration_text(125s), "2 min 5 s");
  EXPECT_EQ(duration_text(3725s), "1 h 2 min");
}

}  // namespace
}  // namespace opwright
