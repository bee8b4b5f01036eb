#pragma once

/// \file
/// Arguments that the methods of networks and layers pass to the library. The library has one
/// method for all of them, so a new kind of layer changes no virtual table.

#include <type_traits>

#include "types.h"

namespace opwright {

class ITensor;

namespace impl {

/// An argument for a new layer, or a property of a layer. `kind` names the member in use.
struct LayerValue {
  enum class Kind : int32_t {
    kNONE = 0,
    kINTEGER = 1,  ///< `integer`, also for a bool or an enumerator
    kREAL = 2,     ///< `real`
    kDIMS = 3,     ///< `dims`
    kREALS = 4,    ///< `count` elements of `reals`
    kWEIGHTS = 5,  ///< `weights`
    kTENSOR = 6,   ///< `tensor`
    kTENSORS = 7,  ///< `count` elements of `tensors`
    kTEXT = 8,     ///< `text`
  };

  LayerValue() = default;
  template <class T, typename std::enable_if<std::is_integral<T>::value || std::is_enum<T>::value,
                                             int>::type = 0>
  LayerValue(T value) : kind(Kind::kINTEGER), integer(static_cast<int64_t>(value)) {}
  LayerValue(double value) : kind(Kind::kREAL), real(value) {}
  LayerValue(Dims const& value) : kind(Kind::kDIMS), dims(value) {}
  LayerValue(Permutation const& value) : kind(Kind::kDIMS) {
    dims.nbDims = Dims::MAX_DIMS;
    for (int32_t i = 0; i < Dims::MAX_DIMS; ++i) dims.d[i] = value.order[i];
  }
  LayerValue(float const* values, int32_t number)
      : kind(Kind::kREALS), reals(values), count(number) {}
  LayerValue(Weights const& value) : kind(Kind::kWEIGHTS), weights(value) {}
  LayerValue(char const* value) : kind(Kind::kTEXT), text(value) {}
  LayerValue(ITensor& value) : kind(Kind::kTENSOR), tensor(&value) {}
  LayerValue(ITensor* const* list, int32_t number)
      : kind(Kind::kTENSORS), tensors(list), count(number) {}

  /// Without a value: 0, no dimensions (-1), no weights, the identity.
  template <class T>
  T as() const {
    return get(static_cast<T*>(nullptr));
  }

  Kind kind = Kind::kNONE;
  int64_t integer = 0;
  double real = 0;
  Dims dims{-1, {}};
  Weights weights{DataType::kFLOAT, nullptr, 0};
  float const* reals = nullptr;
  char const* text = nullptr;
  ITensor* tensor = nullptr;
  ITensor* const* tensors = nullptr;
  int32_t count = 0;

 private:
  template <class T>
  T get(T*) const {
    return static_cast<T>(integer);
  }
  float get(float*) const { return static_cast<float>(real); }
  double get(double*) const { return real; }
  char const* get(char const**) const { return text == nullptr ? "" : text; }
  Dims get(Dims*) const { return dims; }
  Weights get(Weights*) const { return weights; }
  Permutation get(Permutation*) const {
    Permutation order{};
    for (int32_t i = 0; i < Dims::MAX_DIMS; ++i)
      order.order[i] = i < dims.nbDims ? static_cast<int32_t>(dims.d[i]) : i;
    return order;
  }
};

}  // namespace impl
}  // namespace opwright
