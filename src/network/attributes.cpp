#include "network/attributes.h"

#include <charconv>
#include <iomanip>

#include "base/error.h"
#include "base/hash.h"

namespace opwright {
namespace {

constexpr const char* kTypeNames[] = {"an integer",
                                      "a floating-point number",
                                      "a string",
                                      "a list of integers",
                                      "a list of floating-point numbers",
                                      "bytes",
                                      "plugin fields",
                                      "the launch of a kernel"};
static_assert(std::size(kTypeNames) == std::variant_size_v<AttributeValue>);

void write(std::ostream& out, int64_t value) { out << value; }

void write(std::ostream& out, double value) {
  char text[32];  // the shortest text that gives the same number back
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.write(text, end - text);
}

void write(std::ostream& out, const std::string& value) { out << std::quoted(value); }

void write(std::ostream& out, const FieldValue& value) { out << str(value); }

template <class T>
void write(std::ostream& out, const std::vector<T>& values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out << ", ";
    write(out, values[i]);
  }
  out << ']';
}

void write(std::ostream& out, const KernelLaunch& value) { out << str(value); }

void write(std::ostream& out, const Blob& value) {
  out << value.size() << " bytes #" << std::hex << hash_bytes(value.bytes()) << std::dec;
}

}  // namespace

void validate(const Attributes& attributes) {
  for (const Attribute& attribute : attributes) {
    if (const auto* fields = std::get_if<FieldValues>(&attribute.value))
      for (const FieldValue& field : *fields) validate(field);
    if (const auto* launch = std::get_if<KernelLaunch>(&attribute.value)) validate(*launch);
  }
}

const AttributeValue* find(const Attributes& attributes, std::string_view name) {
  for (const Attribute& attribute : attributes)
    if (attribute.name == name) return &attribute.value;
  return nullptr;
}

std::string str(const Attributes& attributes) {
  std::ostringstream out;
  for (size_t i = 0; i < attributes.size(); ++i) {
    if (i) out << ' ';
    out << attributes[i].name << '=';
    std::visit([&](const auto& value) { write(out, value); }, attributes[i].value);
  }
  return out.str();
}

const AttributeValue& AttributeReader::get(const char* name, size_t type_index) const {
  const AttributeValue* value = find(attributes_, name);
  require(value != nullptr, owner_, ": the attribute '", name, "' is missing");
  require(value->index() == type_index, owner_, ": the attribute '", name, "' must be ",
          kTypeNames[type_index], ", not ", kTypeNames[value->index()]);
  return *value;
}

void AttributeReader::fail_range(const char* name, int64_t value) const {
  fail(owner_, ": the attribute '", name, "' cannot be ", value);
}

}  // namespace opwright
