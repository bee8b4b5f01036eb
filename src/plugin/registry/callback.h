#pragma once

#include <exception>
#include <string>
#include <type_traits>

#include "network/operator.h"

namespace opwright {

/// What the library asks of a language whose objects implement plugins. Thread safe.
class PluginLanguage {
 public:
  /// Adds a note to an exception of the language and leaves others alone.
  virtual void add_note(const std::exception_ptr& exception, const std::string& note) = 0;
  /// Whether an exception, of the language, is to end all that goes on, such as an interrupt from
  /// the keyboard, rather than the failure of a plugin that something else may take the place of.
  virtual bool is_interrupt(const std::exception_ptr& exception) = 0;
  /// Whether it is of the language and no interrupt: what a plugin raised.
  virtual bool is_plugin_exception(const std::exception_ptr& exception) = 0;
  /// What kernels whose plugin is implemented in the language enter before a run on a device, where
  /// null is the CPU; null: nothing. It stays valid.
  virtual ExecutionDomain* execution_domain(const Device* device) = 0;

 protected:
  ~PluginLanguage() = default;
};
/// The language's binding, or null, which is as if it did nothing. It is never destroyed. C++ has
/// none.
void set_plugin_language(APILanguage language, PluginLanguage* binding) noexcept;

void add_exception_note(const std::exception_ptr& exception, const std::string& note);
bool is_interrupt(const std::exception_ptr& exception);
bool is_plugin_exception(const std::exception_ptr& exception);
ExecutionDomain* execution_domain(APILanguage language, const Device* device);

/// The plugin interfaces are noexcept and report failure by a status. A language binding whose
/// callback failed leaves the exception here, on the calling thread, and returns a failure status
/// (or null, or nothing). `callback` is the method's name in that language, a literal, or empty.
void leave_exception(std::exception_ptr exception, const char* callback = "") noexcept;

/// How the methods of plugins and of what belongs to them are called, in whichever language they
/// are: returns what `body` does. An exception that a callback left behind is thrown instead; an
/// Error's message gets `where` ("layer 'x': plugin 'y'...: "), a text or a function that makes it,
/// and the callback's name in front, to an exception of the language's own they are added as a
/// note.
template <class Where, class Body>
auto call_plugin(Where&& where, Body&& body);

/// The same for what is destroyed, where nobody is left who could be told.
template <class Body>
void call_plugin_quietly(Body&& body) noexcept;

namespace detail {
/// Whether a callback of the calling thread left an exception behind.
bool is_exception_left() noexcept;
[[noreturn]] void throw_left_exception(const std::string& where);

/// Lets what was left behind before it be so after it, and drops what is left meanwhile.
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

/// What a language binding's V2 plugin or runtime part of a V3 plugin is besides, where its enqueue
/// may do what cannot be captured.
class CaptureLimits {
 public:
  /// As Kernel::capture_obstacle().
  virtual std::string capture_obstacle() const = 0;

 protected:
  ~CaptureLimits() = default;
};

/// What a language binding's V2 plugin is besides, where it may not look at what it is attached to.
class AttachmentLimits {
 public:
  /// Whether its attachToContext() may use handles of cuDNN and cuBLAS.
  virtual bool wants_library_handles() const = 0;

 protected:
  ~AttachmentLimits() = default;
};
/// The obstacle that the plugin, or its part, which the binding's language implements, names; empty
/// where it is no CaptureLimits.
template <class T>
std::string capture_obstacle_of(const T& plugin) {
  const auto* limits = dynamic_cast<const CaptureLimits*>(&plugin);
  return limits != nullptr ? limits->capture_obstacle() : std::string();
}

}  // namespace opwright
