#include "symbolic/expr.h"

#include <array>
#include <mutex>
#include <unordered_set>

#include "base/error.h"
#include "base/library.h"
#include "symbolic/expr_nodes.h"

namespace opwright {

struct Expr::Node : std::enable_shared_from_this<Expr::Node> {
  ExprOp op = ExprOp::kConstant;
  bool opaque = false;
  int64_t value = 0;  // a constant's value, or a symbol's id
  size_t hash = 0;
  std::vector<Expr> operands;
  Node* next_dead = nullptr;

  static std::shared_ptr<const Node> make(ExprOp op, int64_t value, std::vector<Expr> operands,
                                          bool opaque);
  static std::shared_ptr<const Node> share(ExprOp op, int64_t value, std::vector<Expr> operands,
                                           bool opaque);
  static void destroy(Node* node) noexcept;

 private:
  struct Hash {
    size_t operator()(const Node* n) const { return n->hash; }
  };
  struct Equal {
    bool operator()(const Node* a, const Node* b) const {
      return a->hash == b->hash && a->op == b->op && a->opaque == b->opaque &&
             a->value == b->value && a->operands == b->operands;
    }
  };
  // All living nodes except constants.
  struct Table {
    LibraryLock mutex;
    std::unordered_set<Node*, Hash, Equal> nodes;
  };
  static Table& table() { return Library::part<Table>(); }
};

namespace {

// The finalizer of splitmix64.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

std::shared_ptr<const Expr::Node> Expr::Node::make(ExprOp op, int64_t value,
                                                   std::vector<Expr> operands, bool opaque) {
  auto node = std::make_unique<Node>();
  node->op = op;
  node->opaque = opaque;
  node->value = value;
  uint64_t hash = mix(static_cast<uint64_t>(op) * 2 + opaque + 0x9e3779b97f4a7c15u);
  hash = mix(hash ^ static_cast<uint64_t>(value));
  for (const Expr& operand : operands) hash = mix(hash * 3 + operand.hash());
  node->hash = static_cast<size_t>(hash);
  node->operands = std::move(operands);
  return std::shared_ptr<Node>(node.release(), destroy);
}

std::shared_ptr<const Expr::Node> Expr::Node::share(ExprOp op, int64_t value,
                                                    std::vector<Expr> operands, bool opaque) {
  const auto node = std::const_pointer_cast<Node>(make(op, value, std::move(operands), opaque));
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const auto [found, inserted] = all.nodes.insert(node.get());
  if (inserted) return node;
  if (auto existing = (*found)->weak_from_this().lock()) return existing;
  // Another thread has just dropped the last reference to the existing node.
  all.nodes.erase(found);
  all.nodes.insert(node.get());
  return node;
}

// Destroys a chain of nodes of any length without recursion: operands that die with a node join the
// list of the loop that already runs.
void Expr::Node::destroy(Node* node) noexcept {
  thread_local Node* dead = nullptr;
  thread_local bool running = false;
  node->next_dead = dead;
  dead = node;
  if (running) return;
  running = true;
  while (Node* current = dead) {
    dead = current->next_dead;
    if (current->op != ExprOp::kConstant) {
      Table& all = table();
      const std::lock_guard lock(all.mutex);
      const auto found = all.nodes.find(current);
      if (found != all.nodes.end() && *found == current) all.nodes.erase(found);
    }
    delete current;
  }
  running = false;
}

Expr ExprNodes::make(ExprOp op, std::vector<Expr> operands, bool opaque) {
  return Expr(Expr::Node::share(op, 0, std::move(operands), opaque));
}

bool ExprNodes::is_opaque(const Expr& e) { return e.node_->opaque; }

bool ExprNodes::before(const Expr& a, const Expr& b) {
  if (a.node_ == b.node_) return false;
  const auto rank = [](const Expr& e) {
    return e.op() == ExprOp::kSymbol ? 0 : e.is_constant() ? 2 : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) != 1) return a.node_->value < b.node_->value;
  if (a.hash() != b.hash()) return a.hash() < b.hash();
  return std::less<>()(a.node_.get(), b.node_.get());
}

Expr::Expr() : Expr(0) {}

Expr::Expr(int64_t value) {
  constexpr int64_t kFirst = -8, kLast = 64;
  static const auto& common = *[] {
    auto* nodes = new std::array<std::shared_ptr<const Node>, kLast - kFirst + 1>;
    for (int64_t v = kFirst; v <= kLast; ++v)
      (*nodes)[v - kFirst] = Node::make(ExprOp::kConstant, v, {}, false);
    return nodes;
  }();
  node_ = value >= kFirst && value <= kLast ? common[value - kFirst]
                                            : Node::make(ExprOp::kConstant, value, {}, false);
}

Expr Expr::symbol(int id) {
  require(id >= 0, "a symbol's id is not negative, as ", id, " is");
  return Expr(Node::share(ExprOp::kSymbol, id, {}, false));
}

ExprOp Expr::op() const { return node_->op; }

int64_t Expr::constant() const {
  require(is_constant(), "the expression ", *this, " is not constant");
  return node_->value;
}

int Expr::symbol_id() const {
  require(op() == ExprOp::kSymbol, "the expression ", *this, " is not a symbol");
  return static_cast<int>(node_->value);
}

int Expr::arity() const { return static_cast<int>(node_->operands.size()); }

const Expr& Expr::operand(int i) const {
  require(i >= 0 && i < arity(), "the expression ", *this, " has no operand ", i);
  return node_->operands[static_cast<size_t>(i)];
}

size_t Expr::hash() const { return node_->hash; }

bool operator==(const Expr& a, const Expr& b) {
  return a.node_ == b.node_ ||
         (a.is_constant() && b.is_constant() && a.node_->value == b.node_->value);
}

bool Expr::depends_on(const std::vector<bool>& symbols) const {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> pending{node_.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    if (node->op == ExprOp::kSymbol) {
      const auto id = static_cast<size_t>(node->value);
      if (id < symbols.size() && symbols[id]) return true;
    }
    for (const Expr& operand : node->operands)
      if (!operand.is_constant() && seen.insert(operand.node_.get()).second)
        pending.push_back(operand.node_.get());
  }
  return false;
}

}  // namespace opwright
