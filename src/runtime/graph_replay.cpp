#include "runtime/graph_replay.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace opwright {
namespace {

/// The number of plain runs with unchanged shapes after which capturing pays.
constexpr int kRunsBefore = 3;
/// The least number of kernels, copies and fills in a graph. A graph of one costs as much as its
/// content.
constexpr int kFewest = 2;

std::string range(uint32_t first, uint32_t last) {
  return last - first == 1 ? str("step ", first) : str("steps ", first, " to ", last - 1);
}

}  // namespace

GraphReplay::GraphReplay(const Device& device, const Log& log, std::string who,
                         std::vector<Step> steps, bool has_copies)
    : device_(device),
      log_(log),
      who_(std::move(who)),
      steps_(std::move(steps)),
      has_copies_(has_copies) {
  split();
}

/// Makes the parts that follow from the steps' obstacles. Parts that do not change keep their
/// graphs.
void GraphReplay::split() {
  std::vector<Part> parts;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto number = static_cast<uint32_t>(i);
    const bool is_captured = steps_[i].obstacle.empty();
    if (parts.empty() || steps_[i].must_begin || steps_[i - 1].must_end ||
        parts.back().is_captured != is_captured)
      parts.push_back({.first = number, .is_captured = is_captured});
    parts.back().last = number + 1;
  }
  if (!parts.empty()) parts.back().has_copies = has_copies_ && parts.back().is_captured;
  for (Part& part : parts) {
    for (Part& old : parts_) {
      if (part.first < old.first || part.last > old.last) continue;
      if (part.first == old.first && part.last == old.last && part.is_captured == old.is_captured)
        part.graph = std::move(old.graph);
      part.runs = old.runs;
    }
  }
  parts_ = std::move(parts);
}

bool GraphReplay::capture(Part& part, Work& work) {
  if (part.runs < kRunsBefore) {
    ++part.runs;
    return false;
  }
  has_news_ |= !is_described_;
  if (!part.is_captured) return false;
  uint32_t current = part.first;
  try {
    part.graph = device_.capture([&](Queue queue) { work.enqueue_part(part, queue, current); });
  } catch (const DeviceLostError&) {
    throw;
  } catch (const std::exception& error) {
    // Nothing of the part has run yet. The caller now runs it, and this step is not captured again.
    current = std::min(current, part.last - 1);
    Step& step = steps_[current];
    step.obstacle = error.what();
    has_news_ = has_failed_ = true;
    log_.warning(who_, "step ", current, ", ", step.name,
                 ", cannot be captured and runs outside of graphs: ", step.obstacle);
    return false;
  }
  if (part.graph->size() >= kFewest) return true;
  part.graph.reset();
  part.is_captured = false;
  has_news_ = true;
  return false;
}

void GraphReplay::move(std::span<const DeviceGraph::Move> moves) {
  for (Part& part : parts_)
    if (part.graph != nullptr && !part.graph->move(moves)) part.graph.reset();
}

void GraphReplay::forget(uint32_t step) {
  for (Part& part : parts_) {
    if (step < part.first || step >= part.last) continue;
    part.graph.reset();
    part.runs = 0;
  }
}

void GraphReplay::forget_all() {
  for (const Part& part : parts_) forget(part.first);
}

void GraphReplay::forget_copies() {
  if (!parts_.empty() && parts_.back().has_copies) parts_.back().graph.reset();
}

void GraphReplay::restart(std::vector<Step> steps) {
  steps_ = std::move(steps);
  parts_.clear();
  split();
  has_news_ = has_failed_ = is_described_ = is_over_ = false;
}

void GraphReplay::take_news() {
  if (has_failed_) split();
  has_news_ = has_failed_ = false;
  is_over_ = std::ranges::none_of(parts_, &Part::is_captured);
  if (is_described_) return;
  is_described_ = true;
  log_.info(who_, describe());
}

/// "steps 0 to 3 are replayed as one graph of 4 kernels, copies and fills; step 4, layer
/// 'x' (FunctionPlugin 'n::x'), is not captured: why"
std::string GraphReplay::describe() const {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  for (const Part& part : parts_) {
    if (part.graph != nullptr) {
      add(str(range(part.first, part.last), part.last - part.first == 1 ? " is" : " are",
              " replayed as one graph of ", part.graph->size(), " kernels, copies and fills"));
    } else if (steps_[part.first].obstacle.empty()) {
      add(str(range(part.first, part.last), part.last - part.first == 1 ? " is" : " are",
              " run plainly: ",
              part.is_captured ? "shapes still change" : "a graph of one kernel brings nothing"));
    } else {
      for (uint32_t step = part.first; step < part.last; ++step)
        add(str("step ", step, ", ", steps_[step].name,
                ", is not captured: ", steps_[step].obstacle));
    }
  }
  return text;
}

}  // namespace opwright
