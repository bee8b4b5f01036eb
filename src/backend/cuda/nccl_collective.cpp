#include "backend/cuda/nccl_collective.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/candidates.h"
#include "backend/cuda/compile_cuda.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/nccl_communicator.h"
#include "backend/cuda/peer_memory.h"
#include "backend/gpu/dist_collective.h"
#include "base/error.h"
#include "base/types.h"
#include "network/replay_observer.h"
#include "operators/dist_collective.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright::cuda {
namespace {

constexpr std::string_view kNcclKind = "NcclCollective";
/// Prefix of the attributes of the kernel that reduces the parts of a group's ranks, and of the one
/// that reduces in memory which the ranks' GPUs share.
const std::string kReductionPrefix = "reduction.", kPeerPrefix = "peer.";

/// Whether a group reduces. NCCL reduces over a whole communicator only. A communicator for each
/// group (ncclCommSplit) would need all ranks, also those outside of the group, at the same time.
/// So the ranks of the group send each other parts, and each reduces its own part.
bool reduces_in_group(const DistCollectiveParams& params) {
  return params.reduces() && !params.groups.empty() && params.participants() > 1;
}

/// Elements of the part that a rank of the group reduces, at most.
int64_t part_of_group(const DistCollectiveParams& params, int64_t elements) {
  const int64_t ranks = params.participants();
  return elements / ranks + (elements % ranks != 0 ? 1 : 0);
}

/// Ports of the kernel that reduces.
struct ReductionPorts {
  std::vector<PortDesc> inputs, outputs;
  Candidate candidate;

  ReductionPorts(const DistCollectiveParams& params, const KernelArgs& args) {
    const PortDesc& x = args.inputs[0];
    PortDesc parts, part;
    parts.type = part.type = x.type;
    const auto set = [&](Shape PortDesc::*which, int64_t elements) {
      parts.*which = {params.participants(), elements};
      part.*which = {elements};
    };
    set(&PortDesc::min, 0);
    set(&PortDesc::opt, part_of_group(params, x.opt.numel()));
    set(&PortDesc::max, part_of_group(params, x.max.numel()));
    candidate.inputs = {x.type}, candidate.outputs = {x.type};
    candidate.tactic_name = args.candidate->tactic_name;
    inputs.push_back(std::move(parts)), outputs.push_back(std::move(part));
  }
  KernelArgs args(const KernelArgs& of) const {
    KernelArgs args = of;
    args.candidate = &candidate, args.inputs = inputs, args.outputs = outputs, args.packed = {};
    args.inferred = {};
    return args;
  }
};

/// Bytes of the largest tensor that is reduced in memory which the ranks' GPUs share.
size_t most_between_peers(const DistCollectiveParams& params) {
  return gpu::most_bytes_between_peers(static_cast<int>(params.participants()));
}

/// Whether small tensors of a layer may be reduced in memory that the ranks' GPUs share. All ranks
/// build the same layer, so it is so on all of them.
bool may_reduce_between_peers(const DistCollectiveParams& params, const PortDesc& x) {
  return gpu::can_reduce_between_peers(params, x.type.dtype) &&
         std::cmp_less_equal(x.min.numel() * element_size(x.type.dtype),
                             most_between_peers(params));
}

/// Ports of the kernel that does so.
struct PeerPorts {
  std::vector<PortDesc> inputs, outputs;
  Candidate candidate;

  PeerPorts(const DistCollectiveParams& params, const KernelArgs& args) {
    const PortDesc& x = args.inputs[0];
    const auto most = static_cast<int64_t>(most_between_peers(params)) / element_size(x.type.dtype);
    PortDesc part, table;
    part.type = x.type;
    part.min = {std::min(most, x.min.numel())};
    part.opt = {std::min(most, x.opt.numel())};
    part.max = {std::min(most, x.max.numel())};
    table.type.dtype = DataType::kINT64;
    table.min = table.opt = table.max = {1};
    candidate.inputs = {part.type, table.type}, candidate.outputs = {part.type};
    candidate.tactic_name = args.candidate->tactic_name;
    inputs = {part, std::move(table)}, outputs = {part};
  }
  KernelArgs args(const KernelArgs& of) const {
    KernelArgs args = of;
    args.candidate = &candidate, args.inputs = inputs, args.outputs = outputs, args.packed = {};
    args.inferred = {};
    return args;
  }
};

/// One step of an operation: what this rank sends and receives. NCCL runs all of it at once.
class Messages {
 public:
  /// `what` begins messages of errors. It outlives the object.
  Messages(const Nccl& library, Nccl::Communicator communicator, Queue queue, std::string_view what)
      : library_(library),
        communicator_(communicator),
        stream_(static_cast<CUstream>(queue)),
        what_(what) {}

  template <class Function, class... Arguments>
  void call(Function function, Arguments... arguments) const {
    library_.check(function(arguments..., communicator_, stream_), communicator_, what_);
  }
  /// `give` gives sends and receives.
  void exchange(const std::function<void()>& give) const {
    library_.check(library_.functions().ncclGroupStart(), communicator_, what_);
    try {
      give();
    } catch (...) {
      library_.functions().ncclGroupEnd();
      throw;
    }
    library_.check(library_.functions().ncclGroupEnd(), communicator_, what_);
  }
  void send(const std::byte* from, int64_t bytes, int peer) const {
    if (bytes > 0)
      call(library_.functions().ncclSend, from, static_cast<size_t>(bytes), Nccl::type_of_bytes(),
           peer);
  }
  void receive(std::byte* to, int64_t bytes, int peer) const {
    if (bytes > 0)
      call(library_.functions().ncclRecv, to, static_cast<size_t>(bytes), Nccl::type_of_bytes(),
           peer);
  }

 private:
  const Nccl& library_;
  const Nccl::Communicator communicator_;
  const CUstream stream_;
  const std::string_view what_;
};

class CollectiveKernel final : public Kernel, public ReplayObserver {
 public:
  /// `reduction`: the kernel that reduces the parts of a group; null: NCCL reduces.
  /// `between_peers`: the one that reduces in memory which the ranks' GPUs share; null: there is
  /// none.
  CollectiveKernel(const DistCollectiveParams& params, const KernelArgs& args,
                   std::unique_ptr<Kernel> reduction, std::unique_ptr<Kernel> between_peers)
      : device_(static_cast<const CudaDevice&>(*args.device)),
        layer_(args.layer),
        params_(params),
        type_(args.inputs[0].type.dtype),
        size_(element_size(type_)),
        services_(args.services),
        reduction_(std::move(reduction)),
        between_peers_(std::move(between_peers)),
        is_always_small_(
            between_peers_ != nullptr &&
            std::cmp_less_equal(args.inputs[0].max.numel() * size_, most_between_peers(params_))) {
    if (reduction_ == nullptr) return;
    // One part of each rank, and the reduced part of a rank whose output becomes zeros.
    const int64_t part = aligned(part_of_group(params_, args.inputs[0].max.numel()) * size_);
    reduced_at_ = aligned(part_of_group(params_, args.inputs[0].max.numel()) * size_ *
                          params_.participants());
    reduction_at_ = reduced_at_ + part;
  }

  size_t workspace_size() const override {
    if (between_peers_ != nullptr) return between_peers_->workspace_size();
    return reduction_ == nullptr
               ? 0
               : static_cast<size_t>(reduction_at_) + reduction_->workspace_size();
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    check_collective_shapes(params_, layer_, inputs[0], outputs[0]);
    elements_ = inputs[0].numel();
    in_bytes_ = elements_ * size_;
    out_bytes_ = outputs[0].numel() * size_;
    reduced_ = -1;
    if (between_peers_ == nullptr || !is_small()) return;
    const Shape parts[] = {{elements_}, {1}}, part{elements_};
    between_peers_->on_shape_change(parts, std::span(&part, 1));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const auto* const from = static_cast<const std::byte*>(inputs[0]);
    auto* const to = static_cast<std::byte*>(outputs[0]);
    void* const address = services_ == nullptr ? nullptr : services_->find_communicator();
    if (address == nullptr) {
      require_alone(params_, layer_);
      copy(to, from, in_bytes_, queue);
      return;
    }
    const auto& library = library_for<Nccl>(layer_);
    const NcclUse use(library, address, text_.empty() ? str("Layer '", layer_, "'") : text_);
    const Nccl::Communicator communicator = use.get();
    meet(library, communicator);
    if (own_ < 0) {  // the others exchange
      clear(to, out_bytes_, queue);
    } else if (members_.size() == 1) {
      copy(to, from, in_bytes_, queue);
    } else if (between_peers_ != nullptr && use.peers() != nullptr && elements_ > 0 && is_small()) {
      reduce_between(*use.peers(), from, to, workspace, queue);
    } else if (in_bytes_ > 0 || out_bytes_ > 0) {
      const Messages messages(library, communicator, queue, text_);
      if (reduction_ != nullptr)
        reduce(messages, from, to, static_cast<std::byte*>(workspace), queue);
      else if (params_.reduces())
        reduce_all(library, messages, from, to, queue);
      else if (params_.groups.empty() && params_.op == CollectiveOperation::kALL_GATHER)
        messages.call(library.functions().ncclAllGather, from, to, static_cast<size_t>(in_bytes_),
                      Nccl::type_of_bytes());
      else if (params_.groups.empty() && params_.op == CollectiveOperation::kBROADCAST)
        messages.call(library.functions().ncclBroadcast, from, to, static_cast<size_t>(in_bytes_),
                      Nccl::type_of_bytes(), static_cast<int>(params_.root));
      else
        exchange(messages, from, to, queue);
    }
  }

  /// NCCL: "Whether an operation launch is graph-captured is considered a collective property of
  /// that operation". An engine cannot know what the engines of other ranks do. The kernel in
  /// memory that GPUs share counts its calls there, so other ranks may call it as they like.
  std::string capture_obstacle() const override {
    if (params_.participants() == 1 || (is_always_small_ && has_peers())) return {};
    return str(is_always_small_ ? "unless the ranks' GPUs share memory, " : "",
               "NCCL wants all ranks to capture it in the same run or none of them; capture whole "
               "runs of all ranks in graphs of your own");
  }
  std::string description() const override { return "NCCL"; }
  void before_replay(Queue queue) override {
    if (!is_always_small_) return;
    const NcclUse use(library_for<Nccl>(layer_), services_->find_communicator(), text_);
    if (use.peers() != nullptr) use.peers()->begin(queue);
  }
  void after_replay(Queue queue) override {
    if (!is_always_small_) return;
    if (PeerMemory* const peers = peers_of(services_->find_communicator())) peers->end(queue);
  }

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
  /// Nobody tells the context of a layer's body that the communicator has changed.
  bool has_peers() const {
    return services_ != nullptr && services_->enclosing == nullptr &&
           peers_of(services_->communicator) != nullptr;
  }
  bool is_small() const { return std::cmp_less_equal(in_bytes_, most_between_peers(params_)); }
  /// The members' ranks and places. NCCL numbers ranks by ints.
  int64_t count() const { return std::ssize(members_); }
  int member(int64_t place) const { return members_[static_cast<size_t>(place)]; }
  int64_t place_of(int64_t rank) const {
    const auto found = std::ranges::find(members_, static_cast<int>(rank));
    return found == members_.end() ? -1 : found - members_.begin();
  }

  /// Finds this rank's place in the communicator. Throws Error where that does not fit.
  void meet(const Nccl& library, Nccl::Communicator communicator) {
    const Nccl::Functions& nccl = library.functions();
    int rank = 0, ranks = 0, gpu = 0;
    library.check(nccl.ncclCommCount(communicator, &ranks), communicator, layer_);
    library.check(nccl.ncclCommUserRank(communicator, &rank), communicator, layer_);
    library.check(nccl.ncclCommCuDevice(communicator, &gpu), communicator, layer_);
    if (rank != rank_ || ranks != ranks_) {
      require_ranks(params_, layer_, ranks, "the communicator");
      members_.clear();
      for (const int64_t each : params_.groups) members_.push_back(static_cast<int>(each));
      for (int i = 0; params_.groups.empty() && i < ranks; ++i) members_.push_back(i);
      own_ = place_of(rank), root_ = place_of(params_.root);
      text_ = str("Layer '", layer_, "': ", describe(params_), " on rank ", rank, " of ", ranks);
      rank_ = rank, ranks_ = ranks;
    }
    require(gpu == device_.ordinal(), text_, ": the communicator is one of GPU ", gpu,
            ", and the engine is on GPU ", device_.ordinal());
  }

  void copy(std::byte* to, const std::byte* from, int64_t bytes, Queue queue) const {
    if (bytes > 0 && to != from) device_.copy(to, from, static_cast<size_t>(bytes), queue);
  }
  static void clear(std::byte* to, int64_t bytes, Queue queue) {
    if (bytes > 0)
      cuda::check(
          driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(to), 0, static_cast<size_t>(bytes),
                                   static_cast<CUstream>(queue)),
          "clearing the output of a rank that receives nothing");
  }

  void reduce_between(PeerMemory& peers, const std::byte* from, std::byte* to, void* workspace,
                      Queue queue) const {
    const void* const inputs[] = {from, peers.table().buffers};
    void* const output = to;
    peers.begin(queue);
    between_peers_->enqueue(inputs, &output, workspace, queue);
    peers.end(queue);
  }

  /// A reduction over the whole communicator.
  void reduce_all(const Nccl& library, const Messages& messages, const std::byte* from,
                  std::byte* to, Queue queue) const {
    const Nccl::Functions& nccl = library.functions();
    const int type = Nccl::type_of(type_), operation = Nccl::operation_of(params_.reduce_op);
    const auto count = static_cast<size_t>(elements_);
    if (params_.op == CollectiveOperation::kREDUCE_SCATTER) {
      messages.call(nccl.ncclReduceScatter, from, to, static_cast<size_t>(out_bytes_ / size_), type,
                    operation);
    } else if (params_.op == CollectiveOperation::kALL_REDUCE) {
      messages.call(nccl.ncclAllReduce, from, to, count, type, operation);
    } else {
      const int root = static_cast<int>(params_.root);
      messages.call(nccl.ncclReduce, from, to, count, type, operation, root);
      if (own_ != root_) clear(to, out_bytes_, queue);
    }
  }

  /// An operation that only moves elements, by messages between the members.
  void exchange(const Messages& messages, const std::byte* from, std::byte* to, Queue queue) const {
    const bool is_root = own_ == root_;
    const bool to_root = params_.op == CollectiveOperation::kGATHER;
    const bool from_root = params_.op == CollectiveOperation::kBROADCAST ||
                           params_.op == CollectiveOperation::kSCATTER;
    const int64_t bytes = params_.cuts() ? in_bytes_ / count() : in_bytes_;  // of a message
    // Where the message for a member begins in the input, and that of a member in the output.
    const int64_t out_step = params_.cuts() ? bytes : 0, in_step = from_root ? 0 : bytes;
    const auto sends_to = [&](int64_t member) {
      return from_root ? is_root : !to_root || member == root_;
    };
    const auto receives_of = [&](int64_t member) {
      return from_root ? member == root_ : !to_root || is_root;
    };
    messages.exchange([&] {
      for (int64_t i = 0; i < count(); ++i) {
        if (i == own_) continue;
        if (sends_to(i)) messages.send(from + i * out_step, bytes, member(i));
        if (receives_of(i)) messages.receive(to + i * in_step, bytes, member(i));
      }
    });
    if (sends_to(own_) && receives_of(own_))
      copy(to + own_ * in_step, from + own_ * out_step, bytes, queue);
    if (to_root && !is_root) clear(to, out_bytes_, queue);
  }

  /// A reduction over a group: each rank reduces one part of the tensor, and sends it to those that
  /// get the whole.
  void reduce(const Messages& messages, const std::byte* from, std::byte* to, std::byte* workspace,
              Queue queue) {
    const int64_t ranks = count();
    const bool is_whole = params_.op == CollectiveOperation::kALL_REDUCE;
    const bool is_last = params_.op == CollectiveOperation::kREDUCE_SCATTER;
    const bool is_root = own_ == root_;
    const int64_t part = part_of_group(params_, elements_);
    const auto begin_of = [&](int64_t i) { return std::min(elements_, i * part) * size_; };
    const auto bytes_of_part = [&](int64_t i) { return begin_of(i + 1) - begin_of(i); };
    const int64_t bytes = bytes_of_part(own_);
    messages.exchange([&] {
      for (int64_t i = 0; i < ranks; ++i) {
        if (i == own_) continue;
        messages.send(from + begin_of(i), bytes_of_part(i), member(i));
        messages.receive(workspace + i * bytes, bytes, member(i));
      }
    });
    copy(workspace + own_ * bytes, from + begin_of(own_), bytes, queue);
    std::byte* const reduced = is_last               ? to
                               : is_whole || is_root ? to + begin_of(own_)
                                                     : workspace + reduced_at_;
    if (bytes > 0) {
      prepare_reduction(ranks, bytes / size_);
      const void* const parts = workspace;
      void* const result = reduced;
      reduction_->enqueue(&parts, &result, workspace + reduction_at_, queue);
    }
    if (is_last) return;
    messages.exchange([&] {
      for (int64_t i = 0; i < ranks; ++i) {
        if (i == own_) continue;
        if (is_whole || i == root_) messages.send(reduced, bytes, member(i));
        if (is_whole || is_root) messages.receive(to + begin_of(i), bytes_of_part(i), member(i));
      }
    });
    if (!is_whole && !is_root) clear(to, out_bytes_, queue);
  }

  void prepare_reduction(int64_t ranks, int64_t elements) {
    if (std::exchange(reduced_, elements) == elements) return;
    const Shape parts{ranks, elements}, part{elements};
    reduction_->on_shape_change(std::span(&parts, 1), std::span(&part, 1));
  }

  const CudaDevice& device_;
  const std::string layer_;
  const DistCollectiveParams params_;
  const DataType type_;
  const int64_t size_;
  const PluginServices* const services_;
  const std::unique_ptr<Kernel> reduction_, between_peers_;
  const bool is_always_small_;                 ///< the second one reduces all shapes
  int rank_ = -1, ranks_ = -1;                 ///< of the last communicator
  std::vector<int> members_;                   ///< the ranks that take part
  int64_t own_ = -1;                           ///< this rank's place among them; -1: none
  int64_t root_ = -1;                          ///< the root's; -1: none
  std::string text_;                           ///< begins messages of errors
  int64_t reduced_at_ = 0, reduction_at_ = 0;  ///< places in the workspace
  int64_t elements_ = 0, in_bytes_ = 0, out_bytes_ = 0;
  int64_t reduced_ = -1;  ///< elements that the reduction was last told; -1: none
};

class NcclCollective final : public PlannedOperator {
 public:
  /// Compiled kernels, of which one is null at least. `reduction` reduces the parts of a group;
  /// `between_peers` reduces in memory that the ranks' GPUs share. Null: NCCL reduces.
  NcclCollective(DistCollectiveParams params, PlannedOperatorPtr reduction,
                 PlannedOperatorPtr between_peers)
      : op_(std::move(params)),
        reduction_(std::move(reduction)),
        between_peers_(std::move(between_peers)) {}

  std::string_view kind() const override { return kNcclKind; }
  std::vector<OutputInfo> infer(InferContext& context) const override { return op_.infer(context); }
  bool may_overwrite(int input, int count) const override {
    return op_.may_overwrite(input, count);
  }
  bool communicates() const override { return true; }
  void check(const KernelArgs& args) const override {
    const DistCollectiveParams& params = op_.params();
    const auto reject = [&](const auto&... parts) {
      fail("Layer '", args.layer, "': a collective of NCCL cannot be so: ", parts...,
           "; the file was not written by Opwright as it is");
    };
    if (args.inputs.size() != 1 || args.outputs.size() != 1 || !args.inputs[0].present)
      reject("it has ", args.inputs.size(), " inputs and ", args.outputs.size(), " outputs");
    if (const std::string fault = params.fault(); !fault.empty()) reject(fault);
    const PortType type = args.inputs[0].type;
    if (type.format != TensorFormat::kLINEAR || !can_exchange(params, type.dtype))
      reject("it is of ", str(type));
    if (args.outputs[0].type != type) reject("its input and its output differ in type");
    if (!args.packed.empty()) reject("it has weights that were rearranged for another kernel");
    if (reduces_in_group(params) != (reduction_ != nullptr))
      reject("the kernel that reduces is missing, or nothing is to be reduced by one");
    if (between_peers_ != nullptr) {
      if (!may_reduce_between_peers(params, args.inputs[0]))
        reject("a kernel is for less than it is");
      const PeerPorts ports(params, args);
      between_peers_->check(ports.args(args));
    }
    if (reduction_ == nullptr) return;
    const ReductionPorts ports(params, args);
    reduction_->check(ports.args(args));
  }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    std::unique_ptr<Kernel> reduction, between_peers;
    if (between_peers_ != nullptr) {
      const PeerPorts ports(op_.params(), args);
      between_peers = between_peers_->make_kernel(ports.args(args));
    }
    if (reduction_ != nullptr) {
      const ReductionPorts ports(op_.params(), args);
      reduction = reduction_->make_kernel(ports.args(args));
    }
    return std::make_unique<CollectiveKernel>(op_.params(), args, std::move(reduction),
                                              std::move(between_peers));
  }
  Attributes attributes() const override {
    Attributes attributes = op_.attributes();
    const auto add = [&](const PlannedOperatorPtr& kernel, const std::string& prefix) {
      if (kernel == nullptr) return;
      for (Attribute& attribute : kernel->attributes())
        attributes.push_back({prefix + attribute.name, std::move(attribute.value)});
    };
    add(reduction_, kReductionPrefix);
    add(between_peers_, kPeerPrefix);
    return attributes;
  }
  std::vector<CodeObject> code() const override {
    const PlannedOperatorPtr& kernel = reduction_ != nullptr ? reduction_ : between_peers_;
    return kernel != nullptr ? kernel->code() : std::vector<CodeObject>();
  }
  std::string metadata() const override {
    const DistCollectiveParams& params = op_.params();
    std::string text = describe(params) + " of ";
    if (params.groups.empty()) return text + str(params.num_ranks, " ranks");
    text += "ranks";
    for (const int64_t rank : params.groups) text += str(" ", rank);
    return text;
  }

  static PlannedOperatorPtr load(const Attributes& attributes, const OperatorLoadContext& context) {
    DistCollectiveParams params;
    AttributeReader reader(kNcclKind, attributes);
    params.visit(reader);
    const auto attributes_of = [&](const std::string& prefix) {
      Attributes own;
      for (const Attribute& attribute : attributes)
        if (attribute.name.starts_with(prefix))
          own.push_back({attribute.name.substr(prefix.size()), attribute.value});
      return own;
    };
    PlannedOperatorPtr reduction, between_peers;
    if (reduces_in_group(params)) {
      reduction = load_compiled_kernel(attributes_of(kReductionPrefix), context);
    } else if (const Attributes own = attributes_of(kPeerPrefix); !own.empty()) {
      between_peers = load_compiled_kernel(own, context);
    }
    return std::make_shared<NcclCollective>(std::move(params), std::move(reduction),
                                            std::move(between_peers));
  }

 private:
  const DistCollective op_;
  const PlannedOperatorPtr reduction_, between_peers_;
};

[[maybe_unused]] const bool is_nccl_registered = [] {
  register_operator_kind(std::string(kNcclKind), NcclCollective::load);
  return true;
}();

}  // namespace

PlannedOperatorPtr plan_nccl(const CudaDevice& device, const Operator& op, const KernelArgs& args) {
  const auto* const collective = dynamic_cast<const DistCollective*>(&op);
  if (collective == nullptr) return nullptr;
  const DistCollectiveParams& params = collective->params();
  const auto compile = [&](gpu::GeneratedKernel generated) {
    generated.launch.object =
        compile_cuda(device, generated.source, str("the reduction of layer '", args.layer, "'"),
                     args.hardware_compatibility, generated.is_for_one_architecture, args.gives_up);
    generated.launch.layer_kind = DistCollective::kKind;
    return make_compiled_kernel(std::move(generated.launch));
  };
  PlannedOperatorPtr reduction, between_peers;
  if (reduces_in_group(params)) {
    const ReductionPorts ports(params, args);
    reduction = compile(gpu::generate_rank_reduction(params, ports.args(args)));
  } else if (may_reduce_between_peers(params, args.inputs[0])) {
    const PeerPorts ports(params, args);
    between_peers = compile(gpu::generate_peer_all_reduce(params, ports.args(args)));
  }
  return std::make_shared<NcclCollective>(params, std::move(reduction), std::move(between_peers));
}

}  // namespace opwright::cuda
