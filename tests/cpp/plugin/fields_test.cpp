#include "plugin/registry/fields.h"

#include <cmath>
#include <limits>

#include "plugin/model/fit_field.h"
#include "plugin/plugin_test.h"

namespace opwright {
namespace {

template <class T>
PluginField plugin_field(const char* name, PluginFieldType type, const std::vector<T>& values) {
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
    const PluginField fields[] = {plugin_field("pads", PluginFieldType::kINT32, pads),
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
  EXPECT_CONTAINS(thrown_error([&] { copy_fields({1, &no_data}); }), "'pads' has 2 elements");
  const PluginField no_name(nullptr, "", PluginFieldType::kCHAR, 0);
  EXPECT_CONTAINS(thrown_error([&] { copy_fields({1, &no_name}); }), "no name");
  const PluginField no_type("x", "abc", static_cast<PluginFieldType>(77), 3);
  EXPECT_CONTAINS(thrown_error([&] { copy_fields({1, &no_type}); }), "unknown type 77");
  EXPECT_CONTAINS(thrown_error([&] { copy_fields({2, nullptr}); }), "2 fields");
}

TEST(FitField, ConvertsNumbers) {
  const std::vector<int64_t> longs = {1, -3};
  const FieldValue value{"pads", PluginFieldType::kINT64, 2, Blob::copy(longs.data(), 16)};
  EXPECT_EQ(read<int32_t>(fit_field(value, PluginFieldType::kINT32, "p")),
            (std::vector<int32_t>{1, -3}));
  EXPECT_EQ(read<float>(fit_field(value, PluginFieldType::kFLOAT32, "p")),
            (std::vector<float>{1, -3}));
  EXPECT_EQ(read<double>(fit_field(value, PluginFieldType::kFLOAT64, "p")),
            (std::vector<double>{1, -3}));
  // IEEE binary16: 1 is 0x3c00, -3 is 0xc200.
  EXPECT_EQ(read<uint16_t>(fit_field(value, PluginFieldType::kFLOAT16, "p")),
            (std::vector<uint16_t>{0x3c00, 0xc200}));
}

TEST(FitField, RefusesWhatWouldChangeValues) {
  const int64_t big = int64_t{1} << 40;
  const FieldValue value{"k", PluginFieldType::kINT64, 1, Blob::copy(&big, 8)};
  const std::string message =
      thrown_error([&] { fit_field(value, PluginFieldType::kINT32, "plugin 'p'"); });
  EXPECT_CONTAINS(message, "plugin 'p': attribute 'k' must be INT32");
  EXPECT_CONTAINS(message, "1099511627776");
  const float half = 0.5f;
  const FieldValue real{"k", PluginFieldType::kFLOAT32, 1, Blob::copy(&half, 4)};
  EXPECT_CONTAINS(thrown_error([&] { fit_field(real, PluginFieldType::kINT32, "p"); }),
                  "must be INT32, but is FLOAT32");
  const FieldValue text{"k", PluginFieldType::kCHAR, 1, Blob::copy("a", 1)};
  EXPECT_CONTAINS(thrown_error([&] { fit_field(text, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, but is CHAR");
  // Integers are kept, floating values rounded, but not to infinity.
  const int64_t odd = (int64_t{1} << 24) + 1, most = std::numeric_limits<int64_t>::max();
  const FieldValue whole{"k", PluginFieldType::kINT64, 1, Blob::copy(&odd, 8)};
  EXPECT_CONTAINS(thrown_error([&] { fit_field(whole, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, which cannot hold 16777217");
  const FieldValue largest{"k", PluginFieldType::kINT64, 1, Blob::copy(&most, 8)};
  EXPECT_CONTAINS(thrown_error([&] { fit_field(largest, PluginFieldType::kFLOAT64, "p"); }),
                  "cannot hold 9223372036854775807");
  const double reals[] = {0.1, std::numeric_limits<double>::infinity(), 1e300};
  const FieldValue fine{"k", PluginFieldType::kFLOAT64, 2, Blob::copy(reals, 16)};
  EXPECT_EQ(read<float>(fit_field(fine, PluginFieldType::kFLOAT32, "p")),
            (std::vector<float>{0.1f, std::numeric_limits<float>::infinity()}));
  const FieldValue huge{"k", PluginFieldType::kFLOAT64, 3, Blob::copy(reals, 24)};
  EXPECT_CONTAINS(thrown_error([&] { fit_field(huge, PluginFieldType::kFLOAT32, "p"); }),
                  "must be FLOAT32, which cannot hold 1e+300");
}

}  // namespace
}  // namespace opwright
