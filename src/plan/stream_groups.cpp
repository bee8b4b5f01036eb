#include "plan/stream_groups.h"

#include <algorithm>
#include <array>

namespace opwright {
namespace {

constexpr uint64_t kWorkspaceAlignment = 256;

bool overlap(const std::vector<GroupStep::Range>& a, const std::vector<GroupStep::Range>& b) {
  return std::ranges::any_of(a, [&](const GroupStep::Range& x) {
    return std::ranges::any_of(b, [&](const GroupStep::Range& y) {
      return x.place == y.place && std::max(x.begin, y.begin) < std::min(x.end, y.end);
    });
  });
}

bool conflict(const GroupStep& a, const GroupStep& b) {
  return overlap(a.writes, b.writes) || overlap(a.writes, b.reads) || overlap(a.reads, b.writes);
}

}  // namespace

WorkspacePlan place_workspaces(std::span<const int32_t> streams, std::span<const uint64_t> sizes) {
  WorkspacePlan plan;
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto stream = static_cast<size_t>(std::max(streams[i], 0));
    if (plan.offsets.size() <= stream) plan.offsets.resize(stream + 1);
    plan.offsets[stream] = std::max(plan.offsets[stream], sizes[i]);
  }
  for (uint64_t& each : plan.offsets) {
    const uint64_t offset =
        (plan.size + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    if (each > 0) plan.size = offset + each;
    each = offset;
  }
  return plan;
}

std::vector<std::vector<uint32_t>> find_waits(std::span<const GroupStep> steps) {
  // Per step and stream: the number of leading steps of the group whose steps on that stream have
  // ended when the step begins.
  using Ended = std::array<uint32_t, kMaxAuxStreams + 1>;
  std::vector<Ended> ended(steps.size());
  Ended behind_last{};  // per stream: one more than the number of its last step
  std::vector<std::vector<uint32_t>> waits(steps.size());
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const GroupStep& step = steps[i];
    const auto own = static_cast<size_t>(step.stream);
    if (step.is_idle) continue;
    const auto follow = [&](uint32_t other) {
      for (size_t s = 0; s < ended[i].size(); ++s)
        ended[i][s] = std::max(ended[i][s], ended[other][s]);
      uint32_t& known = ended[i][static_cast<size_t>(steps[other].stream)];
      known = std::max(known, other + 1);
    };
    if (behind_last[own] > 0) follow(behind_last[own] - 1);
    for (uint32_t other = i; other-- > 0;) {
      const auto stream = static_cast<size_t>(steps[other].stream);
      if (stream == own || steps[other].is_idle || ended[i][stream] > other ||
          !conflict(steps[other], step))
        continue;
      follow(other);
      waits[i].push_back(other);
    }
    behind_last[own] = i + 1;
  }
  return waits;
}

}  // namespace opwright
