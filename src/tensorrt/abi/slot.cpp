#include "tensorrt/abi/slot.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>

#include "tensorrt/abi/own.h"

namespace opwright::tensorrt {
namespace {

std::map<std::string, const Table*>& tables() {
  static std::map<std::string, const Table*> all;
  return all;
}

std::string readable(const std::type_info& type) {
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  return text ? text.get() : type.name();
}

void end(Part*) noexcept {}
void end_and_free(Part* part) noexcept { delete part->facade; }
Facade* face(Part* part) noexcept { return part->facade; }

/// The function of slots behind the described ones.
void* later_method(Part* part) noexcept {
  const auto is_of = [part](const auto& entry) {
    const Table& table = *entry.second;
    return part->table == table.of(10) || part->table == table.of(11);
  };
  const auto found = std::find_if(tables().begin(), tables().end(), is_of);
  lacks(("a later version's method of " + (found == tables().end() ? "a class" : found->first))
            .c_str());
  return nullptr;
}
constexpr int kLaterMethods = 16;

std::vector<Slot> with_destructor(std::vector<Slot> slots) {
  const auto has_name = [](const Slot& slot) { return std::string_view(slot.name) == "~"; };
  if (std::any_of(slots.begin(), slots.end(), has_name)) return slots;
  const std::vector<Slot> first = destructor();
  slots.insert(slots.begin(), first.begin(), first.end());
  return slots;
}

std::vector<void*> laid_out(const std::vector<Slot>& slots, int major) {
  const std::type_info& type = typeid(Facade);
  std::vector<void*> table = {nullptr, const_cast<std::type_info*>(&type)};
  for (const Slot& slot : slots)
    if (slot.first <= major && major <= slot.last) table.push_back(slot.function);
  table.insert(table.end(), kLaterMethods, reinterpret_cast<void*>(&later_method));
  return table;
}

}  // namespace

std::vector<Slot> destructor() {
  return {{"~", reinterpret_cast<void*>(&end), &typeid(void())},
          {"~", reinterpret_cast<void*>(&end_and_free), &typeid(void())}};
}

Slot own_face() { return {"getPImpl", reinterpret_cast<void*>(&face), &typeid(void*())}; }

Table::Table(const char* name, std::vector<Slot> own)
    : name(name),
      slots(with_destructor(std::move(own))),
      table_10(laid_out(this->slots, 10)),
      table_11(laid_out(this->slots, 11)) {
  tables()[name] = this;
}

Table::~Table() { tables().erase(name); }

bool lacks(const char* method) {
  const std::string text =
      std::string(method) + " of TensorRT is not supported by Opwright: the call has no effect";
  if (ILogger* const logger = OPWRIGHT_OWN(getLogger)())
    logger->log(ILogger::Severity::kWARNING, text.c_str());
  return false;
}

const int32_t* narrowed(const int64_t* values, int32_t count) {
  thread_local std::vector<int32_t> kept;
  if (values == nullptr) return nullptr;
  kept.assign(values, values + std::max(count, 0));
  kept.push_back(0);  // so that no values have an address, too
  return kept.data();
}

std::string described_tables(int major) {
  std::string text;
  for (const auto& [name, table] : tables()) {
    int number = 0;
    for (const Slot& slot : table->slots) {
      if (major < slot.first || slot.last < major) continue;
      text += name + '\t' + std::to_string(number++) + '\t' + slot.name + '\t' +
              readable(*slot.type) + '\t' + std::to_string(slot.first) + '.' +
              std::to_string(slot.first_minor) + '\n';
    }
  }
  return text;
}

}  // namespace opwright::tensorrt
