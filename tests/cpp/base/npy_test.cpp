#include "base/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/error.h"

namespace opwright {
namespace {

/// An NPY file with this header and so many bytes of data.
NpyArray parse(const std::string& header, size_t bytes, int version = 1) {
  std::string file = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  file += header + std::string(bytes, '\1');
  return parse_npy(Blob::copy(file.data(), file.size()), "a.npy");
}

std::string error_of(const std::string& header, size_t bytes = 64, int version = 1) {
  try {
    parse(header, bytes, version);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Npy, HeadersOfAllVersionsAndSpacings) {
  for (const int version : {1, 2, 3}) {
    for (const char* header : {
             "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
             "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
             " \t{ \"shape\" : ( 2L , 3L , ) ,\n \"descr\" : \"<f4\" , 'fortran_order' : False } ",
         }) {
      const NpyArray array = parse(header, 24, version);
      EXPECT_EQ(array.dtype, DataType::kFLOAT);
      EXPECT_EQ(array.shape, (Shape{2, 3}));
      EXPECT_EQ(array.data.size(), 24u);
    }
  }
  EXPECT_EQ(parse("{'descr': '|i1', 'fortran_order': False, 'shape': ()}", 1).shape.rank(), 0);
  EXPECT_EQ(parse("{'descr': '|i1', 'fortran_order': False, 'shape': (0,)}", 0).shape, Shape{0});
}

TEST(Npy, ErrorsSayWhatWasExpected) {
  const auto has = [](const std::string& error, const char* text) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  has(error_of(""), "a dict");
  has(error_of("{'descr': '<f4'"), "',' or '}'");
  has(error_of("{'descr': '<f4'}"), "no 'fortran_order'");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}"), "a tuple");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}"), "the key 'x'");
  has(error_of("{'descr': '<f4', 'descr': '<f4'}"), "twice");
  has(error_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}"), "True or False");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}"), "extents");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}"),
      "extents");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}"), "',' or ')'");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x"), "its end");
  has(error_of("{'descr': '<f4"), "without end");
  has(error_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "fields");
  has(error_of("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}"), "astype('<f4')");
  has(error_of("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"), "'<c8'");
  has(error_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}"), "Fortran");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (17,)}"), "truncated");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2)}"),
      "too many");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}"),
      "truncated");
  has(error_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}"),
      "more than 8 axes");
  has(error_of("{}", 0, 4), "version 4.0");
}

/// They overflowed the stack of a parser by regular expressions.
TEST(Npy, LongHeadersAreReadOrRefused) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)";
  EXPECT_EQ(parse(header + std::string(60000, ' ') + "}", 24).shape, (Shape{2, 3}));
  EXPECT_NE(error_of(header + std::string(1 << 20, ' ') + "}", 24, 2).find("at most"),
            std::string::npos);
  for (const char c : {'\'', '(', '{', ' ', '1', ','})
    for (const std::string& begin : {std::string(), header.substr(0, 10), header})
      EXPECT_NE(error_of(begin + std::string(65000, c) + "x"), "no error");
}

TEST(Npy, AnyHeaderGivesAnArrayOrAnError) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  std::mt19937 random(5);
  const std::string letters = "{}()[]'\",: 0123456789LTrueFalse<f4|\\\n";
  for (int i = 0; i < 20000; ++i) {
    std::string changed = header;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const size_t at = random() % changed.size();
      if (random() % 2 == 0)
        changed[at] = letters[random() % letters.size()];
      else if (random() % 2 == 0)
        changed.erase(at, random() % 5);
      else
        changed.insert(at, 1, letters[random() % letters.size()]);
      if (changed.empty()) changed = header;
    }
    try {
      const NpyArray array = parse(changed, 64);
      EXPECT_EQ(static_cast<int64_t>(array.data.size()),
                bytes_of(array.dtype, array.shape.numel()));
    } catch (const Error&) {
    }
  }
}

TEST(Npy, TruthValuesAreZeroOrOne) {
  std::string header = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}";
  std::string file = std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' +
                     header + std::string("\0\2\xff", 3);
  const NpyArray array = parse_npy(Blob::copy(file.data(), file.size()), "b.npy");
  ASSERT_EQ(array.data.size(), 3u);
  EXPECT_EQ(std::to_integer<int>(array.data.data()[0]), 0);
  EXPECT_EQ(std::to_integer<int>(array.data.data()[1]), 1);
  EXPECT_EQ(std::to_integer<int>(array.data.data()[2]), 1);
}

TEST(Npy, WhatIsWrittenIsRead) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("opwright-npy-" + std::to_string(getpid()) + ".npy");
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT64,
                              DataType::kINT8, DataType::kFP8}) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5}, Shape{2, 3, 4}}) {
      const std::string bytes(static_cast<size_t>(bytes_of(type, shape.numel())), '\7');
      write_npy(path, {type, shape, Blob::copy(bytes.data(), bytes.size())});
      const NpyArray array = read_npy(path);
      EXPECT_EQ(array.dtype, type);
      EXPECT_EQ(array.shape, shape);
      EXPECT_EQ(array.data, Blob::copy(bytes.data(), bytes.size()));
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace opwright
