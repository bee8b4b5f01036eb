#include "compile/profile_nodes.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "operators/matrix.h"
#include "operators/normalization.h"

namespace opwright {
namespace {

/// The node as a product whose rows lie as they are stored and whose constant matrix has its
/// columns along k; null for other nodes.
const MatrixMultiply* row_product(const GraphNode* node) {
  const auto* product = node != nullptr ? node->as<MatrixMultiply>() : nullptr;
  if (product == nullptr || product->params().op0 != MatrixOperation::kNONE ||
      product->params().op1 != MatrixOperation::kTRANSPOSE || !node->inputs[1]->is_constant() ||
      node->inputs[1]->info.dims.size() != 2)
    return nullptr;
  return product;
}

bool is_row(const GraphValue* value, const Expr& length) {
  return value != nullptr && value->is_constant() && !value->info.dims.empty() &&
         value->info.dims.back() == length && value->is_single(1);
}

class RowJoining {
 public:
  RowJoining(const Graph& graph, const PassContext& context, const GraphNode& node)
      : graph_(graph), context_(context), node_(node), product_(row_product(&node)) {}

  /// Returns a node that does the work of the node and of its neighbours; null where there is none.
  std::unique_ptr<GraphNode> join() const {
    if (product_ == nullptr ||
        (product_->params().has_bias && !is_row(node_.inputs[2], node_.inputs[1]->info.dims[0])))
      return nullptr;
    for (const size_t second : {find_second(), size_t{0}})
      for (const GraphNode* normalization : {find_normalization(second), kNone})
        if (second > 0 || normalization != nullptr)
          if (auto result = join(normalization, second)) return result;
    return nullptr;
  }

 private:
  static constexpr const GraphNode* kNone = nullptr;

  /// Number of the product's own inputs. The program's inputs stand behind them.
  size_t own_inputs() const { return node_.inputs.size() - product_->params().fused.inputs(); }

  /// Number of the program's input that is a product of the same rows and that nothing else reads;
  /// 0 where there is none.
  size_t find_second() const {
    for (size_t i = own_inputs(); i < node_.inputs.size(); ++i) {
      const GraphValue& value = *node_.inputs[i];
      const MatrixMultiply* const other = row_product(value.producer);
      if (other == nullptr || graph_.single_user(value) != &node_ || value.stored_type ||
          graph_.use_count(value) != 1 || !may_join(*value.producer, node_))
        continue;
      const MatrixMultiplyParams& params = other->params();
      const GraphNode& producer = *value.producer;
      if (producer.inputs[0] == node_.inputs[0] &&
          producer.inputs[1]->info.dims == node_.inputs[1]->info.dims &&
          producer.inputs[1]->info.dtype == node_.inputs[1]->info.dtype && !params.has_bias &&
          !params.activation.present() && !params.fused.present())
        return i;
    }
    return 0;
  }

  /// The normalization that makes the rows and that nothing else reads; null where there is none.
  const GraphNode* find_normalization(size_t second) const {
    const GraphValue& rows = *node_.inputs[0];
    const GraphNode* const made = rows.producer;
    const auto* op = made != nullptr ? made->as<Normalization>() : nullptr;
    if (op == nullptr || !op->params().rms || op->params().num_groups != 1 ||
        op->params().axes != int64_t{1} << (rows.info.dims.size() - 1) ||
        made->input(2) != nullptr || !is_row(made->input(1), rows.info.dims.back()) ||
        graph_.is_kept(rows) || rows.stored_type || rows.is_stored || !may_join(*made, node_))
      return nullptr;
    const GraphNode* const other = second > 0 ? node_.inputs[second]->producer : nullptr;
    const auto reads = [&](const GraphValue::Use& use) {
      return use.input == 0 && (use.node == &node_ || use.node == other);
    };
    return std::ranges::all_of(rows.uses, reads) ? made : nullptr;
  }

  std::unique_ptr<GraphNode> join(const GraphNode* normalization, size_t second) const {
    RowProductParams params;
    static_cast<MatrixMultiplyParams&>(params) = product_->params();
    auto result = std::make_unique<GraphNode>(node_);
    result->parts = nullptr;
    result->members = {&node_};
    const auto add = [&](const GraphNode* member) {
      opwright::join(*member, *result);
      result->members.push_back(member);
    };
    if (second > 0) {
      const GraphNode* const other = node_.inputs[second]->producer;
      params.fused.places[second - own_inputs()] = static_cast<int64_t>(FusedPlace::kProduct);
      result->inputs[second] = other->inputs[1];
      add(other);
    }
    if (normalization != nullptr) {
      params.normalizes = true;
      params.epsilon = normalization->as<Normalization>()->params().epsilon;
      result->inputs[0] = normalization->inputs[0];
      result->inputs.insert(result->inputs.begin() + static_cast<std::ptrdiff_t>(own_inputs()),
                            normalization->inputs[1]);
      add(normalization);
    }
    result->op = std::make_shared<RowProduct>(std::move(params));
    return context_.can_run(*result->op, *result, result->inputs) ? std::move(result) : nullptr;
  }

  const Graph& graph_;
  const PassContext& context_;
  const GraphNode& node_;
  const MatrixMultiply* const product_;
};

}  // namespace

ProfileNodes::ProfileNodes(const Graph& graph, const PassContext& context) : all_(graph.nodes()) {
  std::unordered_set<const GraphNode*> gone;
  for (GraphNode*& node : all_) {
    std::unique_ptr<GraphNode> joined = RowJoining(graph, context, *node).join();
    if (joined == nullptr) continue;
    gone.insert(joined->members.begin() + 1, joined->members.end());
    node = joined.get();
    joined_.push_back(std::move(joined));
  }
  std::erase_if(all_, [&](const GraphNode* node) { return gone.contains(node); });
}

}  // namespace opwright
