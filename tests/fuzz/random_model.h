#pragma once

#include <array>
#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace opwright::fuzz {

/// Writes ONNX models of a few random nodes: real operators with their own attributes, mostly small
/// numbers, sometimes hostile ones.
class RandomModel {
 public:
  explicit RandomModel(unsigned seed) : random_(seed) {}

  std::string make() {
    std::string graph_bytes;
    {
      protozero::pbf_writer graph(graph_bytes);
      const int inputs = 1 + below(3), initializers = 2 + below(4), nodes = 1 + below(6);
      for (int i = 0; i < inputs; ++i) add_value(graph, 11, new_name());
      for (int i = 0; i < initializers; ++i) add_tensor(graph, 5, new_name());
      for (int i = 0; i < nodes; ++i) add_node(graph);
      add_value(graph, 12, names_.back());
      if (chance(4)) add_value(graph, 12, any_name());
    }
    std::string model_bytes;
    protozero::pbf_writer model(model_bytes);
    model.add_int64(1, 8);
    model.add_message(7, graph_bytes);
    for (int i = below(4); i > 0 && chance(2); --i) model.add_message(25, function());
    std::string opset_bytes;
    protozero::pbf_writer opset(opset_bytes);
    static constexpr std::array kOpsets = {7, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22};
    opset.add_int64(2, kOpsets[below(kOpsets.size())]);
    model.add_message(8, opset_bytes);
    return model_bytes;
  }

 private:
  struct Operator {
    std::string_view name;
    int inputs;
    std::string_view attributes;  ///< a type letter, then the name: i f s t, I F
  };
  static constexpr Operator kOperators[] = {
      {"Conv", 3, "Ikernel_shape Istrides Ipads Idilations igroup sauto_pad"},
      {"ConvTranspose", 3,
       "Ikernel_shape Istrides Ipads Idilations igroup sauto_pad Ioutput_padding Ioutput_shape"},
      {"MaxPool", 1, "Ikernel_shape Istrides Ipads Idilations iceil_mode sauto_pad"},
      {"AveragePool", 1, "Ikernel_shape Istrides Ipads icount_include_pad iceil_mode"},
      {"GlobalAveragePool", 1, ""},
      {"Reshape", 2, "iallowzero Ishape"},
      {"Flatten", 1, "iaxis"},
      {"Squeeze", 2, "Iaxes"},
      {"Unsqueeze", 2, "Iaxes"},
      {"Transpose", 1, "Iperm"},
      {"Shape", 1, "istart iend"},
      {"Size", 1, ""},
      {"Expand", 2, ""},
      {"Slice", 5, "Iaxes Istarts Iends"},
      {"Concat", 3, "iaxis"},
      {"Split", 2, "iaxis Isplit inum_outputs"},
      {"Gather", 2, "iaxis"},
      {"GatherElements", 2, "iaxis"},
      {"GatherND", 2, "ibatch_dims"},
      {"Pad", 4, "smode Ipads fvalue"},
      {"Tile", 2, ""},
      {"Resize", 4, "smode scoordinate_transformation_mode Iaxes snearest_mode"},
      {"Upsample", 2, "smode Fscales"},
      {"DepthToSpace", 1, "iblocksize smode"},
      {"SpaceToDepth", 1, "iblocksize"},
      {"Constant", 0, "tvalue ivalue_int fvalue_float Ivalue_ints Fvalue_floats"},
      {"ConstantOfShape", 1, "tvalue"},
      {"Range", 3, ""},
      {"OneHot", 3, "iaxis"},
      {"RandomUniform", 0, "Ishape fseed idtype flow fhigh"},
      {"RandomNormalLike", 1, "idtype fseed"},
      {"Identity", 1, ""},
      {"Cast", 1, "ito"},
      {"CastLike", 2, ""},
      {"Add", 2, ""},
      {"Sub", 2, ""},
      {"Mul", 2, ""},
      {"Div", 2, ""},
      {"Mod", 2, "ifmod"},
      {"Pow", 2, ""},
      {"Max", 3, ""},
      {"Min", 3, ""},
      {"Mean", 3, ""},
      {"Equal", 2, ""},
      {"LessOrEqual", 2, ""},
      {"And", 2, ""},
      {"Where", 3, ""},
      {"Not", 1, ""},
      {"Neg", 1, ""},
      {"Exp", 1, ""},
      {"IsInf", 1, "idetect_negative idetect_positive"},
      {"Relu", 1, ""},
      {"Clip", 3, "fmin fmax"},
      {"Gelu", 1, "sapproximate"},
      {"PRelu", 2, ""},
      {"Celu", 1, "falpha"},
      {"MatMul", 2, ""},
      {"Gemm", 3, "falpha fbeta itransA itransB"},
      {"ReduceSum", 2, "Iaxes ikeepdims inoop_with_empty_axes"},
      {"ReduceMean", 2, "Iaxes ikeepdims"},
      {"ReduceLogSumExp", 2, "Iaxes ikeepdims"},
      {"Softmax", 1, "iaxis"},
      {"TopK", 2, "ik iaxis ilargest"},
      {"ArgMax", 1, "iaxis ikeepdims"},
      {"BatchNormalization", 5, "fepsilon"},
      {"InstanceNormalization", 3, "fepsilon"},
      {"GroupNormalization", 3, "fepsilon inum_groups"},
      {"LayerNormalization", 3, "fepsilon iaxis"},
      {"LRN", 1, "isize falpha"},
      {"LpNormalization", 1, "iaxis ip"},
      {"MeanVarianceNormalization", 1, "Iaxes"},
      {"Unknown", 1, "splugin_namespace Iother tthing"},
      {"f0", 2, "iaxis"},
      {"f1", 1, "iaxis falpha"},
      {"f2", 3, ""},
  };

  template <class Count>
  int below(Count count) {
    return static_cast<int>(random_() % static_cast<unsigned>(count));
  }
  bool chance(int one_in) { return below(one_in) == 0; }

  int64_t number() {
    if (!chance(12)) return below(6) - (chance(4) ? 3 : 0);
    static constexpr std::array<int64_t, 10> kHostile = {
        INT64_MAX, INT64_MIN, INT32_MAX,        INT32_MIN, int64_t{1} << 40,
        -100,      1000,      int64_t{1} << 62, 65536,     7};
    return kHostile[below(kHostile.size())];
  }
  float fraction() {
    static constexpr std::array<float, 8> kNumbers = {0,     1,     0.5f,  2,
                                                      1e30f, 1e-9f, -1.5f, __builtin_nanf("")};
    return kNumbers[below(kNumbers.size())];
  }
  std::vector<int64_t> numbers(int count) {
    std::vector<int64_t> all;
    for (int i = 0; i < count; ++i) all.push_back(number());
    return all;
  }
  std::vector<int64_t> extents() {
    std::vector<int64_t> shape;
    const int rank = chance(3) ? below(6) : 4;
    static constexpr std::array kExtents = {1, 1, 2, 3, 4, 4, 6, 8};
    for (int i = 0; i < rank; ++i)
      shape.push_back(chance(30) ? number() : kExtents[below(kExtents.size())]);
    return shape;
  }
  std::string new_name() {
    names_.push_back("t" + std::to_string(names_.size()));
    return names_.back();
  }
  std::string any_name() { return names_[below(names_.size())]; }

  int element_type() {
    static constexpr std::array kTypes = {1, 1, 1, 1, 7, 7, 7, 6, 9, 10, 2, 3, 11, 16, 8};
    return kTypes[below(kTypes.size())];
  }

  void add_value(protozero::pbf_writer& graph, unsigned tag, const std::string& name) {
    protozero::pbf_writer value(graph, tag);
    value.add_string(1, name);
    protozero::pbf_writer type(value, 2);
    protozero::pbf_writer tensor(type, 1);
    tensor.add_int32(1, element_type());
    protozero::pbf_writer shape(tensor, 2);
    for (const int64_t extent : extents()) {
      protozero::pbf_writer dim(shape, 1);
      if (chance(6))
        dim.add_string(2, chance(2) ? "n" : "m");
      else
        dim.add_int64(1, extent);
    }
  }

  void add_tensor(protozero::pbf_writer& parent, unsigned tag, const std::string& name) {
    protozero::pbf_writer tensor(parent, tag);
    tensor.add_string(8, name);
    if (chance(2)) {
      // Few integers: axes, shapes, pads, an axis.
      const int count = chance(4) ? 1 : below(9);
      const std::vector<int64_t> values = numbers(count);
      if (count != 1 || chance(2)) tensor.add_int64(1, count);
      tensor.add_int32(2, 7);
      tensor.add_packed_int64(7, values.begin(), values.end());
      return;
    }
    int64_t count = 1;
    for (const int64_t extent : extents()) {
      tensor.add_int64(1, extent);
      count = extent >= 0 && extent < 100 ? count * extent : 0;
    }
    tensor.add_int32(2, 1);
    std::vector<float> values(static_cast<size_t>(count % 100000));
    for (float& v : values) v = fraction();
    tensor.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size() * 4);
  }

  void add_attribute(protozero::pbf_writer& node, char type, const std::string& name) {
    static constexpr std::array kTexts = {"constant", "reflect", "edge",  "wrap",
                                          "nearest",  "linear",  "cubic", "SAME_UPPER",
                                          "VALID",    "CRD",     "tanh",  "align_corners"};
    protozero::pbf_writer a(node, 5);
    a.add_string(1, name);
    if (chance(12)) a.add_string(21, "axis");
    const auto values = numbers(below(9));
    switch (type) {
      case 'i':
        a.add_int64(3, number());
        a.add_int32(20, 2);
        return;
      case 'f':
        a.add_float(2, fraction());
        a.add_int32(20, 1);
        return;
      case 's':
        a.add_string(4, kTexts[below(kTexts.size())]);
        a.add_int32(20, 3);
        return;
      case 't':
        add_tensor(a, 5, "");
        a.add_int32(20, 4);
        return;
      case 'I':
        a.add_packed_int64(8, values.begin(), values.end());
        a.add_int32(20, 7);
        return;
      default:
        for (int i = below(5); i > 0; --i) a.add_float(7, fraction());
        a.add_int32(20, 6);
    }
  }

  /// One of the functions f0 to f2, which call any of them.
  std::string function() {
    std::string bytes;
    protozero::pbf_writer function(bytes);
    function.add_string(1, "f" + std::to_string(below(3)));
    for (int i = below(4); i > 0; --i) function.add_string(4, any_name());
    for (int i = 1 + below(4); i > 0; --i) add_node(function, 7);
    for (int i = below(3); i > 0; --i) function.add_string(5, any_name());
    if (chance(2)) {
      protozero::pbf_writer a(function, 11);
      a.add_string(1, "axis");
      a.add_int64(3, number());
      a.add_int32(20, 2);
    }
    return bytes;
  }

  void add_node(protozero::pbf_writer& graph, unsigned tag = 1) {
    const Operator& op = kOperators[below(std::size(kOperators))];
    protozero::pbf_writer node(graph, tag);
    const int inputs = chance(3) ? below(op.inputs + 2) : op.inputs;
    for (int i = 0; i < inputs; ++i) {
      // Often what the node before made.
      if (i == 0 && chance(2))
        node.add_string(1, names_.back());
      else
        node.add_string(1, chance(10) ? "" : any_name());
    }
    node.add_string(4, op.name.data(), op.name.size());
    std::string_view rest = op.attributes;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (chance(2)) add_attribute(node, one[0], std::string(one.substr(1)));
    }
    const int outputs = chance(6) ? below(4) : 1;
    for (int i = 0; i < outputs; ++i) node.add_string(2, new_name());
  }

  std::mt19937 random_;
  std::vector<std::string> names_;
};

}  // namespace opwright::fuzz
