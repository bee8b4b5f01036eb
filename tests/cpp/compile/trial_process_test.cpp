#include "compile/trial_process.h"

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "loggers.h"

namespace opwright {
namespace {

/// This program is no library, and has nothing beside it.
TEST(TrialProcess, WithoutItsProgramOneWarningSaysSo) {
  CollectingLogger logger;
  TrialProcess trials(get_device(DeviceType::kCPU), Log(&logger));
  for (int i = 0; i < 2; ++i) {
    const TrialProcess::Answer answer = trials.run(Plan(), {}, 1, [] {});
    EXPECT_EQ(answer.outcome, TrialOutcome::kUnknown);
    EXPECT_NE(answer.text.find("/opwright-trials' cannot be started: "), std::string::npos);
  }
  const std::string& text = logger.warnings;
  const std::string_view start = "Candidates that never ran on this device do not run in another";
  EXPECT_EQ(text.find(start), 0u) << text;
  EXPECT_EQ(text.rfind(start), 0u) << "once";
}

}  // namespace
}  // namespace opwright
