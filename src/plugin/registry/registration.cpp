#include "plugin/registry/registration.h"

#include <utility>

namespace opwright {

namespace {

thread_local RegistrationCapture* innermost = nullptr;

}  // namespace

RegistrationCapture::RegistrationCapture() noexcept : outer_(std::exchange(innermost, this)) {}

RegistrationCapture::~RegistrationCapture() { innermost = outer_; }

RegistrationCapture* RegistrationCapture::current() noexcept { return innermost; }

RegistrationPassage::RegistrationPassage() noexcept : outer_(std::exchange(innermost, nullptr)) {}

RegistrationPassage::~RegistrationPassage() { innermost = outer_; }

}  // namespace opwright
