#include "base/units.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace opwright {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::max();

// A value that rounds to 1000 is shown as 1 of the next unit. No clock measures parts of a
// nanosecond, but a mean may have them.
constexpr UnitRow kTimeUnits[] = {
    {0.95e-6, 1e6, 1, "ns"},  {999.5e-6, 1e6, 0, "ns"}, {9.995e-3, 1e3, 2, "us"},
    {99.95e-3, 1e3, 1, "us"}, {999.5e-3, 1e3, 0, "us"}, {9.995, 1, 2, "ms"},
    {99.95, 1, 1, "ms"},      {999.5, 1, 0, "ms"},      {9995, 1e-3, 2, "s"},
    {99950, 1e-3, 1, "s"},    {kNoEnd, 1e-3, 0, "s"}};

constexpr UnitRow kByteUnits[] = {{0x1p10, 1, 0, "B"},         {0x1p20, 0x1p-10, 1, "KiB"},
                                  {0x1p30, 0x1p-20, 1, "MiB"}, {0x1p40, 0x1p-30, 1, "GiB"},
                                  {0x1p50, 0x1p-40, 1, "TiB"}, {0x1p60, 0x1p-50, 1, "PiB"},
                                  {kNoEnd, 0x1p-60, 1, "EiB"}};

std::string in_units(std::span<const UnitRow> rows, double number) {
  const UnitRow* row = rows.data();
  while (number >= row->below && row != &rows.back()) ++row;
  const double digits = std::pow(10, row->digits);
  char text[64];
  std::snprintf(text, sizeof text, "%.*f %s", row->digits,
                std::round(number * row->scale * digits) / digits, row->unit);
  return text;
}

}  // namespace

std::span<const UnitRow> time_units() { return kTimeUnits; }

std::span<const UnitRow> byte_units() { return kByteUnits; }

std::string time_text(double milliseconds) {
  if (!(milliseconds > 0)) return "-";
  if (std::isinf(milliseconds)) return "impossible";
  return in_units(kTimeUnits, milliseconds);
}

std::string bytes_text(uint64_t bytes) { return in_units(kByteUnits, static_cast<double>(bytes)); }

std::string counted(size_t count, std::string_view what) {
  return std::to_string(count).append(" ").append(what).append(count == 1 ? "" : "s");
}

}  // namespace opwright
