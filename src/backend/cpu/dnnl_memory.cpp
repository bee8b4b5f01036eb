#include "backend/cpu/dnnl_memory.h"

#include <charconv>
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"

namespace opwright {
namespace {

/// A blocked layout, read from its text.
struct Layout {
  dnnl::memory::data_type type = dnnl::memory::data_type::undef;
  dnnl::memory::dims extents, padded, strides, block_sizes, block_axes;
};

std::string join(const dnnl::memory::dims& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + std::to_string(values[i]);
  return text;
}

[[noreturn]] void malformed(std::string_view layout) {
  fail_with(ErrorCode::kINVALID_ARGUMENT, "The layout of packed weights '", layout,
            "' is not one that this library wrote; build the engine again.");
}

/// Takes the part before the next ':' off the text and returns it as numbers.
dnnl::memory::dims take_numbers(std::string_view& rest, std::string_view whole) {
  std::string_view part = rest.substr(0, rest.find(':'));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  dnnl::memory::dims numbers;
  while (!part.empty()) {
    const std::string_view digits = part.substr(0, part.find(','));
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 0)
      malformed(whole);
    numbers.push_back(number);
    part.remove_prefix(std::min(part.size(), digits.size() + 1));
  }
  return numbers;
}

Layout parse_layout(std::string_view text) {
  std::string_view rest = text;
  Layout layout;
  const dnnl::memory::dims type = take_numbers(rest, text);
  layout.extents = take_numbers(rest, text);
  layout.padded = take_numbers(rest, text);
  layout.strides = take_numbers(rest, text);
  layout.block_sizes = take_numbers(rest, text);
  layout.block_axes = take_numbers(rest, text);
  const size_t rank = layout.extents.size();
  bool valid = rest.empty() && type.size() == 1 && layout.padded.size() == rank &&
               layout.strides.size() == rank &&
               layout.block_axes.size() == layout.block_sizes.size();
  if (!valid) malformed(text);
  for (const int64_t size : layout.block_sizes) valid &= size > 0;
  for (const int64_t axis : layout.block_axes) valid &= axis < static_cast<int64_t>(rank);
  // Weights are packed only in these types.
  valid &= type[0] == static_cast<int>(dnnl::memory::data_type::f32) ||
           type[0] == static_cast<int>(dnnl::memory::data_type::f16) ||
           type[0] == static_cast<int>(dnnl::memory::data_type::bf16) ||
           type[0] == static_cast<int>(dnnl::memory::data_type::s8);
  if (!valid) malformed(text);
  layout.type = static_cast<dnnl::memory::data_type>(type[0]);
  return layout;
}

/// The index of the element at `position` in a tensor of that layout; false when it overflows.
bool element_index(const Layout& layout, dnnl::memory::dims position, int64_t& index) {
  int64_t inner_stride = 1;
  index = 0;
  bool overflow = false;
  for (size_t i = layout.block_sizes.size(); i-- > 0;) {
    int64_t& at = position[layout.block_axes[i]];
    int64_t step = 0;
    overflow |= __builtin_mul_overflow(at % layout.block_sizes[i], inner_stride, &step);
    overflow |= __builtin_add_overflow(index, step, &index);
    at /= layout.block_sizes[i];
    overflow |= __builtin_mul_overflow(inner_stride, layout.block_sizes[i], &inner_stride);
  }
  for (size_t axis = 0; axis < position.size(); ++axis) {
    int64_t step = 0;
    overflow |= __builtin_mul_overflow(position[axis], layout.strides[axis], &step);
    overflow |= __builtin_add_overflow(index, step, &index);
  }
  return !overflow;
}

/// The format tag of a tensor whose channels are in blocks.
dnnl::memory::format_tag blocked_tag(int rank, int block) {
  using Tag = dnnl::memory::format_tag;
  constexpr Tag kTags[3][3] = {{Tag::aBc4b, Tag::aBc16b, Tag::aBc32b},
                               {Tag::aBcd4b, Tag::aBcd16b, Tag::aBcd32b},
                               {Tag::aBcde4b, Tag::aBcde16b, Tag::aBcde32b}};
  const int column = block == 4 ? 0 : block == 16 ? 1 : block == 32 ? 2 : -1;
  if (column < 0 || rank < 3 || rank > 5)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "oneDNN has no layout with blocks of ", block,
              " channels for rank ", rank, ".");
  return kTags[rank - 3][column];
}

}  // namespace

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type dnnl_type(DataType type) {
  using dnnl::memory;
  switch (type) {
    case DataType::kFLOAT:
      return memory::data_type::f32;
    case DataType::kHALF:
      return memory::data_type::f16;
    case DataType::kBF16:
      return memory::data_type::bf16;
    case DataType::kINT8:
      return memory::data_type::s8;
    case DataType::kUINT8:
      return memory::data_type::u8;
    case DataType::kINT32:
      return memory::data_type::s32;
    default:
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "oneDNN has no type ", name(type), ".");
  }
}

DataType from_dnnl(dnnl::memory::data_type type) {
  for (const DataType candidate : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16,
                                   DataType::kINT8, DataType::kUINT8, DataType::kINT32})
    if (dnnl_type(candidate) == type) return candidate;
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "oneDNN's type ", static_cast<int>(type),
            " has no counterpart.");
}

dnnl::memory::dims dnnl_dims(const Shape& shape) {
  return dnnl_dims(dnnl::memory::dims(shape.begin(), shape.end()));
}

dnnl::memory::dims dnnl_dims(dnnl::memory::dims extents) {
  for (const int64_t extent : extents)
    if (!fits_dnnl(extent))
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "oneDNN counts extents with 31 bits, but one of (",
                join(extents), ") has more.");
  return extents;
}

dnnl::memory::desc dense_desc(const dnnl::memory::dims& extents, dnnl::memory::data_type type) {
  dnnl::memory::dims strides(extents.size(), 1);
  for (size_t axis = extents.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * extents[axis];
  return {extents, type, strides};
}

bool fits_dnnl(int64_t extent) { return extent >= 0 && extent <= INT32_MAX; }

void require_dnnl_windows(std::span<const DnnlWindow> windows) {
  // Limits that are far below the overflow of oneDNN's 32-bit offsets within a row. oneDNN
  // generates code for each tap, so windows with more taps take seconds.
  constexpr int64_t kMostReach = int64_t{1} << 24, kMostTaps = int64_t{1} << 16;
  const auto in_range = [](int64_t value) { return value >= -kMostReach && value <= kMostReach; };
  int64_t taps = 1;
  for (const DnnlWindow& w : windows) {
    bool valid = true;
    for (const int64_t value : {w.input, w.output, w.window, w.stride, w.dilation, w.pre, w.post})
      valid &= in_range(value);
    // Products of 24-bit numbers do not overflow.
    valid = valid && in_range(w.dilation * w.window) && in_range(w.output * w.stride) &&
            in_range(w.input + w.pre + w.post) && (taps *= w.window) <= kMostTaps;
    if (!valid)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "On the CPU windows reach over at most 2^24 ",
                "elements and have 2^16, but this one has ", w.window, " along an axis, stride ",
                w.stride, ", dilation ", w.dilation, ", padding ", w.pre, " and ", w.post,
                ", and goes from an extent of ", w.input, " to ", w.output, ".");
  }
}

dnnl::memory::desc dnnl_desc(const Shape& shape, DataType type, TensorFormat format) {
  const dnnl::memory::dims extents = dnnl_dims(shape);
  const FormatLayout layout = layout_of(format);
  const int rank = shape.rank();
  if (layout.block == 1) {
    dnnl::memory::dims strides(rank);
    int64_t stride = 1;
    if (layout.channels_last) strides[1] = 1, stride = shape[1];
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (layout.channels_last && axis == 1) continue;
      strides[axis] = stride;
      stride *= shape[axis];
    }
    return {extents, dnnl_type(type), strides};
  }
  return {extents, dnnl_type(type), blocked_tag(rank, layout.channels_last ? 0 : layout.block)};
}

bool has_port_layout(const dnnl::memory::desc& desc) {
  const int blocks = desc.get_inner_nblks(), rank = desc.get_ndims();
  if (blocks != 1) return blocks == 0;
  const int64_t block = desc.get_inner_blks()[0];
  return desc.get_inner_idxs()[0] == 1 && rank >= 3 && rank <= 5 &&
         (block == 4 || block == 16 || block == 32);
}

dnnl::memory::desc with_type(const dnnl::memory::desc& desc, dnnl::memory::data_type type) {
  if (desc.get_inner_nblks() == 0) return {desc.get_dims(), type, desc.get_strides()};
  const int block = desc.get_inner_nblks() == 1 && desc.get_inner_idxs()[0] == 1
                        ? static_cast<int>(desc.get_inner_blks()[0])
                        : 0;
  return {desc.get_dims(), type, blocked_tag(desc.get_ndims(), block)};
}

dnnl::memory::desc dnnl_any(const Shape& shape, DataType type) {
  return {dnnl_dims(shape), dnnl_type(type), dnnl::memory::format_tag::any};
}

std::string layout_text(const dnnl::memory::desc& desc) {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  const bool blocked = desc.get_inner_nblks() > 0;
  return std::to_string(static_cast<int>(desc.get_data_type())) + ":" + join(desc.get_dims()) +
         ":" + join(desc.get_padded_dims()) + ":" + join(desc.get_strides()) + ":" +
         (blocked ? join(desc.get_inner_blks()) : "") + ":" +
         (blocked ? join(desc.get_inner_idxs()) : "");
}

void unpack_layout(std::string_view text, const dnnl::memory::dims& extents, const void* packed,
                   size_t size, void* row_major) {
  const Layout layout = parse_layout(text);
  const size_t element = dnnl::memory::data_type_size(layout.type);
  if (layout.extents != extents) malformed(text);
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  dnnl::memory::dims position(extents.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = 0;
    if (!element_index(layout, position, index) || static_cast<size_t>(index) >= size / element)
      malformed(text);
    std::memcpy(static_cast<std::byte*>(row_major) + i * element,
                static_cast<const std::byte*>(packed) + index * element, element);
    for (size_t axis = extents.size(); axis-- > 0;) {
      if (++position[axis] < extents[axis]) break;
      position[axis] = 0;
    }
  }
}

void require_packed_layout(std::string_view text, size_t size) {
  const Layout layout = parse_layout(text);
  const size_t element = dnnl::memory::data_type_size(layout.type);
  bool fits = true;
  size_t count = 1;
  for (const int64_t extent : layout.padded)
    fits &= !__builtin_mul_overflow(count, static_cast<size_t>(extent), &count);
  if (!fits || count > size / element) malformed(text);
}

dnnl::memory::data_type packed_type(std::string_view layout) { return parse_layout(layout).type; }

bool is_reference(std::string_view implementation) {
  return implementation.find("ref") != std::string_view::npos ||
         implementation.find("simple") != std::string_view::npos;
}

DataType compute_type(DataType type) {
  const CpuFeatures& features = cpu_device().features();
  if (type == DataType::kBF16 && !features.bf16) return DataType::kFLOAT;
  if (type == DataType::kHALF && !features.fp16) return DataType::kFLOAT;
  return type;
}

std::vector<DataType> offered_types(const CandidateQuery& query, DataType type) {
  std::vector<DataType> types = {type};
  if (query.strongly_typed) return types;
  const CpuFeatures& features = cpu_device().features();
  const auto offer = [&](DataType other) {
    if (other != type) types.push_back(other);
  };
  if (query.bf16 && features.bf16) offer(DataType::kBF16);
  if (query.fp16 && features.fp16) offer(DataType::kHALF);
  offer(DataType::kFLOAT);
  return types;
}

}  // namespace opwright
