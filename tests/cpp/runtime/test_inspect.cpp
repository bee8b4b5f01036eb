#include <gtest/gtest.h>

#include "plan/sample_plan.h"
#include "runtime/inspect.h"
#include "runtime/json.h"

namespace opwright {
namespace {

TEST(Json, EscapesAndReplacesWhatIsNoText) {
  JsonWriter json;
  json.begin_array();
  json.value("a\"b\\c\n\t\x01");
  json.value("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  json.value("\xc3 \xff \xe0\x80\x80 \xed\xa0\x80 \xf5");
  json.value(1.0 / 0.0);
  json.value(-0.1);
  json.value(0.1f);
  json.value(int64_t{-5});
  json.begin_object();
  json.member("k", true);
  json.end_object();
  json.begin_array();
  json.end_array();
  json.end_array();
  EXPECT_EQ(json.take(),
            "[\n"
            "  \"a\\\"b\\\\c\\n\\t\\u0001\",\n"
            "  \"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\",\n"
            "  \"\\ufffd \\ufffd \\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd \\ufffd\",\n"
            "  null,\n"
            "  -0.10000000000000001,\n"
            "  0.1,\n"
            "  -5,\n"
            "  {\n"
            "    \"k\": true\n"
            "  },\n"
            "  []\n"
            "]");
}

TEST(Inspect, TextShowsPortsProfilesAndAlignedLayers) {
  const std::string text = inspect_text(sample_plan());
  for (const char* part :
       {"engine 'sample' by opwright 0.1.0 for CPU x86-64\n", "tuned on a test\n",
        "  x  FP32 LINEAR   n x 3\n", "  k  INT64 LINEAR  scalar, determines shapes\n", "out",
        "count x 3", "filter (version 1, namespace 'test')",
        "  filter.so, kernel for x86-64, 100 B, runs on the host\n",
        "  filter.ptx, kernel for sm_90, 3 B\n",
        "  again.so, plugin library for x86-64, 100 B, runs on the host\n",
        "  filter.py, plugin source for python, 4 B, runs on the host\n", "profile 1",
        "x: 1x3 to 5x3, tuned for 4x3", "k (values): 1 to 4, tuned for 2",
        "memory: 320 B for tensors, 64 B scratch, 24 B of weights",
        "#  layer   kind        types                     tactic    of    time\n",
        "0  scale   TestScale   FP32, FP32, FP32 -> FP32  3 vector   2  250 us\n",
        "2  pad     TestPad     FP32, INT64 -> FP32       0                  -\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
}

TEST(Inspect, PluginsHaveATableOfTheirCandidates) {
  Plan plan = sample_plan();
  EXPECT_EQ(inspect_text(plan).find("candidates of"), std::string::npos);
  plan.schedules[0].steps[0].kind = "FunctionPlugin";
  const std::string text = inspect_text(plan);
  const std::string table =
      "\n  candidates of 'scale'\n"
      "     types                     tactic      time  reformats\n"
      "  *  FP32, FP32, FP32 -> FP32  3 vector  250 us          -\n"
      "     FP16, FP16 -> FP16        4 scalar  125 us     500 us\n"
      "     FP8, FP8 -> FP8           4 scalar       -          -  dropped: FP8 is not "
      "allowed\n";
  EXPECT_NE(text.find(table), std::string::npos) << text;
}

TEST(Inspect, KernelsOfBuiltInLayersHaveTheLayersKind) {
  Plan plan = sample_plan();
  PlanStep& step = plan.schedules[0].steps[0];
  step.kind = "CompiledKernel";
  KernelLaunch launch;
  launch.symbol = "k";
  launch.layer_kind = "Pointwise";
  launch.program = {{ExprOp::kConstant, 0, 0, 0, 1}};
  step.attributes = {{"launch", launch}};
  const std::string text = inspect_text(plan);
  EXPECT_NE(text.find("0  scale   Pointwise   FP32"), std::string::npos) << text;
  EXPECT_EQ(text.find("candidates of"), std::string::npos) << "it is no plugin";
  EXPECT_NE(inspect_layer_text(plan, 0).find("scale (Pointwise): "), std::string::npos);
  EXPECT_NE(inspect_layer_json(plan, 0).find("\"LayerType\": \"Pointwise\""), std::string::npos);
  launch.layer_kind.clear();
  step.attributes[0].value = launch;
  EXPECT_NE(inspect_layer_text(plan, 0).find("scale (CompiledKernel): "), std::string::npos);
}

TEST(Inspect, SaysWhichGpusTheCodeServes) {
  Plan plan = sample_plan();
  EXPECT_NE(inspect_text(plan).find("\nits code runs on GPUs of compute capability 9.0 to 9.9\n"),
            std::string::npos);
  EXPECT_NE(inspect_json(plan).find("\"RunsOn\": \"GPUs of compute capability 9.0 to 9.9\""),
            std::string::npos);
  std::erase_if(plan.code, [](const CodeObject& object) { return !object.host; });
  plan.plugin_libraries.clear();
  plan.plugin_sources.clear();
  EXPECT_EQ(inspect_text(plan).find("runs on GPUs"), std::string::npos);
  EXPECT_EQ(inspect_json(plan).find("RunsOn"), std::string::npos);
}

TEST(Inspect, JsonHasAttributesAndCandidates) {
  const std::string json = inspect_json(sample_plan());
  for (const char* part :
       {"\"text\": \"caf\xc3\xa9\"", "\"bytes\": \"3 bytes\"", "\"factor\": 2.5",
        "\"TacticName\": \"scalar\"", "\"ReformatMs\": 0.5,\n          \"Chosen\": false",
        "\"Reason\": \"FP8 is not allowed\"", "\"Layout\": \"padded to 4\"",
        "\"Metadata\": \"from node 1\"", "\"Host\": true", "\"count\"",
        "\"axes\": {\n            \"Type\": \"INT64\"", "\"Symbol\": \"pad_kernel\"",
        "\"inputs[0].shape[1] * 64\"", "\"there is nothing\\nto pad\""}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\nin\n" << json;
  }
}

TEST(Inspect, ExpressionsThatWouldBeLongAreNamed) {
  Plan plan = sample_plan();
  // Squared again and again: written out, it would never end.
  auto last = plan.inputs[0].dims[0];
  for (int i = 0; i < 60; ++i) {
    plan.expressions.push_back({ExprOp::kMax, last, plan.inputs[0].dims[1], 0, 0});
    const auto size = static_cast<int32_t>(plan.expressions.size());
    plan.expressions.push_back({ExprOp::kFloorDiv, size - 1, size - 1, 0, 0});
    last = size;
  }
  EXPECT_LT(inspect_text(plan).size(), 10000u);
}

}  // namespace
}  // namespace opwright
