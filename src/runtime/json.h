#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace opwright {

/// Writes JSON piece by piece, with commas, escapes and indentation.
class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void key(std::string_view name);
  /// Writes the text. Bytes that are no UTF-8 become U+FFFD.
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(int64_t number);
  /// Writes the number; null for infinities and NaN, which JSON cannot express.
  void value(double number);
  void value(float number);
  void value(bool truth);

  template <class T>
  void member(std::string_view name, const T& content) {
    key(name);
    value(content);
  }
  std::string take() { return std::move(text_); }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();
  void number(double number, int digits);

  std::string text_;
  int depth_ = 0;
  bool is_first_ = true;
  bool is_after_key_ = false;
};

}  // namespace opwright
