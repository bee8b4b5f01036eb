// Reads damaged engine files: whatever the bytes, deserialize() gives an Error or a plan that
// serializes and can be inspected. Hashes are made right first, as chance would not find them.

#include <cstdlib>

#include "../cpp/plan/sample_plan.h"
#include "base/error.h"
#include "runtime/inspect.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Inputs that are too short to be anything become a valid engine; the sections before the weights
/// are what is mutated, so that few bytes are spent on padding.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace opwright;
  static const std::vector<std::byte> sample = join(serialize(sample_plan()));
  if (size < sizeof(PlanHeader)) {
    if (max_size < sample.size()) return LLVMFuzzerMutate(data, size, max_size);
    std::memcpy(data, sample.data(), sample.size());
    return sample.size();
  }
  PlanHeader header;
  std::memcpy(&header, data, sizeof(header));
  // Mostly only the plan section changes, and stays in its place; sometimes anything does.
  const bool fits = header.plan.offset <= size && header.plan.size <= size - header.plan.offset;
  if (seed % 8 != 0 && fits && header.plan.size != 0) {
    const size_t room = static_cast<size_t>(header.plan.size);
    std::vector<uint8_t> plan(data + header.plan.offset, data + header.plan.offset + room);
    const size_t used = LLVMFuzzerMutate(plan.data(), room, room);
    std::memset(data + header.plan.offset, 0, room);
    std::memcpy(data + header.plan.offset, plan.data(), used);
    return size;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwright;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  repair(file);
  Plan plan;
  try {
    plan = deserialize(Blob::copy(file.data(), file.size()));
  } catch (const Error&) {
    return 0;
  }
  // What was read can be written, and read again: an Error here is a bug.
  const std::vector<std::byte> again = join(serialize(plan));
  deserialize(Blob::copy(again.data(), again.size()));
  try {
    if (inspect_text(plan).empty() || inspect_json(plan).empty()) std::abort();
  } catch (const Error&) {  // such as an expression that overflows
  }
  return 0;
}
