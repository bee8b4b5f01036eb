#include "control/recognize_recurrence.h"

#include "control/recurrent_cell.h"

namespace opwright {

std::optional<RecurrentCellLayers> recognize_recurrence(const RepeatedLayers& loop,
                                                        LayerWriter& writer) {
  const std::optional<recurrent::Cell> cell = recurrent::match_cell(loop);
  if (!cell) return std::nullopt;
  return recurrent::write_cell(loop, *cell, writer);
}

}  // namespace opwright
