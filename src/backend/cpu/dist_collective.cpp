#include "operators/dist_collective.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/candidates.h"
#include "backend/communicator.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/host_communicator.h"
#include "base/half.h"
#include "base/types.h"

namespace opwright {
namespace {

/// Sums and the like of elements, in the ranks' order, so that all ranks get the same bits: floats
/// in FP32, integers with the overflow of their type.
template <class T>
class RankReduction {
 public:
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, float>;

  static void add(ReduceOperation op, Sum* sums, const std::byte* chunk, int64_t count,
                  bool is_first) {
    const T* const values = reinterpret_cast<const T*>(chunk);
    if (is_first) {
      for (int64_t i = 0; i < count; ++i) sums[i] = to_sum(values[i]);
      return;
    }
    switch (op) {
      case ReduceOperation::kPROD:
        return each(sums, values, count, [](Sum a, Sum b) { return multiplied(a, b); });
      case ReduceOperation::kMAX:
        return each(sums, values, count, [](Sum a, Sum b) { return a != a || a > b ? a : b; });
      case ReduceOperation::kMIN:
        return each(sums, values, count, [](Sum a, Sum b) { return a != a || a < b ? a : b; });
      default:
        return each(sums, values, count, [](Sum a, Sum b) { return added(a, b); });
    }
  }

  static void write(ReduceOperation op, const Sum* sums, std::byte* to, int64_t count,
                    int64_t ranks) {
    T* const values = reinterpret_cast<T*>(to);
    const bool is_mean = op == ReduceOperation::kAVG;
    for (int64_t i = 0; i < count; ++i)
      values[i] = from_sum(is_mean ? sums[i] / static_cast<Sum>(ranks) : sums[i]);
  }

 private:
  template <class Combine>
  static void each(Sum* sums, const T* values, int64_t count, Combine combine) {
    for (int64_t i = 0; i < count; ++i) sums[i] = combine(sums[i], to_sum(values[i]));
  }
  static Sum added(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<Sum>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
  static Sum multiplied(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<Sum>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
  static Sum to_sum(T value) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<Sum>(value);
    else
      return value.to_float();
  }
  static T from_sum(Sum sum) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<T>(sum);
    else
      return T::from_float(sum);
  }
};

struct HalfTerm {
  uint16_t bits;
  float to_float() const { return half_to_float(bits); }
  static HalfTerm from_float(float value) { return {float_to_half(value)}; }
};
struct Bfloat16Term {
  uint16_t bits;
  float to_float() const { return bfloat16_to_float(bits); }
  static Bfloat16Term from_float(float value) { return {float_to_bfloat16(value)}; }
};

/// Calls the function with an element of the type's C++ form; without one for types that are not
/// reduced.
template <class Function>
void with_term_type(DataType type, Function function) {
  switch (type) {
    case DataType::kFLOAT:
      return function(float());
    case DataType::kHALF:
      return function(HalfTerm());
    case DataType::kBF16:
      return function(Bfloat16Term());
    case DataType::kINT8:  // NOLINT(bugprone-branch-clone)
      return function(int8_t());
    case DataType::kUINT8:
    case DataType::kBOOL:
      return function(uint8_t());
    case DataType::kINT32:
      return function(int32_t());
    case DataType::kINT64:
      return function(int64_t());
    default:
      fail("elements of ", name(type), " cannot be reduced");
  }
}

/// Exchanges chunks with the other ranks. A chunk has some elements of the input: all that lie
/// between two offsets or, where the input has a part for each rank, those of each part.
class DistCollectiveKernel final : public Kernel {
 public:
  DistCollectiveKernel(const DistCollectiveParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        type_(args.inputs[0].type.dtype),
        size_(element_size(type_)),
        services_(args.services) {
    for (int64_t rank = 0; rank < params_.participants() && rank < HostCommunicator::kMaxRanks;
         ++rank)
      members_.push_back(static_cast<int>(
          params_.groups.empty() ? rank : params_.groups[static_cast<size_t>(rank)]));
  }

  size_t workspace_size() const override {
    return params_.reduces()
               ? HostCommunicator::kChunkBytes / static_cast<size_t>(size_) * sizeof(int64_t)
               : 0;
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    in_elements_ = out_elements_ = 0;
    require_countable(inputs), require_countable(outputs);
    check_collective_shapes(params_, layer_, inputs[0], outputs[0]);
    shape_ = inputs[0];
    in_elements_ = inputs[0].numel();
    out_elements_ = outputs[0].numel();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const auto* const from = static_cast<const std::byte*>(inputs[0]);
    auto* const to = static_cast<std::byte*>(outputs[0]);
    void* const address = services_ == nullptr ? nullptr : services_->find_communicator();
    if (address == nullptr) {
      require_alone(params_, layer_);
      parallel_copy(to, from, in_elements_ * size_);
      return;
    }
    const std::shared_ptr<Communicator> given = Communicator::find(address);
    if (given == nullptr)
      fail_with(ErrorCode::kINVALID_STATE, "Layer '", layer_,
                "': the execution context's communicator is gone");
    HostCommunicator* const communicator = &given->host();
    require_ranks(params_, layer_, communicator->ranks(),
                  str("the communicator '", communicator->name(), "'"));
    const auto own = std::ranges::find(members_, communicator->rank());
    if (own == members_.end()) {  // the others exchange
      std::memset(to, 0, static_cast<size_t>(out_elements_ * size_));
      return;
    }
    exchange(*communicator, own - members_.begin(), from, to, workspace);
  }

 private:
  void exchange(HostCommunicator& communicator, int64_t own, const std::byte* from, std::byte* to,
                void* workspace) const {
    const auto ranks = static_cast<int64_t>(members_.size());
    const auto root =
        std::ranges::find(members_, static_cast<int>(params_.root)) - members_.begin();
    const bool is_root = params_.has_root() && own == root;
    const bool sends = is_root || params_.reduces() || params_.gathers() ||
                       params_.op == CollectiveOperation::kALL_TO_ALL;
    const bool receives = !(params_.op == CollectiveOperation::kREDUCE ||
                            params_.op == CollectiveOperation::kGATHER) ||
                          is_root;
    const bool only_root_sends = params_.op == CollectiveOperation::kBROADCAST ||
                                 params_.op == CollectiveOperation::kSCATTER;
    const int64_t parts = params_.cuts() ? ranks : 1;
    const int64_t part = in_elements_ / parts;  // elements of one
    const int64_t most =
        std::max<int64_t>(1, static_cast<int64_t>(HostCommunicator::kChunkBytes) / size_ / parts);
    const CollectiveStep step{params_.op, params_.reduce_op, params_.has_root() ? params_.root : -1,
                              type_, shape_};
    HostCommunicator::Exchange exchange(communicator, step, members_);
    int64_t begin = 0;
    do {
      const int64_t count = std::min(most, part - begin), bytes = count * size_;
      std::byte* const chunk = exchange.next_chunk();
      for (int64_t i = 0; sends && i < parts; ++i)
        std::memcpy(chunk + i * bytes, from + (i * part + begin) * size_,
                    static_cast<size_t>(bytes));
      exchange.publish(sends ? static_cast<size_t>(parts * bytes) : 0);
      for (int64_t i = 0; receives && i < ranks; ++i) {
        if (only_root_sends && i != root) continue;
        const std::byte* const other = exchange.chunk_of(members_[static_cast<size_t>(i)]) +
                                       (params_.cuts() ? own * bytes : 0);
        if (params_.reduces())
          with_term_type(type_, [&]<class T>(T) {
            using Sums = RankReduction<T>;
            auto* const sums = static_cast<typename Sums::Sum*>(workspace);
            Sums::add(params_.reduce_op, sums, other, count, i == 0);
            if (i + 1 == ranks)
              Sums::write(params_.reduce_op, sums, to + begin * size_, count, ranks);
          });
        else
          std::memcpy(to + ((only_root_sends ? 0 : i * part) + begin) * size_, other,
                      static_cast<size_t>(bytes));
      }
      if (!receives) std::memset(to + begin * size_, 0, static_cast<size_t>(bytes));
      exchange.finish_chunk();
      begin += count;
    } while (begin < part);
    // What it gathers for others is larger.
    if (!receives && out_elements_ > part)
      std::memset(to + part * size_, 0, static_cast<size_t>((out_elements_ - part) * size_));
  }

  const std::string layer_;
  const DistCollectiveParams params_;
  const DataType type_;
  const int64_t size_;
  const PluginServices* const services_;
  std::vector<int> members_;
  Shape shape_;
  int64_t in_elements_ = 0, out_elements_ = 0;
};

std::vector<Candidate> dist_collective_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "shared memory")};
}

void check_dist_collective(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  const DistCollectiveParams& params = static_cast<const DistCollective&>(op).params();
  rules.require_ports(1, 1);
  const std::string fault = params.fault();
  rules.require_that(fault.empty(), fault);
  rules.require(rules.input(0), kWholeBytes);
  rules.require_that(can_exchange(params, args.inputs[0].type.dtype),
                     rules.name_of(rules.input(0)) + " has a type that cannot be exchanged");
  rules.require(rules.output(0), {args.inputs[0].type.dtype});
}

const RegisteredKernels<DistCollective> kDistCollectiveKernels(
    {dist_collective_candidates, make_kernel<DistCollectiveKernel, DistCollective>,
     check_dist_collective});

}  // namespace
}  // namespace opwright
