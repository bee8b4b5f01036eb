// The reduction of the ranks' parts of a tensor, which lie one behind the other.
// Expects prelude.cuh.
#pragma once

// The ranks' parts are combined in their order, as on the CPU: floats in FP32, integers with the
// overflow of their type. Config has: Element, the stored type; Value, the type of its values; Sum,
// the type of what is combined; kRanks; combine(Sum, Sum); finish(Sum), the value of all ranks.
template <class Config>
__device__ void reduce_ranks(const typename Config::Element* parts, Index count,
                             typename Config::Element* to) {
  using Element = typename Config::Element;
  using Value = typename Config::Value;
  using Sum = typename Config::Sum;
  for (Index i = first_index(); i < count; i += index_step()) {
    Sum sum = (Sum)load(parts[i]);
    for (int rank = 1; rank < Config::kRanks; ++rank)
      sum = Config::combine(sum, (Sum)load(parts[rank * count + i]));
    to[i] = store<Element>((Value)Config::finish(sum));
  }
}
