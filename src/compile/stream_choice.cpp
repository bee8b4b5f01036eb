#include "compile/stream_choice.h"

#include <algorithm>

#include "plan/stream_groups.h"

namespace opwright {
namespace {

// The delay in us of a step that waits for another stream: 0.3 for kernels that do nothing before
// they wait, 0.7 for kernels that fetch weights first.
constexpr double kEdge = 0.7;
// Steps run beside each other only if that gains at least this many us, and this part of their
// time.
constexpr double kLeastGain = 1;
constexpr double kLeastPart = 0.05;

/// Per step, whether every other step comes before or behind it.
std::vector<bool> find_joints(std::span<const StreamCandidate> steps) {
  std::vector<bool> joints(steps.size()), is_needed(steps.size());
  // If a step is the only one so far that no other needs, it needs all earlier steps.
  size_t ends = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    ++ends;
    for (const int need : steps[i].needs)
      if (!is_needed[need]) {
        is_needed[need] = true;
        --ends;
      }
    joints[i] = ends == 1;
  }
  // If a step is the only one from here on that needs no other, all later steps need it.
  std::vector<bool> needs_later(steps.size());
  std::vector<std::vector<int>> users(steps.size());
  for (size_t i = 0; i < steps.size(); ++i)
    for (const int need : steps[i].needs) users[need].push_back(static_cast<int>(i));
  size_t begins = 0;
  for (size_t i = steps.size(); i-- > 0;) {
    ++begins;
    for (const int user : users[i])
      if (!needs_later[user]) {
        needs_later[user] = true;
        --begins;
      }
    joints[i] = joints[i] && begins == 1;
  }
  return joints;
}

struct Attempt {
  std::vector<int32_t> streams;
  double time = 0;
};

/// Gives each step in turn to the stream on which it can begin first.
Attempt try_streams(std::span<const StreamCandidate> steps, int first, int last, int count) {
  Attempt attempt;
  std::vector<double> end(count), finish;
  std::vector<int> latest(count, -1);
  for (int i = first; i < last; ++i) {
    const StreamCandidate& step = steps[i];
    int best = 0;
    double begin = 0;
    bool follows = false;
    for (int stream = 0; stream < count; ++stream) {
      double at = latest[stream] < 0 && stream > 0 ? kEdge : end[stream];
      bool is_next = false;
      for (const int need : step.needs) {
        if (need < first) continue;
        const bool is_here = attempt.streams[need - first] == stream;
        at = std::max(at, finish[need - first] + (is_here ? 0 : kEdge));
        is_next |= latest[stream] == need;
      }
      if (stream == 0 || at < begin || (at == begin && is_next && !follows)) {
        best = stream;
        begin = at;
        follows = is_next;
      }
    }
    attempt.streams.push_back(best);
    finish.push_back(begin + step.time);
    end[best] = finish.back();
    latest[best] = i;
  }
  for (int stream = 0; stream < count; ++stream)
    if (latest[stream] >= 0)
      attempt.time = std::max(attempt.time, end[stream] + (stream > 0 ? kEdge : 0));
  return attempt;
}

}  // namespace

std::vector<int32_t> choose_streams(std::span<const StreamCandidate> steps, int most) {
  const int count = static_cast<int>(steps.size());
  std::vector<int32_t> streams(steps.size(), kAlone);
  most = std::min(most, kMaxAuxStreams);
  if (most <= 0) return streams;
  const std::vector<bool> joints = find_joints(steps);
  for (int first = 0, last = 0; first < count; first = last + 1) {
    for (last = first; last < count && !joints[last];) ++last;
    const auto group = steps.subspan(first, last - first);
    if (group.size() < 2 || group.size() > kMaxGroupSteps ||
        !std::ranges::all_of(group, &StreamCandidate::may_move))
      continue;
    Attempt best = try_streams(steps, first, last, 1);
    const double alone = best.time;
    for (int n = 2; n <= most + 1; ++n) {
      Attempt attempt = try_streams(steps, first, last, n);
      if (attempt.time < best.time) best = std::move(attempt);
    }
    if (alone - best.time < std::max(kLeastGain, kLeastPart * alone)) continue;
    std::ranges::copy(best.streams, streams.begin() + first);
  }
  return streams;
}

}  // namespace opwright
