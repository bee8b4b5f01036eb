#include "plugin/shared_object.h"

#include <elf.h>

#include <cstring>

#include "base/error.h"

namespace opwright {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "unknown architecture"
#endif

}  // namespace

std::string shared_object_fault(const Blob& bytes) {
  const size_t size = bytes.size();
  Elf64_Ehdr header;
  if (size < sizeof(header)) return "it is shorter than an ELF header";
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "it does not begin with \\x7fELF";
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "it is not a 64-bit ELF file";
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) return "it is not little-endian";
  if (header.e_machine != kMachine)
    return str("its ELF machine number is ", header.e_machine, ", expected ", kMachine);
  if (header.e_type != ET_DYN) return str("its ELF type is ", header.e_type, ", expected ", ET_DYN);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      header.e_phnum > (size - header.e_phoff) / sizeof(Elf64_Phdr))
    return "its program headers lie beyond its end";
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
      return str("it is truncated: segment ", i, " ends at byte ", segment.p_offset, " + ",
                 segment.p_filesz);
  }
  return {};
}

}  // namespace opwright
