#include "plugin/registry/shared_object.h"

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

/// Whether the dynamic section, which lies within the bytes, announces relocations of read-only
/// segments.
bool has_text_relocations(const Blob& bytes, const Elf64_Phdr& dynamic) {
  for (size_t i = 0; i < dynamic.p_filesz / sizeof(Elf64_Dyn); ++i) {
    Elf64_Dyn entry;
    std::memcpy(&entry, bytes.data() + dynamic.p_offset + i * sizeof(entry), sizeof(entry));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_TEXTREL || (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL)))
      return true;
  }
  return false;
}

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
  bool has_stack = false;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    const bool is_used = segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC;
    if (is_used && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
      return str("it is truncated: segment ", i, " ends at byte ", segment.p_offset, " + ",
                 segment.p_filesz);
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) && (segment.p_flags & PF_X))
      return str("its segment ", i,
                 " is writable and executable at once; link it without -N, "
                 "--omagic and linker scripts that merge code and data");
    if (segment.p_type == PT_GNU_STACK) {
      has_stack = true;
      if (segment.p_flags & PF_X)
        return "it wants an executable stack; link it with -Wl,-z,noexecstack";
    }
    if (segment.p_type == PT_DYNAMIC && has_text_relocations(bytes, segment))
      return "it has relocations in its code, which would become writable (DT_TEXTREL); compile it "
             "with -fPIC";
  }
  // Where it is missing, the loader makes the process's stacks executable.
  if (!has_stack)
    return "it does not say that its stack is not executable (PT_GNU_STACK); link it with "
           "-Wl,-z,noexecstack";
  return {};
}

}  // namespace opwright
