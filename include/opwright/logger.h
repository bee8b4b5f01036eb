#pragma once

/// \file
/// Interfaces that the application implements to receive messages and errors from the library.

#include "types.h"

namespace opwright {

/// Receives messages. Called from any thread, possibly from several at once. Must outlive every
/// object that was created with it.
class ILogger {
 public:
  enum class Severity : int32_t {
    kINTERNAL_ERROR = 0,  ///< A bug in the library; later results cannot be relied on.
    kERROR = 1,           ///< The call failed.
    kWARNING = 2,         ///< The call continued, but not as requested.
    kINFO = 3,
    kVERBOSE = 4,
  };

  /// \param msg null-terminated; valid only during the call.
  virtual void log(Severity severity, AsciiChar const* msg) noexcept = 0;

  ILogger() = default;
  virtual ~ILogger() = default;

 protected:
  ILogger(ILogger const&) = default;
  ILogger(ILogger&&) = default;
  ILogger& operator=(ILogger const&) & = default;
  ILogger& operator=(ILogger&&) & = default;
};

namespace impl {
template <>
struct EnumMaxImpl<ILogger::Severity> {
  static constexpr int32_t kVALUE = 5;
};
}  // namespace impl

/// Passed to a plugin library that exports `setLoggerFinder`, so that its plugins can write to the
/// logger of the engine that runs them.
class ILoggerFinder {
 public:
  /// The logger of the engine or context that calls the plugin on this thread.
  virtual ILogger* findLogger() = 0;

 protected:
  virtual ~ILoggerFinder() = default;
};

namespace v_1_0 {

/// Collects errors of the objects to which it is attached. Called from any thread. Its references
/// are counted, so that the application knows when no object uses it any more.
class IErrorRecorder : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override {
    return InterfaceInfo{"IErrorRecorder", 1, 0};
  }

  using ErrorDesc = char const*;
  /// The longest description in bytes, without the terminating null.
  static constexpr size_t kMAX_DESC_LENGTH{127U};
  using RefCount = int32_t;

  IErrorRecorder() = default;
  ~IErrorRecorder() noexcept override = default;

  /// Number of errors since the last clear(), at most as many as are kept.
  virtual int32_t getNbErrors() const noexcept = 0;
  /// Code of error `errorIdx`; kUNSPECIFIED_ERROR if there is none.
  virtual ErrorCode getErrorCode(int32_t errorIdx) const noexcept = 0;
  /// Description of error `errorIdx`; an empty string if there is none.
  virtual ErrorDesc getErrorDesc(int32_t errorIdx) const noexcept = 0;
  /// Whether errors were dropped for lack of room.
  virtual bool hasOverflowed() const noexcept = 0;
  virtual void clear() noexcept = 0;
  /// Called by the library. `desc` is valid only during the call.
  /// \return true if the error is to end the current operation.
  virtual bool reportError(ErrorCode val, ErrorDesc desc) noexcept = 0;
  /// \return the count after the change, here and in decRefCount().
  virtual RefCount incRefCount() noexcept = 0;
  virtual RefCount decRefCount() noexcept = 0;

 protected:
  IErrorRecorder(IErrorRecorder const&) = default;
  IErrorRecorder(IErrorRecorder&&) = default;
  IErrorRecorder& operator=(IErrorRecorder const&) & = default;
  IErrorRecorder& operator=(IErrorRecorder&&) & = default;
};

}  // namespace v_1_0
using IErrorRecorder = v_1_0::IErrorRecorder;

}  // namespace opwright

/// The logger of calls that belong to no builder or runtime, such as registering a plugin.
extern "C" OPWRIGHT_API opwright::ILogger* getLogger() noexcept;
