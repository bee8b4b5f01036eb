#include "network/region.h"

#include "network/network.h"

namespace opwright {

const BoundaryOperator* boundary_of(const Layer& layer) {
  return dynamic_cast<const BoundaryOperator*>(layer.op().get());
}

}  // namespace opwright
