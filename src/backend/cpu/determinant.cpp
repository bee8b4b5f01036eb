#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/parallel.h"
#include "operators/indexing.h"

namespace opwright {
namespace {

/// Computes the product of the diagonal after Gaussian elimination with row exchanges, in double
/// precision.
template <class Element>
class DeterminantKernel final : public Kernel {
 public:
  explicit DeterminantKernel(const KernelArgs& args)
      : layer_(args.layer), workers_(thread_count()) {
    const Shape& x = args.inputs[0].max;
    most_ = x[x.rank() - 1];
  }

  size_t workspace_size() const override {
    return checked_product("the memory to eliminate in",
                           {workers_, most_, most_, static_cast<int64_t>(sizeof(double))});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape& x = inputs[0];
    const int rank = x.rank();
    count_ = 0;
    n_ = x[rank - 1];
    require(x[rank - 2] == n_ && outputs[0].numel() == x.numel(0, rank - 2), "Layer '", layer_,
            "': ", x, " has no square matrices in its last axes for ", outputs[0]);
    require(n_ <= most_, "Layer '", layer_, "': matrices of ", n_,
            " rows are larger than at the profile's maximum, ", most_);
    count_ = outputs[0].numel();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    auto* const scratch = static_cast<double*>(workspace);
    parallel_for(workers_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker)
        for (int64_t i = count_ * worker / workers_; i < count_ * (worker + 1) / workers_; ++i) {
          double* const a = scratch + worker * most_ * most_;
          for (int64_t k = 0; k < n_ * n_; ++k)
            a[k] = load_element<Element>(inputs[0], i * n_ * n_ + k);
          store_element<Element>(outputs[0], i, static_cast<float>(eliminate(a)));
        }
    });
  }

 private:
  double eliminate(double* a) const {
    double result = 1;
    for (int64_t k = 0; k < n_; ++k) {
      int64_t pivot = k;
      for (int64_t row = k + 1; row < n_; ++row)
        if (std::abs(a[row * n_ + k]) > std::abs(a[pivot * n_ + k])) pivot = row;
      if (pivot != k) {
        std::swap_ranges(a + k * n_, a + (k + 1) * n_, a + pivot * n_);
        result = -result;
      }
      const double head = a[k * n_ + k];
      result *= head;
      if (head == 0) return 0;
      for (int64_t row = k + 1; row < n_; ++row) {
        const double factor = a[row * n_ + k] / head;
        for (int64_t c = k; c < n_; ++c) a[row * n_ + c] -= factor * a[k * n_ + c];
      }
    }
    return result;
  }

  const std::string layer_;
  const int workers_;
  int64_t most_ = 0, n_ = 0, count_ = 0;
};

std::vector<Candidate> determinant_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "elimination")};
}

void check_determinant(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<Determinant> kDeterminantKernels(
    {determinant_candidates, make_floating_kernel<DeterminantKernel, Determinant>,
     check_determinant});

}  // namespace
}  // namespace opwright
