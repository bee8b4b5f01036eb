#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace opwright::fuzz {

/// Runs an engine that a script makes of a seed. `log` gets, in words, what is done; null: nobody.
void run_script(const uint8_t* data, size_t size, std::string* log = nullptr);

/// What a script does to a seed, in words, without running it.
std::string describe_script(const uint8_t* data, size_t size);

/// The index of the seed that a script begins with.
size_t seed_of(const uint8_t* data, size_t size);

/// The two bytes that choose the seed whatever else is in the list.
uint16_t seed_id(size_t seed);

}  // namespace opwright::fuzz
