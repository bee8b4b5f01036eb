#include "npy.h"

#include <regex>

#include "base/error.h"
#include "base/file.h"

namespace opwright::cli {
namespace {

constexpr std::pair<const char*, DataType> kTypes[] = {
    {"<f4", DataType::kFLOAT}, {"<f2", DataType::kHALF},  {"|i1", DataType::kINT8},
    {"|u1", DataType::kUINT8}, {"<i4", DataType::kINT32}, {"<i8", DataType::kINT64},
    {"|b1", DataType::kBOOL},  {"|V2", DataType::kBF16},  {"<V2", DataType::kBF16},
    {"|V1", DataType::kFP8},
};

std::string match(const std::string& header, const char* pattern, const std::string& path,
                  const char* what) {
  std::smatch found;
  require(std::regex_search(header, found, std::regex(pattern)), "'", path,
          "' is no NPY file: its header has no ", what);
  return found[1];
}

}  // namespace

NpyArray read_npy(const std::string& path) {
  const Blob file = read_file(path);
  const auto* bytes = file.as<unsigned char>();
  require(file.size() >= 10 && std::memcmp(bytes, "\x93NUMPY", 6) == 0, "'", path,
          "' is no NPY file: save the array with numpy.save");
  const bool wide = bytes[6] >= 2;  // version 2 has a 4-byte header length
  require(!wide || file.size() >= 12, "'", path, "' is truncated");
  const size_t start = wide ? 12 : 10;
  size_t length = bytes[8] | bytes[9] << 8;
  if (wide) length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  require(length <= file.size() - start && length < 65536, "'", path,
          "' is truncated or has a header of ", length, " bytes");
  const std::string header(reinterpret_cast<const char*>(bytes) + start, length);

  NpyArray array;
  const std::string type = match(header, "'descr': *'([^']*)'", path, "type");
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return type == t.first; });
  require(
      known != std::end(kTypes), "'", path, "' has elements of type '", type,
      "'; expected float32, float16, int8, uint8, int32, int64 or bool: convert the array first");
  array.dtype = known->second;
  require(match(header, "'fortran_order': *(True|False)", path, "order") == "False", "'", path,
          "' is in Fortran order: save numpy.ascontiguousarray(array)");
  const std::string extents = match(header, "'shape': *\\(([0-9, ]*)\\)", path, "shape");
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(extents.begin(), extents.end(), number), end; it != end; ++it) {
    require(it->str().size() < 19, "'", path, "' has an extent of ", it->str());
    array.shape.push_back(std::stoll(it->str()));
  }
  const int64_t size = bytes_of(array.dtype, array.shape.numel());
  const size_t begin = start + length;
  require(static_cast<size_t>(size) <= file.size() - begin, "'", path, "' is truncated: it has ",
          file.size() - begin, " bytes of data; its shape ", array.shape, " needs ", size);
  // NumPy aligns what follows the header; other writers need not.
  const std::byte* data = file.data() + begin;
  if (reinterpret_cast<uintptr_t>(data) % 64 == 0)
    array.data = Blob(std::make_shared<Blob>(file), data, static_cast<size_t>(size));
  else
    array.data = Blob::copy(data, static_cast<size_t>(size));
  return array;
}

void write_npy(const std::string& path, const NpyArray& array) {
  const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](auto& t) { return array.dtype == t.second; });
  require(known != std::end(kTypes), "'", path, "': NPY has no type for ", name(array.dtype));
  std::string header = str("{'descr': '", known->first, "', 'fortran_order': False, 'shape': (");
  for (int64_t extent : array.shape) header += str(extent, ", ");
  header += "), }";
  // Magic, version, length and header fill a multiple of 64 bytes, ended by a newline.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const std::string length = {static_cast<char>(header.size() & 0xff),
                              static_cast<char>(header.size() >> 8)};
  const std::string front = magic + length + header;
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(front)), array.data.bytes()};
  write_file_atomically(path, parts, Durability::kCached);
}

}  // namespace opwright::cli
