#include "plugin/registry/callback.h"

#include <array>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/library.h"

namespace opwright {
namespace {

struct LeftException {
  std::exception_ptr exception;
  const char* callback = "";
};
thread_local LeftException left;

struct PluginLanguages {
  std::array<std::atomic<PluginLanguage*>, EnumMax<APILanguage>()> all{};
};
auto& languages() { return Library::part<PluginLanguages>().all; }

template <class Ask>
bool any_language(Ask&& ask) {
  for (const auto& each : languages())
    if (PluginLanguage* const language = each.load(); language != nullptr && ask(*language))
      return true;
  return false;
}

}  // namespace

void set_plugin_language(APILanguage language, PluginLanguage* binding) noexcept {
  languages().at(static_cast<size_t>(language)) = binding;
}

void add_exception_note(const std::exception_ptr& exception, const std::string& note) {
  any_language([&](PluginLanguage& language) {
    language.add_note(exception, note);
    return false;
  });
}

bool is_interrupt(const std::exception_ptr& exception) {
  return any_language([&](PluginLanguage& language) { return language.is_interrupt(exception); });
}

bool is_plugin_exception(const std::exception_ptr& exception) {
  return any_language(
      [&](PluginLanguage& language) { return language.is_plugin_exception(exception); });
}

ExecutionDomain* execution_domain(APILanguage language, const Device* device) {
  const auto index = static_cast<size_t>(language);
  PluginLanguage* const binding = index < languages().size() ? languages()[index].load() : nullptr;
  return binding != nullptr ? binding->execution_domain(device) : nullptr;
}

void leave_exception(std::exception_ptr exception, const char* callback) noexcept {
  left = {std::move(exception), callback};
}

namespace detail {

bool is_exception_left() noexcept { return left.exception != nullptr; }

KeptException::KeptException() noexcept
    : exception_(std::exchange(left.exception, nullptr)), callback_(left.callback) {}

KeptException::~KeptException() { left = {std::move(exception_), callback_}; }

void throw_left_exception(const std::string& where) {
  const auto [exception, callback] = std::exchange(left, {});
  std::string context = where;
  if (*callback != '\0') context += str(callback, "(): ");
  if (context.empty()) std::rethrow_exception(exception);
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    fail_with(error.code(), context, error.what());
  } catch (...) {
    context.resize(context.size() - 2);  // without the separator before a message
    add_exception_note(exception, context);
    throw;
  }
}

}  // namespace detail
}  // namespace opwright
