#pragma once

#include <cstdint>
#include <vector>

#include "backend/candidates.h"
#include "backend/cpu/port_rules.h"

namespace opwright {

/// Reads indices of 32 or 64 bits. Negative indices count from the end; an index out of range reads
/// as -1.
class IndexReader {
 public:
  IndexReader(const void* data, bool wide) : data_(data), wide_(wide) {}
  int64_t operator()(int64_t i, int64_t extent) const {
    const int64_t index = raw(i);
    if (index >= 0) return index < extent ? index : -1;
    return index >= -extent ? index + extent : -1;
  }
  /// The stored index.
  int64_t raw(int64_t i) const {
    // Atomic, so that the checked index is the used one, even if another thread writes the memory
    // meanwhile.
    return wide_ ? __atomic_load_n(static_cast<const int64_t*>(data_) + i, __ATOMIC_RELAXED)
                 : __atomic_load_n(static_cast<const int32_t*>(data_) + i, __ATOMIC_RELAXED);
  }

 private:
  const void* data_;
  bool wide_;
};

/// An IndexReader whose size of indices the compiler knows, for loops that do little else.
template <class Index>
class SizedIndexReader {
 public:
  explicit SizedIndexReader(const void* data) : data_(static_cast<const Index*>(data)) {}
  int64_t operator()(int64_t i, int64_t extent) const {
    const int64_t stored = raw(i);
    const int64_t index = stored < 0 ? stored + extent : stored;
    return static_cast<uint64_t>(index) < static_cast<uint64_t>(extent) ? index : -1;
  }
  /// The stored index.
  int64_t raw(int64_t i) const { return __atomic_load_n(data_ + i, __ATOMIC_RELAXED); }

 private:
  const Index* data_;
};
/// Calls `body` with the reader.
template <class Body>
void with_index_reader(const void* data, bool wide, Body&& body) {
  if (wide)
    body(SizedIndexReader<int64_t>(data));
  else
    body(SizedIndexReader<int32_t>(data));
}

/// Writes indices of 32 or 64 bits.
class IndexWriter {
 public:
  IndexWriter(void* data, bool wide) : data_(data), wide_(wide) {}
  void operator()(int64_t i, int64_t index) const {
    if (wide_)
      static_cast<int64_t*>(data_)[i] = index;
    else
      static_cast<int32_t*>(data_)[i] = static_cast<int32_t>(index);
  }

 private:
  void* data_;
  bool wide_;
};

/// Candidates of kernels that copy parts of input 0, chosen by the indices in input 1. There is
/// one.
inline std::vector<Candidate> indexed_copy_candidates(const Operator&,
                                                      const CandidateQuery& query) {
  if (!kWholeBytes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "copy")};
}
inline void check_indexed_copy(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  rules.require(rules.input(0), kWholeBytes);
  rules.require(rules.input(1), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
}

}  // namespace opwright
