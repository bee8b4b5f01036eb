#include "plugin/callback.h"

#include <array>
#include <atomic>
#include <utility>

#include "base/error.h"

namespace opwright {

namespace {

struct Pending {
  std::exception_ptr exception;
  const char* callback = "";
};
thread_local Pending pending;
std::atomic<AddNote> add_note{nullptr};
std::atomic<IsInterrupt> interrupt_test{nullptr};
std::atomic<IsPluginException> plugin_exception_test{nullptr};
std::array<std::atomic<FindDomain>, EnumMax<APILanguage>()> domains{};

}  // namespace

void set_pending_exception(std::exception_ptr exception, const char* callback) noexcept {
  pending = {std::move(exception), callback};
}

bool has_pending_exception() noexcept { return pending.exception != nullptr; }

void rethrow_pending_exception(const std::string& where) {
  if (!has_pending_exception()) return;
  const auto [exception, callback] = std::exchange(pending, {});
  std::string context = where;
  if (*callback != '\0') context += str(callback, "(): ");
  if (context.empty()) std::rethrow_exception(exception);
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    fail_with(error.code(), context, error.what());
  } catch (...) {
    context.resize(context.size() - 2);  // without what leads over to a message
    add_exception_note(exception, context);
    throw;
  }
}

void set_exception_note(AddNote add) noexcept { add_note = add; }

void add_exception_note(const std::exception_ptr& exception, const std::string& note) {
  if (AddNote add = add_note.load()) add(exception, note);
}

void set_interrupt_test(IsInterrupt test) noexcept { interrupt_test = test; }

bool is_interrupt(const std::exception_ptr& exception) {
  const IsInterrupt test = interrupt_test.load();
  return test != nullptr && test(exception);
}

void set_plugin_exception_test(IsPluginException test) noexcept { plugin_exception_test = test; }

bool is_plugin_exception(const std::exception_ptr& exception) {
  const IsPluginException test = plugin_exception_test.load();
  return test != nullptr && test(exception);
}

void set_execution_domain(APILanguage language, FindDomain find) noexcept {
  domains.at(static_cast<size_t>(language)) = find;
}

ExecutionDomain* execution_domain(APILanguage language, const Device* device) {
  const auto index = static_cast<size_t>(language);
  const FindDomain find = index < domains.size() ? domains[index].load() : nullptr;
  return find != nullptr ? find(device) : nullptr;
}

}  // namespace opwright
