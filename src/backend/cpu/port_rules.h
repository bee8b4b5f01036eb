#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "network/operator.h"

/// \file
/// What KernelEntry::check is made of. The tables of types and formats are those that the
/// candidates come from, so that a plan can hold what was listed and nothing else.
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

/// What oneDNN computes with.
inline constexpr Types kDnnlFloats = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16};
inline constexpr Types kFloats = kDnnlFloats | Types{DataType::kFP8};
inline constexpr Types kIndexTypes = {DataType::kINT32, DataType::kINT64};
inline constexpr Types kBytes = {DataType::kINT8, DataType::kUINT8};
inline constexpr Types kIntegers = kIndexTypes | Types{DataType::kINT8, DataType::kUINT8};
/// What find_cast() and convert() know.
inline constexpr Types kConvertible = kFloats | kIntegers | Types{DataType::kBOOL};
/// What can be copied element by element.
inline constexpr Types kWholeBytes = kConvertible | Types{DataType::kE8M0};

inline constexpr Formats kLinear = {TensorFormat::kLINEAR};
/// LINEAR and all that CpuDevice::formats() gives, on this processor or another.
inline constexpr Formats kImageFormats = {TensorFormat::kLINEAR, TensorFormat::kHWC,
                                          TensorFormat::kCHW16};

/// The ports of a step that comes from a file. Errors name the layer, the port, what was expected
/// and what came.
class PortRules {
 public:
  struct Port {
    const PortDesc& desc;
    bool is_output;
    size_t index;
  };

  PortRules(const Operator& op, const KernelArgs& args) : op_(op), args_(args) {}

  /// What holds for every operator: that many ports as the candidate has and of its types,
  /// countable shapes, constants whose bytes are there or packed as the kernel does it.
  /// `packed_input`, `other_packed_input`: those that the kernel can pack, or -1.
  void require_sound(int packed_input, int other_packed_input = -1) const;
  /// Between `least` and `most` inputs, the first `least` of them and all outputs present.
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
  /// The type and the format of the other one.
  void require_same(const Port& port, const Port& other) const;
  /// No padding of channels anywhere in the profile.
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
