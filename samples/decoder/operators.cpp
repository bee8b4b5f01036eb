#include <cstdint>

// The operator of decoder.py for the CPU.

/// A head of a token turned: the first half of its elements with the second.
template <class T>
void turn(const T* from, const float* cosine, const float* sine, std::int64_t half, float factor,
          T* to) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = static_cast<float>(from[i]), b = static_cast<float>(from[i + half]);
    to[i] = static_cast<T>((a * cosine[i] - b * sine[i]) * factor);
    to[i + half] = static_cast<T>((b * cosine[i] + a * sine[i]) * factor);
  }
}

/// A head of a token, which one cell makes: heads of queries are turned and scaled, those of keys
/// turned into the cache, those of values copied there.
template <class T>
void rotary_cache(const T* qkv, const float* cosines, const float* sines,
                  const std::int32_t* position, const T*, const T*, std::int32_t heads,
                  std::int32_t shared, std::int32_t size, std::int32_t room, std::int32_t tokens,
                  float factor, T* queries, T* keys, T* values, std::int64_t head,
                  std::int64_t token, std::int64_t batch) {
  const std::int64_t half = size / 2, place = *position + token;
  const T* from = qkv + ((batch * tokens + token) * (heads + 2 * shared) + head) * size;
  if (place < 0 || place >= room) {
    for (std::int64_t i = 0; head < heads && i < size; ++i)
      queries[((batch * heads + head) * tokens + token) * size + i] = static_cast<T>(0.0f);
    return;
  }
  const float *cosine = cosines + place * half, *sine = sines + place * half;
  if (head < heads) {
    turn(from, cosine, sine, half, factor,
         queries + ((batch * heads + head) * tokens + token) * size);
  } else if (head < heads + shared) {
    turn(from, cosine, sine, half, 1.0f,
         keys + ((batch * shared + head - heads) * room + place) * size);
  } else {
    T* to = values + ((batch * shared + head - heads - shared) * room + place) * size;
    for (std::int64_t i = 0; i < size; ++i) to[i] = from[i];
  }
}
