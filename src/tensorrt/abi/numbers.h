#pragma once

#include <bit>
#include <cstdint>

#include "opwright/builder.h"

/// \file
/// Enumerators whose numbers differ between versions of TensorRT and Opwright, and sets of them.

namespace opwright::tensorrt {

/// Enumerations in which a version has other numbers than Opwright.
template <class T>
inline constexpr bool is_renumbered = false;
template <>
inline constexpr bool is_renumbered<BuilderFlag> = true;
template <>
inline constexpr bool is_renumbered<PreviewFeature> = true;
template <>
inline constexpr bool is_renumbered<NetworkDefinitionCreationFlag> = true;
template <>
inline constexpr bool is_renumbered<TacticSource> = true;

template <class T>
concept Renumbered = is_renumbered<T>;

/// The number in Opwright of the enumerator that has a number in a version; -1 for none.
template <Renumbered T>
int32_t own_number(int32_t theirs, int major);
/// The other way.
template <Renumbered T>
int32_t their_number(int32_t ours, int major);

/// A set of enumerators in Opwright's numbers: bit `1U << number` for each.
template <Renumbered T>
struct Mask {
  uint32_t bits;
};

/// The set of the numbers that `number` gives for those of a set, without -1.
template <class F>
uint32_t mapped_bits(uint32_t bits, F&& number) {
  uint32_t mapped = 0;
  for (uint32_t left = bits; left != 0; left &= left - 1)
    if (const int32_t found = number(std::countr_zero(left)); found >= 0)
      mapped |= 1U << static_cast<uint32_t>(found);
  return mapped;
}
template <Renumbered T>
uint32_t own_bits(uint32_t theirs, int major) {
  return mapped_bits(theirs, [&](int32_t number) { return own_number<T>(number, major); });
}
template <Renumbered T>
uint32_t their_bits(uint32_t ours, int major) {
  return mapped_bits(ours, [&](int32_t number) { return their_number<T>(number, major); });
}

}  // namespace opwright::tensorrt
