#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opwright {

/// Rows of cells as lines with aligned columns. `alignment` has a letter for each column: 'l', or
/// 'r' for those whose cells end at the same place. Cells are shown as printable() gives them.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       std::string_view alignment);

}  // namespace opwright
