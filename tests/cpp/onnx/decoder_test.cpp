// Decoding of serialized models: values in all the forms that writers use, hostile lengths and
// numbers, data in files beside the model.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "model_writer.h"
#include "onnx/model.h"

namespace opwright::onnx {
namespace {

/// A model whose only initializer is this tensor.
std::string holding(const std::string& tensor) {
  return model({{}, {tensor}, {}, {value_info("w", 1, {})}});
}

TensorProto decode(const std::string& tensor, const std::string& directory = "") {
  return decode_model(blob(holding(tensor)), directory).graph.initializers.at(0);
}

std::string refusal(const std::string& bytes, const std::string& directory = "") {
  try {
    decode_model(blob(bytes), directory);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string tensor_refusal(const std::string& tensor, const std::string& directory = "") {
  return refusal(holding(tensor), directory);
}

#define EXPECT_MENTIONS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the message is: '" << (text) << "'"

template <class T>
std::vector<T> elements(const TensorProto& tensor) {
  const size_t count = static_cast<size_t>(tensor.shape.numel());
  EXPECT_EQ(tensor.data.size(), count * sizeof(T));
  return {tensor.data.as<T>(), tensor.data.as<T>() + count};
}

TEST(Decoder, ReadsEveryPartOfAModel) {
  const ModelProto proto = decode_model(
      blob(model({{node("Conv", {"x", "w", ""}, {"y"}, {ints_attribute("pads", {1, -2, 3})})},
                  {float_tensor("w", {2, 1}, {1.5f, -2})},
                  {value_info("x", 10, {"batch", "3", "-1"})},
                  {value_info("y", 1, {})}},
                 13)),
      "");
  EXPECT_EQ(proto.ir_version, 8);
  EXPECT_EQ(proto.opsets.at(""), 13);
  EXPECT_EQ(proto.graph.name, "hand_made");
  ASSERT_EQ(proto.graph.nodes.size(), 1u);
  const NodeProto& conv = proto.graph.nodes[0];
  EXPECT_EQ(conv.op_type, "Conv");
  EXPECT_EQ(conv.name, "the_Conv");
  EXPECT_EQ(conv.inputs, (std::vector<std::string>{"x", "w", ""}));
  EXPECT_EQ(conv.outputs, std::vector<std::string>{"y"});
  ASSERT_NE(conv.attribute("pads"), nullptr);
  EXPECT_EQ(conv.attribute("pads")->ints, (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(conv.attribute("nothing"), nullptr);
  const ValueInfoProto& x = proto.graph.inputs.at(0);
  EXPECT_EQ(x.element_type, 10);
  EXPECT_EQ(x.dims, (std::vector<int64_t>{-1, 3, -1}));
  EXPECT_EQ(x.dim_names, (std::vector<std::string>{"batch", "", ""}));
  const TensorProto& w = proto.graph.initializers.at(0);
  EXPECT_EQ(w.shape, (Shape{2, 1}));
  EXPECT_EQ(elements<float>(w), (std::vector<float>{1.5f, -2}));
}

TEST(Decoder, ReadsElementsFromEveryField) {
  auto tensor = [](int32_t type, int64_t count, auto&& add) {
    return message([&](Writer& t) {
      t.add_int64(1, count);  // not packed, as some writers do
      t.add_int32(2, type);
      add(t);
    });
  };
  const std::vector<float> floats = {0.5f, -1};
  EXPECT_EQ(elements<float>(decode(tensor(
                1, 2, [&](Writer& t) { t.add_packed_float(4, floats.begin(), floats.end()); }))),
            floats);
  EXPECT_EQ(elements<float>(decode(tensor(1, 1, [](Writer& t) { t.add_float(4, 7); }))),
            std::vector<float>{7});
  const std::vector<double> doubles = {0.25, 3};
  EXPECT_EQ(
      elements<float>(decode(tensor(
          11, 2, [&](Writer& t) { t.add_packed_double(10, doubles.begin(), doubles.end()); }))),
      (std::vector<float>{0.25f, 3}));
  EXPECT_EQ(
      elements<float>(decode(tensor(
          11, 2,
          [&](Writer& t) { t.add_bytes(9, reinterpret_cast<const char*>(doubles.data()), 16); }))),
      (std::vector<float>{0.25f, 3}));
  // Double precision is kept beside what the engine computes with.
  const TensorProto exact = decode(tensor(11, 1, [](Writer& t) { t.add_double(10, 0.1); }));
  EXPECT_EQ(*exact.doubles.as<double>(), 0.1);
  EXPECT_EQ(elements<float>(exact), std::vector<float>{0.1f});
  const std::vector<int16_t> shorts = {-3, 30000};
  const std::vector<int32_t> widened = {-3, 30000};
  EXPECT_EQ(
      elements<int32_t>(decode(tensor(
          5, 2,
          [&](Writer& t) { t.add_bytes(9, reinterpret_cast<const char*>(shorts.data()), 4); }))),
      widened);
  EXPECT_EQ(elements<int32_t>(decode(tensor(
                5, 2, [&](Writer& t) { t.add_packed_int32(5, widened.begin(), widened.end()); }))),
            widened);
  const std::vector<int64_t> wide = {-5, int64_t{1} << 40};
  EXPECT_EQ(elements<int64_t>(decode(
                tensor(7, 2, [&](Writer& t) { t.add_packed_int64(7, wide.begin(), wide.end()); }))),
            wide);
  const std::vector<int32_t> small = {-3, 100};
  EXPECT_EQ(elements<int8_t>(decode(tensor(
                3, 2, [&](Writer& t) { t.add_packed_int32(5, small.begin(), small.end()); }))),
            (std::vector<int8_t>{-3, 100}));
  // 1.0 and -2.0 as the bits of half floats and of bfloat16.
  const std::vector<int32_t> halves = {0x3c00, 0xc000}, brains = {0x3f80, 0xc000};
  EXPECT_EQ(elements<uint16_t>(decode(tensor(
                10, 2, [&](Writer& t) { t.add_packed_int32(5, halves.begin(), halves.end()); }))),
            (std::vector<uint16_t>{0x3c00, 0xc000}));
  EXPECT_EQ(elements<uint16_t>(decode(tensor(
                16, 2, [&](Writer& t) { t.add_packed_int32(5, brains.begin(), brains.end()); }))),
            (std::vector<uint16_t>{0x3f80, 0xc000}));
}

TEST(Decoder, RefusesTensorsWhoseDataDoNotFit) {
  const std::vector<float> two = {1, 2};
  EXPECT_MENTIONS(tensor_refusal(float_tensor("w", {3}, two)), "'w' has 8 bytes");
  EXPECT_MENTIONS(tensor_refusal(float_tensor("w", {1}, two)), "needs 4");
  EXPECT_MENTIONS(tensor_refusal(float_tensor("w", {-1}, two)), "negative extent");
  EXPECT_MENTIONS(tensor_refusal(float_tensor("w", std::vector<int64_t>(9, 1), {1})),
                  "9 dimensions");
  EXPECT_MENTIONS(tensor_refusal(float_tensor("w", std::vector<int64_t>(1000, 1), {1})),
                  "1000 dimensions");
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{most}, {most, most}, {int64_t{1} << 32, int64_t{1} << 32}, {most, 4}})
    EXPECT_MENTIONS(tensor_refusal(float_tensor("w", dims, two)), "elements");
  // An extent of 0 makes it empty, whatever the others are.
  EXPECT_EQ(decode(float_tensor("w", {most, 0}, {})).data.size(), 0u);
}

TEST(Decoder, RefusesElementsInTwoFieldsAtOnce) {
  const std::string tensor = message([](Writer& t) {
    t.add_int64(1, 4);
    t.add_int32(2, 1);
    t.add_string(8, "w");
    t.add_float(4, 1);
    const std::vector<int32_t> four(4);
    t.add_packed_int32(5, four.begin(), four.end());
  });
  EXPECT_MENTIONS(tensor_refusal(tensor), "'w'");
}

TEST(Decoder, DoublesDoNotOverflowNarrowTypes) {
  const std::string tensor = message([](Writer& t) {
    t.add_int64(1, 3);
    t.add_int32(2, 3);  // INT8
    const std::vector<double> values = {1, -2, 3};
    t.add_packed_double(10, values.begin(), values.end());
  });
  EXPECT_EQ(elements<int8_t>(decode(tensor)), (std::vector<int8_t>{1, -2, 3}));
}

TEST(Decoder, RefusesTypesThatTheEngineDoesNotHave) {
  for (const int32_t type : {0, 4, 12, 13, 14, 15, 99, -1}) {
    const std::string tensor = message([&](Writer& t) {
      t.add_int32(2, type);
      t.add_string(8, "w");
    });
    EXPECT_MENTIONS(tensor_refusal(tensor), "element type " + std::to_string(type));
  }
}

TEST(Decoder, RefusesBytesThatAreNoModel) {
  for (const std::string& bytes :
       {std::string(), std::string("text, not a model"), std::string(100, '\0'),
        std::string(100, '\xff'), std::string("\x08\x08", 2), model({})})
    EXPECT_MENTIONS(refusal(bytes), "ONNX");
  const std::string whole = model({{node("Relu", {"x"}, {"y"})},
                                   {float_tensor("w", {2}, {1, 2})},
                                   {value_info("x", 1, {"2"})},
                                   {value_info("y", 1, {"2"})}});
  ASSERT_EQ(refusal(whole), "");
  const size_t opset = whole.size() - 4;  // the last field: tag, length, and two bytes
  for (size_t length = 0; length < whole.size(); ++length) {
    if (length == opset) continue;
    EXPECT_MENTIONS(refusal(whole.substr(0, length)), "ONNX");
  }
}

TEST(Decoder, RefusesLengthsBeyondTheEnd) {
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string bytes = "\x3a";  // the graph
    for (uint64_t rest = length;; rest >>= 7) {
      bytes += static_cast<char>(rest > 127 ? (rest & 127) | 128 : rest);
      if (rest <= 127) break;
    }
    bytes += "short";
    EXPECT_MENTIONS(refusal(bytes), "ONNX");
  }
}

TEST(Decoder, RefusesFieldsOfAnotherWireType) {
  // A graph given as a number; a name given as a number; dimensions as 32-bit values; an element
  // type as text.
  EXPECT_MENTIONS(refusal(message([](Writer& m) { m.add_int64(7, 1); })), "ONNX");
  EXPECT_MENTIONS(tensor_refusal(message([](Writer& t) { t.add_int64(8, 1); })), "ONNX");
  EXPECT_MENTIONS(tensor_refusal(message([](Writer& t) { t.add_fixed32(1, 1); })), "ONNX");
  EXPECT_MENTIONS(tensor_refusal(message([](Writer& t) { t.add_string(2, "float"); })), "ONNX");
  EXPECT_MENTIONS(tensor_refusal(message([](Writer& t) { t.add_string(4, "abc"); })), "ONNX");
}

TEST(Decoder, RefusesDeepNesting) {
  // Graphs in attributes of nodes of graphs.
  std::string graph;
  for (int depth = 0; depth < 20000; ++depth) {
    const std::string attribute = message([&](Writer& a) { a.add_message(6, graph); });
    graph = message([&](Writer& g) {
      g.add_message(1, message([&](Writer& n) { n.add_message(5, attribute); }));
    });
    if (graph.size() > 200000) break;
  }
  EXPECT_MENTIONS(refusal(message([&](Writer& m) { m.add_message(7, graph); })),
                  "nested more than 32 deep");
}

TEST(Decoder, RefusesTensorAttributesWithoutTensor) {
  const std::string attribute = message([](Writer& a) {
    a.add_string(1, "value");
    a.add_int32(20, 4);
  });
  EXPECT_MENTIONS(
      refusal(model(
          {{node("ConstantOfShape", {}, {"y"}, {attribute})}, {}, {}, {value_info("y", 1, {})}})),
      "'value'");
}

class ExternalData : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("opwright_onnx_" + std::to_string(getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_ / "model" / "inner");
    const float values[] = {1, 2, 3, 4};
    for (const char* path : {"outside.bin", "model/w.bin", "model/inner/w.bin"})
      std::ofstream(root_ / path, std::ios::binary)
          .write(reinterpret_cast<const char*>(values), sizeof(values));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::string tensor(const std::vector<std::pair<std::string, std::string>>& entries,
                            int64_t count = 2) {
    return message([&](Writer& t) {
      t.add_int64(1, count);
      t.add_int32(2, 1);
      t.add_string(8, "w");
      for (const auto& [key, value] : entries) {
        Writer entry(t, 13);
        entry.add_string(1, key);
        entry.add_string(2, value);
      }
      t.add_int32(14, 1);
    });
  }
  std::string folder() const { return (root_ / "model").string(); }

  std::filesystem::path root_;
};

TEST_F(ExternalData, IsReadFromFilesBesideTheModel) {
  EXPECT_EQ(elements<float>(decode(tensor({{"location", "w.bin"}}, 4), folder())),
            (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(elements<float>(decode(
                tensor({{"location", "inner/../inner/w.bin"}, {"offset", "4"}, {"length", "8"}}),
                folder())),
            (std::vector<float>{2, 3}));
}

TEST_F(ExternalData, OutsideOfTheModelsFolderIsRefused) {
  for (const std::string& location :
       {std::string("../outside.bin"), std::string("inner/../../outside.bin"),
        (root_ / "outside.bin").string(), std::string(".."), std::string()})
    EXPECT_MENTIONS(tensor_refusal(tensor({{"location", location}}), folder()), "beside the model");
  EXPECT_MENTIONS(tensor_refusal(tensor({{"location", "w.bin"}}), ""), "given as bytes");
}

TEST_F(ExternalData, WrongRangesAreRefused) {
  auto refused = [&](const std::string& offset, const std::string& length) {
    return tensor_refusal(tensor({{"location", "w.bin"}, {"offset", offset}, {"length", length}}),
                          folder());
  };
  EXPECT_MENTIONS(refused("12", "8"), "4 bytes");
  EXPECT_MENTIONS(refused("16", "8"), "0 bytes");
  EXPECT_MENTIONS(refused("17", "8"), "starts at byte 17");
  EXPECT_MENTIONS(refused("9223372036854775807", "8"), "starts at byte");
  EXPECT_MENTIONS(refused("0", "9223372036854775807"), "needs 8");
  EXPECT_MENTIONS(refused("0", "7"), "needs 8");
  for (const char* number : {"-1", "four", "4 ", "99999999999999999999", "0x10"})
    EXPECT_MENTIONS(refused(number, "8"), "number of bytes");
  EXPECT_MENTIONS(tensor_refusal(tensor({{"location", "none.bin"}}), folder()), "none.bin");
  EXPECT_MENTIONS(tensor_refusal(tensor({{"location", "inner"}}), folder()), "inner");
}

}  // namespace
}  // namespace opwright::onnx
