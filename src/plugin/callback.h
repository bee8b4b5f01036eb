#pragma once

#include <exception>
#include <string>

#include "network/operator.h"

namespace opwright {

/// The plugin interfaces are noexcept and report failure by a status. A language binding whose
/// callback failed stores the exception here, on the calling thread, and returns a failure status
/// (or null, or nothing); the engine then throws the exception instead of an Error about the
/// status. `callback` is the method's name in that language, a literal, or empty.
void set_pending_exception(std::exception_ptr exception, const char* callback = "") noexcept;
bool has_pending_exception() noexcept;
/// Throws the calling thread's pending exception, if there is one, and forgets it. An Error's
/// message gets `where` ("layer 'x': plugin 'y'...: ") and the callback's name in front; to an
/// exception of the language's own they are added as a note.
void rethrow_pending_exception(const std::string& where = {});

/// Adds a note to an exception that is of the binding's language and leaves others alone.
using AddNote = void (*)(const std::exception_ptr& exception, const std::string& note);
/// Set once by a language's binding.
void set_exception_note(AddNote add_note) noexcept;
void add_exception_note(const std::exception_ptr& exception, const std::string& note);

/// Whether an exception, of the binding's language, is to end all that goes on, such as an
/// interrupt from the keyboard, rather than the failure of a plugin that something else may take
/// the place of.
using IsInterrupt = bool (*)(const std::exception_ptr& exception);
/// Set once by a language's binding.
void set_interrupt_test(IsInterrupt is_interrupt) noexcept;
bool is_interrupt(const std::exception_ptr& exception);
/// Whether it is of the binding's language and no interrupt: what a plugin raised.
using IsPluginException = bool (*)(const std::exception_ptr& exception);
/// Set once by a language's binding.
void set_plugin_exception_test(IsPluginException is_plugin_exception) noexcept;
bool is_plugin_exception(const std::exception_ptr& exception);

/// What kernels whose plugin is implemented in a language enter before a run on a device, where
/// null is the CPU; null: nothing.
using FindDomain = ExecutionDomain* (*)(const Device* device);
/// Set once by the language's binding. What `find` gives must stay valid.
void set_execution_domain(APILanguage language, FindDomain find) noexcept;
ExecutionDomain* execution_domain(APILanguage language, const Device* device);

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
