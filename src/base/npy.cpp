#include "base/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace opwright {
namespace {

constexpr std::pair<const char*, DataType> kNpyTypes[] = {
    {"<f4", DataType::kFLOAT}, {"<f2", DataType::kHALF},  {"|i1", DataType::kINT8},
    {"|u1", DataType::kUINT8}, {"<i4", DataType::kINT32}, {"<i8", DataType::kINT64},
    {"|b1", DataType::kBOOL},  {"|V2", DataType::kBF16},  {"<V2", DataType::kBF16},
    {"|V1", DataType::kFP8},
};

/// A header of an array that an engine takes is shorter; NumPy refuses headers above 10,000 bytes.
constexpr size_t kMaxHeader = 1 << 16;

/// Parses the header: a dict of Python's, such as
///   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
/// with exactly these keys in any order, and white space anywhere between. Parses in one pass,
/// because the file may come from anybody (numpy.lib.format defines it).
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  struct Header {
    std::string type;
    bool is_fortran_order = false;
    Shape shape;
  };

  Header parse() {
    Header header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{', "a dict, '{'");
    while (!accept('}')) {
      const std::string key = string("a key");
      bool* const given = key == "descr"           ? &has_type
                          : key == "fortran_order" ? &has_order
                          : key == "shape"         ? &has_shape
                                                   : nullptr;
      if (given == nullptr) refuse(str("the key '", key, "'"), "descr, fortran_order and shape");
      if (std::exchange(*given, true)) refuse(str("'", key, "' twice"), "it once");
      expect(':', "':'");
      if (given == &has_type) {
        if (peek() == '[')
          fail("'", path_, "' has elements of several fields: save each field as an array");
        header.type = string("the elements' type, a string");
      } else if (given == &has_order) {
        header.is_fortran_order = truth();
      } else {
        header.shape = extents();
      }
      if (!accept(',') && peek() != '}') refuse(found(), "',' or '}'");
    }
    if (skip(); at_ != text_.size()) refuse(found(), "its end");
    if (!has_type || !has_order || !has_shape)
      refuse(str("no '",
                 !has_type    ? "descr"
                 : !has_order ? "fortran_order"
                              : "shape",
                 "'"),
             "descr, fortran_order and shape");
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const char* expected) const {
    fail("'", path_, "' is no NPY file that can be read: its header has ", what,
         " before character ", at_, "; expected ", expected);
  }
  std::string found() const {
    return at_ < text_.size() ? str("'", text_.substr(at_, 1), "'") : "an end";
  }
  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n\f").find(text_[at_]) != text_.npos)
      ++at_;
  }
  /// The next character, which stays; 0 at the end.
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!accept(c)) refuse(found(), what);
  }
  std::string string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse(found(), what);
    const size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == text_.npos || text_.substr(begin, end - begin).find('\\') != text_.npos)
      refuse("a string without end or with '\\'", what);
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }
  bool truth() {
    skip();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    refuse(found(), "True or False");
  }
  Shape extents() {
    Shape shape;
    expect('(', "the shape, a tuple");
    bool has_comma = true;
    while (!accept(')')) {
      if (!has_comma) refuse(found(), "',' or ')'");
      skip();
      const char* const end = text_.data() + text_.size();
      int64_t extent = -1;
      const auto [rest, problem] = std::from_chars(text_.data() + at_, end, extent);
      if (problem != std::errc() || extent < 0) refuse(found(), "extents of 0 to 2^63 - 1");
      at_ = static_cast<size_t>(rest - text_.data());
      accept('L');  // the suffix of Python 2
      if (shape.rank() == Dims::MAX_DIMS)
        fail("'", path_, "' has more than ", Dims::MAX_DIMS, " axes, which no engine takes");
      shape.push_back(extent);
      has_comma = accept(',');
    }
    if (shape.rank() == 1 && !has_comma) refuse("a number in parentheses", "a tuple");
    return shape;
  }

  const std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

DataType element_type(const std::string& descr, const std::string& path) {
  const auto* known = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                   [&](auto& t) { return descr == t.first; });
  if (known != std::end(kNpyTypes)) return known->second;
  if (descr.starts_with('>'))
    fail("'", path, "' has big-endian elements, '", descr, "'; save array.astype('<",
         descr.substr(1), "')");
  fail("'", path, "' has elements of type '", descr,
       "'; expected float32, float16, int8, uint8, int32, int64 or bool: convert the array first");
}

/// Turns truth values into 0 and 1, on which kernels rely.
Blob truth_values(Blob data) {
  const auto* bytes = data.as<uint8_t>();
  if (std::all_of(bytes, bytes + data.size(), [](uint8_t byte) { return byte <= 1; })) return data;
  return Blob::make(data.size(), [&](void* to) {
    std::transform(bytes, bytes + data.size(), static_cast<uint8_t*>(to),
                   [](uint8_t byte) { return static_cast<uint8_t>(byte != 0); });
  });
}

}  // namespace

NpyArray read_npy(const std::string& path) { return parse_npy(map_file(path), path); }

NpyArray parse_npy(const Blob& file, const std::string& path) {
  const auto* bytes = file.as<unsigned char>();
  require(file.size() >= 10 && std::memcmp(bytes, "\x93NUMPY", 6) == 0, "'", path,
          "' is no NPY file: save the array with numpy.save");
  const int major = bytes[6], minor = bytes[7];
  require(major >= 1 && major <= 3 && minor == 0, "'", path, "' has the version ", major, ".",
          minor, " of the NPY format; expected 1.0, 2.0 or 3.0");
  const bool wide = major >= 2;  // the length has 4 bytes
  require(!wide || file.size() >= 12, "'", path, "' is truncated");
  const size_t start = wide ? 12 : 10;
  size_t length = bytes[8] | bytes[9] << 8;
  if (wide) length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  require(length <= file.size() - start, "'", path, "' is truncated: its header has ", length,
          " bytes, and ", file.size() - start, " are there");
  require(length <= kMaxHeader, "'", path, "' has a header of ", length, " bytes; at most ",
          kMaxHeader, " are read");
  const auto header =
      HeaderParser({reinterpret_cast<const char*>(bytes) + start, length}, path).parse();

  NpyArray array;
  array.dtype = element_type(header.type, path);
  require(!header.is_fortran_order, "'", path,
          "' is in Fortran order: save numpy.ascontiguousarray(array)");
  array.shape = header.shape;
  const int64_t count = array.shape.numel();
  const size_t begin = start + length, there = file.size() - begin;
  // Compares numbers of elements, because their bytes might not fit 63 bits.
  require(
      std::cmp_less_equal(count, there) && std::cmp_less_equal(bytes_of(array.dtype, count), there),
      "'", path, "' is truncated: it has ", there, " bytes of data; its shape ", array.shape,
      " needs ", count, " elements of ", name(array.dtype));
  const auto size = static_cast<size_t>(bytes_of(array.dtype, count));
  // NumPy aligns the data behind the header; other writers need not.
  const std::byte* data = file.data() + begin;
  if (reinterpret_cast<uintptr_t>(data) % 64 == 0)
    array.data = Blob(std::make_shared<Blob>(file), data, size);
  else
    array.data = Blob::copy(data, size);
  if (array.dtype == DataType::kBOOL) array.data = truth_values(array.data);
  return array;
}

void write_npy(const std::string& path, const NpyArray& array) {
  const auto* known = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                   [&](auto& t) { return array.dtype == t.second; });
  require(known != std::end(kNpyTypes), "'", path, "': NPY has no type for ", name(array.dtype));
  std::string header = str("{'descr': '", known->first, "', 'fortran_order': False, 'shape': (");
  for (int64_t extent : array.shape) header += str(extent, ", ");
  header += "), }";
  // Magic, version, length and header end with a newline at a multiple of 64 bytes.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const std::string length = {static_cast<char>(header.size() & 0xff),
                              static_cast<char>(header.size() >> 8)};
  const std::string front = magic + length + header;
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(front)), array.data.bytes()};
  write_file_atomically(path, parts, Durability::kCached);
}

}  // namespace opwright
