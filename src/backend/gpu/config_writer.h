#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "backend/gpu/source.h"
#include "base/error.h"

namespace opwright::gpu {

/// Writes a struct of constants, types and functions that code of device/*.cuh is a template over.
class ConfigWriter {
 public:
  explicit ConfigWriter(std::string_view name = "Config") : name_(name) {}
  void type(std::string_view name, std::string_view is) {
    members_ += str("typedef ", is, " ", name, ";\n");
  }
  void flag(std::string_view name, bool is) { value("bool", name, is ? "true" : "false"); }
  /// An int, or a finite float.
  template <class Number>
  void number(std::string_view name, Number number) {
    if constexpr (std::is_floating_point_v<Number>)
      value("float", name, float_literal(number));
    else
      value("int", name, number);
  }
  template <class Value>
  void value(std::string_view type, std::string_view name, const Value& value) {
    members_ += str("static constexpr ", type, " ", name, " = ", value, ";\n");
  }
  /// A whole definition, such as a template of a function.
  void member(std::string_view definition) { members_ += definition; }
  /// `head` is the function's result, name and parameters.
  void function(std::string_view head, std::string_view statements) {
    members_ += str("__device__ static ", head, " {\n", statements, "}\n");
  }
  bool is_empty() const { return members_.empty(); }
  std::string write() const { return str("struct ", name_, " {\n", members_, "};\n"); }

 private:
  std::string name_, members_;
};

/// Writes the statements that return a struct from a function of the generated code.
class ReturnedMembers {
 public:
  void add(std::string_view type, std::string_view name, std::string_view value) {
    types_ += str(type, " ", name, ";\n");
    values_ += str(values_.empty() ? "" : ", ", value);
  }
  /// Without members the statements return 0.
  std::string write() const {
    return types_.empty()
               ? "return 0;\n"
               : str("struct {\n", types_, "} values = {", values_, "};\nreturn values;\n");
  }

 private:
  std::string types_, values_;
};

}  // namespace opwright::gpu
