#include "base/text_table.h"

#include <algorithm>

#include "base/printable.h"

namespace opwright {

std::string text_table(const std::vector<std::vector<std::string>>& cells,
                       std::string_view alignment) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<size_t> widths(alignment.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += ' ';
      line += alignment[i] == 'r' ? padding + row[i] : row[i] + padding;
      line += ' ';
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace opwright
