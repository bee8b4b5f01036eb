#pragma once

#include <memory>
#include <span>

#include "compile/graph.h"
#include "compile/profile_ranges.h"
#include "network/network.h"

namespace opwright {

/// The network with the extents of inputs that its profiles and its layers determine, and the
/// profiles for it. Null where they determine none. An extent that all profiles fix is a constant.
/// Extents that have to be equal in each run are one symbol, also where they have names of their
/// own: a run compares them. An extent that a layer broadcasts is equal to another extent only if
/// the profiles exclude that either of them is 1.
std::shared_ptr<const Network> settle_extents(const Network& network,
                                              std::span<ProfileRanges> profiles);

/// Settles broadcasts that are divided by one of their own extents where the quotient has to be a
/// number. Every other extent would give another number, so that extent is the broadcast's. Values
/// that were broadcast get a view of that extent, which a run refuses if the extents differ.
void settle_broadcasts(Graph& graph, std::span<const ProfileRanges> profiles);

}  // namespace opwright
