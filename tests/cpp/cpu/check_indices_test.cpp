// The steps of what indices or elements tell where to go: what a plan may not say of them, and what
// their kernels refuse.

#include <gtest/gtest.h>

#include "cpu/check_steps.h"
#include "operators/assertion.h"
#include "operators/indexing.h"
#include "operators/kv_cache.h"
#include "operators/movement.h"
#include "operators/rotary_embedding.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"

namespace opwright::testing {
namespace {

using enum DataType;
using enum TensorFormat;

Step gather() {
  return step<Gather>({}, {port({5, 3}, kINT64), port({4}, kINT32)}, {port({4, 3}, kINT64)});
}
Step fill() {
  Step result = step<Fill>({}, {port({1}, kINT64), port({}), port({})}, {port({4})});
  result.values = {{0, {4}}};
  return result;
}
Step scatter(ScatterMode mode = ScatterMode::kELEMENT) {
  if (mode == ScatterMode::kND)
    return step<Scatter>({mode}, {port({4, 3}), port({2, 1}, kINT32), port({2, 3})},
                         {port({4, 3})});
  return step<Scatter>({}, {port({4, 3}), port({2, 3}, kINT32), port({2, 3})}, {port({4, 3})});
}
Step nonzero() {
  return step<NonZero>({}, {port({4, 3})}, {port({2, 12}, kINT32), port({}, kINT64)});
}
Step nms() {
  return step<Nms>({}, {port({1, 6, 4}), port({1, 6, 2}), port({1}, kINT64), port({})},
                   {port({12, 3}, kINT32), port({}, kINT32)});
}
Step unique() {
  return step<Unique>(
      {}, {port({4, 3})},
      {port({12}), port({12}, kINT64), port({12}, kINT64), port({12}, kINT64), port({}, kINT64)});
}
Step data_extent() {
  Step result = step<DataExtent>({2}, {port({4}, kINT64), port({}, kINT64)}, {port({}, kINT64)});
  result.values = {{1, {9}}};
  return result;
}
Step one_hot() {
  Step result = step<OneHot>({}, {port({4}, kINT64), port({2}), port({}, kINT64)}, {port({4, 3})});
  result.values = {{2, {3}}};
  return result;
}
Step assertion() { return step<Assertion>({}, {port({4}, kBOOL)}, {}); }
Step kv_cache() {
  return step<KvCacheUpdate>({}, {port({2, 3, 5, 4}), port({2, 3, 2, 4}), port({2}, kINT64)},
                             {port({2, 3, 5, 4})});
}
Step kv_cache_write() {
  return step<KvCacheWrite>({}, {port({2, 3, 5, 4}), port({2, 3, 2, 4}), port({2}, kINT64)},
                            {port({2, 3, 5, 4})});
}
Step packed_kv_cache() {
  KvCacheUpdateParams params;
  params.update_form = AttentionIOForm::kPACKED_NHD;
  return step<KvCacheUpdate>(
      params, {port({2, 3, 5, 4}), port({6, 3, 4}), port({2}, kINT32), port({3}, kINT32)},
      {port({2, 3, 5, 4})});
}
Step rotary_embedding() {
  return step<RotaryEmbedding>(
      {}, {port({2, 3, 4, 6}), port({5, 3}), port({5, 3}), port({2, 4}, kINT64)},
      {port({2, 3, 4, 6})});
}

std::vector<Step> indices_steps() {
  return {gather(), fill(),        scatter(), scatter(ScatterMode::kND), nonzero(), nms(),
          unique(), data_extent(), one_hot(), rotary_embedding()};
}

std::vector<FaultCase> indices_cases() {
  return {
      {"Gather from INT64 to BOOL", gather(), [](Step& s) { s.outputs[0].type.dtype = kBOOL; },
       "output 0 must be INT64 like input 0, but is BOOL"},
      {"Gather by bytes", gather(), [](Step& s) { s.inputs[1].type.dtype = kUINT8; },
       "input 1 must be INT32 or INT64"},
      {"Gather of 4 bits", gather(),
       [](Step& s) { s.inputs[0].type.dtype = s.outputs[0].type.dtype = kFP4; }, "input 0 must be"},
      {"Gather without indices", gather(), [](Step& s) { s.inputs.pop_back(); },
       "expected 2 inputs"},
      {"Fill to E8M0", fill(), [](Step& s) { s.outputs[0].type.dtype = kE8M0; },
       "output 0 must be"},
      {"Fill to another type", fill(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32, but is FP16"},
      {"Fill from another type", fill(), [](Step& s) { s.inputs[1].type.dtype = kINT64; },
       "input 1 must be FP32 like output 0"},
      {"Fill in HWC", step<Fill>({}, {}, {port({1, 2, 2, 2})}),
       [](Step& s) { s.outputs[0].type.format = kHWC; }, "output 0 must have the format LINEAR"},
      {"Scatter by bytes", scatter(), [](Step& s) { s.inputs[1].type.dtype = kINT8; },
       "input 1 must be INT32 or INT64"},
      {"Scatter of updates of another type", scatter(),
       [](Step& s) { s.inputs[2].type.dtype = kINT32; }, "input 2 must be FP32 like input 0"},
      {"NonZero of wide indices", nonzero(), [](Step& s) { s.outputs[0].type.dtype = kINT64; },
       "output 0 must be INT32"},
      {"NonZero with a narrow count", nonzero(), [](Step& s) { s.outputs[1].type.dtype = kINT32; },
       "output 1 must be INT64"},
      {"NMS of scores of another type", nms(), [](Step& s) { s.inputs[1].type.dtype = kHALF; },
       "input 1 must"},
      {"NMS with two thresholds in one", nms(), [](Step& s) { s.inputs[3] = port({2}); },
       "input 3"},
      {"NMS with a wide count", nms(), [](Step& s) { s.outputs[1].type.dtype = kINT64; },
       "output 1 must be INT32"},
      {"Unique to another type", unique(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 0"},
      {"Unique with narrow indices", unique(), [](Step& s) { s.outputs[2].type.dtype = kINT32; },
       "output 2 must be INT64"},
      {"DataExtent of floats", data_extent(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be INT32 or INT64"},
      {"DataExtent as a narrow integer", data_extent(),
       [](Step& s) { s.outputs[0].type.dtype = kINT32; }, "output 0 must be INT64"},
      {"OneHot of floats", one_hot(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be INT32 or INT64"},
      {"OneHot to another type", one_hot(), [](Step& s) { s.outputs[0].type.dtype = kHALF; },
       "output 0 must be FP32 like input 1"},
      {"Assertion about floats", assertion(), [](Step& s) { s.inputs[0].type.dtype = kFLOAT; },
       "input 0 must be BOOL"},
      {"A cache of integers", kv_cache(), [](Step& s) { set_all(s, {kINT32}); }, "input 0 must be"},
      {"An update of another type", kv_cache(), [](Step& s) { s.inputs[1].type.dtype = kHALF; },
       "input 1 must be FP32 like input 0"},
      {"An update of a written cache at floats", kv_cache_write(),
       [](Step& s) { s.inputs[2].type.dtype = kFLOAT; }, "input 2 must be"},
      {"An update at floats", kv_cache(), [](Step& s) { s.inputs[2].type.dtype = kFLOAT; },
       "input 2 must be INT32 or INT64"},
      {"A packed update without lengths", packed_kv_cache(), [](Step& s) { s.inputs.pop_back(); },
       "expected 4 inputs"},
      {"Turned by angles of another type", rotary_embedding(),
       [](Step& s) { s.inputs[2].type.dtype = kHALF; }, "input 2 must be FP32 like input 0"},
      {"Turned at places of floats", rotary_embedding(),
       [](Step& s) { s.inputs[3].type.dtype = kFLOAT; }, "input 3 must be INT32 or INT64"},
  };
}

const RegisteredChecks registered_indices(indices_steps, indices_cases);

TEST(Check, IndicesOutOfRangeGiveZero) {
  std::mt19937 random(3);
  for (const GatherMode mode : {GatherMode::kDEFAULT, GatherMode::kELEMENT, GatherMode::kND}) {
    for (const DataType index : {kINT32, kINT64}) {
      GatherParams params;
      params.mode = mode;
      Step each = step<Gather>(params, {port({5}), port({3}, index)}, {port({3})});
      if (mode == GatherMode::kND) each.inputs[1] = port({3, 1}, index);
      Made made(each);
      ASSERT_EQ(made.tell_opt(), "");
      // No random index is within 5 elements.
      EXPECT_EQ(made.run(random), std::vector<std::byte>(12));
    }
  }
}

TEST(Check, ShapesOfIndicesFit) {
  Made elements(scatter());
  EXPECT_NE(elements.tell({{4, 3}, {2, 4}, {2, 4}}, {{4, 3}}).find("reach beyond"),
            std::string::npos);
  EXPECT_NE(elements.tell({{4, 3}, {2, 3}, {3, 3}}, {{4, 3}}).find("as many as updates"),
            std::string::npos);
  Made tuples(scatter(ScatterMode::kND));
  EXPECT_NE(tuples.tell({{4, 3}, {2, 3}, {2, 3}}, {{4, 3}}).find("as many as 2"),
            std::string::npos);
  Made found(nonzero());
  EXPECT_NE(found.tell({{4, 4}}, {{2, 12}, {}}).find("have no room"), std::string::npos);
  Made different(unique());
  EXPECT_NE(different.tell({{4, 4}}, {{16}, {16}, {16}, {16}, {}}).find("profile's maximum"),
            std::string::npos);
  EXPECT_NE(different.tell({{4, 3}}, {{12}, {12}, {12}, {11}, {}}).find("have no room"),
            std::string::npos);
  Made boxes(nms());
  EXPECT_NE(boxes.tell({{1, 5, 4}, {1, 6, 2}, {1}, {}}, {{12, 3}, {}}).find("do not fit"),
            std::string::npos);
  EXPECT_NE(boxes.tell({{1, 6, 4}, {1, 6, 2}, {0}, {}}, {{12, 3}, {}}).find("one number"),
            std::string::npos);
  EXPECT_NE(boxes.tell({{1, 7, 4}, {1, 7, 2}, {1}, {}}, {{14, 3}, {}}).find("profile's maximum"),
            std::string::npos);
  EXPECT_NE(Made(data_extent()).tell({{2}, {}}, {{}}).find("element 2 is an extent"),
            std::string::npos);
  Made hot(one_hot());
  EXPECT_NE(hot.tell({{4}, {2}, {}}, {{5, 3}}).find("do not give"), std::string::npos);
  Made turned(rotary_embedding());
  EXPECT_NE(turned.tell({{2, 3, 4, 8}, {5, 3}, {5, 3}, {2, 4}}, {{2, 3, 4, 8}}).find("do not turn"),
            std::string::npos);
  EXPECT_NE(turned.tell({{2, 3, 4, 6}, {5, 3}, {4, 3}, {2, 4}}, {{2, 3, 4, 6}}).find("do not turn"),
            std::string::npos);
  EXPECT_NE(turned.tell({{3, 3, 4, 6}, {5, 3}, {5, 3}, {2, 4}}, {{3, 3, 4, 6}}).find("do not turn"),
            std::string::npos);
  Made cached(kv_cache());
  EXPECT_NE(cached.tell({{2, 3, 5, 4}, {2, 3, 2, 3}, {2}}, {{2, 3, 5, 4}}).find("do not fit"),
            std::string::npos);
  Made packed(packed_kv_cache());
  EXPECT_NE(packed.tell({{2, 3, 5, 4}, {6, 3, 4}, {2}, {2}}, {{2, 3, 5, 4}}).find("do not fit"),
            std::string::npos);
}

TEST(Check, AnyElementsKeepIndicesWithinBounds) {
  for (const Step& each :
       {scatter(), scatter(ScatterMode::kND), nonzero(), nms(), unique(), one_hot(), kv_cache(),
        kv_cache_write(), packed_kv_cache(), rotary_embedding()})
    run_on_any_bytes(each);
}

}  // namespace
}  // namespace opwright::testing
