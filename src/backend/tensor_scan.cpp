#include "backend/tensor_scan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "backend/guarded_memory.h"
#include "base/error.h"
#include "base/half.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr int kChannels = 1;

/// The extents in the order of the memory, blocks of channels and padding included.
Shape stored_shape(const Shape& shape, TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  if (layout.block == 1 && !layout.channels_last) return shape;
  const int64_t blocks = (shape[kChannels] + layout.block - 1) / layout.block;
  Shape stored{shape[0]};
  if (!layout.channels_last) stored.push_back(blocks);
  for (int axis = kChannels + 1; axis < shape.rank(); ++axis) stored.push_back(shape[axis]);
  stored.push_back(layout.channels_last ? blocks * layout.block : layout.block);
  return stored;
}

/// Coordinates of the element at an index into the memory, or nothing for padding.
std::optional<Shape> locate(const TensorView& tensor, int64_t element) {
  const FormatLayout layout = layout_of(tensor.type.format);
  const Shape stored = stored_shape(tensor.shape, tensor.type.format);
  Shape at = stored;
  for (int axis = stored.rank() - 1; axis >= 0; --axis) {
    at[axis] = element % stored[axis];
    element /= stored[axis];
  }
  if (layout.block == 1 && !layout.channels_last) return at;
  const int64_t last = at[stored.rank() - 1];
  const int64_t channel = layout.channels_last ? last : at[kChannels] * layout.block + last;
  if (channel >= tensor.shape[kChannels]) return std::nullopt;
  Shape result{at[0], channel};
  for (int axis = layout.channels_last ? 1 : 2; axis < stored.rank() - 1; ++axis)
    result.push_back(at[axis]);
  return result;
}

int64_t elements_in_memory(const TensorView& tensor) {
  return stored_shape(tensor.shape, tensor.type.format).numel();
}

bool may_be_padding(const TensorView& tensor) {
  return layout_of(tensor.type.format).block > 1 &&
         tensor.shape[kChannels] % layout_of(tensor.type.format).block != 0;
}

/// Collects elements that are visited in the order of the memory.
class Collector {
 public:
  Collector(const TensorView& tensor, int64_t least_run)
      : tensor_(tensor),
        has_padding_(may_be_padding(tensor)),
        per_word_(bits(tensor.type.dtype) < 8 ? 8 / bits(tensor.type.dtype) : 1),
        least_run_(least_run) {}

  /// `word`: index of a byte for 4-bit elements, else of an element.
  void add(int64_t word) {
    if (word != last_ + 1) run_ = 0;
    last_ = word;
    if (has_padding_ && !locate(tensor_, word * per_word_)) return;
    if (run_++ == 0) start_ = word;
    if (run_ < least_run_) return;
    if (found_.count == 0) found_.first = start_ * per_word_;
    found_.count += (run_ == least_run_ ? run_ : 1) * per_word_;
  }
  Found found() const { return found_; }

 private:
  const TensorView& tensor_;
  const bool has_padding_;
  const int64_t per_word_, least_run_;
  int64_t last_ = -2, run_ = 0, start_ = 0;
  Found found_;
};

template <class Word>
Word word_at(const std::byte* data, int64_t index) {
  Word word;
  std::memcpy(&word, data + index * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
  return word;
}

/// Visits the words of `bytes` bytes of memory that pass `test`, which gets a word and its index
/// within a pattern.
template <class Word, class Test>
Found collect(const TensorView& tensor, int64_t bytes, int64_t least_run, Test&& test) {
  Collector collector(tensor, least_run);
  constexpr int64_t kBlock = kPatternBytes / sizeof(Word);
  const int64_t count = bytes / static_cast<int64_t>(sizeof(Word));
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t end = std::min(kBlock, count - block);
    bool any = false;
    for (int64_t i = 0; i < end; ++i) any |= test(word_at<Word>(tensor.data, block + i), i);
    if (!any) continue;
    for (int64_t i = 0; i < end; ++i)
      if (test(word_at<Word>(tensor.data, block + i), i)) collector.add(block + i);
  }
  return collector.found();
}

int64_t bytes_in_memory(const TensorView& tensor) {
  return bytes_of(tensor.type.dtype, elements_in_memory(tensor));
}

template <class Word>
Found find_pattern(const TensorView& tensor, int64_t least_run) {
  const std::byte* pattern = pattern_of(tensor.type.dtype, Use::kWritten).data();
  return collect<Word>(tensor, bytes_in_memory(tensor), least_run,
                       [&](Word word, int64_t i) { return word == word_at<Word>(pattern, i); });
}

template <class Word>
std::vector<int64_t> words_of_pattern(const TensorView& tensor, const std::byte* part,
                                      int64_t begin, int64_t bytes, const std::byte* pattern) {
  constexpr int64_t kBlock = kPatternBytes / sizeof(Word);
  const int64_t first = begin / static_cast<int64_t>(sizeof(Word)),
                count = bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t per_word = bits(tensor.type.dtype) < 8 ? 8 / bits(tensor.type.dtype) : 1;
  const bool has_padding = may_be_padding(tensor);
  std::vector<int64_t> found;
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t end = std::min(kBlock, count - block);
    bool any = false;
    for (int64_t i = 0; i < end; ++i)
      any |= word_at<Word>(part, block + i) == word_at<Word>(pattern, i);
    for (int64_t i = 0; any && i < end; ++i) {
      if (word_at<Word>(part, block + i) != word_at<Word>(pattern, i)) continue;
      const int64_t element = (first + block + i) * per_word;
      if (!has_padding || locate(tensor, element)) found.push_back(element);
    }
  }
  return found;
}

/// Finds elements with all bits of `exponent` set.
template <class Word>
Found find_exponent(const TensorView& tensor, Word exponent) {
  return collect<Word>(tensor, bytes_in_memory(tensor), 1,
                       [&](Word word, int64_t) { return (word & exponent) == exponent; });
}

}  // namespace

Found find_unwritten(const TensorView& tensor) {
  switch (bits(tensor.type.dtype)) {
    case 64:
      return find_pattern<uint64_t>(tensor, 1);
    case 32:
      return find_pattern<uint32_t>(tensor, 1);
    case 16:
      return find_pattern<uint16_t>(tensor, 1);
    default:
      return find_pattern<uint8_t>(tensor, tensor.type.dtype == DataType::kBOOL ? 1 : kLeastRun);
  }
}

std::vector<int64_t> find_pattern(const TensorView& tensor, const std::byte* part, int64_t begin,
                                  int64_t bytes,
                                  std::span<const std::byte, kPatternBytes> pattern) {
  switch (bits(tensor.type.dtype)) {
    case 64:
      return words_of_pattern<uint64_t>(tensor, part, begin, bytes, pattern.data());
    case 32:
      return words_of_pattern<uint32_t>(tensor, part, begin, bytes, pattern.data());
    case 16:
      return words_of_pattern<uint16_t>(tensor, part, begin, bytes, pattern.data());
    default:
      return words_of_pattern<uint8_t>(tensor, part, begin, bytes, pattern.data());
  }
}

Found find_non_finite(const TensorView& tensor) {
  switch (tensor.type.dtype) {
    case DataType::kFLOAT:
      return find_exponent<uint32_t>(tensor, 0x7F800000);
    case DataType::kHALF:
      return find_exponent<uint16_t>(tensor, 0x7C00);
    case DataType::kBF16:
      return find_exponent<uint16_t>(tensor, 0x7F80);
    case DataType::kFP8:
      return find_exponent<uint8_t>(tensor, 0x7F);
    default:
      return {};
  }
}

Found find_different(const TensorView& tensor, const std::byte* other) {
  const int64_t bytes = bytes_in_memory(tensor);
  if (bytes == 0 || std::memcmp(tensor.data, other, static_cast<size_t>(bytes)) == 0) return {};
  Collector collector(tensor, 1);
  const int64_t width = std::max(1, bits(tensor.type.dtype) / 8);
  for (int64_t at = 0; at < bytes; at += width)
    if (std::memcmp(tensor.data + at, other + at, static_cast<size_t>(width)) != 0)
      collector.add(at / width);
  return collector.found();
}

std::string position(const TensorView& tensor, int64_t element) {
  const std::optional<Shape> at = locate(tensor, element);
  std::string text;
  for (const int64_t index : at.value_or(Shape()))
    text += (text.empty() ? "" : ", ") + std::to_string(index);
  return "[" + text + "]";
}

std::string value_at(const std::byte* data, DataType type, int64_t element) {
  const std::byte* at = data + (element * bits(type) >> 3);
  if (bits(type) < 8) {
    const int byte = std::to_integer<int>(*at);
    const int nibble = element % 2 == 0 ? byte & 15 : byte >> 4;
    return type == DataType::kINT4 ? str(nibble > 7 ? nibble - 16 : nibble)
                                   : str("the bits of ", nibble);
  }
  if (is_integer(type)) {
    int64_t value = 0;
    convert(at, type, &value, DataType::kINT64, 1);
    return str(value);
  }
  if (is_floating(type)) {
    float value = 0;
    convert(at, type, &value, DataType::kFLOAT, 1);
    return str(value);
  }
  return str(std::to_integer<int>(*at));
}

}  // namespace opwright
