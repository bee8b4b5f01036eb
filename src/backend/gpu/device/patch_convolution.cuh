// Convolutions over two or three spatial axes, channels last, on tensor cores. A block computes
// tiles of kTileZ x kTileY x kTileX pixels and kMaps maps. It copies the patch of x that a tile
// reads to shared memory, a chunk of channels at a time. So each pixel is copied once and read by
// all taps. Images have a depth of 1.
//
// A "place" has eight channels of a pixel, or eight channels of a map's weights at a tap. A patch
// has a plane of places for each eight channels. The columns of a row lie in kStrideX phases:
// first columns 0, kStrideX, 2 * kStrideX .., then 1, 1 + kStrideX .. So the pixels that a tap
// reads for eight neighbouring pixels of y are neighbouring places, which no bank conflicts slow
// down. Weights have a row of kMaps places, and one more, for each tap and eight channels.
//
// An instruction multiplies two places along k. They are 16 channels, or, if x has no more than
// eight channels, the places of two neighbouring taps, a "pair". A row of a window that has an odd
// number of taps gets another one, whose weights are 0.
//
// A "unit" is a run of whole groups that are multiplied as one matrix: weights between different
// groups are 0. A block's slice has some units, or a part of one group's maps. A "strip" has eight
// neighbouring pixels in two rows, the 16 rows of a tensor core's operand. The rows of a tile are
// numbered through all z. A tile with one row of pixels is a "line". It counts as rows of eight
// pixels that follow each other.
//
// The kernel is a template over a struct that the host writes:
//   Element, Output        the types in memory
//   kTileZ, kTileY, kTileX a block's pixels; kTileX is a multiple of 8
//   kMaps                  a block's maps
//   kWarpsM, kWarpsN       warps that divide the tile's pixels, maps
//   kStrips                strips of a warp
//   kWindowZ, kWindowY, kWindowX, kStrideZ, kStrideY, kStrideX
//   kDilationZ, kDilationY, kDilationX
//   kChannels, kGroupMaps  channels and maps of a group
//   kUnitGroups, kUnitMaps groups of a unit; its maps, or kMaps if a slice has one unit
//   kUnitChannels          channels of a unit in a chunk, a multiple of 16, or 8 with pairs
//   kChunk, kChunks        channels of a chunk; chunks of a slice
//   kPlane                 places of a plane
//   kStages                patches in flight
//   kKeepsWeights          whether weights are copied once; else with each patch
//   kHasPairs              whether instructions multiply pairs of taps
//   kIsWarpGroup           whether warpgroups multiply, by the member multiply_matrices()
//   kIsConstant            whether the weights are constant
//   kHasProgram            whether a fused program computes the results
// Expects prelude.cuh.
#pragma once

#include "mma.cuh"
#include "product_epilogue.cuh"
#include "tile_copies.cuh"
#include "wgmma.cuh"

template <class Config>
struct Patches : Config {
  typedef typename Config::Element Element;
  static constexpr int kVector = 8;
  typedef Pack<Element, kVector> Place;
  static constexpr int kThreads = Config::kWarpsM * Config::kWarpsN * 32;
  static constexpr int kWarpN = Config::kMaps / Config::kWarpsN;
  // Taps of an instruction, of a row, of a z, and of all. The weights in memory have kWindowX in a
  // row.
  static constexpr int kTapsOfStep = Config::kHasPairs ? 2 : 1;
  static constexpr int kRowTaps = (Config::kWindowX + kTapsOfStep - 1) / kTapsOfStep * kTapsOfStep;
  static constexpr int kFlatTaps = Config::kWindowY * kRowTaps;
  static constexpr int kTaps = Config::kWindowZ * kFlatTaps;
  static constexpr int kDepth =
      (Config::kTileZ - 1) * Config::kStrideZ + (Config::kWindowZ - 1) * Config::kDilationZ + 1;
  static constexpr int kRows =
      (Config::kTileY - 1) * Config::kStrideY + (Config::kWindowY - 1) * Config::kDilationY + 1;
  static constexpr int kColumns =
      (Config::kTileX - 1) * Config::kStrideX + (kRowTaps - 1) * Config::kDilationX + 1;
  static constexpr int kPhase = (kColumns + Config::kStrideX - 1) / Config::kStrideX;
  static constexpr int kRowPlaces = Config::kStrideX * kPhase;
  static constexpr int kSlicePlaces = kRows * kRowPlaces;
  static constexpr bool kIsLine = Config::kTileZ == 1 && Config::kTileY == 1;
  // Rows of a z of the tile, runs of eight pixels in a row, and places between rows of the tile.
  static constexpr int kTileRows = kIsLine ? Config::kTileX / 8 : Config::kTileY;
  static constexpr int kInRow = kIsLine ? 1 : Config::kTileX / 8;
  static constexpr int kNextRow = kIsLine ? 8 : Config::kStrideY * kRowPlaces;
  // Whether the channels of a pixel, or of several groups, fill whole places.
  static constexpr bool kHasWholePlaces =
      Config::kUnitGroups > 1 || Config::kChannels % kVector == 0;
  static constexpr int kVectors = Config::kChunk / kVector;
  static constexpr int kUnitVectors = Config::kUnitChannels / kVector;
  static constexpr int kMapPlaces = Config::kMaps + 1;
  static constexpr int kPatchPlaces = kVectors * Config::kPlane;
  static constexpr int kWeightPlaces = kTaps * kUnitVectors * kMapPlaces;  // of a chunk
  static constexpr int kStagePlaces = kPatchPlaces + (Config::kKeepsWeights ? 0 : kWeightPlaces);
  static constexpr int kKeptPlaces = Config::kKeepsWeights ? Config::kChunks * kWeightPlaces : 0;
  static_assert(kDepth * kSlicePlaces <= Config::kPlane, "a plane has all pixels");
  static_assert(Config::kMaps % Config::kUnitMaps == 0, "slices have whole units");
  // The place of column `column` in a row.
  __device__ static constexpr int place_of(int column) {
    return column % Config::kStrideX * kPhase + column / Config::kStrideX;
  }
  // Places between the two that an instruction multiplies.
  static constexpr int kNextAlongK =
      Config::kHasPairs
          ? Config::kDilationX % Config::kStrideX * kPhase + Config::kDilationX / Config::kStrideX
          : Config::kPlane;
  // Whether an instruction multiplies something by 0 that is not of the window.
  static constexpr bool kMultipliesOthers = Config::kUnitGroups > 1 || kRowTaps != Config::kWindowX;
  // The first place that a row of the tile reads.
  __device__ static constexpr int place_of_row(int row) {
    if (Config::kTileZ == 1) return row * kNextRow;
    return row / kTileRows * (Config::kStrideZ * kSlicePlaces) + row % kTileRows * kNextRow;
  }
  // The group of a slice's map, as its number in the unit.
  __device__ static constexpr int group_of(int map) {
    return map / Config::kGroupMaps % Config::kUnitGroups;
  }
};

// What a block computes of all tiles: images * tiles_z * tiles_y * tiles_x.
struct PatchArguments {
  Index slices, slices_of_group;           // slices_of_group: 0 if slices have whole groups
  Index channels, maps;                    // of x and y
  Index depth, height, width;              // of x
  Index out_depth, out_height, out_width;  // of y
  Index padding_z, padding_y, padding_x;
  Index tiles_z, tiles_y, tiles_x, tiles;
};
template <class Config>
struct PatchOperands {
  const typename Config::Element *x, *weights;
};
// A block's maps, and the channels that they read.
struct PatchSlice {
  Index first_channel, first_map;
  int channels, maps;  // up to the end of the group, or of all groups
};
template <class C>
__device__ inline PatchSlice find_slice(const PatchArguments& all, Index number) {
  PatchSlice slice;
  if (all.slices_of_group == 0) {
    slice.first_map = number * C::kMaps;
    slice.first_channel = number * (C::kMaps / C::kUnitMaps * C::kUnitChannels);
    slice.channels = (int)(all.channels - slice.first_channel);
    slice.maps = (int)(all.maps - slice.first_map);
  } else {
    const Index group = number / all.slices_of_group;
    const int first = (int)(number % all.slices_of_group) * C::kMaps;
    slice.first_map = group * C::kGroupMaps + first;
    slice.first_channel = group * C::kChannels;
    slice.channels = C::kChannels, slice.maps = C::kGroupMaps - first;
  }
  return slice;
}
struct PatchTile {
  Index image, z, y, x;  // of the first pixel of y
  template <class C>
  __device__ static PatchTile find(const PatchArguments& all, Index number) {
    const Index column = (UIndex)number % (UIndex)all.tiles_x;
    const Index row = (UIndex)number / (UIndex)all.tiles_x;
    const Index slice = (UIndex)row / (UIndex)all.tiles_y;
    return {(Index)((UIndex)slice / (UIndex)all.tiles_z),
            (Index)((UIndex)slice % (UIndex)all.tiles_z) * C::kTileZ,
            (Index)((UIndex)row % (UIndex)all.tiles_y) * C::kTileY, column * C::kTileX};
  }
};

// Copies the patch of a tile from channel `chunk` * kChunk of the slice on. Pixels beyond the image
// and channels beyond the slice are 0. A thread has the same channels of pixels kStep apart.
template <class C, bool is_aligned>
__device__ inline void copy_patch(const PatchArguments& all, const PatchSlice& slice,
                                  const PatchTile& tile, const typename C::Element* x, int chunk,
                                  typename C::Place* to) {
  constexpr int kStep = C::kThreads / C::kVectors;
  constexpr int kSlicePixels = C::kRows * C::kColumns, kPixels = C::kDepth * kSlicePixels;
  constexpr int kSteps = (kPixels + kStep - 1) / kStep;
  constexpr int kStepDepth = C::kDepth > 1 ? kStep / kSlicePixels : 0;
  constexpr int kStepRows = kStep / C::kColumns - kStepDepth * C::kRows;
  constexpr int kStepColumns = kStep % C::kColumns;
  constexpr int kUnrolled = is_aligned || !C::kHasWholePlaces ? 4 : 1;
  const int vector = (unsigned)threadIdx.x % C::kVectors;
  int pixel = (unsigned)threadIdx.x / C::kVectors;
  if (C::kThreads % C::kVectors != 0 && pixel >= kStep) return;
  int column = (unsigned)pixel % C::kColumns, place_of_row = vector * C::kPlane;
  int row = (unsigned)pixel / C::kColumns;
  place_of_row += row * C::kRowPlaces;
  Index in_z = tile.z * C::kStrideZ - all.padding_z;
  if constexpr (C::kDepth > 1) in_z += (unsigned)row / C::kRows, row = (unsigned)row % C::kRows;
  const Index first_x = tile.x * C::kStrideX - all.padding_x;
  const Index first_y = tile.y * C::kStrideY - all.padding_y;
  Index in_y = first_y + row;
  const int channel = chunk * C::kChunk + vector * C::kVector;
  int count = channel < slice.channels ? C::kVector : 0;
  if (!C::kHasWholePlaces && count > slice.channels - channel) count = slice.channels - channel;
  Index from =
      (((tile.image * all.depth + in_z) * all.height + in_y) * all.width + first_x + column) *
          all.channels +
      slice.first_channel + channel;
  const Index step =
      ((kStepDepth * all.height + kStepRows) * all.width + kStepColumns) * all.channels;
  const Index wrap = (all.width - C::kColumns) * all.channels;
  const Index wrap_z = (all.height - C::kRows) * all.width * all.channels;
#pragma unroll kUnrolled
  for (int i = 0; i < kSteps; ++i) {
    if (kPixels % kStep != 0 && pixel >= kPixels) break;
    const bool is_there = (UIndex)in_z < (UIndex)all.depth && (UIndex)in_y < (UIndex)all.height &&
                          (UIndex)(first_x + column) < (UIndex)all.width;
    copy_vector<is_aligned>((to + (place_of_row + C::place_of(column)))->at, x + from,
                            is_there ? count : 0);
    pixel += kStep, column += kStepColumns, from += step;
    in_y += kStepRows, place_of_row += (kStepDepth * C::kRows + kStepRows) * C::kRowPlaces;
    if (column >= C::kColumns) {
      column -= C::kColumns, from += wrap;
      ++in_y, place_of_row += C::kRowPlaces;
    }
    if constexpr (C::kDepth > 1) {
      in_z += kStepDepth;
      if (in_y - first_y >= C::kRows) in_y -= C::kRows, from += wrap_z, ++in_z;
    }
  }
}
// Copies the weights of a chunk. Weights of maps beyond the slice, of channels beyond the group and
// between different groups are 0.
template <class C, bool is_aligned>
__device__ inline void copy_weights(const PatchSlice& slice, const typename C::Element* weights,
                                    int chunk, typename C::Place* to) {
  typedef typename C::Element Element;
  typedef typename C::Place Place;
  constexpr int kTaps = C::kWindowZ * C::kWindowY * C::kWindowX;
  const Element* const from = weights + slice.first_map * (kTaps * C::kChannels);
  if constexpr (C::kChannels % C::kVector == 0 || C::kUnitGroups == 1) {
#pragma unroll 4
    for (int i = threadIdx.x; i < C::kMaps * C::kTaps * C::kUnitVectors; i += C::kThreads) {
      const int vector = i % C::kUnitVectors, row = i / C::kUnitVectors;
      const int tap = row % C::kTaps, map = row / C::kTaps;
      const int first = chunk * C::kUnitChannels + vector * C::kVector;
      bool is_there = map < slice.maps && first / C::kChannels == C::group_of(map);
      int of_weight = row;
      if constexpr (C::kRowTaps != C::kWindowX) {
        is_there = is_there && tap % C::kRowTaps < C::kWindowX;
        of_weight = row / C::kRowTaps * C::kWindowX + tap % C::kRowTaps;
      }
      int count = is_there ? C::kVector : 0;
      if (!C::kHasWholePlaces && count > C::kChannels - first) count = C::kChannels - first;
      copy_vector<is_aligned>(
          (to + ((tap * C::kUnitVectors + vector) * C::kMapPlaces + map))->at,
          is_there ? from + (of_weight * C::kChannels + first % C::kChannels) : weights, count);
    }
  } else {
    // A thread has the channels of a tap of a map, which are fewer than those of a place.
    typedef Pack<Element, C::kChannels> Channels;
#pragma unroll 4
    for (int i = threadIdx.x; i < C::kMaps * kTaps; i += C::kThreads) {
      const int tap = i % kTaps, map = i / kTaps, group = C::group_of(map);
      Channels channels = {};
      if (map < slice.maps) {
        if (is_aligned)
          channels = *(const Channels*)(from + i * C::kChannels);
        else
#pragma unroll
          for (int e = 0; e < C::kChannels; ++e) channels.at[e] = from[i * C::kChannels + e];
      }
#pragma unroll
      for (int at = 0; at < C::kUnitGroups; ++at) {
        const int vector = at * C::kChannels / C::kVector;
        Place* const place = to + ((tap * C::kUnitVectors + vector) * C::kMapPlaces + map);
        *(Channels*)(place->at + at * C::kChannels % C::kVector) =
            at == group ? channels : Channels{};
      }
    }
  }
}

// A warp's sums. With tensor cores, a warp has 2 * kStrips rows of eight neighbouring pixels. With
// warpgroups, it has two rows of kStrips blocks of 8 x 8 pixels.
template <class C>
struct PatchProduct {
  typedef typename C::Element Element;
  typedef typename C::Place Place;
  static constexpr int kStrips = C::kStrips, kWarpN = C::kWarpN, kInRow = C::kInRow;
  static_assert(C::kTileRows % (C::kIsWarpGroup ? 8 : 2 * kStrips) == 0, "a warp has rows of a z");
  float sums[kStrips][kWarpN / 2];

  __device__ PatchProduct() { clear(); }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kStrips; ++i)
#pragma unroll
      for (int j = 0; j < kWarpN / 2; ++j) sums[i][j] = 0.0f;
  }
  __device__ static int warp() { return (int)threadIdx.x / 32; }
  // The first row and column of a strip in the tile, and the warp's first map.
  __device__ static int strip_row(int i) {
    if constexpr (C::kIsWarpGroup)
      return (warp() / 4 * kStrips + i) / kInRow * 8 + warp() % 4 * 2;
    else
      return warp() / C::kWarpsN / kInRow * (2 * kStrips) + 2 * i;
  }
  __device__ static int strip_x(int i) {
    if constexpr (C::kIsWarpGroup)
      return (warp() / 4 * kStrips + i) % kInRow * 8;
    else
      return warp() / C::kWarpsN % kInRow * 8;
  }
  __device__ static int first_map() { return C::kIsWarpGroup ? 0 : warp() % C::kWarpsN * kWarpN; }

  // Adds the products of a chunk. `copy` starts to copy the next patch. It runs while warpgroups
  // multiply.
  template <class Copy>
  __device__ void add(const Place* patch, const Place* weights, const Copy& copy) {
    if constexpr (C::kIsWarpGroup) {
      begin_by_warp_groups(patch, weights);
      copy();
      wait_for_products<0>();
    } else {
      copy();
      add_by_warps(patch, weights);
    }
  }
  __device__ void begin_by_warp_groups(const Place* patch, const Place* weights) {
    constexpr int kSteps = C::kFlatTaps / C::kTapsOfStep, kUnrolled = kSteps <= 9 ? kSteps : 1;
    unsigned long long pixels[kStrips];
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      const int block = warp() / 4 * kStrips + i;
      pixels[i] = describe_rows(patch + (C::place_of_row(block / kInRow * 8) + block % kInRow * 8),
                                C::kNextAlongK, C::kNextRow);
    }
    const unsigned long long maps = describe_rows(weights, C::kMapPlaces, 8);
    begin_products();
#pragma unroll 1
    for (int z = 0; z < C::kWindowZ; ++z)
#pragma unroll kUnrolled
      for (int tap = 0; tap < C::kFlatTaps; tap += C::kTapsOfStep) {
        const int row = z * C::kDilationZ * C::kRows + tap / C::kRowTaps * C::kDilationY;
        const int at = row * C::kRowPlaces + C::place_of(tap % C::kRowTaps * C::kDilationX);
        const int weight = (z * C::kFlatTaps + tap) * C::kVectors;
#pragma unroll
        for (int vector = 0; vector < C::kVectors; vector += 2)
#pragma unroll
          for (int i = 0; i < kStrips; ++i)
            C::template multiply_matrices<1>(sums[i], pixels[i] + (at + vector * C::kPlane),
                                             maps + (weight + vector) * C::kMapPlaces);
      }
    end_products();
  }

  // Steps along k, of 16 channels, of the units that a warp's maps belong to.
  static constexpr int kUnitSteps = C::kHasPairs ? 1 : C::kUnitChannels / 16;
  static constexpr int kUnits = kWarpN > C::kUnitMaps ? kWarpN / C::kUnitMaps : 1;
  // Whether maps 8 * j and following are in the unit of a step.
  __device__ static constexpr bool is_met(int j, int step) {
    return kUnits == 1 || 8 * j / C::kUnitMaps == step / kUnitSteps;
  }
  // A row of the patch serves all taps of a column that meet it, if a warp's registers have room.
  // Rows of a line share no taps.
  static constexpr int kMostRows = 20, kStrideY = C::kIsLine ? 1 : C::kStrideY;
  static constexpr int kRowPlaces = C::kIsLine ? C::kNextRow : C::kRowPlaces;
  __device__ static constexpr int rows_of(int taps) {
    return (2 * kStrips - 1) * kStrideY + (taps - 1) * C::kDilationY + 1;
  }
  static constexpr int kTapsAtOnce =
      rows_of(C::kWindowY) <= kMostRows && !C::kIsLine ? C::kWindowY : 1;
  static constexpr int kRowsAtOnce = rows_of(kTapsAtOnce);
  __device__ static constexpr bool is_read(int row) {
    for (int tap = 0; tap < kTapsAtOnce; ++tap) {
      const int distance = row - tap * C::kDilationY;
      if (distance >= 0 && distance % kStrideY == 0 && distance / kStrideY < 2 * kStrips)
        return true;
    }
    return false;
  }
  __device__ void add_by_warps(const Place* patch, const Place* weights) {
    const int lane = (int)threadIdx.x % 32;
    const int near = lane % 8, middle = lane / 8 % 2, far = lane / 16;
    const int first_vector = first_map() / C::kUnitMaps * C::kUnitVectors;
    const Place* const of_lane =
        patch + ((first_vector + far) * C::kNextAlongK + C::place_of_row(strip_row(0)) +
                 middle * kRowPlaces + strip_x(0) + near);
    const Place* const maps = weights + (middle * C::kMapPlaces + first_map() + near + 8 * far);
#pragma unroll 1
    for (int z = 0; z < C::kWindowZ; ++z)
      add_taps(of_lane + z * C::kDilationZ * C::kSlicePlaces,
               maps + z * C::kFlatTaps * C::kUnitVectors * C::kMapPlaces);
  }
  // Adds the products of the taps of a z.
  __device__ void add_taps(const Place* of_lane, const Place* maps) {
    constexpr bool kHasFewTaps = C::kFlatTaps <= 9;
    constexpr int kUnrolledSteps = kUnits > 1 ? kUnits * kUnitSteps : 1;
    constexpr int kUnrolledX = kHasFewTaps ? C::kRowTaps / C::kTapsOfStep : 1;
    constexpr int kUnrolledY = kHasFewTaps ? C::kWindowY : 1;
#pragma unroll kUnrolledSteps
    for (int step = 0; step < kUnits * kUnitSteps; ++step)
#pragma unroll kUnrolledX
      for (int x = 0; x < C::kRowTaps; x += C::kTapsOfStep) {
        const Place* const column =
            of_lane + (2 * step * C::kPlane + C::place_of(x * C::kDilationX));
#pragma unroll kUnrolledY
        for (int y = 0; y < C::kWindowY; y += kTapsAtOnce)
          add_column(column + y * C::kDilationY * C::kRowPlaces,
                     maps + ((y * C::kRowTaps + x) * C::kUnitVectors + step % kUnitSteps * 2) *
                                C::kMapPlaces,
                     step);
      }
  }
  // Adds the products of kTapsAtOnce taps below each other.
  __device__ void add_column(const Place* pixels, const Place* maps, int step) {
    unsigned rows[kRowsAtOnce + 1][2];
#pragma unroll
    for (int row = 0; row < kRowsAtOnce; row += 2)
      if (is_read(row) || is_read(row + 1))
        load_matrices<false>(rows[row][0], rows[row + 1][0], rows[row][1], rows[row + 1][1],
                             pixels + row * kRowPlaces);
#pragma unroll
    for (int tap = 0; tap < kTapsAtOnce; ++tap)
#pragma unroll
      for (int j = 0; j < kWarpN / 8; j += 2) {
        if (!is_met(j, step) && !is_met(j + 1, step)) continue;
        unsigned columns[2][2];
        load_matrices<false>(columns[0][0], columns[0][1], columns[1][0], columns[1][1],
                             maps + (tap * C::kRowTaps * C::kUnitVectors * C::kMapPlaces + 8 * j));
#pragma unroll
        for (int i = 0; i < kStrips; ++i) {
          const int upper = 2 * i * kStrideY + tap * C::kDilationY;
          const int lower = upper + kStrideY;
#pragma unroll
          for (int of = 0; of < 2; ++of) {
            float* const to = sums[i] + 4 * (j + of);
            if (is_met(j + of, step))
              Mma<Element>::add(to[0], to[1], to[2], to[3], rows[upper][0], rows[lower][0],
                                rows[upper][1], rows[lower][1], columns[of][0], columns[of][1]);
          }
        }
      }
  }
};

// Adds the products of a pixel of the tile and a map of the slice, of the map's group only.
template <class C>
__device__ inline float add_products(const typename C::Place* patch,
                                     const typename C::Place* weights, int row, int x, int map) {
  const int group = C::group_of(map) * C::kChannels;
  const int unit = map / C::kUnitMaps * C::kUnitVectors;
  float sum = 0.0f;
#pragma unroll 1
  for (int tap = 0; tap < C::kTaps; ++tap) {
    const int z = tap / C::kFlatTaps, y = tap / C::kRowTaps % C::kWindowY;
    if (C::kRowTaps != C::kWindowX && tap % C::kRowTaps >= C::kWindowX) continue;
#pragma unroll 1
    for (int i = 0; i < C::kChannels; ++i) {
      const int vector = (group + i) / C::kVector, at = (group + i) % C::kVector;
      const int column = x * C::kStrideX + tap % C::kRowTaps * C::kDilationX;
      const int place = C::place_of_row(row) + z * C::kDilationZ * C::kSlicePlaces +
                        y * C::kDilationY * C::kRowPlaces + C::place_of(column);
      const auto& pixel = patch[(unit + vector) * C::kPlane + place];
      const auto& weight = weights[(tap * C::kUnitVectors + vector) * C::kMapPlaces + map];
      sum = fmaf(load(pixel.at[at]), load(weight.at[at]), sum);
    }
  }
  return sum;
}

// How store_results of the epilogue sees a part of a warp's columns.
template <class C>
struct PatchResults {
  typedef typename C::Output Output;
  typedef float Sum;
  typedef RowPlaces Places;
  static constexpr int kPack = 16 / sizeof(Output);
  static constexpr int kWarpN = C::kWarpN < 32 ? C::kWarpN : 32;
};
// Computes and stores the results of a warp. `staged` is shared memory for SumRows.
template <class C, class Program>
__device__ __forceinline__ void store_patch(const PatchArguments& all, const PatchSlice& slice,
                                            const PatchTile& tile,
                                            const ProductArguments<PatchResults<C>>& to,
                                            const Program& program, const PatchProduct<C>& product,
                                            const typename C::Place* patch,
                                            const typename C::Place* weights, float* staged) {
  typedef PatchResults<C> Results;
  constexpr int kPart = Results::kWarpN, kParts = C::kWarpN / kPart;
  constexpr int kLength = SumRows<Results>::kLength, kPack = Results::kPack;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
  for (int item = 0; item < C::kStrips * kParts; ++item) {
    const int strip_row = product.strip_row(item / kParts);
    const int strip_x = product.strip_x(item / kParts);
    const int first_map = product.first_map() + item % kParts * kPart;
    bool is_nan = false;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::kStrips * kParts; ++i)
      if (i == item)
#pragma unroll
        for (int j = 0; j < kPart / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; e += 2) {
            const float* const sums = product.sums[i / kParts] + i % kParts * (kPart / 2) + 4 * j;
            is_nan |= sums[e] != sums[e] || sums[e + 1] != sums[e + 1];
            *(Pack<float, 2>*)(staged + (lane / 4 + 4 * e) * kLength + 8 * j + lane % 4 * 2) = {
                sums[e], sums[e + 1]};
          }
    __syncwarp();
    if constexpr (C::kMultipliesOthers) {
      // Zeros make a NaN of another group's infinity, or of one beside the window.
      if (__any_sync(0xffffffffu, is_nan)) {
#pragma unroll 1
        for (int at = lane; at < 16 * kPart; at += 32) {
          const int row = at / kPart, column = at % kPart;
          staged[row * kLength + column] = add_products<C>(patch, weights, strip_row + row / 8,
                                                           strip_x + row % 8, first_map + column);
        }
        __syncwarp();
      }
    }
    // Compiling a program for each pack of a thread takes long.
    constexpr int kPacks = (16 * kPart + 32 * kPack - 1) / (32 * kPack);
    constexpr int kUnrolled = C::kHasProgram ? 1 : kPacks;
#pragma unroll kUnrolled
    for (int at = lane * kPack; at < 16 * kPart; at += 32 * kPack) {
      const int row = at / kPart, column = at % kPart;
      const int in_tile = strip_row + row / 8;
      const int in_z = C::kTileZ == 1 ? 0 : in_tile / C::kTileRows;
      const Index z = tile.z + in_z;
      const Index y = tile.y + (C::kIsLine ? 0 : in_tile - in_z * C::kTileRows);
      const Index x = tile.x + strip_x + (C::kIsLine ? 8 * in_tile : 0) + row % 8;
      const bool is_there = z < all.out_depth && y < all.out_height && x < all.out_width;
      const Index pixel =
          ((tile.image * all.out_depth + z) * all.out_height + y) * all.out_width + x;
      const ProductTask task = {0, 0, tile.image, pixel, slice.first_map};
      const ResultPack<Results> pack(to, task, is_there ? pixel + 1 : 0, 0, first_map + column,
                                     staged + row * kLength + column);
      if (pack.is_there)
        store_pack(to, task, program, pack, program.read(task, pack, NothingBehind()));
    }
  }
}

// `operands` returns PatchOperands, and `wait` waits for earlier kernels.
template <class Config, class Operands, class Wait, class Program>
__device__ __forceinline__ void convolve_patches(const PatchArguments& all,
                                                 typename Config::Output* output,
                                                 const Operands& operands, const Wait& wait,
                                                 const Program& program) {
  typedef Patches<Config> C;
  typedef typename C::Place Place;
  extern __shared__ uint4 memory[];
  Place* const stages = (Place*)memory;
  Place* const kept = stages + C::kStages * C::kStagePlaces;
  float* const staged =
      (float*)(kept + C::kKeptPlaces) + (int)threadIdx.x / 32 * SumRows<PatchResults<C>>::kElements;
  const PatchSlice slice = find_slice<C>(all, blockIdx.x % all.slices);
  const Index first = blockIdx.x / all.slices, step = gridDim.x / all.slices;
  if (!C::kIsConstant) wait();
  const bool is_aligned_weights =
      C::kHasWholePlaces && is_aligned<typename C::Element, C::kVector>(operands().weights);
  const auto copy_weights_of = [&](int chunk, Place* to) {
    if (is_aligned_weights)
      copy_weights<C, true>(slice, operands().weights, chunk, to);
    else
      copy_weights<C, false>(slice, operands().weights, chunk, to);
  };
  if constexpr (C::kKeepsWeights) {
#pragma unroll 1
    for (int chunk = 0; chunk < C::kChunks; ++chunk)
      copy_weights_of(chunk, kept + chunk * C::kWeightPlaces);
  }
  if (C::kIsConstant) wait();
  const typename C::Element* const x = operands().x;
  const bool is_aligned_x = C::kHasWholePlaces && is_aligned<typename C::Element, C::kVector>(x);
  // The next patch to copy.
  Index next = first;
  int next_chunk = 0, next_stage = 0;
  const auto copy_next = [&] {
    if (next < all.tiles) {
      Place* const to = stages + next_stage * C::kStagePlaces;
      const PatchTile tile = PatchTile::find<C>(all, next);
      if constexpr (!C::kKeepsWeights) copy_weights_of(next_chunk, to + C::kPatchPlaces);
      if (is_aligned_x)
        copy_patch<C, true>(all, slice, tile, x, next_chunk, to);
      else
        copy_patch<C, false>(all, slice, tile, x, next_chunk, to);
      if (++next_chunk == C::kChunks) next_chunk = 0, next += step;
      next_stage = next_stage + 1 == C::kStages ? 0 : next_stage + 1;
    }
    end_copies();
  };
  typedef PatchResults<C> Results;
  ProductArguments<Results> to;
  to.output = output, to.row_stride = all.maps;
  to.columns = slice.first_map + slice.maps;
  // Groups and slices begin at multiples of kPack.
  to.stores_packs = is_aligned<typename C::Output, Results::kPack>(output) &&
                    all.maps % Results::kPack == 0 && slice.first_map % Results::kPack == 0;
  for (int i = 1; i < C::kStages; ++i) copy_next();
  int stage = 0;
  PatchProduct<C> product;
#pragma unroll 1
  for (Index number = first; number < all.tiles; number += step) {
    product.clear();
    const Place *patch = nullptr, *weights = nullptr;
#pragma unroll 1
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      if constexpr (C::kStages == 1) {
        // All threads have read the patch before.
        if (number != first || chunk > 0) __syncthreads();
        copy_next();
        wait_for_copies<0>();
      } else {
        wait_for_copies<C::kStages - 2>();
      }
      if constexpr (C::kIsWarpGroup) fence_copies();
      __syncthreads();
      patch = stages + stage * C::kStagePlaces;
      weights = C::kKeepsWeights ? kept + chunk * C::kWeightPlaces : patch + C::kPatchPlaces;
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
      product.add(patch, weights, [&] {
        // Goes to the stage that all threads have read.
        if constexpr (C::kStages > 1) copy_next();
      });
    }
    store_patch<C>(all, slice, PatchTile::find<C>(all, number), to, program, product, patch,
                   weights, staged);
  }
}
