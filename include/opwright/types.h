#pragma once

/// \file
/// Data types, dimensions, tensor formats and the other plain values of the public API.
///
/// The public headers need C++14 and no CUDA header. They include each other by bare name, so both
/// `#include "opwright/types.h"` and an include path that ends in `include/opwright` work.

#include <cstddef>
#include <cstdint>

#include "version.h"

#if defined(__GNUC__) || defined(__clang__)
#define OPWRIGHT_API __attribute__((visibility("default")))
#else
#define OPWRIGHT_API
#endif

// Spellings that sources written for TensorRT use. Opwright supports the older plugin interfaces as
// fully as the newer ones, so it marks nothing as deprecated. It does not warn of unused results
// either.
#define TENSORRTAPI OPWRIGHT_API
#define TRT_DEPRECATED
#define TRT_DEPRECATED_BECAUSE(REASON)
#define TRT_DEPRECATED_ENUM
#define TRT_NODISCARD
#define TRT_NODISCARD_BECAUSE(REASON)
#define TRT_DEPRECATED_API OPWRIGHT_API
#define TRTNOEXCEPT

// The same declarations as in CUDA's, cuBLAS's and cuDNN's headers, which may also be included.
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
extern "C" {
struct cublasContext;
struct cudnnContext;
}

namespace opwright {

using char_t = char;
/// The characters of names, versions and messages.
using AsciiChar = char_t;

namespace impl {
template <typename T>
struct EnumMaxImpl;
}  // namespace impl

/// The number of enumerators of `T`.
template <typename T>
constexpr int32_t EnumMax() noexcept {
  return impl::EnumMaxImpl<T>::kVALUE;
}

/// The type of a tensor's or a weight's elements.
enum class DataType : int32_t {
  kFLOAT = 0,  ///< IEEE binary32.
  kHALF = 1,   ///< IEEE binary16.
  kINT8 = 2,   ///< Signed byte; a quantized value where the tensor has a scale.
  kINT32 = 3,  ///< Signed 32-bit integer.
  kBOOL = 4,   ///< One byte, 0 or 1.
  kUINT8 = 5,  ///< Unsigned byte.
  kFP8 = 6,    ///< 8-bit float: sign, 4 exponent bits, 3 mantissa bits, no infinity (E4M3FN).
  kBF16 = 7,   ///< The upper half of binary32.
  kINT64 = 8,  ///< Signed 64-bit integer.
  kINT4 = 9,   ///< Signed 4-bit integer, two to a byte, the first in the low bits.
  kFP4 = 10,   ///< 4-bit float: sign, 2 exponent bits, 1 mantissa bit; two to a byte (E2M1).
  kE8M0 = 11,  ///< 8-bit power of two, used as a block scale.
};

/// The extents of a tensor. `nbDims == -1` means that the rank is unknown or that a request failed.
/// An extent of -1 is not known yet. Only the first `nbDims` entries of `d` have a meaning.
class Dims64 {
 public:
  /// The highest rank that a tensor may have.
  static constexpr int32_t MAX_DIMS{8};
  int32_t nbDims;
  int64_t d[MAX_DIMS];
};
using Dims = Dims64;

/// Two extents.
class Dims2 : public Dims {
 public:
  Dims2() noexcept : Dims2(0, 0) {}
  Dims2(int64_t d0, int64_t d1) noexcept : Dims{2, {d0, d1}} {}
};

/// Height and width.
class DimsHW : public Dims2 {
 public:
  DimsHW() noexcept = default;
  DimsHW(int64_t height, int64_t width) noexcept : Dims2(height, width) {}
  int64_t& h() noexcept { return d[0]; }
  int64_t h() const noexcept { return d[0]; }
  int64_t& w() noexcept { return d[1]; }
  int64_t w() const noexcept { return d[1]; }
};

/// Three extents.
class Dims3 : public Dims2 {
 public:
  Dims3() noexcept : Dims3(0, 0, 0) {}
  Dims3(int64_t d0, int64_t d1, int64_t d2) noexcept : Dims2(d0, d1) {
    nbDims = 3;
    d[2] = d2;
  }
};

/// Four extents.
class Dims4 : public Dims3 {
 public:
  Dims4() noexcept : Dims4(0, 0, 0, 0) {}
  Dims4(int64_t d0, int64_t d1, int64_t d2, int64_t d3) noexcept : Dims3(d0, d1, d2) {
    nbDims = 4;
    d[3] = d3;
  }
};

/// A reordering of dimensions: output dimension i is input dimension `order[i]`.
struct Permutation {
  int32_t order[Dims::MAX_DIMS];
};

/// Constant values, borrowed from the caller until the network that uses them is built.
class Weights {
 public:
  DataType type;       ///< Type of each value.
  void const* values;  ///< `count` values one after the other, or null.
  int64_t count;       ///< Number of values, not of bytes.
};

/// How a tensor's elements lie in memory.
///
/// kLINEAR is C order. In the formats with a number V, the channels (the third dimension from the
/// end; the fourth in formats that name D) are grouped by V and the last group is padded:
/// kCHWV stores [..][ceil(C/V)][H][W][V], kHWCV stores [..][H][W][ceil(C/V)*V].
enum class TensorFormat : int32_t {
  kLINEAR = 0,
  kCHW2 = 1,
  kHWC8 = 2,
  kCHW4 = 3,
  kCHW16 = 4,
  kCHW32 = 5,
  kDHWC8 = 6,
  kCDHW32 = 7,
  kHWC = 8,         ///< Channels last, not padded.
  kDLA_LINEAR = 9,  ///< For NVIDIA's DLA, which Opwright does not drive.
  kDLA_HWC4 = 10,   ///< For NVIDIA's DLA, which Opwright does not drive.
  kHWC16 = 11,
  kDHWC = 12,  ///< Channels last in a volume, not padded.
};
using PluginFormat = TensorFormat;
/// A set of formats: bit `1U << int(format)` for each.
using TensorFormats = uint32_t;

/// The type of device on which a network runs.
enum class DeviceType : int32_t {
  kGPU = 0,
  kDLA = 1,  ///< Named for compatibility; no backend.
  kCPU = 2,  ///< Beyond TensorRT: the host.
};

/// Whether a tensor's data is on the device or on the host. On the CPU both are host memory.
enum class TensorLocation : int32_t {
  kDEVICE = 0,
  kHOST = 1,
};

/// The role of a named tensor in an engine.
enum class TensorIOMode : int32_t {
  kNONE = 0,  ///< Not an input or output.
  kINPUT = 1,
  kOUTPUT = 2,
};

/// One of the three shapes of an optimization profile.
enum class OptProfileSelector : int32_t {
  kMIN = 0,
  kOPT = 1,
  kMAX = 2,
};

/// How much an engine keeps about its layers.
enum class ProfilingVerbosity : int32_t {
  kLAYER_NAMES_ONLY = 0,
  kNONE = 1,
  kDETAILED = 2,
};

/// The set of features for which an engine is built. Opwright builds kSTANDARD.
enum class EngineCapability : int32_t {
  kSTANDARD = 0,
  kSAFETY = 1,
  kDLA_STANDALONE = 2,
};

/// The kind of an error, as the error recorder receives it.
enum class ErrorCode : int32_t {
  kSUCCESS = 0,
  kUNSPECIFIED_ERROR = 1,
  kINTERNAL_ERROR = 2,         ///< A bug in the library.
  kINVALID_ARGUMENT = 3,       ///< An argument is wrong whatever the others are.
  kINVALID_CONFIG = 4,         ///< Arguments do not fit each other.
  kFAILED_ALLOCATION = 5,      ///< No memory on the host or the device.
  kFAILED_INITIALIZATION = 6,  ///< Something the library needs is missing or does not work.
  kFAILED_EXECUTION = 7,       ///< Running ended early; outputs are not valid.
  kFAILED_COMPUTATION = 8,     ///< Running ended, but values are wrong (overflow, NaN).
  kINVALID_STATE = 9,          ///< Called at the wrong time.
  kUNSUPPORTED_STATE = 10,     ///< Valid, but not possible on this device or with these limits.
};

using InterfaceKind = char const*;

/// Name and version of an interface that an object implements.
class InterfaceInfo {
 public:
  InterfaceKind kind;
  int32_t major;
  int32_t minor;
};

/// The language in which an object is implemented.
enum class APILanguage : int32_t {
  kCPP = 0,
  kPYTHON = 1,
};

/// Base of the interfaces that users implement. It tells the library which interface an object
/// implements, and in which version.
class IVersionedInterface {
 public:
  /// Applications must not override it.
  virtual APILanguage getAPILanguage() const noexcept { return APILanguage::kCPP; }

  /// Each interface returns its own. Applications must not override it.
  virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;

  virtual ~IVersionedInterface() noexcept = default;

 protected:
  IVersionedInterface() = default;
  IVersionedInterface(IVersionedInterface const&) = default;
  IVersionedInterface(IVersionedInterface&&) = default;
  IVersionedInterface& operator=(IVersionedInterface const&) & = default;
  IVersionedInterface& operator=(IVersionedInterface&&) & = default;
};

/// Base of the objects that the library makes. They are used only through pointers.
class INoCopy {
 protected:
  INoCopy() = default;
  virtual ~INoCopy() = default;
  INoCopy(INoCopy const&) = delete;
  INoCopy& operator=(INoCopy const&) = delete;
  INoCopy(INoCopy&&) = delete;
  INoCopy& operator=(INoCopy&&) = delete;
};

namespace impl {
template <>
struct EnumMaxImpl<DataType> {
  static constexpr int32_t kVALUE = 12;
};
template <>
struct EnumMaxImpl<TensorFormat> {
  static constexpr int32_t kVALUE = 13;
};
template <>
struct EnumMaxImpl<DeviceType> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<TensorLocation> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<TensorIOMode> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<OptProfileSelector> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ProfilingVerbosity> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<EngineCapability> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ErrorCode> {
  static constexpr int32_t kVALUE = 11;
};
template <>
struct EnumMaxImpl<APILanguage> {
  static constexpr int32_t kVALUE = 2;
};
}  // namespace impl

}  // namespace opwright

/// The names under which sources written for TensorRT know the API. It is a namespace and no alias,
/// because plugins put their own classes into it, and an alias cannot be reopened.
namespace nvinfer1 {
using namespace opwright;
}  // namespace nvinfer1
