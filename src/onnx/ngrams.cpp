// TfIdfVectorizer, of integers.

#include <algorithm>

#include "onnx/importer.h"

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
  std::vector<Grams> grams;  ///< of lengths 1, 2, ...
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

/// How often each n-gram occurs in the rows of `x`, [rows, elements], where its elements stand
/// `distance` apart: FP32 [rows, n-grams].
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

/// The columns of `counts` at their places among `size`; columns of one place are added up.
Tensor* at_places(NodeImporter& node, Tensor* counts, const Ints& places, int64_t size) {
  const auto count = static_cast<int64_t>(places.size());
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
  // A column of zeros stands for places without an n-gram.
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
  Sequence parts;
  for (const Grams& grams : pool.grams) {
    if (grams.count() == 0) continue;
    Tensor* counts = nullptr;
    if (grams.length >= shortest && grams.length <= longest)
      // What is skipped makes no difference to single elements.
      for (int64_t skip = 0; skip <= (grams.length == 1 ? 0 : skips); ++skip) {
        Tensor* more = occurrences(node, x, grams, skip + 1);
        counts = counts == nullptr ? more : node.elementwise(Op::kSUM, counts, more);
      }
    const SymShape none = {x->dims()[0], grams.count()};
    parts.push_back(counts != nullptr ? counts : node.fill(FillParams{}, none));
  }
  Tensor* counts = parts.size() == 1 ? parts[0] : node.concatenate(parts, 1);
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
