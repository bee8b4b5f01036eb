#include "backend/cuda/code_format.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "backend/cuda/ptx_parameters.h"
#include "backend/device.h"
#include "base/error.h"
#include "opwright/runtime.h"

namespace opwright::cuda {
namespace {

constexpr Elf64_Half kCubin = 190;  // EM_CUDA
constexpr std::string_view kReal = "sm_", kVirtual = "compute_";

std::string_view text_of(const CodeObject& object) {
  return {object.bytes.as<char>(), object.bytes.size()};
}

bool is_elf(std::string_view bytes) {
  return bytes.size() >= sizeof(Elf64_Ehdr) && std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0;
}

bool is_cubin(std::string_view bytes) {
  Elf64_Ehdr header;
  if (!is_elf(bytes)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header.e_machine == kCubin;
}

/// The architecture that PTX is for; empty where the text is not PTX.
std::string_view ptx_target(std::string_view text) {
  constexpr std::string_view kTarget = "\n.target ";
  const size_t at = is_elf(text) ? std::string_view::npos : text.find(kTarget);
  if (at == std::string_view::npos || text.find(".version") > at) return {};
  text.remove_prefix(at + kTarget.size());
  return text.substr(0, text.find_first_of(", \t\r\n"));
}

/// Whether code that runs on these GPUs runs on all that the level names.
bool serves(GpuRange range, HardwareCompatibilityLevel level) {
  return level != HardwareCompatibilityLevel::kAMPERE_PLUS ||
         (range.first <= kAmpere && range.last == GpuRange::kNewest);
}

std::optional<GpuRange> served_by(const CodeObject& object) {
  return object.host ? std::nullopt : served_gpus(object.target);
}

/// GPUs that run all of the code. Nothing where there is no code for GPUs; an empty range (first >
/// last) where no GPU runs all of it.
std::optional<GpuRange> served_by_all(std::span<const CodeObject> code) {
  std::optional<GpuRange> all;
  for (const CodeObject& object : code) {
    const std::optional<GpuRange> range = served_by(object);
    if (!range) continue;
    if (!all) all = GpuRange{0, GpuRange::kNewest};
    all = GpuRange{std::max(all->first, range->first), std::min(all->last, range->last)};
  }
  return all;
}

class CudaCodeFormat final : public CodeFormat {
 public:
  std::string describe(const CodeObject& object) const override {
    const std::string_view bytes = text_of(object);
    if (is_cubin(bytes))
      return str("a cubin for ", object.target.empty() ? "a GPU" : object.target);
    const std::string_view ptx = ptx_target(bytes);
    return ptx.empty() ? "" : str("PTX for ", ptx);
  }

  std::string fault(const CodeObject& object) const override {
    if (!describe(object).empty()) return "";
    return is_elf(text_of(object)) ? str("a shared object for '", object.target, "'")
                                   : "neither an ELF file nor PTX";
  }

  std::string target(const CodeObject& object) const override {
    std::string_view ptx = ptx_target(text_of(object));
    if (object.host || !ptx.starts_with(kReal)) return object.target;
    ptx.remove_prefix(kReal.size());
    return str(kVirtual, ptx);
  }

  std::string served(std::span<const CodeObject> code) const override {
    const std::optional<GpuRange> range = served_by_all(code);
    return range ? gpus_text(range) : "";
  }

  std::string portable_form() const override {
    return "PTX (arch='compute_80' for GPUs of compute capability 8.0 and newer)";
  }

  HardwareCompatibilityLevel level(std::span<const CodeObject> code) const override {
    const std::optional<GpuRange> range = served_by_all(code);
    if (!range) return HardwareCompatibilityLevel::kNONE;
    return serves(*range, HardwareCompatibilityLevel::kAMPERE_PLUS)
               ? HardwareCompatibilityLevel::kAMPERE_PLUS
               : HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY;
  }

  void check_level(HardwareCompatibilityLevel level, const Device& device,
                   std::span<const CodeObject> code) const override {
    if (level == HardwareCompatibilityLevel::kAMPERE_PLUS && !device.runs("compute_80"))
      fail_with(ErrorCode::kUNSUPPORTED_STATE,
                "HardwareCompatibilityLevel.AMPERE_PLUS is for GPUs of compute capability 8.0 and "
                "newer; this one is ",
                device.architecture(), ". Build the engine on one of those, or with level NONE");
    for (const CodeObject& object : code)
      if (const auto range = served_by(object); range && !serves(*range, level))
        fail_with(ErrorCode::kUNSUPPORTED_STATE, "The compiled kernel '", object.name, "' is for ",
                  object.target, ", so it runs on ", gpus_text(range),
                  ", and the engine is to have HardwareCompatibilityLevel.AMPERE_PLUS. Let the "
                  "plugin give PTX for compute_80 (arch='compute_80'), or build with level NONE");
  }

  /// Accepts up to two unread pointers. Triton adds them; they are unread where the kernel needs no
  /// scratch memory.
  size_t unread_pointers(const CodeObject& object, std::string_view function,
                         size_t given) const override {
    constexpr size_t kMost = 2;
    const auto parameters = ptx_parameters(text_of(object), function);
    if (!parameters || parameters->size() <= given || parameters->size() > given + kMost) return 0;
    const auto may_be_null = [](const PtxParameter& p) { return p.is_pointer && !p.is_read; };
    const bool are_all = std::all_of(parameters->begin() + static_cast<std::ptrdiff_t>(given),
                                     parameters->end(), may_be_null);
    return are_all ? parameters->size() - given : 0;
  }
};

}  // namespace

std::optional<GpuRange> served_gpus(std::string_view target) {
  const bool is_ptx = target.starts_with(kVirtual);
  if (!is_ptx && !target.starts_with(kReal)) return std::nullopt;
  target.remove_prefix(target.find('_') + 1);
  int number = 0;
  const char* const end = target.data() + target.size();
  const auto [rest, error] = std::from_chars(target.data(), end, number);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || number < 10 || !(suffix == "" || suffix == "a" || suffix == "f"))
    return std::nullopt;
  // A later GPU need not have the features of "sm_90a". "sm_100f" runs on its family.
  if (suffix == "a") return GpuRange{number, number};
  const int last_of_major = number / 10 * 10 + 9;
  return GpuRange{number, is_ptx && suffix.empty() ? GpuRange::kNewest : last_of_major};
}

std::string gpus_text(std::optional<GpuRange> range) {
  if (!range || range->first > range->last) return "no GPU";
  const auto number = [](int value) { return str(value / 10, '.', value % 10); };
  const std::string first = "GPUs of compute capability " + number(range->first);
  if (range->last == GpuRange::kNewest) return first + " and newer";
  return range->first == range->last ? first : first + " to " + number(range->last);
}

const CodeFormat& code_format() {
  static const CudaCodeFormat format;
  return format;
}

}  // namespace opwright::cuda
