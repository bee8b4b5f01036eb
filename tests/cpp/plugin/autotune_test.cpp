#include "plugin/model/autotune.h"

#include "plugin/plugin_test.h"

namespace opwright {
namespace {

using DT = DataType;
using TF = TensorFormat;

const std::vector<PortDesc> kOne = {port(DT::kFLOAT, {1, 3, 4, 4})};
const std::vector<PortDesc> kTwo = {port(DT::kFLOAT, {1, 3, 4, 4}), port(DT::kFLOAT, {1, 3, 4, 4})};

std::vector<std::vector<DT>> types(const std::vector<Candidate>& candidates) {
  std::vector<std::vector<DT>> all;
  for (const Candidate& c : candidates) {
    all.emplace_back();
    for (const PortType& p : c.inputs) all.back().push_back(p.dtype);
    for (const PortType& p : c.outputs) all.back().push_back(p.dtype);
  }
  return all;
}

std::vector<std::vector<TF>> formats(const std::vector<Candidate>& candidates) {
  std::vector<std::vector<TF>> all;
  for (const Candidate& c : candidates) {
    all.emplace_back();
    for (const PortType& p : c.inputs) all.back().push_back(p.format);
    for (const PortType& p : c.outputs) all.back().push_back(p.format);
  }
  return all;
}

TEST(AutoTuneCombination, BarsMoveTogether) {
  const AutoTuneCombination c("FP32|FP16, FP32|FP16", "LINEAR");
  EXPECT_EQ(types(c.expand(kOne, kOne)),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT}, {DT::kHALF, DT::kHALF}}));
}

TEST(AutoTuneCombination, StarsAreFree) {
  const AutoTuneCombination c("FP32*FP16, FLOAT*HALF", "");
  EXPECT_EQ(types(c.expand(kOne, kOne)), (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT},
                                                                       {DT::kFLOAT, DT::kHALF},
                                                                       {DT::kHALF, DT::kFLOAT},
                                                                       {DT::kHALF, DT::kHALF}}));
}

TEST(AutoTuneCombination, MixesEntries) {
  const AutoTuneCombination c("FP32|FP16, INT32, FP32*BF16, FP32|FP16", "LINEAR");
  EXPECT_EQ(types(c.expand(kTwo, kTwo)),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kINT32, DT::kFLOAT, DT::kFLOAT},
                                          {DT::kFLOAT, DT::kINT32, DT::kBF16, DT::kFLOAT},
                                          {DT::kHALF, DT::kINT32, DT::kFLOAT, DT::kHALF},
                                          {DT::kHALF, DT::kINT32, DT::kBF16, DT::kHALF}}));
}

TEST(AutoTuneCombination, OneLayoutStandsForAll) {
  EXPECT_EQ(formats(AutoTuneCombination("FP32, FP32", "HWC").expand(kOne, kOne)),
            (std::vector<std::vector<TF>>{{TF::kHWC, TF::kHWC}}));
  EXPECT_EQ(formats(AutoTuneCombination("FP32, FP32", "LINEAR|HWC").expand(kOne, kOne)),
            (std::vector<std::vector<TF>>{{TF::kLINEAR, TF::kLINEAR}, {TF::kHWC, TF::kHWC}}));
  EXPECT_EQ(formats(AutoTuneCombination("FP32, FP32", "LINEAR, CHW4*HWC").expand(kOne, kOne)),
            (std::vector<std::vector<TF>>{{TF::kLINEAR, TF::kCHW4}, {TF::kLINEAR, TF::kHWC}}));
}

TEST(AutoTuneCombination, TacticsMultiply) {
  AutoTuneCombination c("FP32, FP32", "LINEAR", {2, 5});
  std::vector<Candidate> all = c.expand(kOne, kOne);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].tactic, 2);
  EXPECT_EQ(all[1].tactic, 5);
  c.tactics({7}, {"NUMBA"});
  all = c.expand(kOne, kOne);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].tactic_name, "NUMBA");
  EXPECT_EQ(AutoTuneCombination("FP32, FP32", "").expand(kOne, kOne)[0].tactic, 0);
}

TEST(AutoTuneCombination, WithoutTypesKeepsTheNetworks) {
  AutoTuneCombination c;
  c.tactics({1});
  const std::vector<PortDesc> in = {port(DT::kINT32, {4})};
  EXPECT_EQ(types(c.expand(in, kOne)), (std::vector<std::vector<DT>>{{DT::kINT32, DT::kFLOAT}}));
}

TEST(AutoTuneCombination, Positions) {
  AutoTuneCombination c;
  const int ends[] = {0, 2}, middle[] = {1};
  c.pos(ends, "FP32|FP16");
  c.pos(middle, "INT32", "HWC");
  const std::vector<Candidate> all = c.expand(kTwo, kOne);
  EXPECT_EQ(types(all), (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kINT32, DT::kFLOAT},
                                                      {DT::kHALF, DT::kINT32, DT::kHALF}}));
  EXPECT_EQ(formats(all)[0], (std::vector<TF>{TF::kLINEAR, TF::kHWC, TF::kLINEAR}));
}

TEST(AutoTuneCombination, ErrorsQuoteTheText) {
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32|FP16*BF16, FP32", ""); }),
                  "\"FP32|FP16*BF16\" mixes '|'");
  EXPECT_CONTAINS(
      thrown_error([] { AutoTuneCombination("FP32|FP16|BF16, FP32|FP16", "").expand(kOne, kOne); }),
      "\"FP32|FP16|BF16\" and \"FP32|FP16\" move together");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32, FP23", ""); }), "FP23");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32,, FP32", ""); }), "\"FP32,, FP32\"");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32|, FP32", ""); }), "is empty");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32", "ROWS"); }), "ROWS");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32", "").expand(kOne, kOne); }),
                  "types \"FP32\" have 1 entries, but there are 1 inputs and 1 outputs");
  EXPECT_CONTAINS(
      thrown_error([] { AutoTuneCombination("FP32, FP32", "HWC, HWC, HWC").expand(kOne, kOne); }),
      "layouts \"HWC, HWC, HWC\" have 3 entries");
  EXPECT_CONTAINS(thrown_error([] { AutoTuneCombination("FP32", "LINEAR", {0}); }),
                  "must be positive, but one is 0");
  EXPECT_CONTAINS(thrown_error([] {
                    AutoTuneCombination("FP32", "LINEAR", {3, 3});
                  }),
                  "3 is there twice");
  AutoTuneCombination c;
  const int zero[] = {0}, three[] = {3}, negative[] = {-1};
  c.pos(zero, "FP32");
  EXPECT_CONTAINS(thrown_error([&] { c.pos(zero, "FP16"); }), "position 0 was set to \"FP32\"");
  EXPECT_CONTAINS(thrown_error([&] { c.pos(negative, "FP16"); }), "position -1");
  EXPECT_CONTAINS(thrown_error([&] { c.expand(kOne, kOne); }), "not called for position 1");
  c.pos(three, "FP32");
  EXPECT_CONTAINS(thrown_error([&] { c.expand(kOne, kOne); }), "not called for position 1");
  EXPECT_CONTAINS(thrown_error([&] {
                    AutoTuneCombination d("FP32", "");
                    d.pos(zero, "FP32");
                  }),
                  "pos() cannot be used after");
}

TEST(AutoTuneCombination, RefusesFloods) {
  std::string all = "FP32*FP16*BF16*INT8*UINT8*INT32";
  std::string text = all;
  for (int i = 0; i < 7; ++i) text += "," + all;
  std::vector<PortDesc> ports(8, kOne[0]);
  EXPECT_CONTAINS(thrown_error([&] { AutoTuneCombination(text, "").expand(ports, {}); }),
                  "more than 10000");
}

TEST(Expand, KeepsWhatTheNetworkAllows) {
  const std::vector<AutoTuneCombination> all = {
      AutoTuneCombination("FP32|FP16|BF16|INT8, FP32|FP16|BF16|INT8", "LINEAR")};
  CandidateQuery query = make_query(kOne, kOne);
  EXPECT_EQ(types(expand(all, query, "p")),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT}}));
  query.fp16 = true;
  EXPECT_EQ(types(expand(all, query, "p")),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT}, {DT::kHALF, DT::kHALF}}));
  query.strongly_typed = true;
  EXPECT_EQ(types(expand(all, query, "p")),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT}}));

  const std::vector<PortDesc> indices = {port(DT::kINT32, {4})};
  query = make_query(indices, kOne);
  query.fp16 = query.bf16 = query.int8 = true;
  const std::vector<AutoTuneCombination> mixed = {
      AutoTuneCombination("INT32*INT64*FP16, FP32*BF16", "LINEAR")};
  EXPECT_EQ(types(expand(mixed, query, "p")),
            (std::vector<std::vector<DT>>{{DT::kINT32, DT::kFLOAT}, {DT::kINT32, DT::kBF16}}));
}

TEST(Expand, Int8NeedsAScale) {
  std::vector<PortDesc> in = kOne, out = kOne;
  const std::vector<AutoTuneCombination> all = {AutoTuneCombination("FP32|INT8, FP32*INT8", "")};
  CandidateQuery query = make_query(in, out);
  std::vector<DroppedCandidate> dropped;
  query.dropped = &dropped;
  query.int8 = true;
  EXPECT_EQ(expand(all, query, "p").size(), 1u);
  ASSERT_EQ(dropped.size(), 3u);
  EXPECT_EQ(str(dropped[0].candidate), "FP32 -> INT8");
  EXPECT_CONTAINS(dropped[0].reason, "output 0 is FP32 in the network, and INT8 needs a scale");
  in[0].scale = 0.5f;
  EXPECT_EQ(types(expand(all, query, "p")),
            (std::vector<std::vector<DT>>{{DT::kFLOAT, DT::kFLOAT}, {DT::kINT8, DT::kFLOAT}}));
  out[0].scale = 0.25f;
  EXPECT_EQ(expand(all, query, "p").size(), 4u);
  // A tensor that is INT8 in the network passes without one.
  const std::vector<PortDesc> whole = {port(DT::kINT8, {1, 3, 4, 4})};
  const std::vector<AutoTuneCombination> int8 = {AutoTuneCombination("INT8, INT8", "")};
  EXPECT_EQ(expand(int8, make_query(whole, whole), "p").size(), 1u);
}

TEST(Expand, DropsFormatsThatTheRankCannotHave) {
  const std::vector<PortDesc> vector = {port(DT::kFLOAT, {8})};
  const std::vector<AutoTuneCombination> all = {AutoTuneCombination("FP32, FP32", "LINEAR|HWC")};
  EXPECT_EQ(formats(expand(all, make_query(vector, kOne), "p")),
            (std::vector<std::vector<TF>>{{TF::kLINEAR, TF::kLINEAR}}));
}

TEST(Expand, MergesTacticsOfRepetitions) {
  const std::vector<AutoTuneCombination> all = {
      AutoTuneCombination("FP32|FP32, FP32|FP32", "LINEAR", {1, 2}),
      AutoTuneCombination("FP32, FP32", "LINEAR", {2, 3})};
  std::vector<int64_t> tactics;
  for (const Candidate& c : expand(all, make_query(kOne, kOne), "p")) tactics.push_back(c.tactic);
  EXPECT_EQ(tactics, (std::vector<int64_t>{1, 2, 3}));
}

TEST(Expand, NothingLeftNamesThePluginAndItsTypes) {
  const std::vector<AutoTuneCombination> all = {AutoTuneCombination("FP16, FP16", "LINEAR")};
  const std::string message = thrown_error([&] { expand(all, make_query(kOne, kOne), "ns::p"); });
  EXPECT_CONTAINS(message, "'test layer'");
  EXPECT_CONTAINS(message, "'ns::p'");
  EXPECT_CONTAINS(message, "FP32 -> FP32");
  EXPECT_CONTAINS(message, "FP16 -> FP16: input 0 is FP32 in the network, and FP16 needs");
  EXPECT_CONTAINS(thrown_error([&] { expand({}, make_query(kOne, kOne), "ns::p"); }),
                  "an empty list");
}

}  // namespace
}  // namespace opwright
