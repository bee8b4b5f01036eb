#include "runtime/json.h"

#include <cmath>
#include <cstdio>

#include "base/printable.h"
#include "base/utf8.h"

namespace opwright {
void JsonWriter::separate() {
  if (is_after_key_) {
    is_after_key_ = false;
    return;
  }
  if (depth_ == 0) return;
  if (!is_first_) text_ += ',';
  is_first_ = false;
  text_ += '\n';
  text_.append(static_cast<size_t>(depth_) * 2, ' ');
}

void JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  ++depth_;
  is_first_ = true;
}

void JsonWriter::close(char bracket) {
  --depth_;
  if (!is_first_) {
    text_ += '\n';
    text_.append(static_cast<size_t>(depth_) * 2, ' ');
  }
  text_ += bracket;
  is_first_ = false;
}

void JsonWriter::key(std::string_view name) {
  value(name);
  text_ += ": ";
  is_after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  separate();
  text_ += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c == '\t') {
      text_ += "\\t";
    } else if (steers_terminal(utf8_character(text))) {
      char escape[16];
      std::snprintf(escape, sizeof(escape), "\\u%04x", utf8_character(text));
      text_ += escape;
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

void JsonWriter::value(int64_t number) {
  separate();
  text_ += std::to_string(number);
}

void JsonWriter::number(double number, int digits) {
  separate();
  if (!std::isfinite(number)) {
    text_ += "null";
    return;
  }
  char digits_of[32];
  std::snprintf(digits_of, sizeof(digits_of), "%.*g", digits, number);
  text_ += digits_of;
}

void JsonWriter::value(double number) { this->number(number, 17); }
void JsonWriter::value(float number) { this->number(number, 7); }

void JsonWriter::value(bool truth) {
  separate();
  text_ += truth ? "true" : "false";
}

}  // namespace opwright
