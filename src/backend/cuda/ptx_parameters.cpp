#include "backend/cuda/ptx_parameters.h"

#include <algorithm>
#include <string>

namespace opwright::cuda {
namespace {

constexpr auto npos = std::string_view::npos;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Position of `word` as a whole word, from `at` on.
size_t find_word(std::string_view text, std::string_view word, size_t at = 0) {
  for (at = text.find(word, at); at != npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      return at;
  }
  return npos;
}

/// The text from a kernel's name to the end of its body, without comments.
std::string text_of(std::string_view ptx, std::string_view kernel) {
  constexpr std::string_view kEntry = ".entry";
  size_t at = 0;
  for (at = ptx.find(kEntry); at != npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    const size_t name = std::min(ptx.find_first_not_of(" \t\r\n", at), ptx.size());
    const size_t end = name + kernel.size();
    if (name > at && ptx.substr(name, kernel.size()) == kernel &&
        (end >= ptx.size() || !is_word(ptx[end])))
      break;
  }
  if (at == npos) return {};
  std::string text;
  int depth = 0;
  for (; at < ptx.size(); ++at) {
    const std::string_view rest = ptx.substr(at);
    if (rest.starts_with("//") || rest.starts_with("/*")) {
      const bool is_line = rest[1] == '/';
      const size_t end = rest.find(is_line ? "\n" : "*/");
      if (end == npos) return {};
      at += end + (is_line ? 0 : 1);
      text += ' ';
      continue;
    }
    text += ptx[at];
    if (ptx[at] == '{') ++depth;
    if (ptx[at] == '}' && --depth == 0) return text;
  }
  return {};
}

}  // namespace

std::optional<std::vector<PtxParameter>> ptx_parameters(std::string_view ptx,
                                                        std::string_view kernel) {
  const std::string text = text_of(ptx, kernel);
  const std::string_view all(text);
  const size_t body = all.find('{');
  if (body == npos) return std::nullopt;
  std::vector<PtxParameter> parameters;
  const size_t open = all.substr(0, body).find('(');
  if (open == npos) return parameters;
  const size_t close = all.find(')', open);
  if (close == npos || close > body) return std::nullopt;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(all.find(',', at), close);
    std::string_view parameter = all.substr(at, end - at);
    at = end + 1;
    while (!parameter.empty() && is_space(parameter.back())) parameter.remove_suffix(1);
    if (find_word(parameter, "param") == npos) continue;  // an empty list
    const size_t name = std::string_view(parameter).find_last_of(" \t\r\n");
    if (name == npos) return std::nullopt;
    const std::string_view word = parameter.substr(name + 1);
    const bool is_array = word.back() == ']';
    PtxParameter& made = parameters.emplace_back();
    made.is_pointer =
        !is_array && (find_word(parameter, "u64") != npos || find_word(parameter, "b64") != npos);
    made.is_read = find_word(all, word.substr(0, word.find('[')), body) != npos;
  }
  return parameters;
}

}  // namespace opwright::cuda
