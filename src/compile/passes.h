#pragma once

#include <span>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/profile_ranges.h"

namespace opwright {

/// Context of the passes, beside the graph.
struct PassContext {
  const Device& device;
  const BuilderConfig& config;
  const ProfileRanges& ranges;  ///< of the first profile
  bool strongly_typed = false;
  BuildBudget* budget = nullptr;                 ///< null: no limits
  bool fuses_attention = true;                   ///< whether attentions may become one step each
  std::span<const ProfileRanges> profiles = {};  ///< all profiles; empty: only `ranges`

  /// Every way to run the operator on these inputs with the network's types.
  std::vector<Candidate> candidates(const Operator& op, const GraphNode& like,
                                    const std::vector<GraphValue*>& inputs) const;
  /// Whether the operator may replace that of `like`, with these inputs, and the device can run it
  /// there with the network's types.
  bool can_run(const Operator& op, const GraphNode& like,
               const std::vector<GraphValue*>& inputs) const;
};

/// Whether the operator accepts these inputs and gives outputs of these shapes. Passes ask before
/// they replace operators: parameters that they combine from several layers may be such as no layer
/// allows. Not for Reshape, whose shape is the graph's.
bool fits(const Operator& op, std::string_view layer, const std::vector<GraphValue*>& inputs,
          const std::vector<GraphValue*>& outputs);

// Each pass leaves a graph that computes the same outputs. No pass removes nodes;
// Graph::remove_dead() removes useless ones.

/// Data decides some extents that broadcast to other extents: in a run they are equal to these
/// or 1. Plans for equal extents. Also plans for extents that must be at least as large as others.
void plan_for_layers(const Graph& graph, std::span<ProfileRanges> profiles);
/// Gives inputs views with the extents of other inputs or weights, where the extents have to be
/// equal. That is for inputs whose extents data decides, or a calculation whose bounds are too
/// wide. A run refuses a view if the extents differ. So the following layers are planned for
/// extents that fit each other.
void agree_extents(Graph& graph, const PassContext& context);
/// Lets layers that pick rows of a table read what the table is computed from, and computes only
/// the picked rows: of tables of bytes, and of those that are much larger than their constants.
void pick_rows(Graph& graph, const PassContext& context);
/// Moves bytes as they are instead of dequantizing, moving and quantizing them. Changes the type of
/// bytes where the other type has their zero point at 0.
void move_quantization(Graph& graph, const PassContext& context);
/// Lets convolutions and matrix products of operands that are dequantized by constant scales
/// multiply the bytes themselves, where the device does that fast.
void quantize_products(Graph& graph, const PassContext& context);
/// Turns element-wise layers into Pointwise programs, and Shuffle into Transpose and Reshape.
void lower(Graph& graph);
void lower(Graph& graph, GraphNode* node);
/// Drops nodes that change nothing: identities, casts to the same type, transposes that undo each
/// other, reshapes of reshapes.
void simplify(Graph& graph);
/// Takes small tensors whose elements are expressions from their producers.
void fold_shapes(Graph& graph);
/// Runs nodes that depend only on constants on the host, if the result is not much larger.
void fold_constants(Graph& graph, const PassContext& context);
/// Runs a node whose inputs are constants. Returns false, and leaves the node, where the host
/// cannot run it or the constants that are computed during the build would have too many bytes.
bool fold(Graph& graph, GraphNode* node, const PassContext& context);
/// The constant with its last two axes exchanged, computed before the node. Returns the constant
/// itself where the exchange cannot be computed.
GraphValue* exchange_last_axes(Graph& graph, GraphNode* before, GraphValue* constant,
                               const PassContext& context);
/// Computes the value, and what it is computed from, if all of it is constant. Returns whether it
/// is a constant then.
bool fold_behind_constants(Graph& graph, GraphValue* value, const PassContext& context);
/// Replaces equal nodes by one.
void merge_equal(Graph& graph);
/// Moves per-channel scales and shifts behind a convolution or matrix product with constant weights
/// into the weights and the bias.
void fold_scales(Graph& graph, const PassContext& context);
/// Turns explicit padding with zeros into padding of the following convolution or pooling. Drops
/// taps of a convolution that meet only padding.
void fold_padding(Graph& graph, const PassContext& context);
/// Replaces the operators that exporters write for a layer or RMS normalization by one.
void recognize_normalization(Graph& graph, const PassContext& context);
/// Where a device has a kernel for it, computes a normalization of groups of channels over many
/// pixels in two steps: statistics, and an element-wise program that joins its neighbours.
void split_normalizations(Graph& graph, const PassContext& context);
/// Replaces the operators that exporters write for a rotary embedding by one. Heads are turned
/// where they lie before a transposition.
void recognize_rotary_embedding(Graph& graph, const PassContext& context);
/// Replaces products, softmax and masks of an attention, and the nodes that move elements around
/// them, by one FusedAttention, where the device has a kernel for it.
void recognize_attention(Graph& graph, const PassContext& context);
/// Lets projections before and behind an attention compute rows in their own order, where batch and
/// length of these rows are exchanged in between. The attention reads and writes that order.
void swap_attention_axes(Graph& graph);
/// Where the channels of an image move behind its pixels, or back, moves them without joining the
/// pixels into one axis first: formats may have the channels there already.
void separate_pixels(Graph& graph);
/// Lets element-wise operations of constants and of tensors that are reshaped before and behind
/// them work without the reshapes, as where the masks of windows are added to an image's scores.
void skip_reshapes(Graph& graph, const PassContext& context);
/// Where a convolution of one tap reads joined channels, multiplies those that are the same at all
/// pixels only once.
void separate_spread(Graph& graph, const PassContext& context);
/// Joins products of one tensor and constant weights into one product, where they are operands of
/// an attention.
void merge_projections(Graph& graph, const PassContext& context);
/// Replaces the operators that exporters write for GELU by one activation.
void recognize_activations(Graph& graph);
/// Replaces a reshape, transpose and reshape that shuffle channels by one operator, which works in
/// every format.
void recognize_channel_shuffles(Graph& graph, const PassContext& context);
/// Where the device can, makes the concatenation before a channel shuffle and the split behind it
/// parts of the shuffle.
void split_channel_shuffles(Graph& graph, const PassContext& context);
/// On a host, replaces element-wise operations between two quantizations to bytes by a table of
/// their results, where the last result is a function of the first byte.
void tabulate_bytes(Graph& graph, const PassContext& context);
/// Joins element-wise operations between the same tensors into one program.
void fuse_pointwise(Graph& graph);
/// Lets a convolution or matrix product compute the residuals and activations behind it. With
/// `whole_programs` it computes all that Pointwise nodes behind it compute, where the device can.
void fuse_epilogues(Graph& graph, const PassContext& context, bool whole_programs);

/// Replaces the mean of an image's channels, two dense layers and the product of the image with
/// their result by one SqueezeExcitation, where the device has a kernel for it.
void recognize_squeeze_excitation(Graph& graph, const PassContext& context);
/// Drops roundings in programs to a type that the value already has, or in which the value is
/// stored.
void drop_roundings(Graph& graph);

/// On a host, convolutions of images of one column become those of images of one row: kernels work
/// on several elements of a row at once.
void lay_columns(Graph& graph, const PassContext& context);

/// Where a GPU's products may round to TF32, lays their constant matrices along k: a warpgroup
/// multiplies FP32 in no other order.
void turn_matrices(Graph& graph, const PassContext& context);

/// Runs all passes in order.
void run_passes(Graph& graph, const PassContext& context);

}  // namespace opwright
