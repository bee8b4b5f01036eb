#pragma once

#include <functional>
#include <string>

#include "plugin/registry/callback.h"

namespace opwright {

/// What the library asks of Python while the object lives, with a test's answers.
class TestLanguage final : public PluginLanguage {
 public:
  TestLanguage() { set_plugin_language(APILanguage::kPYTHON, this); }
  ~TestLanguage() { set_plugin_language(APILanguage::kPYTHON, nullptr); }
  TestLanguage(const TestLanguage&) = delete;
  TestLanguage& operator=(const TestLanguage&) = delete;

  std::string noted;
  std::function<bool(const std::exception_ptr&)> interrupt;
  ExecutionDomain* domain = nullptr;

 private:
  void add_note(const std::exception_ptr&, const std::string& note) override { noted = note; }
  bool is_interrupt(const std::exception_ptr& exception) override {
    return interrupt && interrupt(exception);
  }
  bool is_plugin_exception(const std::exception_ptr&) override { return false; }
  ExecutionDomain* execution_domain(const Device*) override { return domain; }
};

}  // namespace opwright
