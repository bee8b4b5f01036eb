#pragma once

#include <exception>
#include <string>
#include <type_traits>

#include "base/cast.h"
#include "network/operator.h"

namespace opwright {

/// The library's interface to a language whose objects implement plugins. Thread safe.
class PluginLanguage {
 public:
  /// Adds a note to an exception of the language; ignores other exceptions.
  virtual void add_note(const std::exception_ptr& exception, const std::string& note) = 0;
  /// Whether an exception of the language ends everything, as an interrupt from the keyboard does.
  /// A plugin's failure is no interrupt: another candidate may replace the plugin.
  virtual bool is_interrupt(const std::exception_ptr& exception) = 0;
  /// Whether a plugin raised the exception: it is of the language and no interrupt.
  virtual bool is_plugin_exception(const std::exception_ptr& exception) = 0;
  /// The domain that the language's plugin kernels enter before a run on a device (null: the CPU);
  /// null: none. It stays valid.
  virtual ExecutionDomain* execution_domain(const Device* device) = 0;

 protected:
  ~PluginLanguage() = default;
};
/// Sets the language's binding; null: a binding that does nothing. It is never destroyed. C++ has
/// none.
void set_plugin_language(APILanguage language, PluginLanguage* binding) noexcept;

void add_exception_note(const std::exception_ptr& exception, const std::string& note);
bool is_interrupt(const std::exception_ptr& exception);
bool is_plugin_exception(const std::exception_ptr& exception);
ExecutionDomain* execution_domain(APILanguage language, const Device* device);

/// Leaves an exception on the calling thread. The plugin interfaces are noexcept and report failure
/// by a status, so a language binding calls this when its callback fails, and returns a failure
/// status (or null, or nothing). `callback` is the method's name in that language, a literal, or
/// empty.
void leave_exception(std::exception_ptr exception, const char* callback = "") noexcept;

/// Calls a method of a plugin, or of an object that belongs to it, in any language: returns the
/// result of `body`. Throws the exception that a callback left behind. An Error's message gets
/// `where` ("layer 'x': plugin 'y'...: "), a text or a function that makes it, and the callback's
/// name in front. An exception of the language gets them as a note.
template <class Where, class Body>
auto call_plugin(Where&& where, Body&& body);

/// The same for destruction, where no caller can get an exception.
template <class Body>
void call_plugin_quietly(Body&& body) noexcept;

namespace detail {
/// Whether a callback of the calling thread left an exception behind.
bool is_exception_left() noexcept;
[[noreturn]] void throw_left_exception(const std::string& where);

/// Keeps an exception that was left behind before it, and drops exceptions that are left behind
/// meanwhile.
class KeptException {
 public:
  KeptException() noexcept;
  ~KeptException();
  KeptException(const KeptException&) = delete;
  KeptException& operator=(const KeptException&) = delete;

 private:
  std::exception_ptr exception_;
  const char* callback_;
};

inline const std::string& text_of(const std::string& text) { return text; }
inline std::string text_of(const char* text) { return text; }
template <class Function>
auto text_of(const Function& function) -> decltype(function()) {
  return function();
}
}  // namespace detail

template <class Where, class Body>
auto call_plugin(Where&& where, Body&& body) {
  if constexpr (std::is_void_v<decltype(body())>) {
    body();
    if (detail::is_exception_left()) detail::throw_left_exception(detail::text_of(where));
  } else {
    auto result = body();
    if (detail::is_exception_left()) detail::throw_left_exception(detail::text_of(where));
    return result;
  }
}

template <class Body>
void call_plugin_quietly(Body&& body) noexcept {
  const detail::KeptException before;
  body();
}

/// Second base class of a binding's V2 plugin or runtime part of a V3 plugin whose enqueue may do
/// work that cannot be captured.
class CaptureLimits {
 public:
  /// See Kernel::capture_obstacle().
  virtual std::string capture_obstacle() const = 0;

 protected:
  ~CaptureLimits() = default;
};

/// Second base class of a binding's V2 plugin that may not use what it is attached to.
class AttachmentLimits {
 public:
  /// Whether attachToContext() may use handles of cuDNN and cuBLAS.
  virtual bool wants_library_handles() const = 0;

 protected:
  ~AttachmentLimits() = default;
};
/// The obstacle that the plugin or its part names, if a binding implements it; empty if it is no
/// CaptureLimits.
template <class T>
std::string capture_obstacle_of(const T& plugin) {
  const auto* limits = cast_to<const CaptureLimits>(&plugin);
  return limits != nullptr ? limits->capture_obstacle() : std::string();
}

}  // namespace opwright
