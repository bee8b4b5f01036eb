#include "backend/cuda/cublaslt_product.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/libraries.h"
#include "backend/gpu/product.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/matrix.h"
#include "operators/pointwise.h"
#include "opwright/runtime.h"
#include "plugin/kernel/compiled_kernel.h"

namespace opwright::cuda {
namespace {

constexpr std::string_view kKind = "CublasLtProduct";
constexpr LibraryName kCublasLt = {"cuBLASLt", "OPWRIGHT_CUBLASLT", "CUBLAS_LT"};
constexpr LibraryTactics kCublasLtTactics = {1000000, 4};
/// Prefix of the attributes of the kernel that runs behind the product.
const std::string kFusedPrefix = "fused_kernel.";
/// Workspace that the library may use: as much as NVIDIA recommends.
constexpr size_t kWorkspace = size_t{32} << 20;
/// Alignment of addresses that the library's best algorithms need.
constexpr uint32_t kAlignment = 16;

std::optional<CublasLt::Activation> activation_of(const FusedActivation& activation) {
  switch (activation.type) {
    case FusedActivation::kNone:
      return CublasLt::Activation::kNone;
    case static_cast<int32_t>(ActivationType::kRELU):
      return CublasLt::Activation::kRelu;
    case static_cast<int32_t>(ActivationType::kGELU_TANH):
      return CublasLt::Activation::kGeluTanh;
    default:
      return std::nullopt;
  }
}

/// Why the library cannot compute the layer with these ports; empty where it can.
std::string obstacle(const MatrixMultiplyParams& params, std::span<const PortDesc> inputs,
                     std::span<const PortDesc> outputs) {
  const size_t count = (params.has_bias ? 3 : 2) + static_cast<size_t>(params.fused.inputs());
  if (inputs.size() != count || outputs.size() != 1)
    return str("it has ", inputs.size(), " inputs and ", outputs.size(), " outputs, not ", count,
               " and 1");
  if (params.op0 == MatrixOperation::kVECTOR || params.op1 == MatrixOperation::kVECTOR)
    return "an input is a stack of vectors";
  if (!activation_of(params.activation)) return "its activation is none of RELU and GELU_TANH";
  for (const PortDesc& port : inputs) {
    if (!port.present) return "an input is absent";
    if (std::any_of(port.min.begin(), port.min.end(), [](int64_t extent) { return extent < 1; }))
      return "an extent may be 0";
  }
  if (inputs[0].max.rank() < 2 || inputs[1].max.rank() < 2 || outputs[0].max.rank() < 2)
    return "an input or the result is no matrix";
  if (params.has_bias)
    for (const Shape PortDesc::*which : {&PortDesc::min, &PortDesc::opt, &PortDesc::max}) {
      const Shape &bias = inputs[2].*which, &result = outputs[0].*which;
      if (bias.rank() == 0 || bias.numel() != result[result.rank() - 1] ||
          bias[bias.rank() - 1] != bias.numel())
        return "its bias is not one element for each column";
    }
  return {};
}

/// The products of a layer with concrete shapes.
struct Products {
  CublasLt::Product product;
  /// Offsets of the matrices in a, b and the result, in elements, where one call cannot do all
  /// products.
  std::vector<std::array<int64_t, 3>> offsets;

  Products(const MatrixMultiplyParams& params, DataType type, bool is_tf32, const Shape& a,
           const Shape& b, const Shape& result) {
    const auto stack_of = [](const Shape& shape) {
      return Shape(std::span(shape.begin(), shape.end() - 2));
    };
    const Shape a_stack = stack_of(a), b_stack = stack_of(b), stack = stack_of(result);
    product.type = type, product.is_tf32 = is_tf32;
    product.is_a_transposed = params.op0 == MatrixOperation::kTRANSPOSE;
    product.is_b_transposed = params.op1 == MatrixOperation::kTRANSPOSE;
    product.rows = result[result.rank() - 2], product.columns = result[result.rank() - 1];
    product.depth = a[a.rank() - (product.is_a_transposed ? 2 : 1)];
    product.has_bias = params.has_bias;
    product.activation = *activation_of(params.activation);
    const int64_t a_size = product.rows * product.depth, b_size = product.depth * product.columns;
    const int64_t count = stack.numel();
    const bool is_a_whole = a_stack.numel() == count, is_b_whole = b_stack.numel() == count;
    const bool is_a_single = a_stack.numel() == 1, is_b_single = b_stack.numel() == 1;
    if (is_b_single && is_a_whole && !product.is_a_transposed) {
      product.rows *= count;  // the rows of a's matrices form one matrix
    } else if ((is_a_whole || is_a_single) && (is_b_whole || is_b_single) &&
               count <= std::numeric_limits<int32_t>::max()) {
      product.count = count;
      product.a_stride = is_a_whole ? a_size : 0, product.b_stride = is_b_whole ? b_size : 0;
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const auto offset = [&](const Shape& of, int64_t size) {
          int64_t rest = i, place = 0, stride = size;
          for (int axis = stack.rank() - 1; axis >= 0; --axis) {
            const int own = axis - (stack.rank() - of.rank());
            const int64_t at = rest % stack[axis];
            rest /= stack[axis];
            if (own < 0) continue;
            if (of[own] != 1) place += at * stride;
            stride *= of[own];
          }
          return place;
        };
        offsets.push_back(
            {offset(a_stack, a_size), offset(b_stack, b_size), i * product.rows * product.columns});
      }
    }
  }
};

/// Ports of the kernel behind the product: the product's result, and the other operands of the
/// fused program.
struct FusedPorts {
  std::vector<PortDesc> inputs, outputs;
  Candidate candidate;

  FusedPorts(const MatrixMultiplyParams& params, const KernelArgs& args) {
    PortDesc product = args.outputs[0];
    product.type = args.candidate->inputs[0];
    inputs.push_back(std::move(product));
    const auto first = args.inputs.end() - params.fused.inputs();
    inputs.insert(inputs.end(), first, args.inputs.end());
    outputs.push_back(args.outputs[0]);
    for (const PortDesc& port : inputs) candidate.inputs.push_back(port.type);
    candidate.outputs.push_back(outputs[0].type);
    candidate.tactic_name = args.candidate->tactic_name;
  }
  KernelArgs args(const KernelArgs& of) const {
    KernelArgs args = of;
    args.candidate = &candidate, args.inputs = inputs, args.outputs = outputs, args.packed = {};
    args.inferred = {};
    return args;
  }
};

class ProductKernel final : public Kernel {
 public:
  /// `fused`: the kernel that runs behind the product, or null.
  ProductKernel(const CublasLt& library, const MatrixMultiplyParams& params, LibraryTactic tactic,
                const KernelArgs& args, std::unique_ptr<Kernel> fused)
      : library_(library),
        device_(static_cast<const CudaDevice&>(*args.device)),
        layer_(args.layer),
        params_(params),
        tactic_(tactic),
        type_(args.candidate->inputs[0].dtype),
        fused_(std::move(fused)) {
    prepare(args.inputs[0].opt, args.inputs[1].opt, args.outputs[0].opt);
    const bool is_fixed = std::all_of(args.inputs.begin(), args.inputs.end(),
                                      [](const PortDesc& port) { return port.min == port.max; });
    if (is_fixed) {
      workspace_ = 0;
      for (const Way& way : ways_) workspace_ = std::max(workspace_, way.algorithm.workspace);
    }
    if (fused_ == nullptr) return;
    const auto aligned = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    product_at_ = aligned(workspace_);
    fused_at_ =
        product_at_ + aligned(static_cast<size_t>(bytes_of(type_, args.outputs[0].max.numel())));
  }

  size_t workspace_size() const override {
    return fused_ != nullptr ? fused_at_ + fused_->workspace_size() : workspace_;
  }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    prepare(inputs[0], inputs[1], outputs[0]);
    if (fused_ == nullptr) return;
    std::vector<Shape> shapes = {outputs[0]};
    shapes.insert(shapes.end(), inputs.end() - params_.fused.inputs(), inputs.end());
    first_fused_ = inputs.size() - static_cast<size_t>(params_.fused.inputs());
    fused_inputs_.resize(shapes.size());
    fused_->on_shape_change(shapes, outputs);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    void* const product =
        fused_ != nullptr ? static_cast<std::byte*>(workspace) + product_at_ : outputs[0];
    const void* const bias = params_.has_bias ? inputs[2] : nullptr;
    const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
    const uintptr_t all =
        address(inputs[0]) | address(inputs[1]) | address(product) | address(bias);
    Way& way = ways_[are_offsets_aligned_ && all % kAlignment == 0 ? 0 : 1];
    require(way.plan != nullptr, "Layer '", layer_, "': cuBLASLt ", library_.version(),
            " has no algorithm for addresses that are no multiples of ", kAlignment,
            " bytes; align the engine's inputs and outputs, or build it without "
            "TacticSource.CUBLAS_LT");
    const int64_t size = bits(type_) / 8;
    for (const auto& [a, b, result] : offsets_)
      way.plan->run(way.algorithm, static_cast<const std::byte*>(inputs[0]) + a * size,
                    static_cast<const std::byte*>(inputs[1]) + b * size, bias,
                    static_cast<std::byte*>(product) + result * size, workspace, queue);
    if (fused_ == nullptr) return;
    fused_inputs_[0] = product;
    std::copy_n(inputs + first_fused_, fused_inputs_.size() - 1, fused_inputs_.begin() + 1);
    fused_->enqueue(fused_inputs_.data(), outputs, static_cast<std::byte*>(workspace) + fused_at_,
                    queue);
  }
  std::string description() const override { return "cuBLASLt"; }

 private:
  struct Way {
    std::unique_ptr<CublasLt::Plan> plan;
    CublasLt::Algorithm algorithm;
  };

  void prepare(const Shape& a, const Shape& b, const Shape& result) {
    Products products(params_, type_, tactic_.is_tf32, a, b, result);
    offsets_ = std::move(products.offsets);
    if (offsets_.empty()) offsets_.push_back({0, 0, 0});
    const auto element = static_cast<uint32_t>(bits(type_) / 8);
    are_offsets_aligned_ = std::all_of(offsets_.begin(), offsets_.end(), [&](const auto& each) {
      return (each[0] | each[1] | each[2]) * element % kAlignment == 0;
    });
    if (known_ == products.product) return;
    known_.reset();
    ways_[0] = find(products.product, kAlignment, tactic_.place);
    ways_[1] = find(products.product, element, 0);
    require(ways_[0].plan != nullptr, "Layer '", layer_, "': cuBLASLt ", library_.version(),
            " has no algorithm for ", str(products.product.rows), "x", products.product.columns,
            "x", products.product.depth, " of ", name(type_));
    known_ = products.product;
  }
  /// The algorithm at `place` of the library's list, or the last one: the list is shorter for some
  /// shapes.
  Way find(CublasLt::Product product, uint32_t alignment, int place) const {
    product.alignment = alignment;
    Way way;
    way.plan = library_.plan(device_, product);
    const std::vector<CublasLt::Algorithm> found = way.plan->algorithms(place + 1, workspace_);
    if (found.empty()) return {};
    way.algorithm = found.back();
    return way;
  }

  const CublasLt& library_;
  const CudaDevice& device_;
  const std::string layer_;
  const MatrixMultiplyParams params_;
  const LibraryTactic tactic_;
  const DataType type_;
  const std::unique_ptr<Kernel> fused_;
  size_t workspace_ = kWorkspace;
  size_t product_at_ = 0,
         fused_at_ = 0;  ///< places of the product and of the fused kernel's workspace, in the
                         ///< workspace
  size_t first_fused_ = 0;
  std::vector<const void*> fused_inputs_;
  std::optional<CublasLt::Product> known_;
  std::array<Way, 2> ways_;  ///< for aligned addresses, and for any addresses
  std::vector<std::array<int64_t, 3>> offsets_;
  bool are_offsets_aligned_ = true;
};

class CublasLtProduct final : public PlannedOperator {
 public:
  /// `fused`: the compiled kernel that runs behind the product, or null.
  CublasLtProduct(MatrixMultiplyParams params, std::string version, PlannedOperatorPtr fused)
      : op_(std::move(params)), version_(std::move(version)), fused_(std::move(fused)) {}

  std::string_view kind() const override { return kKind; }
  std::vector<OutputInfo> infer(InferContext& context) const override { return op_.infer(context); }
  bool may_overwrite(int input, int count) const override {
    return op_.may_overwrite(input, count);
  }
  void check(const KernelArgs& args) const override {
    const auto reject = [&](const auto&... parts) {
      fail("Layer '", args.layer, "': a product of cuBLASLt cannot be so: ", parts...,
           "; the file was not written by Opwright as it is");
    };
    if (const std::string reason = obstacle(op_.params(), args.inputs, args.outputs);
        !reason.empty())
      reject(reason);
    const PortType type = args.candidate->inputs[0];
    if (!is_library_type(type.dtype) || type.format != TensorFormat::kLINEAR)
      reject("it is of ", str(type));
    const auto is_of_type = [&](const PortDesc& port) { return port.type == type; };
    const auto own =
        args.inputs.first(args.inputs.size() - static_cast<size_t>(op_.params().fused.inputs()));
    if (!std::all_of(own.begin(), own.end(), is_of_type) ||
        (fused_ == nullptr && !is_of_type(args.outputs[0])))
      reject("its inputs and its output differ in type");
    if (op_.params().fused.present() != (fused_ != nullptr))
      reject("the kernel of what is fused into it is missing, or nothing is fused into it");
    if (!kCublasLtTactics.find(args.candidate->tactic))
      reject("it has the tactic ", args.candidate->tactic);
    if (!args.packed.empty()) reject("it has weights that were rearranged for another kernel");
    if (fused_ == nullptr) return;
    const FusedPorts ports(op_.params(), args);
    fused_->check(ports.args(args));
  }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    const auto& library = library_for<CublasLt>(args.layer);
    std::unique_ptr<Kernel> fused;
    if (fused_ != nullptr) {
      const FusedPorts ports(op_.params(), args);
      fused = fused_->make_kernel(ports.args(args));
    }
    return std::make_unique<ProductKernel>(library, op_.params(),
                                           kCublasLtTactics.find(args.candidate->tactic).value(),
                                           args, std::move(fused));
  }
  Attributes attributes() const override {
    Attributes attributes = op_.attributes();
    attributes.push_back({"library_version", version_});
    if (fused_ == nullptr) return attributes;
    for (Attribute& attribute : fused_->attributes())
      attributes.push_back({kFusedPrefix + attribute.name, std::move(attribute.value)});
    return attributes;
  }
  std::vector<CodeObject> code() const override {
    return fused_ != nullptr ? fused_->code() : std::vector<CodeObject>();
  }
  std::string metadata() const override { return "cuBLASLt " + version_; }
  uint32_t tactic_sources() const override {
    return 1U << static_cast<uint32_t>(TacticSource::kCUBLAS_LT);
  }

  static PlannedOperatorPtr load(const Attributes& attributes, const OperatorLoadContext& context) {
    MatrixMultiplyParams params;
    AttributeReader reader(kKind, attributes);
    params.visit(reader);
    std::string version;
    reader("library_version", version);
    if (context.device != nullptr) require_version<CublasLt>(context.layer, kCublasLt, version);
    PlannedOperatorPtr fused;
    if (params.fused.present()) {
      Attributes own;
      for (const Attribute& attribute : attributes)
        if (attribute.name.starts_with(kFusedPrefix))
          own.push_back({attribute.name.substr(kFusedPrefix.size()), attribute.value});
      fused = load_compiled_kernel(own, context);
    }
    return std::make_shared<CublasLtProduct>(std::move(params), std::move(version),
                                             std::move(fused));
  }

 private:
  const MatrixMultiply op_;
  const std::string version_;
  const PlannedOperatorPtr fused_;
};

[[maybe_unused]] const bool is_registered = [] {
  register_operator_kind(std::string(kKind), CublasLtProduct::load);
  return true;
}();

}  // namespace

void add_cublaslt_candidates(const Operator& op, const CandidateQuery& query,
                             std::vector<Candidate>& candidates) {
  const auto* const product = dynamic_cast<const MatrixMultiply*>(&op);
  const uint32_t allowed = 1U << static_cast<uint32_t>(TacticSource::kCUBLAS_LT);
  if (product == nullptr || (query.tactic_sources & allowed) == 0) return;
  if (!obstacle(product->params(), query.inputs, query.outputs).empty()) return;
  std::string reason;
  const CublasLt* const library = CublasLt::find(reason);
  for (const DataType type : gpu::product_types(query)) {
    if (!is_library_type(type)) continue;
    Candidate candidate;
    candidate.inputs.assign(query.inputs.size(), {type});
    candidate.outputs = {{type}};
    if (const FusedProgram& fused = product->params().fused; fused.present()) {
      // The fused program reads and writes the network's types.
      if (type != query.inputs[0].type.dtype) continue;
      for (size_t i = query.inputs.size() - static_cast<size_t>(fused.inputs());
           i < query.inputs.size(); ++i)
        candidate.inputs[i] = {query.inputs[i].type.dtype};
      candidate.outputs = {{query.outputs[0].type.dtype}};
    }
    if (library == nullptr) {
      candidate.tactic = kCublasLtTactics.first, candidate.tactic_name = "cuBLASLt";
      if (query.dropped != nullptr) query.dropped->push_back({candidate, reason});
      return;
    }
    for (const bool is_tf32 : {false, true}) {
      if (is_tf32 && (type != DataType::kFLOAT || !query.tf32)) continue;
      for (int place = 0; place < kCublasLtTactics.places; ++place) {
        candidate.tactic = kCublasLtTactics.number({place, is_tf32});
        candidate.tactic_name =
            str("cuBLASLt ", library->version(), is_tf32 ? ", TF32" : "", ", algorithm ", place);
        candidates.push_back(candidate);
      }
    }
  }
}

PlannedOperatorPtr plan_cublaslt(const CudaDevice& device, const Operator& op,
                                 const KernelArgs& args) {
  const std::optional<LibraryTactic> tactic = kCublasLtTactics.find(args.candidate->tactic);
  const auto* const product = dynamic_cast<const MatrixMultiply*>(&op);
  if (!tactic || product == nullptr) return nullptr;
  const auto& library = library_for<CublasLt>(args.layer);
  const DeviceScope scope(device);
  const Products products(product->params(), args.candidate->inputs[0].dtype, tactic->is_tf32,
                          args.inputs[0].opt, args.inputs[1].opt, args.outputs[0].opt);
  const size_t found =
      library.plan(device, products.product)->algorithms(tactic->place + 1, kWorkspace).size();
  require(static_cast<size_t>(tactic->place) < found, "Layer '", args.layer, "': cuBLASLt ",
          library.version(), " has ", found, found == 1 ? " algorithm" : " algorithms",
          " for it that give the same bits in every run");
  PlannedOperatorPtr fused;
  if (product->params().fused.present()) {
    const Pointwise pointwise(product->params().fused.program);
    FusedPorts ports(product->params(), args);
    CandidateQuery query;
    query.layer = args.layer, query.inputs = ports.inputs, query.outputs = ports.outputs;
    query.device = &device, query.strongly_typed = true;
    query.hardware_compatibility = args.hardware_compatibility;
    const std::vector<Candidate> all = device.candidates(pointwise, query);
    const auto fits = std::ranges::find_if(all, [&](const Candidate& each) {
      return each.inputs == ports.candidate.inputs && each.outputs == ports.candidate.outputs;
    });
    require(fits != all.end(), "Layer '", args.layer,
            "': there is no kernel for what is fused into it");
    ports.candidate = *fits;
    fused = device.compile(pointwise, ports.args(args));
    require(fused != nullptr, "Layer '", args.layer, "': what is fused into it has no kernel");
  }
  return std::make_shared<CublasLtProduct>(product->params(), library.version(), std::move(fused));
}

}  // namespace opwright::cuda
