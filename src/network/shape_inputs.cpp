#include "network/shape_inputs.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

namespace opwright {

std::vector<Tensor*> make_shape_inputs(Tensor& tensor) {
  std::vector<Tensor*> pending = {&tensor}, made;
  std::unordered_set<Tensor*> seen;
  while (!pending.empty()) {
    Tensor* next = pending.back();
    pending.pop_back();
    const bool may_carry = next->rank() <= TensorInfo::kMaxValuesRank &&
                           is_constant(next->dims()) &&
                           numel(next->dims()).constant() <= TensorInfo::kMaxValues;
    if (next->info().values || !may_carry || !seen.insert(next).second) continue;
    if (next->is_network_input()) {
      const bool integral = next->dtype() == DataType::kINT32 || next->dtype() == DataType::kINT64;
      if (!integral || next->rank() > 1 || next->is_shape_input()) continue;
      next->network().make_shape_input(*next);
      made.push_back(next);
    } else if (next->producer() != nullptr) {
      for (Tensor* input : next->producer()->inputs())
        if (input != nullptr) pending.push_back(input);
    }
  }
  return made;
}

std::vector<Tensor*> inputs_behind(Tensor& tensor) {
  std::vector<Tensor*> pending = {&tensor};
  std::unordered_set<Tensor*> seen = {&tensor};
  while (!pending.empty()) {
    const Tensor* next = pending.back();
    pending.pop_back();
    if (next->producer() == nullptr) continue;
    for (Tensor* input : next->producer()->inputs())
      if (input != nullptr && seen.insert(input).second) pending.push_back(input);
  }
  // A shape input's elements may also reach a tensor through its extents.
  const SymbolTable& symbols = tensor.network().symbols();
  const auto decides = [&](const Tensor* input) {
    std::vector<bool> own(static_cast<size_t>(symbols.size()));
    for (const int id : symbols.of_tensor(input->name())) own[static_cast<size_t>(id)] = true;
    return std::ranges::any_of(seen, [&](const Tensor* each) {
      return std::ranges::any_of(each->dims(), [&](const Expr& e) { return e.depends_on(own); }) ||
             (each->info().values != nullptr &&
              std::ranges::any_of(*each->info().values,
                                  [&](const Expr& e) { return e.depends_on(own); }));
    });
  };
  std::vector<Tensor*> inputs;
  for (Tensor* input : tensor.network().inputs())
    if (seen.contains(input) || (input->is_shape_input() && decides(input)))
      inputs.push_back(input);
  return inputs;
}

}  // namespace opwright
