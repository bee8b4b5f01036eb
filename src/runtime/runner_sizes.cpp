// Size tensors, which a run computes and the host reads.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/runner.h"
#include "runtime/size_group.h"

namespace opwright {

/// Sets the sizes to 0 before the step, as plugins that count up to them expect.
void Runner::clear(const SizeGroup& group, Queue queue) {
  for (const SizeGroup::Size& size : group.sizes) {
    const auto bytes = static_cast<size_t>(bytes_of(size.type, 1));
    if (is_host_)
      std::memset(*size.address, 0, bytes);
    else
      device_.copy(*size.address, group.copies->data() + group.sizes.size() * sizeof(int64_t),
                   bytes, queue);
  }
}

/// Has the sizes that the step wrote copied to the host.
void Runner::fetch(SizeGroup& group, Queue queue) {
  if (device_.is_capturing(queue)) {
    fail_with(ErrorCode::kINVALID_STATE,
              "it computes the size of a tensor, which the host must know to go on, so that it "
              "cannot be captured; run it outside of the capture");
  }
  for (const SizeGroup::Size& size : group.sizes) {
    device_.copy(const_cast<void*>(size.copy), *size.address,
                 static_cast<size_t>(bytes_of(size.type, 1)), queue);
  }
  group.copied->record(queue);
  pending_.push_back(&group);
}

/// Waits for the sizes up to those of `last`, null: for all.
void Runner::settle(const SizeGroup* last) {
  const auto pending = pending_.begin() + static_cast<std::ptrdiff_t>(next_pending_);
  if (last != nullptr && std::find(pending, pending_.end(), last) == pending_.end()) return;
  while (next_pending_ < pending_.size()) {
    SizeGroup& group = *pending_[next_pending_];
    try {
      group.copied->synchronize();
      suspects_.earlier_runs = false;
      suspects_.first = static_cast<uint32_t>(group.step + 1);
      resolve(group);
    } catch (const Error& error) {
      abandon_sizes();
      rethrow(error, group.step);
    } catch (...) {
      abandon_sizes();
      throw;
    }
    ++next_pending_;
    if (&group == last) return;
  }
}

void Runner::settle(const SizeGroup* last, Queue queue) {
  settle(last);
  if (host_values_.has_changed()) host_values_.upload(queue);
}

/// After a failure, and before the memory goes: waits for copies, whose sizes do not count.
void Runner::abandon_sizes() noexcept {
  for (; next_pending_ < pending_.size(); ++next_pending_) {
    try {
      pending_[next_pending_]->copied->synchronize();
    } catch (const std::exception&) {
      // The caller has an error to report already, or is gone.
    }
  }
}

void Runner::resolve(SizeGroup& group) {
  bool changed = false;
  for (const SizeGroup::Size& size : group.sizes) {
    const void* const at = size.copy != nullptr ? size.copy : *size.address;
    const int64_t value = size.type == DataType::kINT32 ? *static_cast<const int32_t*>(at)
                                                        : *static_cast<const int64_t*>(at);
    changed |= shapes_.set_size(size.symbol, value);
  }
  if (changed) shapes_.evaluate();
  if (group.epoch == shapes_.epoch()) return;
  check_outputs(group);
  for (const size_t values : group.values) compute(values_[values]);
  for (const int step : group.steps) tell(step);
  group.epoch = shapes_.epoch();
}

}  // namespace opwright
