#include "nvrtc/translate.h"

#include <cctype>
#include <cstdlib>
#include <regex>

namespace emulation {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

size_t skip_space(const std::string& text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

/// The position behind a string literal that begins at `at`.
size_t skip_string(const std::string& text, size_t at) {
  for (char quote = text[at++]; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

/// The position of the bracket that closes the one at `at`.
size_t find_closing(const std::string& text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    char c = text[at];
    if (c == '"' || c == '\'') {
      at = skip_string(text, at);
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0) return at;
    ++at;
  }
  return text.size();
}

/// The next position of `word` as a whole word, outside of strings.
size_t find_word(const std::string& text, const std::string& word, size_t at) {
  while ((at = text.find(word, at)) != text.npos) {
    size_t behind = at + word.size();
    if ((at == 0 || !is_name(text[at - 1])) && (behind >= text.size() || !is_name(text[behind]))) {
      return at;
    }
    at = behind;
  }
  return text.npos;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (size_t at = 0; at < text.size();) {
    size_t next = at + 1;
    char c = text[at];
    if (c == '"' || c == '\'') next = skip_string(text, at);
    if (c == '(' || c == '[' || c == '{') next = find_closing(text, at) + 1;
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += text.substr(at, next - at);
    }
    at = next;
  }
  return parts;
}

/// The text of adjacent string literals.
std::string literal(const std::string& text) {
  std::string value;
  for (size_t at = text.find('"'); at != text.npos; at = text.find('"', at)) {
    size_t end = skip_string(text, at);
    for (size_t i = at + 1; i + 1 < end; ++i) {
      if (text[i] == '\\') {
        ++i;
        value += text[i] == 'n' || text[i] == 't' ? ' ' : text[i];
      } else {
        value += text[i];
      }
    }
    at = end;
  }
  return value;
}

/// Converts the text after ".reg", such as ".pred p, q", to declarations of variables.
std::string declare_registers(const std::string& declaration) {
  size_t begin = skip_space(declaration, 0), end = begin;
  while (end < declaration.size() && !std::isspace(static_cast<unsigned char>(declaration[end])))
    ++end;
  const std::string type = declaration.substr(begin, end - begin);
  return (type == ".pred"  ? "bool"
          : type == ".b64" ? "unsigned long long"
                           : "unsigned") +
         declaration.substr(end) + "; ";
}

/// Translates inline PTX: asm("mul.f32 %0, %1, %2;" : "=f"(a) : "f"(b), "f"(c)) becomes a call of
/// opwright_ptx_mul_f32(a, b, c).
std::string translate_asm(const std::string& body) {
  std::vector<std::string> sections = split(body, ':');
  std::vector<std::string> operands;
  for (size_t section = 1; section < sections.size() && section < 3; ++section) {
    for (const std::string& operand : split(sections[section], ',')) {
      size_t open = operand.find('(');
      if (open != operand.npos) {
        operands.push_back(operand.substr(open, find_closing(operand, open) + 1 - open));
      }
    }
  }
  std::string calls;
  std::string code = literal(sections[0]);
  for (char& c : code) {
    if (c == '{' || c == '}' || c == '[' || c == ']') c = ' ';
  }
  for (const std::string& instruction : split(code, ';')) {
    size_t begin = skip_space(instruction, 0);
    size_t end = begin;
    const auto belongs = [](char c) { return is_name(c) || c == '.' || c == ':'; };
    while (end < instruction.size() && belongs(instruction[end])) ++end;
    if (end == begin) continue;
    std::string name = instruction.substr(begin, end - begin);
    if (name == ".reg") {
      calls += declare_registers(instruction.substr(end));
      continue;
    }
    for (char& c : name) {
      if (c == '.' || c == ':') c = '_';
    }
    std::string arguments = instruction.substr(end);
    std::string filled;
    for (size_t i = 0; i < arguments.size(); ++i) {
      size_t number =
          arguments[i] == '%' ? std::strtoul(arguments.c_str() + i + 1, nullptr, 10) : 0;
      if (arguments[i] != '%' || number >= operands.size()) {
        filled += arguments[i];
        continue;
      }
      filled += operands[number];
      while (i + 1 < arguments.size() && std::isdigit(arguments[i + 1])) ++i;
    }
    calls += "opwright_ptx_" + name + "(" + filled + "); ";
  }
  return "do { " + calls + "} while (0)";
}

void replace_asm(std::string& source) {
  for (const char* word : {"asm", "__asm__", "__asm"}) {
    for (size_t at = 0; (at = find_word(source, word, at)) != source.npos;) {
      size_t open = skip_space(source, at + std::string(word).size());
      while (open < source.size() && is_name(source[open])) ++open, open = skip_space(source, open);
      if (open >= source.size() || source[open] != '(') {
        ++at;
        continue;
      }
      size_t close = find_closing(source, open);
      std::string call = translate_asm(source.substr(open + 1, close - open - 1));
      source.replace(at, close + 1 - at, call);
      at += call.size();
    }
  }
}

/// Replaces dynamic shared memory by a pointer in functions, and outside of them by an object that
/// converts to a pointer.
void replace_dynamic_shared(std::string& source) {
  static const std::regex pattern(
      R"(extern\s+__shared__\s+((?:(?:__attribute__|alignas)\s*\([^;]*?\)\)?\s*)?)([^;\[\]]*?)(\w+)\s*\[\s*\]\s*;)");
  std::string result;
  std::smatch match;
  int depth = 0;
  auto count = [&](const std::string& text) {
    for (char c : text) depth += (c == '{') - (c == '}');
  };
  while (std::regex_search(source, match, pattern)) {
    std::string before = match.prefix(), type = match[2], name = match[3], rest = match.suffix();
    count(before);
    result += before;
    if (depth > 0) {
      result += type + "* const " + name + " = reinterpret_cast<" + type +
                "*>(opwright_block.dynamic_shared);";
    } else {
      result += "static struct { operator " + type + "*() const { return reinterpret_cast<" + type +
                "*>(opwright_block.dynamic_shared); } } " + name + ";";
    }
    source = rest;
  }
  source = result + source;
}

/// Whether the declaration that ends at `at` begins with `template`.
bool is_template(const std::string& source, size_t at) {
  size_t begin = at ? source.find_last_of(";}", at - 1) : source.npos;
  size_t found = find_word(source, "template", begin == source.npos ? 0 : begin);
  return found < at;
}

/// The namespaces around a position, as a prefix of names.
std::string scope_at(const std::string& source, size_t at) {
  static const std::regex opener(R"(namespace\s+([\w:]+)\s*$)");
  std::vector<std::string> scopes;
  for (size_t i = 0, last = 0; i < at; ++i) {
    char c = source[i];
    if (c == '"' || (c == '\'' && !(i && std::isdigit(source[i - 1])))) {
      i = skip_string(source, i) - 1;
    } else if (c == '{') {
      std::smatch match;
      std::string before = source.substr(last, i - last);
      scopes.push_back(std::regex_search(before, match, opener) ? match[1].str() + "::" : "");
      last = i + 1;
    } else if (c == '}' && !scopes.empty()) {
      scopes.pop_back();
      last = i + 1;
    } else if (c == ';') {
      last = i + 1;
    }
  }
  std::string prefix;
  for (const std::string& scope : scopes) prefix += scope;
  return prefix;
}

std::vector<KernelName> take_kernels(std::string& source) {
  std::vector<KernelName> kernels;
  auto erase = [&](size_t from, size_t to) {
    for (; from < to; ++from) {
      if (source[from] != '\n') source[from] = ' ';
    }
  };
  for (size_t at = 0; (at = find_word(source, "__global__", at)) != source.npos;) {
    KernelName kernel;
    bool instantiated = is_template(source, at);
    erase(at, at + 10);
    size_t open = source.find('(', at);
    const auto take = [&](const char* attribute, std::string& argument) {
      for (size_t found; (found = source.find(attribute, at)) < open;) {
        size_t first = source.find('(', found);
        size_t close = find_closing(source, first);
        argument = split(source.substr(first + 1, close - first - 1), ',')[0];
        erase(found, close + 1);
        open = source.find('(', at);
      }
    };
    take("__launch_bounds__", kernel.max_threads);
    take("__cluster_dims__", kernel.cluster);
    if (open == source.npos) break;
    size_t end = open;
    while (end > at && !is_name(source[end - 1])) --end;
    size_t begin = end;
    while (begin > at && is_name(source[begin - 1])) --begin;
    kernel.name = scope_at(source, at) + source.substr(begin, end - begin);
    bool known = false;
    for (const KernelName& other : kernels) known |= other.name == kernel.name;
    if (!instantiated && !known) kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

Translation translate(std::string source) {
  Translation translation;
  for (const char* word :
       {"__syncthreads", "__syncwarp", "_sync", "bar.sync", "mbarrier", "barrier.cluster"}) {
    translation.collective |= source.find(word) != source.npos;
  }
  replace_asm(source);
  replace_dynamic_shared(source);
  translation.kernels = take_kernels(source);
  translation.source = std::move(source);
  return translation;
}

}  // namespace emulation
