#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opwright {

/// Formats rows of cells as lines with aligned columns. `alignment` has a letter for each column:
/// 'l' for left, 'r' for right. Cells are shown as printable() gives them.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       std::string_view alignment);

}  // namespace opwright
