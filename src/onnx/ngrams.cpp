// TfIdfVectorizer for integers.

#include <algorithm>
#include <optional>
#include <set>

#include "onnx/importer.h"
#include "operators/scatter.h"

namespace opwright::onnx {
namespace {

using Op = ElementWiseOperation;

/// The n-grams of one length, one behind the other.
struct Grams {
  int64_t length = 1;
  std::span<const int64_t> elements;
  int64_t count() const { return static_cast<int64_t>(elements.size()) / length; }
};

struct Pool {
  std::vector<Grams> grams;  ///< sorted by length: 1, 2, ...
  int64_t count = 0;
};

const Ints& ints_of(const NodeImporter& node, std::string_view name) {
  const AttributeProto* a = node.attribute(name, AttributeProto::Type::kInts);
  if (a == nullptr) node.error("the attribute '", name, "' is missing");
  return a->ints;
}

Pool pool_of(const NodeImporter& node, const Ints& elements, const Ints& starts) {
  Pool pool;
  const auto size = static_cast<int64_t>(elements.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : size;
    const auto length = static_cast<int64_t>(i) + 1;
    if (begin < 0 || end < begin || end > size || (end - begin) % length != 0)
      node.error("ngram_counts says that the ", length, "-grams are the elements ", begin, " to ",
                 end, " of ", size, "; expected ascending places, and whole n-grams between them");
    pool.grams.push_back({length, std::span(elements).subspan(static_cast<size_t>(begin),
                                                              static_cast<size_t>(end - begin))});
    pool.count += pool.grams.back().count();
  }
  return pool;
}

/// The number of times that each n-gram occurs in the rows of `x`, [rows, elements], with its
/// elements `distance` apart: FP32 [rows, n-grams].
Tensor* occurrences(NodeImporter& node, Tensor* x, const Grams& grams, int64_t distance) {
  const Expr rows = x->dims()[0], extent = x->dims()[1];
  const Expr places = max(extent - (grams.length - 1) * distance, 0);
  Tensor* is_there = nullptr;
  for (int64_t i = 0; i < grams.length; ++i) {
    const int64_t count = grams.count();
    Blob own = Blob::make(static_cast<size_t>(count) * sizeof(int64_t), [&](void* to) {
      for (int64_t k = 0; k < count; ++k)
        static_cast<int64_t*>(to)[k] = grams.elements[static_cast<size_t>(k * grams.length + i)];
    });
    Tensor* wanted =
        node.network().add_constant(DataType::kINT64, Shape{1, 1, count}, std::move(own));
    Tensor* found =
        node.slice(x, {Expr(0), Expr::make(ExprOp::kMin, extent, i * distance)}, {rows, places});
    Tensor* equal = node.elementwise(Op::kEQUAL, node.unsqueeze(found, {2}), wanted);
    is_there = is_there == nullptr ? equal : node.elementwise(Op::kAND, is_there, equal);
  }
  return node.reduce(ReduceOperation::kSUM, node.cast(is_there, DataType::kFLOAT), {1}, false);
}

/// Counts n-grams by tables: one maps an element to its number in the pool, others map a sequence
/// of such numbers to its n-gram.
class NgramTables {
 public:
  /// Nothing where the tables would be too large, or an n-gram occurs twice.
  static std::optional<NgramTables> make(NodeImporter& node, const Pool& pool, int64_t shortest,
                                         int64_t longest) {
    NgramTables tables(node, pool);
    tables.none_ = static_cast<int32_t>(pool.count);
    if (!tables.number_elements() || !tables.number_grams(shortest, longest)) return std::nullopt;
    return tables;
  }

  /// FP32 [rows, n-grams], for n-grams whose elements are up to `skips` + 1 apart.
  Tensor* count(Tensor* x, int64_t skips) {
    Tensor* bounded = node_.elementwise(Op::kMAX, x, static_cast<double>(low_ - 1));
    bounded = node_.elementwise(Op::kMIN, bounded, static_cast<double>(high_ + 1));
    Tensor* place = node_.elementwise(Op::kSUB, bounded, static_cast<double>(low_ - 1));
    Tensor* numbers = node_.add<Gather>({}, {table(numbers_), node_.cast(place, DataType::kINT32)});
    const Expr rows = x->dims()[0];
    Sequence found;
    for (const Grams& grams : pool_.grams) {
      const std::vector<int32_t>& which = which_[static_cast<size_t>(grams.length) - 1];
      if (which.empty()) continue;
      // Skips make no difference to single elements.
      for (int64_t skip = 0; skip <= (grams.length == 1 ? 0 : skips); ++skip)
        found.push_back(
            node_.add<Gather>({}, {table(which), sequences(numbers, grams.length, skip + 1)}));
    }
    const SymShape room = {rows, pool_.count + 1};
    Tensor* counts = node_.fill(FillParams{}, room);
    if (!found.empty()) {
      Tensor* all = found.size() == 1 ? found[0] : node_.concatenate(found, 1);
      FillParams ones;
      ones.alpha = 1;
      ScatterParams sum;
      sum.axis = 1, sum.reduction = ScatterReduction::kADD;
      counts = node_.add<Scatter>(sum, {counts, all, node_.fill(ones, all->dims())});
    }
    return node_.slice(counts, {Expr(0), Expr(0)}, {rows, Expr(pool_.count)});
  }

 private:
  static constexpr int64_t kMostEntries = 1 << 22;  ///< of a table

  NgramTables(NodeImporter& node, const Pool& pool) : node_(node), pool_(pool) {}

  bool number_elements() {
    std::set<int64_t> all;
    for (const Grams& grams : pool_.grams) all.insert(grams.elements.begin(), grams.elements.end());
    if (all.empty()) return false;
    low_ = *all.begin(), high_ = *all.rbegin();
    constexpr int64_t kExact = int64_t{1} << 52;
    if (low_ < -kExact || high_ > kExact || high_ - low_ > kMostEntries) return false;
    base_ = static_cast<int64_t>(all.size()) + 1;
    // Elements that are not in the pool have the last number, also at both ends.
    numbers_.assign(static_cast<size_t>(high_ - low_ + 3), static_cast<int32_t>(all.size()));
    int32_t number = 0;
    for (const int64_t element : all) numbers_[number_at(element)] = number++;
    return true;
  }

  bool number_grams(int64_t shortest, int64_t longest) {
    int32_t index = 0;
    int64_t entries = 1;
    for (const Grams& grams : pool_.grams) {
      entries = std::min(entries * base_, kMostEntries + 1);
      std::vector<int32_t>& which = which_.emplace_back();
      const int32_t first = index;
      index += static_cast<int32_t>(grams.count());
      if (grams.count() == 0 || grams.length < shortest || grams.length > longest) continue;
      if (entries > kMostEntries) return false;
      which.assign(static_cast<size_t>(entries), none_);
      for (int64_t k = 0; k < grams.count(); ++k) {
        int64_t at = 0;
        for (int64_t i = 0; i < grams.length; ++i)
          at = at * base_ +
               numbers_[number_at(grams.elements[static_cast<size_t>(k * grams.length + i)])];
        int32_t& entry = which[static_cast<size_t>(at)];
        if (entry != none_) return false;
        entry = first + static_cast<int32_t>(k);
      }
    }
    return true;
  }

  size_t number_at(int64_t element) const { return static_cast<size_t>(element - low_ + 1); }

  /// The sequences of `length` numbers, `distance` apart, as indices of their table.
  Tensor* sequences(Tensor* numbers, int64_t length, int64_t distance) {
    const Expr rows = numbers->dims()[0], extent = numbers->dims()[1];
    const Expr places = max(extent - (length - 1) * distance, 0);
    Tensor* at = nullptr;
    for (int64_t i = 0; i < length; ++i) {
      Tensor* part =
          length == 1 ? numbers
                      : node_.slice(numbers, {Expr(0), min(extent, i * distance)}, {rows, places});
      if (at != nullptr) at = node_.elementwise(Op::kPROD, at, static_cast<double>(base_));
      at = at == nullptr ? part : node_.elementwise(Op::kSUM, at, part);
    }
    return at;
  }

  Tensor* table(const std::vector<int32_t>& entries) {
    return node_.network().add_constant(
        DataType::kINT32, Shape{static_cast<int64_t>(entries.size())},
        Blob::copy(entries.data(), entries.size() * sizeof(int32_t)));
  }

  NodeImporter& node_;
  const Pool& pool_;
  int64_t low_ = 0, high_ = 0, base_ = 1;
  int32_t none_ = 0;
  std::vector<int32_t> numbers_;             ///< by element
  std::vector<std::vector<int32_t>> which_;  ///< by length, by sequence; empty: no sequence counts
};

/// Counts the same by comparing each element with all elements of the pool.
Tensor* compared(NodeImporter& node, Tensor* x, const Pool& pool, int64_t shortest, int64_t longest,
                 int64_t skips) {
  Sequence parts;
  for (const Grams& grams : pool.grams) {
    if (grams.count() == 0) continue;
    Tensor* counts = nullptr;
    if (grams.length >= shortest && grams.length <= longest)
      for (int64_t skip = 0; skip <= (grams.length == 1 ? 0 : skips); ++skip) {
        Tensor* more = occurrences(node, x, grams, skip + 1);
        counts = counts == nullptr ? more : node.elementwise(Op::kSUM, counts, more);
      }
    const SymShape none = {x->dims()[0], grams.count()};
    parts.push_back(counts != nullptr ? counts : node.fill(FillParams{}, none));
  }
  return parts.size() == 1 ? parts[0] : node.concatenate(parts, 1);
}

/// The columns of `counts` at their places among `size`. Columns of one place are added up.
Tensor* at_places(NodeImporter& node, Tensor* counts, const Ints& places, int64_t size) {
  const auto count = static_cast<int64_t>(places.size());
  if (size == count && std::ranges::is_sorted(places) &&
      std::ranges::adjacent_find(places) == places.end())
    return counts;
  std::vector<int64_t> from(static_cast<size_t>(size), count);
  bool is_unique = true;
  for (size_t k = 0; k < places.size(); ++k) {
    int64_t& column = from[static_cast<size_t>(places[k])];
    is_unique = is_unique && column == count;
    column = static_cast<int64_t>(k);
  }
  if (!is_unique) {
    constexpr int64_t kMost = 1 << 24;
    if (count > kMost / size)
      node.error("ngram_indexes has places more than once, which takes a matrix of ", count, " x ",
                 size, " elements; expected at most ", kMost, " of them, or each place once");
    std::vector<float> matrix(static_cast<size_t>(count * size), 0);
    for (size_t k = 0; k < places.size(); ++k)
      matrix[k * static_cast<size_t>(size) + static_cast<size_t>(places[k])] = 1;
    return node.multiply_matrices(counts,
                                  node.constant_of(Shape{count, size}, matrix, DataType::kFLOAT));
  }
  // A column of zeros fills places without an n-gram.
  const SymShape column = {counts->dims()[0], 1};
  Tensor* all = node.concatenate({counts, node.fill(FillParams{}, column)}, 1);
  Tensor* order = node.network().add_constant(
      DataType::kINT64, Shape{size}, Blob::copy(from.data(), from.size() * sizeof(int64_t)));
  GatherParams params;
  params.axis = 1;
  return node.add<Gather>(params, {all, order});
}

void tf_idf(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 1, 2);
  if (node.attribute("pool_strings", AttributeProto::Type::kStrings) != nullptr)
    node.error("n-grams of strings are not supported; expected pool_int64s");
  const std::string mode = node.get_text("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    node.error("mode is '", mode, "'; expected TF, IDF or TFIDF");
  const int64_t shortest = node.get_int("min_gram_length", 0);
  const int64_t longest = node.get_int("max_gram_length", 0);
  const int64_t skips = node.get_int("max_skip_count", -1);
  constexpr int64_t kMostSkips = 64;
  if (shortest < 1 || longest < shortest || skips < 0 || skips > kMostSkips)
    node.error("min_gram_length, max_gram_length and max_skip_count are ", shortest, ", ", longest,
               " and ", skips, "; expected 1 or more, at least as much, and 0 to ", kMostSkips);
  const Pool pool = pool_of(node, ints_of(node, "pool_int64s"), ints_of(node, "ngram_counts"));
  const Ints& places = ints_of(node, "ngram_indexes");
  if (places.empty() || static_cast<int64_t>(places.size()) != pool.count)
    node.error("ngram_indexes has ", places.size(), " elements; the pool has ", pool.count,
               " n-grams, and needs one or more");
  constexpr int64_t kMostPlaces = 1 << 24;
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  if (*least < 0 || *most >= kMostPlaces)
    node.error("ngram_indexes goes from ", *least, " to ", *most, "; expected 0 to ",
               kMostPlaces - 1);
  const int64_t size = *most + 1;

  const bool is_vector = x->rank() == 1;
  x = node.cast(is_vector ? node.unsqueeze(x, {0}) : x, DataType::kINT64);
  std::optional<NgramTables> tables = NgramTables::make(node, pool, shortest, longest);
  Tensor* counts =
      tables ? tables->count(x, skips) : compared(node, x, pool, shortest, longest, skips);
  const auto is_there = [&](Tensor* x) {
    return node.cast(node.elementwise(Op::kGREATER, x, 0.0), DataType::kFLOAT);
  };
  const AttributeProto* weights = node.attribute("weights", AttributeProto::Type::kFloats);
  const bool is_weighted = mode != "TF" && weights != nullptr;
  if (is_weighted) {
    if (static_cast<int64_t>(weights->floats.size()) != pool.count)
      node.error("there are ", weights->floats.size(), " weights; expected one for each of ",
                 pool.count, " n-grams");
    if (mode == "IDF") counts = is_there(counts);
    counts =
        node.elementwise(Op::kPROD, counts,
                         node.constant_of(Shape{1, pool.count}, weights->floats, DataType::kFLOAT));
  }
  Tensor* y = at_places(node, counts, places, size);
  if (mode == "IDF" && !is_weighted) y = is_there(y);
  node.set_output(0, is_vector ? node.squeeze(y, {0}) : y);
}

}  // namespace

void add_ngrams(NodeTable& table) { table["TfIdfVectorizer"] = tf_idf; }

}  // namespace opwright::onnx
