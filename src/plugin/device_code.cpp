#include "plugin/device_code.h"

#include <elf.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "plugin/shared_object.h"

namespace opwright {
namespace {

#ifndef EM_CUDA
constexpr Elf64_Half EM_CUDA = 190;
#endif

bool is_elf(std::string_view bytes) {
  return bytes.size() >= sizeof(Elf64_Ehdr) && std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0;
}

Elf64_Half machine(std::string_view elf) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof(header));
  return header.e_machine;
}

/// The architecture that PTX is for; empty where the text is not PTX.
std::string_view ptx_target(std::string_view text) {
  constexpr std::string_view kTarget = "\n.target ";
  const size_t at = text.find(kTarget);
  if (at == std::string_view::npos || text.find(".version") > at) return {};
  text.remove_prefix(at + kTarget.size());
  return text.substr(0, text.find_first_of(", \t\r\n"));
}

}  // namespace

std::string code_fault(const CodeObject& object) {
  const std::string_view bytes(object.bytes.as<char>(), object.bytes.size());
  const std::string_view ptx = ptx_target(bytes);
  if (!is_elf(bytes)) {
    if (ptx.empty()) return "neither an ELF file nor PTX";
    return object.host ? str("PTX for ", ptx) : "";
  }
  if (machine(bytes) == EM_CUDA) {
    const std::string target = object.target.empty() ? "a GPU" : object.target;
    return object.host ? str("a cubin for ", target) : "";
  }
  if (!object.host) return str("a shared object for '", object.target, "'");
  const std::string fault = shared_object_fault(object.bytes);
  return fault.empty() ? "" : str("no shared object for this host: ", fault);
}

}  // namespace opwright
