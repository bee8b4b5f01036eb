#include "runtime/view.h"

#include <string_view>

#include "base/error.h"
#include "runtime/inspect.h"
#include "runtime/json.h"
#include "view_page.h"

namespace opwright {
namespace {

/// Where the page has the engines.
constexpr std::string_view kEnginesMark = "@ENGINES@";

/// JSON as the content of a script element: no '<', so that nothing ends the element or begins a
/// comment there.
void append_data(std::string& page, std::string_view json) {
  for (const char c : json) {
    if (c == '<')
      page += "\\u003c";
    else
      page += c;
  }
}

}  // namespace

std::string view_page(std::span<const ViewedPlan> plans) {
  require(!plans.empty() && plans.size() <= 2, "a page shows one engine or two, not ",
          plans.size());
  const std::string_view page(kViewPage);
  const size_t place = page.find(kEnginesMark);
  std::string result(page.substr(0, place));
  result += '[';
  for (size_t i = 0; i < plans.size(); ++i) {
    JsonWriter label;
    label.value(plans[i].label);
    append_data(result, str(i == 0 ? "" : ",", "{\"label\":", label.take(), ','));
    // Behind the opening brace of the plan's own object.
    append_data(result, inspect_json(*plans[i].plan).substr(1));
  }
  result += ']';
  result += page.substr(place + kEnginesMark.size());
  return result;
}

}  // namespace opwright
