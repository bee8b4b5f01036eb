#include "runtime/view.h"

#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "runtime/inspect.h"
#include "runtime/json.h"
#include "view_page.h"

namespace opwright {
namespace {

/// The places in the page for the units of times and bytes, and for the engines after them.
constexpr std::string_view kEnginesMark = "@ENGINES@";
constexpr std::string_view kUnitsMark = "@UNITS@";

/// Appends JSON as the content of a script element. It has no '<', so nothing in it ends the
/// element or begins a comment.
void append_data(std::string& page, std::string_view json) {
  for (const char c : json) {
    if (c == '<')
      page += "\\u003c";
    else
      page += c;
  }
}

void write_units(JsonWriter& writer, const char* name, std::span<const UnitRow> rows) {
  writer.key(name);
  writer.begin_array();
  for (const UnitRow& row : rows) {
    writer.begin_array();
    writer.value(row.below);
    writer.value(row.scale);
    writer.value(int64_t{row.digits});
    writer.value(row.unit);
    writer.end_array();
  }
  writer.end_array();
}

std::string units_json() {
  JsonWriter writer;
  writer.begin_object();
  write_units(writer, "time", time_units());
  write_units(writer, "bytes", byte_units());
  writer.end_object();
  return writer.take();
}

}  // namespace

std::string view_page(std::span<const ViewedPlan> plans) {
  require(!plans.empty() && plans.size() <= 2, "a page shows one engine or two, not ",
          plans.size());
  const std::string_view page(kViewPage);
  const size_t place = page.find(kEnginesMark), units = page.find(kUnitsMark, place);
  std::string result(page.substr(0, place));
  result += '[';
  for (size_t i = 0; i < plans.size(); ++i) {
    JsonWriter label;
    label.value(plans[i].label);
    append_data(result, str(i == 0 ? "" : ",", "{\"label\":", label.take(), ','));
    // The text follows the opening brace of the plan's own object.
    append_data(result, inspect_json(*plans[i].plan).substr(1));
  }
  result += ']';
  const size_t between = place + kEnginesMark.size();
  result += page.substr(between, units - between);
  result += units_json();
  result += page.substr(units + kUnitsMark.size());
  return result;
}

}  // namespace opwright
