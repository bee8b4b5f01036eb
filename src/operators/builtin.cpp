#include "operators/builtin.h"

#include <string>

#include "operators/activation.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright {
namespace {

template <class... Ops>
struct Kinds {
  static void register_all() { (register_operator_kind(std::string(Ops::kKind), Ops::load), ...); }
  static bool contain(std::string_view kind) { return ((kind == Ops::kKind) || ...); }
};

using Builtin = Kinds<Activation, Cast, ChannelShuffle, Concatenation, Convolution, Deconvolution,
                      ElementWise, Fill, Gather, Identity, Lrn, MatrixMultiply, Normalization,
                      ParametricRelu, Pointwise, Pooling, Reduce, Reformat, Reshape, Resize, Scale,
                      Select, ShapeOf, Shuffle, Slice, Softmax, TopK, Transpose, Unary>;

}  // namespace

void register_builtin_operators() { Builtin::register_all(); }

bool is_builtin_operator(std::string_view kind) { return Builtin::contain(kind); }

}  // namespace opwright
