#include "operators/byte_lookup.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/byte_lookup_tile.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/error.h"
#include "base/parallel.h"

namespace opwright {
namespace {

class ByteLookupKernel final : public Kernel {
 public:
  explicit ByteLookupKernel(const KernelArgs& args) : layer_(args.layer) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    count_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(inputs[0] == outputs[0] && inputs[ByteLookup::kTable] == Shape{ByteLookup::kTableSize},
            "Layer '", layer_, "': looks up bytes of shape ", inputs[0], " in a table of shape ",
            inputs[ByteLookup::kTable], " for an output of shape ", outputs[0]);
    count_ = inputs[0].numel();
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* const x = static_cast<const uint8_t*>(inputs[0]);
    const auto* const table = static_cast<const uint8_t*>(inputs[ByteLookup::kTable]);
    auto* const y = static_cast<uint8_t*>(outputs[0]);
    const int64_t blocks = (count_ + kBlock - 1) / kBlock;
    parallel_for(blocks, kCopyGrainBytes / kBlock, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kBlock;
      look_up_bytes(x + first, table, std::min(end * kBlock, count_) - first, y + first);
    });
  }

 private:
  static constexpr int64_t kBlock = 1024;  ///< elements; a multiple of every vector
  const std::string layer_;
  int64_t count_ = 0;
};

std::vector<Candidate> byte_lookup_candidates(const Operator&, const CandidateQuery& query) {
  const PortDesc& y = query.outputs[0];
  std::vector<Candidate> result;
  for (const TensorFormat format : formats_of(query, y.max.rank())) {
    // The padding of channels must stay 0, and a table may have another value there.
    if (!fills_blocks(y, format)) continue;
    Candidate candidate = linear_candidate(query, "table");
    candidate.inputs[0].format = candidate.outputs[0].format = format;
    result.push_back(std::move(candidate));
  }
  return result;
}

void check_byte_lookup(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  const PortRules::Port x = rules.input(0), y = rules.output(0);
  rules.require(x, kBytes, kImageFormats);
  rules.require(y, kBytes, {x.desc.type.format});
  rules.require_filled(y);
  rules.require_type(rules.input(ByteLookup::kTable), {y.desc.type.dtype});
  rules.require_format(rules.input(ByteLookup::kTable), kLinear);
}

const RegisteredKernels<ByteLookup> kByteLookupKernels({byte_lookup_candidates,
                                                        make_kernel<ByteLookupKernel, ByteLookup>,
                                                        check_byte_lookup});

}  // namespace
}  // namespace opwright
