#include "plugin/fields.h"

#include <bit>
#include <cmath>
#include <limits>

#include "plugin/field_conversion.h"
#include "plugin/plugin_test.h"

namespace opwright {
namespace {

template <class T>
PluginField field(const char* name, PluginFieldType type, const std::vector<T>& values) {
  return PluginField(name, values.data(), type, static_cast<int32_t>(values.size()));
}

template <class T>
std::vector<T> read(const FieldValue& value) {
  return {value.data.as<T>(), value.data.as<T>() + value.length};
}

TEST(Fields, CopiesOutliveTheirSource) {
  FieldValues copied;
  {
    std::vector<int32_t> pads = {1, -2, 3};
    std::string mode = "wrap";
    const PluginField fields[] = {field("pads", PluginFieldType::kINT32, pads),
                                  PluginField("mode", mode.data(), PluginFieldType::kCHAR, 4),
                                  PluginField("none", nullptr, PluginFieldType::kFLOAT32, 0)};
    copied = copy_fields({3, fields});
    pads.assign(3, 0);
    mode.assign(4, 'x');
  }
  ASSERT_EQ(copied.size(), 3u);
  EXPECT_EQ(read<int32_t>(copied[0]), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_STREQ(copied[1].data.as<char>(), "wrap");  // null-terminated beyond its length
  EXPECT_EQ(copied[1].length, 4);
  EXPECT_EQ(copied[2].length, 0);

  const std::vector<PluginField> pointers = point_to(copied);
  EXPECT_STREQ(pointers[0].name, "pads");
  EXPECT_EQ(static_cast<const int32_t*>(pointers[0].data)[1], -2);
}

TEST(Fields, RefusesBrokenCollections) {
  const PluginField no_data("pads", nullptr, PluginFieldType::kINT32, 2);
  EXPECT_CONTAINS(error_of([&] { copy_fields({1, &no_data}); }), "'pads' has 2 elements");
  const PluginField no_name(nullptr, "", PluginFieldType::kCHAR, 0);
  EXPECT_CONTAINS(error_of([&] { copy_fields({1, &no_name}); }), "no name");
  const PluginField no_type("x", "abc", static_cast<PluginFieldType>(77), 3);
  EXPECT_CONTAINS(error_of([&] { copy_fields({1, &no_type}); }), "unknown type 77");
  EXPECT_CONTAINS(error_of([&] { copy_fields({2, nullptr}); }), "2 fields");
}

TEST(Fields, StorageKeepsEveryBit) {
  const std::vector<float> floats = {-0.0f, 0.1f, std::numeric_limits<float>::denorm_min(),
                                     std::numeric_limits<float>::infinity()};
  // A signalling NaN, which a conversion to double would change.
  const std::vector<uint32_t> nan = {0x7f800001u, 0x3f800000u};
  const std::vector<double> doubles = {0.1, -1e308, 5e-324};
  const std::vector<int64_t> longs = {std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int64_t>::max()};
  const std::vector<int8_t> bytes = {-128, 127};
  const std::vector<int16_t> shorts = {-32768, 32767};
  const std::vector<uint16_t> halfs = {0x3c00, 0x7e01};
  const std::string text = "a:b[3] \xc3\xa9\n";
  const std::vector<Dims> dims = {Dims{2, {3, 4}}};
  const uint8_t nibbles[] = {0x21, 0x03};  // three 4-bit elements
  const PluginField fields[] = {
      field("floats", PluginFieldType::kFLOAT32, floats),
      field("nan", PluginFieldType::kFLOAT32, nan),
      field("doubles", PluginFieldType::kFLOAT64, doubles),
      field("longs", PluginFieldType::kINT64, longs),
      field("bytes", PluginFieldType::kINT8, bytes),
      field("shorts", PluginFieldType::kINT16, shorts),
      field("halfs", PluginFieldType::kFLOAT16, halfs),
      PluginField("odd:name[7]", text.data(), PluginFieldType::kCHAR,
                  static_cast<int32_t>(text.size())),
      field("dims", PluginFieldType::kDIMS, dims),
      PluginField("nibbles", nibbles, PluginFieldType::kINT4, 3),
      PluginField("raw", "\0\xff", PluginFieldType::kUNKNOWN, 2),
      PluginField("empty", nullptr, PluginFieldType::kCHAR, 0),
  };
  const FieldValues values = copy_fields({std::size(fields), fields});
  const FieldValues back = decode_fields(encode_fields(values));
  ASSERT_EQ(back.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i].name, values[i].name);
    EXPECT_EQ(back[i].type, values[i].type) << values[i].name;
    EXPECT_EQ(back[i].length, values[i].length) << values[i].name;
    EXPECT_EQ(back[i].data, values[i].data) << values[i].name;
  }
  EXPECT_EQ(back[9].data.size(), 2u);
}

TEST(Fields, StorageKeepsExtents) {
  const int32_t numbers[] = {1, 2, 3, 4, 5, 6};
  const FieldValues values = {
      {"grid", PluginFieldType::kINT32, 6, Blob::copy(numbers, 24), std::vector<int64_t>{3, 1, 2}},
      {"scalar", PluginFieldType::kINT32, 1, Blob::copy(numbers, 4), std::vector<int64_t>{}},
      {"empty", PluginFieldType::kINT32, 0, copy_terminated(nullptr, 0),
       std::vector<int64_t>{int64_t{1} << 40, 0}},
      {"words", PluginFieldType::kCHAR, 5, Blob::copy("abcde", 5), std::vector<int64_t>{0, 3, 2}},
      {"none", PluginFieldType::kCHAR, 0, copy_terminated(nullptr, 0), std::vector<int64_t>{}}};
  const Attributes stored = encode_fields(values);
  EXPECT_EQ(stored[0].name, "grid:INT32(3,1,2)");
  EXPECT_EQ(stored[3].name, "words:CHAR(0,3,2)");
  const FieldValues back = decode_fields(stored);
  ASSERT_EQ(back.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i].name, values[i].name);
    EXPECT_EQ(back[i].length, values[i].length) << values[i].name;
    EXPECT_EQ(back[i].extents, values[i].extents) << values[i].name;
    EXPECT_EQ(back[i].data, values[i].data) << values[i].name;
  }
}

TEST(Fields, ShowsNumbersAsNumbers) {
  const std::vector<int32_t> pads = {1, 2};
  const PluginField f = field("pads", PluginFieldType::kINT32, pads);
  const Attributes stored = encode_fields(copy_fields({1, &f}));
  EXPECT_EQ(stored[0].name, "pads:INT32[2]");
  EXPECT_EQ(std::get<Ints>(stored[0].value), (Ints{1, 2}));
}

TEST(Fields, RefusesForeignStorage) {
  for (const Attribute& bad : Attributes{{"pads", Ints{1}},
                                         {"pads:INT32", Ints{1}},
                                         {"pads:INT32[2]", Ints{1}},
                                         {"pads:INT32[-1]", Ints{}},
                                         {"pads:INT32[1x]", Ints{1}},
                                         {"pads:NOTHING[1]", Ints{1}},
                                         {"pads:INT8[1]", Ints{300}},
                                         {"pads:CHAR[9]", std::string("short")},
                                         {"pads:INT32[1]", 1.0},
                                         {"pads:FLOAT32[1]", Floats{0.1}},
                                         {"pads:DIMS[2000000000]", Blob::copy("x", 1)},
                                         {"pads:INT32(2,2)", Ints{1, 2, 3}},
                                         {"pads:INT32(2,2]", Ints{1, 2, 3, 4}},
                                         {"pads:INT32(2,)", Ints{1, 2}},
                                         {"pads:INT32(,2)", Ints{1, 2}},
                                         {"pads:INT32[1,2]", Ints{1, 2}},
                                         {"pads:INT32[]", Ints{}},
                                         {"pads:INT8(65536,65536)", Ints{}},
                                         {"words:CHAR(2,3)", std::string("four")},
                                         {"words:CHAR(9223372036854775807,1)", std::string()},
                                         {"", Ints{}}})
    EXPECT_CONTAINS(error_of([&] { decode_fields({bad}); }), "plugin field") << bad.name;
}

TEST(ConvertField, ConvertsNumbers) {
  const std::vector<int64_t> longs = {1, -3};
  const FieldValue value{"pads", PluginFieldType::kINT64, 2, Blob::copy(longs.data(), 16)};
  EXPECT_EQ(read<int32_t>(convert_field(value, PluginFieldType::kINT32, "p")),
            (std::vector<int32_t>{1, -3}));
  EXPECT_EQ(read<float>(convert_field(value, PluginFieldType::kFLOAT32, "p")),
            (std::vector<float>{1, -3}));
  EXPECT_EQ(read<double>(convert_field(value, PluginFieldType::kFLOAT64, "p")),
            (std::vector<double>{1, -3}));
  // IEEE binary16: 1 is 0x3c00, -3 is 0xc200.
  EXPECT_EQ(read<uint16_t>(convert_field(value, PluginFieldType::kFLOAT16, "p")),
            (std::vector<uint16_t>{0x3c00, 0xc200}));
}

TEST(ConvertField, RefusesWhatWouldChangeValues) {
  const int64_t big = int64_t{1} << 40;
  const FieldValue value{"k", PluginFieldType::kINT64, 1, Blob::copy(&big, 8)};
  const std::string message =
      error_of([&] { convert_field(value, PluginFieldType::kINT32, "plugin 'p'"); });
  EXPECT_CONTAINS(message, "plugin 'p': attribute 'k' must be INT32");
  EXPECT_CONTAINS(message, "1099511627776");
  const float half = 0.5f;
  const FieldValue real{"k", PluginFieldType::kFLOAT32, 1, Blob::copy(&half, 4)};
  EXPECT_CONTAINS(error_of([&] { convert_field(real, PluginFieldType::kINT32, "p"); }),
                  "must be INT32, but is FLOAT32");
  const FieldValue text{"k", PluginFieldType::kCHAR, 1, Blob::copy("a", 1)};
  EXPECT_CONTAINS(error_of([&] { convert_field(text, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, but is CHAR");
  // Integers are kept, floating values rounded, but not to infinity.
  const int64_t odd = (int64_t{1} << 24) + 1, most = std::numeric_limits<int64_t>::max();
  const FieldValue whole{"k", PluginFieldType::kINT64, 1, Blob::copy(&odd, 8)};
  EXPECT_CONTAINS(error_of([&] { convert_field(whole, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, which cannot hold 16777217");
  const FieldValue largest{"k", PluginFieldType::kINT64, 1, Blob::copy(&most, 8)};
  EXPECT_CONTAINS(error_of([&] { convert_field(largest, PluginFieldType::kFLOAT64, "p"); }),
                  "cannot hold 9223372036854775807");
  const double reals[] = {0.1, std::numeric_limits<double>::infinity(), 1e300};
  const FieldValue fine{"k", PluginFieldType::kFLOAT64, 2, Blob::copy(reals, 16)};
  EXPECT_EQ(read<float>(convert_field(fine, PluginFieldType::kFLOAT32, "p")),
            (std::vector<float>{0.1f, std::numeric_limits<float>::infinity()}));
  const FieldValue huge{"k", PluginFieldType::kFLOAT64, 3, Blob::copy(reals, 24)};
  EXPECT_CONTAINS(error_of([&] { convert_field(huge, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, which cannot hold 1e+300");
}

}  // namespace
}  // namespace opwright
