#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "backend/cpu/kernels.h"
#include "base/error.h"
#include "base/half.h"
#include "base/types.h"

namespace opwright {

// Access to single elements, for kernels that mostly find elements and compute little. Each type
// has its storage and the type that is computed in.

template <class T>
struct PlainElement {
  using Storage = T;
  using Value = T;
  static Value load(Storage stored) { return stored; }
  static Storage store(Value value) { return value; }
};
template <class StorageType, float (*to_float)(StorageType), StorageType (*from_float)(float)>
struct NarrowElement {
  using Storage = StorageType;
  using Value = float;
  static Value load(Storage stored) { return to_float(stored); }
  static Storage store(Value value) { return from_float(value); }
};
using FloatElement = PlainElement<float>;
using HalfElement = NarrowElement<uint16_t, half_to_float, float_to_half>;
using Bfloat16Element = NarrowElement<uint16_t, bfloat16_to_float, float_to_bfloat16>;
using Fp8Element = NarrowElement<uint8_t, fp8_to_float, float_to_fp8>;
/// Elements of BOOL are 0 or 1.
struct BoolElement : PlainElement<uint8_t> {};

/// Element `i` of a tensor.
template <class Element>
typename Element::Value load_element(const void* data, int64_t i) {
  return Element::load(static_cast<const typename Element::Storage*>(data)[i]);
}
template <class Element>
void store_element(void* data, int64_t i, typename Element::Value value) {
  static_cast<typename Element::Storage*>(data)[i] = Element::store(value);
}

/// Calls `body.operator()<Element>()` for a floating type.
template <class Body>
auto with_floating_element(DataType type, Body&& body) {
  switch (type) {
    case DataType::kHALF:
      return body.template operator()<HalfElement>();
    case DataType::kBF16:
      return body.template operator()<Bfloat16Element>();
    case DataType::kFP8:
      return body.template operator()<Fp8Element>();
    default:
      return body.template operator()<FloatElement>();
  }
}

/// Calls `body.operator()<Element>()` for any type whose elements are whole bytes.
template <class Body>
auto with_element(DataType type, Body&& body) {
  switch (type) {
    case DataType::kINT8:
      return body.template operator()<PlainElement<int8_t>>();
    case DataType::kUINT8:
      return body.template operator()<PlainElement<uint8_t>>();
    case DataType::kINT32:
      return body.template operator()<PlainElement<int32_t>>();
    case DataType::kINT64:
      return body.template operator()<PlainElement<int64_t>>();
    case DataType::kBOOL:
      return body.template operator()<BoolElement>();
    default:
      return with_floating_element(type, body);
  }
}

/// KernelEntry::make of a kernel template over the element type of the first input, see
/// make_kernel().
template <template <class> class KernelType, class Op>
std::unique_ptr<Kernel> make_element_kernel(const Operator& op, const KernelArgs& args) {
  return with_element(args.inputs[0].type.dtype,
                      [&]<class E>() { return make_kernel<KernelType<E>, Op>(op, args); });
}
/// As make_element_kernel(), for floating types.
template <template <class> class KernelType, class Op>
std::unique_ptr<Kernel> make_floating_kernel(const Operator& op, const KernelArgs& args) {
  return with_floating_element(args.inputs[0].type.dtype,
                               [&]<class E>() { return make_kernel<KernelType<E>, Op>(op, args); });
}

}  // namespace opwright
