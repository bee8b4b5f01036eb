#include "tensorrt/abi/numbers.h"

#include <span>

namespace opwright::tensorrt {
namespace {

constexpr int32_t kNone = -1;

/// Opwright's numbers in the order of a version's; empty where the two are the same.
template <Renumbered T>
std::span<const int32_t> numbers(int major);

template <>
std::span<const int32_t> numbers<BuilderFlag>(int major) {
  // TensorRT 11 has closed the gap that an older flag had left at 12.
  static constexpr int32_t kEleven[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 13, 14,
                                        15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28};
  if (major == 11) return kEleven;
  return {};
}

template <>
std::span<const int32_t> numbers<PreviewFeature>(int major) {
  // Only TensorRT 10 has the first and the last feature.
  static constexpr int32_t kTen[] = {kNone, 0, 1, kNone};
  if (major == 10) return kTen;
  return {};
}

template <>
std::span<const int32_t> numbers<NetworkDefinitionCreationFlag>(int major) {
  static constexpr int32_t kTen[] = {0, 1, 3, 2};
  static constexpr int32_t kEleven[] = {1, 3, 2};
  if (major == 10) return kTen;
  return kEleven;
}

template <>
std::span<const int32_t> numbers<TacticSource>(int major) {
  static constexpr int32_t kEleven[] = {3, 4};
  if (major == 11) return kEleven;
  return {};
}

}  // namespace

template <Renumbered T>
int32_t own_number(int32_t theirs, int major) {
  const std::span<const int32_t> list = numbers<T>(major);
  if (list.empty()) return theirs;
  return theirs < 0 || theirs >= static_cast<int32_t>(list.size()) ? kNone : list[theirs];
}

template <Renumbered T>
int32_t their_number(int32_t ours, int major) {
  const std::span<const int32_t> list = numbers<T>(major);
  if (list.empty()) return ours;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i] == ours) return static_cast<int32_t>(i);
  return kNone;
}

template int32_t own_number<BuilderFlag>(int32_t, int);
template int32_t own_number<PreviewFeature>(int32_t, int);
template int32_t own_number<NetworkDefinitionCreationFlag>(int32_t, int);
template int32_t own_number<TacticSource>(int32_t, int);
template int32_t their_number<BuilderFlag>(int32_t, int);
template int32_t their_number<PreviewFeature>(int32_t, int);
template int32_t their_number<NetworkDefinitionCreationFlag>(int32_t, int);
template int32_t their_number<TacticSource>(int32_t, int);

}  // namespace opwright::tensorrt
