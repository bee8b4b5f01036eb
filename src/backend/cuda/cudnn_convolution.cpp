#include "backend/cuda/cudnn_convolution.h"

#include <algorithm>
#include <optional>

#include "backend/candidates.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/libraries.h"
#include "backend/gpu/product.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/convolution.h"
#include "opwright/runtime.h"

namespace opwright::cuda {
namespace {

constexpr std::string_view kCudnnKind = "CudnnConvolution";
constexpr LibraryName kCudnn = {"cuDNN", "OPWRIGHT_CUDNN", "CUDNN"};
constexpr LibraryTactics kCudnnTactics = {2000000, 4};
/// Bytes that an engine may take at most.
constexpr size_t kCudnnWorkspace = size_t{64} << 20;
constexpr uint32_t kCudnnAlignment = 16;

std::optional<Cudnn::Activation> cudnn_activation(const FusedActivation& activation) {
  switch (activation.type) {
    case FusedActivation::kNone:
      return Cudnn::Activation::kNone;
    case static_cast<int32_t>(ActivationType::kRELU):
      return Cudnn::Activation::kRelu;
    case static_cast<int32_t>(ActivationType::kSIGMOID):
      return Cudnn::Activation::kSigmoid;
    case static_cast<int32_t>(ActivationType::kTANH):
      return Cudnn::Activation::kTanh;
    default:
      return std::nullopt;
  }
}

/// Indices of the bias and of the residual among the inputs, -1 for none.
struct ConvolutionInputs {
  int bias = -1, residual = -1;
  ConvolutionInputs(const ConvolutionParams& params, std::span<const PortDesc> inputs) {
    const int count = static_cast<int>(inputs.size());
    if (params.has_residual) residual = count - 1;
    if (count > 2 && residual != 2 && inputs[2].present) bias = 2;
  }
};

/// Why the library cannot compute the layer with these ports; empty where it can.
std::string cudnn_obstacle(const ConvolutionParams& params, std::span<const PortDesc> inputs,
                           std::span<const PortDesc> outputs) {
  if (params.fused.present()) return "a program is fused into it";
  if (params.zero_point != 0) return "it has a zero point";
  if (!cudnn_activation(params.activation))
    return "its activation is none of RELU, SIGMOID and TANH";
  if (inputs.size() < 2 || inputs.size() > 4 || outputs.size() != 1)
    return str("it has ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  const int rank = inputs[0].max.rank();
  if (rank < 3 || rank > 5 || inputs[1].max.rank() != rank || outputs[0].max.rank() != rank)
    return "its tensors have not 1 to 3 spatial axes";
  const ConvolutionInputs of(params, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_needed = i < 2 || std::cmp_equal(i, of.bias) || std::cmp_equal(i, of.residual);
    if (!is_needed) continue;
    if (!inputs[i].present) return "an input is absent";
    if (std::ranges::any_of(inputs[i].min, [](int64_t extent) { return extent < 1; }))
      return "an extent may be 0";
  }
  if (std::ranges::any_of(outputs[0].min, [](int64_t extent) { return extent < 1; }))
    return "an extent of its result may be 0";
  return {};
}

/// Describes the convolution to the library. One spatial axis becomes two, the new one of extent 1.
Cudnn::Convolution describe_convolution(const ConvolutionParams& params,
                                        const ConvolutionInputs& of, PortType type, bool is_tf32,
                                        const Shape& x, const Shape& kernel, const Shape& y) {
  Cudnn::Convolution made;
  made.type = type.dtype, made.is_tf32 = is_tf32;
  made.is_channels_last = type.format != TensorFormat::kLINEAR;
  made.has_bias = of.bias >= 0, made.has_residual = of.residual >= 0;
  made.activation = *cudnn_activation(params.activation);
  made.alignment = kCudnnAlignment;
  const bool widens = x.rank() == 3;
  const auto extents = [&](const Shape& shape) {
    std::vector<int64_t> all(shape.begin(), shape.end());
    if (widens) all.insert(all.begin() + 2, 1);
    return all;
  };
  made.x = extents(x), made.kernel = extents(kernel), made.y = extents(y);
  const ResolvedPadding padding = resolve_padding(params, x, kernel);
  const auto per_axis = [&](const Ints& given, int64_t otherwise) {
    std::vector<int64_t> all;
    if (widens) all.push_back(otherwise);
    for (int axis = 0; axis + 2 < x.rank(); ++axis)
      all.push_back(given.empty() ? otherwise : given[static_cast<size_t>(axis)]);
    return all;
  };
  made.stride = per_axis(params.stride, 1), made.dilation = per_axis(params.dilation, 1);
  made.pre_padding = per_axis(padding.pre, 0), made.post_padding = per_axis(padding.post, 0);
  return made;
}

class CudnnKernel final : public Kernel {
 public:
  CudnnKernel(const Cudnn& library, const ConvolutionParams& params, LibraryTactic tactic,
              const KernelArgs& args)
      : library_(library),
        device_(static_cast<const CudaDevice&>(*args.device)),
        layer_(args.layer),
        params_(params),
        tactic_(tactic),
        type_(args.candidate->inputs[0]),
        inputs_(params, args.inputs) {
    prepare(args.inputs[0].opt, args.inputs[1].opt, args.outputs[0].opt);
    const bool is_fixed = std::ranges::all_of(
        args.inputs, [](const PortDesc& port) { return !port.present || port.min == port.max; });
    if (is_fixed) workspace_ = plan_->workspace();
  }

  size_t workspace_size() const override { return workspace_; }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    prepare(inputs[0], inputs[1], outputs[0]);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const void* const bias = inputs_.bias >= 0 ? inputs[inputs_.bias] : nullptr;
    const void* const residual = inputs_.residual >= 0 ? inputs[inputs_.residual] : nullptr;
    const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
    const uintptr_t all = address(inputs[0]) | address(inputs[1]) | address(bias) |
                          address(residual) | address(outputs[0]);
    require(all % kCudnnAlignment == 0, "Layer '", layer_, "': a convolution of cuDNN ",
            library_.version(), " takes addresses that are multiples of ", kCudnnAlignment,
            " bytes; align the engine's inputs and outputs, or build it without "
            "TacticSource.CUDNN");
    plan_->run(inputs[0], inputs[1], bias, residual, outputs[0], workspace, queue);
  }
  std::string description() const override { return "cuDNN"; }

 private:
  void prepare(const Shape& x, const Shape& kernel, const Shape& y) {
    Cudnn::Convolution convolution =
        describe_convolution(params_, inputs_, type_, tactic_.is_tf32, x, kernel, y);
    if (known_ == convolution) return;
    known_.reset();
    const DeviceScope scope(device_);
    // Takes the engine at the tactic's place, or the last one: the list is shorter for some shapes.
    const auto found = library_.plans(device_, convolution, tactic_.place + 1, workspace_);
    require(!found.empty(), "Layer '", layer_, "': cuDNN ", library_.version(),
            " has no engine for a convolution of ", x, " with a kernel of ", kernel,
            " that gives the same bits in every run");
    plan_ = found.back();
    known_ = std::move(convolution);
  }

  const Cudnn& library_;
  const CudaDevice& device_;
  const std::string layer_;
  const ConvolutionParams params_;
  const LibraryTactic tactic_;
  const PortType type_;
  const ConvolutionInputs inputs_;
  size_t workspace_ = kCudnnWorkspace;
  std::optional<Cudnn::Convolution> known_;
  std::shared_ptr<const Cudnn::Plan> plan_;
};

class CudnnConvolution final : public PlannedOperator {
 public:
  CudnnConvolution(ConvolutionParams params, std::string version)
      : op_(std::move(params)), version_(std::move(version)) {}

  std::string_view kind() const override { return kCudnnKind; }
  std::vector<OutputInfo> infer(InferContext& context) const override { return op_.infer(context); }
  bool may_overwrite(int input, int count) const override {
    // Tensors of a graph of operations do not overlap.
    (void)input, (void)count;
    return false;
  }
  void check(const KernelArgs& args) const override {
    const auto reject = [&](const auto&... parts) {
      fail("Layer '", args.layer, "': a convolution of cuDNN cannot be so: ", parts...,
           "; the file was not written by Opwright as it is");
    };
    if (const std::string reason = cudnn_obstacle(op_.params(), args.inputs, args.outputs);
        !reason.empty())
      reject(reason);
    const PortType type = args.candidate->inputs[0];
    const bool is_last = type.format == TensorFormat::kHWC || type.format == TensorFormat::kDHWC;
    if (!is_library_type(type.dtype) || (type.format != TensorFormat::kLINEAR && !is_last))
      reject("it is of ", str(type));
    const ConvolutionInputs of(op_.params(), args.inputs);
    const auto require_type = [&](const PortDesc& port) {
      if (port.type != type) reject("its tensors differ in type or format");
    };
    require_type(args.inputs[1]), require_type(args.outputs[0]);
    if (of.residual >= 0) require_type(args.inputs[static_cast<size_t>(of.residual)]);
    if (of.bias >= 0 && (args.inputs[2].type != PortType{type.dtype}))
      reject("its bias is of ", str(args.inputs[2].type));
    if (!kCudnnTactics.find(args.candidate->tactic))
      reject("it has the tactic ", args.candidate->tactic);
    if (!args.packed.empty()) reject("it has weights that were rearranged for another kernel");
  }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    const auto& library = library_for<Cudnn>(args.layer);
    return std::make_unique<CudnnKernel>(library, op_.params(),
                                         kCudnnTactics.find(args.candidate->tactic).value(), args);
  }
  Attributes attributes() const override {
    Attributes attributes = op_.attributes();
    attributes.push_back({"library_version", version_});
    return attributes;
  }
  std::vector<CodeObject> code() const override { return {}; }
  std::string metadata() const override { return "cuDNN " + version_; }
  uint32_t tactic_sources() const override {
    return 1U << static_cast<uint32_t>(TacticSource::kCUDNN);
  }

  static PlannedOperatorPtr load(const Attributes& attributes, const OperatorLoadContext& context) {
    ConvolutionParams params;
    AttributeReader reader(kCudnnKind, attributes);
    params.visit(reader);
    std::string version;
    reader("library_version", version);
    if (context.device != nullptr) require_version<Cudnn>(context.layer, kCudnn, version);
    return std::make_shared<CudnnConvolution>(std::move(params), std::move(version));
  }

 private:
  const Convolution op_;
  const std::string version_;
};

[[maybe_unused]] const bool is_cudnn_registered = [] {
  register_operator_kind(std::string(kCudnnKind), CudnnConvolution::load);
  return true;
}();

}  // namespace

void add_cudnn_candidates(const Operator& op, const CandidateQuery& query,
                          std::vector<Candidate>& candidates) {
  const auto* const convolution = dynamic_cast<const Convolution*>(&op);
  const uint32_t allowed = 1U << static_cast<uint32_t>(TacticSource::kCUDNN);
  if (convolution == nullptr || (query.tactic_sources & allowed) == 0) return;
  const ConvolutionParams& params = convolution->params();
  if (!cudnn_obstacle(params, query.inputs, query.outputs).empty()) return;
  std::string reason;
  const Cudnn* const library = Cudnn::find(reason);
  const ConvolutionInputs of(params, query.inputs);
  for (const DataType type : gpu::product_types(query)) {
    if (!is_library_type(type)) continue;
    for (const TensorFormat format : formats_of(query, query.inputs[0].opt.rank())) {
      Candidate candidate;
      candidate.inputs.assign(query.inputs.size(), {type});
      candidate.inputs[0] = candidate.inputs[1] = {type, format};
      if (of.residual >= 0) candidate.inputs[static_cast<size_t>(of.residual)] = {type, format};
      candidate.outputs = {{type, format}};
      if (library == nullptr) {
        candidate.tactic = kCudnnTactics.first, candidate.tactic_name = "cuDNN";
        if (query.dropped != nullptr) query.dropped->push_back({candidate, reason});
        return;
      }
      for (const bool is_tf32 : {false, true}) {
        if (is_tf32 && (type != DataType::kFLOAT || !query.tf32)) continue;
        for (int place = 0; place < kCudnnTactics.places; ++place) {
          candidate.tactic = kCudnnTactics.number({place, is_tf32});
          candidate.tactic_name =
              str("cuDNN ", library->version(), is_tf32 ? ", TF32" : "", ", engine ", place);
          candidates.push_back(candidate);
        }
      }
    }
  }
}

PlannedOperatorPtr plan_cudnn(const CudaDevice& device, const Operator& op,
                              const KernelArgs& args) {
  const std::optional<LibraryTactic> tactic = kCudnnTactics.find(args.candidate->tactic);
  const auto* const convolution = dynamic_cast<const Convolution*>(&op);
  if (!tactic || convolution == nullptr) return nullptr;
  const auto& library = library_for<Cudnn>(args.layer);
  const DeviceScope scope(device);
  const ConvolutionInputs of(convolution->params(), args.inputs);
  const Cudnn::Convolution described =
      describe_convolution(convolution->params(), of, args.candidate->inputs[0], tactic->is_tf32,
                           args.inputs[0].opt, args.inputs[1].opt, args.outputs[0].opt);
  const size_t found = library.plans(device, described, tactic->place + 1, kCudnnWorkspace).size();
  require(static_cast<size_t>(tactic->place) < found, "Layer '", args.layer, "': cuDNN ",
          library.version(), " has ", found, found == 1 ? " engine" : " engines",
          " for it that give the same bits in every run");
  return std::make_shared<CudnnConvolution>(convolution->params(), library.version());
}

}  // namespace opwright::cuda
