#include "plugin/device_code.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "opwright/runtime.h"
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

std::string device_target(const CodeObject& object) {
  const std::string_view bytes(object.bytes.as<char>(), object.bytes.size());
  std::string_view ptx = is_elf(bytes) ? std::string_view() : ptx_target(bytes);
  if (object.host || !ptx.starts_with("sm_")) return object.target;
  ptx.remove_prefix(std::string_view("sm_").size());
  return str("compute_", ptx);
}

std::optional<GpuRange> served_gpus(std::string_view target) {
  const bool is_ptx = target.starts_with("compute_");
  if (!is_ptx && !target.starts_with("sm_")) return std::nullopt;
  target.remove_prefix(target.find('_') + 1);
  int number = 0;
  const char* const end = target.data() + target.size();
  const auto [rest, error] = std::from_chars(target.data(), end, number);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || number < 10 || !(suffix == "" || suffix == "a" || suffix == "f"))
    return std::nullopt;
  if (suffix == "a") return GpuRange{number, number};
  const int last_of_major = number / 10 * 10 + 9;
  return GpuRange{number, is_ptx && suffix.empty() ? GpuRange::kNewest : last_of_major};
}

std::optional<GpuRange> served_gpus(std::span<const CodeObject> code) {
  std::optional<GpuRange> all;
  for (const CodeObject& object : code) {
    const std::optional<GpuRange> range = object.host ? std::nullopt : served_gpus(object.target);
    if (!range) continue;
    if (!all) all = GpuRange{0, GpuRange::kNewest};
    all = GpuRange{std::max(all->first, range->first), std::min(all->last, range->last)};
  }
  return all;
}

bool serves(GpuRange range, HardwareCompatibilityLevel level) {
  constexpr int kAmpere = 80;
  return level != HardwareCompatibilityLevel::kAMPERE_PLUS ||
         (range.first <= kAmpere && range.last == GpuRange::kNewest);
}

HardwareCompatibilityLevel hardware_compatibility(std::span<const CodeObject> code) {
  const std::optional<GpuRange> range = served_gpus(code);
  if (!range) return HardwareCompatibilityLevel::kNONE;
  return serves(*range, HardwareCompatibilityLevel::kAMPERE_PLUS)
             ? HardwareCompatibilityLevel::kAMPERE_PLUS
             : HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY;
}

std::string gpus_text(std::optional<GpuRange> range) {
  if (!range || range->first > range->last) return "no GPU";
  const auto number = [](int value) { return str(value / 10, '.', value % 10); };
  const std::string first = "GPUs of compute capability " + number(range->first);
  if (range->last == GpuRange::kNewest) return first + " and newer";
  return range->first == range->last ? first : first + " to " + number(range->last);
}

}  // namespace opwright
