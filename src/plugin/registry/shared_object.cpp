#include "plugin/registry/shared_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

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

/// A structure that lies within the bytes.
template <class T>
T read_at(const Blob& bytes, size_t place) {
  T read;
  std::memcpy(&read, bytes.data() + place, sizeof(read));
  return read;
}

/// The entries of a dynamic section that lies within the bytes.
std::vector<Elf64_Dyn> entries_of(const Blob& bytes, const Elf64_Phdr& dynamic) {
  std::vector<Elf64_Dyn> entries;
  for (size_t i = 0; i < dynamic.p_filesz / sizeof(Elf64_Dyn); ++i) {
    const auto entry = read_at<Elf64_Dyn>(bytes, dynamic.p_offset + i * sizeof(Elf64_Dyn));
    if (entry.d_tag == DT_NULL) break;
    entries.push_back(entry);
  }
  return entries;
}

/// Whether the dynamic section has relocations of read-only segments.
bool has_text_relocations(const Blob& bytes, const Elf64_Phdr& dynamic) {
  return std::ranges::any_of(entries_of(bytes, dynamic), [](const Elf64_Dyn& entry) {
    return entry.d_tag == DT_TEXTREL ||
           (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL));
  });
}

}  // namespace

std::string shared_object_fault(const Blob& bytes) {
  const size_t size = bytes.size();
  if (size < sizeof(Elf64_Ehdr)) return "it is shorter than an ELF header";
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
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
    const auto segment = read_at<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
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
  // If it is missing, the loader makes the process's stacks executable.
  if (!has_stack)
    return "it does not say that its stack is not executable (PT_GNU_STACK); link it with "
           "-Wl,-z,noexecstack";
  return {};
}

std::vector<std::string> needed_libraries(const Blob& bytes) {
  if (!shared_object_fault(bytes).empty()) return {};
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
  std::vector<Elf64_Phdr> loaded;
  std::vector<Elf64_Dyn> entries;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD) loaded.push_back(segment);
    if (segment.p_type == PT_DYNAMIC) entries = entries_of(bytes, segment);
  }
  const auto table = std::ranges::find(entries, DT_STRTAB, &Elf64_Dyn::d_tag);
  if (table == entries.end()) return {};
  const Elf64_Addr address = table->d_un.d_ptr;
  const auto holds_table = [&](const Elf64_Phdr& segment) {
    return address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz;
  };
  const auto segment = std::ranges::find_if(loaded, holds_table);
  if (segment == loaded.end()) return {};
  const std::string_view strings(bytes.as<char>() + segment->p_offset, segment->p_filesz);
  std::vector<std::string> names;
  for (const Elf64_Dyn& entry : entries) {
    const size_t begin = address - segment->p_vaddr;
    if (entry.d_tag != DT_NEEDED || entry.d_un.d_val >= strings.size() - begin) continue;
    const std::string_view name = strings.substr(begin + entry.d_un.d_val);
    names.emplace_back(name.substr(0, name.find('\0')));
  }
  return names;
}

}  // namespace opwright
