#include "backend/gpu/windows.h"

#include <algorithm>

namespace opwright::gpu {
namespace {

/// A bound on positions, so that those far beyond the input do not overflow 32 bits.
constexpr int64_t kFarPosition = 1 << 28;

}  // namespace

Expr padding_before(const WindowAxis& axis, PaddingMode mode, const Expr& input, const Expr& window,
                    const Expr& count) {
  if (mode != PaddingMode::kSAME_UPPER && mode != PaddingMode::kSAME_LOWER) return Expr(axis.pre);
  const Expr total =
      max((count - Expr(1)) * Expr(axis.stride) + dilated(window, axis.dilation) - input, Expr(0));
  const Expr less = floor_div(total, Expr(2));
  return mode == PaddingMode::kSAME_UPPER ? less : total - less;
}

bool Windows::reaches_far() const {
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    const int64_t extent = window[i].is_constant() ? window[i].constant() : kFarPosition;
    if (std::max({axis.stride, axis.dilation, axis.pre, axis.post}) > kFarPosition ||
        (axis.dilation > 1 && extent > kFarPosition / axis.dilation))
      return true;
  }
  return false;
}

std::string Windows::make(KernelSource& source) const {
  std::string text = "{";
  const auto add = [&](auto&& number) {
    text += text.size() == 1 ? "{" : ", {";
    for (size_t i = 0; i < axes.size(); ++i)
      text += str(i == 0 ? "" : ", ", source.value(Expr(number(i))));
    text += "}";
  };
  for (const SymShape* extents : {&x, &window, &y, &padding})
    add([&](size_t i) { return (*extents)[i]; });
  add([&](size_t i) { return axes[i].stride; });
  add([&](size_t i) { return axes[i].dilation; });
  return text + "}";
}

void Windows::configure(ConfigWriter& config) const {
  config.number("kAxes", axes.size());
  config.flag("kIsTransposed", is_transposed);
}

}  // namespace opwright::gpu
