// Reads arbitrary bytes as NPY files: whatever they are, parse_npy() gives an Error or an array
// whose bytes are all there.

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/error.h"
#include "base/npy.h"
#include "run/script.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

/// Something like a header, now and then a long one.
std::string npy_file(opwright::fuzz::Random& random) {
  static constexpr const char* kTypes[] = {"<f4", "|b1", "<i8", "<V2", "|O", "<f8", ""};
  static constexpr const char* kExtents[] = {"3",  "0", "1", "99999999999999999",     "4294967296",
                                             "-1", "",  " ", "1234567890123456789012"};
  std::string shape;
  for (uint64_t i = random.below(10); i > 0; --i)
    shape += std::string(kExtents[random.below(std::size(kExtents))]) + ", ";
  std::string header = std::string("{'descr': '") + kTypes[random.below(std::size(kTypes))] +
                       "', 'fortran_order': " + (random.below(8) == 0 ? "True" : "False") +
                       ", 'shape': (" + shape + "), }";
  if (random.below(8) == 0)
    header.insert(random.below(header.size()),
                  std::string(random.below(random.below(4) == 0 ? 70000 : 200),
                              static_cast<char>("' ,9(["[random.below(6)])));
  header += '\n';
  const bool is_wide = random.below(3) == 0;
  std::string file = std::string("\x93NUMPY") + static_cast<char>(is_wide ? 2 : 1) + '\0';
  for (int i = 0; i < (is_wide ? 4 : 2); ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 255);
  return file + header + std::string(random.below(64), 'x');
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size < 16 || seed % 8 == 0) {
    opwright::fuzz::Random random(seed);
    const std::string file = npy_file(random);
    if (file.size() <= max_size) {
      std::memcpy(data, file.data(), file.size());
      return file.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const opwright::NpyArray array = opwright::parse_npy(opwright::Blob::copy(data, size), "x.npy");
    if (array.data.size() !=
        static_cast<size_t>(opwright::bytes_of(array.dtype, array.shape.numel())))
      std::abort();
    uint8_t sum = 0;
    for (const std::byte byte : array.data.bytes()) sum ^= static_cast<uint8_t>(byte);
    if (sum == 1 && array.data.empty()) std::abort();
  } catch (const opwright::Error& error) {
    if (std::strlen(error.what()) == 0) std::abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}
