#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "network/operator.h"

/// \file
/// The parts of KernelEntry::check. Candidates and checks use the same tables of types and formats,
/// so a plan can hold what was listed and nothing else.
namespace opwright {

/// A set of types or formats.
template <class E>
class EnumSet {
 public:
  constexpr EnumSet(std::initializer_list<E> values) {
    for (const E value : values) bits_ |= uint32_t{1} << static_cast<uint32_t>(value);
  }
  constexpr bool has(E value) const {
    const auto bit = static_cast<uint32_t>(value);
    return bit < 32 && (bits_ >> bit & 1) != 0;
  }
  constexpr EnumSet operator|(EnumSet other) const {
    other.bits_ |= bits_;
    return other;
  }
  /// "FP32, FP16 or BF16".
  std::string str() const;

 private:
  uint32_t bits_ = 0;
};
using Types = EnumSet<DataType>;
using Formats = EnumSet<TensorFormat>;

/// Types in which oneDNN computes.
inline constexpr Types kDnnlFloats = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16};
inline constexpr Types kFloats = kDnnlFloats | Types{DataType::kFP8};
inline constexpr Types kIndexTypes = {DataType::kINT32, DataType::kINT64};
inline constexpr Types kBytes = {DataType::kINT8, DataType::kUINT8};
inline constexpr Types kIntegers = kIndexTypes | Types{DataType::kINT8, DataType::kUINT8};
/// Types that find_cast() and convert() know.
inline constexpr Types kConvertible = kFloats | kIntegers | Types{DataType::kBOOL};
/// Types that are copied element by element.
inline constexpr Types kWholeBytes = kConvertible | Types{DataType::kE8M0};

inline constexpr Formats kLinear = {TensorFormat::kLINEAR};
/// LINEAR and all formats that CpuDevice::formats() returns, on any processor.
inline constexpr Formats kImageFormats = {TensorFormat::kLINEAR, TensorFormat::kHWC,
                                          TensorFormat::kCHW16};

/// Checks of the ports of a step that comes from a file. Errors name the layer, the port, the
/// expected and the found value.
class PortRules {
 public:
  struct Port {
    const PortDesc& desc;
    bool is_output;
    size_t index;
  };

  PortRules(const Operator& op, const KernelArgs& args) : op_(op), args_(args) {}

  /// Checks the rules of every operator. Ports have the number and types of the candidate, and
  /// countable shapes. Constants have their bytes, or are packed as the kernel packs them.
  /// `packed_input`, `other_packed_input`: inputs that the kernel can pack, or -1.
  void require_sound(int packed_input, int other_packed_input = -1) const;
  /// Requires between `least` and `most` inputs; the first `least` of them and all outputs must be
  /// present.
  void require_ports(size_t least, size_t most, size_t outputs = 1) const;

  size_t inputs() const { return args_.inputs.size(); }
  size_t outputs() const { return args_.outputs.size(); }
  bool has_input(size_t i) const { return i < inputs() && args_.inputs[i].present; }
  Port input(size_t i) const { return {args_.inputs[i], false, i}; }
  Port output(size_t i) const { return {args_.outputs[i], true, i}; }

  void require_type(const Port& port, Types types) const;
  void require_format(const Port& port, Formats formats) const;
  void require(const Port& port, Types types, Formats formats = kLinear) const {
    require_type(port, types), require_format(port, formats);
  }
  /// Requires `port` to have the type and the format of `other`.
  void require_same(const Port& port, const Port& other) const;
  /// Requires that no shape in the profile has padding of channels.
  void require_filled(const Port& port) const;

  template <class... Parts>
  void require_that(bool condition, const Parts&... parts) const {
    if (!condition) [[unlikely]]
      fail(str(parts...));
  }
  std::string name_of(const Port& port) const;

 private:
  [[noreturn]] void fail(const std::string& problem) const;

  const Operator& op_;
  const KernelArgs& args_;
};

}  // namespace opwright
