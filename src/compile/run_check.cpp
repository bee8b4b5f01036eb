#include "compile/run_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>

#include "backend/guarded_memory.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr auto kGuard = static_cast<ptrdiff_t>(GuardedMemory::kGuardBytes);
constexpr auto kPeriod = static_cast<ptrdiff_t>(kPatternBytes);
// An area larger than kWhole is checked at its two ends and at kMiddles places between.
constexpr ptrdiff_t kWhole = ptrdiff_t{256} << 10;
constexpr ptrdiff_t kEnd = ptrdiff_t{64} << 10;
constexpr ptrdiff_t kMiddle = ptrdiff_t{32} << 10;
constexpr ptrdiff_t kMiddles = 4;
// An element that nothing computed matches a pattern of one byte by chance once in 256 times, so
// types without strange values need several patterns. No two of these have a byte in common.
constexpr std::array kFlips = {std::byte{0}, std::byte{0xFF}, std::byte{0x55}, std::byte{0xAA}};

/// Whether the pattern's elements are values that kernels do not compute.
bool has_strange_values(DataType type) { return bits(type) > 8 || type == DataType::kBOOL; }

size_t rounds(DataType type) { return has_strange_values(type) ? 2 : kFlips.size(); }

ptrdiff_t floor_to_period(ptrdiff_t byte) { return byte - byte % kPeriod; }

}  // namespace

void RunCheck::add_output(size_t output, std::string_view name, const TensorView& tensor,
                          bool is_written) {
  Area area;
  area.text = str("output ", output, " ('", name, "': ", str(tensor.type), " ", tensor.shape, ")");
  area.tensor = tensor;
  area.bytes =
      static_cast<ptrdiff_t>(tensor_bytes(tensor.shape, tensor.type.dtype, tensor.type.format));
  area.is_written = is_written;
  add(std::move(area));
}

void RunCheck::add_workspace(void* data, size_t bytes) {
  Area area;
  area.text = str("the workspace (", bytes, " bytes)");
  area.tensor = {static_cast<const std::byte*>(data), {DataType::kUINT8}, {}};
  area.bytes = static_cast<ptrdiff_t>(bytes);
  area.is_workspace = true;
  add(std::move(area));
}

void RunCheck::add(Area area) {
  const ptrdiff_t end = area.bytes + kGuard;
  if (!area.is_written) {
    area.parts = {{-kGuard, 0}, {area.bytes, end}};
  } else if (area.bytes <= kWhole) {
    area.parts = {{-kGuard, end}};
  } else {
    area.parts = {{-kGuard, kEnd}};
    const ptrdiff_t step = (area.bytes - 2 * kEnd) / kMiddles;
    for (ptrdiff_t i = 0; i < kMiddles; ++i) {
      const ptrdiff_t begin = floor_to_period(kEnd + i * step + step / 2);
      area.parts.emplace_back(begin, std::min(begin + kMiddle, area.bytes));
    }
    area.parts.emplace_back(floor_to_period(area.bytes - kEnd), end);
  }
  areas_.push_back(std::move(area));
}

std::span<const std::byte> RunCheck::pattern(const Area& area) const {
  const DataType type = area.tensor.type.dtype;
  if (has_strange_values(type))
    return pattern_of(type, fills_ % 2 == 1 ? Use::kWritten : Use::kRead);
  return pattern_;
}

void RunCheck::fill() {
  const std::byte flip = kFlips[static_cast<size_t>(fills_) % kFlips.size()];
  pattern_.clear();
  std::ranges::transform(pattern_of(DataType::kUINT8, Use::kWritten), std::back_inserter(pattern_),
                         [&](std::byte byte) { return byte ^ flip; });
  ++fills_;
  for (const Area& area : areas_) {
    const std::span<const std::byte> pattern = this->pattern(area);
    for (const auto& [begin, end] : area.parts) {
      std::byte* const to = const_cast<std::byte*>(area.tensor.data) + begin;
      if (!device_.is_host()) image_.resize(static_cast<size_t>(end - begin));
      std::byte* const image = device_.is_host() ? to : image_.data();
      for (ptrdiff_t at = begin; at < end;) {
        const ptrdiff_t phase = (at + kGuard) % kPeriod;
        const ptrdiff_t bytes = std::min(end - at, kPeriod - phase);
        std::memcpy(image + (at - begin), pattern.data() + phase, static_cast<size_t>(bytes));
        at += bytes;
      }
      if (!device_.is_host()) device_.copy(to, image, static_cast<size_t>(end - begin), nullptr);
    }
  }
  if (!device_.is_host()) device_.synchronize(nullptr);
}

bool RunCheck::look() {
  bool is_uncertain = false;
  for (Area& area : areas_) {
    const std::span<const std::byte, kPatternBytes> pattern(this->pattern(area));
    std::vector<int64_t> suspects;
    for (const auto& part : area.parts) {
      const auto& [begin, end] = part;
      const std::byte* memory = area.tensor.data + begin;
      if (!device_.is_host()) {
        image_.resize(static_cast<size_t>(end - begin));
        device_.copy(image_.data(), memory, image_.size(), nullptr);
        memory = image_.data();
      }
      check_guards(area, part, memory);
      const ptrdiff_t first = std::max<ptrdiff_t>(begin, 0), last = std::min(end, area.bytes);
      if (!area.is_written || first >= last) continue;
      const std::vector<int64_t> found =
          find_pattern(area.tensor, memory + (first - begin), first, last - first, pattern);
      suspects.insert(suspects.end(), found.begin(), found.end());
    }
    if (fills_ == 1) {
      area.suspects = std::move(suspects);
    } else {
      std::vector<int64_t> both;
      std::ranges::set_intersection(area.suspects, suspects, std::back_inserter(both));
      area.suspects = std::move(both);
    }
    if (area.suspects.empty()) continue;
    if (static_cast<size_t>(fills_) < rounds(area.tensor.type.dtype)) {
      is_uncertain = true;
    } else if (may_leave_elements_) {
      left_elements_ = describe_unwritten(area), area.is_written = false;
    } else {
      throw CandidateFault(
          str(describe_unwritten(area),
              is_plugin_ ? "; write every element, and read none before that" : ""));
    }
  }
  return is_uncertain;
}

void RunCheck::check_guards(const Area& area, std::pair<ptrdiff_t, ptrdiff_t> part,
                            const std::byte* memory) const {
  const std::span<const std::byte> pattern = this->pattern(area);
  const ptrdiff_t begin = part.first, end = part.second;
  const DataType type = area.tensor.type.dtype;
  const ptrdiff_t unit = area.is_workspace ? 1 : std::max(1, bits(type) / 8);
  // Checks from one byte to another of the part.
  const auto check = [&](ptrdiff_t from, ptrdiff_t to) {
    const auto is_untouched = [&](ptrdiff_t at, ptrdiff_t bytes) {
      const ptrdiff_t phase = (at + kGuard) % kPeriod;
      const ptrdiff_t now = std::min(bytes, kPeriod - phase);
      return std::memcmp(memory + (at - begin), pattern.data() + phase, static_cast<size_t>(now)) ==
                 0 &&
             std::memcmp(memory + (at - begin) + now, pattern.data(),
                         static_cast<size_t>(bytes - now)) == 0;
    };
    if (from >= to || is_untouched(from, to - from)) return;
    std::optional<ptrdiff_t> first;
    ptrdiff_t count = 0;
    for (ptrdiff_t at = from; at < to; at += unit) {
      if (is_untouched(at, std::min(unit, to - at))) continue;
      if (!first) first = at;
      count += unit;
    }
    const char* where = from < 0 ? " bytes before the start of " : " bytes behind the end of ";
    if (area.is_workspace)
      throw CandidateFault(
          str(who_, "wrote ", count, where, area.text, ", from byte ", *first, " on",
              is_plugin_ ? "; let getWorkspaceSize() return as much as is used" : ""));
    const ptrdiff_t first_bit = 8 * *first;
    const int64_t element = first_bit / bits(type) - (first_bit % bits(type) < 0 ? 1 : 0);
    throw CandidateFault(
        str(who_, "wrote ", count, where, area.text, ", from element ", element, " on, where ",
            value_at(memory - begin, type, element), " stands now",
            is_plugin_ ? "; the bounds of the plugin's loops do not fit this shape" : ""));
  };
  check(begin, std::min<ptrdiff_t>(end, 0));
  check(std::max(begin, area.bytes), end);
}

std::string RunCheck::describe_unwritten(const Area& area) const {
  const TensorView& tensor = area.tensor;
  ptrdiff_t looked_at = 0;
  for (const auto& [begin, end] : area.parts)
    looked_at += std::min(end, area.bytes) - std::max<ptrdiff_t>(begin, 0);
  const int64_t all = tensor.shape.numel();
  const int64_t per_word = bits(tensor.type.dtype) < 8 ? 8 / bits(tensor.type.dtype) : 1;
  const int64_t count = std::min(static_cast<int64_t>(area.suspects.size()) * per_word, all);
  const std::string of =
      looked_at == area.bytes
          ? str(all, " elements")
          : str("the ", 8 * looked_at / bits(tensor.type.dtype), " elements that were looked at");
  return str(who_, "did not write ", count, " of ", of, " of ", area.text, ", the first at ",
             position(tensor, area.suspects.front()));
}

}  // namespace opwright
