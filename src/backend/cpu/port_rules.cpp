#include "backend/cpu/port_rules.h"

#include <algorithm>
#include <array>

#include "backend/candidates.h"
#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/shape_checks.h"
#include "base/types.h"

namespace opwright {

template <class E>
std::string EnumSet<E>::str() const {
  std::string text;
  uint32_t rest = bits_;
  for (uint32_t i = 0; rest != 0; ++i, rest &= rest - 1) {
    const auto value = static_cast<E>(__builtin_ctz(rest));
    text += i == 0 ? "" : (rest & (rest - 1)) == 0 ? " or " : ", ";
    text += name(value);
  }
  return text;
}
template class EnumSet<DataType>;
template class EnumSet<TensorFormat>;

void PortRules::fail(const std::string& problem) const {
  opwright::fail("Layer '", args_.layer, "' (", op_.kind(), "): ", problem);
}

std::string PortRules::name_of(const Port& port) const {
  return opwright::str(port.is_output ? "output " : "input ", port.index);
}

void PortRules::require_sound(int packed_input, int other_packed_input) const {
  const Candidate& candidate = *args_.candidate;
  require_that(inputs() == candidate.inputs.size() && outputs() == candidate.outputs.size(),
               "there are ", inputs(), " inputs and ", outputs(), " outputs, but types of ",
               candidate.inputs.size(), " and ", candidate.outputs.size());
  const auto visit = [&](const Port& port, const PortType& type) {
    if (!port.desc.present) return;
    require_that(port.desc.type == type, name_of(port), " is ", opwright::str(port.desc.type),
                 ", but the candidate says ", opwright::str(type));
    const std::array<Shape, 3> shapes = {port.desc.min, port.desc.opt, port.desc.max};
    require_countable(shapes);
    if (!port.desc.is_constant) return;
    require_that(port.desc.min == port.desc.max && port.desc.opt == port.desc.max, name_of(port),
                 " is a constant, but its shape changes: ", port.desc.min, " to ", port.desc.max);
    const int64_t bytes = bytes_of(type.dtype, port.desc.opt.numel());
    require_that(
        port.desc.constant.empty() || port.desc.constant.size() >= static_cast<size_t>(bytes),
        name_of(port), " is a constant of ", bytes, " bytes, of which the engine has ",
        port.desc.constant.size());
  };
  for (size_t i = 0; i < inputs(); ++i) visit(input(i), candidate.inputs[i]);
  for (size_t i = 0; i < outputs(); ++i) visit(output(i), candidate.outputs[i]);

  for (const PackedInput& packed : args_.packed) {
    const auto same = [&](const PackedInput& other) { return other.input == packed.input; };
    require_that(
        packed.input >= 0 && (packed.input == packed_input || packed.input == other_packed_input) &&
            std::count_if(args_.packed.begin(), args_.packed.end(), same) == 1 &&
            has_input(static_cast<size_t>(packed.input)) && args_.inputs[packed.input].is_constant,
        "input ", packed.input, " is packed, which the kernel does with one constant input only",
        packed_input < 0 ? std::string(", and not here") : opwright::str(": ", packed_input));
    // A stripped engine gets these bytes when it is refitted. They are checked where they are
    // unpacked.
    if (packed.data.size() > 0) require_packed_layout(packed.layout, packed.data.size());
  }
}

void PortRules::require_ports(size_t least, size_t most, size_t count) const {
  require_that(inputs() >= least && inputs() <= most && outputs() == count, "expected ", least,
               most == least      ? std::string()
               : most > least + 8 ? std::string(" or more")
                                  : opwright::str(" to ", most),
               " inputs and ", count, " outputs, but there are ", inputs(), " and ", outputs());
  for (size_t i = 0; i < least; ++i) require_that(has_input(i), name_of(input(i)), " is missing");
  for (size_t i = 0; i < count; ++i)
    require_that(args_.outputs[i].present, name_of(output(i)), " is missing");
}

void PortRules::require_type(const Port& port, Types types) const {
  require_that(types.has(port.desc.type.dtype), name_of(port), " must be ", types.str(),
               " on the CPU, but is ", name(port.desc.type.dtype));
}

void PortRules::require_format(const Port& port, Formats formats) const {
  require_that(formats.has(port.desc.type.format), name_of(port), " must have the format ",
               formats.str(), ", but has ", name(port.desc.type.format));
}

void PortRules::require_same(const Port& port, const Port& other) const {
  require_that(port.desc.type == other.desc.type, name_of(port), " must be ",
               opwright::str(other.desc.type), " like ", name_of(other), ", but is ",
               opwright::str(port.desc.type));
}

void PortRules::require_filled(const Port& port) const {
  require_that(fills_blocks(port.desc, port.desc.type.format), name_of(port),
               " must fill whole blocks of the format ", name(port.desc.type.format),
               " with its channels, but its shape is ", port.desc.min, " to ", port.desc.max);
}

}  // namespace opwright
