#pragma once

#include <span>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/profile_ranges.h"

namespace opwright {

/// What passes may ask beside the graph.
struct PassContext {
  const Device& device;
  const BuilderConfig& config;
  const ProfileRanges& ranges;  ///< of the first profile
  bool strongly_typed = false;
  BuildBudget* budget = nullptr;                 ///< null: no limits
  bool fuses_attention = true;                   ///< whether attentions may become one step each
  std::span<const ProfileRanges> profiles = {};  ///< all of them; empty: `ranges` alone

  /// Every way to run the operator on these inputs with the network's types.
  std::vector<Candidate> candidates(const Operator& op, const GraphNode& like,
                                    const std::vector<GraphValue*>& inputs) const;
  /// Whether the operator may stand in the place of `like`, reading these inputs, and the device
  /// can run it there with the network's types.
  bool can_run(const Operator& op, const GraphNode& like,
               const std::vector<GraphValue*>& inputs) const;
};

/// Whether the operator takes these inputs, and makes of them what has the shapes of the outputs.
/// Passes ask before they put it there: parameters that they make of several layers' may be what no
/// layer allows. Not for Reshape, whose shape is the graph's.
bool fits(const Operator& op, std::string_view layer, const std::vector<GraphValue*>& inputs,
          const std::vector<GraphValue*>& outputs);

// Each pass leaves a graph that computes the same outputs. None removes nodes: what became useless
// goes with Graph::remove_dead().

/// Extents that data decides, and that broadcast to others, are planned to be those: a run may have
/// them so or as 1. Those that have to be as large as others are planned so.
void plan_for_layers(const Graph& graph, std::span<ProfileRanges> profiles);
/// Inputs whose extents data decides, or a calculation whose bounds are too wide, and which have to
/// be those of other inputs or of weights, become views that a run refuses in which they are
/// others: so what follows is planned for extents that fit each other.
void agree_extents(Graph& graph, const PassContext& context);
/// Bytes that are dequantized, moved and quantized again are moved as they are. Zero points that
/// the other type of bytes has at 0 go with that type.
void move_quantization(Graph& graph, const PassContext& context);
/// Convolutions and matrix products of what is dequantized by constant scales multiply the bytes
/// themselves, where the device does that fast.
void quantize_products(Graph& graph, const PassContext& context);
/// Element-wise layers become Pointwise programs, Shuffle becomes Transpose and Reshape.
void lower(Graph& graph);
void lower(Graph& graph, GraphNode* node);
/// Drops what changes nothing: identities, casts to the same type, transposes that undo each other,
/// reshapes of reshapes.
void simplify(Graph& graph);
/// Small tensors whose elements are expressions no longer come from a producer.
void fold_shapes(Graph& graph);
/// Runs what depends on constants alone, on the host, as long as the result is not much larger.
void fold_constants(Graph& graph, const PassContext& context);
/// Runs a node whose inputs are constants. False where the host cannot, or where constants that are
/// computed during the build would become too many; the node stays then.
bool fold(Graph& graph, GraphNode* node, const PassContext& context);
/// Makes equal nodes one.
void merge_equal(Graph& graph);
/// Per-channel scales and shifts after a convolution or matrix product with constant weights go
/// into the weights and the bias.
void fold_scales(Graph& graph, const PassContext& context);
/// Explicit padding with zeros becomes padding of the following convolution or pooling; taps of a
/// convolution that meet padding alone are left out.
void fold_padding(Graph& graph, const PassContext& context);
/// The operators that exporters write for a layer or RMS normalization become one.
void recognize_normalization(Graph& graph, const PassContext& context);
/// Products, softmax and masks of an attention, and what moves elements around them, become one
/// FusedAttention where the device has a kernel for it.
void recognize_attention(Graph& graph, const PassContext& context);
/// Projections before and behind an attention, whose rows others have exchanged batch and length
/// of, compute them as they lie, which the attention reads and writes.
void swap_attention_axes(Graph& graph);
/// Where the channels of an image move behind its pixels, or back, the pixels do not become one
/// axis before: formats may have the channels there already.
void separate_pixels(Graph& graph);
/// Products of one tensor and constant weights that are the operands of an attention become one
/// product.
void merge_projections(Graph& graph, const PassContext& context);
/// The operators that exporters write for GELU become one activation.
void recognize_activations(Graph& graph);
/// Reshape, transpose, reshape that shuffle channels become one operator, which works in every
/// format.
void recognize_channel_shuffles(Graph& graph, const PassContext& context);
/// Element-wise operations between the same tensors become one program.
void fuse_pointwise(Graph& graph);
/// Residuals and activations after a convolution or matrix product are computed by it; with
/// `whole_programs` all that Pointwise nodes compute, where the device can.
void fuse_epilogues(Graph& graph, const PassContext& context, bool whole_programs);

/// Programs do not round what has the type already, nor what is stored in it.
void drop_roundings(Graph& graph);

/// All of them in order.
void run_passes(Graph& graph, const PassContext& context);

}  // namespace opwright
