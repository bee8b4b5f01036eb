#pragma once

#include <memory>
#include <span>

#include "compile/graph.h"
#include "compile/profile_ranges.h"
#include "network/network.h"

namespace opwright {

/// The network with what its profiles and its layers say of the extents of its inputs, and the
/// profiles for it; null where they say nothing. What all profiles fix is a constant. Extents that
/// have to be equal whenever an engine runs are one symbol, also where they have names of their
/// own: a run compares them. An extent that a layer broadcasts is equal to another one only where
/// the profiles exclude that one of them is 1.
std::shared_ptr<const Network> settle_extents(const Network& network,
                                              std::span<ProfileRanges> profiles);

/// Where an extent has to be a number and is a broadcast divided by one of the extents in it, that
/// one is what they broadcast to: with any other one the quotient would be another number. What was
/// broadcast gets a view of that extent, which a run refuses in which it is another.
void settle_broadcasts(Graph& graph, std::span<const ProfileRanges> profiles);

}  // namespace opwright
